//! The position of a change in an ordered list of kernels, found by tests that each have an error rate.
//!
//! The model: kernels before the change have level 0 (the first kernel's), later ones have level δ, and a pair's log ratio against the first kernel
//! is normal around its kernel's level, with a common spread σ. *Position* `j` means that point `j` is the first with δ. δ has a flat prior, σ has
//! 1/σ (Jeffreys), and positions are equally likely at first; both parameters are integrated out, so the likelihood of a position is Student's, and
//! few pairs do not look like certainty:
//!
//! `P(position j | data) ∝ n₁^(−1/2) · (S₀ + S₁)^(−(N − 1)/2)`
//!
//! with `N` values in all, `n₁` of them from point `j` on, `S₀` the sum of squares before `j` around 0 and `S₁` the sum of squares from `j` on around
//! their mean (Box & Tiao, *Bayesian Inference in Statistical Analysis*, 1973, section 2.4: a mean and a spread integrated out). The posterior is
//! calibrated at every moment, so the search may stop as soon as one position has `1 − error`.
//! Invariant: everything here is a function of the values alone; neither their unit nor their sign matters.

use std::ops::RangeInclusive;

use crate::{power, special};

/// A level within this share of δ around 0, or around δ, counts as 0 or as δ.
pub const TOLERANCE: f64 = 0.25;

/// Error rate for reporting a kernel on neither side, for all kernels together (Bonferroni).
const NEITHER: f64 = 0.01;

/// The observations of one kernel of the list. The first of a list is the baseline, which has no values of its own: its level is 0.
#[derive(Debug, Clone, PartialEq)]
pub enum Point {
    /// Log ratios of its pairs, kernel over baseline; empty if it was not tested yet.
    Values(Vec<f64>),
    /// It cannot be tested.
    Skipped,
}

impl Point {
    fn values(&self) -> &[f64] {
        match self {
            Point::Values(values) => values,
            Point::Skipped => &[],
        }
    }
}

/// The posterior distribution of a change's position.
#[derive(Debug, Clone, PartialEq)]
pub struct Posterior {
    /// P(position `j`) at index `j − 1`.
    positions: Vec<f64>,
    /// The sum of the positions up to and including a point.
    until: Vec<f64>,
    /// Whether point `i` can be tested; the two ends have been tested.
    testable: Vec<bool>,
}

/// A range that contains the change: after point `good`, at or before point `bad`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    pub good: usize,
    pub bad: usize,
    pub probability: f64,
}

/// The level of a kernel, relative to the baseline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    pub mean: f64,
    /// 95 %, Student's with the pooled spread of all kernels.
    pub interval: Option<(f64, f64)>,
    pub pairs: usize,
}

impl Posterior {
    /// The posterior for a list whose first point is the baseline and whose last shows the change.
    ///
    /// # Panics
    /// There are fewer than two points.
    pub fn of(points: &[Point]) -> Posterior {
        Self::among(points, &|_| true)
    }

    /// The posterior if it is known that the change is not at certain positions `j`, counted from 1. If that excludes all positions, it is ignored.
    ///
    /// # Panics
    /// There are fewer than two points.
    pub fn among(points: &[Point], possible: &dyn Fn(usize) -> bool) -> Posterior {
        assert!(points.len() > 1, "A change lies between two kernels or more");
        let last = points.len() - 1;
        let values: Vec<(usize, f64)> =
            points.iter().enumerate().flat_map(|(i, p)| p.values().iter().map(move |y| (i, *y))).collect();
        let scale: f64 = values.iter().map(|(_, y)| y * y).sum();
        let none = !(1..=last).any(possible);
        let log = |j: usize| match none || possible(j) {
            true => log_likelihood(&values, j, scale),
            false => f64::NEG_INFINITY,
        };
        let logs: Vec<f64> = (1..=last).map(log).collect();
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logs.iter().map(|l| (l - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let positions: Vec<f64> = weights.iter().map(|w| w / sum).collect();
        let mut until = vec![0.0; points.len()];
        for (i, p) in positions.iter().enumerate() {
            until[i + 1] = until[i] + p;
        }
        Posterior {
            positions,
            until,
            testable: points.iter().enumerate().map(|(i, p)| i == 0 || i == last || *p != Point::Skipped).collect(),
        }
    }

    /// P(position `j`), `j` from 1: point `j` is the first after the change.
    pub fn position(&self, j: usize) -> f64 {
        self.positions[j - 1]
    }

    /// P(point `i` lies after the change).
    pub fn changed(&self, i: usize) -> f64 {
        self.until[i].min(1.0)
    }

    /// The point whose test is expected to be most informative: with one spread for all, the information grows with the entropy of "does it lie after
    /// the change", so it is the point whose probability is nearest to one half. `None` if no point between the ends can be tested.
    pub fn next(&self) -> Option<usize> {
        let from_half = |i: &usize| (self.changed(*i) - 0.5).abs();
        (1..self.testable.len() - 1).filter(|i| self.testable[*i]).min_by(|a, b| from_half(a).total_cmp(&from_half(b)))
    }

    /// The likeliest place between two testable points with no testable point between them.
    pub fn likeliest(&self) -> Span {
        self.gaps()
            .fold(None, |best: Option<Span>, gap| match best {
                Some(best) if best.probability >= gap.probability => Some(best),
                _ => Some(gap),
            })
            .expect("the ends have a gap between them")
    }

    /// The shortest run of such places that contains the change with probability `mass`, or all places.
    pub fn credible(&self, mass: f64) -> Span {
        let gaps: Vec<Span> = self.gaps().collect();
        let join = |run: RangeInclusive<usize>| Span {
            good: gaps[*run.start()].good,
            bad: gaps[*run.end()].bad,
            probability: gaps[run].iter().map(|g| g.probability).sum(),
        };
        // For every place, the shortest run that begins there; its end never moves back from one place to the next.
        let (mut end, mut held) = (0, 0.0);
        let mut shortest: Option<RangeInclusive<usize>> = None;
        for start in 0..gaps.len() {
            while end < gaps.len() && held < mass {
                held += gaps[end].probability;
                end += 1;
            }
            if held < mass {
                break;
            }
            if shortest.as_ref().is_none_or(|s| end - start < s.end() + 1 - s.start()) {
                shortest = Some(start..=end - 1);
            }
            held -= gaps[start].probability;
        }
        join(shortest.unwrap_or(0..=gaps.len() - 1))
    }

    fn gaps(&self) -> impl Iterator<Item = Span> {
        let ends: Vec<usize> = (0..self.testable.len()).filter(|i| self.testable[*i]).collect();
        let gap = |pair: &[usize]| {
            let (good, bad) = (pair[0], pair[1]);
            Span { good, bad, probability: (good + 1..=bad).map(|j| self.position(j)).sum() }
        };
        ends.windows(2).map(gap).collect::<Vec<_>>().into_iter()
    }
}

/// For all values, each with its point, in order.
fn log_likelihood(values: &[(usize, f64)], j: usize, scale: f64) -> f64 {
    let before = values.iter().filter(|(i, _)| *i < j).map(|(_, y)| y * y).sum::<f64>();
    let after: Vec<f64> = values.iter().filter(|(i, _)| *i >= j).map(|(_, y)| *y).collect();
    let mean = after.iter().sum::<f64>() / after.len() as f64;
    let around: f64 = after.iter().map(|y| (y - mean).powi(2)).sum();
    // A clock without noise gives squares that are all 0; then a millionth of the values' own size counts as no noise.
    let squares = (before + around).max(scale * 1e-12).max(f64::MIN_POSITIVE);
    -0.5 * (after.len().max(1) as f64).ln() - (values.len() as f64 - 1.0) / 2.0 * squares.ln()
}

/// The spread of a pair within its kernel, pooled over all kernels, and its degrees of freedom.
fn pooled(points: &[Point]) -> (f64, f64) {
    let squares = |v: &[f64]| power::sd(v).powi(2) * (v.len().max(1) - 1) as f64;
    let degrees: usize = points.iter().map(|p| p.values().len().max(1) - 1).sum();
    let sum: f64 = points.iter().map(|p| squares(p.values())).sum();
    if degrees == 0 { (f64::NAN, 0.0) } else { ((sum / degrees as f64).sqrt(), degrees as f64) }
}

/// The level of each point; `None` for points without values, and for the baseline.
pub fn levels(points: &[Point]) -> Vec<Option<Level>> {
    let (sd, degrees) = pooled(points);
    let level = |point: &Point| {
        let values = point.values();
        let pairs = values.len();
        let mean = values.iter().sum::<f64>() / pairs as f64;
        let half = || special::t_quantile(0.975, degrees) * sd / (pairs as f64).sqrt();
        let interval = (degrees >= 1.0).then(|| (mean - half(), mean + half()));
        (pairs > 0).then_some(Level { mean, interval, pairs })
    };
    points.iter().map(level).collect()
}

/// The points whose level is neither the baseline's nor the last point's: their intervals, at 1 % for all of them together, do not come within a
/// quarter of δ of 0 or of δ. One such point means that there is more than one change.
pub fn neither(points: &[Point]) -> Vec<usize> {
    let Some((Point::Values(last), between)) = points.split_last() else { return Vec::new() };
    let (sd, degrees) = pooled(points);
    if degrees < 1.0 || last.is_empty() {
        return Vec::new();
    }
    let delta = last.iter().sum::<f64>() / last.len() as f64;
    let tested = between.iter().filter(|p| p.values().len() > 1).count().max(1);
    let t = special::t_quantile(1.0 - NEITHER / 2.0 / tested as f64, degrees);
    let is_neither = |values: &[f64]| {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        // A kernel may vary more than the others.
        let sd = sd.max(power::sd(values));
        let of_level = t * sd / n.sqrt();
        let of_distance = t * sd * (1.0 / n + 1.0 / last.len() as f64).sqrt();
        let near = TOLERANCE * delta.abs();
        mean.abs() - of_level > near && (mean - delta).abs() - of_distance > near
    };
    between.iter().enumerate().filter(|(_, p)| p.values().len() > 1 && is_neither(p.values())).map(|(i, _)| i).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::order::{Rng, rng};

    fn normal(rng: &mut impl Rng) -> f64 {
        let mut uniform = || ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
    }

    /// The result of a search over simulated kernels: the place, if it was settled, and the number of pairs.
    fn search(levels: &[f64], sd: f64, error: f64, rng: &mut impl Rng) -> (Option<Span>, usize) {
        let last = levels.len() - 1;
        let mut draw =
            |at: usize, pairs: usize| -> Vec<f64> { (0..pairs).map(|_| levels[at] + sd * normal(rng)).collect() };
        let mut points = vec![Point::Values(Vec::new()); levels.len()];
        points[last] = Point::Values(draw(last, 8));
        for step in 0..200 {
            let posterior = Posterior::of(&points);
            let best = posterior.likeliest();
            if best.probability >= 1.0 - error {
                return (Some(best), 8 + 2 * step);
            }
            if !neither(&points).is_empty() {
                return (None, 8 + 2 * step);
            }
            let at = posterior.next().unwrap();
            let more = draw(at, 2);
            let Point::Values(values) = &mut points[at] else { unreachable!() };
            values.extend(more);
        }
        (None, 408)
    }

    #[test]
    fn the_stated_error_is_kept() {
        let rng = &mut rng(11);
        for (size, error, most) in [(1.5, 0.05, 0.05), (3.0, 0.05, 0.05), (1.5, 0.2, 0.2)] {
            let (mut wrong, mut unsettled, mut pairs) = (0, 0, 0);
            const REPEATS: usize = 400;
            for repeat in 0..REPEATS {
                let change = 1 + repeat % 9;
                let levels: Vec<f64> = (0..10).map(|i| if i < change { 0.0 } else { size }).collect();
                let (found, used) = search(&levels, 1.0, error, rng);
                wrong += usize::from(found.is_some_and(|f| f.bad != change));
                unsettled += usize::from(found.is_none());
                pairs += used;
            }
            // Two standard deviations of the count.
            let limit = most + 2.0 * (most * (1.0 - most) / REPEATS as f64).sqrt();
            let share = wrong as f64 / REPEATS as f64;
            println!("δ = {size} σ, error {error}: {share} wrong, {unsettled} unsettled, {} pairs", pairs / REPEATS);
            assert!(share <= limit && unsettled * 50 < REPEATS, "{size} {error}: {share} wrong, {unsettled} unsettled");
        }
    }

    #[test]
    fn two_equal_steps_are_said_to_be_no_one_position() {
        let rng = &mut rng(12);
        let levels = [0.0, 0.0, 0.0, 0.05, 0.05, 0.05, 0.1, 0.1, 0.1];
        for _ in 0..50 {
            assert_eq!(search(&levels, 0.002, 0.05, rng).0, None);
        }
    }

    fn list(values: &[&[f64]]) -> Vec<Point> {
        std::iter::once(&[][..]).chain(values.iter().copied()).map(|v| Point::Values(v.to_vec())).collect()
    }

    #[test]
    fn the_ends_alone_leave_all_positions_alike() {
        let points = list(&[&[], &[], &[], &[0.1, 0.11, 0.09, 0.1]]);
        let posterior = Posterior::of(&points);
        for j in 1..5 {
            assert!((posterior.position(j) - 0.25).abs() < 1e-12);
        }
        assert_eq!(posterior.next(), Some(2));
        assert_eq!(posterior.credible(0.9), Span { good: 0, bad: 4, probability: 1.0 });
    }

    #[test]
    fn a_clock_without_noise_settles_at_once() {
        let points = list(&[&[], &[0.0, 0.0], &[0.1, 0.1], &[], &[0.1; 8]]);
        let best = Posterior::of(&points).likeliest();
        assert_eq!((best.good, best.bad), (2, 3));
        assert!(best.probability > 0.999_999 && neither(&points).is_empty());
        assert_eq!(neither(&list(&[&[0.05, 0.05], &[0.1; 8]])), [1]);
        assert_eq!(neither(&list(&[&[0.2, 0.2], &[0.1; 8]])), [1]);
        assert_eq!(neither(&list(&[&[0.02, 0.02], &[0.12, 0.12], &[0.1; 8]])), []);
    }

    #[test]
    fn what_cannot_be_tested_makes_the_place_a_range() {
        let mut points = list(&[&[0.0, 0.001], &[], &[0.1, 0.1], &[0.1, 0.099, 0.101, 0.1]]);
        points[2] = Point::Skipped;
        let posterior = Posterior::of(&points);
        let best = posterior.likeliest();
        assert_eq!((best.good, best.bad), (1, 3));
        assert!(best.probability > 0.99);
        assert!((posterior.position(2) - posterior.position(3)).abs() < 1e-12);
        assert_ne!(posterior.next(), Some(2));
        assert_eq!(Posterior::of(&[Point::Values(vec![]), Point::Skipped, Point::Values(vec![0.1; 4])]).next(), None);
    }

    #[test]
    fn where_the_change_cannot_be_it_is_not_looked_for() {
        let points = list(&[&[], &[], &[], &[0.1, 0.11, 0.09, 0.1]]);
        let posterior = Posterior::among(&points, &|j| j == 2 || j == 3);
        let positions: Vec<f64> = (1..5).map(|j| posterior.position(j)).collect();
        assert_eq!(positions, [0.0, 0.5, 0.5, 0.0]);
        assert_eq!(posterior.next(), Some(2));
        assert_eq!(posterior.credible(0.95), Span { good: 1, bad: 3, probability: 1.0 });
        let one = Posterior::among(&points, &|j| j == 3).likeliest();
        assert_eq!(one, Span { good: 2, bad: 3, probability: 1.0 });
        assert_eq!(Posterior::among(&points, &|_| false), Posterior::of(&points));
    }

    #[test]
    fn the_shortest_run_is_found_in_long_lists() {
        let mut points = vec![Point::Values(Vec::new()); 20_000];
        points[19_999] = Point::Values(vec![0.1, 0.11, 0.09, 0.1]);
        points[12_345] = Point::Values(vec![0.1, 0.101]);
        points[12_300] = Point::Values(vec![0.0, 0.001]);
        let posterior = Posterior::of(&points);
        let span = posterior.credible(0.5);
        assert!(span.good >= 12_300 && span.bad <= 12_345 && span.probability >= 0.5, "{span:?}");
        assert!(posterior.next().is_some_and(|at| (12_301..12_345).contains(&at)));
    }

    #[test]
    fn levels_have_intervals_of_the_pooled_spread() {
        let points = list(&[&[0.0, 0.002], &[], &[0.1, 0.102, 0.1, 0.102]]);
        let levels = levels(&points);
        assert_eq!((levels[0], levels[2]), (None, None));
        let (one, three) = (levels[1].unwrap(), levels[3].unwrap());
        assert!((one.mean - 0.001).abs() < 1e-12 && (three.mean - 0.101).abs() < 1e-12);
        let half = |l: Level| l.interval.map(|(low, high)| (high - low) / 2.0).unwrap();
        assert!((half(one) / half(three) - 2f64.sqrt()).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn neither_unit_nor_sign_nor_order_matters(
            values in proptest::collection::vec(proptest::collection::vec(-0.2..0.2f64, 0..4), 1..6),
            last in proptest::collection::vec(0.05..0.15f64, 4..9),
            factor in prop_oneof![-100.0..-0.01f64, 0.01..100.0f64],
        ) {
            let with = |f: &dyn Fn(&[f64]) -> Vec<f64>| {
                let lists: Vec<Vec<f64>> = values.iter().chain([&last]).map(|v| f(v)).collect();
                list(&lists.iter().map(Vec::as_slice).collect::<Vec<_>>())
            };
            let plain = with(&|v| v.to_vec());
            let scaled = with(&|v| v.iter().rev().map(|y| y * factor).collect());
            let (a, b) = (Posterior::of(&plain), Posterior::of(&scaled));
            let total: f64 = (1..plain.len()).map(|j| a.position(j)).sum();
            prop_assert!((total - 1.0).abs() < 1e-9);
            for j in 1..plain.len() {
                prop_assert!((a.position(j) - b.position(j)).abs() < 1e-6);
            }
            prop_assert!((1..plain.len()).all(|i| a.changed(i) >= a.changed(i - 1)));
            let all = a.credible(0.9);
            prop_assert!(all.probability >= 0.9 - 1e-9 && all.good < all.bad);
            let gaps: Vec<Span> = a.gaps().collect();
            let (from, to) = (gaps.iter().position(|g| g.good == all.good), gaps.iter().position(|g| g.bad == all.bad));
            let length = to.unwrap() + 1 - from.unwrap();
            let shorter = length > 1 && gaps.windows(length - 1).any(|w| w.iter().map(|g| g.probability).sum::<f64>() > 0.9 + 1e-9);
            prop_assert!(!shorter, "{all:?}");
            prop_assert_eq!(neither(&plain), neither(&scaled));
        }
    }
}
