//! The units that the interval re-randomises: pairs, or in a study of rebuilt kernels builds, each with the mean of its pairs.
//!
//! Invariant: every value is in exactly one unit. Pairs that share a build share its layout, so they are never counted as independent.

use std::collections::BTreeMap;

use bigiron_model::plan::Design;

use super::line::Order;

/// The place of a value: its pair, and the order in which that ran.
pub(super) type Place = (u32, Order);

/// The units by the order in which they ran, in the order of their first pairs.
#[derive(Debug, PartialEq)]
pub(super) struct Units<const K: usize> {
    pub ab: Vec<[f64; K]>,
    pub ba: Vec<[f64; K]>,
}

impl<const K: usize> Units<K> {
    /// `values`: of the pairs in the estimate.
    ///
    /// A build belongs to the order that most of its pairs have; where both are as frequent, the order has no effect on the mean, and all builds
    /// belong to one.
    pub(super) fn new(design: &Design, values: impl Iterator<Item = (Place, [f64; K])>) -> Self {
        let mut units: BTreeMap<u32, Vec<(Order, [f64; K])>> = BTreeMap::new();
        for ((pair, order), value) in values {
            units.entry(design.build_of(pair).unwrap_or(pair)).or_default().push((order, value));
        }
        let mut found = Units { ab: Vec::new(), ba: Vec::new() };
        for pairs in units.into_values() {
            let ba = pairs.iter().filter(|(order, _)| *order == Order::Ba).count();
            let is_ba = !design.has_balanced_builds() && 2 * ba > pairs.len();
            let mean =
                std::array::from_fn(|k| pairs.iter().map(|(_, value)| value[k]).sum::<f64>() / pairs.len() as f64);
            if is_ba { &mut found.ba } else { &mut found.ab }.push(mean);
        }
        found
    }

    pub(super) fn len(&self) -> usize {
        self.ab.len() + self.ba.len()
    }

    /// Value `k` of the units of either order, multiplied by `sign`.
    pub(super) fn split(&self, k: usize, sign: f64) -> (Vec<f64>, Vec<f64>) {
        let of = |units: &[[f64; K]]| units.iter().map(|unit| sign * unit[k]).collect();
        (of(&self.ab), of(&self.ba))
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
        (0..).zip(of).map(|(pair, (order, d))| ((pair, *order), [*d]))
    }

    #[test]
    fn pairs_are_units_unless_kernels_were_rebuilt() {
        let pairs = [(Ab, 1.0), (Ba, 2.0), (Ba, 4.0), (Ab, 8.0)];
        let plain = Units::new(&design(4, None), values(&pairs));
        assert_eq!(plain, Units { ab: vec![[1.0], [8.0]], ba: vec![[2.0], [4.0]] });
        // One pair for each build: the arithmetic of pairs.
        assert_eq!(Units::new(&design(4, Some(4)), values(&pairs)), plain);
        // Pairs 0 and 2, 1 and 3 share a build, and each build has both orders.
        let built = Units::new(&design(4, Some(2)), values(&pairs));
        assert_eq!(built, Units { ab: vec![[2.5], [5.0]], ba: vec![] });
        assert_eq!((built.len(), built.split(0, -1.0)), (2, (vec![-2.5, -5.0], vec![])));
    }

    #[test]
    fn a_build_that_lost_pairs_is_a_unit_still() {
        // Three pairs for each of two builds; build 1 (pairs 1, 3, 5) has lost two.
        let left = [((0, Ab), [1.0]), ((2, Ab), [2.0]), ((4, Ba), [6.0]), ((3, Ba), [7.0])];
        let units = Units::new(&design(6, Some(2)), left.into_iter());
        assert_eq!(units, Units { ab: vec![[3.0]], ba: vec![[7.0]] });
    }
}
