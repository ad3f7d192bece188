//! Connections for the driver's event loop.

use std::os::fd::BorrowedFd;
use std::sync::mpsc::Sender;

use super::call::{Call, Prepared, PreparedPart};
use super::statements::parts;
use crate::config::Mode;
use crate::driver::{NextStep, Session};
use crate::input::Request;
use crate::output::TransactionError;
use crate::sql::Statement;
use bigiron_sql::maria::{Channel, Connection, MariaError, Place};

/// One connection and its present transaction.
pub struct MariaSession {
    channel: Channel,
    prepared: Prepared,
    mode: Mode,
    call: Option<Call>,
}

/// Connects, and prepares the statements of `mode`; reports each connection to `made`.
///
/// # Errors
/// If the server cannot be reached or refuses.
pub fn connect(place: &Place, mode: Mode, count: usize, made: &Sender<()>) -> Result<Vec<MariaSession>, MariaError> {
    let one = || {
        let mut connection = Connection::connect(place)?;
        connection.run("SET SESSION autocommit = 0")?;
        let prepared = prepare(&mut connection, mode)?;
        // The receiver may have gone.
        let _ = made.send(());
        Ok(MariaSession { channel: Channel::new(connection.into_stream())?, prepared, mode, call: None })
    };
    (0..count).map(|_| one()).collect()
}

/// Installs or replaces the procedures of [`Mode::Procedures`] in the server's database.
///
/// # Errors
/// If the server refuses.
pub fn install_procedures(connection: &mut Connection) -> Result<(), MariaError> {
    connection.run(include_str!("procedures.sql"))
}

fn prepare(connection: &mut Connection, mode: Mode) -> Result<Prepared, MariaError> {
    let mut prepared = Prepared::new();
    for &statement in Statement::of(mode) {
        let number = statement as usize;
        prepared.resize(prepared.len().max(number + 1), Vec::new());
        for part in parts(statement) {
            let id = connection.prepare(part.sql)?;
            prepared[number].push(PreparedPart { part: *part, id });
        }
    }
    Ok(prepared)
}

impl Session for MariaSession {
    fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    fn begin(&mut self, request: &Request) {
        self.call = Some(Call::begin(self.mode, request, &self.prepared, &mut self.channel));
    }

    fn go_on(&mut self) {
        if let Some(call) = &mut self.call {
            call.send(&mut self.channel);
        }
    }

    fn flush(&mut self) -> bool {
        self.channel.flush()
    }

    fn receive(&mut self) -> (NextStep, Option<String>) {
        let Self { channel, call, .. } = self;
        let mut step = NextStep::Wait;
        let mut said = None;
        let received = channel.receive(|packet| match call {
            Some(call) if step == NextStep::Wait => step = call.receive(packet),
            _ => said = Some(format!("{} bytes that were not asked for", packet.len())),
        });
        if matches!(step, NextStep::Done(_)) {
            self.call = None;
        }
        (step, received.err().map(|error| error.to_string()).or(said))
    }

    fn lost(self, why: &str) -> Result<TransactionError, String> {
        match self.call {
            Some(call) => Ok(call.lost(why)),
            None => Err(why.to_owned()),
        }
    }
}
