//! Messages of the server, parsed in place.
//!
//! Invariant: a [`Message`] has been checked completely: iterating over its parts cannot fail.

use std::borrow::Cow;

use postgres_protocol::message::backend::{self, Header};

use super::error::{PgError, ServerError, SqlState};

/// Bytes of the tag and the length.
const HEADER: usize = 5;

/// The state of a connection between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Idle,
    Transaction,
    /// In a transaction that can only be rolled back.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The kind of request, and its data (salt, mechanisms, a step of SASL).
    Authentication(i32, &'a [u8]),
    BackendKeyData {
        process: i32,
        secret: i32,
    },
    BindComplete,
    CloseComplete,
    /// The command's tag, e.g. `INSERT 0 1`; see [`rows_of`].
    CommandComplete(&'a str),
    CopyData(&'a [u8]),
    CopyDone,
    CopyInResponse,
    CopyOutResponse,
    DataRow(Row<'a>),
    EmptyQueryResponse,
    ErrorResponse(Diagnostic<'a>),
    /// The server supports only an older protocol, or does not know a parameter.
    NegotiateProtocolVersion,
    NoData,
    NoticeResponse(Diagnostic<'a>),
    NotificationResponse,
    ParameterDescription,
    ParameterStatus {
        name: &'a str,
        value: &'a str,
    },
    ParseComplete,
    PortalSuspended,
    ReadyForQuery(Status),
    RowDescription(Fields<'a>),
}

/// A row: one value, or NULL, per column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    columns: u16,
    body: &'a [u8],
}

/// Columns from left to right: the value's bytes in the requested format, `None` for NULL.
#[derive(Clone, Debug)]
pub struct Columns<'a> {
    left: u16,
    body: &'a [u8],
}

/// The descriptions of a row's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields<'a> {
    columns: u16,
    body: &'a [u8],
}

/// One column: its name and the object identifier of its type ([`super::oid`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    pub name: &'a [u8],
    pub kind: u32,
}

/// An error or a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic<'a> {
    /// `ERROR`, `FATAL`, `PANIC`, or a notice's.
    pub severity: Cow<'a, str>,
    pub sqlstate: SqlState,
    pub text: Cow<'a, str>,
    pub detail: Option<Cow<'a, str>>,
    pub hint: Option<Cow<'a, str>>,
}

fn broken(what: &str) -> PgError {
    PgError::Protocol(what.to_owned())
}

/// The length of the first message in `bytes`, including the tag, or `None` while it is not known.
///
/// # Errors
/// [`PgError::Protocol`] if the length is impossible or above `limit`.
pub fn length(bytes: &[u8], limit: usize) -> Result<Option<usize>, PgError> {
    let Some(header) = Header::parse(bytes).map_err(|e| broken(&e.to_string()))? else { return Ok(None) };
    let length = header.len() as usize + 1;
    if length > limit {
        return Err(PgError::Protocol(format!(
            "a message of {length} bytes with tag 0x{:02x}; the limit is {limit}",
            header.tag()
        )));
    }
    Ok(Some(length))
}

/// Number of rows in a command's tag: `INSERT 0 5`, `UPDATE 5`, `COPY 5`, …
pub fn rows_of(tag: &str) -> Option<u64> {
    tag.rsplit(' ').next()?.parse().ok()
}

impl<'a> Message<'a> {
    /// Parses one whole message.
    ///
    /// # Errors
    /// [`PgError::Protocol`] if the tag is unknown, or its body is too short, too long or malformed.
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, PgError> {
        if bytes.len() < HEADER {
            return Err(broken("a message without its length"));
        }
        let mut body = Body(&bytes[HEADER..]);
        let message = match bytes[0] {
            backend::DATA_ROW_TAG => {
                let columns = body.u16()?;
                let values = body.rest();
                let mut check = Body(values);
                for _ in 0..columns {
                    check.value()?;
                }
                check.end()?;
                Message::DataRow(Row { columns, body: values })
            }
            backend::BIND_COMPLETE_TAG => Message::BindComplete,
            backend::COMMAND_COMPLETE_TAG => Message::CommandComplete(body.text()?),
            backend::READY_FOR_QUERY_TAG => Message::ReadyForQuery(match body.take(1)?[0] {
                b'I' => Status::Idle,
                b'T' => Status::Transaction,
                b'E' => Status::Failed,
                other => return Err(PgError::Protocol(format!("transaction status 0x{other:02x}"))),
            }),
            backend::PARSE_COMPLETE_TAG => Message::ParseComplete,
            backend::CLOSE_COMPLETE_TAG => Message::CloseComplete,
            backend::NO_DATA_TAG => Message::NoData,
            backend::PORTAL_SUSPENDED_TAG => Message::PortalSuspended,
            backend::EMPTY_QUERY_RESPONSE_TAG => Message::EmptyQueryResponse,
            backend::ERROR_RESPONSE_TAG => Message::ErrorResponse(body.diagnostic()?),
            backend::NOTICE_RESPONSE_TAG => Message::NoticeResponse(body.diagnostic()?),
            backend::PARAMETER_STATUS_TAG => Message::ParameterStatus { name: body.text()?, value: body.text()? },
            backend::ROW_DESCRIPTION_TAG => {
                let columns = body.u16()?;
                let fields = body.rest();
                let mut check = Body(fields);
                for _ in 0..columns {
                    check.field()?;
                }
                check.end()?;
                Message::RowDescription(Fields { columns, body: fields })
            }
            backend::COPY_DATA_TAG => Message::CopyData(body.rest()),
            backend::COPY_DONE_TAG => Message::CopyDone,
            backend::COPY_IN_RESPONSE_TAG => {
                body.rest();
                Message::CopyInResponse
            }
            backend::COPY_OUT_RESPONSE_TAG => {
                body.rest();
                Message::CopyOutResponse
            }
            backend::AUTHENTICATION_TAG => Message::Authentication(body.i32()?, body.rest()),
            backend::BACKEND_KEY_DATA_TAG => Message::BackendKeyData { process: body.i32()?, secret: body.i32()? },
            backend::NOTIFICATION_RESPONSE_TAG => {
                body.rest();
                Message::NotificationResponse
            }
            backend::PARAMETER_DESCRIPTION_TAG => {
                body.rest();
                Message::ParameterDescription
            }
            b'v' => {
                body.rest();
                Message::NegotiateProtocolVersion
            }
            tag => return Err(PgError::Protocol(format!("a message with the unknown tag 0x{tag:02x}"))),
        };
        body.end()?;
        Ok(message)
    }
}

impl<'a> Row<'a> {
    /// Number of columns.
    pub fn len(&self) -> usize {
        usize::from(self.columns)
    }

    pub fn is_empty(&self) -> bool {
        self.columns == 0
    }

    pub fn columns(&self) -> Columns<'a> {
        Columns { left: self.columns, body: self.body }
    }
}

impl<'a> IntoIterator for Row<'a> {
    type Item = Option<&'a [u8]>;
    type IntoIter = Columns<'a>;

    fn into_iter(self) -> Columns<'a> {
        self.columns()
    }
}

impl<'a> Iterator for Columns<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        self.left = self.left.checked_sub(1)?;
        let mut body = Body(self.body);
        let value = body.value().ok()?;
        self.body = body.0;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl ExactSizeIterator for Columns<'_> {}

impl<'a> Fields<'a> {
    pub fn iter(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let mut body = Body(self.body);
        (0..self.columns).map_while(move |_| body.field().ok())
    }
}

impl Diagnostic<'_> {
    pub fn to_error(&self) -> ServerError {
        ServerError {
            severity: self.severity.to_string(),
            sqlstate: self.sqlstate,
            text: self.text.to_string(),
            detail: self.detail.as_deref().map(str::to_owned),
            hint: self.hint.as_deref().map(str::to_owned),
        }
    }
}

/// The unread part of a message.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], PgError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| broken("a message ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn end(&self) -> Result<(), PgError> {
        if self.0.is_empty() { Ok(()) } else { Err(broken("a message is longer than its contents")) }
    }

    fn u16(&mut self) -> Result<u16, PgError> {
        let (head, rest) = self.0.split_first_chunk().ok_or_else(|| broken("a message ends too early"))?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*head))
    }

    fn i32(&mut self) -> Result<i32, PgError> {
        let (head, rest) = self.0.split_first_chunk().ok_or_else(|| broken("a message ends too early"))?;
        self.0 = rest;
        Ok(i32::from_be_bytes(*head))
    }

    /// A length and this many bytes; a length of -1 is NULL.
    fn value(&mut self) -> Result<Option<&'a [u8]>, PgError> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| broken("a value of negative length"))?;
                self.take(length).map(Some)
            }
        }
    }

    /// Up to the next zero byte.
    fn bytes(&mut self) -> Result<&'a [u8], PgError> {
        let end = self.0.iter().position(|&b| b == 0).ok_or_else(|| broken("a text without its end"))?;
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(text)
    }

    fn text(&mut self) -> Result<&'a str, PgError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| broken("a text that is not UTF-8"))
    }

    fn field(&mut self) -> Result<Field<'a>, PgError> {
        let name = self.bytes()?;
        // Skips its table (4 bytes) and column (2); after its type: size (2), modifier (4), format (2).
        self.take(6)?;
        let kind = self.i32()? as u32;
        self.take(8)?;
        Ok(Field { name, kind })
    }

    fn diagnostic(&mut self) -> Result<Diagnostic<'a>, PgError> {
        let mut found = Diagnostic {
            severity: Cow::Borrowed("ERROR"),
            sqlstate: SqlState::UNKNOWN,
            text: Cow::Borrowed(""),
            detail: None,
            hint: None,
        };
        loop {
            let code = self.take(1)?[0];
            if code == 0 {
                return Ok(found);
            }
            let value = self.bytes()?;
            // Before the server knows the client's encoding, its messages may be in any.
            let text = String::from_utf8_lossy(value);
            match code {
                // V is S untranslated, and follows it.
                b'S' | b'V' => found.severity = text,
                b'C' => found.sqlstate = SqlState::parse(value).unwrap_or(SqlState::UNKNOWN),
                b'M' => found.text = text,
                b'D' => found.detail = Some(text),
                b'H' => found.hint = Some(text),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing;
    use super::*;

    #[test]
    fn a_row_is_its_columns() {
        let bytes = testing::row(&[Some(b"abc"), None, Some(b"")]);
        let Message::DataRow(row) = Message::parse(&bytes).unwrap() else { panic!() };
        assert_eq!((row.len(), row.columns().len()), (3, 3));
        assert_eq!(row.columns().collect::<Vec<_>>(), [Some(&b"abc"[..]), None, Some(&b""[..])]);
    }

    #[test]
    fn an_error_has_its_code_and_words() {
        // `SELECT 1/0`, as PostgreSQL 15 answers it.
        let body = b"SERROR\0VERROR\0C22012\0Mdivision by zero\0Fint.c\0L830\0Rint4div\0\0";
        let bytes = testing::message(b'E', body);
        let Message::ErrorResponse(error) = Message::parse(&bytes).unwrap() else { panic!() };
        assert_eq!(error.to_error().to_string(), "ERROR 22012: division by zero");
        let bytes = testing::message(b'E', b"SFEHLER\0VFATAL\0C?\0M\xe4\0Dd\0Hh\0\0");
        let Message::ErrorResponse(error) = Message::parse(&bytes).unwrap() else { panic!() };
        assert_eq!(error.to_error().to_string(), "FATAL XX000: \u{fffd}; d; h");
    }

    #[test]
    fn columns_are_described() {
        let bytes = testing::fields(&[("a", 23), ("text", 25)]);
        let Message::RowDescription(fields) = Message::parse(&bytes).unwrap() else { panic!() };
        let expected = [Field { name: b"a", kind: 23 }, Field { name: b"text", kind: 25 }];
        assert_eq!(fields.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn tags_tell_rows() {
        let rows = ["INSERT 0 5", "UPDATE 12", "COPY 3", "BEGIN", "CREATE TABLE", ""].map(rows_of);
        assert_eq!(rows, [Some(5), Some(12), Some(3), None, None, None]);
    }

    #[test]
    fn lengths_are_bounded() {
        assert_eq!(length(&[b'Z', 0, 0, 0], 100), Ok(None));
        assert_eq!(length(&[b'Z', 0, 0, 0, 5], 100), Ok(Some(6)));
        assert!(length(&[b'Z', 0, 0, 0, 3], 100).is_err());
        assert!(length(&[b'Z', 0, 0, 0, 100], 100).is_err());
        assert!(length(&[b'Z', 0xff, 0, 0, 0], 100).is_err());
    }

    proptest! {
        /// Any bytes from a server are either a message that can be iterated over or an error.
        #[test]
        fn no_bytes_panic(tag: u8, body in proptest::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..60)) {
            match Message::parse(&testing::message(tag, &body)) {
                Ok(Message::DataRow(row)) => prop_assert_eq!(row.columns().count(), row.len()),
                Ok(Message::RowDescription(fields)) => prop_assert_eq!(fields.iter().count(), usize::from(fields.columns)),
                Ok(_) | Err(_) => {}
            }
        }

        #[test]
        fn a_message_cut_or_lengthened_is_refused(values in proptest::collection::vec(proptest::option::of(any::<[u8; 3]>()), 1..5), cut in 1_usize..9) {
            let values: Vec<Option<&[u8]>> = values.iter().map(|v| v.as_ref().map(|v| &v[..])).collect();
            let whole = testing::row(&values);
            prop_assert!(Message::parse(&whole).is_ok());
            prop_assert!(Message::parse(&whole[..whole.len().saturating_sub(cut)]).is_err());
            prop_assert!(Message::parse(&[&whole[..], &[0]].concat()).is_err());
        }
    }
}
