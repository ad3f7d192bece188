//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014): three multiplications per number, so that drawing
//! an offset costs nothing compared with a system call.
//!
//! Invariant: a stream depends only on its seed; both arms of a pair draw the same offsets.

/// A stream of 64-bit numbers.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The stream of `name` (a metric's) under `seed`: the seed mixed with the name's FNV-1a hash.
    pub fn stream(seed: u64, name: &str) -> Self {
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        Self(mix(seed ^ hash))
    }

    /// The next number.
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, so an iterator would wrap each number needlessly"
    )]
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`, by multiplication; its bias is below n/2^64.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

/// SplitMix64's finaliser: a bijection that spreads every bit.
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_splitmix64() {
        // The generator's published test vector for seed 1234567.
        let mut rng = SplitMix64(1_234_567);
        assert_eq!(
            [rng.next(), rng.next(), rng.next()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn streams_differ_and_stay_in_range() {
        let (mut a, mut b) = (SplitMix64::stream(1, "aio"), SplitMix64::stream(1, "uring"));
        let drawn: Vec<_> = (0..1000).map(|_| a.below(10)).collect();
        assert_ne!(drawn, (0..1000).map(|_| b.below(10)).collect::<Vec<_>>());
        assert!((0..10).all(|n| drawn.iter().filter(|d| **d == n).count() > 50));
    }
}
