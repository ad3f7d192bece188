//! The format of a message: its sender, its destination, its number, and a filling that both sides know.
//!
//! Invariant: any message that differs from what was sent is detected.

use bigiron_sys::load::rng::SplitMix64;

/// Bytes of the header, the smallest size of a message.
pub const HEADER: usize = 16;

/// The identity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub from: u32,
    /// A receiver, or a room.
    pub to: u32,
    /// Counted from 0 for each sender and destination.
    pub number: u64,
}

/// Bytes of the largest message.
pub const LARGEST: usize = 4096;
/// Maximum number of senders that a receiver can tell apart.
pub const SENDERS: usize = 256;

/// A worker's message, on its own cache lines: otherwise threads writing side by side would slow each other down (false sharing).
#[repr(align(64))]
pub struct Buffer(pub [u8; LARGEST]);

/// The next message that a receiver expects from each sender, also on its own cache lines.
#[repr(align(64))]
pub struct Next(pub [u64; SENDERS]);

/// Creates and checks the messages of a run, all of one size.
pub struct Stamp {
    /// A message whose header is zero.
    blank: Vec<u8>,
}

impl Stamp {
    /// Messages of `size` bytes, from [`HEADER`] to [`LARGEST`].
    pub fn new(seed: u64, size: usize) -> Self {
        let mut blank = vec![0; size];
        let mut rng = SplitMix64::stream(seed, "chat");
        for word in blank[HEADER..].chunks_mut(8) {
            word.copy_from_slice(&rng.next().to_le_bytes()[..word.len()]);
        }
        Self { blank }
    }

    /// A message with its filling, at the start of a buffer; [`Stamp::put`] completes it.
    pub fn blank(&self) -> Buffer {
        let mut buffer = Buffer([0; LARGEST]);
        buffer.0[..self.blank.len()].copy_from_slice(&self.blank);
        buffer
    }

    /// Writes the header.
    #[inline]
    pub fn put(&self, message: &mut [u8], header: Header) {
        message[..4].copy_from_slice(&header.from.to_le_bytes());
        message[4..8].copy_from_slice(&header.to.to_le_bytes());
        message[8..HEADER].copy_from_slice(&header.number.to_le_bytes());
    }

    /// The header of a complete message just received; `None` if its filling is wrong.
    #[inline]
    pub fn header(&self, message: &[u8]) -> Option<Header> {
        // Compared by words: musl's memcmp goes byte by byte, which would affect the time of a message.
        let (words, rest) = message[HEADER..].as_chunks::<8>();
        let (ours, our_rest) = self.blank[HEADER..].as_chunks::<8>();
        let differ = |d: u64, (a, b): (&[u8; 8], &[u8; 8])| d | (u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b));
        let differs = words.iter().zip(ours).fold(0, differ) != 0 || rest != our_rest;
        if message.len() != self.blank.len() || differs {
            return None;
        }
        let half = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().expect("four bytes"));
        let number = u64::from_le_bytes(message[8..HEADER].try_into().expect("eight bytes"));
        Some(Header { from: half(0), to: half(4), number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_message_reads_back_and_a_flipped_bit_of_it_does_not(
            seed: u64, size in HEADER..300usize, from: u32, to: u32, number: u64, byte in 0..300usize, bit in 0u8..8,
        ) {
            let stamp = Stamp::new(seed, size);
            let header = Header { from, to, number };
            let mut buffer = stamp.blank();
            let message = &mut buffer.0[..size];
            stamp.put(message, header);
            prop_assert_eq!(stamp.header(message), Some(header));
            message[byte % size] ^= 1 << bit;
            prop_assert_ne!(stamp.header(message), Some(header));
        }
    }
}
