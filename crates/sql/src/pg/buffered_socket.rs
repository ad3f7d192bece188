//! A socket and its read buffer, from which whole messages are taken in place.
//!
//! Invariant: however the stream of bytes is divided into reads, the same messages come out of it.

use std::io;

use bytes::BytesMut;

use super::error::PgError;
use super::message;
use super::socket::Socket;

/// Most responses are far shorter; thousands of connections have one such buffer each.
const FIRST_CAPACITY: usize = 4096;
/// PostgreSQL allocates no message above it (`MaxAllocSize`).
pub(super) const LARGEST_MESSAGE: usize = 1 << 30;
const CLOSED: &str = "the server closed it";
/// Bytes of the tag and the length.
const HEADER: usize = 5;

pub(super) struct BufferedSocket {
    wire: Socket,
    /// `input[start..end]` has been read but not taken.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Longest message accepted.
    limit: usize,
    /// Whether the server is between two messages of this client, and can be told that it disconnects.
    pub(super) orderly: bool,
}

/// The result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    Bytes(usize),
    /// Nothing arrived, or not within the time limit.
    Nothing,
}

impl BufferedSocket {
    pub(super) fn new(wire: Socket, limit: usize) -> BufferedSocket {
        BufferedSocket { wire, input: Vec::new(), start: 0, end: 0, limit, orderly: false }
    }

    pub(super) fn wire(&self) -> &Socket {
        &self.wire
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The length of the next message if it is complete.
    pub(super) fn ready(&self) -> Result<Option<usize>, PgError> {
        let length = message::length(&self.input[self.start..self.end], self.limit)?;
        Ok(length.filter(|&l| l <= self.end - self.start))
    }

    /// Takes a message of the length returned by [`Self::ready`].
    pub(super) fn take(&mut self, length: usize) -> &[u8] {
        let from = self.start;
        self.start += length;
        &self.input[from..self.start]
    }

    /// One read.
    ///
    /// # Errors
    /// [`PgError::Closed`] at the end of the stream, [`PgError::Protocol`] if the message in progress is impossible.
    pub(super) fn fill(&mut self) -> Result<Filled, PgError> {
        self.make_room()?;
        match self.wire.receive(&mut self.input[self.end..]) {
            Ok(0) => {
                self.orderly = false;
                Err(PgError::Closed(match self.end - self.start {
                    0 => CLOSED.to_owned(),
                    left => format!("the server closed it {left} bytes into a message"),
                }))
            }
            Ok(count) => {
                self.end += count;
                Ok(Filled::Bytes(count))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Filled::Nothing),
            Err(e) => Err(self.lost(&e)),
        }
    }

    /// Makes room after the present data; at least doubles the buffer when there is none, so that a long message costs its actual
    /// length and not its announced one.
    fn make_room(&mut self) -> Result<(), PgError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let held = &self.input[self.start..self.end];
        let needed = message::length(held, self.limit)?.unwrap_or(HEADER);
        if self.start > 0 && self.input.len() - self.start < needed || self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.input.len() {
            self.input.resize((2 * self.input.len()).max(FIRST_CAPACITY), 0);
        }
        Ok(())
    }

    /// One send; 0 if the socket accepts nothing now.
    ///
    /// # Errors
    /// [`PgError::Closed`].
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<usize, PgError> {
        match self.wire.send(bytes) {
            Ok(count) => Ok(count),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(e) => Err(self.lost(&e)),
        }
    }

    /// Whether everything that was sent has left the buffers.
    ///
    /// # Errors
    /// [`PgError::Closed`].
    pub(super) fn flush(&mut self) -> Result<bool, PgError> {
        self.wire.flush().map_err(|e| self.lost(&e))
    }

    fn lost(&mut self, error: &io::Error) -> PgError {
        self.orderly = false;
        PgError::Closed(match error.kind() {
            io::ErrorKind::BrokenPipe => CLOSED.to_owned(),
            io::ErrorKind::ConnectionReset => "the server, or the network, reset it".to_owned(),
            _ => error.to_string(),
        })
    }
}

impl Drop for BufferedSocket {
    fn drop(&mut self) {
        if self.orderly && self.wire.set_nonblocking(true).is_ok() {
            let mut bye = BytesMut::new();
            super::frontend::terminate(&mut bye);
            // A server that is already gone needs no farewell.
            let _ = self.wire.send(&bye);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;

    use super::super::message::Message;
    use super::super::testing;
    use super::*;

    fn link(limit: usize) -> (BufferedSocket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let wire = Socket::from(std::os::fd::OwnedFd::from(ours));
        wire.set_nonblocking(true).unwrap();
        (BufferedSocket::new(wire, limit), theirs)
    }

    /// Reads until no more data arrive; returns the messages' bytes.
    fn drain(link: &mut BufferedSocket, into: &mut Vec<Vec<u8>>) -> Result<(), PgError> {
        while link.fill()? != Filled::Nothing {
            while let Some(length) = link.ready()? {
                into.push(link.take(length).to_vec());
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_messages(
            sizes in proptest::collection::vec(prop_oneof![0_usize..200, 3_000_usize..20_000], 1..12),
            mut cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let sent: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &size)| testing::row(&[Some(&vec![i as u8; size]), None])).collect();
            let stream = sent.concat();
            let mut cuts: Vec<usize> = cuts.drain(..).map(|c| c.index(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let (mut link, mut server) = link(LARGEST_MESSAGE);
            let mut received = Vec::new();
            for piece in cuts.windows(2) {
                // No more than a socket accepts while its other end is not read.
                for part in stream[piece[0]..piece[1]].chunks(16 << 10) {
                    server.write_all(part).unwrap();
                    drain(&mut link, &mut received).unwrap();
                }
            }
            for message in &received {
                prop_assert!(Message::parse(message).is_ok());
            }
            prop_assert_eq!(received, sent);
        }
    }

    #[test]
    fn the_end_is_told_apart_from_an_end_within_a_message() {
        for (left, words) in [(0, "the server closed it"), (3, "3 bytes into a message"), (6, "6 bytes into a message")]
        {
            let (mut link, mut server) = link(LARGEST_MESSAGE);
            let row = testing::row(&[Some(b"whole")]);
            server.write_all(&[&row[..], &row[..left]].concat()).unwrap();
            drop(server);
            let mut received = Vec::new();
            let error = drain(&mut link, &mut received).unwrap_err();
            assert_eq!(received, [row]);
            assert!(matches!(&error, PgError::Closed(cause) if cause.contains(words)), "{error}");
        }
    }

    #[test]
    fn an_impossible_length_is_refused_before_its_bytes_come() {
        let (mut link, mut server) = link(1000);
        server.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
        link.fill().unwrap();
        assert!(matches!(link.ready(), Err(PgError::Protocol(_))));
        assert!(matches!(link.fill(), Err(PgError::Protocol(_))));
    }

    #[test]
    fn an_announced_length_is_not_believed() {
        let (mut link, mut server) = link(LARGEST_MESSAGE);
        server.write_all(&[b'D', 0x3f, 0xff, 0xff, 0xff, 0, 0]).unwrap();
        drain(&mut link, &mut Vec::new()).unwrap();
        assert_eq!(link.input.len(), FIRST_CAPACITY);
    }
}
