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
    since: Option<Instant>,
    /// Whether others need the processor.
    crowded: bool,
}

impl Spin {
    /// Spins for at most `limit`; not at all where there is only one processor, which the peer needs.
    pub fn new(limit: Duration) -> Spin {
        Spin { limit: if processors() > 1 { limit } else { Duration::ZERO }, since: None, crowded: false }
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        self.since = None;
        self.crowded = false;
    }
}

/// Whether there are so few processors that all are needed by those who have work: by the device itself, if it is one of
/// them.
pub fn processors_are_few() -> bool {
    processors() <= 3
}

fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// If giving way takes so long, others have work for this processor.
const CROWDED: Duration = Duration::from_micros(10);

impl Idle for Spin {
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        if self.crowded || now - *self.since.get_or_insert(now) >= self.limit {
            return false;
        }
        // The peer, or the device, may be waiting for this very processor.
        thread::yield_now();
        // Somebody was, and may be again: a sleeper is woken as soon as there is a processor for it.
        self.crowded = now.elapsed() > CROWDED;
        true
    }

    fn arrived(&mut self) {
        self.reset();
    }
}

/// As [`Spin`], with a limit that it learns: where something came within a millisecond last time, it hopes for as much
/// again; where it did not, it soon gives up. So programs with short commands never sleep in between, and those with long
/// ones do not keep a processor busy for nothing.
#[derive(Clone, Copy, Debug)]
pub struct LearningSpin(Spin);

impl LearningSpin {
    const SHORT: Duration = Duration::from_micros(50);
    const LONG: Duration = Duration::from_micros(1500);
    const SOON: Duration = Duration::from_millis(1);

    #[expect(clippy::new_without_default, reason = "nobody asks for a default")]
    pub fn new() -> LearningSpin {
        LearningSpin(Spin::new(LearningSpin::SHORT))
    }

    /// Something came, after `waited`.
    fn learn(&mut self, waited: Duration) {
        let long = if processors_are_few() { 2 * LearningSpin::SHORT } else { LearningSpin::LONG };
        self.0 = Spin::new(if waited < LearningSpin::SOON { long } else { LearningSpin::SHORT });
    }
}

impl Idle for LearningSpin {
    fn turn(&mut self) -> bool {
        self.0.turn()
    }

    fn arrived(&mut self) {
        if let Some(since) = self.0.since {
            self.learn(since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spin_ends_and_stays_ended_until_something_arrives() {
        let mut spin = Spin::new(Duration::from_micros(10));
        while spin.turn() {}
        assert!(!spin.turn());
        spin.arrived();
        assert_eq!(spin.turn(), processors() > 1);
    }

    #[test]
    fn what_came_soon_is_waited_for_longer() {
        let mut spin = LearningSpin::new();
        spin.learn(Duration::from_micros(200));
        let patient = spin.0.limit;
        spin.learn(Duration::from_millis(5));
        assert!(spin.0.limit < patient || processors() == 1);
    }
}
