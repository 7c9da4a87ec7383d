//! How much of a device's memory a session may use, and what all sessions of a tenant have together.
//!
//! Workers count for themselves, and refuse what is beyond the session's own limit. What several sessions share only the
//! broker can tell: their workers ask it before they allocate. What a session has is given back when its worker's process
//! is gone, however it ended.
//!
//! If the policy allows a tenant to have more than fits (`oversubscribe`), its sessions wait for memory instead of being
//! refused, in the order in which they came, and others are asked to move out to host memory: those that have not used
//! the device for longest first, and none before it was worth bringing it here.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telecl_policy::{Grant, Policy, Tenant};
use tracing::debug;

use super::mailbox::Mailbox;
use super::offer::Offer;
use crate::board::{self, DeviceCount, SessionBoard};
use crate::channel::{MemoryLimit, MemoryWish, Possessions};

/// What a session has at least from its memory once it has it: moving takes time, too. In nanoseconds, like all times
/// here.
const SLICE: u64 = 200_000_000;
/// … for each byte: ten times what it takes to move it, at 10 GB/s.
const SLICE_PER_BYTE: u64 = 1;
/// … and for each nanosecond that it took to move it out the last time; but not for more than ten seconds in all.
const SLICE_PER_COST: u64 = 8;
const LONGEST_SLICE: u64 = 10_000_000_000;
/// A session that has its memory and does not use it may be moved out after so many slices.
const UNUSED: u64 = 8;

/// How long a session that was asked to move out is waited for before others are asked as well.
const SLOW: u64 = 2_000_000_000;

/// How long a session waits for memory while nobody can make room for it.
const HOPELESS: u64 = 10_000_000_000;
/// … and while nobody does.
const STUCK: u64 = 120_000_000_000;

/// How often a session that waits looks whether somebody may be asked now.
const TICK: Duration = Duration::from_millis(20);

/// What of a device's memory sessions may have that can be moved. The rest is for what nobody can ask for: contexts, code,
/// padding.
fn usable(own: u64) -> u64 {
    own - own / 16
}

/// What a tenant's session may have of these devices; those without a limit are not among them.
/// With `narrowed`, all sessions of the tenant together have no more than that.
pub(crate) fn limits(grant: &Grant, narrowed: Option<u64>, devices: &[u64], offer: &Offer) -> Vec<MemoryLimit> {
    let limit = |device: u64| {
        let known = offer.memory(device);
        // A device that does not say how much it has is taken at the policy's word.
        let own = known.unwrap_or(u64::MAX);
        let bytes = |memory: Option<telecl_policy::Memory>| memory.map(|memory| memory.on_device(own));
        let session = bytes(grant.session_memory.value);
        let tenant = bytes(grant.device_memory.value).into_iter().chain(narrowed.map(|most| most.min(own))).min();
        if is_live(grant, narrowed) && known.is_some() {
            return Some(live_limit(grant, device, own));
        }
        if grant.oversubscribe.value {
            // A session that does not fit by itself could never run.
            let together = tenant.into_iter().chain(known.map(usable)).min()?;
            let most = session.map_or(together, |session| session.min(together));
            return Some(MemoryLimit { device, most, together: Some(together), moves: true });
        }
        let most = session.into_iter().chain(tenant).min()?;
        // As many sessions as there may be, each with all it may have: nobody has to ask if that is not too much.
        let all = grant.sessions.value.map(|sessions| u64::from(sessions.get()).saturating_mul(most));
        let together = tenant.filter(|tenant| all.is_none_or(|all| all > *tenant));
        Some(MemoryLimit { device, most, together, moves: false })
    };
    devices.iter().filter_map(|device| limit(*device)).collect()
}

/// Whether the limits of such a tenant's sessions change with the policy while they run. Then their workers ask for all
/// that they take, limited or not.
fn is_live(grant: &Grant, narrowed: Option<u64>) -> bool {
    grant.account.value.is_some() && !grant.oversubscribe.value && narrowed.is_none()
}

fn live_limit(grant: &Grant, device: u64, own: u64) -> MemoryLimit {
    let bytes = |memory: Option<telecl_policy::Memory>| memory.map_or(own, |memory| memory.on_device(own));
    let together = bytes(grant.device_memory.value);
    let most = bytes(grant.session_memory.value).min(together);
    MemoryLimit { device, most, together: Some(together), moves: false }
}

/// What the sessions have. Its lock is held for a few lines; that of a [`Mailbox`] may be taken meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// What the devices have for all sessions that can be moved, as far as that is known.
    usable: HashMap<u64, u64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<u64, Holding>,
    /// In the order of arrival.
    waiting: Vec<Waiting>,
    /// When somebody last gave memory back.
    changed: u64,
    /// Sessions whose limits change with the policy, by whose they are.
    followed: HashMap<u64, Tenant>,
}

/// What one session has.
#[derive(Debug)]
struct Holding {
    /// For whom it is counted.
    tenant: Tenant,
    /// What it may have now.
    limits: Vec<MemoryLimit>,
    /// What was reserved on devices for which its worker asks.
    reserved: HashMap<u64, u64>,
    /// Has its own count for all others: of a session that began before its tenant was limited, for instance.
    board: Arc<SessionBoard>,
    /// Whether it can be moved out.
    moves: bool,
    is_out: bool,
    /// Since when it has its memory.
    since: u64,
    /// When it was asked to move out, if it has not yet.
    asked: Option<u64>,
    /// It has said that it cannot.
    stays: bool,
    /// How long it took to move it out the last time, as its worker says.
    cost: u64,
    post: Arc<Mailbox<Notice>>,
}

/// What a session's thread is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The worker is to be asked to move out.
    MoveOut,
    /// There may be memory now.
    Look,
}

/// A session that waits for memory.
#[derive(Debug)]
struct Waiting {
    session: u64,
    number: u64,
    wish: MemoryWish,
    since: u64,
    /// Since when nobody can make room.
    hopeless: Option<u64>,
    /// Whether it is the device that has too little, and not what its tenant may have.
    crowded: bool,
}

impl Holding {
    fn on(&self, device: u64) -> u64 {
        let counted = || self.read(device, DeviceCount::Memory);
        self.reserved.get(&device).copied().or_else(counted).unwrap_or(0)
    }

    fn read(&self, device: u64, count: DeviceCount) -> Option<u64> {
        Some(self.board.device(self.board.place(device)?, count).load(Ordering::Relaxed))
    }

    fn is_busy(&self) -> bool {
        self.reserved.keys().any(|device| self.read(*device, DeviceCount::BusySince).is_some_and(|since| since > 0))
    }

    fn last_used(&self) -> u64 {
        self.reserved.keys().filter_map(|device| self.read(*device, DeviceCount::LastUsed)).max().unwrap_or(0)
    }

    /// Whether it has had enough from its memory.
    fn is_ripe(&self, now: u64) -> bool {
        let bytes = self.reserved.values().max().copied().unwrap_or(0);
        let slice = bytes.saturating_mul(SLICE_PER_BYTE).max(self.cost.saturating_mul(SLICE_PER_COST));
        let slice = slice.clamp(SLICE, LONGEST_SLICE);
        let age = now.saturating_sub(self.since);
        let was_used = self.is_busy() || self.last_used() > self.since;
        age >= if was_used { slice } else { slice.saturating_mul(UNUSED) }
    }

    fn is_slow(&self, now: u64) -> bool {
        self.asked.is_some_and(|asked| now.saturating_sub(asked) > SLOW)
    }
}

/// What comes of a wish for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted,
    Denied(String),
    /// It is answered later, by [`Account::look`].
    Waits,
}

/// A session's account. Dropping it gives everything back.
#[derive(Debug)]
pub(crate) struct Account<'a> {
    memory: &'a Memory,
    session: u64,
    post: Arc<Mailbox<Notice>>,
}

impl Memory {
    pub(crate) fn new(offer: &Offer) -> Memory {
        let usable = |id| Some((id, usable(offer.memory(id)?)));
        Memory { usable: offer.device_ids().filter_map(usable).collect(), state: Mutex::default() }
    }

    /// For a session whose worker is about to begin, or has it already: then with what the worker says that it has.
    pub(crate) fn open<'a>(
        &'a self,
        session: u64,
        limits: &[MemoryLimit],
        tenant: &Tenant,
        board: &Arc<SessionBoard>,
        has: Option<&Possessions>,
    ) -> io::Result<Account<'a>> {
        let post = Arc::new(Mailbox::new()?);
        let now = board::now();
        // Nobody has more than it may have, whatever it says.
        let reserved = |limit: &MemoryLimit| {
            let told = has.and_then(|has| has.reserved.amounts.iter().find(|(device, _)| *device == limit.device));
            (limit.device, told.map_or(0, |(_, bytes)| *bytes).min(limit.most))
        };
        let holding = Holding {
            tenant: tenant.clone(),
            limits: limits.to_vec(),
            reserved: limits.iter().filter(|limit| limit.together.is_some()).map(reserved).collect(),
            board: Arc::clone(board),
            moves: limits.iter().any(|limit| limit.moves),
            is_out: has.is_none_or(|has| has.is_out || has.reserved.amounts.iter().all(|(_, bytes)| *bytes == 0)),
            since: has.map_or(0, |_| now),
            asked: has.filter(|has| has.asked_out).map(|_| now),
            stays: has.is_some_and(|has| has.stays),
            cost: 0,
            post: Arc::clone(&post),
        };
        self.lock().sessions.insert(session, holding);
        Ok(Account { memory: self, session, post })
    }

    /// The limits of this session change with the policy, if they can.
    pub(crate) fn follow(&self, session: u64, tenant: &Tenant) {
        self.lock().followed.insert(session, tenant.clone());
    }

    /// The session is over, whether it ever had memory or not.
    pub(crate) fn forget(&self, session: u64) {
        self.lock().followed.remove(&session);
    }

    /// The policy has changed: sessions get what it gives them now. Nobody loses what it has.
    pub(crate) fn reconsider(&self, policy: &Policy, offer: &Offer) {
        let mut state = self.lock();
        let State { sessions, followed, .. } = &mut *state;
        for (session, holding) in sessions {
            let Some(tenant) = followed.get(session) else { continue };
            let grant = policy.for_tenant(tenant);
            for limit in holding.limits.iter_mut().filter(|limit| limit.together.is_some() && !limit.moves) {
                if let Some(own) = offer.memory(limit.device) {
                    *limit = live_limit(&grant, limit.device, own);
                }
            }
        }
        state.wake();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What sessions have on a device: those of a tenant, or all.
    fn taken(&self, device: u64, tenant: Option<&Tenant>) -> u64 {
        let counted = self.sessions.values().filter(|holding| tenant.is_none_or(|tenant| holding.tenant == *tenant));
        counted.fold(0, |sum, holding| sum.saturating_add(holding.on(device)))
    }

    /// Somebody has less than before.
    fn wake(&mut self) {
        self.changed = board::now();
        for waiting in &self.waiting {
            if let Some(holding) = self.sessions.get(&waiting.session) {
                holding.post.put(Notice::Look);
            }
        }
    }

    /// Whether somebody who came before waits for the same.
    fn is_behind(&self, session: u64, tenant: &Tenant, number: u64, wish: &MemoryWish) -> bool {
        let before = self.waiting.iter().take_while(|other| (other.session, other.number) != (session, number));
        before.filter(|other| other.session != session).any(|other| {
            let same = |(device, _): &(u64, u64)| wish.amounts.iter().any(|(own, _)| own == device);
            let tenant_of = self.sessions.get(&other.session).map(|holding| &holding.tenant);
            other.wish.amounts.iter().any(same) && (other.crowded || tenant_of == Some(tenant))
        })
    }

    /// Has others make room for so many bytes on a device: of a tenant, or of all. `false` if they never could.
    fn make_room(&mut self, session: u64, device: u64, bytes: u64, tenant: Option<&Tenant>, now: u64) -> bool {
        let mut others: Vec<(&u64, &mut Holding)> = self.sessions.iter_mut().collect();
        others.retain(|(id, other)| {
            let is_theirs = tenant.is_none_or(|tenant| other.tenant == *tenant);
            **id != session && is_theirs && other.moves && !other.stays && !other.is_out && other.on(device) > 0
        });
        let possible = others.iter().fold(0, |sum: u64, (_, other)| sum.saturating_add(other.on(device)));
        let going = others.iter().filter(|(_, other)| other.asked.is_some() && !other.is_slow(now));
        let mut going = going.fold(0, |sum: u64, (_, other)| sum.saturating_add(other.on(device)));
        // Those that rest, then those that did not for longest.
        others.sort_by_key(|(id, other)| (other.is_busy(), other.last_used(), **id));
        for (id, other) in others {
            if going >= bytes {
                break;
            }
            if other.asked.is_none() && other.is_ripe(now) {
                debug!(session = id, device, "session is asked to move out");
                other.asked = Some(now);
                other.post.put(Notice::MoveOut);
                going = going.saturating_add(other.on(device));
            }
        }
        possible >= bytes
    }
}

impl Account<'_> {
    /// Takes so much, on all of the devices or on none. If there would be too much then, says so, or waits.
    pub(crate) fn reserve(&self, number: u64, wish: &MemoryWish) -> Verdict {
        let mut state = self.memory.lock();
        let (now, session) = (board::now(), self.session);
        let (wish, hopeless, crowded) = (wish.clone(), None, false);
        let mut waiting = Waiting { session, number, wish, since: now, hopeless, crowded };
        let verdict = self.decide(&mut state, &mut waiting, now);
        if verdict == Verdict::Waits {
            state.waiting.push(waiting);
        }
        verdict
    }

    /// Looks again at what the session waits for: what it has got, or will not get.
    pub(crate) fn look(&self) -> Vec<(u64, Verdict)> {
        let mut state = self.memory.lock();
        let now = board::now();
        let mut answers = Vec::new();
        while let Some(place) = state.waiting.iter().position(|waiting| {
            waiting.session == self.session && !answers.iter().any(|(number, _)| *number == waiting.number)
        }) {
            // Stays in its place meanwhile, so that it is known who came before.
            let Waiting { number, since, hopeless, crowded, ref wish, .. } = state.waiting[place];
            let wish = wish.clone();
            let mut waiting = Waiting { session: self.session, number, wish, since, hopeless, crowded };
            let verdict = self.decide(&mut state, &mut waiting, now);
            state.waiting[place] = waiting;
            answers.push((number, verdict));
        }
        answers.retain(|(_, verdict)| *verdict != Verdict::Waits);
        state.waiting.retain(|waiting| {
            waiting.session != self.session || !answers.iter().any(|(number, _)| *number == waiting.number)
        });
        if !answers.is_empty() {
            // Who came behind may be next.
            state.wake();
        }
        answers
    }

    /// When to look again, if nobody says so before; `None` if the session waits for nothing.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let state = self.memory.lock();
        state.waiting.iter().any(|waiting| waiting.session == self.session).then_some(TICK)
    }

    fn decide(&self, state: &mut State, waiting: &mut Waiting, now: u64) -> Verdict {
        let Some(own) = state.sessions.get(&self.session) else { return Verdict::Denied(String::new()) };
        let (tenant, limits, moves, is_out) = (own.tenant.clone(), own.limits.clone(), own.moves, own.is_out);
        // Whoever has memory and wants more is let through: it can be asked to leave.
        let is_behind = moves && is_out && state.is_behind(self.session, &tenant, waiting.number, &waiting.wish);
        let mut verdict = if is_behind { Verdict::Waits } else { Verdict::Granted };
        let mut possible = true;
        waiting.crowded = false;
        for (device, bytes) in &waiting.wish.amounts {
            let limit = limits.iter().find(|limit| limit.device == *device);
            let Some((limit, together)) = limit.and_then(|limit| Some((limit, limit.together?))) else {
                return Verdict::Denied(format!("the memory of device {device} is not shared"));
            };
            let has = state.sessions.get(&self.session).map_or(0, |own| own.on(*device));
            if !limit.moves && has.saturating_add(*bytes) > limit.most {
                let most = limit.most;
                return Verdict::Denied(format!(
                    "the session may use {most} bytes of device {device}, has {has}, and wants {bytes} more"
                ));
            }
            let usable = self.memory.usable.get(device).filter(|_| limit.moves).copied().unwrap_or(u64::MAX);
            let theirs = state.taken(*device, Some(&tenant));
            let all = if limit.moves { state.taken(*device, None) } else { 0 };
            let short = theirs.saturating_add(*bytes).saturating_sub(together);
            let crowded = all.saturating_add(*bytes).saturating_sub(usable);
            if short == 0 && crowded == 0 {
                continue;
            }
            let reason = if short > 0 {
                format!(
                    "the sessions of tenant {tenant} may use {together} bytes of device {device} together \
                     (device_memory), and have {theirs}"
                )
            } else {
                format!("device {device} has {usable} bytes for sessions, and they have {all}")
            };
            let own = state.sessions.get(&self.session).map_or(0, |own| own.on(*device));
            if !limit.moves || own.saturating_add(*bytes) > together.min(usable) {
                return Verdict::Denied(reason);
            }
            waiting.crowded |= crowded > 0;
            possible &= short == 0 || state.make_room(self.session, *device, short, Some(&tenant), now);
            possible &= crowded == 0 || state.make_room(self.session, *device, crowded, None, now);
            let hopeless = if possible { None } else { Some(*waiting.hopeless.get_or_insert(now)) };
            if hopeless.is_some_and(|since| now.saturating_sub(since) > HOPELESS) {
                return Verdict::Denied(format!("{reason}; none of them can be moved out"));
            }
            if now.saturating_sub(waiting.since.max(state.changed)) > STUCK {
                return Verdict::Denied(format!("{reason}; those that could be moved out do not end their commands"));
            }
            verdict = Verdict::Waits;
        }
        if possible {
            waiting.hopeless = None;
        }
        if verdict == Verdict::Granted
            && let Some(own) = state.sessions.get_mut(&self.session)
        {
            for (device, bytes) in &waiting.wish.amounts {
                *own.reserved.entry(*device).or_default() += bytes;
            }
            if std::mem::take(&mut own.is_out) {
                own.since = now;
            }
        }
        verdict
    }

    /// Waits for it no more; `false` if it was answered already.
    pub(crate) fn withdraw(&self, number: u64) -> bool {
        let mut state = self.memory.lock();
        let place =
            state.waiting.iter().position(|waiting| (waiting.session, waiting.number) == (self.session, number));
        let Some(place) = place else { return false };
        state.waiting.remove(place);
        true
    }

    /// The session is in host memory, which took so many nanoseconds; what is free by that comes with
    /// [`Account::give_back`].
    pub(crate) fn moved(&self, cost: u64) {
        if let Some(own) = self.memory.lock().sessions.get_mut(&self.session) {
            (own.asked, own.stays, own.is_out, own.cost) = (None, false, true, cost);
        }
    }

    /// It cannot be moved out now.
    pub(crate) fn stays(&self) {
        if let Some(own) = self.memory.lock().sessions.get_mut(&self.session) {
            own.stays = true;
        }
    }

    /// Gives so much back; a worker that says too much has the less for it.
    pub(crate) fn give_back(&self, wish: &MemoryWish) {
        let mut state = self.memory.lock();
        if let Some(own) = state.sessions.get_mut(&self.session) {
            for (device, bytes) in &wish.amounts {
                if let Some(reserved) = own.reserved.get_mut(device) {
                    *reserved = reserved.saturating_sub(*bytes);
                }
            }
        }
        state.wake();
    }

    /// What it was told.
    pub(crate) fn notices(&self) -> impl Iterator<Item = Notice> {
        self.post.take().into_iter()
    }
}

impl AsFd for Account<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.post.as_fd()
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        state.waiting.retain(|waiting| waiting.session != self.session);
        state.followed.remove(&self.session);
        let Some(Holding { board, .. }) = state.sessions.remove(&self.session) else { return };
        state.wake();
        drop(state);
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

    use super::*;

    fn limits_of(policy: &str) -> Vec<MemoryLimit> {
        let policy = Policy::parse(Path::new("policy.toml"), policy).unwrap();
        // Of a device that does not say how much memory it has.
        limits(&policy.for_tenant(&Tenant::anonymous()), None, &[1], &Offer::default())
    }

    type Begun = (u64, Vec<MemoryLimit>);

    fn session(session: u64, memory: Vec<MemoryLimit>) -> (Begun, Arc<SessionBoard>) {
        ((session, memory), Arc::new(SessionBoard::create(&[1, 2]).unwrap().0))
    }

    fn open<'a>(memory: &'a Memory, begun: &'a Begun, tenant: &Tenant, board: &Arc<SessionBoard>) -> Account<'a> {
        memory.open(begun.0, &begun.1, tenant, board, None).unwrap()
    }

    fn wish(bytes: u64, devices: &[u64]) -> MemoryWish {
        MemoryWish::each(devices.iter().copied(), bytes)
    }

    fn is_denied(account: &Account<'_>, wish: &MemoryWish) -> bool {
        matches!(account.reserve(0, wish), Verdict::Denied(_))
    }

    fn tenant(name: &str) -> Tenant {
        Tenant::parse(name).unwrap()
    }

    #[test]
    fn the_smallest_limit_counts_and_the_broker_is_asked_only_where_sessions_can_come_to_too_much() {
        let limit = |most, together| vec![MemoryLimit { device: 1, most, together, moves: false }];
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
        let limit = |device| MemoryLimit { device, most: 80, together: Some(100), moves: false };
        let ((first, one), (second, two)) =
            (session(1, vec![limit(1), limit(2)]), session(2, vec![limit(1), limit(2)]));
        let (red, blue) = (tenant("red"), tenant("blue"));
        let a = open(&memory, &first, &red, &one);
        let b = open(&memory, &second, &red, &two);
        assert_eq!(a.reserve(0, &wish(60, &[1, 2])), Verdict::Granted);
        let Verdict::Denied(denied) = b.reserve(0, &wish(41, &[1])) else { panic!() };
        assert!(denied.contains("tenant red may use 100 bytes of device 1") && denied.contains("have 60"), "{denied}");
        // On both or on none.
        assert_eq!(b.reserve(0, &wish(30, &[2])), Verdict::Granted);
        assert!(is_denied(&b, &wish(20, &[1, 2])));
        assert_eq!(b.reserve(0, &wish(40, &[1])), Verdict::Granted);
        assert!(is_denied(&b, &wish(u64::MAX, &[1])) && is_denied(&b, &wish(1, &[9])));
        // Others have their own.
        let (third, three) = session(3, vec![limit(1)]);
        let c = open(&memory, &third, &blue, &three);
        assert!(is_denied(&c, &wish(81, &[1])), "the session's own limit holds, too");
        assert_eq!(c.reserve(0, &wish(80, &[1])), Verdict::Granted);
        a.give_back(&wish(10, &[1]));
        assert_eq!(b.reserve(0, &wish(10, &[1])), Verdict::Granted);
        assert!(is_denied(&b, &wish(1, &[1])));
        // However it ended.
        drop(a);
        assert_eq!(b.reserve(0, &wish(30, &[1])), Verdict::Granted);
        drop((b, c));
        assert!(memory.lock().sessions.is_empty());
    }

    #[test]
    fn what_a_session_has_that_does_not_ask_counts_for_those_who_do() {
        let memory = Memory::default();
        let (old, board) = session(1, Vec::new());
        let _running = open(&memory, &old, &tenant("red"), &board);
        board.device(0, DeviceCount::Memory).store(70, Ordering::Relaxed);
        let (new, other) = session(2, vec![MemoryLimit { device: 1, most: 100, together: Some(100), moves: false }]);
        let account = open(&memory, &new, &tenant("red"), &other);
        assert!(is_denied(&account, &wish(31, &[1])));
        assert_eq!(account.reserve(0, &wish(30, &[1])), Verdict::Granted);
        // More than it ever had.
        account.give_back(&wish(u64::MAX, &[1, 2, 9]));
        assert_eq!(account.reserve(0, &wish(30, &[1])), Verdict::Granted);
    }

    fn movable(number: u64) -> (Begun, Arc<SessionBoard>) {
        session(number, vec![MemoryLimit { device: 1, most: 100, together: Some(100), moves: true }])
    }

    fn notices(account: &Account<'_>) -> Vec<Notice> {
        account.notices().collect()
    }

    #[test]
    fn who_needs_memory_waits_and_those_who_had_it_long_enough_are_asked_to_leave() {
        let memory = Memory::default();
        let red = tenant("red");
        let ((first, one), (second, two), (third, three)) = (movable(1), movable(2), movable(3));
        let a = open(&memory, &first, &red, &one);
        let b = open(&memory, &second, &red, &two);
        let c = open(&memory, &third, &red, &three);
        assert_eq!(a.reserve(1, &wish(60, &[1])), Verdict::Granted);
        assert_eq!(b.reserve(1, &wish(60, &[1])), Verdict::Waits);
        // It has just come.
        assert_eq!((notices(&a), b.patience()), (vec![], Some(TICK)));
        memory.lock().sessions.get_mut(&1).unwrap().since = board::now() - SLICE;
        assert!(b.look().is_empty() && notices(&a).is_empty(), "it has not used it");
        one.device(0, DeviceCount::LastUsed).store(board::now(), Ordering::Relaxed);
        assert_eq!((b.look(), notices(&a)), (vec![], vec![Notice::MoveOut]));
        // Once, and who comes later does not overtake.
        assert_eq!((b.look(), notices(&a)), (vec![], vec![]));
        assert_eq!(c.reserve(7, &wish(30, &[1])), Verdict::Waits);
        // The first wants more, and has to leave before that.
        assert_eq!(a.reserve(2, &wish(50, &[1])), Verdict::Denied(memory_of("red", 60)));
        a.moved(5);
        a.give_back(&wish(60, &[1]));
        assert!(notices(&b).contains(&Notice::Look));
        assert_eq!(b.look(), [(1, Verdict::Granted)]);
        assert_eq!(c.look(), [(7, Verdict::Granted)]);
        assert_eq!((b.patience(), a.reserve(3, &wish(60, &[1]))), (None, Verdict::Waits));
        assert!(a.withdraw(3) && !a.withdraw(3) && a.patience().is_none());
        drop((a, b, c));
        assert!(memory.lock().sessions.is_empty() && memory.lock().waiting.is_empty());
    }

    fn memory_of(tenant: &str, taken: u64) -> String {
        format!(
            "the sessions of tenant {tenant} may use 100 bytes of device 1 together (device_memory), and have {taken}"
        )
    }

    #[test]
    fn nobody_waits_for_ever_for_those_who_stay() {
        let memory = Memory::default();
        let red = tenant("red");
        let ((first, one), (second, two)) = (movable(1), movable(2));
        let a = open(&memory, &first, &red, &one);
        let b = open(&memory, &second, &red, &two);
        assert_eq!(a.reserve(1, &wish(60, &[1])), Verdict::Granted);
        a.stays();
        assert_eq!(b.reserve(1, &wish(60, &[1])), Verdict::Waits);
        assert!(b.look().is_empty() && notices(&a).is_empty());
        memory.lock().waiting[0].hopeless = Some(board::now() - HOPELESS - 1);
        let denied = format!("{}; none of them can be moved out", memory_of("red", 60));
        assert_eq!(b.look(), [(1, Verdict::Denied(denied))]);
        assert_eq!(b.patience(), None);
        // More than fits at all is refused at once.
        assert!(is_denied(&b, &wish(101, &[1])));
    }

    #[test]
    fn those_who_rest_longest_go_first_and_others_only_if_they_are_not_enough() {
        let memory = Memory { usable: HashMap::from([(1, 100)]), ..Memory::default() };
        let sessions: Vec<_> = (1..=4).map(movable).collect();
        // Of different tenants: it is the device that is full.
        let names = ["red", "green", "blue", "white"].map(tenant);
        let accounts: Vec<_> =
            sessions.iter().zip(&names).map(|((begin, board), tenant)| open(&memory, begin, tenant, board)).collect();
        for (number, account) in accounts[..3].iter().enumerate() {
            assert_eq!(account.reserve(1, &wish(30, &[1])), Verdict::Granted);
            memory.lock().sessions.get_mut(&(number as u64 + 1)).unwrap().since = 1;
        }
        // The first is busy, the third has rested for longest.
        sessions[0].1.device(0, DeviceCount::BusySince).store(5, Ordering::Relaxed);
        sessions[1].1.device(0, DeviceCount::LastUsed).store(9, Ordering::Relaxed);
        sessions[2].1.device(0, DeviceCount::LastUsed).store(8, Ordering::Relaxed);
        assert_eq!(accounts[3].reserve(1, &wish(40, &[1])), Verdict::Waits);
        let asked = || accounts.iter().map(|account| notices(account).contains(&Notice::MoveOut)).collect::<Vec<_>>();
        assert_eq!(asked(), [false, false, true, false]);
        accounts[2].stays();
        assert!(accounts[3].look().is_empty());
        assert_eq!(asked(), [false, true, false, false]);
    }

    #[test]
    fn who_went_on_without_a_broker_has_what_it_says_but_no_more_than_it_may() {
        let limits = vec![MemoryLimit { device: 1, most: 60, together: Some(100), moves: false }];
        let memory = Memory::default();
        let red = tenant("red");
        let ((id, own), one) = session(1, limits.clone());
        let says = |bytes| Possessions {
            reserved: MemoryWish { amounts: vec![(1, bytes), (9, 5)] },
            is_out: true,
            stays: true,
            ..Possessions::default()
        };
        let adopted = memory.open(id, &own, &red, &one, Some(&says(40))).unwrap();
        let (second, two) = session(2, limits);
        let other = open(&memory, &second, &red, &two);
        assert_eq!(other.reserve(1, &MemoryWish::each([1], 60)), Verdict::Granted);
        assert!(matches!(other.reserve(2, &MemoryWish::each([1], 1)), Verdict::Denied(_)));
        adopted.give_back(&MemoryWish::each([1], 40));
        drop(adopted);
        let liar = memory.open(id, &own, &red, &one, Some(&says(u64::MAX))).unwrap();
        assert_eq!(memory.lock().sessions[&1].reserved, [(1, 60)].into());
        assert!(memory.lock().sessions[&1].is_out && memory.lock().sessions[&1].stays);
        drop(liar);
    }
}
