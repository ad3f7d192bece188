//! The order of arms within pairs: random, balanced, and reproducible from a seed.
//!
//! Invariant: for every two arms, each runs before the other in exactly half of the pairs, and which half is uniformly random. This makes the flip
//! test's p exact.

pub use rand_chacha::ChaCha12Rng;
pub use rand_chacha::rand_core::Rng;
use rand_chacha::rand_core::SeedableRng;

/// The generator for everything random in a study. The same seed gives the same numbers on every machine.
pub fn rng(seed: u64) -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(seed)
}

/// Uniform in `0..bound`, without the bias of a remainder (Lemire 2019, "Fast random integer generation in an interval").
pub(crate) fn below(rng: &mut impl Rng, bound: u64) -> u64 {
    let reject = bound.wrapping_neg() % bound;
    loop {
        let product = u128::from(rng.next_u64()) * u128::from(bound);
        if product as u64 >= reject {
            return (product >> 64) as u64;
        }
    }
}

/// Fisher–Yates.
pub fn shuffle<T>(items: &mut [T], rng: &mut impl Rng) {
    for i in (1..items.len()).rev() {
        items.swap(i, below(rng, i as u64 + 1) as usize);
    }
}

/// For each of `pairs` pairs (an even number) of `arms` arms: the order in which the arms run, as indices of arms.
///
/// Half of the orders are random, the other half their reverses; then all are shuffled. With three arms or more, the random ones are as far as possible
/// whole Latin squares (the rotations of a random permutation), so that every arm has every place equally often. That is exact if `pairs` is a multiple
/// of twice the number of arms.
///
/// # Panics
/// `pairs` is odd, so that no order is balanced. A plan refuses that earlier.
pub fn balanced_orders(pairs: u32, arms: usize, rng: &mut impl Rng) -> Vec<Vec<usize>> {
    assert!(pairs.is_multiple_of(2), "An odd number of pairs ({pairs}) cannot be balanced");
    let mut orders = Vec::with_capacity(pairs as usize);
    let half = pairs as usize / 2;
    while orders.len() < 2 * half {
        let mut order: Vec<usize> = (0..arms).collect();
        shuffle(&mut order, rng);
        let missing = half - orders.len() / 2;
        // Two arms have two orders, each the other's reverse, and no square to complete.
        let square = if arms > 2 && missing >= arms { arms } else { 1 };
        for turned in 0..square {
            let mut order = order.clone();
            order.rotate_left(turned);
            let reverse = order.iter().rev().copied().collect();
            orders.push(order);
            orders.push(reverse);
        }
    }
    shuffle(&mut orders, rng);
    orders
}

/// Whether [`balanced_orders`] gives every arm every place equally often.
pub fn has_balanced_places(pairs: u32, arms: usize) -> bool {
    arms <= 2 || pairs.is_multiple_of(2 * arms as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_balanced_order_of_two_arms_is_as_likely() {
        let mut rng = rng(3);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6_000 {
            let orders: Vec<usize> = balanced_orders(4, 2, &mut rng).iter().map(|order| order[0]).collect();
            *seen.entry(orders).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 6);
        // Standard deviation 29.
        assert!(seen.values().all(|&n: &i32| (n - 1_000).abs() < 120), "{seen:?}");
    }

    #[test]
    fn whole_squares_give_every_arm_every_place_equally_often() {
        let is_balanced = |arms: usize, pairs: u32, seed| {
            let orders = balanced_orders(pairs, arms, &mut rng(seed));
            let times = |arm, place: usize| orders.iter().filter(|order| order[place] == arm).count();
            (0..arms).all(|arm| (0..arms).all(|place| times(arm, place) * arms == pairs as usize))
        };
        for (arms, pairs) in [(3, 6), (3, 12), (4, 16), (5, 20), (2, 8)] {
            assert!(has_balanced_places(pairs, arms) && (0..20).all(|seed| is_balanced(arms, pairs, seed)));
        }
        // Other numbers may be balanced by chance.
        assert!(!has_balanced_places(12, 4) && !(0..20).all(|seed| is_balanced(4, 12, seed)));
    }

    #[test]
    fn the_schedule_of_a_seed_never_changes() {
        // Plans store seeds, so this order is part of the format.
        let orders: Vec<usize> = balanced_orders(8, 2, &mut rng(7)).iter().map(|order| order[0]).collect();
        assert_eq!(orders, [0, 1, 1, 1, 0, 0, 0, 1]);
    }

    #[test]
    #[should_panic(expected = "cannot be balanced")]
    fn an_odd_number_of_pairs_is_refused() {
        balanced_orders(7, 2, &mut rng(0));
    }
}
