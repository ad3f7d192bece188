//! All re-randomisations of a design, as sums of two subsets, which are never stored one by one.
//!
//! Invariant: counts and quantiles are those of the whole set, including ties and rounding.

use super::block::{Block, Size};

/// Most pairs of one order of a single machine for which a balanced `T` is counted: 2^16 subset sums per order.
const PER_ORDER: usize = 16;

/// Most subset sums of either group of several machines: those of a machine of 16 pairs, C(16, 8) = 12,870.
const PER_GROUP: f64 = 16_384.0;

/// Two groups of pairs, and one level for each combination of sizes of their subsets.
#[derive(Debug, Clone)]
pub(super) struct Exact {
    /// By size, the sorted sums over the subsets of that size.
    x: Vec<Vec<f64>>,
    y: Vec<Vec<f64>>,
    /// The sizes of a subset of the first group and of one of the second.
    levels: Vec<(usize, usize)>,
    members: u64,
}

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
    /// Whether the members of a balanced design are quickly counted.
    pub(super) fn is_quick(sizes: &[Size]) -> bool {
        if let [(ab, ba)] = sizes {
            return *ab.max(ba) <= PER_ORDER;
        }
        // Numbers of pairs may be large before they are multiplied.
        sizes.iter().all(|(ab, ba)| ab + ba <= 64) && groups(sizes).1.iter().all(|count| *count <= PER_GROUP)
    }

    /// As many pairs of either order change places, on each machine.
    pub(super) fn balanced(blocks: &[Block]) -> Exact {
        if let [Block { ab, ba }] = blocks {
            let sizes = (1..=ab.len().min(ba.len())).map(|k| (k, k));
            return Exact::of(subset_sums(ab), subset_sums(ba), sizes.collect());
        }
        // The two groups are machines, so that a subset of one and a subset of the other are always allowed together.
        let sizes: Vec<Size> = blocks.iter().map(Block::size).collect();
        let mut of_groups = [vec![vec![0.0]], vec![vec![0.0]]];
        for (block, group) in blocks.iter().zip(groups(&sizes).0) {
            of_groups[group] = unions(&of_groups[group], &balanced_sums(block));
        }
        let [x, y] = of_groups;
        let levels = (0..x.len()).flat_map(|i| (0..y.len()).map(move |j| (i, j))).skip(1);
        let levels = levels.filter(|(i, j)| !x[*i].is_empty() && !y[*j].is_empty()).collect();
        Exact::of(x, y, levels)
    }

    /// Any pairs change places. The two groups are halves, so that their lists are short.
    pub(super) fn full(d: &[f64]) -> Exact {
        let (x, y) = d.split_at(d.len() / 2);
        let sizes = (0..=x.len()).flat_map(|i| (0..=y.len()).map(move |j| (i, j)));
        Exact::of(subset_sums(x), subset_sums(y), sizes.skip(1).collect())
    }

    fn of(x: Vec<Vec<f64>>, y: Vec<Vec<f64>>, levels: Vec<(usize, usize)>) -> Exact {
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

/// For each machine the group to which it belongs, and the number of subset sums of both groups: each machine joins the group that has fewer.
fn groups(sizes: &[Size]) -> (Vec<usize>, [f64; 2]) {
    let mut counts = [1.0; 2];
    let of = sizes.iter().map(|&(ab, ba)| {
        let group = usize::from(counts[1] < counts[0]);
        let (pairs, fewer) = (ab + ba, ab.min(ba));
        counts[group] *= (1..=fewer).fold(1.0, |c, i| c * (pairs - fewer + i) as f64 / i as f64);
        group
    });
    (of.collect(), counts)
}

/// `sums[k]`: the sums of the subsets of `k` pairs of one machine that have as many of either order, ascending.
fn balanced_sums(block: &Block) -> Vec<Vec<f64>> {
    let (ab, ba) = (subset_sums(&block.ab), subset_sums(&block.ba));
    let mut sums = vec![Vec::new(); 2 * block.ab.len().min(block.ba.len()) + 1];
    for (k, (x, y)) in ab.iter().zip(&ba).enumerate() {
        sums[2 * k] = all_sums(x, y);
    }
    sums
}

/// The sums of the unions of a subset of one group and a subset of another, by size.
fn unions(x: &[Vec<f64>], y: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut sums = vec![Vec::new(); x.len() + y.len() - 1];
    for (i, x) in x.iter().enumerate() {
        for (j, y) in y.iter().enumerate() {
            sums[i + j].extend(all_sums(x, y));
        }
    }
    sums.iter_mut().for_each(|of_size| of_size.sort_unstable_by(f64::total_cmp));
    sums
}

/// Each value of `x` plus each value of `y`, ascending.
fn all_sums(x: &[f64], y: &[f64]) -> Vec<f64> {
    let mut sums: Vec<f64> = x.iter().flat_map(|x| y.iter().map(move |y| x + y)).collect();
    sums.sort_unstable_by(f64::total_cmp);
    sums
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
        let machines = [Block::new(&ab[..3], &ba[2..]), Block::new(&ab[3..], &ba[..2])];
        let balanced = Exact::balanced(&[Block::new(&ab, &ba)]);
        for set in [balanced, Exact::balanced(&machines), Exact::full(&[ab, ba].concat()), Exact::full(&ab)] {
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
    fn on_every_machine_as_many_of_either_order_change_places() {
        let blocks = [
            Block::new(&[0.3, -0.1], &[0.25, 0.7]),
            Block::new(&[-0.45, 0.2, 0.05], &[0.9, -0.6]),
            Block::new(&[1.1], &[0.4]),
        ];
        let set = Exact::balanced(&blocks);
        assert_eq!(set.len(), 6 * 10 * 2 - 1);
        let pairs: Vec<(usize, bool, f64)> = (0..)
            .zip(&blocks)
            .flat_map(|(at, b)| {
                b.ab.iter().map(move |d| (at, true, *d)).chain(b.ba.iter().map(move |d| (at, false, *d)))
            })
            .collect();
        let mut means = Vec::new();
        for chosen in 1..1_u32 << pairs.len() {
            let moved: Vec<_> = (0..pairs.len()).filter(|i| chosen >> i & 1 == 1).map(|i| pairs[i]).collect();
            let of = |at, order| moved.iter().filter(|(machine, ab, _)| (*machine, *ab) == (at, order)).count();
            if (0..3).all(|at| of(at, true) == of(at, false)) {
                means.push(moved.iter().map(|(_, _, d)| d).sum::<f64>() / moved.len() as f64);
            }
        }
        means.sort_unstable_by(f64::total_cmp);
        assert_eq!(means.len() as u64, set.len());
        for (k, mean) in (1..).zip(means) {
            assert!((set.nth(k) - mean).abs() < 1e-14, "member {k}");
        }
        // Sixteen pairs on each of two machines are counted; on each of three they are drawn.
        assert!(Exact::is_quick(&[(8, 8); 2]) && !Exact::is_quick(&[(8, 8); 3]) && !Exact::is_quick(&[(40, 40); 2]));
    }

    #[test]
    fn sums_of_subsets_are_sorted_by_size() {
        let sums = subset_sums(&[3.0, -1.0, 0.5]);
        assert_eq!(sums, [vec![0.0], vec![-1.0, 0.5, 3.0], vec![-0.5, 2.0, 3.5], vec![2.5]]);
    }
}
