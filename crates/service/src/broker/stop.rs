//! SIGTERM and SIGINT as something that can be polled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

/// Readable as soon as the process was asked to stop.
#[derive(Debug)]
pub(crate) struct StopSignal {
    wake: UnixStream,
    handlers: Vec<SigId>,
}

impl StopSignal {
    pub(crate) fn install() -> io::Result<StopSignal> {
        let (wake, signalled) = UnixStream::pair()?;
        let mut handlers = Vec::new();
        for signal in [SIGTERM, SIGINT] {
            handlers.push(pipe::register(signal, signalled.try_clone()?)?);
        }
        Ok(StopSignal { wake, handlers })
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Drop for StopSignal {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            unregister(handler);
        }
    }
}
