//! The schedule: all boots are drawn before the first.
//!
//! Invariants: the order of arms is balanced over pairs; everything except boot seed and jitter is equal for all arms of a pair;
//! the same seed gives the same schedule on every machine.

use anyhow::Context as _;

use bigiron_model::plan::Slot;
use bigiron_stats::order::{Rng, balanced_orders, rng, shuffle};

/// Seeds stay below this, so that they are exact wherever they are written: TOML's integers are signed, and JSON readers may
/// store numbers as doubles.
pub const SEED_LIMIT: u64 = 1 << 53;

/// Jitter stays below one period of the slowest timer tick (100 Hz) in instructions of the exact clock, so that every phase can
/// occur.
const JITTER_LIMIT: u32 = 10_000_000;

/// Draws `pairs × arms` slots in order of execution. `pairs` must be even.
pub fn draw(seed: u64, pairs: u32, arms: usize, workloads: usize) -> Vec<Slot> {
    let rng = &mut rng(seed);
    let mut slots = Vec::with_capacity(pairs as usize * arms);
    let mut boot_seeds = std::collections::HashSet::new();
    for (pair, arms) in (0..).zip(balanced_orders(pairs, arms, rng)) {
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
                workload_seed,
                boot_seed,
                jitter: rng.next_u32() % JITTER_LIMIT,
                order: order.clone(),
            });
        }
    }
    slots
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
            let slots = draw(seed, pairs, arms, workloads);
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
            prop_assert_eq!(draw(seed, pairs, arms, workloads), slots);
        }
    }
}
