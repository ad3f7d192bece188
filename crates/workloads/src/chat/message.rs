//! What every message looks like: who sent it, where it belongs, the how-many-th of its sender it is, and a filling that both sides know.
//!
//! Invariant: a message that is not exactly what somebody sent is told from one that is.

use bigiron_sys::load::rng::SplitMix64;

/// Bytes of a message that say which it is; a message has at least these.
pub const HEADER: usize = 16;

/// Which message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub from: u32,
    /// A receiver, or a room.
    pub to: u32,
    /// Counted from 0 for each sender and place.
    pub number: u64,
}

/// Bytes of the largest message.
pub const LARGEST: usize = 4096;
/// More senders than this a receiver does not tell apart.
pub const SENDERS: usize = 256;

/// A worker's message, on cache lines of its own: threads that write beside each other would slow each other down.
#[repr(align(64))]
pub struct Buffer(pub [u8; LARGEST]);

/// What a receiver expects next of each sender, likewise.
#[repr(align(64))]
pub struct Next(pub [u64; SENDERS]);

/// Makes and checks the messages of a run, all of one size.
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

    /// A message with its filling, at the beginning of a buffer; [`Stamp::put`] completes it.
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

    /// The header of a message that has just been received whole; `None` if its filling is not ours.
    #[inline]
    pub fn header(&self, message: &[u8]) -> Option<Header> {
        // By words, all of them: musl's memcmp goes byte by byte, which would show in the time of a message.
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
