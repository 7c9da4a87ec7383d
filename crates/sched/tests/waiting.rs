//! Nobody waits for ever, and the device does not idle while somebody could use it.
#![allow(clippy::unwrap_used)]

mod sim;

use std::time::{Duration, Instant};

use proptest::prelude::*;
use sim::{Dice, GPU, IDEAL, MS, S, Sim, US, Work, weight};
use telecl_sched::{Cap, Decision, Rest, Scheduler, SessionId, Settings, Share, TenantId};

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random tenants with random habits: each waits no longer than the others can use in one round.
    #[test]
    fn every_wait_is_bounded(seed in any::<u64>(), tenants in 2u64..60) {
        let mut dice = Dice(seed);
        let mut sim = Sim::new(GPU);
        let (mut longest, mut weights) = (0, Vec::new());
        for tenant in 0..tenants {
            let kernel = (10 * US) << dice.from(0..=9);
            let think = (dice.from(0..=2) == 0).then_some((100 * US, 20 * MS));
            longest = longest.max(kernel);
            weights.push(dice.from(1..=5));
            sim.add(tenant, tenant, weight(weights[tenant as usize] as u32), Work { kernel: (kernel, kernel), think });
        }
        sim.run_until(10 * S);
        let all: u64 = weights.iter().sum();
        let settings = Settings::default();
        let turn = (settings.round.as_nanos() as u64 / 2).max(2 * MS) + 3 * longest + MS;
        for tenant in 0..tenants {
            // Its own last turn puts it ahead of the others; all of them may catch up, and use their credits.
            let own = turn * all / weights[tenant as usize];
            let bound = own + tenants * (settings.credit.as_nanos() as u64 + turn);
            let waited = sim.longest_wait.get(&tenant).copied().unwrap_or_default();
            prop_assert!(waited <= bound, "{} ms, expected {} ms at most", waited / MS, bound / MS);
            prop_assert!(sim.used[&tenant] > 0);
        }
    }

    /// With messages and changes that take no time, no moment is lost while anybody without a cap has work.
    #[test]
    fn the_device_is_idle_only_if_nobody_may_use_it(seed in any::<u64>(), tenants in 1u64..30) {
        let mut dice = Dice(seed);
        let mut sim = Sim::with(IDEAL, Settings { switch: Duration::ZERO, ..Settings::default() });
        for tenant in 0..tenants {
            let kernel = (10 * US) << dice.from(0..=9);
            let think = (dice.from(0..=3) != 0).then_some((100 * US, 200 * MS));
            let cap = if dice.from(0..=3) == 0 { Cap::ten_thousandths(dice.from(100..=9_000) as u16) } else { None };
            let share = Share { cap, level: dice.from(0..=2) as u8, ..weight(dice.from(1..=5) as u32) };
            sim.add(tenant, tenant, share, Work { kernel: (kernel, kernel), think });
        }
        for step in 1..=40 {
            sim.run_until(step * S / 4);
            if dice.from(0..=3) == 0 {
                sim.kill(dice.from(0..=tenants - 1));
            }
        }
        prop_assert_eq!(sim.wasted, 0);
    }
}

#[test]
fn an_endless_series_of_newcomers_does_not_shut_anybody_out() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, weight(1), Work::flood(MS));
    for step in 0..4_000u64 {
        // Each is a tenant that was never seen, and leaves after a little while.
        let id = 10 + step;
        sim.add(id, id, weight(1), Work::flood(MS));
        if step >= 4 {
            sim.kill(id - 4);
        }
        sim.run_until((step + 1) * 5 * MS);
    }
    assert!(sim.share(1) > 8.0, "{}", sim.share(1));
    assert!(sim.longest_wait[&1] < 200 * MS, "{}", sim.longest_wait[&1]);
}

#[test]
fn two_thousand_sessions_of_a_thousand_tenants_all_get_their_turn() {
    let mut sim = Sim::new(GPU);
    for session in 0..2_000 {
        sim.add(session, session / 2, weight(1), Work::flood(300 * US));
    }
    sim.run_until(60 * S);
    let (least, most) = (sim.used.values().min().unwrap(), sim.used.values().max().unwrap());
    assert!(*least > 0 && *most < 2 * *least, "{least} and {most}");
    assert!((0..2_000).all(|session| !sim.latencies[&session].is_empty()));
}

#[test]
fn a_decision_among_a_thousand_sessions_is_quick() {
    let start = Instant::now();
    let mut scheduler = Scheduler::new(Settings::default(), start);
    for session in 0..1_000 {
        scheduler.join(SessionId(session), TenantId(session), Share::default(), start);
        scheduler.wants(SessionId(session), start);
    }
    let mut now = start;
    let mut count = 0;
    while count < 2_000 {
        now += Duration::from_millis(2);
        match scheduler.next(now) {
            Decision::Run { session, slice } => {
                scheduler.done(session, slice, Rest::More, now);
                count += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    let each = start.elapsed() / count;
    println!("one decision and its report among 1,000 sessions that wait: {each:?}");
    // Far more than it takes: this is to catch a square, on any machine.
    assert!(each < Duration::from_millis(2), "{each:?}");
}
