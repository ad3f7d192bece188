//! The exact balanced-flip interval and its p: inference for the mean log ratio of pairs run in random, balanced order.
//!
//! Had the coin that ordered the pairs fallen otherwise, with the same number of A-then-B pairs, `k` pairs of each order would have
//! changed places. Under "the mean is θ" such a re-randomisation has a larger mean than the observed one exactly when the mean of
//! `D − θ` over the pairs that changed places is negative. So the set `T` of the means of `D` over all those subsets (k of one order
//! and k of the other, k ≥ 1) is all there is to know: the interval cuts off its tails and p counts in them. Taking equally many pairs of
//! either order makes every member of `T` free of a constant effect of running second.
//!
//! Invariant: a value θ is outside `interval(alpha)` exactly when `p(θ) <= alpha` (up to rounding).
//!
//! `T` has C(N, h) − 1 members, 2.7 million at 24 pairs, but is never written down: a member is the sum of a subset of one order and one
//! of the other, so with both lists of subset sums sorted, counting the members up to θ is one merge over 2·2^h sums. That keeps
//! the exact distribution affordable up to 32 pairs; beyond, seeded Monte-Carlo draws stand in for it.

use crate::order;

/// Pairs of one order up to which `T` is exact: 2^16 subset sums per order.
const EXACT_PER_ORDER: usize = 16;

/// Monte-Carlo draws where `T` is too large: the standard error of a p of .05 is then .0005.
const DRAWS: u64 = 200_000;

/// Log ratios of the pairs, split by the order in which the pair's two arms ran.
#[derive(Debug, Clone)]
pub struct Flip {
    mean: f64,
    sd: f64,
    pairs: usize,
    scale: f64,
    /// Members of `T`, and the one re-randomisation that changes nothing.
    rerandomisations: u64,
    set: Set,
}

#[derive(Debug, Clone)]
enum Set {
    /// One level for each number of pairs of either order that change places.
    Exact(Vec<Level>),
    /// Monte-Carlo members of `T`, sorted.
    Drawn(Vec<f64>),
}

/// Sorted sums over the subsets of one size, for either order.
#[derive(Debug, Clone)]
struct Level {
    /// 1 / (number of pairs in a union of two subsets)
    weight: f64,
    ab: Vec<f64>,
    ba: Vec<f64>,
}

impl Flip {
    /// `ab`, `ba`: D = ln(B/A) of the pairs run A-then-B and B-then-A. The sizes may differ, where pairs were lost.
    ///
    /// `seed` matters only above 16 pairs of one order (32 pairs in all), where 200,000 re-randomisations are drawn instead of all counted.
    /// If a value is not finite there is no distribution: no interval, and every p is 1.
    pub fn new(ab: &[f64], ba: &[f64], seed: u64) -> Flip {
        let pairs = ab.len() + ba.len();
        let finite = ab.iter().chain(ba).all(|d| d.is_finite());
        let scale = ab.iter().chain(ba).fold(0.0_f64, |m, d| m.max(d.abs()));
        let set = if !finite || ab.is_empty() || ba.is_empty() {
            Set::Drawn(Vec::new())
        } else if ab.len().max(ba.len()) <= EXACT_PER_ORDER {
            Set::Exact(levels(ab, ba))
        } else {
            Set::Drawn(drawn(ab, ba, seed))
        };
        let rerandomisations = set.len() + 1;
        Flip { mean: balanced_mean(ab, ba), sd: within_order_sd(ab, ba), pairs, scale, rerandomisations, set }
    }

    /// The estimate: the mean over the two orders of the mean of D. With equally many pairs of either order that is the mean of D.
    /// Where pairs were lost on one side it is still free of an effect of running second, and still the mean of all re-randomisations.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Standard deviation of D around the mean of its order: the noise that the interval sees. 0 if there are fewer than 3 pairs.
    pub fn sd(&self) -> f64 {
        self.sd
    }

    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// C(N, h): the re-randomisations counted, the observed one included.
    pub fn rerandomisations(&self) -> u64 {
        self.rerandomisations
    }

    /// The interval of confidence `1 − alpha`; none if the design has too few re-randomisations for it.
    pub fn interval(&self, alpha: f64) -> Option<(f64, f64)> {
        // The addend keeps a product that is a whole number from falling below it by rounding.
        let k = (alpha / 2.0 * self.rerandomisations as f64 + 1e-9).floor();
        if k < 1.0 {
            return None;
        }
        let k = (k as u64).min(self.set.len() / 2 + 1);
        (k <= self.set.len()).then(|| (self.set.nth(k), self.set.nth(self.set.len() + 1 - k)))
    }

    /// Two-sided p of "the mean is `theta`".
    pub fn p(&self, theta: f64) -> f64 {
        (2.0 * self.p_greater(theta).min(self.p_less(theta))).min(1.0)
    }

    /// One-sided p of "the mean is `theta` or less": small is evidence that it is greater.
    pub fn p_greater(&self, theta: f64) -> f64 {
        let count = self.set.count_le(theta + self.slack(theta));
        (count + 1) as f64 / self.rerandomisations as f64
    }

    /// One-sided p of "the mean is `theta` or more": small is evidence that it is less.
    pub fn p_less(&self, theta: f64) -> f64 {
        let below = self.set.count_le((theta - self.slack(theta)).next_down());
        (self.set.len() - below + 1) as f64 / self.rerandomisations as f64
    }

    /// The smallest two-sided p that this design can give.
    pub fn smallest_p(&self) -> f64 {
        (2.0 / self.rerandomisations as f64).min(1.0)
    }

    /// Members of `T` that would equal θ in exact arithmetic must count as equal: rounding may not turn a tie into evidence.
    fn slack(&self, theta: f64) -> f64 {
        64.0 * f64::EPSILON * self.scale.max(theta.abs())
    }
}

impl Set {
    fn len(&self) -> u64 {
        match self {
            Set::Exact(levels) => levels.iter().map(|l| (l.ab.len() * l.ba.len()) as u64).sum(),
            Set::Drawn(t) => t.len() as u64,
        }
    }

    /// Members at most `x`.
    fn count_le(&self, x: f64) -> u64 {
        match self {
            Set::Exact(levels) => levels.iter().map(|l| l.split(x).count).sum(),
            Set::Drawn(t) => t.partition_point(|&v| v <= x) as u64,
        }
    }

    /// The `k`-th smallest member, counted from 1.
    fn nth(&self, k: u64) -> f64 {
        let levels = match self {
            Set::Exact(levels) => levels,
            Set::Drawn(t) => return t[k as usize - 1],
        };
        let mut low = levels.iter().map(Level::min).fold(f64::INFINITY, f64::min);
        let mut high = levels.iter().map(Level::max).fold(f64::NEG_INFINITY, f64::max);
        // Both ends are members, and each step moves one of them to another member.
        while low < high {
            // Below `high` even where rounding takes the middle of two neighbours up to it: else this would not end.
            let middle = (low + (high - low) / 2.0).min(high.next_down());
            let mut all = Split { count: 0, below: f64::NEG_INFINITY, above: f64::INFINITY };
            for level in levels {
                all = all.merge(level.split(middle));
            }
            if all.count >= k {
                high = all.below;
            } else {
                low = all.above;
            }
        }
        low
    }
}

/// What lies on either side of a value.
struct Split {
    /// members at most the value
    count: u64,
    /// the largest of them
    below: f64,
    /// the smallest member greater than the value
    above: f64,
}

impl Split {
    fn merge(self, other: Split) -> Split {
        Split {
            count: self.count + other.count,
            below: self.below.max(other.below),
            above: self.above.min(other.above),
        }
    }
}

impl Level {
    fn member(&self, a: f64, b: f64) -> f64 {
        (a + b) * self.weight
    }

    fn min(&self) -> f64 {
        self.member(self.ab[0], self.ba[0])
    }

    fn max(&self) -> f64 {
        self.member(self.ab[self.ab.len() - 1], self.ba[self.ba.len() - 1])
    }

    /// One merge: as `a` grows, the part of `ba` that keeps the sum small shrinks. Rounding is monotone, so this is exact.
    fn split(&self, x: f64) -> Split {
        let mut split = Split { count: 0, below: f64::NEG_INFINITY, above: f64::INFINITY };
        let mut j = self.ba.len();
        for &a in &self.ab {
            while j > 0 && self.member(a, self.ba[j - 1]) > x {
                j -= 1;
            }
            split.count += j as u64;
            if j > 0 {
                split.below = split.below.max(self.member(a, self.ba[j - 1]));
            }
            if j < self.ba.len() {
                split.above = split.above.min(self.member(a, self.ba[j]));
            }
        }
        split
    }
}

/// Subset sums of both orders, by size.
fn levels(ab: &[f64], ba: &[f64]) -> Vec<Level> {
    let (ab, ba) = (subset_sums(ab), subset_sums(ba));
    ab.into_iter()
        .zip(ba)
        .enumerate()
        .skip(1)
        .map(|(k, (ab, ba))| Level { weight: 1.0 / (2 * k) as f64, ab, ba })
        .collect()
}

/// `sums[k]`: the sums of all subsets of size `k`, ascending.
fn subset_sums(d: &[f64]) -> Vec<Vec<f64>> {
    let mut all = vec![0.0_f64; 1 << d.len()];
    let mut sums = vec![Vec::new(); d.len() + 1];
    sums[0].push(0.0);
    for mask in 1..all.len() {
        all[mask] = all[mask & (mask - 1)] + d[mask.trailing_zeros() as usize];
        sums[mask.count_ones() as usize].push(all[mask]);
    }
    for of_one_size in &mut sums {
        of_one_size.sort_unstable_by(f64::total_cmp);
    }
    sums
}

/// Members of `T` drawn as the experiment draws: a new set of A-then-B pairs; the pairs that changed places are the subset.
fn drawn(ab: &[f64], ba: &[f64], seed: u64) -> Vec<f64> {
    let mut rng = order::rng(seed);
    let all: Vec<f64> = ab.iter().chain(ba).copied().collect();
    let mut index: Vec<usize> = (0..all.len()).collect();
    let mut t = Vec::with_capacity(DRAWS as usize);
    while (t.len() as u64) < DRAWS {
        // Which `ab.len()` pairs run A-then-B now: a partial Fisher–Yates shuffle.
        for i in 0..ab.len() {
            let j = i + order::below(&mut rng, (all.len() - i) as u64) as usize;
            index.swap(i, j);
        }
        let (mut sum, mut moved) = (0.0, 0usize);
        for (place, &i) in index.iter().enumerate() {
            if (place < ab.len()) != (i < ab.len()) {
                sum += all[i];
                moved += 1;
            }
        }
        if moved > 0 {
            t.push(sum / moved as f64);
        }
    }
    t.sort_unstable_by(f64::total_cmp);
    t
}

/// The mean of the means of the two orders; the plain mean if one order is missing. NaN without pairs.
pub(crate) fn balanced_mean(ab: &[f64], ba: &[f64]) -> f64 {
    let mean = |d: &[f64]| d.iter().sum::<f64>() / d.len() as f64;
    match (ab.is_empty(), ba.is_empty()) {
        (false, false) => (mean(ab) + mean(ba)) / 2.0,
        (false, true) => mean(ab),
        (true, _) => mean(ba),
    }
}

/// Standard deviation around the means of the two orders, with one degree of freedom less for each order there is.
pub(crate) fn within_order_sd(ab: &[f64], ba: &[f64]) -> f64 {
    let squares = |d: &[f64]| {
        let mean = d.iter().sum::<f64>() / d.len() as f64;
        d.iter().map(|x| (x - mean).powi(2)).sum::<f64>()
    };
    let degrees = ab.len().saturating_sub(1) + ba.len().saturating_sub(1);
    if degrees == 0 {
        return 0.0;
    }
    let total: f64 = [ab, ba].iter().filter(|d| !d.is_empty()).map(|d| squares(d)).sum();
    (total / degrees as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(n: usize) -> Vec<f64> {
        // Irregular, without ties.
        (0..n).map(|i| ((i * i * 7 + 3 * i) % 23) as f64 / 100.0 - 0.1 + i as f64 * 1e-4).collect()
    }

    #[test]
    fn neighbouring_numbers_are_told_apart() {
        // The middle of the two rounds to the upper one, whose last bit is 0.
        let (low, high) = (1.0 + f64::EPSILON, 1.0 + 2.0 * f64::EPSILON);
        assert_eq!(low + (high - low) / 2.0, high);
        let set = Set::Exact(vec![Level { weight: 1.0, ab: vec![0.0], ba: vec![low, high] }]);
        assert_eq!([set.nth(1), set.nth(2)], [low, high]);
    }

    #[test]
    fn counts_all_rerandomisations() {
        for (sizes, c) in
            [((4, 4), 70), ((5, 5), 252), ((6, 6), 924), ((4, 6), 210), ((12, 12), 2_704_156), ((16, 16), 601_080_390)]
        {
            assert_eq!(Flip::new(&sample(sizes.0), &sample(sizes.1), 0).rerandomisations(), c);
        }
    }

    #[test]
    fn no_interval_where_the_design_is_too_small() {
        let three = Flip::new(&sample(3), &sample(3), 0);
        assert_eq!(three.interval(0.05), None);
        assert!(three.interval(0.10).is_some());
        assert_eq!(three.smallest_p(), 0.1);
        // One order missing: nothing could have fallen otherwise.
        let one_order = Flip::new(&sample(8), &[], 0);
        assert_eq!((one_order.interval(0.10), one_order.p(0.0)), (None, 1.0));
        assert!(one_order.mean().is_finite());
        let nothing = Flip::new(&[], &[], 0);
        assert!(nothing.mean().is_nan() && nothing.interval(0.5).is_none());
    }

    #[test]
    fn a_value_that_is_not_finite_gives_no_result() {
        let flip = Flip::new(&[0.1, f64::NEG_INFINITY, 0.2, 0.1], &[0.1, 0.1, 0.1, f64::NAN], 0);
        assert_eq!((flip.interval(0.05), flip.p(0.0)), (None, 1.0));
    }

    #[test]
    fn draws_agree_with_the_exact_distribution() {
        let (ab, ba) = (sample(8), sample(8).iter().map(|x| x * 1.3 - 0.02).collect::<Vec<_>>());
        let (exact, drawn) = (Set::Exact(levels(&ab, &ba)), Set::Drawn(drawn(&ab, &ba, 7)));
        for share in [0.025, 0.05, 0.25, 0.5, 0.95, 0.975] {
            let nth = |set: &Set| set.nth((share * set.len() as f64) as u64);
            let at = nth(&drawn);
            let found = exact.count_le(at) as f64 / exact.len() as f64;
            // Four standard errors of a share among 200,000 draws, and one member of the exact set.
            let allowed = 4.0 * (share * (1.0 - share) / DRAWS as f64).sqrt() + 1.0 / exact.len() as f64;
            assert!((found - share).abs() <= allowed, "{found} instead of {share}");
        }
    }

    #[test]
    fn large_designs_are_drawn_and_repeatable() {
        let (ab, ba) = (sample(17), sample(18));
        let flip = Flip::new(&ab, &ba, 1);
        assert_eq!(flip.rerandomisations(), DRAWS + 1);
        assert_eq!(flip.interval(0.05), Flip::new(&ab, &ba, 1).interval(0.05));
        assert_ne!(flip.interval(0.05), Flip::new(&ab, &ba, 2).interval(0.05));
        let (low, high) = flip.interval(0.05).unwrap();
        assert!(low < flip.mean() && flip.mean() < high);
    }

    #[test]
    fn pairs_lost_on_one_side_do_not_let_the_order_in() {
        // No effect, and the second place is 10 % slower: the plain mean of D would be .1 · (6 − 4)/10.
        let flip = Flip::new(&[0.1; 6], &[-0.1; 4], 0);
        assert!(flip.mean().abs() < 1e-15 && flip.sd() < 1e-15);
        let (low, high) = flip.interval(0.05).unwrap();
        assert!(low.abs() < 1e-15 && high.abs() < 1e-15);
    }
}
