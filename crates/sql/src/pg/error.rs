//! The errors between a client and its server.
//!
//! Invariant: no error text contains a password.

use std::fmt;

/// SQLSTATE: five characters (PostgreSQL's documentation, appendix A).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SqlState(pub [u8; 5]);

impl SqlState {
    /// For a server that gives none, or a malformed one: `XX000`, internal error.
    pub const UNKNOWN: SqlState = SqlState(*b"XX000");

    /// `text`, if it has five letters or digits.
    pub fn parse(text: &[u8]) -> Option<SqlState> {
        let code: [u8; 5] = text.try_into().ok()?;
        code.iter().all(u8::is_ascii_alphanumeric).then_some(SqlState(code))
    }

    /// A serialization failure or a deadlock (40001, 40P01): nothing happened, and the transaction can be retried.
    pub fn is_retry(self) -> bool {
        matches!(&self.0, b"40001" | b"40P01")
    }

    /// All of the server's connections are in use (53300).
    pub fn is_too_many_connections(self) -> bool {
        &self.0 == b"53300"
    }

    /// The server was told to stop, crashed and is restarting, or is not up yet (57P01, 57P02, 57P03).
    pub fn is_shutdown(self) -> bool {
        matches!(&self.0, b"57P01" | b"57P02" | b"57P03")
    }

    /// The server's file system is full (53100).
    pub fn is_disk_full(self) -> bool {
        &self.0 == b"53100"
    }

    /// The client is not authorized to log in (class 28).
    pub fn is_authentication(self) -> bool {
        self.0.starts_with(b"28")
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&c| fmt::Write::write_char(f, char::from(c)))
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error with the server's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// `ERROR`, `FATAL` or `PANIC`, untranslated if the server reports it (9.6 and later).
    pub severity: String,
    pub sqlstate: SqlState,
    pub text: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.sqlstate, self.text)?;
        for more in [&self.detail, &self.hint].into_iter().flatten() {
            write!(f, "; {more}")?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PgError {
    /// No server was reached, or not a PostgreSQL server.
    #[error("Cannot connect to {host}: {cause}")]
    Connect { host: String, cause: String },
    /// The server rejects the client's identity or address.
    #[error("{host} does not let user `{user}` in: {cause}")]
    Authentication { host: String, user: String, cause: String },
    /// The server was reached, but refuses the connection.
    #[error("{host} refuses the connection: {error}")]
    Startup { host: String, error: Box<ServerError> },
    /// The server refused a request.
    #[error("{0}")]
    Server(Box<ServerError>),
    /// Bytes that violate the protocol.
    #[error("The server violates PostgreSQL's protocol: {0}")]
    Protocol(String),
    /// The connection is lost; the last request may or may not have been executed.
    #[error("Connection to the server lost: {0}")]
    Closed(String),
}

impl From<ServerError> for PgError {
    fn from(error: ServerError) -> PgError {
        PgError::Server(Box::new(error))
    }
}

impl PgError {
    /// The SQLSTATE of the server's error, if there is one.
    pub fn sqlstate(&self) -> Option<SqlState> {
        match self {
            PgError::Startup { error, .. } | PgError::Server(error) => Some(error.sqlstate),
            _ => None,
        }
    }

    /// [`SqlState::is_retry`].
    pub fn is_retry(&self) -> bool {
        self.sqlstate().is_some_and(SqlState::is_retry)
    }

    /// Whether the connection can no longer be used.
    pub fn is_disconnected(&self) -> bool {
        match self {
            PgError::Closed(_) | PgError::Protocol(_) => true,
            PgError::Server(error) => error.sqlstate.is_shutdown() || error.severity != "ERROR",
            PgError::Connect { .. } | PgError::Authentication { .. } | PgError::Startup { .. } => true,
        }
    }
}
