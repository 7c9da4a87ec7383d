//! Sessions that have been welcomed and have not asked for anything: each costs a thread and a few descriptors.
//!
//! A program may list devices and then sit for hours before it computes, or never do; so there is no limit to the time, but
//! one to their number. When there are more, the oldest of the tenant that has most is closed. Its driver, if it is
//! still interested, connects anew with its first context.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use telecl_policy::Tenant;
use tracing::info;

use super::registry::Registry;

/// No tenant has more than this share of the places.
const SHARE: usize = 2;

/// Sessions without a first request. Its lock is held for a few lines, and no other is taken meanwhile.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    most: usize,
    /// In the order in which they were welcomed.
    sessions: Mutex<BTreeMap<u64, Tenant>>,
}

/// A session counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Place<'h> {
    home: &'h HalfOpen,
    session: u64,
}

impl HalfOpen {
    pub(crate) fn for_descriptors(most: u64) -> HalfOpen {
        // Each has four.
        HalfOpen::new(usize::try_from(most / 16).unwrap_or(usize::MAX).clamp(16, 1024))
    }

    fn new(most: usize) -> HalfOpen {
        HalfOpen { most, sessions: Mutex::default() }
    }

    /// Notes a session; another may have to go for it.
    pub(crate) fn enter(&self, session: u64, tenant: &Tenant, registry: &Registry) -> Place<'_> {
        let displaced = {
            let mut sessions = self.lock();
            sessions.insert(session, tenant.clone());
            self.one_too_many(&mut sessions, tenant)
        };
        if let Some(displaced) = displaced {
            info!(session = displaced, "session closed to make room: it was welcomed and has asked for nothing");
            registry.displace(displaced);
        }
        Place { home: self, session }
    }

    fn one_too_many(&self, sessions: &mut BTreeMap<u64, Tenant>, newest: &Tenant) -> Option<u64> {
        let mut counts: HashMap<&Tenant, usize> = HashMap::new();
        sessions.values().for_each(|tenant| *counts.entry(tenant).or_default() += 1);
        let largest = if counts.get(newest).copied().unwrap_or(0) > self.most.div_ceil(SHARE) {
            newest
        } else if sessions.len() > self.most {
            counts.into_iter().max_by_key(|(_, count)| *count)?.0
        } else {
            return None;
        };
        let oldest = sessions.iter().find(|(_, tenant)| *tenant == largest).map(|(session, _)| *session)?;
        sessions.remove(&oldest);
        Some(oldest)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Tenant>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.home.lock().remove(&self.session);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use telecl_net::Stream;

    use super::*;

    #[test]
    fn the_oldest_of_the_largest_tenant_makes_room() {
        let (half_open, registry) = (HalfOpen::new(4), Registry::default());
        let tenant = |name: &str| name.parse::<Tenant>().unwrap();
        let mut peers = Vec::new();
        let mut places = Vec::new();
        let mut enter = |session, name| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            registry.enter(session, Stream::from_fd(ours.into()), [0; 16]).unwrap();
            theirs.set_nonblocking(true).unwrap();
            peers.push(theirs);
            places.push(half_open.enter(session, &tenant(name), &registry));
            peers.iter_mut().map(|peer| matches!(peer.read(&mut [0]), Ok(0))).collect::<Vec<_>>()
        };
        assert_eq!(enter(1, "a"), [false]);
        assert_eq!(enter(2, "b"), [false; 2]);
        assert_eq!(enter(3, "b"), [false; 3]);
        assert_eq!(enter(4, "b"), [false, true, false, false], "a tenant has half of the places at most");
        assert_eq!(enter(5, "a"), [false, true, false, false, false]);
        assert_eq!(enter(6, "c").iter().filter(|closed| **closed).count(), 2, "and all have no more than there are");
        drop(places);
        assert!(half_open.lock().is_empty());
    }
}
