//! Random draws of oltp: the generator, TPC-C's strings, last names and NURand (clauses 2.1.6, 4.3.2).
//!
//! Invariant: a draw depends only on the seed, the stream and the earlier draws of the same stream: streams may be started in any
//! order, by any thread, and are independent.

use rand_chacha::ChaCha8Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// The seed of every loaded database: all trials of all studies start from the same rows, so that one image serves them all.
pub const LOAD_SEED: u64 = 0x6f6c_7470_726f_7773;

/// Numbers of the streams, which never overlap; those below 2^56 are for other parts of oltp.
pub mod stream {
    const ROWS: u64 = 1 << 56;
    const CONSTANTS: u64 = 2 << 56;
    const INPUTS: u64 = 3 << 56;
    const THINK: u64 = 4 << 56;

    /// Rows number `part` (0..=255: a table, or the common part of two tables) of a warehouse and a district; 0 if there is none.
    pub fn rows(part: u8, warehouse: u32, district: u32) -> u64 {
        debug_assert!(district < 1 << 8);
        ROWS | u64::from(part) << 48 | u64::from(warehouse) << 8 | u64::from(district)
    }

    /// The constants of NURand.
    pub fn constants() -> u64 {
        CONSTANTS
    }

    /// The inputs of a terminal.
    pub fn inputs(terminal: u32) -> u64 {
        INPUTS | u64::from(terminal)
    }

    /// The think times of a terminal: separate from its inputs, which must not depend on the pace.
    pub fn think(terminal: u32) -> u64 {
        THINK | u64::from(terminal)
    }
}

/// A fast generator (xoshiro256++). Its state is drawn by ChaCha8, which can jump to any stream of any seed.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The beginning of a stream, see [`stream`].
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut source = ChaCha8Rng::seed_from_u64(seed);
        source.set_stream(stream);
        let mut state = [0; 32];
        source.fill_bytes(&mut state);
        Self(Xoshiro256PlusPlus::from_seed(state))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A whole number of `low..=high`, all equally likely.
    #[inline]
    pub fn range(&mut self, low: u32, high: u32) -> u32 {
        debug_assert!(low <= high);
        let count = u64::from(high - low) + 1;
        // The high half of the product: its deviation from uniform is less than 2^-31 of a share.
        low + ((u128::from(self.bits()) * u128::from(count)) >> 64) as u32
    }

    /// True with a probability of `percent`.
    #[inline]
    pub fn percent(&mut self, percent: u32) -> bool {
        self.range(1, 100) <= percent
    }

    /// A number of (0, 1], in steps of 2^-53.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// TPC-C's non-uniform NURand(A, x, y) of `low..=high` (clause 2.1.6), with `a` = A (255, 1023 or 8191) and its constant C.
    #[inline]
    pub fn non_uniform(&mut self, a: u32, c: u32, low: u32, high: u32) -> u32 {
        ((self.range(0, a) | self.range(low, high)) + c) % (high - low + 1) + low
    }

    /// Fills with random letters and digits (an a-string).
    #[inline]
    pub fn letters(&mut self, text: &mut [u8]) {
        let mut chunks = text.chunks_exact_mut(10);
        for chunk in &mut chunks {
            chunk.copy_from_slice(&self.ten_letters());
        }
        let rest = chunks.into_remainder();
        if !rest.is_empty() {
            let ten = self.ten_letters();
            rest.copy_from_slice(&ten[..rest.len()]);
        }
    }

    /// One draw for ten characters: the draw is a fraction in base 62², whose digits are pairs.
    #[inline]
    fn ten_letters(&mut self) -> [u8; 10] {
        let mut fraction = self.bits();
        let mut ten = [0; 10];
        // Byte by byte: without optimisation, as in tests, a copy of two bytes is a call of musl's slow memcpy.
        let mut at = 0;
        while at < ten.len() {
            let product = u128::from(fraction) * 3844;
            [ten[at], ten[at + 1]] = PAIRS[(product >> 64) as usize];
            fraction = product as u64;
            at += 2;
        }
        ten
    }

    /// Fills with random digits (an n-string).
    #[inline]
    pub fn digits(&mut self, text: &mut [u8]) {
        for chunk in text.chunks_mut(16) {
            let mut fraction = self.bits();
            for digit in chunk {
                let product = u128::from(fraction) * 10;
                *digit = b'0' + (product >> 64) as u8;
                fraction = product as u64;
            }
        }
    }

    /// Puts `1..=slots.len()` into a random order (Fisher–Yates).
    pub fn permutation(&mut self, slots: &mut [u32]) {
        for (slot, number) in slots.iter_mut().zip(1..) {
            *slot = number;
        }
        for last in (1..slots.len()).rev() {
            slots.swap(last, self.range(0, last as u32) as usize);
        }
    }
}

/// Pairs of letters and digits.
static PAIRS: [[u8; 2]; 3844] = {
    let alphabet = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut pairs = [[0; 2]; 3844];
    let mut i = 0;
    while i < pairs.len() {
        pairs[i] = [alphabet[i / 62], alphabet[i % 62]];
        i += 1;
    }
    pairs
};

const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The syllables of a last name.
pub(super) fn syllables(number: u32) -> [&'static str; 3] {
    debug_assert!(number < 1000);
    [number / 100, number / 10 % 10, number % 10].map(|digit| SYLLABLES[digit as usize])
}

/// The last name spelled by a number of 0..=999, e.g. `PRICALLYOUGHT` for 371 (clause 4.3.2.3).
pub fn last_name(number: u32) -> String {
    syllables(number).concat()
}

/// The constants C of NURand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// 0..=255, for the customers' last names at load.
    pub load_c_last: u32,
    /// 0..=255, for the last names that terminals request.
    pub run_c_last: u32,
    /// 0..=1023, for customers' numbers.
    pub c_id: u32,
    /// 0..=8191, for items.
    pub ol_i_id: u32,
}

impl Constants {
    /// The constants of a trial. That of the load is the same for every seed, because the rows are.
    pub fn new(seed: u64) -> Self {
        let load_c_last = load_c_last();
        let mut rng = Rng::new(seed, stream::constants());
        let run_c_last = loop {
            let c = rng.range(0, 255);
            if may_run(load_c_last, c) {
                break c;
            }
        };
        Self { load_c_last, run_c_last, c_id: rng.range(0, 1023), ol_i_id: rng.range(0, 8191) }
    }
}

/// The constant of last names at load.
pub fn load_c_last() -> u32 {
    Rng::new(LOAD_SEED, stream::constants()).range(0, 255)
}

/// Clause 2.1.6.1: how far the constant of the run must be from that of the load.
fn may_run(load: u32, run: u32) -> bool {
    let delta = load.abs_diff(run);
    (65..=119).contains(&delta) && delta != 96 && delta != 112
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn streams_are_reproducible_and_do_not_meet() {
        let numbers: HashSet<u64> = (0..10)
            .flat_map(|part| (0..12).flat_map(move |w| (0..11).map(move |d| stream::rows(part, w, d))))
            .chain((0..1000).map(stream::inputs))
            .chain((0..1000).map(stream::think))
            .chain([stream::constants()])
            .collect();
        assert_eq!(numbers.len(), 10 * 12 * 11 + 2001);
        let firsts: HashSet<u64> = numbers.iter().map(|&n| Rng::new(7, n).bits()).collect();
        assert_eq!(firsts.len(), numbers.len());
        assert_eq!(Rng::new(7, 3).bits(), Rng::new(7, 3).bits());
        assert_ne!(Rng::new(7, 3).bits(), Rng::new(8, 3).bits());
    }

    #[test]
    fn ranges_reach_both_ends_evenly() {
        let mut rng = Rng::new(1, 1);
        let mut counts = [0u32; 11];
        for _ in 0..110_000 {
            counts[rng.range(5, 15) as usize - 5] += 1;
        }
        // Ten standard deviations of a binomial count.
        assert!(counts.iter().all(|&n| n.abs_diff(10_000) < 960), "{counts:?}");
        assert_eq!(rng.range(u32::MAX, u32::MAX), u32::MAX);
        rng.range(0, u32::MAX);
    }

    #[test]
    fn strings_use_every_character_evenly() {
        let mut rng = Rng::new(2, 1);
        let mut text = vec![0; 124_003];
        rng.letters(&mut text);
        let mut counts = [0u32; 256];
        text.iter().for_each(|&b| counts[b as usize] += 1);
        for (byte, &n) in counts.iter().enumerate() {
            let expected = if (byte as u8).is_ascii_alphanumeric() { 2000 } else { 0 };
            assert!(n.abs_diff(expected) <= expected / 4, "{byte}: {n}");
        }
        rng.digits(&mut text);
        let mut counts = [0u32; 256];
        text.iter().for_each(|&b| counts[b as usize] += 1);
        assert!(counts[b'0' as usize..=b'9' as usize].iter().all(|&n| n.abs_diff(12_400) < 1240));
        assert_eq!(counts[b'0' as usize..=b'9' as usize].iter().sum::<u32>(), 124_003);
    }

    #[test]
    fn a_permutation_holds_every_number_once() {
        let mut slots = [0; 3000];
        Rng::new(3, 1).permutation(&mut slots);
        let moved = slots.iter().zip(1..).filter(|&(&s, n)| s != n).count();
        assert!(moved > 2900, "{moved}");
        let mut sorted = slots;
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(1..=3000));
    }

    #[test]
    fn last_names_are_spelled_as_in_the_specification() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(999), "EINGEINGEING");
        let all: HashSet<String> = (0..1000).map(last_name).collect();
        assert_eq!(all.len(), 1000);
        assert!(all.iter().all(|name| name.len() <= 16));
    }

    #[test]
    fn constants_obey_the_rule_and_the_load_is_shared() {
        let mut run = HashSet::new();
        for seed in 0..2000 {
            let c = Constants::new(seed);
            assert_eq!(c, Constants::new(seed));
            assert_eq!(c.load_c_last, load_c_last());
            let delta = c.load_c_last.abs_diff(c.run_c_last);
            assert!((65..=119).contains(&delta) && delta != 96 && delta != 112, "{c:?}");
            assert!(c.run_c_last <= 255 && c.c_id <= 1023 && c.ol_i_id <= 8191);
            run.insert(c.run_c_last);
        }
        assert!(run.len() > 40, "{}", run.len());
    }

    #[test]
    fn non_uniform_draws_stay_in_range() {
        let mut rng = Rng::new(4, 1);
        for _ in 0..10_000 {
            assert!((1..=3000).contains(&rng.non_uniform(1023, 1023, 1, 3000)));
            assert!(rng.non_uniform(255, 255, 0, 999) <= 999);
        }
    }
}
