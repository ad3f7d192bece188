//! The exact flip interval and its p: inference for the mean log ratio of pairs.
//!
//! If the coin had fallen differently, some pairs would have changed places: their two boots would have belonged to the other arms. Under "the mean is
//! θ", such a re-randomisation has a larger mean than the observed one exactly when the mean of `D − θ` over the pairs that changed places is
//! negative. The set `T` of the means of `D` over all subsets that the design allows is therefore sufficient: the interval cuts off its tails, and p
//! counts in them. [`Flips`] says which subsets these are.
//!
//! Invariant: a value θ is outside `interval(alpha)` exactly when `p(θ) <= alpha` (up to rounding).
//!
//! `T` has C(N, h) − 1 or 2^N − 1 members, 2.7 or 16.8 million at 24 pairs, but is never stored: a member is the sum of a subset of one group of pairs
//! and a subset of another, so with both lists of subset sums sorted, counting the members up to θ is one merge for each combination of sizes. Beyond
//! the size where this is quick, seeded Monte-Carlo draws replace it, drawn once for all metrics of a [`Design`].
//!
//! With several machines the order is drawn on each by itself, so pairs change places within their machine's [`Block`] only: T then has ∏ C(n, n/2) − 1
//! members. No member depends on what running second costs on any machine.

mod block;
mod drawn;
mod exact;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use block::Block;
use block::Size;
pub(crate) use block::within_order_sd;
use drawn::{Drawn, Draws};
use exact::Exact;

/// Which pairs may change places in a re-randomisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flips {
    /// As many of either order: no member of `T` then depends on a constant effect of running second. The coin is the order of the pairs, drawn
    /// balanced. Right wherever the order of boots can have an effect.
    Balanced,
    /// As many of either order within each of this many machines, which have equally many pairs.
    Blocks(u32),
    /// Any: 2^N instead of C(N, N/2) alternatives. The coin is the draw of the boots' seeds, which are exchangeable between the arms of a pair. Right
    /// only where the order of boots cannot have an effect.
    Full,
}

/// Most pairs for which a full `T` is exact. It has more combinations of sizes than a balanced one: one merge for each of the 11² at 20 pairs.
const EXACT_FULL: usize = 20;

/// The number of pairs in either order on each machine, with the drawn re-randomisations if there are too many to count.
#[derive(Debug)]
pub struct Design {
    flips: Flips,
    sizes: Vec<Size>,
    draws: Option<Draws>,
}

impl Design {
    /// `ab`, `ba`: pairs run A-then-B and B-then-A. The numbers may differ if pairs were lost.
    ///
    /// `seed` matters only for large designs (balanced: above 16 pairs of one order; full: above 20 pairs), where 200,000 re-randomisations are drawn
    /// instead of counting all.
    pub fn new(flips: Flips, ab: usize, ba: usize, seed: u64) -> Design {
        Design::of(flips, &[(ab, ba)], seed)
    }

    /// A design of several machines. Every machine has pairs of both orders, or there is only one.
    fn of(flips: Flips, sizes: &[Size], seed: u64) -> Design {
        let draws = match flips {
            Flips::Balanced | Flips::Blocks(_) => {
                (!lacks_order(sizes) && !Exact::is_quick(sizes)).then(|| Draws::balanced(sizes, seed))
            }
            Flips::Full => {
                let pairs = sizes.iter().map(|(ab, ba)| ab + ba).sum();
                (pairs > EXACT_FULL).then(|| Draws::full(pairs, seed))
            }
        };
        Design { flips, sizes: sizes.to_vec(), draws }
    }

    /// `ab`, `ba`: D = ln(B/A) of the design's pairs. If a value is not finite there is no distribution: no interval, and every p is 1.
    ///
    /// # Panics
    /// Their numbers differ from the design's.
    pub fn flip(&self, ab: &[f64], ba: &[f64]) -> Flip {
        self.flip_complete(&[Block::new(ab, ba)])
    }

    fn flip_complete(&self, blocks: &[Block]) -> Flip {
        let sizes: Vec<Size> = blocks.iter().map(Block::size).collect();
        assert_eq!(sizes, self.sizes, "A design is of this many pairs of either order");
        let all: Vec<f64> = blocks.iter().flat_map(|block| block.ab.iter().chain(&block.ba)).copied().collect();
        let finite = all.iter().all(|d| d.is_finite());
        let scale = all.iter().fold(0.0_f64, |m, d| m.max(d.abs()));
        let empty = match self.flips {
            Flips::Balanced | Flips::Blocks(_) => lacks_order(&sizes),
            Flips::Full => all.is_empty(),
        };
        let set = match (&self.draws, self.flips) {
            _ if !finite || empty => Set::Drawn(Drawn::none()),
            (None, Flips::Balanced | Flips::Blocks(_)) => Set::Exact(Exact::balanced(blocks)),
            (None, Flips::Full) => Set::Exact(Exact::full(&all)),
            (Some(draws), _) => Set::Drawn(Drawn::new(&draws.means(&all))),
        };
        let pairs = all.len();
        let (mean, sd) = match self.flips {
            Flips::Balanced | Flips::Blocks(_) => (Block::mean_of(blocks), Block::sd_of(blocks)),
            Flips::Full => (Block::new(&all, &[]).mean(), within_order_sd(&all, &[])),
        };
        Flip { mean, sd, pairs, scale, rerandomisations: set.len() + 1, set }
    }
}

/// Whether an order has no pairs, so that there is no other outcome of the coin.
fn lacks_order(sizes: &[Size]) -> bool {
    sizes.iter().any(|(ab, ba)| *ab == 0 || *ba == 0)
}

/// The designs of one study: the planned one, and those of metrics that lack pairs. Each is drawn on first use.
#[derive(Debug)]
pub struct Designs {
    flips: Flips,
    seed: u64,
    by_size: Mutex<BTreeMap<Vec<Size>, Arc<OnceLock<Design>>>>,
}

impl Designs {
    pub fn new(flips: Flips, seed: u64) -> Designs {
        Designs { flips, seed, by_size: Mutex::new(BTreeMap::new()) }
    }

    /// [`Design::flip`] of the design with the sizes of `ab` and `ba`.
    pub fn flip(&self, ab: &[f64], ba: &[f64]) -> Flip {
        self.flip_blocks(&[Block::new(ab, ba)])
    }

    /// The same for the pairs of several machines. What a machine has left of one order only is exchanged with another machine's pairs.
    pub fn flip_blocks(&self, blocks: &[Block]) -> Flip {
        let blocks = Block::complete(blocks);
        let sizes: Vec<Size> = blocks.iter().map(Block::size).collect();
        // Other threads may request other sizes while one is drawn.
        let mut by_size = self.by_size.lock().unwrap_or_else(PoisonError::into_inner);
        let design = Arc::clone(by_size.entry(sizes.clone()).or_default());
        drop(by_size);
        design.get_or_init(|| Design::of(self.flips, &sizes, self.seed)).flip_complete(&blocks)
    }
}

/// Log ratios of the pairs, split by the order in which the pair's two arms ran.
#[derive(Debug, Clone)]
pub struct Flip {
    mean: f64,
    sd: f64,
    pairs: usize,
    scale: f64,
    /// Number of members of `T`, plus one for the identity.
    rerandomisations: u64,
    set: Set,
}

/// `T`.
#[derive(Debug, Clone)]
enum Set {
    Exact(Exact),
    Drawn(Drawn),
}

impl Flip {
    /// [`Design::flip`] of a new design.
    pub fn new(flips: Flips, ab: &[f64], ba: &[f64], seed: u64) -> Flip {
        Design::new(flips, ab.len(), ba.len(), seed).flip(ab, ba)
    }

    /// The estimate. With [`Flips::Full`] it is the mean of D; otherwise the mean over the two orders of the mean of D, which is the same with equally
    /// many pairs of either order. If pairs were lost on one side it is still free of an effect of running second. Either is the mean of all
    /// re-randomisations. Of several machines it is the mean of theirs, weighted by their pairs.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Standard deviation of D: the noise in the interval; unless flips are full, around the mean of its order. 0 if there are fewer than 3 pairs.
    pub fn sd(&self) -> f64 {
        self.sd
    }

    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// C(N, h), ∏ C(n, n/2) or 2^N: the number of re-randomisations, including the observed one.
    pub fn rerandomisations(&self) -> u64 {
        self.rerandomisations
    }

    /// The interval with confidence `1 − alpha`; `None` if the design has too few re-randomisations.
    pub fn interval(&self, alpha: f64) -> Option<(f64, f64)> {
        // The addend keeps a product that is a whole number from being rounded below it.
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

    /// The smallest two-sided p possible in this design.
    pub fn smallest_p(&self) -> f64 {
        (2.0 / self.rerandomisations as f64).min(1.0)
    }

    /// Members of `T` that would equal θ in exact arithmetic must count as equal: rounding must not turn a tie into evidence.
    fn slack(&self, theta: f64) -> f64 {
        64.0 * f64::EPSILON * self.scale.max(theta.abs())
    }
}

impl Set {
    fn len(&self) -> u64 {
        match self {
            Set::Exact(exact) => exact.len(),
            Set::Drawn(drawn) => drawn.len(),
        }
    }

    /// Number of members that are at most `x`.
    fn count_le(&self, x: f64) -> u64 {
        match self {
            Set::Exact(exact) => exact.count_le(x),
            Set::Drawn(drawn) => drawn.count_le(x),
        }
    }

    /// The `k`-th smallest member, counted from 1.
    fn nth(&self, k: u64) -> f64 {
        match self {
            Set::Exact(exact) => exact.nth(k),
            Set::Drawn(drawn) => drawn.nth(k),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balanced(ab: &[f64], ba: &[f64], seed: u64) -> Flip {
        Flip::new(Flips::Balanced, ab, ba, seed)
    }

    fn full(d: &[f64], seed: u64) -> Flip {
        Flip::new(Flips::Full, d, &[], seed)
    }

    fn sample(n: usize) -> Vec<f64> {
        // Irregular and without ties.
        (0..n).map(|i| ((i * i * 7 + 3 * i) % 23) as f64 / 100.0 - 0.1 + i as f64 * 1e-4).collect()
    }

    #[test]
    fn counts_all_rerandomisations() {
        for (sizes, c) in
            [((4, 4), 70), ((5, 5), 252), ((6, 6), 924), ((4, 6), 210), ((12, 12), 2_704_156), ((16, 16), 601_080_390)]
        {
            assert_eq!(balanced(&sample(sizes.0), &sample(sizes.1), 0).rerandomisations(), c);
        }
    }

    #[test]
    fn a_full_flip_counts_all_subsets_and_no_order() {
        for n in [1, 6, 8, 20] {
            assert_eq!(full(&sample(n), 0).rerandomisations(), 1 << n);
        }
        // 2/256 allows what 2/70 does not; and how pairs are split by order has no effect.
        assert_eq!(full(&sample(8), 0).smallest_p(), 2.0 / 256.0);
        let (d, theta) = (sample(9), 0.013);
        let split = Flip::new(Flips::Full, &d[..3], &d[3..], 0);
        assert_eq!((split.interval(0.05), split.p(theta), split.mean(), split.sd()), {
            let whole = full(&d, 0);
            (whole.interval(0.05), whole.p(theta), whole.mean(), whole.sd())
        });
        assert!(full(&sample(5), 0).interval(0.05).is_none() && full(&sample(6), 0).interval(0.05).is_some());
        assert_eq!(full(&[], 0).interval(0.05), None);
    }

    #[test]
    fn no_interval_where_the_design_is_too_small() {
        let three = balanced(&sample(3), &sample(3), 0);
        assert_eq!(three.interval(0.05), None);
        assert!(three.interval(0.10).is_some());
        assert_eq!(three.smallest_p(), 0.1);
        // With one order missing, there is no other outcome of the coin.
        let one_order = balanced(&sample(8), &[], 0);
        assert_eq!((one_order.interval(0.10), one_order.p(0.0)), (None, 1.0));
        assert!(one_order.mean().is_finite());
        let nothing = balanced(&[], &[], 0);
        assert!(nothing.mean().is_nan() && nothing.interval(0.5).is_none());
    }

    #[test]
    fn a_value_that_is_not_finite_gives_no_result() {
        let flip = balanced(&[0.1, f64::NEG_INFINITY, 0.2, 0.1], &[0.1, 0.1, 0.1, f64::NAN], 0);
        assert_eq!((flip.interval(0.05), flip.p(0.0)), (None, 1.0));
    }

    #[test]
    fn draws_agree_with_the_exact_distribution() {
        let (ab, ba) = (sample(8), sample(8).iter().map(|x| x * 1.3 - 0.02).collect::<Vec<_>>());
        let exact = Set::Exact(Exact::balanced(&[Block::new(&ab, &ba)]));
        let drawn = Set::Drawn(Drawn::new(&Draws::balanced(&[(8, 8)], 7).means(&[&ab[..], &ba].concat())));
        let all = [&ab[..], &ba].concat();
        let full = (Set::Exact(Exact::full(&all)), Set::Drawn(Drawn::new(&Draws::full(16, 7).means(&all))));
        for ((exact, drawn), share) in [(exact, drawn), full]
            .iter()
            .flat_map(|sets| [0.025, 0.05, 0.25, 0.5, 0.95, 0.975].map(|share| (sets, share)))
        {
            let nth = |set: &Set| set.nth((share * set.len() as f64) as u64);
            let at = nth(drawn);
            let found = exact.count_le(at) as f64 / exact.len() as f64;
            // Four standard errors of a share of 200,000 draws, and one member of the exact set.
            let allowed = 4.0 * (share * (1.0 - share) / drawn::DRAWS as f64).sqrt() + 1.0 / exact.len() as f64;
            assert!((found - share).abs() <= allowed, "{found} instead of {share}");
        }
    }

    #[test]
    fn large_designs_are_drawn_and_repeatable() {
        let (ab, ba) = (sample(17), sample(18));
        let flip = balanced(&ab, &ba, 1);
        assert_eq!(flip.rerandomisations(), drawn::DRAWS as u64 + 1);
        assert_eq!(flip.interval(0.05), balanced(&ab, &ba, 1).interval(0.05));
        assert_ne!(flip.interval(0.05), balanced(&ab, &ba, 2).interval(0.05));
        let (low, high) = flip.interval(0.05).unwrap();
        assert!(low < flip.mean() && flip.mean() < high);
        let flip = full(&sample(21), 1);
        assert_eq!(flip.rerandomisations(), drawn::DRAWS as u64 + 1);
        let (low, high) = flip.interval(0.05).unwrap();
        assert!(low < flip.mean() && flip.mean() < high);
    }

    #[test]
    fn all_metrics_of_a_study_see_the_same_draws() {
        let designs = Designs::new(Flips::Balanced, 1);
        for (ab, ba) in
            [(sample(17), sample(18)), (sample(18), sample(17)), (sample(4), sample(4)), (sample(18), sample(17))]
        {
            let (one, other) = (designs.flip(&ab, &ba), balanced(&ab, &ba, 1));
            assert_eq!((one.interval(0.05), one.p(0.01)), (other.interval(0.05), other.p(0.01)));
        }
        assert_eq!(designs.by_size.lock().unwrap().len(), 3);
    }

    #[test]
    fn a_constant_effect_is_no_evidence_against_itself_in_a_large_design() {
        // In exact arithmetic every member of `T` is .1: a tie, however the sums of a hundred values are rounded.
        let flip = balanced(&[0.1; 100], &[0.1; 100], 0);
        assert_eq!((flip.p(0.1), flip.p_greater(0.1), flip.p_less(0.1)), (1.0, 1.0, 1.0));
        assert_eq!(flip.p(0.11), flip.smallest_p());
    }

    #[test]
    fn pairs_lost_on_one_side_do_not_let_the_order_in() {
        // No effect, and the second place is 10 % slower: the plain mean of D would be .1 · (6 − 4)/10.
        let flip = balanced(&[0.1; 6], &[-0.1; 4], 0);
        assert!(flip.mean().abs() < 1e-15 && flip.sd() < 1e-15);
        let (low, high) = flip.interval(0.05).unwrap();
        assert!(low.abs() < 1e-15 && high.abs() < 1e-15);
    }
}
