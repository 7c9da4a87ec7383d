//! How much of a device's memory a session may use, and what all sessions of a tenant have together.
//!
//! Workers count for themselves, and refuse what is beyond the session's own limit. What several sessions share only the
//! broker can tell: their workers ask it before they allocate. What a session has is given back when its worker's process
//! is gone, however it ended.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use telecl_policy::{Grant, Tenant};
use tracing::debug;

use super::offer::Offer;
use crate::board::{DeviceCount, SessionBoard};
use crate::channel::{Begin, MemoryLimit, MemoryWish};

/// What a tenant's session may have of these devices; those without a limit are not among them.
pub(crate) fn limits(grant: &Grant, devices: &[u64], offer: &Offer) -> Vec<MemoryLimit> {
    let limit = |device: u64| {
        // A device that does not say how much it has is taken at the policy's word.
        let own = offer.memory(device).unwrap_or(u64::MAX);
        let bytes = |memory: Option<telecl_policy::Memory>| memory.map(|memory| memory.on_device(own));
        let (session, tenant) = (bytes(grant.session_memory.value), bytes(grant.device_memory.value));
        let most = session.into_iter().chain(tenant).min()?;
        // As many sessions as there may be, each with all it may have: nobody has to ask if that is not too much.
        let all = grant.sessions.value.map(|sessions| u64::from(sessions.get()).saturating_mul(most));
        let together = tenant.filter(|tenant| all.is_none_or(|all| all > *tenant));
        Some(MemoryLimit { device, most, together })
    };
    devices.iter().filter_map(|device| limit(*device)).collect()
}

/// What the sessions have. Its lock is held for a few lines, and no other is taken meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<u64, Holding>>);

/// What one session has.
#[derive(Debug)]
struct Holding {
    tenant: Tenant,
    /// What was reserved on devices for which its worker asks.
    reserved: HashMap<u64, u64>,
    /// Has its own count for all others: of a session that began before its tenant was limited, for instance.
    board: Arc<SessionBoard>,
}

impl Holding {
    fn on(&self, device: u64) -> u64 {
        let counted = || {
            let place = self.board.place(device)?;
            Some(self.board.device(place, DeviceCount::Memory).load(Ordering::Relaxed))
        };
        self.reserved.get(&device).copied().or_else(counted).unwrap_or(0)
    }
}

/// A session's account. Dropping it gives everything back.
#[derive(Debug)]
pub(crate) struct Account<'a> {
    memory: &'a Memory,
    session: u64,
    limits: &'a [MemoryLimit],
}

impl Memory {
    /// For a session whose worker is about to begin.
    pub(crate) fn open<'a>(&'a self, begin: &'a Begin, tenant: &Tenant, board: &Arc<SessionBoard>) -> Account<'a> {
        let asked = begin.memory.iter().filter(|limit| limit.together.is_some());
        let reserved = asked.map(|limit| (limit.device, 0)).collect();
        let holding = Holding { tenant: tenant.clone(), reserved, board: Arc::clone(board) };
        self.lock().insert(begin.session, holding);
        Account { memory: self, session: begin.session, limits: &begin.memory }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Holding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account<'_> {
    /// Takes so much, on all of the devices or on none. If the tenant's sessions would have too much then, says so.
    pub(crate) fn reserve(&self, wish: &MemoryWish) -> Result<(), String> {
        let mut all = self.memory.lock();
        let Some(tenant) = all.get(&self.session).map(|own| own.tenant.clone()) else { return Err(String::new()) };
        for device in &wish.devices {
            let together = self.limits.iter().find(|limit| limit.device == *device).and_then(|limit| limit.together);
            let Some(together) = together else { return Err(format!("the memory of device {device} is not shared")) };
            let peers = all.values().filter(|holding| holding.tenant == tenant);
            let taken = peers.fold(0, |sum: u64, holding| sum.saturating_add(holding.on(*device)));
            if taken.checked_add(wish.bytes).is_none_or(|sum| sum > together) {
                return Err(format!(
                    "the sessions of tenant {tenant} may use {together} bytes of device {device} together \
                     (device_memory), and have {taken}"
                ));
            }
        }
        if let Some(own) = all.get_mut(&self.session) {
            for device in &wish.devices {
                *own.reserved.entry(*device).or_default() += wish.bytes;
            }
        }
        Ok(())
    }

    /// Gives so much back; a worker that says too much has the less for it.
    pub(crate) fn give_back(&self, wish: &MemoryWish) {
        if let Some(own) = self.memory.lock().get_mut(&self.session) {
            for device in &wish.devices {
                if let Some(reserved) = own.reserved.get_mut(device) {
                    *reserved = reserved.saturating_sub(wish.bytes);
                }
            }
        }
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        let Some(Holding { board, .. }) = self.memory.lock().remove(&self.session) else { return };
        for (place, device) in board.devices().iter().enumerate() {
            let read = |count| board.device(place, count).load(Ordering::Relaxed);
            let (left, peak) = (read(DeviceCount::Memory), read(DeviceCount::PeakMemory));
            if peak > 0 {
                debug!(session = self.session, device, peak, left, "memory of the session");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use telecl_policy::Policy;

    use super::*;

    fn limits_of(policy: &str) -> Vec<MemoryLimit> {
        let policy = Policy::parse(Path::new("policy.toml"), policy).unwrap();
        // Of a device that does not say how much memory it has.
        limits(&policy.for_tenant(&Tenant::anonymous()), &[1], &Offer::default())
    }

    fn session(session: u64, memory: Vec<MemoryLimit>) -> (Begin, Arc<SessionBoard>) {
        let (compression, devices) = (telecl_net::Compression::Off, vec![1, 2]);
        let begin = Begin { session, compression, limits: crate::channel::Limits::NONE, devices, memory };
        let board = SessionBoard::create(&begin.devices).unwrap().0;
        (begin, Arc::new(board))
    }

    fn wish(bytes: u64, devices: &[u64]) -> MemoryWish {
        MemoryWish { bytes, devices: devices.to_vec() }
    }

    fn tenant(name: &str) -> Tenant {
        Tenant::parse(name).unwrap()
    }

    #[test]
    fn the_smallest_limit_counts_and_the_broker_is_asked_only_where_sessions_can_come_to_too_much() {
        let limit = |most, together| vec![MemoryLimit { device: 1, most, together }];
        let gib = 1 << 30;
        assert_eq!(limits_of(""), []);
        assert_eq!(limits_of("[defaults]\nsession_memory = \"1 GiB\"\n"), limit(gib, None));
        assert_eq!(limits_of("[defaults]\ndevice_memory = \"1 GiB\"\n"), limit(gib, Some(gib)));
        assert_eq!(limits_of("[defaults]\ndevice_memory = \"1 GiB\"\nsessions = 1\n"), limit(gib, None));
        let both = "[defaults]\ndevice_memory = \"4 GiB\"\nsession_memory = \"1 GiB\"\n";
        assert_eq!(limits_of(both), limit(gib, Some(4 * gib)));
        assert_eq!(limits_of(&format!("{both}sessions = 4\n")), limit(gib, None));
        assert_eq!(limits_of(&format!("{both}sessions = 5\n")), limit(gib, Some(4 * gib)));
    }

    #[test]
    fn sessions_of_a_tenant_share_what_it_may_have_to_the_byte() {
        let memory = Memory::default();
        let limit = |device| MemoryLimit { device, most: 80, together: Some(100) };
        let ((first, one), (second, two)) =
            (session(1, vec![limit(1), limit(2)]), session(2, vec![limit(1), limit(2)]));
        let (red, blue) = (tenant("red"), tenant("blue"));
        let a = memory.open(&first, &red, &one);
        let b = memory.open(&second, &red, &two);
        assert_eq!(a.reserve(&wish(60, &[1, 2])), Ok(()));
        let denied = b.reserve(&wish(41, &[1])).unwrap_err();
        assert!(denied.contains("tenant red may use 100 bytes of device 1") && denied.contains("have 60"), "{denied}");
        // On both or on none.
        assert_eq!(b.reserve(&wish(30, &[2])), Ok(()));
        assert!(b.reserve(&wish(20, &[1, 2])).is_err());
        assert_eq!(b.reserve(&wish(40, &[1])), Ok(()));
        assert!(b.reserve(&wish(u64::MAX, &[1])).is_err() && b.reserve(&wish(1, &[9])).is_err());
        // Others have their own.
        let (third, three) = session(3, vec![limit(1)]);
        let c = memory.open(&third, &blue, &three);
        assert_eq!(c.reserve(&wish(100, &[1])), Ok(()));
        a.give_back(&wish(10, &[1]));
        assert_eq!(b.reserve(&wish(10, &[1])), Ok(()));
        assert!(b.reserve(&wish(1, &[1])).is_err());
        // However it ended.
        drop(a);
        assert_eq!(b.reserve(&wish(50, &[1])), Ok(()));
        drop((b, c));
        assert!(memory.lock().is_empty());
    }

    #[test]
    fn what_a_session_has_that_does_not_ask_counts_for_those_who_do() {
        let memory = Memory::default();
        let (old, board) = session(1, Vec::new());
        let _running = memory.open(&old, &tenant("red"), &board);
        board.device(0, DeviceCount::Memory).store(70, Ordering::Relaxed);
        let (new, other) = session(2, vec![MemoryLimit { device: 1, most: 100, together: Some(100) }]);
        let account = memory.open(&new, &tenant("red"), &other);
        assert!(account.reserve(&wish(31, &[1])).is_err());
        assert_eq!(account.reserve(&wish(30, &[1])), Ok(()));
        // More than it ever had.
        account.give_back(&wish(u64::MAX, &[1, 2, 9]));
        assert_eq!(account.reserve(&wish(30, &[1])), Ok(()));
    }
}
