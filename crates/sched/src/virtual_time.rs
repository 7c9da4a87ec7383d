//! Device time divided by weight: who has least of it is next.

use std::num::NonZeroU32;
use std::time::Duration;

/// How much device time a tenant, or a session, has had for each unit of its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Virtual(u128);

impl Virtual {
    /// After another `used` of device time.
    pub(crate) fn after(self, used: Duration, weight: NonZeroU32) -> Virtual {
        Virtual(self.0.saturating_add(step(used, weight)))
    }

    /// As if `credit` had not been used.
    pub(crate) fn before(self, credit: Duration, weight: NonZeroU32) -> Virtual {
        Virtual(self.0.saturating_sub(step(credit, weight)))
    }

    /// By how much `self` is ahead of `other`; zero if it is behind.
    pub(crate) fn ahead_of(self, other: Virtual) -> Virtual {
        Virtual(self.0.saturating_sub(other.0))
    }

    /// `self`, with `distance` added.
    pub(crate) fn plus(self, distance: Virtual) -> Virtual {
        Virtual(self.0.saturating_add(distance.0))
    }

    /// The device time that makes this much for a tenant of `weight`.
    pub(crate) fn device_time(self, weight: NonZeroU32) -> Duration {
        let nanoseconds = self.0.saturating_mul(u128::from(weight.get())) >> 32;
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

/// 32 bits below a nanosecond, so that dividing by a weight loses nothing that matters.
fn step(used: Duration, weight: NonZeroU32) -> u128 {
    (used.as_nanos().min(u128::from(u64::MAX)) << 32) / u128::from(weight.get())
}
