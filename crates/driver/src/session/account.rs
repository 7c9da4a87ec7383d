//! What the session's objects take of each device's memory, counted as the worker counts it.
//!
//! Only devices whose memory is limited are counted. What is beyond the limit is refused here, without a message. What
//! several sessions of a tenant share only the service knows: then creates wait for the worker's word.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use telecl_wire::handshake::DeviceMemory;

use super::{Session, on_receiver_thread};

/// The memory of one session.
#[derive(Debug, Default)]
pub(crate) struct Account(Vec<OnDevice>);

#[derive(Debug)]
struct OnDevice {
    limit: DeviceMemory,
    used: AtomicU64,
}

/// There is not so much memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TooMuch {
    pub(crate) device: u64,
    pub(crate) most: u64,
    pub(crate) used: u64,
}

impl Account {
    pub(super) fn new(limits: Vec<DeviceMemory>) -> Account {
        Account(limits.into_iter().map(|limit| OnDevice { limit, used: AtomicU64::new(0) }).collect())
    }

    fn find(&self, device: u64) -> Option<&OnDevice> {
        self.0.iter().find(|on| on.limit.device == device)
    }

    /// What the session may have of a root device at most.
    pub(crate) fn most(&self, device: u64) -> u64 {
        self.find(device).map_or(u64::MAX, |on| on.limit.most)
    }

    /// What it may still take of a root device, as far as is known here.
    pub(crate) fn left(&self, device: u64) -> u64 {
        self.find(device).map_or(u64::MAX, |on| on.limit.most.saturating_sub(on.used.load(Ordering::Relaxed)))
    }

    /// Whether the service may have less for a root device than is known here.
    pub(crate) fn is_shared(&self, device: u64) -> bool {
        self.find(device).is_some_and(|on| on.limit.shared)
    }

    /// Takes so much of all of these devices, or of none.
    fn take(&self, devices: &[u64], bytes: u64) -> Result<Vec<usize>, TooMuch> {
        let mut places: Vec<usize> = Vec::new();
        for (place, on) in self.0.iter().enumerate().filter(|(_, on)| devices.contains(&on.limit.device)) {
            // Where the service is asked anyway it says so, by a limit that may have changed meanwhile.
            let most = if on.limit.shared { u64::MAX } else { on.limit.most };
            let sum = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= most);
            if let Err(used) = on.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum) {
                self.give_back(&places, bytes);
                return Err(TooMuch { device: on.limit.device, most: on.limit.most, used });
            }
            places.push(place);
        }
        Ok(places)
    }

    fn give_back(&self, places: &[usize], bytes: u64) {
        for place in places {
            self.0[*place].used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Notes what the service has given already.
    fn note(&self, device: u64, bytes: u64) -> Vec<usize> {
        let place = self.0.iter().position(|on| on.limit.device == device);
        if let Some(place) = place {
            self.0[place].used.fetch_add(bytes, Ordering::Relaxed);
        }
        place.into_iter().collect()
    }
}

impl Session {
    /// Takes memory of these root devices for an object.
    pub(crate) fn take_memory(self: &Arc<Self>, devices: &[u64], bytes: u64) -> Result<Charge, TooMuch> {
        Ok(Charge { places: self.agreed.account.take(devices, bytes)?, bytes, session: Arc::clone(self) })
    }

    /// Counts memory of a root device that the service has given.
    pub(crate) fn note_memory(self: &Arc<Self>, device: u64, bytes: u64) -> Charge {
        Charge { places: self.agreed.account.note(device, bytes), bytes, session: Arc::clone(self) }
    }
}

/// What an object takes. To be dropped when its release is on the stream: what is sent after that may use the memory.
#[derive(Debug)]
pub(crate) struct Charge {
    places: Vec<usize>,
    bytes: u64,
    session: Arc<Session>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.places.is_empty() {
            return;
        }
        let (places, bytes, session) = (std::mem::take(&mut self.places), self.bytes, Arc::clone(&self.session));
        let give_back = move || session.agreed.account.give_back(&places, bytes);
        // There the release is left to the callback thread, and comes before this.
        if on_receiver_thread() { self.session.run_callback(give_back) } else { give_back() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_of_all_devices_or_of_none_and_to_the_byte() {
        let limit = |device, most| DeviceMemory { device, most, shared: device == 4 };
        let account = Account::new(vec![limit(1, 100), limit(2, 60), limit(4, 10)]);
        let both = account.take(&[1, 2, 3], 50).unwrap();
        assert_eq!(account.take(&[1, 2], 11), Err(TooMuch { device: 2, most: 60, used: 50 }));
        assert_eq!((account.left(1), account.left(2), account.left(3)), (50, 10, u64::MAX));
        assert!(account.take(&[1], u64::MAX).is_err());
        let one = account.take(&[1], 50).unwrap();
        assert!(account.take(&[1], 1).is_err());
        account.give_back(&both, 50);
        account.give_back(&one, 50);
        assert_eq!((account.left(1), account.left(2)), (100, 60));
        assert_eq!((account.most(2), account.most(3)), (60, u64::MAX));
        assert!(account.is_shared(4) && !account.is_shared(1) && !account.is_shared(3));
        // What the service decides is not decided here.
        let asked = account.take(&[4], 11).unwrap();
        assert_eq!(account.left(4), 0);
        account.give_back(&asked, 11);
        // What the service has given is counted, even if it is too much.
        let more = account.note(1, 101);
        assert_eq!(account.left(1), 0);
        account.give_back(&more, 101);
        assert_eq!((account.left(1), account.note(3, 1)), (100, vec![]));
    }
}
