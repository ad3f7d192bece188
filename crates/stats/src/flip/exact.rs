//! All re-randomisations of a design, as sums of two subsets, which are never stored one by one.
//!
//! Invariant: counts and quantiles are those of the whole set, including ties and rounding.

/// Two groups of pairs, and one level for each combination of sizes of their subsets.
#[derive(Debug, Clone)]
pub(super) struct Exact {
    /// By size, the sorted sums over the subsets of that size.
    x: Vec<Vec<f64>>,
    y: Vec<Vec<f64>>,
    levels: Vec<Size>,
    members: u64,
}

/// The sizes of a subset of the first group and of one of the second.
type Size = (usize, usize);

/// The members of one level.
#[derive(Debug, Clone, Copy)]
struct Level<'a> {
    /// 1 / (number of pairs in a union of two subsets).
    weight: f64,
    x: &'a [f64],
    y: &'a [f64],
}

/// The members on either side of a value.
struct Split {
    /// Number of members that are at most the value.
    count: u64,
    /// The largest of these members.
    below: f64,
    /// The smallest member greater than the value.
    above: f64,
}

impl Exact {
    /// As many pairs of either order change places.
    pub(super) fn balanced(ab: &[f64], ba: &[f64]) -> Exact {
        let sizes = (1..=ab.len().min(ba.len())).map(|k| (k, k));
        Exact::of(ab, ba, sizes.collect())
    }

    /// Any pairs change places. The two groups are halves, so that their lists are short.
    pub(super) fn full(d: &[f64]) -> Exact {
        let (x, y) = d.split_at(d.len() / 2);
        let sizes = (0..=x.len()).flat_map(|i| (0..=y.len()).map(move |j| (i, j)));
        Exact::of(x, y, sizes.skip(1).collect())
    }

    fn of(x: &[f64], y: &[f64], levels: Vec<Size>) -> Exact {
        let (x, y) = (subset_sums(x), subset_sums(y));
        let members = levels.iter().map(|&(i, j)| (x[i].len() * y[j].len()) as u64).sum();
        Exact { x, y, levels, members }
    }

    fn levels(&self) -> impl Iterator<Item = Level<'_>> {
        self.levels.iter().map(|&(i, j)| Level { weight: 1.0 / (i + j) as f64, x: &self.x[i], y: &self.y[j] })
    }

    pub(super) fn len(&self) -> u64 {
        self.members
    }

    /// Number of members that are at most `x`.
    pub(super) fn count_le(&self, x: f64) -> u64 {
        self.split(x).count
    }

    fn split(&self, x: f64) -> Split {
        let none = Split { count: 0, below: f64::NEG_INFINITY, above: f64::INFINITY };
        self.levels().fold(none, |all, level| all.merge(level.split(x)))
    }

    /// The `k`-th smallest member, counted from 1.
    pub(super) fn nth(&self, k: u64) -> f64 {
        let mut low = self.levels().map(|level| level.min()).fold(f64::INFINITY, f64::min);
        let mut high = self.levels().map(|level| level.max()).fold(f64::NEG_INFINITY, f64::max);
        // The distances of the ranks of `low` and `high` from `k`, by which the search interpolates. A side that has not moved for two steps counts
        // half (the Illinois method), and every third step halves the distance, so that no distribution makes it slow.
        let (mut lacking, mut beyond) = (k as f64, (self.members - k) as f64);
        let mut last = 0;
        // Both ends are members, and each step moves one of them to another member.
        for step in 1.. {
            if low >= high {
                break;
            }
            let share = if step % 3 == 0 { 0.5 } else { (lacking / (lacking + beyond)).clamp(0.0, 1.0) };
            // Below `high` even if rounding takes the middle of two neighbours up to it; otherwise the search would not end.
            let middle = (low + (high - low) * share).clamp(low, high.next_down());
            let split = self.split(middle);
            if split.count >= k {
                high = split.below;
                beyond = (split.count - k) as f64 + 0.5;
                lacking *= if last == 1 { 0.5 } else { 1.0 };
                last = 1;
            } else {
                low = split.above;
                lacking = (k - split.count) as f64;
                beyond *= if last == 2 { 0.5 } else { 1.0 };
                last = 2;
            }
        }
        low
    }
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

impl Level<'_> {
    fn member(self, a: f64, b: f64) -> f64 {
        (a + b) * self.weight
    }

    fn min(self) -> f64 {
        self.member(self.x[0], self.y[0])
    }

    fn max(self) -> f64 {
        self.member(self.x[self.x.len() - 1], self.y[self.y.len() - 1])
    }

    /// One merge: as `a` grows, the part of `y` that keeps the sum small shrinks. Rounding is monotonic, so this is exact.
    fn split(self, x: f64) -> Split {
        let mut split = Split { count: 0, below: f64::NEG_INFINITY, above: f64::INFINITY };
        let mut j = self.y.len();
        for &a in self.x {
            while j > 0 && self.member(a, self.y[j - 1]) > x {
                j -= 1;
            }
            split.count += j as u64;
            if j > 0 {
                split.below = split.below.max(self.member(a, self.y[j - 1]));
            }
            if j < self.y.len() {
                split.above = split.above.min(self.member(a, self.y[j]));
            }
        }
        split
    }
}

/// `sums[k]`: the sums of all subsets of size `k`, ascending. Each value is added to the sums so far, and the two sorted lists are merged.
fn subset_sums(d: &[f64]) -> Vec<Vec<f64>> {
    let mut sums = vec![vec![0.0]];
    for &value in d {
        let mut next = Vec::with_capacity(sums.len() + 1);
        for k in 0..=sums.len() {
            let without = sums.get(k).map_or(&[][..], Vec::as_slice);
            let with = if k == 0 { &[][..] } else { sums[k - 1].as_slice() };
            next.push(merged(without, with, value));
        }
        sums = next;
    }
    sums
}

/// The values of `x`, and those of `y` plus `plus`; ascending, as both inputs are.
fn merged(x: &[f64], y: &[f64], plus: f64) -> Vec<f64> {
    let mut all = Vec::with_capacity(x.len() + y.len());
    let (mut i, mut j) = (0, 0);
    while i < x.len() && j < y.len() {
        let (left, right) = (x[i], y[j] + plus);
        let is_left = left <= right;
        all.push(if is_left { left } else { right });
        i += usize::from(is_left);
        j += usize::from(!is_left);
    }
    all.extend_from_slice(&x[i..]);
    all.extend(y[j..].iter().map(|value| value + plus));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_numbers_are_told_apart() {
        // The middle of the two rounds to the upper one, whose last bit is 0.
        let (low, high) = (1.0 + f64::EPSILON, 1.0 + 2.0 * f64::EPSILON);
        assert_eq!(low + (high - low) / 2.0, high);
        let set = Exact { x: vec![vec![0.0]], y: vec![Vec::new(), vec![low, high]], levels: vec![(0, 1)], members: 2 };
        assert_eq!([set.nth(1), set.nth(2)], [low, high]);
    }

    #[test]
    fn every_rank_is_found_ties_and_outliers_included() {
        let (ab, ba) = ([0.0, 0.0, 1.0, -3.0, 1e9], [0.5, 0.5, 0.25, 2.0, -1e-9]);
        for set in [Exact::balanced(&ab, &ba), Exact::full(&[ab, ba].concat()), Exact::full(&ab)] {
            let mut all: Vec<f64> = set
                .levels()
                .flat_map(|l| l.x.iter().flat_map(move |a| l.y.iter().map(move |b| l.member(*a, *b))))
                .collect();
            all.sort_unstable_by(f64::total_cmp);
            assert_eq!(all.len() as u64, set.len());
            for (i, member) in all.iter().enumerate() {
                assert_eq!(set.nth(i as u64 + 1), *member, "rank {}", i + 1);
                assert_eq!(set.count_le(*member) as usize, all.partition_point(|m| m <= member));
            }
        }
    }

    #[test]
    fn every_subset_is_a_member_once() {
        let d = [0.3, -0.1, 0.25, 0.7, -0.45];
        let set = Exact::full(&d);
        assert_eq!(set.len(), 31);
        let mut means: Vec<f64> = (1..32_u32)
            .map(|chosen| {
                let of = (0..5).filter(|i| chosen >> i & 1 == 1).map(|i| d[i]);
                of.sum::<f64>() / f64::from(chosen.count_ones())
            })
            .collect();
        means.sort_unstable_by(f64::total_cmp);
        for (k, mean) in (1..).zip(means) {
            assert!((set.nth(k) - mean).abs() < 1e-15);
        }
    }

    #[test]
    fn sums_of_subsets_are_sorted_by_size() {
        let sums = subset_sums(&[3.0, -1.0, 0.5]);
        assert_eq!(sums, [vec![0.0], vec![-1.0, 0.5, 3.0], vec![-0.5, 2.0, 3.5], vec![2.5]]);
    }
}
