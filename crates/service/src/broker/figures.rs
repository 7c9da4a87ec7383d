//! What sessions have come to: copies of what stands on their boards, and sums of them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::board::{Count, DeviceCount, SessionBoard};

/// Figures of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceFigures([u64; DeviceCount::NUMBER]);

impl DeviceFigures {
    pub(crate) fn get(&self, count: DeviceCount) -> u64 {
        self.0[count as usize]
    }

    fn set(&mut self, count: DeviceCount, value: u64) {
        self.0[count as usize] = value;
    }

    fn add(&mut self, other: &DeviceFigures) {
        let peak = self.get(DeviceCount::PeakMemory).max(other.get(DeviceCount::PeakMemory));
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
        self.set(DeviceCount::PeakMemory, peak);
    }
}

/// Figures of a session, or of all sessions of somebody. Those of devices are by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    counts: [u64; Count::NUMBER],
    devices: BTreeMap<u64, DeviceFigures>,
}

impl Figures {
    /// What stands on the board of a session of this age. The worker may write anything there: a time that is longer
    /// than the session has lasted is not believed, because it would also be counted for the device.
    pub(crate) fn read(board: &SessionBoard, age: Duration) -> Figures {
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let mut figures = Figures::default();
        for (count, value) in Count::ALL.into_iter().zip(&mut figures.counts) {
            *value = board.count(count).load(Ordering::Relaxed);
        }
        for (place, id) in board.devices().iter().enumerate() {
            let device = DeviceFigures(DeviceCount::ALL.map(|count| {
                let value = match count {
                    DeviceCount::Busy => board.busy(place),
                    // Part of the above, and of no use to anybody else.
                    DeviceCount::BusySince | DeviceCount::LastUsed => 0,
                    _ => board.device(place, count).load(Ordering::Relaxed),
                };
                if count.is_time() { value.min(age) } else { value }
            }));
            if device != DeviceFigures::default() {
                figures.devices.insert(*id, device);
            }
        }
        figures
    }

    /// Takes over times that were longer when somebody looked before: for whoever looks again, they only grow.
    pub(crate) fn no_less_than(&mut self, before: &Figures) {
        for (id, then) in &before.devices {
            let now = self.devices.entry(*id).or_default();
            for time in DeviceCount::ALL.into_iter().filter(|count| count.is_time()) {
                now.set(time, now.get(time).max(then.get(time)));
            }
        }
    }

    /// These devices have figures, if only zeros.
    pub(crate) fn uses(&mut self, devices: &[u64]) {
        for id in devices {
            self.devices.entry(*id).or_default();
        }
    }

    /// What is left when the session has ended: it has no memory, and no slice.
    #[must_use]
    pub(crate) fn ended(mut self) -> Figures {
        for device in self.devices.values_mut() {
            device.set(DeviceCount::Memory, 0);
            device.set(DeviceCount::Parked, 0);
            device.set(DeviceCount::Slice, 0);
        }
        self
    }

    pub(crate) fn add(&mut self, other: &Figures) {
        for (sum, more) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(more);
        }
        for (id, device) in &other.devices {
            self.devices.entry(*id).or_default().add(device);
        }
    }

    pub(crate) fn get(&self, count: Count) -> u64 {
        self.counts[count as usize]
    }

    /// Those of one device; zeros if it was not used.
    pub(crate) fn device(&self, id: u64) -> DeviceFigures {
        self.devices.get(&id).copied().unwrap_or_default()
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = (u64, &DeviceFigures)> {
        self.devices.iter().map(|(id, device)| (*id, device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_added_but_peaks_are_not_and_nobody_has_more_time_than_there_was() {
        let (board, _memfd) = SessionBoard::create(&[1, 2]).unwrap();
        board.add(Count::Commands, 3);
        for (count, value) in [(DeviceCount::Busy, u64::MAX), (DeviceCount::Memory, 5), (DeviceCount::PeakMemory, 9)] {
            board.device(1, count).store(value, Ordering::Relaxed);
        }
        let figures = Figures::read(&board, Duration::from_secs(2));
        assert_eq!(figures.devices().map(|(id, _)| id).collect::<Vec<_>>(), [2]);
        assert_eq!(figures.device(2).get(DeviceCount::Busy), 2_000_000_000);
        let mut sum = figures.clone();
        sum.add(&figures.clone().ended());
        assert_eq!(sum.get(Count::Commands), 6);
        let device = sum.device(2);
        assert_eq!((device.get(DeviceCount::Memory), device.get(DeviceCount::PeakMemory)), (5, 9));
        assert_eq!(device.get(DeviceCount::Busy), 4_000_000_000);
        sum.uses(&[7]);
        assert_eq!(sum.device(7), DeviceFigures::default());
        assert_eq!(sum.devices().count(), 2);
        // What is under way counts, and is not forgotten while it ends.
        board.device(0, DeviceCount::BusySince).store(crate::board::now() - 1_000_000_000, Ordering::Relaxed);
        let running = Figures::read(&board, Duration::from_secs(60));
        assert!((1_000_000_000..10_000_000_000).contains(&running.device(1).get(DeviceCount::Busy)));
        board.device(0, DeviceCount::BusySince).store(0, Ordering::Relaxed);
        let mut ended = Figures::read(&board, Duration::from_secs(60));
        assert_eq!(ended.device(1).get(DeviceCount::Busy), 0);
        ended.no_less_than(&running);
        assert_eq!(ended.device(1).get(DeviceCount::Busy), running.device(1).get(DeviceCount::Busy));
        // Whatever a worker writes, nothing overflows.
        board.count(Count::BytesIn).store(u64::MAX, Ordering::Relaxed);
        let lies = Figures::read(&board, Duration::ZERO);
        sum.add(&lies);
        sum.add(&lies);
        assert_eq!(sum.get(Count::BytesIn), u64::MAX);
    }
}
