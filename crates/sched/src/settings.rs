//! The lengths of time that the scheduler works with.

use std::time::Duration;

/// What a scheduler aims at. The defaults suit a GPU on which a change of process costs about 140 µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// In about this time everybody who competes has had a turn, as long as [`Settings::shortest`] allows it.
    pub round: Duration,
    /// No slice is shorter, so that changing from one session to the next stays a small part of it.
    pub shortest: Duration,
    /// The slice of a session that runs one command at a time, among others that do: long enough that changing from one to
    /// the next after each command is not what the device is busy with.
    pub together: Duration,
    /// What a tenant that was away may be behind the others when it comes back: so much of its device time goes first.
    pub credit: Duration,
    /// What it costs to change from one session to another. A tenant that interrupts another one pays it.
    pub switch: Duration,
    /// How long a lower level waits behind a higher one before it gets one short turn.
    pub patience: Duration,
    /// The device time that a capped tenant may use at once is what its cap is of this.
    pub window: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            round: Duration::from_millis(20),
            shortest: Duration::from_millis(2),
            together: Duration::from_millis(4),
            credit: Duration::from_millis(8),
            switch: Duration::from_micros(150),
            patience: Duration::from_millis(250),
            window: Duration::from_millis(100),
        }
    }
}

impl Settings {
    /// The same settings with every length between a microsecond and an hour, and no round shorter than a slice.
    pub(crate) fn checked(self) -> Settings {
        let sane = |length: Duration| length.clamp(Duration::from_micros(1), Duration::from_secs(3600));
        let shortest = sane(self.shortest);
        Settings {
            round: sane(self.round).max(shortest),
            shortest,
            together: sane(self.together),
            // Nothing is a good value for these two.
            credit: self.credit.min(Duration::from_secs(3600)),
            switch: self.switch.min(Duration::from_secs(3600)),
            patience: sane(self.patience),
            window: sane(self.window),
        }
    }
}
