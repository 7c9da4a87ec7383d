//! Signals as something that can be polled: SIGTERM and SIGINT to stop, SIGHUP to read the policy again.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

/// What the process is told by signals.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: UnixStream,
    interrupt: UnixStream,
    reload: Option<UnixStream>,
    handlers: Vec<SigId>,
}

/// Whether the process is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    /// When it is convenient: SIGTERM.
    Stop,
    /// SIGINT, or SIGTERM twice: somebody waits.
    StopNow,
}

impl Signals {
    /// With `reload`, SIGHUP is taken as well; otherwise it ends the process, as it does by default.
    pub(crate) fn install(reload: bool) -> io::Result<Signals> {
        let mut handlers = Vec::new();
        let mut take = |signal| {
            let (ours, told) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            handlers.push(pipe::register(signal, told)?);
            io::Result::Ok(ours)
        };
        let (terminate, interrupt) = (take(SIGTERM)?, take(SIGINT)?);
        let reload = reload.then(|| take(SIGHUP)).transpose()?;
        Ok(Signals { terminate, interrupt, reload, handlers })
    }

    /// Readable as soon as the process was asked to stop.
    pub(crate) fn stop(&self) -> [&UnixStream; 2] {
        [&self.terminate, &self.interrupt]
    }

    /// What it was asked since this was asked last.
    pub(crate) fn take_stop(&self) -> Told {
        match (count(&self.interrupt), count(&self.terminate)) {
            (0, 0) => Told::Nothing,
            (0, 1) => Told::Stop,
            _ => Told::StopNow,
        }
    }

    /// Readable when there was a SIGHUP.
    pub(crate) fn reload(&self) -> Option<&UnixStream> {
        self.reload.as_ref()
    }

    /// Whether there was one since this was asked last.
    pub(crate) fn take_reload(&self) -> bool {
        self.reload.as_ref().is_some_and(|reload| count(reload) > 0)
    }
}

/// How many signals there were, of those that have not been counted.
fn count(mut signals: &UnixStream) -> usize {
    // There may be none.
    signals.read(&mut [0; 64]).unwrap_or(0)
}

impl Drop for Signals {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            unregister(handler);
        }
    }
}
