//! A connection that blocks: for schema, loading, statistics and checks.
//!
//! Invariant: after each method the connection is ready for the next command, or every later one fails as `Closed`.

use mysql_common::auth::plugins::mysql_native_password::scramble_native;
use mysql_common::constants::{CapabilityFlags, ColumnType, Command, StatusFlags};
use mysql_common::io::ParseBuf;
use mysql_common::packets::{
    AuthPlugin, Column, CommonOkPacket, HandshakePacket, HandshakeResponse, OkPacket, OkPacketDeserializer,
    ResultSetTerminator, StmtPacket,
};
use mysql_common::proto::MySerialize;
use mysql_common::proto::sync_framed::MySyncFramed;

use super::error::MariaError;
use super::stream::{Place, Stream};
use crate::database::{Database, Dialect, SqlValue};
use bigiron_service::mariadb::{DATABASE, USER};

/// First bytes of packets.
pub const OK: u8 = 0x00;
const LOCAL_INFILE: u8 = 0xfb;
pub const TERMINATOR: u8 = 0xfe;
pub const ERROR: u8 = 0xff;
/// A NULL in a row of text.
const NULL: u8 = 0xfb;
/// The longest packet in either direction; the server's `max_allowed_packet` may be smaller.
const LONGEST: usize = 1 << 30;

/// SQL as other engines have it: `"` quotes names, `||` joins texts, and what does not fit is refused.
const MODE: &str = "SET SESSION sql_mode = 'ANSI,TRADITIONAL'; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

pub struct Connection {
    framed: MySyncFramed<Stream>,
    capabilities: CapabilityFlags,
    packet: Vec<u8>,
}

/// What a statement has done to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Rows inserted or changed.
    pub rows: u64,
    /// Values that were changed to fit, rows that were left out.
    pub warnings: u16,
}

/// The start of a response.
enum Response {
    /// No rows; whether another response follows.
    Done { more: bool, taken: Taken },
    /// The server asks for the lines of a file.
    Lines,
    /// Rows follow; the number of their columns.
    Rows(u64),
}

impl Connection {
    /// Connects as the server's only user.
    ///
    /// # Errors
    /// The server cannot be reached, or does not let the user in.
    pub fn connect(place: &Place) -> Result<Self, MariaError> {
        let failed = |cause: String| MariaError::Connect { place: place.name(), cause };
        let stream = place.connect().map_err(|e| failed(e.to_string()))?;
        let mut framed = MySyncFramed::new(stream);
        framed.codec_mut().max_allowed_packet = LONGEST;
        let mut connection = Self { framed, capabilities: CapabilityFlags::empty(), packet: Vec::new() };
        connection.log_in(place).map_err(|e| failed(e.to_string()))?;
        connection.run(MODE)?;
        Ok(connection)
    }

    fn log_in(&mut self, place: &Place) -> Result<(), MariaError> {
        self.read()?;
        self.check_error()?;
        let greeting: HandshakePacket<'_> = parse(&self.packet, ())?;
        let wanted = CapabilityFlags::CLIENT_PROTOCOL_41
            | CapabilityFlags::CLIENT_FOUND_ROWS
            | CapabilityFlags::CLIENT_SECURE_CONNECTION
            | CapabilityFlags::CLIENT_TRANSACTIONS
            | CapabilityFlags::CLIENT_PLUGIN_AUTH
            | CapabilityFlags::CLIENT_LOCAL_FILES
            | CapabilityFlags::CLIENT_MULTI_STATEMENTS
            | CapabilityFlags::CLIENT_MULTI_RESULTS
            | CapabilityFlags::CLIENT_DEPRECATE_EOF;
        let missing = wanted - greeting.capabilities();
        if !missing.is_empty() {
            return Err(MariaError::Protocol(format!("it lacks {missing:?}")));
        }
        let scramble = scramble_native(&greeting.nonce(), place.password().as_bytes());
        let response = HandshakeResponse::new(
            scramble.as_ref().map(|bytes| &bytes[..]),
            (10, 0, 0),
            Some(USER.as_bytes()),
            Some(DATABASE.as_bytes()),
            Some(AuthPlugin::MysqlNativePassword),
            wanted,
            None,
            LONGEST as u32,
        );
        self.capabilities = response.capabilities();
        let mut bytes = Vec::new();
        response.serialize(&mut bytes);
        self.write(&bytes)?;
        self.read()?;
        self.check_error()?;
        match self.packet.first() {
            Some(&OK) => Ok(()),
            other => Err(MariaError::Protocol(format!("{other:x?} after the password"))),
        }
    }

    /// Runs statements, separated by `;`, and discards their rows.
    ///
    /// # Errors
    /// The server's message; the statements after the one that it refuses have not run.
    pub fn run(&mut self, sql: &str) -> Result<(), MariaError> {
        self.command(sql)?;
        loop {
            let more = match self.response()? {
                Response::Done { more, .. } => more,
                Response::Rows(columns) => self.rows_of(columns, |_, _| Ok(()))?,
                Response::Lines => self.refuse_lines()?,
            };
            if !more {
                return Ok(());
            }
        }
    }

    /// The rows of one statement.
    ///
    /// # Errors
    /// The server's message.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Vec<SqlValue>>, MariaError> {
        self.command(sql)?;
        let mut rows = Vec::new();
        match self.response()? {
            Response::Done { .. } => {}
            Response::Rows(columns) => {
                self.rows_of(columns, |columns, row| {
                    rows.push(values(columns, row)?);
                    Ok(())
                })?;
            }
            Response::Lines => _ = self.refuse_lines()?,
        }
        Ok(rows)
    }

    /// Begins a `LOAD DATA LOCAL INFILE`, whose lines are the bytes written.
    ///
    /// # Errors
    /// The server's message.
    pub fn load(&mut self, sql: &str) -> Result<LoadIn<'_>, MariaError> {
        self.command(sql)?;
        match self.response()? {
            Response::Lines => Ok(LoadIn { connection: self }),
            _ => Err(MariaError::Protocol("it does not ask for the lines".to_owned())),
        }
    }

    fn command(&mut self, sql: &str) -> Result<(), MariaError> {
        self.write_command(query(sql))
    }

    fn write_command(&mut self, append: impl FnOnce(&mut Vec<u8>)) -> Result<(), MariaError> {
        self.framed.codec_mut().reset_seq_id();
        let mut bytes = Vec::new();
        append(&mut bytes);
        self.write(&bytes)
    }

    /// Prepares a statement; returns its number.
    ///
    /// # Errors
    /// The server's message.
    pub fn prepare(&mut self, sql: &str) -> Result<u32, MariaError> {
        self.write_command(|out| {
            out.push(Command::COM_STMT_PREPARE as u8);
            out.extend_from_slice(sql.as_bytes());
        })?;
        self.read()?;
        self.check_error()?;
        let prepared: StmtPacket = parse(&self.packet, ())?;
        // Definitions of its parameters and columns.
        for _ in 0..u32::from(prepared.num_params()) + u32::from(prepared.num_columns()) {
            self.read()?;
        }
        Ok(prepared.statement_id())
    }

    /// For an event loop.
    pub fn into_stream(self) -> Stream {
        self.framed.destruct().3
    }

    fn response(&mut self) -> Result<Response, MariaError> {
        self.read()?;
        self.check_error()?;
        match self.packet.first() {
            Some(&OK) => {
                let done: OkPacket<'_> =
                    parse::<OkPacketDeserializer<'_, CommonOkPacket>>(&self.packet, self.capabilities)?.into_inner();
                Ok(Response::Done {
                    more: has_more(&done),
                    taken: Taken { rows: done.affected_rows(), warnings: done.warnings() },
                })
            }
            Some(&LOCAL_INFILE) => Ok(Response::Lines),
            _ => ParseBuf(&self.packet)
                .checked_eat_lenenc_int()
                .map(Response::Rows)
                .ok_or_else(|| MariaError::Protocol("no number of columns".to_owned())),
        }
    }

    /// Passes each row on; returns whether another response follows.
    fn rows_of(
        &mut self,
        count: u64,
        mut each: impl FnMut(&[Column], &[u8]) -> Result<(), MariaError>,
    ) -> Result<bool, MariaError> {
        let mut columns: Vec<Column> = Vec::new();
        for _ in 0..count {
            self.read()?;
            columns.push(parse(&self.packet, ())?);
        }
        let mut failed = None;
        loop {
            self.read()?;
            self.check_error()?;
            if self.packet.first() == Some(&TERMINATOR) && self.packet.len() < 0xff_ffff {
                let end: OkPacket<'_> =
                    parse::<OkPacketDeserializer<'_, ResultSetTerminator>>(&self.packet, self.capabilities)?
                        .into_inner();
                let more = has_more(&end);
                return failed.map_or(Ok(more), Err);
            }
            if failed.is_none() {
                failed = each(&columns, &self.packet).err();
            }
        }
    }

    /// No lines for a statement that should not ask for them.
    fn refuse_lines(&mut self) -> Result<bool, MariaError> {
        self.write(&[])?;
        match self.response()? {
            Response::Done { more, .. } => Ok(more),
            _ => Err(MariaError::Protocol("rows after the lines".to_owned())),
        }
    }

    fn check_error(&self) -> Result<(), MariaError> {
        if self.packet.first() == Some(&ERROR) {
            return Err(MariaError::of(&parse(&self.packet, self.capabilities)?));
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), MariaError> {
        self.packet.clear();
        match self.framed.next_packet(&mut self.packet) {
            Ok(true) => Ok(()),
            Ok(false) => Err(MariaError::Closed("the server closed it".to_owned())),
            Err(e) => Err(MariaError::Closed(e.to_string())),
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), MariaError> {
        self.framed.send(&mut bytes).map_err(|e| MariaError::Closed(e.to_string()))
    }
}

/// A load in progress. It must be finished; dropping it leaves the connection unusable.
pub struct LoadIn<'c> {
    connection: &'c mut Connection,
}

impl LoadIn<'_> {
    /// Sends some lines.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn write(&mut self, lines: &[u8]) -> Result<(), MariaError> {
        // An empty packet is the end.
        if lines.is_empty() { Ok(()) } else { self.connection.write(lines) }
    }

    /// Ends the lines; returns what the server has taken.
    ///
    /// # Errors
    /// The server's message.
    pub fn finish(self) -> Result<Taken, MariaError> {
        self.connection.write(&[])?;
        match self.connection.response()? {
            Response::Done { taken, .. } => Ok(taken),
            _ => Err(MariaError::Protocol("rows after the lines".to_owned())),
        }
    }
}

/// The command that runs SQL.
pub fn query(sql: &str) -> impl FnOnce(&mut Vec<u8>) {
    move |out| {
        out.push(Command::COM_QUERY as u8);
        out.extend_from_slice(sql.as_bytes());
    }
}

pub fn has_more(ok: &OkPacket<'_>) -> bool {
    ok.status_flags().contains(StatusFlags::SERVER_MORE_RESULTS_EXISTS)
}

pub fn parse<'de, T: mysql_common::proto::MyDeserialize<'de>>(
    bytes: &'de [u8],
    context: T::Ctx,
) -> Result<T, MariaError> {
    ParseBuf(bytes).parse(context).map_err(|e| MariaError::Protocol(e.to_string()))
}

/// A row in the protocol of text.
fn values(columns: &[Column], row: &[u8]) -> Result<Vec<SqlValue>, MariaError> {
    let mut rest = ParseBuf(row);
    columns.iter().map(|column| value(column, &mut rest)).collect()
}

fn value(column: &Column, rest: &mut ParseBuf<'_>) -> Result<SqlValue, MariaError> {
    let broken = |what: &str| MariaError::Protocol(format!("{what} for the column `{}`", column.name_str()));
    if rest.0.first() == Some(&NULL) {
        rest.skip(1);
        return Ok(SqlValue::Null);
    }
    let bytes = rest.checked_eat_lenenc_str().ok_or_else(|| broken("no value"))?;
    let text = std::str::from_utf8(bytes).map_err(|_| broken("bytes that are not UTF-8"))?;
    if is_whole(column) {
        return text.parse().map(SqlValue::Integer).map_err(|_| broken(&format!("`{text}`")));
    }
    Ok(SqlValue::Text(text.to_owned()))
}

/// Sums of integers are decimals without a fraction.
fn is_whole(column: &Column) -> bool {
    use ColumnType as T;
    match column.column_type() {
        T::MYSQL_TYPE_TINY
        | T::MYSQL_TYPE_SHORT
        | T::MYSQL_TYPE_INT24
        | T::MYSQL_TYPE_LONG
        | T::MYSQL_TYPE_LONGLONG => true,
        T::MYSQL_TYPE_NEWDECIMAL | T::MYSQL_TYPE_DECIMAL => column.decimals() == 0,
        _ => false,
    }
}

impl Database for Connection {
    fn dialect(&self) -> Dialect {
        Dialect::MariaDb
    }

    fn execute(&mut self, sql: &str) -> anyhow::Result<()> {
        Ok(self.run(sql)?)
    }

    fn rows(&mut self, sql: &str) -> anyhow::Result<Vec<Vec<SqlValue>>> {
        Ok(self.query(sql)?)
    }
}
