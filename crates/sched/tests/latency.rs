//! Who runs alone pays nothing; who runs a little beside one that floods is served soon.
#![allow(clippy::unwrap_used)]

mod sim;

use proptest::prelude::*;
use sim::{Dice, GPU, MS, S, Sim, US, Work, weight};

#[test]
fn a_session_alone_is_asked_for_nothing() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, weight(1), Work::flood(100 * US));
    sim.run_until(10 * S);
    assert_eq!((sim.turns, sim.stops), (1, 0));
    assert!(sim.used[&1] >= 10 * S - MS, "{}", sim.used[&1]);
    // Also one that rests in between keeps what it has.
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, weight(1), Work::one_at_a_time(100 * US, (MS, 50 * MS)));
    sim.run_until(10 * S);
    assert_eq!((sim.turns, sim.stops), (1, 0));
}

#[test]
fn a_session_that_holds_the_device_and_does_nothing_gives_it_up_at_once() {
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, weight(1), Work::one_at_a_time(100 * US, (S, S)));
    sim.run_until(S / 2);
    sim.add(2, 2, weight(1), Work::one_at_a_time(100 * US, (10 * US, 10 * US)));
    sim.run_until(S / 2 + MS);
    assert!(sim.latencies[&2][0] < 500 * US, "{:?}", sim.latencies[&2]);
}

/// The latency of one small kernel at a time beside tenants that flood, in parts of what its share of the device
/// would make of its latency alone.
fn ratio(small: u64, think: (u64, u64), flood: u64, floods: u64) -> f64 {
    let mut alone = Sim::new(GPU);
    alone.add(1, 1, weight(1), Work::one_at_a_time(small, think));
    alone.run_until(5 * S);
    let mut sim = Sim::new(GPU);
    sim.add(1, 1, weight(1), Work::one_at_a_time(small, think));
    for tenant in 2..2 + floods {
        sim.add(tenant, tenant, weight(1), Work::flood(flood));
    }
    sim.run_until(5 * S);
    sim.percentile(1, 99) as f64 / (alone.percentile(1, 99) * (floods + 1)) as f64
}

#[test]
fn one_small_kernel_at_a_time_beside_a_flood_is_within_three_times_its_share() {
    for small in [200 * US, 500 * US, MS, 2 * MS] {
        for flood in [20 * US, 100 * US, small] {
            for floods in [1, 2, 4] {
                // One that wants more than its share, and one that wants much less.
                let ratios = [(10 * US, 10 * US), (2 * MS, 8 * MS)].map(|think| ratio(small, think, flood, floods));
                println!("{:>4} µs beside {floods} × {:>4} µs: {ratios:.2?}", small / US, flood / US);
                assert!(ratios.iter().all(|ratio| *ratio <= 3.0), "{small} beside {floods} x {flood}: {ratios:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// A tenant that stays below its share waits for what is in flight and for the change of process, not for slices.
    #[test]
    fn a_small_tenant_waits_for_a_kernel_and_not_for_slices(seed in any::<u64>(), floods in 1u64..12) {
        let mut dice = Dice(seed);
        let mut sim = Sim::new(GPU);
        let own = (20 * US) << dice.from(0..=5);
        // So seldom that it stays far below its share, with what its interruptions cost.
        let rests = 4 * (floods + 1) * (own + 300 * US);
        sim.add(1, 1, weight(1), Work::one_at_a_time(own, (rests, 2 * rests)));
        let mut longest = 0;
        for tenant in 2..2 + floods {
            let kernel = (10 * US) << dice.from(0..=8);
            longest = longest.max(kernel);
            sim.add(tenant, tenant, weight(dice.from(1..=3) as u32), Work::flood(kernel));
        }
        sim.run_until(20 * S);
        // Messages there and back, twice; two kernels, or 200 µs, in flight; a turn that began just before; a change.
        let bound = own + 4 * 20 * US + 2 * (2 * longest).max(200 * US) + 300 * US + 3 * 140 * US;
        let p99 = sim.percentile(1, 99);
        prop_assert!(p99 <= bound, "{} µs, expected {} µs at most", p99 / US, bound / US);
    }
}
