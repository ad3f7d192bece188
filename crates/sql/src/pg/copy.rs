//! `COPY … FROM STDIN`: rows in bulk.
//!
//! Invariant: an unfinished copy leaves no row and a usable connection.

use super::connection::Connection;
use super::error::PgError;
use super::frontend;
use super::message::{Message, rows_of};

/// Bytes per message: large enough for negligible overhead, small enough to stay in the cache.
const CHUNK: usize = 64 << 10;
const HEADER: usize = 5;

/// Created by [`Connection::copy_in`].
pub struct CopyIn<'c> {
    connection: &'c mut Connection,
    open: bool,
}

impl<'c> CopyIn<'c> {
    pub(super) fn new(connection: &'c mut Connection) -> CopyIn<'c> {
        connection.out().reserve(CHUNK + HEADER);
        CopyIn { connection, open: true }
    }

    /// Sends data in the statement's format, cut anywhere.
    ///
    /// # Errors
    /// [`PgError::Server`] as soon as the server is known to refuse the data so far (a full disk, a duplicate key).
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), PgError> {
        while !bytes.is_empty() {
            let out = self.connection.out();
            if out.is_empty() {
                out.extend_from_slice(b"d\0\0\0\0");
            }
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK + HEADER - out.len()));
            out.extend_from_slice(now);
            bytes = later;
            if out.len() == CHUNK + HEADER {
                self.send()?;
            }
        }
        Ok(())
    }

    /// Ends the copy; returns the number of rows copied.
    ///
    /// # Errors
    /// [`PgError::Server`] if the server refuses the data; nothing was copied then.
    pub fn finish(mut self) -> Result<u64, PgError> {
        if !self.connection.out().is_empty() {
            self.send()?;
        }
        self.open = false;
        frontend::copy_done(self.connection.out());
        let mut rows = None;
        self.connection.exchange(|message| {
            if let Message::CommandComplete(tag) = message {
                rows = rows_of(tag);
            }
            Ok(())
        })?;
        rows.ok_or_else(|| PgError::Protocol("COPY ended without its number of rows".to_owned()))
    }

    /// Sends the message in `out`.
    fn send(&mut self) -> Result<(), PgError> {
        let out = self.connection.out();
        let length = (out.len() - 1) as u32;
        out[1..HEADER].copy_from_slice(&length.to_be_bytes());
        let sent = self.connection.send();
        if sent.is_err() || self.connection.has_news() {
            self.news(sent)?;
        }
        Ok(())
    }

    /// Reads the server's messages during the copy: only a refusal matters.
    fn news(&mut self, sent: Result<(), PgError>) -> Result<(), PgError> {
        loop {
            let refused = match self.connection.next() {
                Ok(Message::ErrorResponse(error)) => Some(error.to_error().into()),
                Ok(_) => None,
                Err(lost) => {
                    self.open = false;
                    return sent.and(Err(lost));
                }
            };
            if let Some(error) = refused {
                self.open = false;
                // It discards data in transit and is ready again; if it ends instead, the next request detects that.
                let _ = self.connection.exchange(|_| Ok(()));
                return Err(error);
            }
            if sent.is_ok() && !self.connection.has_news() {
                return Ok(());
            }
        }
    }
}

impl Drop for CopyIn<'_> {
    fn drop(&mut self) {
        if self.open {
            let out = self.connection.out();
            out.clear();
            frontend::copy_fail(out);
            // The server replies with the requested error.
            let _ = self.connection.exchange(|_| Ok(()));
        }
    }
}
