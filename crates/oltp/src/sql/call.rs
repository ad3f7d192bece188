//! One transaction on one connection, from its first byte to its response.
//!
//! Invariant: when a call is done the connection is ready for the next one: every response up to the last ReadyForQuery has been
//! processed, and no transaction is open.

use bytes::BytesMut;

use crate::config::Mode;
use crate::driver::NextStep;
use crate::input::Request;
use crate::output::{Output, TransactionError};
use bigiron_sql::pg::{Message, Parameter, Row, ServerError, Status, binary, frontend, message};

use super::answer::Answer;
use super::script::{self, Statements};
use super::statements::Statement;

/// The error of `new_order` in `procedures.sql` if an item does not exist.
const NO_ITEM: &[u8; 5] = b"BG001";

/// Statements as messages.
pub(super) struct Messages<'o> {
    out: &'o mut BytesMut,
    /// The statements written so far, in the order of their responses.
    pub(super) steps: Vec<Statement>,
    /// The end of each in `out` if each has its own Sync.
    ends: Option<Vec<usize>>,
}

impl<'o> Messages<'o> {
    pub(super) fn of(mode: Mode, request: &Request, out: &'o mut BytesMut) -> Self {
        let ends = (mode == Mode::RoundTrips).then(Vec::new);
        let mut messages = Messages { out, steps: Vec::new(), ends };
        script::write(mode, request, &mut messages);
        if messages.ends.is_none() {
            frontend::sync(messages.out);
        }
        messages
    }
}

impl Statements for Messages<'_> {
    fn add(&mut self, statement: Statement, parameters: impl IntoIterator<Item = Parameter>) {
        frontend::bind(self.out, statement.name(), parameters);
        frontend::execute(self.out);
        self.steps.push(statement);
        if let Some(ends) = &mut self.ends {
            frontend::sync(self.out);
            ends.push(self.out.len());
        }
    }
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
        let Messages { steps, ends, .. } = Messages::of(mode, request, target);
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
                    Some(&statement) => self.answer.row(statement, columns(statement, *row)),
                    None => Err("An unrequested row".to_owned()),
                };
                self.note(taken);
            }
            Message::CommandComplete(tag) if !self.closing => {
                let taken = match self.steps.get(self.at) {
                    Some(_) if self.failed.is_some() => Ok(()),
                    Some(&statement) => self.answer.done(statement, rows(statement, tag), tag),
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

/// The columns of a row as integers. Pairs are arrays, and an order's lines are counted.
fn columns(statement: Statement, row: Row<'_>) -> impl Iterator<Item = Option<i64>> {
    let pair = match statement {
        Statement::CallNewOrder | Statement::CallNewOrderByLine | Statement::CallPayment => {
            row.columns().next().flatten().and_then(binary::array)
        }
        _ => None,
    };
    let single = if pair.is_some() { None } else { Some(row.columns()) };
    let is_lines = move |place: usize| statement == Statement::CallOrderStatus && place == 3;
    let value = move |(place, bytes): (usize, Option<&[u8]>)| match bytes {
        None => Some(None),
        Some(bytes) if is_lines(place) => binary::array(bytes).map(|lines| Some(lines.count() as i64)),
        Some(bytes) => binary::integer(bytes).map(Some),
    };
    pair.into_iter().flatten().chain(single.into_iter().flatten()).enumerate().map_while(value)
}

/// The rows that a tag tells, if it is of such a statement.
fn rows(statement: Statement, tag: &str) -> Option<u64> {
    let of = |word: &str| (tag == word).then_some(0);
    match statement {
        Statement::Begin | Statement::BeginSnapshot => of("BEGIN"),
        Statement::Commit => of("COMMIT"),
        Statement::Rollback => of("ROLLBACK"),
        _ => message::rows_of(tag),
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
