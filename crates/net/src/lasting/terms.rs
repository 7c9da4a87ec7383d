//! What both ends of a lasting line agree on.

use std::time::Duration;

/// What both ends of a line have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// A peer that is silent for so long is taken for dead; `None`: silence means nothing.
    pub heartbeat: Option<Duration>,
    /// How long a line may be broken.
    pub grace: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { heartbeat: Some(Duration::from_secs(10)), grace: Duration::from_secs(30) }
    }
}

impl Terms {
    /// There is no use in a lasting line.
    pub const NOTHING: Terms = Terms { heartbeat: None, grace: Duration::ZERO };

    /// From what travels: milliseconds, and 0 for no heartbeat.
    pub fn from_millis(heartbeat: u32, grace: u32) -> Terms {
        let time = |millis: u32| Duration::from_millis(millis.into());
        Terms { heartbeat: Some(time(heartbeat)).filter(|limit| !limit.is_zero()), grace: time(grace) }
    }

    /// What [`Terms::from_millis`] takes.
    pub fn millis(&self) -> (u32, u32) {
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        (self.heartbeat.map_or(0, millis), millis(self.grace))
    }

    /// What two sides agree on: the shorter of both times.
    #[must_use]
    pub fn and(self, other: Terms) -> Terms {
        let heartbeat = match (self.heartbeat, other.heartbeat) {
            (Some(one), Some(other)) => Some(one.min(other)),
            _ => None,
        };
        Terms { heartbeat, grace: self.grace.min(other.grace) }
    }

    /// Whether it is [`Terms::NOTHING`].
    pub fn is_nothing(&self) -> bool {
        *self == Terms::NOTHING
    }

    /// How often a line is to be [tended](Lasting::tend).
    pub fn interval(&self) -> Option<Duration> {
        self.heartbeat.map(|limit| (limit / 4).max(Duration::from_millis(10)))
    }
}
