//! One transaction on one connection, from its first byte to its response.
//!
//! Invariant: when a call is done the connection is ready for the next one: every response has been processed, and no transaction is open.
//!
//! COMMIT is sent when everything before it has succeeded: a statement that fails does not keep the server from executing the next one. With
//! `autocommit` off, what a server executes after it has rolled back a deadlock is rolled back in turn.

use std::sync::Arc;

use mysql_common::constants::CapabilityFlags;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{
    Column, ComStmtExecuteRequestBuilder, CommonOkPacket, OkPacketDeserializer, ResultSetTerminator,
};
use mysql_common::proto::{Binary, MySerialize as _};
use mysql_common::row::RowDeserializer;
use mysql_common::value::{ServerSide, Value};

use super::statements::{Expect, Part};
use crate::config::Mode;
use crate::driver::NextStep;
use crate::input::Request;
use crate::load::timestamp;
use crate::output::{Output, TransactionError};
use crate::sql::{self, Answer, Statement};
use bigiron_sql::maria::connection::{self, ERROR, OK, TERMINATOR, parse};
use bigiron_sql::maria::{Channel, MariaError};
use bigiron_sql::pg::Parameter;

/// The error of `new_order` in `procedures.sql` if an item does not exist.
const NO_ITEM: u16 = 30_001;

/// A part of a statement, prepared on a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreparedPart {
    pub(super) part: Part,
    pub(super) id: u32,
}

/// The statements of a mode, prepared on a connection, by their numbers.
pub(super) type Prepared = Vec<Vec<PreparedPart>>;

/// A part to execute.
#[derive(Clone, Copy, Debug)]
struct Step {
    statement: Statement,
    part: Part,
}

/// Where a response is.
#[derive(Debug)]
enum Reading {
    /// Its first packet comes next.
    Start,
    /// The number of column definitions that are still to come, and those received.
    Columns(u64, Vec<Column>),
    Rows(Arc<[Column]>),
}

/// A transaction in progress.
pub(super) struct Call {
    steps: Vec<Step>,
    /// The commands of all steps, and the end of each.
    commands: Vec<u8>,
    ends: Vec<usize>,
    /// The step whose response comes next, and the number of those that have been sent.
    at: usize,
    sent: usize,
    /// Whether all before the last are sent at once.
    pipelined: bool,
    reading: Reading,
    /// Rows of the response in progress.
    rows: u64,
    /// Those of a procedure, until its end.
    rows_seen: Option<u64>,
    answer: Answer,
    failed: Option<TransactionError>,
    /// `failed` because an item does not exist.
    no_item: bool,
    /// A ROLLBACK was sent after `failed`.
    closing: bool,
}

/// Statements as commands.
struct Commands<'p> {
    prepared: &'p Prepared,
    call: Call,
}

impl sql::Statements for Commands<'_> {
    fn add(&mut self, statement: Statement, parameters: impl IntoIterator<Item = Parameter>) {
        let parameters: Vec<Value> = parameters.into_iter().map(value).collect();
        for PreparedPart { part, id } in &self.prepared[statement as usize] {
            let values: Vec<Value> = part.parameters.iter().map(|n| parameters[*n].clone()).collect();
            ComStmtExecuteRequestBuilder::new(*id).build(&values).0.serialize(&mut self.call.commands);
            self.call.ends.push(self.call.commands.len());
            self.call.steps.push(Step { statement, part: *part });
        }
    }
}

fn value(parameter: Parameter) -> Value {
    match parameter {
        Parameter::Int4(number) => Value::Int(i64::from(number)),
        Parameter::Timestamp(micros) => Value::Bytes(timestamp(micros).into_bytes()),
        Parameter::Text(text) => Value::Bytes(text.into_bytes()),
        Parameter::Null => Value::NULL,
        // The form of `procedures.sql`.
        Parameter::Int4Array(numbers) => {
            Value::Bytes(numbers.iter().map(|n| format!("{n:010}")).collect::<String>().into_bytes())
        }
    }
}

impl Call {
    /// Begins a transaction on a connection where the mode's statements are prepared: queues the first commands.
    pub(super) fn begin(mode: Mode, request: &Request, prepared: &Prepared, channel: &mut Channel) -> Self {
        let call = Self {
            steps: Vec::new(),
            commands: Vec::new(),
            ends: Vec::new(),
            at: 0,
            sent: 0,
            pipelined: mode == Mode::Pipelined,
            reading: Reading::Start,
            rows: 0,
            rows_seen: None,
            answer: Answer::new(&request.input),
            failed: None,
            no_item: false,
            closing: false,
        };
        let mut commands = Commands { prepared, call };
        sql::write(mode, request, &mut commands);
        let mut call = commands.call;
        call.send(channel);
        call
    }

    /// Queues the commands for [`NextStep::Send`].
    pub(super) fn send(&mut self, channel: &mut Channel) {
        if self.failed.is_some() {
            self.closing = true;
            channel.command(connection::query("ROLLBACK"));
            return;
        }
        let before_last = self.ends.len().saturating_sub(1);
        let until = if self.pipelined && self.sent < before_last { before_last } else { self.sent + 1 };
        for step in self.sent..until.min(self.ends.len()) {
            let begin = step.checked_sub(1).map_or(0, |before| self.ends[before]);
            channel.command(|out| out.extend_from_slice(&self.commands[begin..self.ends[step]]));
            self.sent += 1;
        }
    }

    /// Processes a packet of the server.
    pub(super) fn receive(&mut self, packet: &[u8]) -> NextStep {
        match self.take(packet) {
            Ok(None) => NextStep::Wait,
            Ok(Some(rows)) => self.ended(Ok(rows)),
            Err(error) => self.ended(Err(error)),
        }
    }

    /// The rows of a response that has ended.
    fn take(&mut self, packet: &[u8]) -> Result<Option<u64>, MariaError> {
        let first = packet.first().copied();
        if first == Some(ERROR) {
            self.reading = Reading::Start;
            self.rows_seen = None;
            return Err(MariaError::of(&parse(packet, CapabilityFlags::CLIENT_PROTOCOL_41)?));
        }
        match &mut self.reading {
            Reading::Start if first == Some(OK) => {
                let ok =
                    parse::<OkPacketDeserializer<'_, CommonOkPacket>>(packet, CapabilityFlags::CLIENT_PROTOCOL_41)?;
                // After the rows of a procedure comes its own end.
                let rows = self.rows_seen.take().unwrap_or_else(|| ok.into_inner().affected_rows());
                return Ok(Some(rows));
            }
            Reading::Start => {
                let columns = ParseBuf(packet).checked_eat_lenenc_int();
                let columns = columns.ok_or_else(|| MariaError::Protocol("no number of columns".to_owned()))?;
                self.rows = 0;
                self.reading = Reading::Columns(columns, Vec::new());
            }
            Reading::Columns(left, columns) => {
                columns.push(parse(packet, ())?);
                *left -= 1;
                if *left == 0 {
                    self.reading = Reading::Rows(std::mem::take(columns).into());
                }
            }
            // Rows of the binary protocol begin with 0.
            Reading::Rows(_) if first == Some(TERMINATOR) => {
                self.reading = Reading::Start;
                let end = parse::<OkPacketDeserializer<'_, ResultSetTerminator>>(
                    packet,
                    CapabilityFlags::CLIENT_PROTOCOL_41,
                )?;
                if connection::has_more(&end.into_inner()) {
                    self.rows_seen = Some(self.rows);
                    return Ok(None);
                }
                return Ok(Some(self.rows));
            }
            Reading::Rows(columns) => {
                self.rows += 1;
                let is_answer =
                    self.steps.get(self.at).filter(|step| step.part.expect == Expect::Answer && self.failed.is_none());
                if let Some(step) = is_answer {
                    let row = parse::<RowDeserializer<ServerSide, Binary>>(packet, Arc::clone(columns))?.into_inner();
                    let values = row.unwrap().into_iter().map_while(integer);
                    if let Err(why) = self.answer.row(step.statement, values) {
                        self.failed = Some(TransactionError::Failed(why));
                    }
                }
            }
        }
        Ok(None)
    }

    /// A response has ended.
    fn ended(&mut self, rows: Result<u64, MariaError>) -> NextStep {
        if self.closing {
            let failed = self.failed.take().expect("it is closed because it failed");
            let is_asked_for = self.no_item && self.answer.must_roll_back();
            return NextStep::Done(if is_asked_for { Ok(Output::RolledBack) } else { Err(failed) });
        }
        let wrong = match (rows, self.steps.get(self.at)) {
            (_, None) => Some(TransactionError::Failed("An unrequested response".to_owned())),
            (Err(error), _) => {
                self.no_item |= self.failed.is_none() && error.code() == Some(NO_ITEM);
                Some(meaning(&error))
            }
            (Ok(rows), Some(Step { statement, part })) => match part.expect {
                Expect::Any => None,
                Expect::One if rows == 1 => None,
                Expect::One => {
                    Some(TransactionError::Failed(format!("{rows} rows instead of one were changed by `{}`", part.sql)))
                }
                Expect::Answer => {
                    let said = format!("{rows} rows");
                    self.answer.done(*statement, Some(rows), &said).err().map(TransactionError::Failed)
                }
            },
        };
        if let (None, Some(wrong)) = (&self.failed, wrong) {
            self.failed = Some(wrong);
        }
        self.at += 1;
        if self.at < self.sent {
            return NextStep::Wait;
        }
        if self.failed.is_some() || self.at < self.steps.len() {
            return NextStep::Send;
        }
        NextStep::Done(self.output())
    }

    fn output(&self) -> Result<Output, TransactionError> {
        self.answer.output().map_err(TransactionError::Failed)
    }

    /// The result of a call whose connection was lost for the reason `why`. It includes what had failed before.
    pub(super) fn lost(self, why: &str) -> TransactionError {
        TransactionError::Disconnected(match self.failed {
            Some(said) => format!("{why}; {said}"),
            None => why.to_owned(),
        })
    }
}

/// `Some(None)` is NULL.
fn integer(value: Value) -> Option<Option<i64>> {
    match value {
        Value::NULL => Some(None),
        Value::Int(number) => Some(Some(number)),
        Value::UInt(number) => i64::try_from(number).ok().map(Some),
        // Decimals, such as sums.
        Value::Bytes(text) => std::str::from_utf8(&text).ok()?.parse().ok().map(Some),
        _ => None,
    }
}

fn meaning(error: &MariaError) -> TransactionError {
    if error.is_retry() {
        TransactionError::Retry(error.to_string())
    } else if error.is_disk_full() {
        TransactionError::NoSpace(error.to_string())
    } else {
        TransactionError::Failed(error.to_string())
    }
}
