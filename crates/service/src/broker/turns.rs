//! Whose turn it is on each device: the scheduler of each, and the words on the sessions' boards by which workers learn
//! what it has decided.
//!
//! Threads of sessions call in with what their workers say; whoever does so has the scheduler decide, and tells whom it
//! concerns. What is to be decided later, because a slice ends or a cap allows it again, is the clock thread's.

use std::collections::HashMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use telecl_policy::{Grant, Policy, Priority, Tenant};
use telecl_sched::{Cap, Decision, Rest, Scheduler, SessionId, Settings, Share, TenantId, Turn};
use tracing::{debug, warn};

use crate::board::{DeviceCount, SessionBoard};
use crate::channel::Done;
use crate::turn::{Standing, TurnWord};

/// How long a session may take to stop. Then others get the device all the same, and share it with what is still running:
/// a kernel cannot be interrupted, and nobody shall wait for a worker that hangs.
const OVERDUE: Duration = Duration::from_secs(1);

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
    /// What was charged for a turn that it did not give back in time; its own report has that, too.
    charged: Duration,
}

impl Member {
    fn word(&self) -> TurnWord<'_> {
        TurnWord(self.board.turn(self.place))
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

impl Turns {
    pub(crate) fn new(devices: impl Iterator<Item = u64>) -> Turns {
        let now = Instant::now();
        let device = |id| Device {
            id,
            scheduler: Scheduler::new(Settings::default(), now),
            sessions: HashMap::new(),
            tenants: HashMap::new(),
        };
        Turns { devices: devices.map(|id| (id, Mutex::new(device(id)))).collect(), clock: Arc::default() }
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
        entry.sessions.insert(id, Member { board: Arc::clone(board), place, tenant, key, charged: Duration::ZERO });
    }

    /// A session that went on without a broker is here. Whatever it does on the device, it did by itself: it is to stop, and
    /// to ask.
    pub(crate) fn adopt(&self, device: u64, session: u64, grant: &Grant, board: &Arc<SessionBoard>) {
        self.join(device, session, grant, board);
        let Some(mut entry) = self.lock(device) else { return };
        let Some(member) = entry.sessions.get_mut(&SessionId(session)) else { return };
        loop {
            let standing = member.word().get();
            let next = match standing {
                Standing::Alone | Standing::Slice => Standing::Stop,
                Standing::Resting => Standing::Nothing,
                Standing::Nothing | Standing::Stop => standing,
            };
            if standing == next || member.word().change(standing, next) {
                if next == Standing::Stop {
                    // What it used while nobody gave turns, nobody has missed.
                    member.charged = Duration::MAX;
                }
                break;
            }
        }
        // Whoever has just seen that there is nobody to ask sees that there is.
        member.word().wake();
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
            self.decide(&mut entry, now);
        }
    }

    /// Has the scheduler decide until it has nothing more to say, and tells whom it concerns.
    fn decide(&self, entry: &mut Device, now: Instant) {
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
