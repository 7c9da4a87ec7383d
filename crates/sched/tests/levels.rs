//! Higher levels go first, and lower ones never starve.
#![allow(clippy::unwrap_used)]

mod sim;

use proptest::prelude::*;
use sim::{Dice, GPU, MS, S, Sim, US, Work};
use telecl_sched::{SessionId, Settings, Share, TenantId};

fn level(level: u8) -> Share {
    Share { level, ..Share::default() }
}

#[test]
fn a_higher_level_has_nearly_all_and_a_lower_one_has_its_turns() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, level(1), Work::flood(200 * US));
    sim.add(2, 2, level(2), Work::flood(200 * US));
    sim.run_until(10 * S);
    let patience = Settings::default().patience.as_nanos() as u64;
    println!("low: {:.2} %, waited {} ms at most", sim.share(1), sim.longest_wait[&1] / MS);
    assert!((0.5..5.0).contains(&sim.share(1)), "{}", sim.share(1));
    assert!(sim.longest_wait[&1] < patience + 30 * MS, "{}", sim.longest_wait[&1]);
}

#[test]
fn whoever_waits_behind_a_higher_level_waits_for_that() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, level(1), Work::flood(200 * US));
    sim.add(2, 2, level(2), Work::flood(200 * US));
    sim.run_until(10 * S);
    let waits = |tenant| sim.scheduler.usage(TenantId(tenant)).unwrap().waits;
    let (low, high) = (waits(1), waits(2));
    // What nobody runs on the device meanwhile is changes of process.
    assert!(low.for_level.as_secs_f64() > 9.0 && low.for_share().as_secs_f64() < 0.5, "{low:?}");
    assert!(high.for_level.is_zero() && high.for_cap.is_zero(), "{high:?}");
    assert_eq!(sim.scheduler.waits(SessionId(1)), Some(low));
}

#[test]
fn long_kernels_of_a_lower_level_do_not_take_the_device_from_a_higher_one() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, level(0), Work::flood(500 * MS));
    sim.add(2, 2, level(1), Work::flood(200 * US));
    sim.run_until(300 * S);
    println!("low with kernels of 500 ms: {:.2} %", sim.share(1));
    assert!(sim.share(1) < 6.0, "{}", sim.share(1));
    assert!(sim.used[&1] > 0);
}

#[test]
fn a_higher_level_that_comes_does_not_wait_for_a_slice_to_end() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, level(1), Work::flood(100 * US));
    sim.add(2, 2, level(1), Work::flood(100 * US));
    sim.add(3, 3, level(2), Work::one_at_a_time(100 * US, (MS, 9 * MS)));
    sim.run_until(20 * S);
    // Two messages, what is in flight, a change of process, and itself; aged turns do not occur, for it often rests.
    assert!(sim.percentile(3, 100) < 800 * US, "{}", sim.percentile(3, 100));
}

#[test]
fn when_the_higher_level_is_gone_the_lower_ones_share_by_weight_at_once() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, level(1), Work::flood(200 * US));
    sim.add(2, 2, level(2), Work::flood(200 * US));
    sim.run_until(30 * S);
    // One that comes now has missed nothing of what the lower level could not have.
    sim.add(3, 3, level(1), Work::flood(200 * US));
    sim.kill(2);
    sim.reset_figures();
    sim.run_until(31 * S);
    assert!((sim.share(1) - 50.0).abs() < 3.0, "{}", sim.share(1));
}

#[test]
fn a_tenant_that_changes_its_level_takes_its_place_there() {
    let mut sim = Sim::new(GPU);
    for tenant in 1..=3 {
        sim.add(tenant, tenant, level(1), Work::flood(200 * US));
    }
    sim.run_until(5 * S);
    sim.set_share(3, level(2));
    sim.reset_figures();
    sim.run_until(10 * S);
    assert!(sim.share(3) > 90.0, "{}", sim.share(3));
    sim.set_share(3, level(1));
    sim.reset_figures();
    sim.run_until(15 * S);
    for tenant in 1..=3 {
        assert!((sim.share(tenant) - 33.3).abs() < 2.0, "{}", sim.share(tenant));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// The highest level that saturates the device keeps most of it, and every tenant below gets turns.
    #[test]
    fn no_level_starves_and_none_overtakes_a_higher_one(seed in any::<u64>(), below in 1u64..20) {
        let mut dice = Dice(seed);
        let mut sim = Sim::new(GPU);
        sim.add(0, 0, level(3), Work::flood((20 * US) << dice.from(0..=6)));
        for tenant in 1..=below {
            let kernel = (20 * US) << dice.from(0..=10);
            sim.add(tenant, tenant, level(dice.from(0..=2) as u8), Work::flood(kernel));
        }
        sim.run_until(60 * S);
        prop_assert!(sim.share(0) > 80.0, "{}", sim.share(0));
        for tenant in 1..=below {
            prop_assert!(sim.used[&tenant] > 0, "tenant {tenant} of {below} had nothing");
        }
    }
}
