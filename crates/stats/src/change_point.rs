//! Change points in a series of groups: E-divisive (Matteson & James 2014, "A nonparametric approach for multiple change point analysis of
//! multivariate data", JASA 109) with exponent 1, keeping the values of one group together.
//!
//! A group holds the measurements of one version, so a change can only lie between groups, and the permutation test redistributes the values of a
//! segment over its groups. Invariant: a pure function of values, design and seed; adding a constant to all values or multiplying them by one (for
//! logarithms: another unit of measurement) changes no result.

use crate::order::{self, Rng};

/// Parameters of the search for change points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// A change point is kept if its p is at most this.
    pub significance: f64,
    /// Random permutations for each p; its smallest value is 1 / (permutations + 1).
    pub permutations: u32,
    /// Seed of the permutations.
    pub seed: u64,
}

impl Default for Search {
    fn default() -> Self {
        Search { significance: 0.05, permutations: 999, seed: 0 }
    }
}

/// A place where the distribution of the values changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// The first group after the change; at least 1.
    pub at: usize,
    /// p of "there is no further change" when this one was found.
    pub p: f64,
}

/// Fewest values on either side of a change: one alone has no spread.
const LEAST: usize = 2;

/// A sum formed in another order may be smaller by this share and still count as equal.
const SLACK: f64 = 1e-9;

impl Search {
    /// The change points of a series, in order. Values that are not finite are ignored.
    ///
    /// In all segments so far, each step finds the split with the largest scaled energy distance between the groups before it and a run of groups
    /// after it (the run need not reach the segment's end, so a change that is reverted later is not masked). It keeps the split if few permutations
    /// of the values within segments have a larger distance. The first split that is not kept ends the search: if there is no change, one is reported
    /// with a probability of at most `significance`.
    pub fn run(&self, groups: &[Vec<f64>]) -> Vec<ChangePoint> {
        let mut rng = order::rng(self.seed);
        let sizes: Vec<usize> = groups.iter().map(|g| g.iter().filter(|v| v.is_finite()).count()).collect();
        let mut values: Vec<f64> = groups.iter().flatten().copied().filter(|v| v.is_finite()).collect();
        let original = values.clone();
        // The index of each group's first value.
        let mut offsets = vec![0];
        offsets.extend(sizes.iter().scan(0, |sum, n| {
            *sum += n;
            Some(*sum)
        }));
        let mut found: Vec<ChangePoint> = Vec::new();
        loop {
            let mut bounds: Vec<usize> = found.iter().map(|c| c.at).chain([0, groups.len()]).collect();
            bounds.sort_unstable();
            let Some((at, observed)) = best(&original, &offsets, &bounds) else { break };
            if observed <= 0.0 {
                break;
            }
            let reached = (0..self.permutations)
                .filter(|_| {
                    for segment in bounds.windows(2) {
                        permute(&mut values[offsets[segment[0]]..offsets[segment[1]]], &mut rng);
                    }
                    best(&values, &offsets, &bounds).is_some_and(|(_, q)| q >= observed * (1.0 - SLACK))
                })
                .count();
            values.copy_from_slice(&original);
            let p = (reached + 1) as f64 / f64::from(self.permutations + 1);
            if p > self.significance {
                break;
            }
            found.push(ChangePoint { at, p });
        }
        found.sort_unstable_by_key(|c| c.at);
        found
    }
}

fn permute(values: &mut [f64], rng: &mut impl Rng) {
    order::shuffle(values, rng);
}

/// The best split of all segments: (first group after it, statistic). `None` if no segment can be split.
fn best(values: &[f64], offsets: &[usize], bounds: &[usize]) -> Option<(usize, f64)> {
    let of = |segment: &[usize]| Distances::new(values, &offsets[segment[0]..=segment[1]]).best(segment[0]);
    bounds.windows(2).filter_map(of).max_by(|x, y| x.1.total_cmp(&y.1))
}

/// Sums of absolute differences between the groups of one segment, as two-dimensional prefix sums.
struct Distances {
    groups: usize,
    /// Number of values in the groups before the i-th.
    counts: Vec<usize>,
    /// `prefix[i * (groups + 1) + j]`: sum over all values of the first i groups against all of the first j.
    prefix: Vec<f64>,
}

impl Distances {
    fn new(values: &[f64], offsets: &[usize]) -> Distances {
        let groups = offsets.len() - 1;
        let width = groups + 1;
        let mut prefix = vec![0.0; width * width];
        for i in 0..groups {
            for j in 0..groups {
                let (one, other) = (&values[offsets[i]..offsets[i + 1]], &values[offsets[j]..offsets[j + 1]]);
                let sum: f64 = one.iter().flat_map(|x| other.iter().map(move |y| (x - y).abs())).sum();
                let left = prefix[(i + 1) * width + j];
                let above = prefix[i * width + j + 1];
                prefix[(i + 1) * width + j + 1] = sum + left + above - prefix[i * width + j];
            }
        }
        Distances { groups, counts: offsets.iter().map(|o| o - offsets[0]).collect(), prefix }
    }

    /// Sum over groups `i.0..i.1` against `j.0..j.1`.
    fn block(&self, i: (usize, usize), j: (usize, usize)) -> f64 {
        let at = |i: usize, j: usize| self.prefix[i * (self.groups + 1) + j];
        at(i.1, j.1) - at(i.0, j.1) - at(i.1, j.0) + at(i.0, j.0)
    }

    /// Mean distance within groups `g`, over pairs of different values.
    fn within(&self, g: (usize, usize)) -> f64 {
        let n = (self.counts[g.1] - self.counts[g.0]) as f64;
        self.block(g, g) / (n * (n - 1.0))
    }

    /// The best split, with `first` as the number of the segment's first group.
    fn best(&self, first: usize) -> Option<(usize, f64)> {
        let mut best: Option<(usize, f64)> = None;
        for split in 1..self.groups {
            let before = (0, split);
            let m = self.counts[split];
            if m < LEAST {
                continue;
            }
            let spread = self.within(before);
            for end in split + 1..=self.groups {
                let after = (split, end);
                let n = self.counts[end] - m;
                if n < LEAST {
                    continue;
                }
                let product = m as f64 * n as f64;
                let energy = 2.0 * self.block(before, after) / product - spread - self.within(after);
                let q = product / (m + n) as f64 * energy;
                if best.is_none_or(|(_, most)| q > most) {
                    best = Some((first + split, q));
                }
            }
        }
        best
    }
}

/// The change points that matter: those of `points` (first groups after a change, ascending) that remain after repeatedly removing the one with the
/// smallest difference of means between its two neighbouring segments, as long as that difference is less than `least`.
pub fn at_least(groups: &[Vec<f64>], points: &[usize], least: f64) -> Vec<usize> {
    let mut points = points.to_vec();
    loop {
        let sizes = points.iter().enumerate().map(|(i, _)| {
            let (before, after) = sides(groups, &points, i);
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            (i, (mean(&after) - mean(&before)).abs())
        });
        match sizes.min_by(|x, y| x.1.total_cmp(&y.1)) {
            Some((smallest, size)) if size < least => points.remove(smallest),
            _ => return points,
        };
    }
}

/// The values of the two segments on either side of the `index`-th of `points`.
pub fn sides(groups: &[Vec<f64>], points: &[usize], index: usize) -> (Vec<f64>, Vec<f64>) {
    let from = if index == 0 { 0 } else { points[index - 1] };
    let to = points.get(index + 1).copied().unwrap_or(groups.len());
    let flat = |groups: &[Vec<f64>]| groups.iter().flatten().copied().filter(|v| v.is_finite()).collect();
    (flat(&groups[from..points[index]]), flat(&groups[points[index]..to]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(groups: &[Vec<f64>]) -> Vec<usize> {
        Search::default().run(groups).iter().map(|c| c.at).collect()
    }

    /// Groups of four values around the given means, with the same small variation.
    fn around(means: &[f64]) -> Vec<Vec<f64>> {
        let wobble = [-0.0011, 0.0007, 0.0013, -0.0009];
        means
            .iter()
            .enumerate()
            .map(|(g, mean)| {
                (0..4).map(|i| mean + wobble[(i + g) % 4] * (1.0 + 0.1 * ((i * 3 + g) % 5) as f64)).collect()
            })
            .collect()
    }

    #[test]
    fn the_statistic_by_hand() {
        // X = {0, 1}, Y = {3, 5}: between 3+5+2+4 = 14, E = 2·14/4 − 1 − 2 = 4, Q = 2·2/4 · 4 = 4.
        let q = best(&[0.0, 1.0, 3.0, 5.0], &[0, 2, 4], &[0, 2]);
        assert_eq!(q, Some((1, 4.0)));
        // Nothing to split: one group, or one value on a side.
        assert_eq!(best(&[0.0, 1.0], &[0, 2], &[0, 1]), None);
        assert_eq!(best(&[0.0, 1.0, 2.0], &[0, 1, 3], &[0, 2]), None);
    }

    #[test]
    fn prefix_sums_agree_with_plain_ones() {
        let values = [0.3, -1.0, 2.5, 0.7, 0.1, -0.4, 1.9];
        let d = Distances::new(&values, &[0, 2, 3, 7]);
        let plain = |i: std::ops::Range<usize>, j: std::ops::Range<usize>| -> f64 {
            i.flat_map(|i| j.clone().map(move |j| (values[i] - values[j]).abs())).sum()
        };
        assert!((d.block((0, 2), (2, 3)) - plain(0..3, 3..7)).abs() < 1e-12);
        assert!((d.block((1, 3), (1, 3)) - plain(2..7, 2..7)).abs() < 1e-12);
        assert!((d.within((2, 3)) - plain(3..7, 3..7) / 12.0).abs() < 1e-12);
    }

    #[test]
    fn one_step_two_steps_and_none() {
        assert_eq!(at(&around(&[0.0, 0.0, 0.0, 0.05, 0.05, 0.05])), [3]);
        assert_eq!(at(&around(&[0.0, 0.0, 0.05, 0.05, -0.1, -0.1, -0.1])), [2, 4]);
        // A change that is reverted: the two outer parts are alike, and so are their means.
        assert_eq!(at(&around(&[0.0, 0.0, 0.0, 0.04, 0.04, 0.0, 0.0, 0.0])), [3, 5]);
        assert_eq!(at(&around(&[0.0; 6])), [0usize; 0]);
        assert_eq!(at(&[vec![0.5; 4], vec![0.5; 4]]), [0usize; 0]);
        assert_eq!(at(&[]), [0usize; 0]);
        assert_eq!(at(&[vec![1.0, 1.1]]), [0usize; 0]);
    }

    #[test]
    fn two_groups_of_four_are_enough_and_two_of_three_are_not() {
        // 2 of the 70 arrangements of eight values are equally extreme, and 2 of 20 for six values: p = .029 and .1.
        assert_eq!(at(&around(&[0.0, 0.05])), [1]);
        let three: Vec<Vec<f64>> = around(&[0.0, 0.05]).iter().map(|g| g[..3].to_vec()).collect();
        assert_eq!(at(&three), [0usize; 0]);
    }

    #[test]
    fn a_lone_wild_boot_is_no_change_of_the_kernel() {
        let mut groups = around(&[0.0; 6]);
        groups[3][1] = 0.4;
        assert_eq!(at(&groups), [0usize; 0]);
    }

    #[test]
    fn small_changes_give_way_to_large_ones() {
        let groups = around(&[0.0, 0.004, 0.05, 0.053]);
        let all = at(&groups);
        assert_eq!(all, [1, 2, 3]);
        assert_eq!(at_least(&groups, &all, 0.02), [2]);
        assert_eq!(at_least(&groups, &all, 0.0), all);
        assert!(at_least(&groups, &all, 1.0).is_empty());
        // A slow slope of small steps is still one or two changes, not none.
        let slope = around(&[0.0, 0.015, 0.03, 0.045]);
        assert!((1..3).contains(&at_least(&slope, &[1, 2, 3], 0.02).len()));
    }

    #[test]
    fn false_alarms_stay_at_the_level() {
        // 400 series of 8 groups of 4 values without a change, normal and heavy-tailed. At 5 % 20 are expected, with a standard deviation of 4.4: 34
        // is more than three away.
        for heavy in [false, true] {
            let mut rng = order::rng(41 + u64::from(heavy));
            let mut alarms = 0;
            for series in 0..400 {
                let mut draw = || {
                    let uniform = |rng: &mut order::ChaCha12Rng| (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                    let normal: f64 = (0..12).map(|_| uniform(&mut rng)).sum::<f64>() - 6.0;
                    if heavy { normal / (0.05 + uniform(&mut rng)) } else { normal }
                };
                let groups: Vec<Vec<f64>> = (0..8).map(|_| (0..4).map(|_| draw()).collect()).collect();
                let search = Search { permutations: 199, seed: series, ..Search::default() };
                alarms += usize::from(!search.run(&groups).is_empty());
            }
            assert!((7..=34).contains(&alarms), "{alarms} of 400 (heavy: {heavy})");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn neither_unit_nor_origin_matters(
            values in proptest::collection::vec(proptest::collection::vec(-1.0..1.0f64, 2..5), 2..7),
            step in 0usize..7, shift in -3.0..3.0f64, factor in 0.25..4.0f64,
        ) {
            let mut groups = values;
            for group in groups.iter_mut().skip(step) {
                group.iter_mut().for_each(|v| *v += 5.0);
            }
            let search = Search { permutations: 99, ..Search::default() };
            let other: Vec<Vec<f64>> =
                groups.iter().map(|g| g.iter().map(|v| shift + factor * v).collect()).collect();
            let (one, two) = (search.run(&groups), search.run(&other));
            prop_assert_eq!(one.iter().map(|c| c.at).collect::<Vec<_>>(), two.iter().map(|c| c.at).collect::<Vec<_>>());
            prop_assert!(one.iter().all(|c| c.at > 0 && c.at < groups.len() && c.p <= search.significance));
            prop_assert!(one.windows(2).all(|w| w[0].at < w[1].at));
            prop_assert_eq!(search.run(&groups), one);
        }

        #[test]
        fn what_is_not_finite_is_no_value(step in 1usize..4) {
            let mut groups = around(&[0.0; 5]);
            groups.iter_mut().skip(step).for_each(|g| g.iter_mut().for_each(|v| *v += 0.1));
            let clean = at(&groups);
            groups[0].push(f64::NAN);
            groups[4].push(f64::INFINITY);
            prop_assert_eq!(at(&groups), clean);
        }
    }
}
