//! The format of a 4 KiB block that a load writes: a header that identifies its place and its write, and a filling that writer and reader both know.
//!
//! Invariant: a block that differs from everything that this run wrote at this place is detected.

use super::rng::{SplitMix64, mix};

/// Bytes of a block.
pub const BLOCK: usize = 4096;

const HEADER: usize = 32;

/// Memory suitable for direct I/O: aligned to a page.
#[derive(Clone)]
#[repr(C, align(4096))]
pub struct Aligned<const N: usize>(pub [u8; N]);

/// Makes and checks the blocks of one run.
pub struct Stamp {
    seed: u64,
    filling: Box<Aligned<BLOCK>>,
}

impl Stamp {
    pub fn new(seed: u64) -> Self {
        let mut filling = Box::new(Aligned([0; BLOCK]));
        let mut rng = SplitMix64::stream(seed, "filling");
        for word in filling.0.as_chunks_mut::<8>().0 {
            *word = rng.next().to_le_bytes();
        }
        Self { seed, filling }
    }

    /// A filled block whose header is still to be stamped.
    pub fn filled(&self) -> Box<Aligned<BLOCK>> {
        self.filling.clone()
    }

    /// Writes the header of generation `generation` for byte `offset` of a file: offset, seed, generation and a check word, 8 bytes each, little
    /// endian.
    #[inline]
    pub fn put(&self, block: &mut [u8], offset: u64, generation: u64) {
        let check = check_word(offset, self.seed, generation);
        for (bytes, word) in block.as_chunks_mut::<8>().0.iter_mut().zip([offset, self.seed, generation, check]) {
            *bytes = word.to_le_bytes();
        }
    }

    /// Whether a block just read belongs at `offset`: the cheap check that a measured loop can afford.
    #[inline]
    pub fn belongs(&self, block: &[u8], offset: u64) -> bool {
        word(block, 0) == offset && word(block, 1) == self.seed
    }

    /// Checks a whole block: every byte must be what generation `generation` wrote at `offset`.
    pub fn check(&self, block: &[u8], offset: u64, generation: u64) -> Result<(), String> {
        let (at, seed, found, check) = (word(block, 0), word(block, 1), word(block, 2), word(block, 3));
        if check != check_word(at, seed, found) {
            return Err(format!("The header at byte {offset} is damaged"));
        }
        if (at, seed) != (offset, self.seed) {
            return Err(format!(
                "Byte {offset} holds the block of byte {at} and seed {seed}, not of seed {}",
                self.seed
            ));
        }
        if found != generation {
            return Err(format!("Byte {offset} holds write {found:#x}, its last write was {generation:#x}"));
        }
        // Compares words: musl's memcmp goes byte by byte, which would affect a trial's duration.
        let (found, wanted) = (block[HEADER..].as_chunks::<8>().0, self.filling.0[HEADER..].as_chunks::<8>().0);
        match found.iter().zip(wanted).position(|(f, w)| u64::from_le_bytes(*f) != u64::from_le_bytes(*w)) {
            Some(n) => Err(format!("The bytes from {} on are damaged", offset + (HEADER + n * 8) as u64)),
            None => Ok(()),
        }
    }
}

fn check_word(offset: u64, seed: u64, generation: u64) -> u64 {
    mix(offset ^ mix(seed ^ mix(generation)))
}

fn word(block: &[u8], n: usize) -> u64 {
    u64::from_le_bytes(block.as_chunks::<8>().0[n])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_flipped_bit_is_found(seed: u64, n in 0u64..1 << 40, generation: u64, byte in 0..BLOCK, bit in 0u8..8) {
            let stamp = Stamp::new(seed);
            let (mut block, offset) = (stamp.filled(), n * BLOCK as u64);
            stamp.put(&mut block.0, offset, generation);
            prop_assert_eq!(stamp.check(&block.0, offset, generation), Ok(()));
            prop_assert!(stamp.belongs(&block.0, offset));
            block.0[byte] ^= 1u8 << bit;
            prop_assert!(stamp.check(&block.0, offset, generation).is_err());
        }
    }

    #[test]
    fn a_stale_or_misplaced_block_is_named() {
        let stamp = Stamp::new(5);
        let mut block = stamp.filled();
        stamp.put(&mut block.0, 8192, 1);
        assert_eq!(stamp.check(&block.0, 8192, 2).unwrap_err(), "Byte 8192 holds write 0x1, its last write was 0x2");
        assert_eq!(
            stamp.check(&block.0, 4096, 1).unwrap_err(),
            "Byte 4096 holds the block of byte 8192 and seed 5, not of seed 5"
        );
        assert!(Stamp::new(6).check(&block.0, 8192, 1).is_err());
        assert!(!stamp.belongs(&block.0, 4096));
    }
}
