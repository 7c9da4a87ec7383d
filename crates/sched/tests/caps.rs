//! A cap is a cap: on a busy device, on an idle one, and after a kernel that was too long.
#![allow(clippy::unwrap_used)]

mod sim;

use proptest::prelude::*;
use sim::{Dice, GPU, MS, Machine, Reports, S, Sim, US, Work, weight};
use telecl_sched::{Cap, Share};

fn capped(percent: u64) -> Share {
    Share { cap: Cap::ten_thousandths(percent as u16 * 100), ..Share::default() }
}

/// A tenant's part of all time, in percent.
fn part(sim: &Sim, tenant: u64, time: u64) -> f64 {
    100.0 * sim.used[&tenant] as f64 / time as f64
}

#[test]
fn a_fifth_of_an_otherwise_idle_device_is_a_fifth() {
    for kernel in [20 * US, MS, 20 * MS] {
        for reports in [Reports::AtTheEnd, Reports::InPieces, Reports::Late(10 * MS)] {
            let mut sim = Sim::new(Machine { reports, ..GPU });
            sim.add(1, 1, capped(20), Work::flood(kernel));
            sim.run_until(10 * S);
            let part = part(&sim, 1, 10 * S);
            println!("kernels of {:>5} µs, {reports:?}: {part:.2} %", kernel / US);
            assert!((part - 20.0).abs() < 1.0, "kernels of {kernel} ns, {reports:?}: {part:.2} %");
        }
    }
}

#[test]
fn what_a_capped_tenant_leaves_the_others_use() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, capped(20), Work::flood(300 * US));
    sim.add(2, 2, weight(1), Work::flood(300 * US));
    sim.run_until(10 * S);
    assert!((part(&sim, 1, 10 * S) - 20.0).abs() < 1.0, "{}", part(&sim, 1, 10 * S));
    assert!(part(&sim, 2, 10 * S) > 75.0, "{}", part(&sim, 2, 10 * S));
}

#[test]
fn sessions_of_a_tenant_share_its_cap_and_reconnecting_does_not_renew_it() {
    let mut sim = Sim::new(GPU);
    for round in 0..100u64 {
        for session in 0..4 {
            sim.add(round * 4 + session, 1, capped(20), Work::flood(2 * MS));
        }
        sim.run_until((round + 1) * 100 * MS);
        for session in 0..4 {
            sim.kill(round * 4 + session);
        }
    }
    assert!((part(&sim, 1, 10 * S) - 20.0).abs() < 2.0, "{}", part(&sim, 1, 10 * S));
}

#[test]
fn a_cap_that_comes_later_stops_who_runs_alone() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, weight(1), Work::flood(300 * US));
    sim.run_until(S);
    assert!(part(&sim, 1, S) > 99.0);
    sim.set_share(1, capped(10));
    sim.reset_figures();
    sim.run_until(11 * S);
    assert!((part(&sim, 1, 10 * S) - 10.0).abs() < 1.0, "{}", part(&sim, 1, 10 * S));
}

#[test]
fn waiting_for_a_cap_is_told_from_waiting_for_others() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, capped(20), Work::flood(300 * US));
    sim.run_until(10 * S);
    let usage = sim.scheduler.usage(telecl_sched::TenantId(1)).unwrap();
    assert!(usage.waits.for_cap.as_secs_f64() > 7.0 && usage.waits.for_cap <= usage.waits.all, "{usage:?}");
    // It waits for nothing else, but for the end of a slice now and then.
    assert!(usage.waits.for_share().as_secs_f64() < 0.5 && usage.waits.for_level.is_zero(), "{usage:?}");
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, weight(1), Work::flood(300 * US));
    sim.add(2, 2, weight(1), Work::flood(300 * US));
    sim.run_until(10 * S);
    let usage = sim.scheduler.usage(telecl_sched::TenantId(1)).unwrap();
    assert!(usage.waits.for_cap.is_zero() && usage.waits.for_share().as_secs_f64() > 4.5, "{usage:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// No mixture of tenants brings one over its cap by more than two points; alone it also reaches it.
    #[test]
    fn caps_hold_in_any_company(seed in any::<u64>(), tenants in 1u64..12) {
        let mut dice = Dice(seed);
        let reports = [Reports::AtTheEnd, Reports::InPieces, Reports::Late(3 * MS)][dice.from(0..=2) as usize];
        let mut sim = Sim::new(Machine { reports, ..GPU });
        let caps: Vec<u64> = (0..tenants).map(|_| dice.from(1..=100)).collect();
        let mut session = 0;
        for (tenant, cap) in caps.iter().enumerate() {
            let kernel = (10 * US) << dice.from(0..=10);
            for _ in 0..dice.from(1..=3) {
                session += 1;
                sim.add(session, tenant as u64, capped(*cap), Work::flood(kernel));
            }
        }
        sim.run_until(10 * S);
        for (tenant, cap) in caps.iter().enumerate() {
            let part = part(&sim, tenant as u64, 10 * S);
            prop_assert!(part < *cap as f64 + 2.0, "{part:.2} % with a cap of {cap} %");
            // Beyond this, changing from one to the other is what limits it.
            prop_assert!(tenants > 1 || *cap > 90 || part > *cap as f64 - 2.0, "{part:.2} % with a cap of {cap} %");
        }
    }
}
