//! Any calls in any order: nothing panics, and every answer makes sense.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use telecl_sched::{Cap, Decision, Rest, Scheduler, SessionId, Settings, Share, TenantId};

#[derive(Clone, Debug)]
enum Call {
    Join(u64, u64, Share),
    Leave(u64),
    SetShare(u64, Share),
    Wants(u64),
    WantsNoMore(u64),
    /// Of this session, or of the one that has the device.
    Done(Option<u64>, Duration, bool),
    Charge(u64, Duration),
    Next,
    /// Later by this, or earlier.
    Time(u64, bool),
}

fn share() -> impl Strategy<Value = Share> {
    (prop_oneof![1u32..10, Just(u32::MAX)], prop_oneof![Just(None), (0u16..11_000).prop_map(Some)], 0u8..4).prop_map(
        |(weight, cap, level)| Share {
            weight: weight.try_into().unwrap(),
            cap: cap.and_then(Cap::ten_thousandths),
            level,
        },
    )
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        8 => (0u64..30_000_000).prop_map(Duration::from_nanos),
        1 => Just(Duration::ZERO),
        1 => (1u64..100).prop_map(Duration::from_secs),
        1 => Just(Duration::MAX),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let session = 0u64..12;
    prop_oneof![
        3 => (session.clone(), 0u64..5, share()).prop_map(|(session, tenant, share)| Call::Join(session, tenant, share)),
        1 => session.clone().prop_map(Call::Leave),
        1 => (0u64..6, share()).prop_map(|(tenant, share)| Call::SetShare(tenant, share)),
        6 => session.clone().prop_map(Call::Wants),
        1 => session.clone().prop_map(Call::WantsNoMore),
        6 => (proptest::option::weighted(0.2, session.clone()), time(), any::<bool>())
            .prop_map(|(session, used, more)| Call::Done(session, used, more)),
        2 => (session, time()).prop_map(|(session, used)| Call::Charge(session, used)),
        12 => Just(Call::Next),
        6 => (0u64..50_000_000, proptest::bool::weighted(0.05)).prop_map(|(by, back)| Call::Time(by, back)),
    ]
}

/// What an onlooker knows.
#[derive(Default)]
struct Onlooker {
    tenant_of: BTreeMap<u64, u64>,
    shares: BTreeMap<u64, Share>,
    waiting: BTreeSet<u64>,
    /// Who has the device, whether without a limit, and whether it was told to stop.
    holder: Option<(u64, bool, bool)>,
}

impl Onlooker {
    fn leaves(&mut self, session: u64) {
        self.tenant_of.remove(&session);
        self.waiting.remove(&session);
        self.holder = self.holder.filter(|holder| holder.0 != session);
    }

    fn is_capped(&self, session: u64) -> bool {
        self.shares[&self.tenant_of[&session]].cap.is_some()
    }

    fn sees(&mut self, decision: Decision, now: Instant) {
        let free = |holder: Option<_>| assert!(holder.is_none(), "{decision:?} while the device is taken");
        match decision {
            Decision::Run { session, slice } => {
                free(self.holder);
                assert!(self.waiting.remove(&session.0), "{decision:?} for one that does not want it");
                assert!(!slice.is_zero() && slice <= Settings::default().round, "{decision:?}");
                self.holder = Some((session.0, false, false));
            }
            Decision::Alone { session } => {
                free(self.holder);
                assert!(self.waiting.remove(&session.0), "{decision:?} for one that does not want it");
                assert!(self.waiting.iter().all(|other| self.is_capped(*other)), "{decision:?} is not alone");
                self.holder = Some((session.0, true, false));
            }
            Decision::Limit { session, slice } => {
                assert_eq!(self.holder, Some((session.0, true, false)), "{decision:?}");
                assert!(!self.waiting.is_empty(), "for whom?");
                let Settings { together, shortest, .. } = Settings::default();
                assert!(slice == together || !slice.is_zero() && slice <= shortest, "{decision:?}");
                self.holder = Some((session.0, false, false));
            }
            Decision::Stop { session } => {
                let (holder, alone, stopped) = self.holder.unwrap();
                assert_eq!(holder, session.0);
                assert!(!stopped, "told twice");
                assert!(!self.waiting.is_empty() || alone, "for whom?");
                self.holder = Some((holder, alone, true));
            }
            Decision::Busy { until } => {
                assert!(self.holder.is_some());
                assert!(until.is_none_or(|until| until > now), "{decision:?}");
            }
            Decision::WaitUntil(time) => {
                free(self.holder);
                assert!(time > now && !self.waiting.is_empty());
                assert!(self.waiting.iter().all(|session| self.is_capped(*session)), "{decision:?}");
            }
            Decision::Idle => {
                free(self.holder);
                assert!(self.waiting.is_empty(), "idle, and {:?} wait", self.waiting);
            }
        }
    }
}

fn play(calls: &[Call]) {
    let start = Instant::now() + Duration::from_secs(10);
    // What the scheduler was told; between two calls the clock may go forth and back.
    let (mut now, mut latest) = (start, start);
    let mut scheduler = Scheduler::new(Settings::default(), now);
    let mut seen = Onlooker::default();
    for call in calls {
        match call {
            Call::Join(session, tenant, share) => {
                scheduler.join(SessionId(*session), TenantId(*tenant), *share, now);
                if seen.tenant_of.get(session).is_some_and(|before| before != tenant) {
                    seen.leaves(*session);
                }
                seen.tenant_of.insert(*session, *tenant);
                seen.shares.insert(*tenant, *share);
            }
            Call::Leave(session) => {
                scheduler.leave(SessionId(*session), now);
                seen.leaves(*session);
            }
            Call::SetShare(tenant, share) => {
                scheduler.set_share(TenantId(*tenant), *share, now);
                if seen.tenant_of.values().any(|one| one == tenant) {
                    seen.shares.insert(*tenant, *share);
                }
            }
            Call::Wants(session) => {
                scheduler.wants(SessionId(*session), now);
                let holds = seen.holder.is_some_and(|holder| holder.0 == *session);
                if seen.tenant_of.contains_key(session) && !holds {
                    seen.waiting.insert(*session);
                }
            }
            Call::WantsNoMore(session) => {
                scheduler.wants_no_more(SessionId(*session), now);
                seen.waiting.remove(session);
            }
            Call::Done(session, used, more) => {
                let Some(session) = session.or(seen.holder.map(|holder| holder.0)) else {
                    continue;
                };
                let rest = match (*more, used.subsec_nanos() % 2) {
                    (true, 0) => Rest::More,
                    (true, _) => Rest::One,
                    (false, _) => Rest::Nothing,
                };
                scheduler.done(SessionId(session), *used, rest, now);
                if seen.tenant_of.contains_key(&session) {
                    seen.holder = seen.holder.filter(|holder| holder.0 != session);
                    if *more {
                        seen.waiting.insert(session)
                    } else {
                        seen.waiting.remove(&session)
                    };
                }
            }
            Call::Charge(session, used) => scheduler.charge(SessionId(*session), *used),
            Call::Next => {
                latest = latest.max(now);
                seen.sees(scheduler.next(now), latest);
            }
            Call::Time(by, true) => now -= Duration::from_nanos(by / 20),
            Call::Time(by, false) => now += Duration::from_nanos(*by),
        }
        if !matches!(call, Call::Time(..) | Call::Charge(..)) {
            latest = latest.max(now);
        }
        assert_eq!(scheduler.turn().map(|turn| turn.session.0), seen.holder.map(|holder| holder.0));
        assert_eq!(scheduler.sessions(), seen.tenant_of.len());
    }
    // When all have left and time has passed, nothing is left of them.
    for session in 0..12 {
        scheduler.leave(SessionId(session), latest);
    }
    assert_eq!(scheduler.next(latest), Decision::Idle);
    assert_eq!((scheduler.turn(), scheduler.sessions()), (None, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_to_any_calls_makes_sense(calls in proptest::collection::vec(call(), 0..250)) {
        play(&calls);
    }
}

#[test]
fn at_the_time_that_was_named_somebody_may_run() {
    let start = Instant::now();
    let mut scheduler = Scheduler::new(Settings::default(), start);
    let share = Share { cap: Cap::ten_thousandths(137), ..Share::default() };
    scheduler.join(SessionId(1), TenantId(1), share, start);
    scheduler.wants(SessionId(1), start);
    let mut now = start;
    for step in 0..1_000u32 {
        match scheduler.next(now) {
            Decision::Run { session, slice } => {
                scheduler.done(session, slice + Duration::from_nanos(u64::from(step * 7_919)), Rest::More, now);
            }
            Decision::WaitUntil(time) => {
                now = time;
                assert!(matches!(scheduler.next(now), Decision::Run { .. }));
                scheduler.done(SessionId(1), Duration::from_micros(1_999), Rest::More, now);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// One tenant has the device alone, and after some time another one wants it, too: when that is.
fn another_comes_after(time: Duration) -> (Scheduler, Instant) {
    let start = Instant::now();
    let mut scheduler = Scheduler::new(Settings::default(), start);
    for tenant in [1, 2] {
        scheduler.join(SessionId(tenant), TenantId(tenant), Share::default(), start);
    }
    scheduler.wants(SessionId(1), start);
    assert_eq!(scheduler.next(start), Decision::Alone { session: SessionId(1) });
    let now = start + time;
    scheduler.wants(SessionId(2), now);
    (scheduler, now)
}

#[test]
fn who_has_just_got_the_device_alone_is_told_how_long_it_has_it_when_another_comes() {
    let (mut scheduler, now) = another_comes_after(Duration::from_micros(30));
    let Decision::Limit { session: SessionId(1), slice } = scheduler.next(now) else { panic!("no limit") };
    assert!(slice > Duration::from_micros(30) && slice < Duration::from_millis(1), "{slice:?}");
    // Said once.
    assert!(matches!(scheduler.next(now), Decision::Busy { .. }));
    // Who has had it for long is to stop soon, and to be told so then.
    let (mut scheduler, now) = another_comes_after(Duration::from_secs(1));
    let decision = scheduler.next(now);
    assert!(!matches!(decision, Decision::Limit { .. }), "{decision:?}");
}

#[test]
fn settings_without_sense_are_made_sensible() {
    let now = Instant::now();
    for length in [Duration::ZERO, Duration::MAX] {
        let settings = Settings {
            round: length,
            shortest: length,
            together: length,
            credit: length,
            switch: length,
            patience: length,
            window: length,
        };
        let mut scheduler = Scheduler::new(settings, now);
        for session in 0..3 {
            scheduler.join(SessionId(session), TenantId(session), Share::default(), now);
            scheduler.wants(SessionId(session), now);
        }
        for _ in 0..10 {
            if let Decision::Run { session, slice } = scheduler.next(now) {
                assert!(!slice.is_zero());
                scheduler.done(session, Duration::MAX, Rest::More, now);
            }
        }
    }
}

/// What sessions get that run one command at a time: so many of each tenant.
fn slice_of_brief_sessions(tenants: &[u64]) -> Duration {
    let now = Instant::now();
    let mut scheduler = Scheduler::new(Settings::default(), now);
    let mut sessions = 0;
    for (tenant, count) in (1..).zip(tenants) {
        for _ in 0..*count {
            sessions += 1;
            scheduler.join(SessionId(sessions), TenantId(tenant), Share::default(), now);
            scheduler.wants(SessionId(sessions), now);
            scheduler.done(SessionId(sessions), Duration::ZERO, Rest::One, now);
        }
    }
    match scheduler.next(now) {
        Decision::Run { slice, .. } => slice,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_command_at_a_time_of_many_sessions_has_longer_slices_unless_other_tenants_wait() {
    let Settings { together, round, .. } = Settings::default();
    assert_eq!(slice_of_brief_sessions(&[2]), together);
    assert_eq!(slice_of_brief_sessions(&[3]), together);
    assert_eq!(slice_of_brief_sessions(&[4]), 2 * together);
    assert_eq!(slice_of_brief_sessions(&[8]), 3 * together);
    assert_eq!(slice_of_brief_sessions(&[1000]), round);
    assert_eq!(slice_of_brief_sessions(&[32, 1]), together);
}
