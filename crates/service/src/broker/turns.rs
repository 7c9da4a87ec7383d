//! Whose turn it is on each device: the scheduler of each, and the words on the sessions' boards by which workers learn
//! what it has decided.
//!
//! Threads of sessions call in with what their workers say; whoever does so has the scheduler decide, and tells whom it
//! concerns. What is to be decided later, because a slice ends or a cap allows it again, is the clock thread's.
//!
//! Where turns would be for nothing there are none: a device that is made of many processors serves several sessions at once.
//! While only one tenant uses it, its sessions all run as if they were alone (the device is *free*), unless the tenant is
//! held to something that only turns can measure.

use std::collections::HashMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use telecl_net::processors_are_few;
use telecl_policy::{Grant, Policy, Priority, Tenant};
use telecl_sched::{Cap, Decision, Rest, Scheduler, SessionId, Settings, Share, TenantId, Turn};
use tracing::{debug, warn};

use super::offer::Known;
use crate::board::{DeviceCount, SessionBoard};
use crate::channel::Done;
use crate::turn::{Standing, TurnWord};

/// How long a session may take to stop. Then others get the device all the same, and share it with what is still running:
/// a kernel cannot be interrupted, and nobody shall wait for a worker that hangs.
const OVERDUE: Duration = Duration::from_secs(1);

/// How long after two tenants wanted it at once a device is not free for one of them: most of those who rest come back.
const CONTESTED: Duration = Duration::from_millis(100);

/// All devices. The lock of a device is held while its scheduler decides.
#[derive(Debug)]
pub(crate) struct Turns {
    devices: HashMap<u64, Mutex<Device>>,
    clock: Arc<Clock>,
}

/// When somebody has to be asked again.
#[derive(Debug, Default)]
struct Clock {
    times: Mutex<HashMap<u64, Instant>>,
    sooner: Condvar,
}

#[derive(Debug)]
struct Device {
    id: u64,
    /// Whether it can serve several sessions at once.
    serves_many: bool,
    /// The tenant, if any, whose sessions need no turns at present.
    free: Option<String>,
    /// When two tenants last wanted it at once.
    contested: Option<Instant>,
    scheduler: Scheduler,
    sessions: HashMap<SessionId, Member>,
    /// By the tenant's name, or by what several tenants have in common who share one part of the time.
    tenants: HashMap<String, TenantId>,
}

#[derive(Debug)]
struct Member {
    board: Arc<SessionBoard>,
    place: usize,
    tenant: Tenant,
    /// Under which it is among the tenants.
    key: String,
    /// Whether it must not run beside others, not even its tenant's.
    is_measured: bool,
    /// What was charged for a turn that it did not give back in time; its own report has that, too.
    charged: Duration,
}

impl Member {
    fn word(&self) -> TurnWord<'_> {
        TurnWord(self.board.turn(self.place))
    }

    /// Whatever it does on the device, it has no turn for that: it is to stop, and to ask. `true` if it does something.
    fn call_in(&mut self) -> bool {
        let is_running = loop {
            let standing = self.word().get();
            let next = match standing {
                Standing::Alone | Standing::Slice => Standing::Stop,
                Standing::Resting => Standing::Nothing,
                Standing::Nothing | Standing::Stop => standing,
            };
            if standing == next || self.word().change(standing, next) {
                break next == Standing::Stop;
            }
        };
        if is_running {
            // What it used while nobody gave turns, nobody has missed.
            self.charged = Duration::MAX;
        }
        // Whoever has just seen that there is nobody to ask sees that there is.
        self.word().wake();
        is_running
    }
}

/// What the policy gives a tenant of a device's time.
fn share_of(grant: &Grant) -> Share {
    let level = match grant.priority.value {
        Priority::Low => 0,
        Priority::Normal => 1,
        Priority::High => 2,
    };
    let weight: NonZeroU32 = grant.weight.value;
    Share { weight, cap: grant.cap.value.and_then(|cap| Cap::ten_thousandths(cap.ten_thousandths())), level }
}

/// Whether the policy holds a tenant to something that is wrong where sessions run beside each other: then each has the
/// device for longer than it would alone.
fn is_measured(grant: &Grant) -> bool {
    grant.cap.value.is_some() || grant.longest_kernel.value.is_some()
}

impl Turns {
    pub(crate) fn new(devices: &[Arc<Known>]) -> Turns {
        let now = Instant::now();
        let device = |known: &Known| Device {
            id: known.id,
            // Where program, worker and device share a few processors, one session after the other is faster.
            serves_many: known.is_cpu && !processors_are_few(),
            free: None,
            contested: None,
            scheduler: Scheduler::new(Settings::default(), now),
            sessions: HashMap::new(),
            tenants: HashMap::new(),
        };
        let devices = devices.iter().map(|known| (known.id, Mutex::new(device(known))));
        Turns { devices: devices.collect(), clock: Arc::default() }
    }

    /// Starts the thread that sees to what is decided later.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        let turns = Arc::clone(self);
        thread::Builder::new().name("telecl-turns".into()).stack_size(256 << 10).spawn(move || turns.keep_time())?;
        Ok(())
    }

    /// A session begins to use a device.
    pub(crate) fn join(&self, device: u64, session: u64, grant: &Grant, board: &Arc<SessionBoard>) {
        let (Some(mut entry), Some(place)) = (self.lock(device), board.place(device)) else { return };
        let now = Instant::now();
        let (id, tenant, key) = (SessionId(session), grant.tenant.clone(), grant.share_key().to_owned());
        let next = TenantId(session);
        let tenant_id = *entry.tenants.entry(key.clone()).or_insert(next);
        entry.scheduler.join(id, tenant_id, share_of(grant), now);
        let (board, is_measured, charged) = (Arc::clone(board), is_measured(grant), Duration::ZERO);
        entry.sessions.insert(id, Member { board, place, tenant, key, is_measured, charged });
    }

    /// A session that went on without a broker is here.
    pub(crate) fn adopt(&self, device: u64, session: u64, grant: &Grant, board: &Arc<SessionBoard>) {
        self.join(device, session, grant, board);
        let Some(mut entry) = self.lock(device) else { return };
        if let Some(member) = entry.sessions.get_mut(&SessionId(session)) {
            member.call_in();
        }
    }

    /// A session is gone, from all devices.
    pub(crate) fn leave(&self, session: u64) {
        for id in self.devices.keys() {
            let Some(mut entry) = self.lock(*id) else { continue };
            let (now, id) = (Instant::now(), SessionId(session));
            // What it waits for now counts, too.
            entry.scheduler.wants_no_more(id, now);
            entry.note_waits(id);
            let Some(member) = entry.sessions.remove(&id) else { continue };
            entry.scheduler.leave(id, now);
            if !entry.sessions.values().any(|other| other.key == member.key) {
                // The scheduler remembers what it owes under this number for a while; a new one has none.
                let number = entry.tenants.get(&member.key).copied();
                if number.is_some_and(|number| entry.scheduler.usage(number).is_none()) {
                    entry.tenants.remove(&member.key);
                }
            }
            self.decide(&mut entry, now);
        }
    }

    /// A worker has something to run, and no turn.
    pub(crate) fn wants(&self, session: u64, device: u64) {
        let Some(mut entry) = self.lock(device) else { return };
        let now = Instant::now();
        entry.scheduler.wants(SessionId(session), now);
        self.decide(&mut entry, now);
    }

    /// A worker waits for something else first, and not for the turn that it wanted.
    pub(crate) fn wants_no_more(&self, session: u64, device: u64) {
        let Some(mut entry) = self.lock(device) else { return };
        let (now, id) = (Instant::now(), SessionId(session));
        if entry.scheduler.turn().is_some_and(|turn| turn.session == id) {
            // It has come meanwhile, and nothing was made of it.
            if let Some(member) = entry.sessions.get(&id) {
                member.word().give(Standing::Nothing);
            }
            entry.scheduler.done(id, Duration::ZERO, Rest::Nothing, now);
        } else {
            entry.scheduler.wants_no_more(id, now);
        }
        self.decide(&mut entry, now);
    }

    /// A worker's turn has ended.
    pub(crate) fn done(&self, session: u64, device: u64, done: Done) {
        let Some(mut entry) = self.lock(device) else { return };
        let (now, id) = (Instant::now(), SessionId(session));
        let turn = entry.scheduler.turn().filter(|turn| turn.session == id);
        let Some(member) = entry.sessions.get_mut(&id) else { return };
        // Nobody has used more than there was.
        let held = turn.map_or(done.used, |turn| now.saturating_duration_since(turn.began));
        let used = done.used.min(held).saturating_sub(std::mem::take(&mut member.charged));
        let rest = match (done.more, done.brief) {
            (true, false) => Rest::More,
            (true, true) => Rest::One,
            (false, _) => Rest::Nothing,
        };
        entry.scheduler.done(id, used, rest, now);
        self.decide(&mut entry, now);
    }

    /// The policy has changed: running sessions get what it gives them now.
    pub(crate) fn reconsider(&self, policy: &Policy) {
        for id in self.devices.keys() {
            let Some(mut entry) = self.lock(*id) else { continue };
            let now = Instant::now();
            // Of several tenants that share, one speaks for all: one rule is for them.
            let speakers: HashMap<&String, &Tenant> =
                entry.sessions.values().map(|member| (&member.key, &member.tenant)).collect();
            let shares: Vec<(TenantId, Share)> = speakers
                .into_iter()
                .filter_map(|(key, tenant)| Some((*entry.tenants.get(key)?, share_of(&policy.for_tenant(tenant)))))
                .collect();
            for (number, share) in shares {
                entry.scheduler.set_share(number, share, now);
            }
            for member in entry.sessions.values_mut() {
                member.is_measured = is_measured(&policy.for_tenant(&member.tenant));
            }
            if entry.sessions.values().any(|member| member.is_measured && entry.free.as_ref() == Some(&member.key)) {
                entry.end_free();
            }
            self.decide(&mut entry, now);
        }
    }

    /// Has the scheduler decide until it has nothing more to say, and tells whom it concerns.
    fn decide(&self, entry: &mut Device, now: Instant) {
        if entry.serves_many {
            entry.settle(now);
        }
        loop {
            let until = match entry.scheduler.next(now) {
                Decision::Run { session, slice } => {
                    entry.give(session, Some(slice));
                    continue;
                }
                Decision::Alone { session } => {
                    entry.give(session, None);
                    continue;
                }
                Decision::Limit { session, slice } => {
                    entry.set_slice(session, Some(slice));
                    entry.change(session, Standing::Slice, now);
                    continue;
                }
                Decision::Stop { session } => {
                    entry.change(session, Standing::Stop, now);
                    continue;
                }
                Decision::Busy { until } => {
                    [until, entry.scheduler.turn().and_then(overdue_at)].into_iter().flatten().min()
                }
                Decision::WaitUntil(until) => Some(until),
                Decision::Idle => None,
            };
            return self.clock.set(entry.id, until);
        }
    }

    fn keep_time(&self) {
        // As the system has it, a thread may wake 50 µs late, which is a good part of a short slice. It would do without.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut times = self.clock.lock();
        loop {
            let now = Instant::now();
            let due: Vec<u64> = times.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
            if !due.is_empty() {
                due.iter().for_each(|id| _ = times.remove(id));
                drop(times);
                due.iter().for_each(|id| self.look(*id));
                times = self.clock.lock();
                continue;
            }
            times = match times.values().min() {
                Some(at) => {
                    let left = at.saturating_duration_since(now);
                    self.clock.sooner.wait_timeout(times, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.clock.sooner.wait(times).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// It is time to decide again.
    fn look(&self, device: u64) {
        let Some(mut entry) = self.lock(device) else { return };
        let now = Instant::now();
        entry.take_overdue(now);
        self.decide(&mut entry, now);
    }

    fn lock(&self, device: u64) -> Option<MutexGuard<'_, Device>> {
        Some(self.devices.get(&device)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Device {
    /// Sees by those who want the device, or have a turn, whether turns are needed. If not, nobody waits.
    fn settle(&mut self, now: Instant) {
        let waiting: Vec<SessionId> = self.scheduler.waiting().collect();
        let turn = self.scheduler.turn().map(|turn| turn.session);
        let mut wanting = waiting.iter().chain(&turn).filter_map(|session| self.sessions.get(session));
        let Some(first) = wanting.next() else { return };
        let (key, is_measured) = (first.key.clone(), first.is_measured);
        let is_one = wanting.all(|other| other.key == key);
        let is_for_others = self.free.as_ref().is_some_and(|owner| *owner != key || !is_one);
        let others_run = is_for_others && self.end_free();
        if others_run || !is_one {
            self.contested = Some(now);
        }
        let is_contested = self.contested.is_some_and(|at| now.saturating_duration_since(at) < CONTESTED);
        if is_measured || is_contested {
            return;
        }
        self.free = Some(key);
        // Who has a slice gives it back when that is used up.
        if let Some(session) = turn {
            self.scheduler.done(session, Duration::ZERO, Rest::Nothing, now);
        }
        for session in waiting {
            self.scheduler.wants_no_more(session, now);
            self.give(session, None);
        }
    }

    /// Sessions that run without turns are to ask for them; `true` if there are any.
    fn end_free(&mut self) -> bool {
        let Some(owner) = self.free.take() else { return false };
        let members = self.sessions.values_mut().filter(|member| member.key == owner);
        // All of them are called in, whatever the first does.
        members.map(Member::call_in).filter(|is_running| *is_running).count() > 0
    }

    fn give(&self, session: SessionId, slice: Option<Duration>) {
        self.note_waits(session);
        self.set_slice(session, slice);
        let Some(member) = self.sessions.get(&session) else { return };
        member.word().give(if slice.is_some() { Standing::Slice } else { Standing::Alone });
    }

    fn set_slice(&self, session: SessionId, slice: Option<Duration>) {
        let Some(member) = self.sessions.get(&session) else { return };
        let length = u64::try_from(slice.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
        member.board.device(member.place, DeviceCount::Slice).store(length, Ordering::Release);
    }

    /// Writes down why a session has waited: only the scheduler knows.
    fn note_waits(&self, session: SessionId) {
        let (Some(member), Some(waits)) = (self.sessions.get(&session), self.scheduler.waits(session)) else { return };
        for (count, time) in [
            (DeviceCount::WaitedForCap, waits.for_cap),
            (DeviceCount::WaitedForPriority, waits.for_level),
            (DeviceCount::WaitedForShare, waits.for_share()),
        ] {
            let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            member.board.device(member.place, count).store(time, Ordering::Relaxed);
        }
    }

    /// Tells a session that has the device to stop, or that it has a slice from now on. If it rests, takes it from it.
    fn change(&mut self, session: SessionId, to: Standing, now: Instant) {
        let Some(member) = self.sessions.get(&session) else { return };
        let word = member.word();
        loop {
            match word.get() {
                standing @ (Standing::Alone | Standing::Slice) => {
                    if word.change(standing, to) {
                        return;
                    }
                }
                Standing::Resting => {
                    if word.change(Standing::Resting, Standing::Nothing) {
                        return self.scheduler.done(session, Duration::ZERO, Rest::Nothing, now);
                    }
                }
                // Its report is on its way.
                Standing::Nothing | Standing::Stop => return,
            }
        }
    }

    /// Takes the device from a session that should have given it back long ago.
    fn take_overdue(&mut self, now: Instant) {
        let Some(turn) = self.scheduler.turn().filter(|turn| overdue_at(*turn).is_some_and(|at| at <= now)) else {
            return;
        };
        // One that holds its slice, and makes nothing of it, was not told.
        self.change(turn.session, Standing::Stop, now);
        if self.scheduler.turn().is_none_or(|still| still.session != turn.session) {
            return;
        }
        let held = now.saturating_duration_since(turn.began);
        // What a session used before anybody else wanted the device, nobody has missed.
        let used = turn.contended(now);
        if let Some(member) = self.sessions.get_mut(&turn.session) {
            let (session, tenant) = (turn.session.0, &member.tenant);
            debug!(session, %tenant, device = self.id, ?held, "a kernel takes long, or its worker hangs; others go on");
            member.charged = member.charged.saturating_add(used);
        } else {
            warn!(session = turn.session.0, "a session that is not there has the device");
        }
        self.scheduler.done(turn.session, used, Rest::Nothing, now);
    }
}

/// When a turn has lasted too long, whatever its session does.
fn overdue_at(turn: Turn) -> Option<Instant> {
    [turn.stopped, turn.ends()].into_iter().flatten().min()?.checked_add(OVERDUE)
}

impl Clock {
    fn set(&self, device: u64, at: Option<Instant>) {
        let mut times = self.lock();
        let earliest = times.values().min().copied();
        match at {
            Some(at) => {
                times.insert(device, at);
                if earliest.is_none_or(|earliest| at < earliest) {
                    self.sooner.notify_one();
                }
            }
            // Who wakes for nothing goes back to sleep.
            None => _ = times.remove(&device),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Instant>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const DEVICE: u64 = 7;

    /// A device, and what each of some sessions does there.
    struct Scene {
        turns: Turns,
        policy: Policy,
        boards: HashMap<u64, Arc<SessionBoard>>,
    }

    fn policy(text: &str) -> Policy {
        Policy::parse(Path::new("policy.toml"), text).unwrap()
    }

    impl Scene {
        fn new(serves_many: bool) -> Scene {
            let turns = Turns::new(&[Arc::new(Known { id: DEVICE, ..Known::default() })]);
            turns.lock(DEVICE).unwrap().serves_many = serves_many;
            Scene { turns, policy: policy(""), boards: HashMap::new() }
        }

        fn join(&mut self, session: u64, tenant: &str) {
            let board = Arc::new(SessionBoard::create(&[DEVICE]).unwrap().0);
            let grant = self.policy.for_tenant(&Tenant::of_user(0, Some(tenant)));
            self.turns.join(DEVICE, session, &grant, &board);
            self.boards.insert(session, board);
        }

        fn word(&self, session: u64) -> TurnWord<'_> {
            TurnWord(self.boards[&session].turn(0))
        }

        fn wants(&self, session: u64) -> Standing {
            self.turns.wants(session, DEVICE);
            self.word(session).get()
        }

        /// The worker has drained, and says so.
        fn gives_back(&self, session: u64, more: bool) {
            self.word(session).give(Standing::Nothing);
            self.turns.done(session, DEVICE, Done { used: Duration::from_millis(1), more, brief: false });
        }

        fn standings(&self, sessions: impl IntoIterator<Item = u64>) -> Vec<Standing> {
            sessions.into_iter().map(|session| self.word(session).get()).collect()
        }
    }

    #[test]
    fn sessions_of_one_tenant_need_no_turns_where_many_can_be_served_and_take_turns_elsewhere() {
        for serves_many in [true, false] {
            let mut scene = Scene::new(serves_many);
            scene.join(9, "bert");
            (1..=3).for_each(|session| scene.join(session, "anna"));
            let found: Vec<Standing> = (1..=3).map(|session| scene.wants(session)).collect();
            let others = if serves_many { Standing::Alone } else { Standing::Nothing };
            assert_eq!(found, [Standing::Alone, others, others]);
        }
    }

    #[test]
    fn another_tenant_makes_all_take_turns_as_long_as_it_comes_back() {
        let mut scene = Scene::new(true);
        (1..=3).for_each(|session| scene.join(session, "anna"));
        scene.join(4, "bert");
        (1..=2).for_each(|session| _ = scene.wants(session));
        // The second rests, the third has not run anything yet.
        assert!(scene.word(2).change(Standing::Alone, Standing::Resting));
        // What the first still has there, it drains beside the other.
        assert_ne!(scene.wants(4), Standing::Nothing);
        assert_eq!(scene.standings(1..=3), [Standing::Stop, Standing::Nothing, Standing::Nothing]);
        scene.gives_back(1, true);
        assert_eq!(scene.wants(2), Standing::Nothing);
        assert_eq!(scene.standings(1..=3), [Standing::Nothing; 3]);
        scene.gives_back(4, false);
        let running = |scene: &Scene| scene.standings(1..=3).iter().filter(|s| **s != Standing::Nothing).count();
        assert_eq!(running(&scene), 1);
        thread::sleep(CONTESTED);
        let slice = (1..=2).find(|session| scene.word(*session).get() != Standing::Nothing).unwrap();
        scene.gives_back(slice, true);
        assert_eq!(scene.standings(1..=2), [Standing::Alone; 2]);
        assert_eq!(scene.wants(3), Standing::Alone);
    }

    #[test]
    fn a_tenant_that_comes_when_all_others_rest_needs_no_turns_either() {
        let mut scene = Scene::new(true);
        (1..=2).for_each(|session| scene.join(session, "anna"));
        (3..=4).for_each(|session| scene.join(session, "bert"));
        for session in 1..=2 {
            assert_eq!(scene.wants(session), Standing::Alone);
            assert!(scene.word(session).change(Standing::Alone, Standing::Resting));
        }
        assert_eq!([3, 4].map(|session| scene.wants(session)), [Standing::Alone; 2]);
        assert_eq!(scene.standings(1..=2), [Standing::Nothing; 2]);
    }

    #[test]
    fn who_is_held_to_a_cap_or_to_a_longest_kernel_takes_turns() {
        for limit in ["cap = \"20%\"", "longest_kernel = \"1s\""] {
            let mut scene = Scene::new(true);
            (1..=2).for_each(|session| scene.join(session, "anna"));
            assert_eq!([1, 2].map(|session| scene.wants(session)), [Standing::Alone; 2], "{limit}");
            scene.turns.reconsider(&policy(&format!("[defaults]\n{limit}\n")));
            assert_eq!(scene.standings(1..=2), [Standing::Stop; 2], "{limit}");
            (1..=2).for_each(|session| scene.gives_back(session, true));
            let waiting = scene.standings(1..=2).iter().filter(|standing| **standing == Standing::Nothing).count();
            assert_eq!(waiting, 1, "{limit}");
            scene.turns.reconsider(&policy(""));
            assert!(!scene.standings(1..=2).contains(&Standing::Nothing), "{limit}");
        }
    }
}
