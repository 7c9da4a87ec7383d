//! In which order a driver is told of a platform's devices, so that programs which take the first one spread over all.
//!
//! A session counts for a device from its first context there, so programs that are started together would all be told of
//! the same one. Therefore whoever was told of a device first counts for it, too, until it has had time for a context.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use telecl_wire::handshake::DeviceLoad;
use telecl_wire::info::Platform;

/// How long a program that was told of a device is expected there.
const EXPECTED: Duration = Duration::from_secs(2);

/// So many are remembered.
const MOST: usize = 1024;

/// Who was told of which device lately. Its lock is held for a few lines.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    told: Mutex<VecDeque<Told>>,
}

#[derive(Debug)]
struct Told {
    /// The program: it may greet twice, on its way to a nearer link.
    pid: u32,
    device: u64,
    at: Instant,
}

impl Placement {
    /// Puts the devices of each platform in order: those with room first, then those that fewer use or will use, then by
    /// number.
    pub(crate) fn order(&self, platforms: &mut [Platform<'_>], loads: &[DeviceLoad], pid: u32, now: Instant) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|told| told.pid != pid && now.saturating_duration_since(told.at) < EXPECTED);
        for platform in platforms {
            platform.devices.sort_by_key(|device| {
                let load = loads.iter().find(|load| load.device == device.id);
                let (sessions, most) = load.map_or((0, 0), |load| (load.sessions, load.most));
                let expected = told.iter().filter(|told| told.device == device.id).count();
                (most > 0 && sessions >= most, sessions as usize + expected, device.id)
            });
            if let Some(first) = platform.devices.first() {
                told.push_back(Told { pid, device: first.id, at: now });
            }
        }
        let excess = told.len().saturating_sub(MOST);
        told.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use telecl_wire::info::Device;

    use super::*;

    fn platforms() -> Vec<Platform<'static>> {
        let device = |id| Device { id, info: Vec::new() };
        vec![
            Platform { index: 0, info: Vec::new(), devices: vec![device(1), device(2), device(3)] },
            Platform { index: 1, info: Vec::new(), devices: vec![device(4)] },
        ]
    }

    fn load(device: u64, sessions: u32, most: u32) -> DeviceLoad {
        DeviceLoad { device, sessions, most }
    }

    fn told(placement: &Placement, loads: &[DeviceLoad], pid: u32, now: Instant) -> Vec<u64> {
        let mut platforms = platforms();
        placement.order(&mut platforms, loads, pid, now);
        assert!(platforms[1].devices.len() == 1 && platforms[1].devices[0].id == 4, "platforms stay as they are");
        platforms[0].devices.iter().map(|device| device.id).collect()
    }

    #[test]
    fn the_device_that_fewest_use_comes_first_and_a_full_one_last() {
        let now = Instant::now();
        let order = |loads: &[DeviceLoad]| told(&Placement::default(), loads, 1, now);
        assert_eq!(order(&[]), [1, 2, 3]);
        assert_eq!(order(&[load(1, 3, 0), load(2, 1, 0), load(3, 1, 0)]), [2, 3, 1]);
        assert_eq!(order(&[load(1, 1, 1), load(2, 5, 0), load(3, 7, 8)]), [2, 3, 1]);
    }

    #[test]
    fn programs_that_are_started_together_are_told_of_different_devices() {
        let (placement, now) = (Placement::default(), Instant::now());
        let first = |pid, at| told(&placement, &[], pid, at)[0];
        assert_eq!([first(11, now), first(12, now), first(13, now), first(14, now)], [1, 2, 3, 1]);
        assert_eq!(first(12, now), 2, "one that greets again is told the same");
        // Those that never made a context are not waited for.
        assert_eq!(first(15, now + EXPECTED), 1);
    }
}
