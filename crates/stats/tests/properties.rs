//! Properties that must hold for all data, not only for hand-picked examples.

use bigiron_stats::{Flip, Flips, Verdict, multiplicity, order, suite, verdict};
use proptest::prelude::*;

/// D of one order.
fn differences(sizes: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-0.5..0.5_f64, sizes)
}

/// Equally many values of both orders.
fn balanced() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
    (4..=7_usize).prop_flat_map(|h| (differences(h..=h), differences(h..=h)))
}

fn balanced_flip(ab: &[f64], ba: &[f64], seed: u64) -> Flip {
    Flip::new(Flips::Balanced, ab, ba, seed)
}

fn full(d: &[f64]) -> Flip {
    Flip::new(Flips::Full, d, &[], 0)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12
}

fn map(d: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    d.iter().map(|&x| f(x)).collect()
}

proptest! {
    #[test]
    fn the_centre_is_the_mean((ab, ba) in balanced()) {
        let flip = balanced_flip(&ab, &ba, 0);
        let mean = ab.iter().chain(&ba).sum::<f64>() / (ab.len() + ba.len()) as f64;
        // With alpha just below 1 both ends are the middle member of an odd number of members.
        let (low, high) = flip.interval(1.0 - 1e-9).unwrap();
        let middle = flip.interval(1.0).unwrap();
        prop_assert!(close(flip.mean(), mean) && low <= mean + 1e-12 && mean <= high + 1e-12);
        prop_assert!(close(middle.0, mean) && close(middle.1, mean));
        prop_assert!(close(flip.p(mean), 1.0));
    }

    #[test]
    fn moves_and_stretches_with_the_data((ab, ba) in balanced(), shift in -1.0..1.0_f64, scale in 0.1..10.0_f64) {
        let flip = balanced_flip(&ab, &ba, 0);
        let moved = balanced_flip(&map(&ab, |x| x * scale + shift), &map(&ba, |x| x * scale + shift), 0);
        for alpha in [0.05, 0.1, 0.3] {
            let (low, high) = flip.interval(alpha).unwrap();
            let (moved_low, moved_high) = moved.interval(alpha).unwrap();
            prop_assert!(close(moved_low, low * scale + shift) && close(moved_high, high * scale + shift));
        }
        prop_assert!(close(moved.sd(), flip.sd() * scale));
    }

    #[test]
    fn exchanging_the_arms_mirrors_everything((ab, ba) in balanced(), theta in -0.5..0.5_f64) {
        let flip = balanced_flip(&ab, &ba, 0);
        // A pair run A-then-B becomes B-then-A when the arms are exchanged.
        let mirrored = balanced_flip(&map(&ba, |x| -x), &map(&ab, |x| -x), 0);
        let (low, high) = flip.interval(0.05).unwrap();
        let (mirrored_low, mirrored_high) = mirrored.interval(0.05).unwrap();
        prop_assert!(close(mirrored_low, -high) && close(mirrored_high, -low));
        prop_assert!(close(mirrored.p_greater(-theta), flip.p_less(theta)));
    }

    #[test]
    fn a_constant_effect_of_the_second_place_changes_nothing((ab, ba) in balanced(), slower in -1.0..1.0_f64) {
        let flip = balanced_flip(&ab, &ba, 0);
        let uneven = balanced_flip(&map(&ab, |x| x + slower), &map(&ba, |x| x - slower), 0);
        let (low, high) = flip.interval(0.05).unwrap();
        let (uneven_low, uneven_high) = uneven.interval(0.05).unwrap();
        prop_assert!(close(low, uneven_low) && close(high, uneven_high) && close(flip.sd(), uneven.sd()));
    }

    #[test]
    fn interval_and_p_say_the_same(ab in differences(3..=7), ba in differences(3..=7), theta in -0.3..0.3_f64, alpha in 0.01..0.5_f64) {
        let flip = balanced_flip(&ab, &ba, 0);
        prop_assert_eq!(flip.interval(alpha).is_none(), alpha < flip.smallest_p());
        if let Some((low, high)) = flip.interval(alpha) {
            let at_an_end = (theta - low).abs() < 1e-9 || (theta - high).abs() < 1e-9;
            if !at_an_end {
                prop_assert_eq!(theta < low || theta > high, flip.p(theta) <= alpha);
            }
            // The ends themselves are inside.
            prop_assert!(flip.p(low) > alpha && flip.p(high) > alpha);
            let (inner_low, inner_high) = flip.interval((alpha * 1.5).min(1.0)).unwrap();
            prop_assert!(low <= inner_low && inner_high <= high);
        }
        let both = flip.p_greater(theta) + flip.p_less(theta);
        prop_assert!(both >= 1.0 && flip.p(theta) >= flip.smallest_p());
    }

    #[test]
    fn a_full_flip_says_the_same_by_interval_and_by_p(d in differences(5..=13), theta in -0.3..0.3_f64, alpha in 0.01..0.5_f64) {
        let flip = full(&d);
        prop_assert_eq!(flip.interval(alpha).is_none(), alpha < flip.smallest_p());
        let mirrored = full(&map(&d, |x| -x));
        prop_assert!(close(mirrored.p_greater(-theta), flip.p_less(theta)) && close(mirrored.mean(), -flip.mean()));
        if let Some((low, high)) = flip.interval(alpha) {
            let at_an_end = (theta - low).abs() < 1e-9 || (theta - high).abs() < 1e-9;
            if !at_an_end {
                prop_assert_eq!(theta < low || theta > high, flip.p(theta) <= alpha);
            }
            prop_assert!(flip.p(low) > alpha && flip.p(high) > alpha && low <= flip.mean() && flip.mean() <= high);
        }
    }

    #[test]
    fn nested_claims_are_never_stronger_than_alone_and_never_weaker_than_flat(
        p in prop::collection::vec((0.0..0.2_f64, 0.0..1.0_f64), 0..8), alpha in 0.001..0.2_f64,
    ) {
        // p of "within the margin" is never less than p of "no change".
        let lines: Vec<(f64, f64)> = p.iter().map(|&(p, more)| (p, p + (1.0 - p) * more)).collect();
        let adjusted = suite::nested(&lines);
        let within: Vec<f64> = lines.iter().map(|line| line.1).collect();
        let beyond = adjusted.iter().filter(|line| line.1 <= alpha).count();
        for (i, (&line, now)) in lines.iter().zip(&adjusted).enumerate() {
            prop_assert!(now.0 >= line.0 && now.1 >= line.1 && now.0 <= now.1);
            prop_assert_eq!(now.1, multiplicity::holm(&within)[i]);
            // The procedure itself, at one level.
            let differs = now.1 <= alpha || line.0 * (lines.len() - beyond) as f64 <= alpha;
            prop_assert_eq!(now.0 <= alpha, differs);
        }
    }

    #[test]
    fn the_order_of_pairs_does_not_matter((ab, ba) in balanced(), seed in any::<u64>()) {
        let (mut ab2, mut ba2) = (ab.clone(), ba.clone());
        order::shuffle(&mut ab2, &mut order::rng(seed));
        order::shuffle(&mut ba2, &mut order::rng(seed));
        let (one, two) = (balanced_flip(&ab, &ba, 0).interval(0.05).unwrap(), balanced_flip(&ab2, &ba2, 0).interval(0.05).unwrap());
        prop_assert!(close(one.0, two.0) && close(one.1, two.1));
    }

    #[test]
    fn mirrored_intervals_give_mirrored_verdicts(a in -0.1..0.1_f64, w95 in 0.0..0.1_f64, inner in 0.0..1.0_f64, margin in 0.0..0.1_f64) {
        let (ci95, ci90) = ((a - w95, a + w95), (a - w95 * inner, a + w95 * inner));
        let mirror = |(low, high): (f64, f64)| Some((-high, -low));
        let said = verdict(Some(ci95), Some(ci90), margin);
        prop_assert_eq!(verdict(mirror(ci95), mirror(ci90), margin), said.mirror());
        prop_assert_eq!(said.name().parse::<Verdict>(), Ok(said));
        // No verdict contradicts its interval.
        match said {
            Verdict::Better => prop_assert!(ci95.0 > margin),
            Verdict::SlightlyBetter => prop_assert!(ci95.0 > 0.0 && ci95.0 <= margin),
            Verdict::Same => prop_assert!(ci90.0 > -margin && ci90.1 < margin),
            Verdict::Inconclusive => prop_assert!(ci95.0 <= 0.0 && ci95.1 >= 0.0),
            Verdict::SlightlyWorse | Verdict::Worse => prop_assert!(ci95.1 < 0.0),
            Verdict::Invalid => prop_assert!(false, "Two intervals are never invalid"),
        }
    }

    #[test]
    fn adjusted_p_keeps_the_order(p in prop::collection::vec(0.0..1.0_f64, 0..20)) {
        let (holm, bh) = (multiplicity::holm(&p), multiplicity::benjamini_hochberg(&p));
        for i in 0..p.len() {
            // Bonferroni ≥ Holm ≥ Benjamini–Hochberg ≥ p.
            prop_assert!((p[i] * p.len() as f64).min(1.0) >= holm[i] - 1e-15);
            prop_assert!(holm[i] >= bh[i] - 1e-15 && bh[i] >= p[i] - 1e-15);
            for j in 0..p.len() {
                if p[i] <= p[j] {
                    prop_assert!(holm[i] <= holm[j] && bh[i] <= bh[j]);
                }
            }
        }
    }

    #[test]
    fn orders_are_balanced_for_every_two_arms(half in 0..20_u32, arms in 2..6_usize, seed in any::<u64>()) {
        let orders = order::balanced_orders(2 * half, arms, &mut order::rng(seed));
        prop_assert_eq!(orders.len() as u32, 2 * half);
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..arms).collect::<Vec<_>>());
        }
        for a in 0..arms {
            for b in 0..a {
                let place = |order: &[usize], arm| order.iter().position(|&x| x == arm);
                let first = orders.iter().filter(|order| place(order, a) < place(order, b)).count();
                prop_assert_eq!(first as u32, half);
            }
        }
        prop_assert_eq!(orders, order::balanced_orders(2 * half, arms, &mut order::rng(seed)));
    }
}
