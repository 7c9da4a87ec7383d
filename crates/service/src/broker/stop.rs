//! Signals as something that can be polled: SIGTERM and SIGINT to stop, SIGUSR1 to leave the sessions to the next service,
//! SIGHUP to read the policy again.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::low_level::{pipe, unregister};

/// What the process is told by signals.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: UnixStream,
    interrupt: UnixStream,
    leave: UnixStream,
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
    /// Without its sessions, which the next service takes over: SIGUSR1.
    Leave,
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
        let (terminate, interrupt, leave) = (take(SIGTERM)?, take(SIGINT)?, take(SIGUSR1)?);
        let reload = reload.then(|| take(SIGHUP)).transpose()?;
        Ok(Signals { terminate, interrupt, leave, reload, handlers })
    }

    /// Readable as soon as the process was asked to stop.
    pub(crate) fn stop(&self) -> [&UnixStream; 3] {
        [&self.terminate, &self.interrupt, &self.leave]
    }

    /// What it was asked since this was asked last.
    pub(crate) fn take_stop(&self) -> Told {
        match (count(&self.interrupt), count(&self.terminate), count(&self.leave)) {
            (0, 0, 0) => Told::Nothing,
            (0, 0, _) => Told::Leave,
            (0, 1, _) => Told::Stop,
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
