//! What a thread does while nothing arrives.

use std::fmt;
use std::num::NonZero;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Asked while there is nothing to receive.
pub trait Idle: Send + fmt::Debug {
    /// Does something short. `true` if the link is to be looked at again, `false` if the thread is to sleep.
    fn turn(&mut self) -> bool;

    /// The thread is about to sleep.
    fn sleeping(&mut self) {}

    /// Something has arrived.
    fn arrived(&mut self) {}
}

/// Sleeps at once.
#[derive(Clone, Copy, Debug)]
pub struct Sleep;

impl Idle for Sleep {
    fn turn(&mut self) -> bool {
        false
    }
}

/// Looks again for a while before it sleeps. To be woken costs tens of microseconds, several times what a short
/// command takes; and whoever has just sent something expects an answer soon.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    limit: Duration,
    until: Option<Instant>,
}

impl Spin {
    /// Spins for at most `limit`; not at all where there is only one processor, which the peer needs.
    pub fn new(limit: Duration) -> Spin {
        static PROCESSORS: OnceLock<usize> = OnceLock::new();
        let processors = *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get));
        Spin { limit: if processors > 1 { limit } else { Duration::ZERO }, until: None }
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        self.until = None;
    }
}

impl Idle for Spin {
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        if now >= *self.until.get_or_insert(now + self.limit) {
            self.until = None;
            return false;
        }
        // The peer, or the device, may be waiting for this very processor.
        thread::yield_now();
        true
    }

    fn arrived(&mut self) {
        self.reset();
    }
}
