//! What the scheduler knows of a tenant and of its sessions.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::bucket::Bucket;
use crate::virtual_time::Virtual;
use crate::{SessionId, Settings, Share};

/// What a tenant has had of a device so far, for those who measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Device time that was charged.
    pub used: Duration,
    /// How long its sessions have waited for turns, all together.
    pub waits: Waits,
    /// How many turns it has had.
    pub turns: u64,
}

/// How long somebody has waited for turns, and why. A wait counts when it is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// For whatever reason.
    pub all: Duration,
    /// Of that, until the tenant's own cap allowed a turn.
    pub for_cap: Duration,
    /// Of the rest, while a higher level had the device.
    pub for_level: Duration,
}

impl Waits {
    /// What is left: it was the turn of others who have as much right to the device.
    pub fn for_share(&self) -> Duration {
        self.all.saturating_sub(self.for_cap).saturating_sub(self.for_level)
    }

    fn add(&mut self, other: &Waits) {
        self.all = self.all.saturating_add(other.all);
        self.for_cap = self.for_cap.saturating_add(other.for_cap);
        self.for_level = self.for_level.saturating_add(other.for_level);
    }
}

/// A tenant with at least one session, or one that has left and still owes something.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) share: Share,
    pub(crate) spent: Virtual,
    /// Has never wanted the device: nothing is known of it that could earn it a credit.
    pub(crate) fresh: bool,
    /// Has begun to want the device after it did not, and has not had a turn since.
    pub(crate) woke: bool,
    pub(crate) bucket: Option<Bucket>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// Where a session that comes back stands among the tenant's sessions.
    pub(crate) clock: Virtual,
    /// When its last session left.
    pub(crate) left: Option<Instant>,
    pub(crate) usage: Usage,
}

/// One session's place among those of its tenant.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) spent: Virtual,
    /// Since when it has waited for a turn.
    pub(crate) waiting: Option<Instant>,
    /// For how long higher levels had had the device when it began to wait.
    pub(crate) held_above: Duration,
    pub(crate) waits: Waits,
    /// Its last turn ended because it had nothing more to run.
    pub(crate) brief: bool,
}

impl Tenant {
    pub(crate) fn new(share: Share, spent: Virtual, settings: &Settings, now: Instant) -> Tenant {
        let mut tenant = Tenant {
            share,
            spent,
            fresh: true,
            woke: false,
            bucket: None,
            sessions: BTreeMap::new(),
            clock: Virtual::default(),
            left: None,
            usage: Usage::default(),
        };
        tenant.set_share(share, settings, now);
        tenant
    }

    pub(crate) fn set_share(&mut self, share: Share, settings: &Settings, now: Instant) {
        let before = self.share.cap;
        self.share = share;
        self.bucket = match (share.cap.filter(|cap| cap.limits()), self.bucket.take()) {
            (None, _) => None,
            (Some(_), Some(same)) if before == share.cap => Some(same),
            (Some(cap), Some(mut old)) => {
                old.fill(now);
                Some(old.with_cap(cap, settings, now))
            }
            (Some(cap), None) => Some(Bucket::new(cap, settings, now)),
        };
    }

    /// Adds device time to what it and one of its sessions have had.
    pub(crate) fn book(&mut self, session: SessionId, used: Duration) {
        self.spent = self.spent.after(used, self.share.weight);
        self.usage.used = self.usage.used.saturating_add(used);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.spent = session.spent.after(used, std::num::NonZeroU32::MIN);
        }
    }

    /// Takes device time from what its cap allows.
    pub(crate) fn take(&mut self, used: Duration, now: Instant) {
        if let Some(bucket) = &mut self.bucket {
            bucket.fill(now);
            bucket.take(used);
        }
    }

    /// Lets no session stand behind this one for what nobody else wanted.
    pub(crate) fn forgive(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get(&session) {
            self.clock = self.clock.max(session.spent);
        }
    }

    /// A session waits no more. Higher levels have had the device for `held_above` by now.
    pub(crate) fn end_wait(&mut self, session: SessionId, held_above: Duration, now: Instant) {
        if let Some(bucket) = &mut self.bucket {
            bucket.fill(now);
        }
        let Some(session) = self.sessions.get_mut(&session) else { return };
        let Some(since) = session.waiting.take() else { return };
        let all = now.saturating_duration_since(since);
        let allowed = match &self.bucket {
            Some(bucket) if bucket.ready_at() > now => now,
            Some(bucket) => bucket.ready_since(),
            None => since,
        };
        let for_cap = allowed.saturating_duration_since(since).min(all);
        let for_level = held_above.saturating_sub(session.held_above).min(all - for_cap);
        let wait = Waits { all, for_cap, for_level };
        session.waits.add(&wait);
        self.usage.waits.add(&wait);
    }

    /// The sessions that wait, and since when.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (SessionId, &Session, Instant)> {
        self.sessions.iter().filter_map(|(id, session)| session.waiting.map(|since| (*id, session, since)))
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting().next().is_some()
    }

    /// The session whose turn it is, if the tenant gets one.
    pub(crate) fn next_session(&self) -> Option<SessionId> {
        self.waiting()
            .min_by_key(|(id, session, since)| (session.spent.max(self.clock), *since, *id))
            .map(|first| first.0)
    }

    /// When its cap lets it have a turn; not later than now if it has none.
    pub(crate) fn ready_at(&self, now: Instant) -> Instant {
        self.bucket.as_ref().map_or(now, Bucket::ready_at)
    }
}
