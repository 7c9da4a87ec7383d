//! How many sessions a tenant has, and how many use a device: whoever finds no room waits in the order of arrival.
//!
//! A session counts for its tenant from the moment it gets a worker, and for a device from its first context there; both
//! until its worker has ended. Everything is counted, limited or not, so that a limit which comes later is right.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use telecl_policy::{Granted, Origin, Policy, Tenant};
use telecl_wire::handshake::DeviceLoad;

use super::mailbox::Mailbox;
use super::offer::Offer;
use super::rules::Rules;

/// How long everybody waits at least: a session whose program has just ended takes a moment to go, and the program that is
/// run next is not to be refused because of that.
const GRACE: Duration = Duration::from_secs(1);

/// What can be full.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Tenant(Tenant),
    /// By its number.
    Device(u64),
}

/// Who is where, and who waits. Its lock is held for a few lines; that of a [`Mailbox`] may be taken meanwhile.
#[derive(Debug)]
pub(crate) struct Admission {
    rules: Arc<Rules>,
    offer: Arc<Offer>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many sessions there are in each place; none is not noted.
    taken: HashMap<Place, u32>,
    /// In the order of arrival.
    waiting: VecDeque<Waiting>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    places: Vec<Place>,
    admitted: Arc<Mailbox<()>>,
}

impl State {
    fn fits(&self, places: &[Place], most: impl Fn(&Place) -> Option<u32>) -> bool {
        places.iter().all(|place| most(place).is_none_or(|most| self.taken.get(place).copied().unwrap_or(0) < most))
    }

    fn take(&mut self, places: &[Place]) {
        for place in places {
            *self.taken.entry(place.clone()).or_default() += 1;
        }
    }

    fn give_back(&mut self, places: &[Place]) {
        for place in places {
            if let Some(count) = self.taken.get_mut(place) {
                *count = count.saturating_sub(1);
            }
        }
        self.taken.retain(|_, count| *count > 0);
    }

    /// Admits all for whom there is room. Nobody overtakes somebody who waits for the same place.
    fn advance(&mut self, most: impl Fn(&Place) -> Option<u32>) {
        let mut contended: HashSet<Place> = HashSet::new();
        for waiting in std::mem::take(&mut self.waiting) {
            let overtakes = waiting.places.iter().any(|place| contended.contains(place));
            if !overtakes && self.fits(&waiting.places, &most) {
                self.take(&waiting.places);
                waiting.admitted.put(());
            } else {
                contended.extend(waiting.places.iter().cloned());
                self.waiting.push_back(waiting);
            }
        }
    }
}

/// A session's right to be in some places, or its turn in the queue for them. Dropping it makes room.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    admission: &'a Admission,
    ticket: u64,
    places: Vec<Place>,
    admitted: Arc<Mailbox<()>>,
    since: Instant,
    deadline: Instant,
    waits: Duration,
    here: bool,
}

impl Admission {
    pub(crate) fn new(rules: Arc<Rules>, offer: Arc<Offer>) -> Admission {
        Admission { rules, offer, state: Mutex::default() }
    }

    /// Wants to be in all of these places at once.
    pub(crate) fn claim(&self, places: Vec<Place>) -> io::Result<Claim<'_>> {
        let admitted = Arc::new(Mailbox::new()?);
        let policy = self.rules.current();
        let waits = places.iter().map(|place| self.wait(&policy, place)).max().unwrap_or_default();
        let now = Instant::now();
        let deadline = now.checked_add(waits.max(GRACE)).unwrap_or(now);
        let mut state = self.lock();
        state.next += 1;
        let ticket = state.next;
        state.waiting.push_back(Waiting { ticket, places: places.clone(), admitted: Arc::clone(&admitted) });
        state.advance(|place| self.most(&policy, place).value);
        drop(state);
        let mut claim = Claim { admission: self, ticket, places, admitted, since: now, deadline, waits, here: false };
        claim.is_admitted();
        Ok(claim)
    }

    /// A session that another broker has admitted is in these places, whether there is room or not.
    pub(crate) fn keep(&self, places: Vec<Place>) -> io::Result<Claim<'_>> {
        let admitted = Arc::new(Mailbox::new()?);
        let now = Instant::now();
        let mut state = self.lock();
        state.next += 1;
        let ticket = state.next;
        state.take(&places);
        drop(state);
        Ok(Claim { admission: self, ticket, places, admitted, since: now, deadline: now, waits: GRACE, here: true })
    }

    /// There may be room where there was none: another policy is in force.
    pub(crate) fn reconsider(&self) {
        let policy = self.rules.current();
        self.lock().advance(|place| self.most(&policy, place).value);
    }

    /// Whether one of these places may be full some day.
    pub(crate) fn is_limited(&self, policy: &Policy, mut places: impl Iterator<Item = Place>) -> bool {
        places.any(|place| self.most(policy, &place).value.is_some())
    }

    /// How many sessions use these devices, and how many may.
    pub(crate) fn loads(&self, policy: &Policy, devices: &[u64]) -> Vec<DeviceLoad> {
        let state = self.lock();
        let load = |id: &u64| {
            let place = Place::Device(*id);
            let sessions = state.taken.get(&place).copied().unwrap_or(0);
            DeviceLoad { device: *id, sessions, most: self.most(policy, &place).value.unwrap_or(0) }
        };
        devices.iter().map(load).collect()
    }

    fn most(&self, policy: &Policy, place: &Place) -> Granted<Option<u32>> {
        let granted = match place {
            Place::Tenant(tenant) => policy.for_tenant(tenant).sessions,
            Place::Device(id) => match self.offer.facts(*id) {
                Some(device) => policy.for_device(&device).sessions_per_device,
                None => policy.for_devices().sessions_per_device,
            },
        };
        Granted { value: granted.value.map(u32::from), origin: granted.origin }
    }

    fn wait(&self, policy: &Policy, place: &Place) -> Duration {
        let device = match place {
            Place::Tenant(_) => None,
            Place::Device(id) => self.offer.facts(*id),
        };
        device.map_or_else(|| policy.for_devices(), |device| policy.for_device(&device)).admission_wait.value
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim<'_> {
    /// Whether it is its turn, or was before.
    pub(crate) fn is_admitted(&mut self) -> bool {
        self.here = self.here || !self.admitted.take().is_empty();
        self.here
    }

    /// For how long it has waited.
    pub(crate) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// How much longer it waits; `None` if that is over.
    pub(crate) fn patience(&self) -> Option<Duration> {
        Some(self.deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Why it was not admitted, and what to do.
    pub(crate) fn refusal(&self) -> String {
        let policy = self.admission.rules.current();
        let state = self.admission.lock();
        let most = |place: &Place| self.admission.most(&policy, place);
        let full = |place: &&Place| {
            most(place).value.is_some_and(|most| state.taken.get(*place).copied().unwrap_or(0) >= most)
        };
        // None is full if somebody has left just now, or waits for more than this.
        let Some(place) = self.places.iter().find(full).or(self.places.first()) else { return String::new() };
        let Granted { value, origin } = most(place);
        let waited = Waited(self.waits);
        let (count, by) = (value.unwrap_or_default(), By(&origin));
        match place {
            Place::Tenant(tenant) => format!(
                "tenant {tenant} has all the sessions it may have at once: {count} (sessions, {by}){waited}; end one of \
                 them, try again later, or ask whoever runs the service for more"
            ),
            Place::Device(id) => {
                let name = self.admission.offer.facts(*id).map(|device| device.name.to_owned()).unwrap_or_default();
                format!(
                    "device {id} ({name}) serves all the sessions it takes at once: {count} (sessions_per_device, \
                     {by}){waited}; use another device, try again later, or ask whoever runs the service for more"
                )
            }
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let policy = self.admission.rules.current();
        let mut state = self.admission.lock();
        let queued = state.waiting.len();
        state.waiting.retain(|waiting| waiting.ticket != self.ticket);
        // Who does not wait any more was admitted, whether it has looked or not.
        if state.waiting.len() == queued {
            state.give_back(&self.places);
        }
        state.advance(|place| self.admission.most(&policy, place).value);
    }
}

impl AsFd for Claim<'_> {
    /// Readable when it is its turn.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.admitted.as_fd()
    }
}

/// Which part of the policy says so.
struct By<'a>(&'a Origin);

impl fmt::Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Origin::BuiltIn => f.write_str("built in"),
            origin => write!(f, "policy: {origin}"),
        }
    }
}

struct Waited(Duration);

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < GRACE { Ok(()) } else { write!(f, ", and none ended within {:?}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn admission(policy: &str) -> Admission {
        let policy = Policy::parse(Path::new("policy.toml"), policy).unwrap();
        Admission::new(Arc::new(Rules::fixed(policy)), Arc::new(Offer::default()))
    }

    fn tenant(name: &str) -> Vec<Place> {
        vec![Place::Tenant(Tenant::parse(name).unwrap())]
    }

    fn devices(ids: &[u64]) -> Vec<Place> {
        ids.iter().map(|id| Place::Device(*id)).collect()
    }

    #[test]
    fn a_tenant_has_no_more_sessions_than_it_may_and_the_next_is_the_one_that_waits_longest() {
        let desk = admission("[service]\nadmission_wait = \"1 h\"\n[defaults]\nsessions = 2\n");
        let mut held: Vec<_> = (0..4).map(|_| desk.claim(tenant("a")).unwrap()).collect();
        let here = |held: &mut Vec<Claim<'_>>| held.iter_mut().map(Claim::is_admitted).collect::<Vec<_>>();
        assert_eq!(here(&mut held), [true, true, false, false]);
        assert!(desk.claim(tenant("b")).unwrap().is_admitted(), "others are not concerned");
        assert!(held[2].patience().is_some_and(|left| left > Duration::from_secs(3000)));
        drop(held.remove(1));
        assert_eq!(here(&mut held), [true, true, false]);
        // One that gives up is not waited for, and one that leaves before it has looked makes room all the same.
        let mut last = desk.claim(tenant("a")).unwrap();
        drop(held.remove(2));
        drop(held.remove(0));
        assert!(last.is_admitted());
        drop(desk.claim(tenant("a")));
        drop((held, last));
        assert!(desk.lock().taken.is_empty() && desk.lock().waiting.is_empty());
    }

    #[test]
    fn nobody_overtakes_who_waits_for_the_same_device_and_others_pass() {
        let desk = admission("[service]\nsessions_per_device = 1\nadmission_wait = \"1 h\"\n");
        let first = desk.claim(devices(&[1])).unwrap();
        let mut both = desk.claim(devices(&[1, 2])).unwrap();
        let mut second = desk.claim(devices(&[2])).unwrap();
        let mut third = desk.claim(devices(&[3])).unwrap();
        assert!(!both.is_admitted() && !second.is_admitted() && third.is_admitted());
        drop(first);
        assert!(both.is_admitted() && !second.is_admitted());
        let load = |device, sessions| DeviceLoad { device, sessions, most: 1 };
        assert_eq!(desk.loads(&desk.rules.current(), &[1, 4]), [load(1, 1), load(4, 0)]);
        drop(both);
        assert!(second.is_admitted());
    }

    #[test]
    fn who_was_admitted_before_stays_and_counts() {
        let desk = admission("[service]\nsessions_per_device = 1\nadmission_wait = \"1 h\"\n");
        let mut kept: Vec<_> = (0..2).map(|_| desk.keep(devices(&[1])).unwrap()).collect();
        assert!(kept.iter_mut().all(Claim::is_admitted));
        let mut next = desk.claim(devices(&[1])).unwrap();
        kept.pop();
        assert!(!next.is_admitted());
        kept.pop();
        assert!(next.is_admitted());
    }

    #[test]
    fn a_refusal_names_the_limit_its_value_and_what_to_do() {
        let desk = admission("[service]\nsessions_per_device = 1\n[defaults]\nsessions = 1\n");
        let (_one, _two) = (desk.claim(tenant("a")).unwrap(), desk.claim(devices(&[7])).unwrap());
        let refused = desk.claim(tenant("a")).unwrap();
        assert!(refused.patience().is_some_and(|left| left <= GRACE));
        let reason = refused.refusal();
        for part in ["tenant a", "at once: 1", "sessions, policy: [defaults], line 4", "try again later"] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        let reason = desk.claim(devices(&[7])).unwrap().refusal();
        for part in ["device 7", "at once: 1", "sessions_per_device, policy: [service], line 2", "another device"] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
    }

    #[test]
    fn another_policy_makes_room_and_what_was_not_limited_was_counted() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("policy.toml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("");
        let rules = Arc::new(Rules::load(Some(path.clone())).unwrap());
        let desk = Admission::new(Arc::clone(&rules), Arc::new(Offer::default()));
        let _running: Vec<_> = (0..3).map(|_| desk.claim(tenant("a")).unwrap()).collect();
        write("[service]\nadmission_wait = \"1 h\"\n[defaults]\nsessions = 3\n");
        assert!(rules.look(false));
        let mut next = desk.claim(tenant("a")).unwrap();
        assert!(!next.is_admitted());
        write("[defaults]\nsessions = 4\n");
        assert!(rules.look(false));
        desk.reconsider();
        assert!(next.is_admitted());
    }
}
