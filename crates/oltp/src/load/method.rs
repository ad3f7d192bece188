//! How rows get into a server: the methods it supports are found before the first row is generated.
//!
//! Invariant: the trials leave nothing on the server.

use super::super::population::Sink;
use super::text_rows::TextRows;
use bigiron_sql::pg::binary_rows::BinaryRows;
use bigiron_sql::pg::{Connection, PgError};

/// From the fastest to the one that every server supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadMethod {
    /// Binary `COPY`, rows frozen.
    Frozen,
    /// Binary `COPY`.
    Binary,
    /// `COPY` in text.
    Text,
    Insert,
}

const TABLE: &str = "bigiron_oltp_trial";

/// The best method, and the server's refusals of better ones.
///
/// # Errors
/// If the connection is lost, or no table can be created.
pub(super) fn find(session: &mut Connection) -> Result<(LoadMethod, Vec<String>), PgError> {
    let mut refused = Vec::new();
    for (way, name) in
        [(LoadMethod::Frozen, "COPY with FREEZE"), (LoadMethod::Binary, "COPY in binary"), (LoadMethod::Text, "COPY")]
    {
        session.run("BEGIN")?;
        let tried = session
            .run(&format!("CREATE TABLE {TABLE} (a integer, b timestamp, c varchar(4))"))
            .map_err(Tried::Table)
            .and_then(|()| one(session, way).map_err(Tried::Copy));
        session.run("ROLLBACK")?;
        match tried {
            Ok(()) => return Ok((way, refused)),
            Err(Tried::Copy(PgError::Server(why))) => refused.push(format!("{name} ({})", why.text)),
            Err(Tried::Copy(lost) | Tried::Table(lost)) => return Err(lost),
        }
    }
    Ok((LoadMethod::Insert, refused))
}

enum Tried {
    Table(PgError),
    Copy(PgError),
}

/// One row, of each type.
fn one(session: &mut Connection, way: LoadMethod) -> Result<(), PgError> {
    let mut copy = session.copy_in(&way.copy(TABLE))?;
    let mut hand = |piece: &[u8], _| copy.write(piece);
    match way {
        LoadMethod::Text => row(TextRows::copy(&mut hand), TextRows::finish)?,
        _ => row(BinaryRows::new(3, &mut hand), BinaryRows::finish)?,
    }
    copy.finish().map(|_| ())
}

fn row<S: Sink<Error = PgError>>(mut sink: S, finish: fn(S) -> Result<u64, PgError>) -> Result<(), PgError> {
    sink.begin();
    sink.integer(1);
    sink.date(0);
    sink.text(2, |text| text.fill(b'x'));
    sink.end()?;
    finish(sink).map(|_| ())
}

impl LoadMethod {
    /// The statement that starts a copy into `table`.
    pub(super) fn copy(self, table: &str) -> String {
        match self {
            LoadMethod::Frozen => format!("COPY {table} FROM STDIN (FORMAT binary, FREEZE)"),
            LoadMethod::Binary => format!("COPY {table} FROM STDIN (FORMAT binary)"),
            LoadMethod::Text | LoadMethod::Insert => format!("COPY {table} FROM STDIN"),
        }
    }
}
