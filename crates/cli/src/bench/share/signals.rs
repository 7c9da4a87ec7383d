//! SIGINT and SIGTERM as something that can be polled, so that nothing is left behind.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// Takes the signals that end a command, for the rest of the process's life.
#[derive(Debug)]
pub(crate) struct Signals {
    told: UnixStream,
    /// The last one; 0 if there was none.
    last: Arc<AtomicUsize>,
}

impl Signals {
    pub(crate) fn install() -> io::Result<Signals> {
        let (told, tell) = UnixStream::pair()?;
        let last = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register_usize(signal, Arc::clone(&last), signal.unsigned_abs() as usize)?;
            low_level::pipe::register(signal, tell.try_clone()?)?;
        }
        Ok(Signals { told, last })
    }

    /// Readable when there was one.
    pub(crate) fn told(&self) -> &UnixStream {
        &self.told
    }

    pub(crate) fn is_told(&self) -> bool {
        self.last.load(Ordering::Relaxed) != 0
    }

    /// Ends this process as the signal would have.
    pub(crate) fn obey(&self) {
        let signal = self.last.load(Ordering::Relaxed);
        // It ends the process, unless there was none.
        let _ = low_level::emulate_default_handler(signal.try_into().unwrap_or(SIGTERM));
    }
}
