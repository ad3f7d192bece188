//! Several arms in one group of boots, under an effect of the place: each against the first.
//!
//! Invariant: "drawn" orders are those of the first rule's plans, random permutations and their reverses; "squares" are those of new plans.

use bigiron_stats::order::{self, ChaCha12Rng};
use bigiron_stats::{Flip, Flips};

use super::{
    Setting,
    check::{Checks, Share},
    noise::{Pair, Session, normal},
    replicate::replicate,
};

/// Slowdown of one place, in standard deviations of a pair.
const EFFECT: f64 = 2.0;

fn drawn(pairs: usize, arms: usize, rng: &mut ChaCha12Rng) -> Vec<Vec<usize>> {
    let mut orders = Vec::new();
    for _ in 0..pairs / 2 {
        let mut order: Vec<usize> = (0..arms).collect();
        order::shuffle(&mut order, rng);
        orders.push(order.iter().rev().copied().collect());
        orders.push(order);
    }
    order::shuffle(&mut orders, rng);
    orders
}

/// How slow each place is: only the first, only the second, or each a little more than the one before.
fn effects(of: &str, arms: usize) -> Vec<f64> {
    let place = |place: usize| match of {
        "first" => f64::from(u8::from(place == 0)),
        "second" => f64::from(u8::from(place == 1)),
        _ => place as f64 / (arms - 1) as f64,
    };
    (0..arms).map(|at| EFFECT * place(at)).collect()
}

pub(super) fn places(setting: &Setting, checks: &mut Checks) {
    println!("A place is 2 s slower; balanced flips, the last arm against the first");
    println!("{:>5} {:>5} {:<8} {:>15} {:>16}", "arms", "pairs", "slow", "coverage, drawn", "coverage, squares");
    for (arms, pairs) in [(2, 12), (3, 8), (3, 10), (3, 12), (4, 12), (4, 16), (5, 12), (5, 20)] {
        for of in ["first", "second", "each"] {
            let slow = effects(of, arms);
            let covered = |squares: bool| {
                let cell = format!("arms {arms} {pairs} {of} {squares}");
                replicate(setting, setting.replicates / 2, &cell, |rng, covered: &mut Share| {
                    let orders =
                        if squares { order::balanced_orders(pairs as u32, arms, rng) } else { drawn(pairs, arms, rng) };
                    let boot = |order: &[usize], arm: usize, rng: &mut ChaCha12Rng| {
                        let place = order.iter().position(|x| *x == arm).expect("every arm has a place");
                        (place, normal(rng) * std::f64::consts::FRAC_1_SQRT_2 + slow[place])
                    };
                    let pair = |order: &Vec<usize>| {
                        let ((first, a), (last, b)) = (boot(order, 0, rng), boot(order, arms - 1, rng));
                        Pair { a_first: first < last, a, b }
                    };
                    let session = Session::of(&orders.iter().map(pair).collect::<Vec<_>>());
                    let flip = Flip::new(Flips::Balanced, &session.ab, &session.ba, 0);
                    let (low, high) = flip.interval(0.05).expect("8 pairs or more have an interval");
                    covered.count(low <= 0.0 && 0.0 <= high);
                })
            };
            let (before, now) = (covered(false), covered(true));
            println!("{arms:>5} {pairs:>5} {of:<8} {:>15} {:>16}", before.percent(), now.percent());
            if order::has_balanced_places(pairs as u32, arms) {
                checks.at_least(&format!("coverage, {arms} arms, {pairs} pairs, slow {of}"), now, 0.94);
            }
        }
    }
}
