//! Finding out whether the peer of a lasting line is still there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::inbound::Room;
use super::{Cause, Health, Lasting, Phase, lock, try_lock};

/// When something was heard and said last, as far as whoever tends the line has noticed.
#[derive(Debug)]
pub(super) struct Noticed {
    looked: Instant,
    heard: (u64, Instant),
    said: (u64, Instant),
}

impl Noticed {
    pub(super) fn new() -> Noticed {
        let now = Instant::now();
        Noticed { looked: now, heard: (0, now), said: (0, now) }
    }
}

impl Lasting {
    /// To be called every [`Terms::interval`]: hears what has come, and tells the peer that we are there if nothing else
    /// has for a while. Returns how long the peer has been silent.
    pub fn tend(&self) -> Duration {
        self.look(Room::Fixed);
        let Some(limit) = self.terms.heartbeat else { return Duration::ZERO };
        let now = Instant::now();
        let (heard, said) = (self.heard.load(Ordering::Relaxed), self.said.load(Ordering::Relaxed));
        let mut noticed = lock(&self.noticed);
        // Whoever was stopped meanwhile does not know what has come.
        let stopped = now - noticed.looked > limit;
        noticed.looked = now;
        if stopped || noticed.heard.0 != heard || self.has_unheard() {
            noticed.heard = (heard, now);
        }
        if noticed.said.0 != said {
            noticed.said = (said, now);
        }
        let (silent, quiet) = (now - noticed.heard.1, now - noticed.said.1);
        drop(noticed);
        if quiet >= limit / 4 {
            self.say_something(false);
        }
        if matches!(self.health(), Health::Whole) { silent } else { Duration::ZERO }
    }

    /// Whether something has come that nobody has taken, such as data that nobody wants yet.
    fn has_unheard(&self) -> bool {
        let state = self.lock_state();
        !matches!(state.phase, Phase::Whole) || state.transport.stream.has_something()
    }

    /// Takes the peer for dead, or the way to it.
    pub fn give_up_connection(&self) {
        let transport = Arc::clone(&self.lock_state().transport);
        self.part_with(&transport, Cause::Lost, &io::ErrorKind::TimedOut.into());
    }

    /// The system says that the peer has closed the connection, while perhaps nobody receives. What it said before is
    /// heard first, as far as nobody has to take data for that. `false` if somebody receives, and will notice the end.
    pub fn hung_up(&self) -> bool {
        let transport = Arc::clone(&self.lock_state().transport);
        let cause = if transport.stream.was_reset() { Cause::Lost } else { Cause::Closed };
        if try_lock(&self.inbound).is_none() {
            return false;
        }
        self.look(Room::Fixed);
        if matches!(self.health(), Health::Whole) {
            self.part_with(&transport, cause, &io::ErrorKind::UnexpectedEof.into());
        }
        true
    }
}
