//! One transaction on one connection, from its first byte to its response.
//!
//! Invariant: when a call is done the connection is ready for the next one: every response up to the last ReadyForQuery has been
//! processed, and no transaction is open.

use bytes::BytesMut;

use crate::config::Mode;
use crate::input::Request;
use crate::output::{Output, TransactionError};
use crate::pg::{Message, ServerError, Status, frontend};

use super::answer::Answer;
use super::script::Script;
use super::statements::Statement;

/// The error of `new_order` in `procedures.sql` if an item does not exist.
const NO_ITEM: &[u8; 5] = b"BG001";

/// The next step after a message.
#[derive(Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Wait for more messages.
    Wait,
    /// [`Call::send`], and flush.
    Send,
    /// The connection is free.
    Done(Result<Output, TransactionError>),
}

/// A transaction in progress.
#[derive(Debug)]
pub struct Call {
    steps: Vec<Statement>,
    /// The step whose response comes next.
    at: usize,
    /// With round trips: all steps' messages, and the end of each.
    queue: BytesMut,
    ends: Vec<usize>,
    /// Number of `ends` that have been sent.
    sent: usize,
    answer: Answer,
    failed: Option<TransactionError>,
    /// `failed` because an item does not exist.
    no_item: bool,
    /// A ROLLBACK was sent after `failed`.
    closing: bool,
}

impl Call {
    /// Begins a transaction on a connection that [`super::prepare`] has prepared for the mode: appends the first messages.
    pub fn begin(mode: Mode, request: &Request, out: &mut BytesMut) -> Call {
        let answer = Answer::new(&request.input);
        let mut queue = BytesMut::new();
        let target = if mode == Mode::RoundTrips { &mut queue } else { &mut *out };
        let Script { steps, ends, .. } = Script::write(mode, request, target);
        let mut call = Call {
            steps,
            at: 0,
            queue,
            ends: ends.unwrap_or_default(),
            sent: 0,
            answer,
            failed: None,
            no_item: false,
            closing: false,
        };
        if mode == Mode::RoundTrips {
            call.send(out);
        }
        call
    }

    /// Processes a message of the server.
    pub fn receive(&mut self, message: &Message<'_>) -> NextStep {
        match message {
            Message::DataRow(row) if self.failed.is_none() => {
                let taken = match self.steps.get(self.at) {
                    Some(&statement) => self.answer.row(statement, *row),
                    None => Err("An unrequested row".to_owned()),
                };
                self.note(taken);
            }
            Message::CommandComplete(tag) if !self.closing => {
                let taken = match self.steps.get(self.at) {
                    Some(_) if self.failed.is_some() => Ok(()),
                    Some(&statement) => self.answer.done(statement, tag),
                    None => Err("An unrequested response".to_owned()),
                };
                self.at += 1;
                self.note(taken);
            }
            Message::ErrorResponse(error) if self.failed.is_none() => {
                self.no_item = &error.sqlstate.0 == NO_ITEM;
                self.failed = Some(meaning(&error.to_error()));
            }
            Message::ReadyForQuery(status) => return self.ready(*status),
            _ => {}
        }
        NextStep::Wait
    }

    /// Appends the messages for [`NextStep::Send`].
    pub fn send(&mut self, out: &mut BytesMut) {
        if self.closing {
            frontend::bind(out, Statement::Rollback.name(), []);
            frontend::execute(out);
            frontend::sync(out);
        } else if let Some(&end) = self.ends.get(self.sent) {
            let begin = self.sent.checked_sub(1).map_or(0, |before| self.ends[before]);
            out.extend_from_slice(&self.queue[begin..end]);
            self.sent += 1;
        }
    }

    /// The result of a call whose connection was lost for the reason `why`. It includes the server's last message.
    pub fn lost(self, why: &str) -> TransactionError {
        TransactionError::Disconnected(match self.failed {
            Some(said) => format!("{why}; {said}"),
            None => why.to_owned(),
        })
    }

    fn note(&mut self, taken: Result<(), String>) {
        if let Err(text) = taken {
            self.failed.get_or_insert(TransactionError::Failed(text));
        }
    }

    fn ready(&mut self, status: Status) -> NextStep {
        let whole = if self.ends.is_empty() { self.steps.len() } else { self.sent };
        if self.failed.is_none() && self.at != whole {
            self.note(Err("The server was ready before it had responded".to_owned()));
        }
        let complete = self.at == self.steps.len();
        if self.failed.is_none() && !complete {
            return NextStep::Send;
        }
        if status != Status::Idle && !self.closing {
            self.note(Err("A transaction is open after its end".to_owned()));
            self.closing = true;
            return NextStep::Send;
        }
        NextStep::Done(self.result())
    }

    fn result(&mut self) -> Result<Output, TransactionError> {
        match self.failed.take() {
            None => self.answer.output().map_err(TransactionError::Failed),
            Some(_) if self.no_item && self.answer.must_roll_back() => Ok(Output::RolledBack),
            Some(failed) => Err(failed),
        }
    }
}

fn meaning(error: &ServerError) -> TransactionError {
    if error.sqlstate.is_retry() {
        TransactionError::Retry(error.to_string())
    } else if error.sqlstate.is_disk_full() {
        TransactionError::NoSpace(error.to_string())
    } else {
        TransactionError::Failed(error.to_string())
    }
}
