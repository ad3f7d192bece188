//! A driver thread's event loop over its connections to a PostgreSQL server.
//!
//! Invariant: the thread sleeps unless a socket is ready, a terminal is due or the window changes; a lost connection ends the
//! run, and its request is in doubt.

use std::sync::mpsc::Sender;

use anyhow::{Context as _, Result};

use crate::config::Mode;
use crate::pg::{Channel, Connection, Message, PgError, Url};
use crate::sql;
use crate::sql::{Call, NextStep};
use bigiron_sys::load::now_ns;

use super::driver_thread::{DriverThread, ThreadError, ThreadResult};
use super::poll::{Poll, Stop};
use super::scheduler::User;

/// A server without any response for this long while requests are outstanding counts as dead.
const PATIENCE_NS: u64 = 300_000_000_000;
/// The same after the run has failed: outstanding requests are then in doubt.
const LAST_PATIENCE_NS: u64 = 10_000_000_000;

/// One connection and its present transaction.
pub struct DrivenConnection {
    /// `None` once it is lost.
    channel: Option<Channel>,
    call: Option<Call>,
    /// Whether the socket had no room for all data to send.
    full: bool,
    /// The server's last error outside a transaction: why it is about to end.
    said: Option<String>,
}

/// Connects, and prepares the statements of `mode`; reports each connection to `made`.
///
/// # Errors
/// If the server cannot be reached or refuses.
pub fn connect(url: &Url, mode: Mode, count: usize, made: &Sender<()>) -> Result<Vec<DrivenConnection>, PgError> {
    let one = || {
        let mut connection = Connection::connect(url)?;
        sql::prepare(&mut connection, mode)?;
        // The receiver may have gone.
        let _ = made.send(());
        Ok(DrivenConnection { channel: Some(connection.channel()?), call: None, full: false, said: None })
    };
    (0..count).map(|_| one()).collect()
}

/// Works until the window has closed and everything is answered. Returns the connections, because the server's sessions end with
/// them.
///
/// # Errors
/// If this thread cannot wait for its sockets.
pub fn work<U: User>(
    shift: DriverThread<'_, U>,
    mode: Mode,
    links: Vec<DrivenConnection>,
    stop: &Stop,
) -> Result<(ThreadResult, Vec<DrivenConnection>)> {
    let poll = Poll::new(stop).context("Cannot wait for connections")?;
    let mut worker = Worker { shift, mode, links, poll, answered_at: now_ns() };
    worker.run().context("Cannot wait for connections")?;
    Ok((worker.shift.report(), worker.links))
}

struct Worker<'a, U: User> {
    shift: DriverThread<'a, U>,
    mode: Mode,
    links: Vec<DrivenConnection>,
    poll: Poll,
    /// When the server last sent a response.
    answered_at: u64,
}

impl<U: User> Worker<'_, U> {
    fn run(&mut self) -> std::io::Result<()> {
        for (number, link) in self.links.iter().enumerate() {
            if let Some(channel) = &link.channel {
                self.poll.add(channel.fd(), number)?;
            }
        }
        let mut ready = Vec::new();
        while self.shift.goes_on(now_ns()) {
            self.send()?;
            let patience = if self.shift.has_failed() { LAST_PATIENCE_NS } else { PATIENCE_NS };
            let gives_up = (self.shift.scheduler.in_flight() > 0).then_some(self.answered_at + patience);
            self.poll.wait([self.shift.deadline(), gives_up].into_iter().flatten().min(), &mut ready)?;
            for &number in &ready {
                self.serve(number)?;
            }
            if !ready.is_empty() {
                self.answered_at = now_ns();
            } else if gives_up.is_some_and(|at| now_ns() >= at) {
                let why = format!("The server has not responded for {} s", patience / 1_000_000_000);
                (0..self.links.len()).for_each(|number| self.lose(number, &why));
            }
        }
        Ok(())
    }

    /// Sends all requests for which a connection is free.
    fn send(&mut self) -> std::io::Result<()> {
        while let Some(lane) = self.shift.scheduler.dispatch() {
            if self.shift.scheduler.in_flight() == 1 {
                // The time limit starts with the request.
                self.answered_at = now_ns();
            }
            self.begin(lane)?;
        }
        Ok(())
    }

    /// Sends a connection's request, for the first time or again.
    fn begin(&mut self, lane: usize) -> std::io::Result<()> {
        let link = &mut self.links[lane];
        if let Some(channel) = &mut link.channel {
            link.call = Some(Call::begin(self.mode, self.shift.scheduler.request(lane), &mut channel.out));
        }
        self.flush(lane)
    }

    fn flush(&mut self, lane: usize) -> std::io::Result<()> {
        let link = &mut self.links[lane];
        let Some(channel) = &mut link.channel else { return Ok(()) };
        // A permanent failure to send is detected by the next receive, after the server's last messages.
        let full = matches!(channel.flush(), Ok(false));
        if full != link.full {
            link.full = full;
            self.poll.output(channel.fd(), lane, full)?;
        }
        Ok(())
    }

    /// Receives data on a connection, and continues its transaction.
    fn serve(&mut self, lane: usize) -> std::io::Result<()> {
        let DrivenConnection { channel: Some(channel), call, said, full } = &mut self.links[lane] else {
            return Ok(());
        };
        let full = *full;
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
        match step {
            NextStep::Wait if full => self.flush(lane)?,
            NextStep::Wait => {}
            NextStep::Send => {
                if let DrivenConnection { channel: Some(channel), call: Some(call), .. } = &mut self.links[lane] {
                    call.send(&mut channel.out);
                }
                self.flush(lane)?;
            }
            NextStep::Done(result) => {
                self.links[lane].call = None;
                if self.shift.answer(lane, result) {
                    self.begin(lane)?;
                }
                self.send()?;
            }
        }
        if let Err(error) = received {
            self.lose(lane, &error.to_string());
        }
        Ok(())
    }

    /// Abandons a connection.
    fn lose(&mut self, lane: usize, why: &str) {
        let link = &mut self.links[lane];
        if link.channel.take().is_none() {
            return;
        }
        let why = match link.said.take() {
            Some(said) => format!("{why}; {said}"),
            None => why.to_owned(),
        };
        match link.call.take() {
            Some(call) => {
                self.shift.answer(lane, Err(call.lost(&why)));
            }
            None => self.shift.fail(ThreadError::Lost(why)),
        }
    }
}
