//! One KiB of a file, which identifies its place and its write.
//!
//! Invariant: two blocks of different numbers, or of different writes, differ in their first 8 bytes and in their last 8.

use super::user_context::BLOCK;

/// Stamps: of the first write, and of the write over it.
pub(super) const FIRST: u64 = 0x6669_7273_7420_7772;
pub(super) const AGAIN: u64 = 0x6167_6169_6e20_7772;

/// Alignment of memory for `O_DIRECT`: a page, as the strictest devices require.
const ALIGNMENT: usize = 4096;

/// Memory for one block.
pub(super) struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub fn plain() -> Self {
        Self::at(vec![0; BLOCK], 0)
    }

    /// Suitable for direct I/O.
    pub fn aligned() -> Self {
        let memory = vec![0; BLOCK + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self::at(memory, start)
    }

    fn at(memory: Vec<u8>, start: usize) -> Self {
        let mut buffer = Self { memory, start };
        buffer.block().text();
        buffer
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + BLOCK]
    }

    pub fn block(&mut self) -> Block<'_> {
        Block(self.bytes())
    }
}

/// One block in memory: its first and last words identify its number and its write, the rest is text.
pub(super) struct Block<'a>(pub &'a mut [u8]);

/// Spreads a block's number over a word.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<'a> Block<'a> {
    /// Fills in the part that writes do not change.
    pub fn text(&mut self) {
        for (i, byte) in self.0.iter_mut().enumerate() {
            *byte = b' ' + (i % 95) as u8;
        }
    }

    /// Its bytes for write `write` to block `number`.
    #[inline]
    pub fn stamped(self, number: u64, write: u64) -> &'a [u8] {
        let last = self.0.len() - 8;
        self.0[..8].copy_from_slice(&(number ^ write).to_le_bytes());
        self.0[last..].copy_from_slice(&(spread(number) ^ write).to_le_bytes());
        self.0
    }

    /// The write it comes from; `None` if it is not block `number`.
    #[inline]
    pub fn write_of(&self, number: u64) -> Option<u64> {
        let word = |at: usize| u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"));
        let write = word(0) ^ number;
        (word(self.0.len() - 8) ^ spread(number) == write).then_some(write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_tells_its_number_and_its_write() {
        for mut buffer in [Buffer::plain(), Buffer::aligned()] {
            assert_eq!(buffer.block().stamped(7, AGAIN).len(), BLOCK);
            assert_eq!(buffer.block().write_of(7), Some(AGAIN));
            assert_eq!(buffer.block().write_of(8), None);
            buffer.bytes()[BLOCK - 3] ^= 1;
            assert_eq!(buffer.block().write_of(7), None);
        }
        assert_eq!(Buffer::aligned().bytes().as_ptr().align_offset(ALIGNMENT), 0);
    }
}
