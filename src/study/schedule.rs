//! The schedule: all boots are drawn before the first.
//!
//! Invariants: the order of arms is balanced over pairs; everything except boot seed and jitter is equal for all arms of a pair;
//! the same seed gives the same schedule on every machine.

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use bigiron_model::plan::Slot;
use bigiron_stats::order::{Rng, balanced_orders, rng, shuffle};

/// Seeds stay below this, so that they are exact wherever they are written: TOML's integers are signed, and JSON readers may
/// store numbers as doubles.
pub const SEED_LIMIT: u64 = 1 << 53;

/// Jitter stays below one period of the slowest timer tick (100 Hz) in instructions of the exact clock, so that every phase can
/// occur.
const JITTER_LIMIT: u32 = 10_000_000;

/// What pairs go round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// Images of each arm; the number of pairs is a multiple of theirs.
    Builds(u32),
    /// Machines, of which each has an even number of pairs. One is usual.
    Machines(u32),
}

/// Draws `pairs × arms` slots in order of execution. `pairs` must be even.
pub fn draw(seed: u64, pairs: u32, rounds: Rounds, arms: usize, workloads: usize) -> Vec<Slot> {
    let rng = &mut rng(seed);
    let mut slots = Vec::with_capacity(pairs as usize * arms);
    let mut boot_seeds = std::collections::HashSet::new();
    let (orders, machines) = match rounds {
        Rounds::Builds(builds) => (orders_in_rounds(pairs, builds, arms, rng), 1),
        Rounds::Machines(1) => (balanced_orders(pairs, arms, rng), 1),
        Rounds::Machines(machines) => (orders_in_rounds(pairs, machines, arms, rng), machines),
    };
    for (pair, arms) in (0..).zip(orders) {
        let workload_seed = rng.next_u64() % SEED_LIMIT;
        let mut order: Vec<usize> = (0..workloads).collect();
        shuffle(&mut order, rng);
        for (position, arm) in (0..).zip(arms) {
            let boot_seed = loop {
                let seed = rng.next_u64() % SEED_LIMIT;
                if boot_seeds.insert(seed) {
                    break seed;
                }
            };
            slots.push(Slot {
                slot: slots.len() as u32,
                pair,
                position,
                arm,
                machine: pair % machines,
                workload_seed,
                boot_seed,
                jitter: rng.next_u32() % JITTER_LIMIT,
                order: order.clone(),
            });
        }
    }
    slots
}

/// The orders of pairs that go round `of` images or machines: balanced over all, and within each as far as the number of its pairs allows.
fn orders_in_rounds(pairs: u32, of: u32, arms: usize, rng: &mut impl Rng) -> Vec<Vec<usize>> {
    let each = pairs / of;
    let mut orders: Vec<_> = (0..of).map(|_| balanced_orders(each / 2 * 2, arms, rng)).collect();
    if !each.is_multiple_of(2) {
        let rest = balanced_orders(of, arms, rng);
        orders.iter_mut().zip(rest).for_each(|(orders, rest)| orders.push(rest));
    }
    (0..each as usize).flat_map(|round| orders.iter().map(move |orders| orders[round].clone())).collect()
}

/// The seeds of the layouts of `builds` images of each of `arms` arms: those of two arms have nothing to do with each other, so that either may as well
/// belong to the other arm.
pub fn layouts(seed: u64, builds: u32, arms: usize) -> Vec<Vec<u64>> {
    let of = |arm: usize, build: u32| {
        let hash = Sha256::digest(format!("layout {seed} {arm} {build}"));
        u64::from_le_bytes(hash[..8].try_into().expect("a hash has 32 bytes")) % SEED_LIMIT
    };
    (0..arms).map(|arm| (0..builds).map(|build| of(arm, build)).collect()).collect()
}

/// A seed from the system's randomness.
pub fn draw_seed() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).context("No randomness for a seed")?;
    Ok(u64::from_le_bytes(bytes) % SEED_LIMIT)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slots_are_balanced_and_paired(seed in 0..SEED_LIMIT, half in 1u32..12, arms in 2usize..6, workloads in 1usize..5) {
            let pairs = half * 2;
            let slots = draw(seed, pairs, Rounds::Machines(1), arms, workloads);
            prop_assert_eq!(slots.len(), pairs as usize * arms);
            prop_assert!(slots.iter().zip(0..).all(|(s, i)| s.slot == i));
            for a in 0..arms {
                for b in 0..arms {
                    let first = slots.chunks(arms).filter(|pair| {
                        let position = |arm| pair.iter().position(|s| s.arm == arm).unwrap();
                        a != b && position(a) < position(b)
                    });
                    prop_assert!(a == b || first.count() == half as usize);
                }
            }
            for pair in slots.chunks(arms) {
                prop_assert!(pair.iter().all(|s| s.pair == pair[0].pair && s.order == pair[0].order));
                prop_assert!(pair.iter().all(|s| s.workload_seed == pair[0].workload_seed));
                let mut order = pair[0].order.clone();
                order.sort_unstable();
                prop_assert_eq!(order, (0..workloads).collect::<Vec<_>>());
            }
            let boots: HashSet<u64> = slots.iter().map(|s| s.boot_seed).collect();
            prop_assert_eq!(boots.len(), slots.len());
            let works: HashSet<u64> = slots.iter().map(|s| s.workload_seed).collect();
            prop_assert_eq!(works.len(), pairs as usize);
            prop_assert_eq!(draw(seed, pairs, Rounds::Machines(1), arms, workloads), slots);
        }

        #[test]
        fn every_build_has_its_pairs_in_both_orders(seed in 0..SEED_LIMIT, builds in 1u32..12, rounds in 1u32..6) {
            let each = if builds.is_multiple_of(2) { rounds } else { 2 * rounds };
            let slots = draw(seed, builds * each, Rounds::Builds(builds), 2, 1);
            prop_assert_eq!(slots.len() as u32, 2 * builds * each);
            let mut a_first = vec![0; builds as usize];
            for pair in slots.chunks(2) {
                prop_assert!(pair[0].pair == pair[1].pair && pair[0].arm != pair[1].arm);
                a_first[(pair[0].pair % builds) as usize] += u32::from(pair[0].arm == 0);
            }
            prop_assert_eq!(2 * a_first.iter().sum::<u32>(), builds * each);
            prop_assert!(a_first.iter().all(|n| n.abs_diff(each - n) == each % 2), "{:?}", a_first);
        }

        #[test]
        fn every_machine_has_its_own_balanced_order(seed in 0..SEED_LIMIT, machines in 2u32..9, half in 1u32..5, arms in 2usize..4) {
            let slots = draw(seed, machines * 2 * half, Rounds::Machines(machines), arms, 1);
            for machine in 0..machines {
                let own: Vec<_> = slots.chunks(arms).filter(|pair| pair[0].machine == machine).collect();
                prop_assert_eq!(own.len() as u32, 2 * half);
                prop_assert!(own.iter().all(|pair| pair.iter().all(|s| s.machine == machine && s.pair % machines == machine)));
                let position = |pair: &[Slot], arm| pair.iter().position(|s| s.arm == arm);
                let first = own.iter().filter(|pair| position(pair, 0) < position(pair, 1)).count();
                prop_assert_eq!(first as u32, half);
            }
        }

        #[test]
        fn layouts_are_drawn_apart_and_repeat(seed in 0..SEED_LIMIT) {
            let drawn = layouts(seed, 8, 3);
            let all: HashSet<u64> = drawn.iter().flatten().copied().collect();
            prop_assert!(all.len() == 24 && all.iter().all(|layout| *layout < SEED_LIMIT));
            prop_assert_eq!(&layouts(seed, 8, 3), &drawn);
            prop_assert_eq!(&layouts(seed, 6, 2)[1], &drawn[1][..6]);
            prop_assert_ne!(layouts(seed ^ 1, 8, 3), drawn);
        }
    }
}
