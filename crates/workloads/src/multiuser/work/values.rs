//! The input numbers of the numeric tests, and the bytes to copy.
//!
//! Invariant: they are the same in every process and for every seed, so that they are computed once and inherited, not computed
//! again by every user.

use std::sync::OnceLock;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// How many numbers converge to two thirds, and how many go from -10 to 10.
const HALVED: usize = 500;
const WIDE: usize = 10_000;

/// The smallest number above 0: some machines are slow with it.
const SMALLEST: f64 = f64::from_bits(1);

/// Each is half the distance of the two before it, starting from 0, 1 and [`SMALLEST`]: numbers between 0 and 1 of ever smaller
/// size.
fn halved() -> &'static [f64] {
    static VALUES: OnceLock<Vec<f64>> = OnceLock::new();
    VALUES.get_or_init(|| {
        let mut values = vec![0.0, 1.0, SMALLEST];
        while let (Some(&[a, b]), true) = (values.last_chunk(), values.len() < HALVED) {
            values.push((a - b).abs() / 2.0);
        }
        values
    })
}

/// Numbers from -10 to 10, every hundredth [`SMALLEST`].
fn wide() -> &'static [f64] {
    static VALUES: OnceLock<Vec<f64>> = OnceLock::new();
    VALUES.get_or_init(|| {
        let mut draws = SplitMix64::seed_from_u64(10);
        let mut draw = || (draws.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * 20.0 - 10.0;
        (0..WIDE).map(|i| if i % 100 == 0 { SMALLEST } else { draw() }).collect()
    })
}

/// Bytes to copy: repeating from 0 to 250, so that each shows its position.
pub(super) const PERIOD: usize = 251;
const BYTES: usize = (64 << 10) + size_of::<f64>();

pub(super) fn bytes() -> &'static [u8] {
    static VALUES: OnceLock<Vec<u8>> = OnceLock::new();
    VALUES.get_or_init(|| (0..BYTES).map(|i| (i % PERIOD) as u8).collect())
}

/// Computes them, so that processes forked from now on share them.
pub(super) fn make() {
    halved();
    wide();
    bytes();
}

/// A cyclic walk through one of the two; the user's state keeps `at` between calls.
pub(super) struct Walk<'a> {
    values: &'static [f64],
    at: &'a mut usize,
}

impl<'a> Walk<'a> {
    pub fn halved(at: &'a mut usize) -> Self {
        Self { values: halved(), at }
    }

    pub fn wide(at: &'a mut usize) -> Self {
        Self { values: wide(), at }
    }

    #[inline]
    pub fn next(&mut self) -> f64 {
        if *self.at >= self.values.len() {
            *self.at = 0;
        }
        let value = self.values[*self.at];
        *self.at += 1;
        value
    }

    /// A number above 0 (0.0001 to 20.0001), from a walk between -10 and 10.
    #[inline]
    pub fn positive(&mut self) -> f64 {
        self.next() + 10.0001
    }

    /// A number below 0.
    #[inline]
    pub fn negative(&mut self) -> f64 {
        self.next() - 10.0001
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_where_they_are_to_be() {
        assert!(halved().iter().all(|v| (0.0..=1.0).contains(v)));
        assert_eq!(halved().len(), HALVED);
        assert_eq!(halved()[3], 0.5);
        assert!(wide().iter().all(|v| (-10.0..=10.0).contains(v)));
        let mut at = WIDE - 1;
        let mut walk = Walk::wide(&mut at);
        assert_eq!(walk.next(), wide()[WIDE - 1]);
        assert_eq!(walk.next(), SMALLEST);
        assert!(walk.positive() > 0.0 && walk.negative() < 0.0);
        assert_eq!(at, 3);
    }
}
