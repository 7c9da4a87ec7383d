//! A cap: device time that comes at a steady rate and is kept up to a limit.

use std::time::{Duration, Instant};

use crate::{Cap, Settings};

/// Counts in ten-thousandths of a nanosecond of device time, so that nothing is lost to rounding.
const UNIT: i128 = Cap::WHOLE as i128;

/// What a capped tenant may still use. Less than nothing is a debt: a kernel that ran too long is paid for.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    cap: Cap,
    tokens: i128,
    capacity: i128,
    /// A turn begins when there is so much; less would make slices that are all switching.
    enough: i128,
    filled: Instant,
    /// When there last began to be enough.
    ready: Instant,
}

impl Bucket {
    /// A full one.
    pub(crate) fn new(cap: Cap, settings: &Settings, now: Instant) -> Bucket {
        let enough = units(settings.shortest);
        let window = nanoseconds(settings.window) * i128::from(cap.parts());
        // Twice as much as a turn needs: a tenant with short kernels must not wait for a full bucket after each.
        let capacity = window.max(2 * enough);
        Bucket { cap, tokens: capacity, capacity, enough, filled: now, ready: now }
    }

    /// The same tenant with another cap: what it owes stays.
    pub(crate) fn with_cap(&self, cap: Cap, settings: &Settings, now: Instant) -> Bucket {
        let mut new = Bucket::new(cap, settings, now);
        new.tokens = self.tokens.min(new.capacity);
        new
    }

    /// Adds what has come since the last time.
    pub(crate) fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled);
        if self.tokens < self.enough {
            let missing = self.wait_for(self.enough);
            if missing <= elapsed {
                self.ready = self.filled.checked_add(missing).unwrap_or(now);
            }
        }
        let more = nanoseconds(elapsed) * i128::from(self.cap.parts());
        self.tokens = self.tokens.saturating_add(more).min(self.capacity);
        self.filled = self.filled.max(now);
    }

    /// Takes what was used, also more than there is.
    pub(crate) fn take(&mut self, used: Duration) {
        self.tokens = self.tokens.saturating_sub(units(used));
    }

    /// When a turn may begin: the time of the last filling, or a later one.
    pub(crate) fn ready_at(&self) -> Instant {
        if self.tokens >= self.enough {
            return self.filled;
        }
        // An instant beyond what the clock can hold is as good as one in a year.
        let wait = self.wait_for(self.enough).min(Duration::from_secs(365 * 24 * 3600));
        self.filled.checked_add(wait).unwrap_or(self.filled)
    }

    /// When it was last ready, after it was not.
    pub(crate) fn ready_since(&self) -> Instant {
        self.ready
    }

    /// The device time that may be used now.
    pub(crate) fn left(&self) -> Duration {
        let nanoseconds = (self.tokens / UNIT).clamp(0, i128::from(u64::MAX));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Whether nothing would be lost if it were forgotten.
    pub(crate) fn is_full(&self) -> bool {
        self.tokens >= self.capacity
    }

    /// How long it takes until there are `wanted` tokens.
    fn wait_for(&self, wanted: i128) -> Duration {
        let missing = wanted.saturating_sub(self.tokens).max(0);
        let parts = i128::from(self.cap.parts());
        let nanoseconds = missing.saturating_add(parts - 1) / parts;
        u64::try_from(nanoseconds).map_or(Duration::MAX, Duration::from_nanos)
    }
}

fn units(time: Duration) -> i128 {
    nanoseconds(time) * UNIT
}

/// No more than a century, which leaves room to multiply.
fn nanoseconds(time: Duration) -> i128 {
    i128::from(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX / 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(parts: u16, now: Instant) -> Bucket {
        Bucket::new(Cap::ten_thousandths(parts).unwrap(), &Settings::default(), now)
    }

    #[test]
    fn what_was_used_comes_back_at_the_rate_of_the_cap() {
        let start = Instant::now();
        let mut bucket = bucket(2_000, start);
        assert_eq!(bucket.left(), Duration::from_millis(20));
        bucket.take(Duration::from_millis(30));
        assert_eq!(bucket.left(), Duration::ZERO);
        // 10 ms of debt and the 2 ms that a turn needs, at a fifth of the time.
        assert_eq!(bucket.ready_at(), start + Duration::from_millis(60));
        bucket.fill(start + Duration::from_millis(70));
        assert_eq!(bucket.left(), Duration::from_millis(4));
        assert_eq!(bucket.ready_since(), start + Duration::from_millis(60));
    }

    #[test]
    fn it_holds_no_more_than_its_window() {
        let start = Instant::now();
        let mut bucket = bucket(5_000, start);
        bucket.fill(start + Duration::from_secs(3600));
        assert_eq!(bucket.left(), Duration::from_millis(50));
        assert!(bucket.is_full());
    }

    #[test]
    fn time_that_runs_backwards_and_absurd_uses_do_no_harm() {
        let start = Instant::now();
        let mut bucket = bucket(1, start + Duration::from_secs(1));
        bucket.fill(start);
        bucket.take(Duration::MAX);
        bucket.take(Duration::MAX);
        assert_eq!(bucket.left(), Duration::ZERO);
        assert!(bucket.ready_at() > start + Duration::from_secs(3600));
        bucket.fill(start + Duration::from_secs(10));
    }
}
