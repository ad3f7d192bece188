//! A blocking connection: for schema, loading, statistics and checks.
//!
//! Invariant: between two calls the server is ready for the next request, or the connection is known to be lost.

use bytes::BytesMut;
use postgres_protocol::message::frontend::cancel_request;

use crate::database::{Database, Dialect, SqlValue};

use super::buffered_socket::{BufferedSocket, Filled};
use super::channel::Channel;
use super::copy::CopyIn;
use super::error::PgError;
use super::frontend;
use super::message::Message;
use super::oid;
use super::socket::Deadline;
use super::startup;
use super::url::Url;

/// The server of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// As reported by the server, e.g. `15.8 (Debian 15.8-0+deb12u1)`.
    pub version: String,
    pub cancel: CancelKey,
}

/// Cancels a connection's request, from another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelKey {
    /// The server's process (on servers that have one per connection).
    pub process: i32,
    pub secret: i32,
}

pub struct Connection {
    link: BufferedSocket,
    server: ServerInfo,
    out: BytesMut,
}

impl CancelKey {
    /// Asks the server to cancel the running request, if there is one: that request then fails with SQLSTATE 57014. There is no
    /// confirmation that it was in time.
    ///
    /// # Errors
    /// [`PgError::Connect`].
    pub fn send(self, url: &Url) -> Result<(), PgError> {
        let cannot = |e: std::io::Error| PgError::Connect { host: startup::place(url), cause: e.to_string() };
        let deadline = Deadline::after(url.connect_timeout);
        let mut wire = startup::connect(url, deadline)?;
        wire.set_time_limit(deadline.left().map_err(cannot)?).map_err(cannot)?;
        let mut out = BytesMut::new();
        cancel_request(self.process, self.secret, &mut out);
        wire.send(&out).map_err(cannot)?;
        wire.flush().map_err(cannot)?;
        // The server closes after forwarding the request.
        wire.receive(&mut [0; 16]).map_err(cannot)?;
        Ok(())
    }
}

impl Connection {
    /// Connects and logs in, within the URL's `connect_timeout`.
    ///
    /// # Errors
    /// [`PgError::Connect`], [`PgError::Authentication`], or [`PgError::Startup`] with the server's message (no such database,
    /// too many connections, starting up).
    pub fn connect(url: &Url) -> Result<Connection, PgError> {
        let (link, server) = startup::open(url)?;
        Ok(Connection { link, server, out: BytesMut::new() })
    }

    pub(super) fn resume(link: BufferedSocket, server: ServerInfo) -> Result<Connection, PgError> {
        link.wire().set_nonblocking(false).map_err(|e| PgError::Closed(e.to_string()))?;
        Ok(Connection { link, server, out: BytesMut::new() })
    }

    pub fn server(&self) -> &ServerInfo {
        &self.server
    }

    /// Converts to a channel for an event loop, keeping prepared statements.
    ///
    /// # Errors
    /// [`PgError::Closed`].
    pub fn channel(self) -> Result<Channel, PgError> {
        Channel::new(self.link, self.server)
    }

    /// Prepares a statement under a name, for [`frontend::bind`]. `types` are the parameters' ([`super::oid`]).
    ///
    /// # Errors
    /// [`PgError::Server`] if the server refuses it.
    pub fn prepare(&mut self, name: &str, sql: &str, types: &[u32]) -> Result<(), PgError> {
        frontend::parse(&mut self.out, name, sql, types);
        frontend::sync(&mut self.out);
        self.exchange(|_| Ok(()))
    }

    /// Runs statements, separated by `;`, together in one transaction unless they say otherwise. Rows are discarded.
    ///
    /// # Errors
    /// [`PgError::Server`] if the server refuses one; those after it are not run.
    pub fn run(&mut self, sql: &str) -> Result<(), PgError> {
        frontend::query(&mut self.out, sql);
        self.exchange(|_| Ok(()))
    }

    /// The rows of one statement.
    ///
    /// # Errors
    /// [`PgError::Server`] if the server refuses it.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Vec<SqlValue>>, PgError> {
        let mut integers: Vec<bool> = Vec::new();
        let mut rows = Vec::new();
        frontend::query(&mut self.out, sql);
        self.exchange(|message| {
            match message {
                Message::RowDescription(fields) => {
                    rows.clear();
                    integers.clear();
                    integers.extend(fields.iter().map(|f| matches!(f.kind, oid::INT2 | oid::INT4 | oid::INT8)));
                }
                Message::DataRow(row) => {
                    let values = row.columns().zip(&integers).map(|(value, &integer)| to_value(value, integer));
                    rows.push(values.collect::<Result<_, _>>()?);
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(rows)
    }

    /// Starts `COPY … FROM STDIN`.
    ///
    /// # Errors
    /// [`PgError::Server`] if the server refuses it, [`PgError::Protocol`] if `sql` is not such a statement.
    pub fn copy_in(&mut self, sql: &str) -> Result<CopyIn<'_>, PgError> {
        frontend::query(&mut self.out, sql);
        self.send()?;
        let mut failed = None;
        loop {
            match self.next() {
                Ok(Message::CopyInResponse) => return Ok(CopyIn::new(self)),
                Ok(Message::ErrorResponse(error)) => failed = Some(error.to_error().into()),
                Ok(Message::ReadyForQuery(_)) => {
                    return Err(failed.unwrap_or_else(|| {
                        PgError::Protocol(format!("`{sql}` is not COPY … FROM STDIN: it requested no data"))
                    }));
                }
                Ok(_) => {}
                Err(lost) => return Err(failed.unwrap_or(lost)),
            }
        }
    }

    /// Sends the contents of `out`, and passes on the responses up to ReadyForQuery. The server's error takes precedence over an
    /// error of `each`.
    pub(super) fn exchange(&mut self, mut each: impl FnMut(Message<'_>) -> Result<(), PgError>) -> Result<(), PgError> {
        let mut failed: Option<PgError> = None;
        let mut refused: Option<PgError> = None;
        // A server that is shutting down has said why before it stopped listening.
        let mut unsent = self.send().err();
        loop {
            match self.next() {
                Ok(Message::ReadyForQuery(_)) if unsent.is_none() => break,
                Ok(Message::ErrorResponse(error)) => {
                    refused.get_or_insert_with(|| error.to_error().into());
                }
                // A statement not meant to copy has no data.
                Ok(Message::CopyInResponse) => {
                    frontend::copy_fail(&mut self.out);
                    self.send()?;
                }
                Ok(message) => {
                    if failed.is_none() {
                        failed = each(message).err();
                    }
                }
                Err(lost) => return Err(refused.or(unsent.take()).unwrap_or(lost)),
            }
        }
        refused.or(failed).map_or(Ok(()), Err)
    }

    pub(super) fn out(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    /// Sends all of `out`.
    pub(super) fn send(&mut self) -> Result<(), PgError> {
        let mut sent = 0;
        while sent < self.out.len() {
            match self.link.send(&self.out[sent..]) {
                Ok(count) => sent += count,
                Err(lost) => {
                    self.out.clear();
                    return Err(lost);
                }
            }
        }
        self.out.clear();
        while !self.link.flush()? {}
        Ok(())
    }

    /// Whether an unrequested message has arrived.
    pub(super) fn has_news(&self) -> bool {
        if !matches!(self.link.ready(), Ok(None)) {
            return true;
        }
        if self.link.wire().is_encrypted() {
            // The socket's data may not be part of a message.
            return self.link.wire().has_plaintext();
        }
        let mut poll = [rustix::event::PollFd::from_borrowed_fd(self.link.wire().fd(), rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut poll, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// The next message.
    pub(super) fn next(&mut self) -> Result<Message<'_>, PgError> {
        let length = loop {
            match self.link.ready() {
                Ok(Some(length)) => break length,
                Ok(None) => {}
                Err(broken) => {
                    self.link.orderly = false;
                    return Err(broken);
                }
            }
            if self.link.fill()? == Filled::Nothing {
                return Err(PgError::Closed("no answer in time".to_owned()));
            }
        };
        Message::parse(self.link.take(length))
    }
}

fn to_value(bytes: Option<&[u8]>, integer: bool) -> Result<SqlValue, PgError> {
    let Some(bytes) = bytes else { return Ok(SqlValue::Null) };
    let text = std::str::from_utf8(bytes).map_err(|_| PgError::Protocol("a value that is not UTF-8".to_owned()))?;
    if integer {
        let number = text.parse().map_err(|_| PgError::Protocol(format!("`{text}` for an integer")))?;
        return Ok(SqlValue::Integer(number));
    }
    Ok(SqlValue::Text(text.to_owned()))
}

impl Database for Connection {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute(&mut self, sql: &str) -> anyhow::Result<()> {
        Ok(self.run(sql)?)
    }

    fn rows(&mut self, sql: &str) -> anyhow::Result<Vec<Vec<SqlValue>>> {
        Ok(self.query(sql)?)
    }
}
