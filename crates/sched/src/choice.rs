//! The decision: who is next, for how long, and who shall stop for whom.

use std::cmp::{Ordering, Reverse};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use crate::scheduler::{Decision, Scheduler, TenantId, Turn};
use crate::virtual_time::Virtual;

/// So many sessions of a tenant that run one command at a time have the shortest slices for such.
const FEW: u32 = 3;

/// A slice is never nothing.
const LEAST: Duration = Duration::from_micros(1);

/// A tenant with sessions that wait.
#[derive(Clone, Copy, Debug)]
struct Contender {
    tenant: TenantId,
    level: u8,
    weight: NonZeroU32,
    /// What it has had, less what it may be behind at most.
    spent: Virtual,
    /// When its cap lets it run.
    ready: Instant,
    /// Since when its first session has waited.
    since: Instant,
    /// How many of its sessions wait.
    sessions: u32,
    /// Whether one of them is of the kind that soon has enough.
    brief: bool,
    /// Whether all of them are.
    only_brief: bool,
    woke: bool,
}

impl Scheduler {
    /// What is to be done now. To be asked after every other call, and at the times that it names.
    pub fn next(&mut self, now: Instant) -> Decision {
        let now = self.advance(now);
        match self.turn {
            Some(turn) => self.interrupt(turn, now),
            None => self.choose(now),
        }
    }

    fn choose(&mut self, now: Instant) -> Decision {
        let promised = self.promised.take();
        let mut contenders = self.contenders(now);
        let Some(first) = contenders.iter().map(|one| one.ready).min() else {
            return Decision::Idle;
        };
        if first > now {
            return Decision::WaitUntil(first);
        }
        contenders.retain(|one| one.ready <= now);
        let top = contenders.iter().map(|one| one.level).max().unwrap_or_default();
        let aged = self.aged_level(&contenders, top, now);
        let level = aged.unwrap_or(top);
        let peers: Vec<Contender> = contenders.iter().copied().filter(|one| one.level == level).collect();
        let promised = promised.and_then(|tenant| peers.iter().find(|one| one.tenant == tenant));
        let first = peers.iter().min_by_key(|one| (one.spent, one.since, one.tenant));
        let (Some(first), Some(mut chosen)) = (first, promised.or(first).copied()) else {
            return Decision::Idle;
        };
        // Who is furthest behind sets the clock.
        let clock = self.levels.entry(level).or_default();
        clock.clock = clock.clock.max(first.spent);
        let others = contenders.iter().map(|one| one.sessions).sum::<u32>() > 1;
        let slice = self.slice(&chosen, &peers, aged.is_some());
        if promised.is_some() {
            // Who interrupts pays for the change.
            chosen.spent = chosen.spent.after(self.settings.switch, chosen.weight);
        }
        self.begin(&chosen, slice, others, aged.is_some(), now).unwrap_or(Decision::Idle)
    }

    /// The level below `top` that has waited long enough for a turn out of order, the longest first.
    fn aged_level(&self, contenders: &[Contender], top: u8, now: Instant) -> Option<u8> {
        let below = contenders.iter().filter(|one| one.level < top);
        below.map(|one| (self.due(one), one.level)).min().filter(|(due, _)| *due <= now).map(|(_, level)| level)
    }

    /// When a contender's level may have a turn although a higher level wants it.
    fn due(&self, contender: &Contender) -> Instant {
        let patient = contender.since.checked_add(self.settings.patience).unwrap_or(contender.since);
        let not_before = self.levels.get(&contender.level).and_then(|level| level.not_before);
        not_before.map_or(patient, |time| time.max(patient))
    }

    /// The length of a turn: its tenant's part of a round. If somebody waits who would soon be done, it ends when that
    /// one is to be first.
    fn slice(&self, chosen: &Contender, peers: &[Contender], aged: bool) -> Duration {
        let shortest = self.settings.shortest;
        if aged {
            return shortest;
        }
        let weights: u128 = peers.iter().map(|one| u128::from(one.weight.get())).sum();
        let turns = weights.saturating_mul(u128::from(chosen.sessions)).max(1);
        let part = self.settings.round.as_nanos().saturating_mul(u128::from(chosen.weight.get())) / turns;
        let part = Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX)).clamp(shortest, self.settings.round);
        if peers.iter().all(|one| one.only_brief) {
            // All of them run one command at a time. To change after each would cost more than most of them take. It
            // costs the more the more there are: who has slept for long is slow at first. But a tenant with many of
            // them is not to keep others waiting for it.
            let times = if peers.len() == 1 { chosen.sessions.div_ceil(FEW).max(1) } else { 1 };
            return self.settings.together.saturating_mul(times).min(self.settings.round);
        }
        if chosen.only_brief {
            // Who has had one command, and takes no more for now, is the sooner next again.
            return self.settings.switch.max(LEAST);
        }
        let brief = peers.iter().filter(|one| one.brief && one.tenant != chosen.tenant).map(|one| one.spent).min();
        brief.map_or(part, |spent| part.min(self.until_first(spent, chosen.spent, chosen.weight)))
    }

    /// How much a tenant may use before one that has had `other` goes first. Less than it costs to change sessions is not
    /// worth it.
    fn until_first(&self, other: Virtual, spent: Virtual, weight: NonZeroU32) -> Duration {
        other.ahead_of(spent).device_time(weight).saturating_add(self.settings.switch).max(LEAST)
    }

    /// Gives the turn to the next session of `chosen`.
    fn begin(
        &mut self,
        chosen: &Contender,
        slice: Duration,
        others: bool,
        aged: bool,
        now: Instant,
    ) -> Option<Decision> {
        let held_above = self.held_above(chosen.level, now);
        let entry = self.tenants.get_mut(&chosen.tenant)?;
        let session = entry.next_session()?;
        entry.spent = chosen.spent;
        entry.woke = false;
        entry.usage.turns = entry.usage.turns.saturating_add(1);
        entry.end_wait(session, held_above, now);
        let place = entry.sessions.get_mut(&session)?;
        place.spent = place.spent.max(entry.clock);
        entry.clock = place.spent;
        let limit = match &entry.bucket {
            Some(bucket) => Some(slice.min(bucket.left()).max(Duration::from_nanos(1))),
            None => others.then_some(slice),
        };
        if !entry.is_waiting() {
            self.waiting.remove(&chosen.tenant);
        }
        self.turn = Some(Turn {
            session,
            began: now,
            slice: limit,
            stopped: None,
            contended: None,
            alone: limit.is_none(),
            tenant: chosen.tenant,
            level: chosen.level,
            aged,
            charged: Duration::ZERO,
        });
        Some(match limit {
            Some(slice) => Decision::Run { session, slice },
            None => Decision::Alone { session },
        })
    }

    /// Whether the session that has the device shall stop for somebody, or when it may have to.
    fn interrupt(&mut self, turn: Turn, now: Instant) -> Decision {
        if turn.stopped.is_some() {
            return Decision::Busy { until: None };
        }
        let capped = self.tenants.get(&turn.tenant).is_some_and(|entry| entry.bucket.is_some());
        if turn.slice.is_none() && capped {
            return self.stop(turn, now);
        }
        let contenders = self.contenders(now);
        let wishes = || contenders.iter().filter_map(|one| Some((self.stop_for(one, turn)?, one)));
        let cause = wishes().filter(|(at, _)| *at <= now).map(|(_, one)| one);
        let Some(cause) = cause.min_by_key(|one| (Reverse(one.level), one.spent, one.since, one.tenant)) else {
            let until = wishes().map(|(at, _)| at).min();
            let peers = wishes().filter(|(_, one)| one.level == turn.level && one.ready <= now);
            let slice = peers.map(|(at, _)| at.saturating_duration_since(turn.began)).min();
            return match slice.filter(|slice| turn.slice.is_none() && *slice <= self.settings.shortest) {
                // The turn has just begun. Its session knows itself when it has used so much, sooner than we could tell it.
                Some(slice) => self.limit(turn, slice, now),
                None => Decision::Busy { until },
            };
        };
        if turn.slice.is_none() && cause.level == turn.level && self.are_brief(cause, turn) {
            return self.limit(turn, self.settings.together, now);
        }
        if cause.level == turn.level && self.first_at(cause, turn).is_some_and(|at| at <= now) {
            self.promised = Some(cause.tenant);
        }
        self.stop(turn, now)
    }

    fn limit(&mut self, turn: Turn, slice: Duration, now: Instant) -> Decision {
        self.turn = Some(Turn { slice: Some(slice), contended: Some(now), ..turn });
        Decision::Limit { session: turn.session, slice }
    }

    fn stop(&mut self, turn: Turn, now: Instant) -> Decision {
        self.turn = Some(Turn { stopped: Some(now), contended: turn.contended.or(Some(now)), ..turn });
        Decision::Stop { session: turn.session }
    }

    /// When the present turn has to end for a contender, if not by itself.
    fn stop_for(&self, one: &Contender, turn: Turn) -> Option<Instant> {
        let alone = turn.slice.is_none();
        let at = match one.level.cmp(&turn.level) {
            // A turn out of order is short, and is all that a lower level gets for a while.
            _ if turn.aged => None,
            Ordering::Greater => Some(one.since),
            Ordering::Equal if alone => {
                let soon = one.since.checked_add(self.settings.switch * 2);
                Some(self.first_at(one, turn).zip(soon).map_or(one.since, |(at, soon)| at.min(soon)))
            }
            Ordering::Equal => self.first_at(one, turn).filter(|_| one.woke),
            // Who runs alone may have nothing to run just now, and only its answer will tell. If it has, it gets the
            // device back.
            Ordering::Less => alone.then_some(one.since),
        };
        at.map(|at| at.max(one.ready))
    }

    /// When the tenant that has the device will have had so much that another one, which has just come, goes first.
    /// `None` for a session of the same tenant.
    fn first_at(&self, one: &Contender, turn: Turn) -> Option<Instant> {
        let entry = self.tenants.get(&turn.tenant).filter(|_| one.tenant != turn.tenant)?;
        let left = self.until_first(one.spent, entry.spent, entry.share.weight);
        let least = if self.are_brief(one, turn) { self.settings.together } else { LEAST };
        let left = left.max(least);
        turn.contended.or_else(|| turn.began.checked_add(turn.charged))?.checked_add(left)
    }

    /// Whether a contender, and the session that has the device, both run one command at a time.
    fn are_brief(&self, one: &Contender, turn: Turn) -> bool {
        let session = self.tenants.get(&turn.tenant).and_then(|entry| entry.sessions.get(&turn.session));
        one.only_brief && session.is_some_and(|session| session.brief)
    }

    fn contenders(&self, now: Instant) -> Vec<Contender> {
        let mut found = Vec::with_capacity(self.waiting.len());
        for tenant in &self.waiting {
            let Some(entry) = self.tenants.get(tenant) else {
                continue;
            };
            let (mut sessions, mut brief, mut only_brief, mut since) = (0, false, true, now);
            for (_, session, waiting) in entry.waiting() {
                sessions += 1;
                brief |= session.brief;
                only_brief &= session.brief;
                since = since.min(waiting);
            }
            if sessions == 0 {
                continue;
            }
            let share = entry.share;
            found.push(Contender {
                tenant: *tenant,
                level: share.level,
                weight: share.weight,
                spent: entry.spent.max(self.clock(share.level).before(self.settings.credit, share.weight)),
                ready: entry.ready_at(now),
                since,
                sessions,
                brief,
                only_brief,
                woke: entry.woke,
            });
        }
        found
    }
}
