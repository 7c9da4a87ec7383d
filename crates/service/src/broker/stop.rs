//! Signals as something that can be polled: SIGTERM and SIGINT to stop, SIGHUP to read the policy again.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

/// What the process is told by signals.
#[derive(Debug)]
pub(crate) struct Signals {
    stop: UnixStream,
    reload: Option<UnixStream>,
    handlers: Vec<SigId>,
}

impl Signals {
    /// With `reload`, SIGHUP is taken as well; otherwise it ends the process, as it does by default.
    pub(crate) fn install(reload: bool) -> io::Result<Signals> {
        let (stop, stopped) = UnixStream::pair()?;
        let mut signals = Signals { stop, reload: None, handlers: Vec::new() };
        for signal in [SIGTERM, SIGINT] {
            signals.handlers.push(pipe::register(signal, stopped.try_clone()?)?);
        }
        if reload {
            let (reload, told) = UnixStream::pair()?;
            reload.set_nonblocking(true)?;
            signals.reload = Some(reload);
            signals.handlers.push(pipe::register(SIGHUP, told)?);
        }
        Ok(signals)
    }

    /// Readable as soon as the process was asked to stop.
    pub(crate) fn stop(&self) -> &UnixStream {
        &self.stop
    }

    /// Readable when there was a SIGHUP.
    pub(crate) fn reload(&self) -> Option<&UnixStream> {
        self.reload.as_ref()
    }

    /// Whether there was one since this was asked last.
    pub(crate) fn take_reload(&self) -> bool {
        let mut signals = [0; 64];
        self.reload.as_ref().is_some_and(|mut reload| reload.read(&mut signals).is_ok_and(|count| count > 0))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            unregister(handler);
        }
    }
}
