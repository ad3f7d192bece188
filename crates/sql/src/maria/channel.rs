//! A connection for an event loop: nothing here blocks.
//!
//! Invariant: queued commands leave in order; one receive is one read; however the stream is divided into reads, the same packets come out of it.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use super::error::MariaError;
use super::stream::Stream;

/// Bytes of a packet's length and number.
const HEADER: usize = 4;
const FIRST_CAPACITY: usize = 4096;
const COM_QUIT: u8 = 0x01;

pub struct Channel {
    stream: Stream,
    /// Commands to send; `out[..sent]` have left.
    out: Vec<u8>,
    sent: usize,
    /// `input[start..end]` has been read but not taken.
    input: Vec<u8>,
    start: usize,
    end: usize,
}

impl Channel {
    /// # Errors
    /// The socket cannot be made non-blocking.
    pub fn new(stream: Stream) -> Result<Self, MariaError> {
        stream.set_nonblocking(true).map_err(|e| MariaError::Closed(e.to_string()))?;
        Ok(Self { stream, out: Vec::new(), sent: 0, input: vec![0; FIRST_CAPACITY], start: 0, end: 0 })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Queues a command, which `write` appends.
    pub fn command(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.out.len();
        self.out.extend_from_slice(&[0; HEADER]);
        write(&mut self.out);
        // Commands are shorter than the 16 MiB of a packet.
        let length = (self.out.len() - begin - HEADER) as u32;
        self.out[begin..begin + 3].copy_from_slice(&length.to_le_bytes()[..3]);
    }

    /// Sends queued commands; returns whether all have left, or cannot leave because the connection is lost.
    pub fn flush(&mut self) -> bool {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() != io::ErrorKind::WouldBlock,
            }
        }
        self.out.clear();
        self.sent = 0;
        true
    }

    /// Reads once, and passes on each whole packet's contents.
    ///
    /// # Errors
    /// [`MariaError::Closed`] at the end of the stream, after all whole packets before it were passed on.
    pub fn receive(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), MariaError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.input.len() {
            self.input.resize(2 * self.input.len(), 0);
        }
        let count = loop {
            match self.stream.read(&mut self.input[self.end..]) {
                Ok(0) => return Err(MariaError::Closed("the server closed it".to_owned())),
                Ok(count) => break count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(MariaError::Closed(e.to_string())),
            }
        };
        self.end += count;
        while let Some(header) = self.input[self.start..self.end].first_chunk::<HEADER>() {
            let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
            let begin = self.start + HEADER;
            if self.end < begin + length {
                break;
            }
            each(&self.input[begin..begin + length]);
            self.start = begin + length;
        }
        Ok(())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.out.is_empty() {
            self.command(|out| out.push(COM_QUIT));
            // A server that is already gone needs no farewell.
            self.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_packets(
            sizes in proptest::collection::vec(prop_oneof![0_usize..200, 3_000_usize..9_000], 1..8),
            mut cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let sent: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &size)| vec![i as u8; size]).collect();
            let mut stream = Vec::new();
            for packet in &sent {
                stream.extend_from_slice(&(packet.len() as u32).to_le_bytes()[..3]);
                stream.push(1);
                stream.extend_from_slice(packet);
            }
            let mut cuts: Vec<usize> = cuts.drain(..).map(|c| c.index(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut channel = Channel::new(Stream::Unix(ours)).unwrap();
            let mut received = Vec::new();
            for piece in cuts.windows(2) {
                theirs.write_all(&stream[piece[0]..piece[1]]).unwrap();
                // The buffer begins small, and doubles.
                for _ in 0..64 {
                    channel.receive(|packet| received.push(packet.to_vec())).unwrap();
                }
            }
            prop_assert_eq!(received, sent);
            // Not dropped: a process that another test is just starting may still hold a copy.
            theirs.shutdown(std::net::Shutdown::Both).unwrap();
            prop_assert!(channel.receive(|_| ()).is_err());
        }
    }

    #[test]
    fn commands_are_framed_and_a_session_says_farewell() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(Stream::Unix(ours)).unwrap();
        channel.command(|out| out.extend_from_slice(b"abc"));
        channel.command(|out| out.resize(out.len() + 300, 7));
        assert!(channel.flush());
        drop(channel);
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).unwrap();
        assert_eq!(all[..8], [3, 0, 0, 0, b'a', b'b', b'c', 44]);
        assert_eq!(all[7..11], [44, 1, 0, 0]);
        assert_eq!(all[311..], [1, 0, 0, 0, COM_QUIT]);
    }
}
