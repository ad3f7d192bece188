//! A socket and what has been read from it: whole messages, taken where they lie.
//!
//! Invariant: however the stream of bytes is cut into reads, the same messages come out of it.

use std::io;

use super::error::PgError;
use super::message;
use super::wire::Wire;

/// Most answers are far shorter; thousands of connections have one such buffer each.
const FIRST_CAPACITY: usize = 4096;
/// PostgreSQL allocates no message above it (`MaxAllocSize`).
pub(super) const LARGEST_MESSAGE: usize = 1 << 30;
/// Of the tag and the length.
const HEADER: usize = 5;

pub(super) struct Link {
    wire: Wire,
    /// `input[start..end]` has been read and not taken.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Longest message accepted.
    limit: usize,
    /// Whether the server stands between two of our messages, and can be told that we go.
    pub(super) orderly: bool,
}

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    Bytes(usize),
    /// Nothing has come, or not within the time limit.
    Nothing,
}

impl Link {
    pub(super) fn new(wire: Wire, limit: usize) -> Link {
        Link { wire, input: Vec::new(), start: 0, end: 0, limit, orderly: false }
    }

    pub(super) fn wire(&self) -> &Wire {
        &self.wire
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The length of the next message if all of it is here.
    pub(super) fn ready(&self) -> Result<Option<usize>, PgError> {
        let length = message::length(&self.input[self.start..self.end], self.limit)?;
        Ok(length.filter(|&l| l <= self.end - self.start))
    }

    /// Takes a message of the length that [`Self::ready`] gave.
    pub(super) fn take(&mut self, length: usize) -> &[u8] {
        let from = self.start;
        self.start += length;
        &self.input[from..self.start]
    }

    /// One read.
    ///
    /// # Errors
    /// [`PgError::Closed`] at the end of the stream, [`PgError::Protocol`] if the message that has begun is impossible.
    pub(super) fn fill(&mut self) -> Result<Filled, PgError> {
        self.make_room()?;
        match self.wire.receive(&mut self.input[self.end..]) {
            Ok(0) => {
                self.orderly = false;
                Err(PgError::Closed(match self.end - self.start {
                    0 => "the server closed it".to_owned(),
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

    /// Room behind what is there; at least doubled when there is none, so that a long message costs what it holds and not what it announces.
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

    /// One send; 0 if the socket takes nothing now.
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

    fn lost(&mut self, error: &io::Error) -> PgError {
        self.orderly = false;
        PgError::Closed(error.to_string())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.orderly && self.wire.set_nonblocking(true).is_ok() {
            let mut bye = Vec::new();
            super::frontend::terminate(&mut bye);
            // A server that is gone already needs no farewell.
            let _ = self.wire.send(&bye);
        }
    }
}
