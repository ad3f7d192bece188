//! Drawn re-randomisations, used if there are too many to count: the pairs that change places in each are drawn once for a design, for all metrics.
//!
//! Invariant: the draws depend only on the sizes of the two orders and on the seed, so every metric of a study sees the same ones.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::Rng;

use super::block::Size;
use crate::order;

/// Monte-Carlo draws: the standard error of a p of .05 is then .0005.
pub(super) const DRAWS: usize = 200_000;

/// Pairs in one byte of a draw.
const BYTE: usize = 8;

/// Sums of all subsets of eight pairs, indexed by the byte whose bits select the pairs.
type Table = [f64; 1 << BYTE];

/// Draws of a design.
#[derive(Debug)]
pub(super) struct Draws {
    pairs: usize,
    /// For each draw, one bit per pair, machine by machine and with the pairs run A-then-B first: 1 if the pair changes places. Each draw begins on a
    /// new byte.
    moved: Vec<u8>,
    /// For each draw: 1 / (number of pairs that change places).
    weights: Vec<f64>,
}

impl Draws {
    /// Draws as the experiment does: on each machine a random `ab` of all pairs, all equally likely, run A-then-B; pairs whose order differs from before
    /// have changed places.
    pub(super) fn balanced(sizes: &[Size], seed: u64) -> Draws {
        let pairs = sizes.iter().map(|(ab, ba)| ab + ba).sum::<usize>();
        let mut rng = order::rng(seed);
        let bytes = pairs.div_ceil(BYTE);
        let mut draws = Draws { pairs, moved: Vec::with_capacity(DRAWS * bytes), weights: Vec::with_capacity(DRAWS) };
        let mut drawn = vec![0; pairs.div_ceil(64)];
        let mut of_machine: Vec<Vec<u64>> = sizes.iter().map(|(ab, ba)| vec![0; (ab + ba).div_ceil(64)]).collect();
        while draws.weights.len() < DRAWS {
            drawn.fill(0);
            let mut at = 0;
            for (&(ab, ba), moved) in sizes.iter().zip(&mut of_machine) {
                subset(moved, ab + ba, ab, &mut rng);
                for (word, bits) in moved.iter_mut().enumerate() {
                    *bits ^= low_bits(ab.saturating_sub(64 * word));
                }
                place(&mut drawn, at, moved);
                at += ab + ba;
            }
            draws.add(&drawn, bytes);
        }
        draws
    }

    /// Draws for designs in which any pairs may change places, each with probability one half; at least one does.
    pub(super) fn full(pairs: usize, seed: u64) -> Draws {
        let (words, bytes) = (pairs.div_ceil(64), pairs.div_ceil(BYTE));
        let mut rng = order::rng(seed);
        let mut draws = Draws { pairs, moved: Vec::with_capacity(DRAWS * bytes), weights: Vec::with_capacity(DRAWS) };
        while draws.weights.len() < DRAWS {
            let drawn: Vec<u64> = (0..words).map(|word| rng.next_u64() & low_bits(pairs - 64 * word)).collect();
            draws.add(&drawn, bytes);
        }
        draws
    }

    /// Adds a draw, unless it is the identity, which is counted separately.
    fn add(&mut self, drawn: &[u64], bytes: usize) {
        let moved: u32 = drawn.iter().map(|word| word.count_ones()).sum();
        if moved > 0 {
            self.moved.extend(drawn.iter().flat_map(|word| word.to_le_bytes()).take(bytes));
            self.weights.push(1.0 / f64::from(moved));
        }
    }

    /// For each draw, the mean of D over the pairs that change places; D is in the order of the bits.
    pub(super) fn means(&self, d: &[f64]) -> Vec<f64> {
        assert_eq!(d.len(), self.pairs, "A design has draws for its own pairs");
        let tables: Vec<Table> = d.chunks(BYTE).map(table).collect();
        let rows = self.moved.chunks_exact(tables.len());
        rows.zip(&self.weights)
            .map(|(row, weight)| {
                let sum: f64 = tables.iter().zip(row).map(|(table, byte)| table[usize::from(*byte)]).sum();
                sum * weight
            })
            .collect()
    }
}

fn low_bits(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// Sets in `bits`, from bit `at` on, the bits that are set in `of`.
fn place(bits: &mut [u64], at: usize, of: &[u64]) {
    for (word, value) in (at / 64..).zip(of) {
        bits[word] |= value << (at % 64);
        let rest = if at.is_multiple_of(64) { 0 } else { value >> (64 - at % 64) };
        if rest != 0 {
            bits[word + 1] |= rest;
        }
    }
}

/// A random subset of `size` of the first `of` bits, all equally likely. Bits are drawn independently; then randomly chosen surplus or missing bits
/// are flipped until the size is right. No step distinguishes one bit from another, so no subset of that size is preferred.
fn subset(bits: &mut [u64], of: usize, size: usize, rng: &mut ChaCha12Rng) {
    for (i, word) in bits.iter_mut().enumerate() {
        *word = rng.next_u64() & low_bits(of - 64 * i);
    }
    let mut count: usize = bits.iter().map(|word| word.count_ones() as usize).sum();
    while count != size {
        let at = order::below(rng, of as u64) as usize;
        let (word, bit) = (&mut bits[at / 64], 1 << (at % 64));
        let is_set = *word & bit != 0;
        if is_set == (count > size) {
            *word ^= bit;
            count = if is_set { count - 1 } else { count + 1 };
        }
    }
}

fn table(d: &[f64]) -> Table {
    let mut table = [0.0; 1 << BYTE];
    for subset in 1..1_usize << d.len() {
        table[subset] = table[subset & (subset - 1)] + d[subset.trailing_zeros() as usize];
    }
    table
}

/// Number of buckets of equal width into which members are sorted.
const BUCKETS: usize = 1024;

/// Drawn members, sorted only as far as counts and quantiles need: by bucket, but not within buckets.
#[derive(Debug, Clone)]
pub(super) struct Drawn {
    members: Vec<f64>,
    /// For each bucket, the index of its first member in `members`; one more entry for the end.
    begins: Vec<usize>,
    min: f64,
    /// Buckets in one unit of the members.
    per_unit: f64,
}

impl Drawn {
    /// No members, so no distribution.
    pub(super) fn none() -> Drawn {
        Drawn::new(&[])
    }

    pub(super) fn new(members: &[f64]) -> Drawn {
        let min = members.iter().copied().fold(f64::INFINITY, f64::min);
        let max = members.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut drawn = Drawn {
            members: vec![0.0; members.len()],
            begins: vec![0; BUCKETS + 1],
            min,
            per_unit: BUCKETS as f64 / (max - min),
        };
        for member in members {
            let bucket = drawn.bucket(*member);
            drawn.begins[bucket + 1] += 1;
        }
        for i in 0..BUCKETS {
            drawn.begins[i + 1] += drawn.begins[i];
        }
        let mut next = drawn.begins.clone();
        for member in members {
            let place = &mut next[drawn.bucket(*member)];
            drawn.members[*place] = *member;
            *place += 1;
        }
        drawn
    }

    /// A greater value is never in a smaller bucket, because both steps round monotonically. If all members are equal, the product is NaN, which
    /// casts to 0.
    fn bucket(&self, x: f64) -> usize {
        (((x - self.min) * self.per_unit) as usize).min(BUCKETS - 1)
    }

    pub(super) fn len(&self) -> u64 {
        self.members.len() as u64
    }

    fn members_of(&self, bucket: usize) -> &[f64] {
        &self.members[self.begins[bucket]..self.begins[bucket + 1]]
    }

    /// Number of members that are at most `x`.
    pub(super) fn count_le(&self, x: f64) -> u64 {
        let bucket = self.bucket(x);
        let within = self.members_of(bucket).iter().filter(|member| **member <= x).count();
        (self.begins[bucket] + within) as u64
    }

    /// The `k`-th smallest member, counted from 1.
    pub(super) fn nth(&self, k: u64) -> f64 {
        let rank = k as usize - 1;
        let bucket = self.begins.partition_point(|begin| *begin <= rank) - 1;
        let mut members = self.members_of(bucket).to_vec();
        *members.select_nth_unstable_by(rank - self.begins[bucket], f64::total_cmp).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subset_is_as_likely() {
        for (of, size) in [(5, 2), (4, 1), (6, 5)] {
            let mut rng = order::rng(11);
            let mut seen = std::collections::BTreeMap::new();
            for _ in 0..30_000 {
                let mut bits = [0];
                subset(&mut bits, of, size, &mut rng);
                assert_eq!(bits[0].count_ones() as usize, size);
                *seen.entry(bits[0]).or_insert(0) += 1;
            }
            let choices = (0..1_u64 << of).filter(|set| set.count_ones() as usize == size).count();
            assert_eq!(seen.len(), choices);
            let expected = 30_000.0 / choices as f64;
            // Five standard deviations of a binomial.
            let allowed = 5.0 * (expected * (1.0 - 1.0 / choices as f64)).sqrt();
            assert!(seen.values().all(|n| (f64::from(*n) - expected).abs() < allowed), "{size} of {of}: {seen:?}");
        }
    }

    #[test]
    fn as_many_of_either_order_change_places() {
        let (ab, ba) = (70, 61);
        let draws = Draws::balanced(&[(ab, ba)], 3);
        assert_eq!((draws.weights.len(), draws.moved.len()), (DRAWS, DRAWS * 17));
        for (row, weight) in draws.moved.chunks_exact(17).zip(&draws.weights).step_by(1000) {
            let is_moved = |pair: usize| row[pair / 8] >> (pair % 8) & 1 == 1;
            let moved = |pairs: std::ops::Range<usize>| pairs.filter(|pair| is_moved(*pair)).count();
            let (of_ab, of_ba) = (moved(0..ab), moved(ab..ab + ba));
            assert_eq!(of_ab, of_ba);
            assert_eq!(*weight, 1.0 / (of_ab + of_ba) as f64);
            assert_eq!(moved(ab + ba..17 * 8), 0);
        }
    }

    #[test]
    fn on_every_machine_as_many_of_either_order_change_places() {
        let sizes = [(9, 8), (40, 40), (30, 31)];
        let draws = Draws::balanced(&sizes, 3);
        for row in draws.moved.chunks_exact(20).step_by(1000) {
            let mut at = 0;
            for (ab, ba) in sizes {
                let moved = |pairs: std::ops::Range<usize>| pairs.filter(|i| row[i / 8] >> (i % 8) & 1 == 1).count();
                assert_eq!(moved(at..at + ab), moved(at + ab..at + ab + ba));
                at += ab + ba;
            }
        }
    }

    #[test]
    fn in_full_draws_every_pair_changes_places_half_the_time() {
        let draws = Draws::full(21, 3);
        assert_eq!((draws.weights.len(), draws.moved.len()), (DRAWS, DRAWS * 3));
        for pair in 0..21 {
            let moved = draws.moved.chunks_exact(3).filter(|row| row[pair / 8] >> (pair % 8) & 1 == 1).count();
            // Five standard deviations.
            assert!(moved.abs_diff(DRAWS / 2) < 1_120, "pair {pair}: {moved}");
        }
        assert!(draws.moved.chunks_exact(3).all(|row| row[2] >> 5 == 0));
    }

    #[test]
    fn a_mean_is_that_of_the_pairs_that_change_places() {
        let draws = Draws::balanced(&[(17, 20)], 5);
        let d: Vec<f64> = (0..37).map(|i| f64::from(i * i % 17) - 3.5).collect();
        let means = draws.means(&d);
        for (row, mean) in draws.moved.chunks_exact(5).zip(&means).step_by(997) {
            let moved: Vec<f64> =
                (0..37).filter(|pair| row[pair / 8] >> (pair % 8) & 1 == 1).map(|pair| d[pair]).collect();
            assert!((mean - moved.iter().sum::<f64>() / moved.len() as f64).abs() < 1e-12);
        }
    }

    #[test]
    fn buckets_count_and_rank_as_a_sorted_list_does() {
        let many: Vec<f64> = (0..5_000).map(|i| f64::from(i * 7919 % 5_003) * 0.001 - 2.0).collect();
        let outlier: Vec<f64> = many.iter().copied().chain([1e12, 1e12]).collect();
        for members in [many, outlier, vec![0.25; 9], vec![1.0, 1.0 + f64::EPSILON], vec![-0.0, 0.0, f64::MIN_POSITIVE]]
        {
            let drawn = Drawn::new(&members);
            let mut sorted = members.clone();
            sorted.sort_unstable_by(f64::total_cmp);
            for (i, member) in sorted.iter().enumerate().step_by(1 + members.len() / 300) {
                assert_eq!(drawn.nth(i as u64 + 1), *member);
                for x in [member.next_down(), *member, member.next_up()] {
                    assert_eq!(drawn.count_le(x) as usize, sorted.partition_point(|m| *m <= x), "{x}");
                }
            }
            assert_eq!((drawn.count_le(-1e300), drawn.count_le(1e300)), (0, drawn.len()));
        }
        assert_eq!((Drawn::none().len(), Drawn::none().count_le(0.0)), (0, 0));
    }
}
