//! What the server sends: messages, each behind its length.
//!
//! Invariant: a message is shown when it is whole, and no byte behind it is lost.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use crate::error::SmbError;

/// Longest message that is received: data, and what comes before them.
const LONGEST: usize = (8 << 20) + 4096;
/// Room for the usual message, so that one call of the kernel receives it with its length.
const ROOM: usize = 128 << 10;
/// Bytes of the length.
const LENGTH: usize = 4;

/// The last message, and what has come in behind it.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    message: Range<usize>,
    /// The end of the message as it was received, and of all that was.
    next: usize,
    end: usize,
}

impl Inbox {
    /// Receives a message, in the place of the last.
    ///
    /// # Errors
    /// The connection broke, or the message is too long.
    pub fn receive(&mut self, from: &mut impl Read) -> Result<(), SmbError> {
        self.bytes.copy_within(self.next..self.end, 0);
        self.end -= self.next;
        (self.next, self.message) = (0, 0..0);
        self.fill(from, LENGTH)?;
        let length = self.bytes.first_chunk().map(|length| u32::from_be_bytes(*length) as usize);
        let length = length.filter(|length| *length <= LONGEST).ok_or(SmbError::Response("it is too long"))?;
        self.next = LENGTH + length;
        self.fill(from, self.next)?;
        self.message = LENGTH..self.next;
        Ok(())
    }

    /// Receives until there are `wanted` bytes.
    fn fill(&mut self, from: &mut impl Read, wanted: usize) -> Result<(), SmbError> {
        if self.bytes.len() < wanted.max(ROOM) {
            self.bytes.resize(wanted.max(ROOM), 0);
        }
        while self.end < wanted {
            match from.read(&mut self.bytes[self.end..]) {
                Ok(0) => return Err(SmbError::Io(ErrorKind::UnexpectedEof.into())),
                Ok(more) => self.end += more,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Whether something has come in behind the last message.
    pub fn has_more(&self) -> bool {
        self.end > self.next
    }

    /// The last message.
    pub fn message(&self) -> &[u8] {
        &self.bytes[self.message.clone()]
    }

    pub fn message_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.message.clone()]
    }

    /// Only this part of it is the message.
    pub fn narrow(&mut self, part: Range<usize>) {
        let start = self.message.start;
        self.message = start + part.start..start + part.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its pieces, one in each call.
    struct Pieces<'a>(Vec<&'a [u8]>);

    impl Read for Pieces<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            to[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn messages_come_in_pieces_and_together() {
        let mut inbox = Inbox::default();
        let mut from = Pieces(vec![b"\0\0", b"\0\x03ab", b"c\0\0\0\x02de\0\0\0\x01", b"f\0\0\0\x05gh"]);
        for (wanted, part) in [(&b"abc"[..], 1..3), (b"de", 0..1), (b"f", 0..0)] {
            inbox.receive(&mut from).unwrap();
            assert_eq!(inbox.message(), wanted);
            inbox.narrow(part.clone());
            assert_eq!(inbox.message_mut(), &wanted[part]);
        }
        assert!(matches!(inbox.receive(&mut from), Err(SmbError::Io(e)) if e.kind() == ErrorKind::UnexpectedEof));
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let length = (LONGEST as u32 + 1).to_be_bytes();
        let refused = Inbox::default().receive(&mut Pieces(vec![&length]));
        assert!(matches!(refused, Err(SmbError::Response("it is too long"))));
    }

    #[test]
    fn a_long_message_is_received_whole() {
        let long = vec![7; 3 * ROOM];
        let length = (long.len() as u32).to_be_bytes();
        let mut from = vec![&length[..]];
        from.extend(long.chunks(60_000));
        let mut inbox = Inbox::default();
        inbox.receive(&mut Pieces(from)).unwrap();
        assert!(inbox.message() == long);
    }
}
