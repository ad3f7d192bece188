//! The units that the interval re-randomises: pairs, or in a study of rebuilt kernels builds, each with the mean of its pairs.
//!
//! Invariant: every value is in exactly one unit. Pairs that share a build share its layout, so they are never counted as independent.

use std::collections::BTreeMap;

use bigiron_model::plan::Design;
use bigiron_stats::Block;

use super::line::Order;

/// The place of a value: its pair, the machine on which that ran, and the order in which.
pub(super) type Place = (u32, u32, Order);

/// A pair's value, with the order in which it ran.
type Value<const K: usize> = (Order, [f64; K]);

/// The units of each machine that has any, by the order in which they ran, and in the order of their first pairs.
#[derive(Debug, PartialEq)]
pub(super) struct Units<const K: usize> {
    pub machines: BTreeMap<u32, Block<[f64; K]>>,
}

impl<const K: usize> Units<K> {
    /// `values`: of the pairs in the estimate.
    ///
    /// A build belongs to the order that most of its pairs have; where both are as frequent, the order has no effect on the mean, and all builds
    /// belong to one.
    pub(super) fn new(design: &Design, values: impl Iterator<Item = (Place, [f64; K])>) -> Self {
        // By unit: the machine, and the values of its pairs.
        let mut units: BTreeMap<u32, (u32, Vec<Value<K>>)> = BTreeMap::new();
        for ((pair, machine, order), value) in values {
            let unit = units.entry(design.build_of(pair).unwrap_or(pair)).or_insert((machine, Vec::new()));
            unit.1.push((order, value));
        }
        let mut found = Units { machines: BTreeMap::new() };
        for (machine, pairs) in units.into_values() {
            let ba = pairs.iter().filter(|(order, _)| *order == Order::Ba).count();
            let is_ba = !design.has_balanced_builds() && 2 * ba > pairs.len();
            let mean =
                std::array::from_fn(|k| pairs.iter().map(|(_, value)| value[k]).sum::<f64>() / pairs.len() as f64);
            let block = found.machines.entry(machine).or_default();
            if is_ba { &mut block.ba } else { &mut block.ab }.push(mean);
        }
        found
    }

    pub(super) fn len(&self) -> usize {
        self.machines.values().map(Block::len).sum()
    }

    /// What `of` makes of the values of each unit, machine by machine.
    pub(super) fn blocks<T>(&self, of: impl Fn(&[f64; K]) -> T) -> Vec<Block<T>> {
        let units = |units: &[[f64; K]]| units.iter().map(&of).collect();
        self.machines.values().map(|block| Block { ab: units(&block.ab), ba: units(&block.ba) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Order::{Ab, Ba};

    fn design(pairs: u32, rebuilds: Option<u32>) -> Design {
        Design { pairs, seed: 1, hang_cpu_seconds: 1, idle_gap_seconds: 0, rebuilds }
    }

    fn values(of: &[(Order, f64)]) -> impl Iterator<Item = (Place, [f64; 1])> {
        (0..).zip(of).map(|(pair, (order, d))| ((pair, 0, *order), [*d]))
    }

    fn one<const K: usize>(ab: &[[f64; K]], ba: &[[f64; K]]) -> Units<K> {
        Units { machines: BTreeMap::from([(0, Block::new(ab, ba))]) }
    }

    #[test]
    fn pairs_are_units_unless_kernels_were_rebuilt() {
        let pairs = [(Ab, 1.0), (Ba, 2.0), (Ba, 4.0), (Ab, 8.0)];
        let plain = Units::new(&design(4, None), values(&pairs));
        assert_eq!(plain, one(&[[1.0], [8.0]], &[[2.0], [4.0]]));
        // One pair for each build: the arithmetic of pairs.
        assert_eq!(Units::new(&design(4, Some(4)), values(&pairs)), plain);
        // Pairs 0 and 2, 1 and 3 share a build, and each build has both orders.
        let built = Units::new(&design(4, Some(2)), values(&pairs));
        assert_eq!(built, one(&[[2.5], [5.0]], &[]));
        assert_eq!((built.len(), built.blocks(|[d]| -d)), (2, vec![Block::new(&[-2.5, -5.0], &[])]));
    }

    #[test]
    fn each_machine_has_its_pairs() {
        let values = [((0, 0, Ab), [1.0]), ((1, 2, Ba), [2.0]), ((2, 0, Ba), [3.0]), ((3, 2, Ba), [4.0])];
        let units = Units::new(&design(4, None), values.into_iter());
        assert_eq!(units.len(), 4);
        assert_eq!(units.blocks(|[d]| 2.0 * d), [Block::new(&[2.0], &[6.0]), Block::new(&[], &[4.0, 8.0])]);
    }

    #[test]
    fn a_build_that_lost_pairs_is_a_unit_still() {
        // Three pairs for each of two builds; build 1 (pairs 1, 3, 5) has lost two.
        let left = [((0, 0, Ab), [1.0]), ((2, 0, Ab), [2.0]), ((4, 0, Ba), [6.0]), ((3, 0, Ba), [7.0])];
        let units = Units::new(&design(6, Some(2)), left.into_iter());
        assert_eq!(units, one(&[[3.0]], &[[7.0]]));
    }
}
