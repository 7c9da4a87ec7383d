//! Device time goes by weight, whatever the kernels are like and however their times are reported.
#![allow(clippy::unwrap_used)]

mod sim;

use proptest::prelude::*;
use sim::{Dice, GPU, MS, Machine, Reports, S, Sim, US, Work, weight};

#[test]
fn two_tenants_with_weights_1_and_3_get_25_and_75_percent() {
    for reports in [Reports::AtTheEnd, Reports::InPieces, Reports::Late(5 * MS)] {
        for kernel in [20 * US, 500 * US, 5 * MS, 30 * MS] {
            let mut sim = Sim::new(Machine { reports, ..GPU });
            sim.add(1, 1, weight(1), Work::flood(kernel));
            sim.add(2, 2, weight(3), Work::flood(500 * US));
            sim.run_until(20 * S);
            let share = sim.share(1);
            println!("kernels of {:>5} µs and 500 µs, {reports:?}: {share:.2} %", kernel / US);
            assert!((share - 25.0).abs() < 1.0, "kernels of {kernel} ns, {reports:?}: {share:.2} %");
        }
    }
}

#[test]
fn sessions_of_one_tenant_share_its_weight() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, weight(1), Work::flood(300 * US));
    for session in 2..=9 {
        sim.add(session, 2, weight(1), Work::flood(300 * US));
    }
    sim.run_until(20 * S);
    assert!((sim.share(1) - 50.0).abs() < 1.0, "{}", sim.share(1));
    let kernels: Vec<usize> = (2..=9).map(|session| sim.latencies[&session].len()).collect();
    let (least, most) = (kernels.iter().min().unwrap(), kernels.iter().max().unwrap());
    assert!(*most as f64 <= 1.03 * *least as f64, "{kernels:?}");
}

#[test]
fn a_tenant_that_was_away_is_neither_punished_nor_paid_for_it() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, weight(1), Work::flood(200 * US));
    // Alone for a long time, in which nobody missed what it used.
    sim.run_until(30 * S);
    sim.add(2, 2, weight(1), Work::flood(200 * US));
    sim.reset_figures();
    sim.run_until(30 * S + 200 * MS);
    assert!((sim.share(1) - 50.0).abs() < 7.0, "{}", sim.share(1));
    sim.run_until(32 * S);
    assert!((sim.share(1) - 50.0).abs() < 1.5, "{}", sim.share(1));
}

#[test]
fn a_new_weight_counts_from_now_on() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, weight(1), Work::flood(200 * US));
    sim.add(2, 2, weight(1), Work::flood(200 * US));
    sim.run_until(5 * S);
    sim.set_share(2, weight(4));
    sim.reset_figures();
    sim.run_until(15 * S);
    assert!((sim.share(2) - 80.0).abs() < 1.0, "{}", sim.share(2));
}

#[test]
fn a_kernel_longer_than_its_slice_is_charged_in_full() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, weight(1), Work::flood(400 * MS));
    sim.add(2, 2, weight(1), Work::flood(100 * US));
    sim.run_until(60 * S);
    assert!((sim.share(1) - 50.0).abs() < 2.0, "{}", sim.share(1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any number of saturating tenants, weights, kernels and sessions.
    #[test]
    fn saturating_tenants_get_shares_by_weight(seed in any::<u64>(), tenants in 2u64..24) {
        let mut dice = Dice(seed);
        let reports = [Reports::AtTheEnd, Reports::InPieces, Reports::Late(3 * MS)][dice.from(0..=2) as usize];
        let mut sim = Sim::new(Machine { reports, ..GPU });
        let mut weights = Vec::new();
        let mut session = 0;
        for tenant in 0..tenants {
            let own = dice.from(1..=10);
            weights.push(own);
            let kernel = (10 * US) << dice.from(0..=9); // up to 5 ms
            for _ in 0..dice.from(1..=3) {
                session += 1;
                let work = Work { kernel: (kernel, kernel * dice.from(1..=3)), think: None };
                sim.add(session, tenant, weight(own as u32), work);
            }
        }
        sim.run_until(20 * S);
        let all: u64 = weights.iter().sum();
        for (tenant, own) in weights.iter().enumerate() {
            let (share, fair) = (sim.share(tenant as u64), 100.0 * *own as f64 / all as f64);
            prop_assert!((share - fair).abs() < 1.5, "tenant {tenant} of {tenants}: {share:.2} % instead of {fair:.2} %");
        }
    }

    /// Two that stay all the time have equal parts, whoever else comes, goes and is killed meanwhile.
    #[test]
    fn those_who_stay_are_treated_alike_while_others_come_and_go(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let mut sim = Sim::new(GPU);
        sim.add(1, 1, weight(2), Work::flood(150 * US));
        sim.add(2, 2, weight(2), Work::flood(2 * MS));
        let mut there = Vec::new();
        for step in 0..400u64 {
            let session = 100 + step;
            let kernel = (10 * US) << dice.from(0..=8);
            let think = (dice.from(0..=1) == 0).then_some((10 * US, 5 * MS));
            let share = weight(dice.from(1..=4) as u32);
            // Some are tenants that have been there before.
            sim.add(session, 10 + dice.from(0..=400), share, Work { kernel: (kernel, kernel), think });
            there.push(session);
            if there.len() > 12 {
                let one = there.swap_remove(dice.from(0..=there.len() as u64 - 1) as usize);
                sim.kill(one);
            }
            sim.run_until((step + 1) * 50 * MS);
        }
        let (one, two) = (sim.used[&1] as f64, sim.used[&2] as f64);
        prop_assert!((one / (one + two) - 0.5).abs() < 0.03, "{one} and {two}");
    }
}
