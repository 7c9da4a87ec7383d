//! How much of a device a tenant is to have.

use std::num::NonZeroU32;

/// A tenant's part of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Device time is given in proportion to this, among the tenants of a level.
    pub weight: NonZeroU32,
    /// The most it may use, also of a device that is otherwise idle.
    pub cap: Option<Cap>,
    /// Tenants of a higher level go first.
    pub level: u8,
}

impl Default for Share {
    /// Weight 1, no cap, level 1: one level is left below for those who shall wait.
    fn default() -> Share {
        Share { weight: NonZeroU32::MIN, cap: None, level: 1 }
    }
}

/// A part of a device's time, from one in ten thousand up to all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cap(u16);

impl Cap {
    /// The whole device, in the parts that [`Cap::ten_thousandths`] counts.
    pub(crate) const WHOLE: u16 = 10_000;

    /// `parts` of ten thousand: 2,000 is a fifth. `None` for zero and for more than all.
    pub fn ten_thousandths(parts: u16) -> Option<Cap> {
        (1..=Cap::WHOLE).contains(&parts).then_some(Cap(parts))
    }

    pub(crate) fn parts(self) -> u16 {
        self.0
    }

    /// A cap that leaves the whole device is none.
    pub(crate) fn limits(self) -> bool {
        self.0 < Cap::WHOLE
    }
}
