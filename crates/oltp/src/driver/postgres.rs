//! Connections to a PostgreSQL server, for the event loop.

use std::os::fd::BorrowedFd;
use std::sync::mpsc::Sender;

use crate::config::Mode;
use crate::input::Request;
use crate::output::TransactionError;
use crate::sql::{self, Call};
use bigiron_sql::pg::{Channel, Connection, Message, PgError, Url};

use super::remote::{NextStep, Session};

/// One connection and its present transaction.
pub struct PostgresSession {
    channel: Channel,
    mode: Mode,
    call: Option<Call>,
    /// The server's last error outside a transaction: why it is about to end.
    said: Option<String>,
}

/// Connects, and prepares the statements of `mode`; reports each connection to `made`.
///
/// # Errors
/// If the server cannot be reached or refuses.
pub fn connect(url: &Url, mode: Mode, count: usize, made: &Sender<()>) -> Result<Vec<PostgresSession>, PgError> {
    let one = || {
        let mut connection = Connection::connect(url)?;
        sql::prepare(&mut connection, mode)?;
        // The receiver may have gone.
        let _ = made.send(());
        Ok(PostgresSession { channel: connection.channel()?, mode, call: None, said: None })
    };
    (0..count).map(|_| one()).collect()
}

impl Session for PostgresSession {
    fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    fn begin(&mut self, request: &Request) {
        self.call = Some(Call::begin(self.mode, request, &mut self.channel.out));
    }

    fn go_on(&mut self) {
        if let Some(call) = &mut self.call {
            call.send(&mut self.channel.out);
        }
    }

    fn flush(&mut self) -> bool {
        !matches!(self.channel.flush(), Ok(false))
    }

    fn receive(&mut self) -> (NextStep, Option<String>) {
        let Self { channel, call, said, .. } = self;
        let mut step = NextStep::Wait;
        let received = channel.receive(|message| match call {
            Some(call) if step != NextStep::Send => match call.receive(&message) {
                NextStep::Wait => {}
                next => step = next,
            },
            _ => {
                if let Message::ErrorResponse(error) = message {
                    *said = Some(error.to_error().to_string());
                }
            }
        });
        if matches!(step, NextStep::Done(_)) {
            self.call = None;
        }
        (step, received.err().map(|error| error.to_string()))
    }

    fn lost(self, why: &str) -> Result<TransactionError, String> {
        let why = match self.said {
            Some(said) => format!("{why}; {said}"),
            None => why.to_owned(),
        };
        match self.call {
            Some(call) => Ok(call.lost(&why)),
            None => Err(why),
        }
    }
}
