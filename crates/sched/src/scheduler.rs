//! The scheduler's calls: who is there, who wants the device, what was used.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::tenant::{Session, Tenant, Usage, Waits};
use crate::virtual_time::Virtual;
use crate::{Settings, Share};

/// No use is longer than this, whatever was measured: one absurd figure shall not shut a tenant out for good.
const LONGEST_USE: Duration = Duration::from_secs(24 * 3600);

/// So long after its last session left, what a tenant used does not count against it any more.
const FORGET: Duration = Duration::from_secs(60);

/// After a turn out of order, a level below waits this many times the turn's use, so that such turns stay a twentieth.
const REST_AFTER_AGING: u32 = 19;

/// A session, as the caller numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A tenant, as the caller numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u64);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Let `session` submit until it has used `slice` of device time, then let it drain and report with
    /// [`Scheduler::done`]. If it has nothing more to run, or is told to stop, it reports sooner.
    Run { session: SessionId, slice: Duration },
    /// Let `session` submit without a limit: nobody else wants the device. It keeps the device also while it has
    /// nothing to run, until it is told to stop.
    Alone { session: SessionId },
    /// Tell `session`, which has the device without a limit, that from now on it has this slice, of which what it has used
    /// so far is a part; if it rests at the moment, the device is to be taken from it. Said once for each turn.
    Limit { session: SessionId, slice: Duration },
    /// Tell `session`, which has the device, to submit no more, to drain, and to report. Said once for each turn.
    Stop { session: SessionId },
    /// The device is taken. Ask again after the next call, and at `until` at the latest if there is one.
    Busy { until: Option<Instant> },
    /// All who want the device are held back by their caps until this time.
    WaitUntil(Instant),
    /// Nobody wants the device.
    Idle,
}

/// What a session has left when its turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It has more to run, and waits for its next turn.
    More,
    /// It has one command to run, and waits for its next turn with it: it runs one at a time, with pauses in between.
    One,
    /// It has nothing to run.
    Nothing,
}

/// The turn that a session has at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Who has the device.
    pub session: SessionId,
    /// Since when.
    pub began: Instant,
    /// For how much device time; `None` without a limit.
    pub slice: Option<Duration>,
    /// When it was told to stop.
    pub stopped: Option<Instant>,
    /// Of a turn that began without a limit: since when somebody else wants the device.
    pub(crate) contended: Option<Instant>,
    /// Whether it began without a limit.
    pub(crate) alone: bool,
    pub(crate) tenant: TenantId,
    pub(crate) level: u8,
    /// Whether a lower level has this turn because it had waited long enough.
    pub(crate) aged: bool,
    /// What has been charged in this turn.
    pub(crate) charged: Duration,
}

impl Turn {
    /// When its slice ends at the latest, if the device is not idle meanwhile.
    pub fn ends(&self) -> Option<Instant> {
        self.contended.unwrap_or(self.began).checked_add(self.slice?)
    }

    /// For how long somebody else has wanted the device meanwhile.
    pub fn contended(&self, now: Instant) -> Duration {
        let since = if self.alone { self.contended } else { Some(self.began) };
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// Tenants of one priority.
#[derive(Debug, Default)]
pub(crate) struct Level {
    /// Where tenants that come stand: what the one who is furthest behind has had.
    pub(crate) clock: Virtual,
    /// Before this it gets no turn that is a higher level's.
    pub(crate) not_before: Option<Instant>,
    /// For how long it has had the device, in turns that have ended.
    pub(crate) held: Duration,
}

/// Decides whose turn it is on one device.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) settings: Settings,
    pub(crate) tenants: BTreeMap<TenantId, Tenant>,
    members: BTreeMap<SessionId, TenantId>,
    /// Tenants with a session that waits.
    pub(crate) waiting: BTreeSet<TenantId>,
    pub(crate) levels: BTreeMap<u8, Level>,
    pub(crate) turn: Option<Turn>,
    /// For whom the present turn is being stopped: that tenant is next.
    pub(crate) promised: Option<TenantId>,
    /// The latest time that was told.
    now: Instant,
}

impl Scheduler {
    /// A device without sessions.
    pub fn new(settings: Settings, now: Instant) -> Scheduler {
        Scheduler {
            settings: settings.checked(),
            tenants: BTreeMap::new(),
            members: BTreeMap::new(),
            waiting: BTreeSet::new(),
            levels: BTreeMap::new(),
            turn: None,
            promised: None,
            now,
        }
    }

    /// Adds a session of `tenant`, which has this share from now on. A session that is there already changes its tenant.
    pub fn join(&mut self, session: SessionId, tenant: TenantId, share: Share, now: Instant) {
        let now = self.advance(now);
        if self.members.get(&session).is_some_and(|before| *before != tenant) {
            self.leave(session, now);
        }
        self.forget(now);
        let clock = self.clock(share.level);
        let settings = self.settings;
        let entry = self.tenants.entry(tenant).or_insert_with(|| Tenant::new(share, clock, &settings, now));
        entry.left = None;
        let spent = entry.clock;
        let new =
            || Session { spent, waiting: None, held_above: Duration::ZERO, waits: Waits::default(), brief: false };
        entry.sessions.entry(session).or_insert_with(new);
        self.members.insert(session, tenant);
        self.set_share(tenant, share, now);
    }

    /// Removes a session, also in the middle of its turn: then the time it had the device counts as used.
    pub fn leave(&mut self, session: SessionId, now: Instant) {
        let now = self.advance(now);
        let Some(&tenant) = self.members.get(&session) else {
            return;
        };
        if let Some(turn) = self.turn.take_if(|turn| turn.session == session) {
            // What a session does without a limit, and what nobody has reported, nobody has missed either.
            let used = turn.contended(now).saturating_sub(turn.charged);
            self.close(turn, used, now);
        }
        self.rests(tenant, session, now);
        self.members.remove(&session);
        if let Some(entry) = self.tenants.get_mut(&tenant) {
            entry.sessions.remove(&session);
            if entry.sessions.is_empty() {
                entry.left = Some(now);
            }
        }
        self.forget(now);
    }

    /// Changes what a tenant gets, from its next turn on. A tenant without sessions is passed over.
    pub fn set_share(&mut self, tenant: TenantId, share: Share, now: Instant) {
        let now = self.advance(now);
        let settings = self.settings;
        let Some(level) = self.tenants.get(&tenant).map(|entry| entry.share.level) else {
            return;
        };
        let (before, after) = (self.clock(level), self.clock(share.level));
        if let Some(entry) = self.tenants.get_mut(&tenant) {
            if level != share.level {
                // Levels count for themselves. What it was ahead of its old level, it is ahead of its new one.
                entry.spent = after.plus(entry.spent.ahead_of(before));
            }
            entry.set_share(share, &settings, now);
        }
    }

    /// Notes that a session has something to run. One that has the device, or waits already, need not say so.
    pub fn wants(&mut self, session: SessionId, now: Instant) {
        let now = self.advance(now);
        let Some(&tenant) = self.members.get(&session) else {
            return;
        };
        if self.turn.is_some_and(|turn| turn.session == session) {
            return;
        }
        let running = self.turn.is_some_and(|turn| turn.tenant == tenant);
        let credit = self.settings.credit;
        let Some(level) = self.tenants.get(&tenant).map(|entry| entry.share.level) else {
            return;
        };
        let (clock, held_above) = (self.clock(level), self.held_above(level, now));
        if let Some(entry) = self.tenants.get_mut(&tenant) {
            if !running && !self.waiting.contains(&tenant) {
                let floor = if entry.fresh { clock } else { clock.before(credit, entry.share.weight) };
                entry.spent = entry.spent.max(floor);
                entry.fresh = false;
                entry.woke = true;
            }
            let floor = entry.clock;
            if let Some(session) = entry.sessions.get_mut(&session)
                && session.waiting.is_none()
            {
                session.spent = session.spent.max(floor);
                (session.waiting, session.held_above) = (Some(now), held_above);
            }
            self.waiting.insert(tenant);
        }
    }

    /// Notes that a session which waits has nothing to run any more.
    pub fn wants_no_more(&mut self, session: SessionId, now: Instant) {
        let now = self.advance(now);
        if let Some(&tenant) = self.members.get(&session) {
            self.rests(tenant, session, now);
        }
    }

    /// Ends a session's turn. `used` is the device time of it that was not charged before.
    pub fn done(&mut self, session: SessionId, used: Duration, rest: Rest, now: Instant) {
        let now = self.advance(now);
        let Some(&tenant) = self.members.get(&session) else {
            return;
        };
        match self.turn.take_if(|turn| turn.session == session) {
            Some(turn) => self.close(turn, used, now),
            None => self.charge(session, used),
        }
        let level = self.tenants.get(&tenant).map_or(0, |entry| entry.share.level);
        let held_above = self.held_above(level, now);
        if let Some(session) = self.tenants.get_mut(&tenant).and_then(|entry| entry.sessions.get_mut(&session)) {
            session.brief = rest != Rest::More;
            if rest != Rest::Nothing && session.waiting.is_none() {
                (session.waiting, session.held_above) = (Some(now), held_above);
            }
        }
        match rest {
            Rest::More | Rest::One => _ = self.waiting.insert(tenant),
            Rest::Nothing => self.rests(tenant, session, now),
        }
    }

    /// Charges device time to a session, during its turn or later.
    pub fn charge(&mut self, session: SessionId, used: Duration) {
        let used = used.min(LONGEST_USE);
        let turn = self.turn.as_mut().filter(|turn| turn.session == session);
        let mut alone = false;
        if let Some(turn) = turn {
            turn.charged = turn.charged.saturating_add(used);
            alone = turn.alone && turn.contended.is_none();
        }
        if alone {
            self.book_alone(session, used);
        } else {
            self.book(session, used);
        }
    }

    /// The turn that a session has now, to see who holds the device for how long.
    pub fn turn(&self) -> Option<Turn> {
        self.turn
    }

    /// The sessions that want the device and do not have it.
    pub fn waiting(&self) -> impl Iterator<Item = SessionId> {
        let tenants = self.waiting.iter().filter_map(|tenant| self.tenants.get(tenant));
        tenants.flat_map(|tenant| tenant.waiting().map(|(session, _, _)| session))
    }

    /// What a tenant has had so far; `None` if it has no session and owes nothing.
    pub fn usage(&self, tenant: TenantId) -> Option<Usage> {
        self.tenants.get(&tenant).map(|entry| entry.usage)
    }

    /// How long a session has waited for its turns so far, and why; `None` if it is not there.
    pub fn waits(&self, session: SessionId) -> Option<Waits> {
        let tenant = self.members.get(&session)?;
        self.tenants.get(tenant)?.sessions.get(&session).map(|session| session.waits)
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.members.len()
    }

    /// Accounts for a turn that has ended.
    fn close(&mut self, turn: Turn, used: Duration, now: Instant) {
        let used = used.min(LONGEST_USE);
        if turn.alone {
            // Until then nobody wanted the device: that much moves the clocks along, and counts for nothing.
            let contended = turn.contended(now).min(used);
            self.book_alone(turn.session, used.saturating_sub(contended));
            self.book(turn.session, contended);
        } else {
            self.book(turn.session, used);
        }
        let mut pause = self.settings.patience;
        if turn.aged {
            pause = pause.max(turn.charged.saturating_add(used).saturating_mul(REST_AFTER_AGING));
        }
        let level = self.levels.entry(turn.level).or_default();
        level.not_before = now.checked_add(pause);
        level.held = level.held.saturating_add(now.saturating_duration_since(turn.began));
    }

    fn book(&mut self, session: SessionId, used: Duration) {
        let now = self.now;
        if let Some(entry) = self.members.get(&session).and_then(|tenant| self.tenants.get_mut(tenant)) {
            entry.book(session, used);
            entry.take(used, now);
        }
    }

    /// Books what nobody competed for: the clocks go along with it, and there was no cap.
    fn book_alone(&mut self, session: SessionId, used: Duration) {
        if let Some(entry) = self.members.get(&session).and_then(|tenant| self.tenants.get_mut(tenant)) {
            entry.book(session, used);
            entry.forgive(session);
            let level = self.levels.entry(entry.share.level).or_default();
            level.clock = level.clock.max(entry.spent);
        }
    }

    /// Notes that a session does not wait. If it was the last to want something, what it is ahead of others is forgiven.
    fn rests(&mut self, tenant: TenantId, session: SessionId, now: Instant) {
        let level = self.tenants.get(&tenant).map_or(0, |entry| entry.share.level);
        let held_above = self.held_above(level, now);
        let Some(entry) = self.tenants.get_mut(&tenant) else {
            return;
        };
        entry.end_wait(session, held_above, now);
        if entry.is_waiting() || self.turn.is_some_and(|turn| turn.tenant == tenant) {
            return;
        }
        entry.forgive(session);
        entry.woke = false;
        self.waiting.remove(&tenant);
        let (level, spent) = (entry.share.level, entry.spent);
        let active = self.waiting.iter().copied().chain(self.turn.map(|turn| turn.tenant));
        let mut others = active.filter_map(|tenant| self.tenants.get(&tenant));
        if !others.any(|other| other.share.level == level) {
            let level = self.levels.entry(level).or_default();
            level.clock = level.clock.max(spent);
        }
    }

    /// Drops tenants that have left and owe nothing.
    fn forget(&mut self, now: Instant) {
        let levels = &self.levels;
        self.tenants.retain(|_, entry| {
            let Some(left) = entry.left else {
                return true;
            };
            let clock = levels.get(&entry.share.level).map_or(Virtual::default(), |level| level.clock);
            let even = entry.spent <= clock || now.saturating_duration_since(left) >= FORGET;
            let paid = entry.bucket.as_mut().is_none_or(|bucket| {
                bucket.fill(now);
                bucket.is_full()
            });
            !(even && paid)
        });
    }

    /// For how long levels above this one have had the device so far.
    pub(crate) fn held_above(&self, level: u8, now: Instant) -> Duration {
        let Some(above) = level.checked_add(1) else {
            return Duration::ZERO;
        };
        let present = self.turn.filter(|turn| turn.level > level);
        let present = present.map_or(Duration::ZERO, |turn| now.saturating_duration_since(turn.began));
        self.levels.range(above..).fold(present, |sum, (_, level)| sum.saturating_add(level.held))
    }

    pub(crate) fn clock(&self, level: u8) -> Virtual {
        self.levels.get(&level).map_or(Virtual::default(), |level| level.clock)
    }

    /// Time does not run backwards here, whatever the caller's does.
    pub(crate) fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }
}
