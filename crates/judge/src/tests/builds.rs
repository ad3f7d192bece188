use bigiron_stats::{Flips, Verdict};

use super::super::fixture::{self, micro, plan, rebuilt};
use super::super::line::Line;
use super::TWO;
use super::judge;
use bigiron_model::clock::Clock;
use bigiron_model::plan::Plan;

/// A study in which each of B's builds has a factor of its own, and being second another.
fn line(plan: &Plan, builds: &[f64], second: f64) -> Line {
    let records: Vec<_> = plan
        .slots
        .iter()
        .map(|slot| {
            let build = plan.design.build_of(slot.pair).map_or(0, |build| build as usize);
            let factor = if slot.arm == 0 { 1.0 } else { builds[build % builds.len()] };
            fixture::completed(plan, slot, &|_, _| factor * if slot.position == 1 { second } else { 1.0 })
        })
        .collect();
    let judged = judge(plan, &records);
    assert_eq!(judged.set_aside, []);
    judged.comparisons[0].lines[0].clone()
}

/// Factors whose mean is nearly 1.
const BUILDS: [f64; 6] = [1.003, 0.997, 1.001, 0.999, 1.002, 0.998];

#[test]
fn the_interval_is_over_builds() {
    let built = rebuilt(plan(&TWO, 12, vec![micro()]), 6);
    let found = line(&built, &BUILDS, 1.0);
    let estimate = found.estimate.unwrap();
    assert_eq!((found.deltas.len(), found.verdict, found.tiny), (12, Verdict::Same, false));
    // Of 64 alternatives, 1 is cut off on either side: what is left reaches from the smallest to the largest build.
    let (low, high) = estimate.ci95.unwrap();
    assert!((low - 0.997_f64.ln()).abs() < 1e-9 && (high - 1.003_f64.ln()).abs() < 1e-9, "{estimate:?}");
    assert!((estimate.mde.unwrap() / estimate.sd - 1.793).abs() < 1e-9);
    // All builds on one side are a difference of the sources; the same boots of one image of each were taken for one anyway.
    assert!(line(&built, &BUILDS.map(|b| b + 0.004), 1.0).tiny);
    let images = plan(&TWO, 12, vec![micro()]);
    assert!(line(&images, &[1.003], 1.0).estimate.unwrap().p <= 0.05);
}

#[test]
fn a_pair_for_each_build_is_the_arithmetic_of_pairs() {
    let plain = plan(&TWO, 10, vec![micro()]);
    let factors: Vec<f64> = (0..10).map(|n| 1.0 + f64::from(n) / 1000.0).collect();
    let records = |plan: &Plan| {
        let of = |slot: &bigiron_model::plan::Slot| if slot.arm == 0 { 1.0 } else { factors[slot.pair as usize] };
        plan.slots.iter().map(|slot| fixture::completed(plan, slot, &|_, _| of(slot))).collect::<Vec<_>>()
    };
    let built = rebuilt(plain.clone(), 10);
    let (one, other) = (judge(&plain, &records(&plain)), judge(&built, &records(&built)));
    assert_eq!(one.comparisons[0].lines, other.comparisons[0].lines);
}

#[test]
fn both_orders_within_a_build_cancel_running_second() {
    let built = Plan { clock: Clock::Wall, ..rebuilt(plan(&TWO, 14, vec![micro()]), 7) };
    assert_eq!(built.flips(), Flips::Full);
    let factors: Vec<f64> = (0..7).map(|n| 1.05 + f64::from(n) / 1000.0).collect();
    let (calm, slow) = (line(&built, &factors, 1.0).estimate.unwrap(), line(&built, &factors, 1.1).estimate.unwrap());
    assert!((calm.mean - slow.mean).abs() < 1e-9 && (calm.sd - slow.sd).abs() < 1e-9, "{calm:?} {slow:?}");
    // With one pair for each build, the order has to be balanced over builds.
    let single = Plan { clock: Clock::Wall, ..rebuilt(plan(&TWO, 8, vec![micro()]), 8) };
    assert_eq!(single.flips(), Flips::Balanced);
    assert!(line(&single, &factors, 1.1).estimate.unwrap().ci95.is_some());
}

#[test]
fn what_would_settle_a_line_is_whole_builds() {
    let built = rebuilt(plan(&TWO, 12, vec![micro()]), 6);
    let found = line(&built, &BUILDS.map(|b| 1.0 + (b - 1.0) * 20.0), 1.0);
    assert_eq!(found.verdict, Verdict::Inconclusive);
    assert!(found.more_pairs.is_some_and(|more| more >= 4 && more.is_multiple_of(4)), "{:?}", found.more_pairs);
}
