//! A driver thread's event loop over its connections to a server.
//!
//! Invariant: the thread sleeps unless a socket is ready, a terminal is due or the window changes; a lost connection ends the
//! run, and its request is in doubt.

use std::os::fd::BorrowedFd;

use anyhow::{Context as _, Result};

use crate::input::Request;
use crate::output::{Output, TransactionError};
use bigiron_sys::load::now_ns;

use super::driver_thread::{DriverThread, ThreadError, ThreadResult};
use super::scheduler::User;
use bigiron_sys::load::poll::{Poll, Stop};

/// A server without any response for this long while requests are outstanding counts as dead.
const PATIENCE_NS: u64 = 300_000_000_000;
/// The same after the run has failed: outstanding requests are then in doubt.
const LAST_PATIENCE_NS: u64 = 10_000_000_000;

/// The next step of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Wait for more of the server's messages.
    Wait,
    /// [`Session::go_on`], and flush.
    Send,
    /// The connection is free.
    Done(Result<Output, TransactionError>),
}

/// One connection to a server, and its present transaction. Nothing here blocks.
pub trait Session: Send {
    /// The socket: readable always, writable while [`Self::flush`] returned `false`.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Queues the first messages of a transaction.
    fn begin(&mut self, request: &Request);

    /// Queues the next messages of the transaction.
    fn go_on(&mut self);

    /// Sends what is queued; `false` if the socket had no room for all of it. A connection that is lost is noticed by the next receive, after the
    /// server's last messages.
    fn flush(&mut self) -> bool;

    /// Reads once. Returns the next step of the transaction and, if the connection is lost or the server breaks the protocol, why.
    fn receive(&mut self) -> (NextStep, Option<String>);

    /// Gives the connection up for the reason `why`: the end of the transaction in progress, or else the reason with the server's last words.
    fn lost(self, why: &str) -> Result<TransactionError, String>;
}

/// A session, as the event loop sees it.
struct Lane<S> {
    /// `None` once it is lost.
    session: Option<S>,
    /// Whether the socket had no room for all data to send.
    full: bool,
}

/// Works until the window has closed and everything is answered. Returns the sessions, because they end at the server when they are dropped.
///
/// # Errors
/// If this thread cannot wait for its sockets.
pub fn work<U: User, S: Session>(
    shift: DriverThread<'_, U>,
    sessions: Vec<S>,
    stop: &Stop,
) -> Result<(ThreadResult, Vec<S>)> {
    let poll = Poll::new(stop).context("Cannot wait for connections")?;
    let lanes = sessions.into_iter().map(|session| Lane { session: Some(session), full: false }).collect();
    let mut worker = Worker { shift, lanes, poll, answered_at: now_ns() };
    worker.run().context("Cannot wait for connections")?;
    Ok((worker.shift.report(), worker.lanes.into_iter().filter_map(|lane| lane.session).collect()))
}

struct Worker<'a, U: User, S: Session> {
    shift: DriverThread<'a, U>,
    lanes: Vec<Lane<S>>,
    poll: Poll,
    /// When the server last sent a response.
    answered_at: u64,
}

impl<U: User, S: Session> Worker<'_, U, S> {
    fn run(&mut self) -> std::io::Result<()> {
        for (number, lane) in self.lanes.iter().enumerate() {
            if let Some(session) = &lane.session {
                self.poll.add(session.fd(), number)?;
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
                (0..self.lanes.len()).for_each(|number| self.lose(number, &why));
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
        if let Some(session) = &mut self.lanes[lane].session {
            session.begin(self.shift.scheduler.request(lane));
        }
        self.flush(lane)
    }

    fn flush(&mut self, number: usize) -> std::io::Result<()> {
        let Lane { session: Some(session), full: was_full } = &mut self.lanes[number] else { return Ok(()) };
        let full = !session.flush();
        if full != *was_full {
            *was_full = full;
            self.poll.output(session.fd(), number, full)?;
        }
        Ok(())
    }

    /// Receives data on a connection, and continues its transaction.
    fn serve(&mut self, number: usize) -> std::io::Result<()> {
        let Lane { session: Some(session), full } = &mut self.lanes[number] else { return Ok(()) };
        let (step, lost) = session.receive();
        match step {
            NextStep::Wait if *full => self.flush(number)?,
            NextStep::Wait => {}
            NextStep::Send => {
                session.go_on();
                self.flush(number)?;
            }
            NextStep::Done(result) => {
                if self.shift.answer(number, result) {
                    self.begin(number)?;
                }
                self.send()?;
            }
        }
        if let Some(why) = lost {
            self.lose(number, &why);
        }
        Ok(())
    }

    /// Abandons a connection.
    fn lose(&mut self, number: usize, why: &str) {
        let Some(session) = self.lanes[number].session.take() else { return };
        match session.lost(why) {
            Ok(end) => _ = self.shift.answer(number, Err(end)),
            Err(why) => self.shift.fail(ThreadError::Lost(why)),
        }
    }
}
