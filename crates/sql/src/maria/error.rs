//! The errors between a client and its MariaDB server.
//!
//! Invariant: no error text contains a password.

use mysql_common::packets::ErrPacket;

/// Codes of the server's errors (MariaDB's documentation, "Error Codes").
const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
const DISK_FULL: [u16; 3] = [1021, 1114, 1026];
const UNKNOWN: u16 = 1105;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MariaError {
    #[error("Cannot connect to {place}: {cause}")]
    Connect { place: String, cause: String },
    #[error("{text} (error {code}, {state})")]
    Server { code: u16, state: String, text: String },
    #[error("The connection was lost: {0}")]
    Closed(String),
    /// The server's response is not of the protocol.
    #[error("The server's response is not understood: {0}")]
    Protocol(String),
}

impl MariaError {
    pub fn of(packet: &ErrPacket<'_>) -> Self {
        match packet {
            ErrPacket::Error(error) => Self::Server {
                code: error.error_code(),
                state: error.sql_state_ref().map_or_else(|| "HY000".to_owned(), |state| state.as_str().into_owned()),
                text: error.message_str().into_owned(),
            },
            ErrPacket::Progress(_) => {
                Self::Server { code: UNKNOWN, state: "HY000".to_owned(), text: "an unrequested report".to_owned() }
            }
        }
    }

    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Server { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// A deadlock, or a lock that was not free in time: the transaction can be tried again.
    pub fn is_retry(&self) -> bool {
        self.code().is_some_and(|code| [DEADLOCK, LOCK_WAIT_TIMEOUT].contains(&code))
    }

    /// The server's file system is full.
    pub fn is_disk_full(&self) -> bool {
        self.code().is_some_and(|code| DISK_FULL.contains(&code))
    }
}
