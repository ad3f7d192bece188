//! A connection for an event loop: nothing here blocks.
//!
//! Invariant: queued data leave in order and in one send as far as the socket accepts them; one receive is one read.

use std::os::fd::{AsFd, BorrowedFd};

use bytes::BytesMut;

use super::buffered_socket::{BufferedSocket, Filled};
use super::connection::{Connection, ServerInfo};
use super::error::PgError;
use super::message::Message;

/// Created by [`Connection::channel`].
pub struct Channel {
    /// Messages to send ([`super::frontend`]). Append only: the front may have been sent.
    pub out: BytesMut,
    sent: usize,
    link: BufferedSocket,
    server: ServerInfo,
}

impl Channel {
    pub(super) fn new(link: BufferedSocket, server: ServerInfo) -> Result<Channel, PgError> {
        link.wire().set_nonblocking(true).map_err(|e| PgError::Closed(e.to_string()))?;
        Ok(Channel { out: BytesMut::new(), sent: 0, link, server })
    }

    /// The descriptor to wait for: readable always, writable while [`Self::flush`] returned `false`. For level-triggered waiting.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.link.wire().fd()
    }

    /// Sends queued data; returns whether all of it has left.
    ///
    /// # Errors
    /// [`PgError::Closed`]; the server's last messages can still be received.
    pub fn flush(&mut self) -> Result<bool, PgError> {
        while self.sent < self.out.len() {
            match self.link.send(&self.out[self.sent..])? {
                0 => {
                    self.link.orderly = false;
                    return Ok(false);
                }
                count => self.sent += count,
            }
        }
        self.link.orderly = self.link.flush()?;
        if !self.link.orderly {
            return Ok(false);
        }
        self.out.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Reads once, and passes on each complete message. Returns the bytes read; 0 if there were none yet.
    ///
    /// # Errors
    /// [`PgError::Closed`] at the end of the stream, after all whole messages before it were passed on; [`PgError::Protocol`].
    pub fn receive(&mut self, mut each: impl FnMut(Message<'_>)) -> Result<usize, PgError> {
        let mut count = 0;
        while let Filled::Bytes(more) = self.link.fill()? {
            count += more;
            while let Some(length) = self.link.ready()? {
                each(Message::parse(self.link.take(length))?);
            }
            // Decrypted bytes do not wake a process that polls the socket.
            if !self.link.wire().has_plaintext() {
                break;
            }
        }
        Ok(count)
    }

    /// The server of the connection.
    pub fn server(&self) -> &ServerInfo {
        &self.server
    }

    /// Converts back to a blocking connection, for use when every response has been received.
    ///
    /// # Errors
    /// [`PgError::Closed`] if data are queued, or partly received.
    pub fn into_connection(self) -> Result<Connection, PgError> {
        if !self.out.is_empty() {
            return Err(PgError::Closed("it was left in the middle of a request".to_owned()));
        }
        Connection::resume(self.link, self.server)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}
