//! Messages of the client, appended to a buffer.
//!
//! Invariant: a function here appends one whole message and allocates nothing but what the buffer grows by.
//!
//! Names and SQL end at a zero byte on the wire: text that has one inside is refused by the server, as is text that is too long.

use super::oid;

/// How values travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text = 0,
    /// Integers big-endian, timestamps as microseconds since 2000-01-01, text as it is.
    Binary = 1,
}

/// What Close and Describe are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    Statement = b'S' as isize,
    Portal = b'P' as isize,
}

fn begin(out: &mut Vec<u8>, tag: u8) -> usize {
    out.extend_from_slice(&[tag, 0, 0, 0, 0]);
    out.len() - 4
}

/// Writes the length, which counts itself and not the tag.
fn end(out: &mut [u8], at: usize) {
    set_length(out, at, out.len() - at);
}

fn set_length(out: &mut [u8], at: usize, length: usize) {
    let length = i32::try_from(length).expect("What is sent in one message is below 2 GiB");
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn cstr(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// Simple query: any number of statements; rows come as text. Ends with ReadyForQuery by itself.
pub fn query(out: &mut Vec<u8>, sql: &str) {
    let at = begin(out, b'Q');
    cstr(out, sql);
    end(out, at);
}

/// Parse: one statement, under a name, with its parameters' types (0: as the server infers it).
pub fn parse(out: &mut Vec<u8>, name: &str, sql: &str, types: &[u32]) {
    let at = begin(out, b'P');
    cstr(out, name);
    cstr(out, sql);
    let count = u16::try_from(types.len()).expect("A statement has at most 65,535 parameters");
    out.extend_from_slice(&count.to_be_bytes());
    for kind in types {
        out.extend_from_slice(&kind.to_be_bytes());
    }
    end(out, at);
}

/// Begins a Bind of the unnamed portal to a prepared statement; the parameters follow, binary and in order, and [`Bind::finish`].
pub fn bind<'o>(out: &'o mut Vec<u8>, statement: &str) -> Bind<'o> {
    let at = begin(out, b'B');
    out.push(0);
    cstr(out, statement);
    // One format for all parameters: binary. Their number is written at the end.
    out.extend_from_slice(&[0, 1, 0, 1, 0, 0]);
    Bind { count_at: out.len() - 2, out, at, count: 0 }
}

/// Execute of the unnamed portal, all rows.
pub fn execute(out: &mut Vec<u8>) {
    out.extend_from_slice(b"E\0\0\0\x09\0\0\0\0\0");
}

/// Sync: the end of what stands or falls together; answered by ReadyForQuery.
pub fn sync(out: &mut Vec<u8>) {
    out.extend_from_slice(b"S\0\0\0\x04");
}

/// Flush: asks for the answers so far, without an end.
pub fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(b"H\0\0\0\x04");
}

/// Describe: asks for a statement's or portal's columns.
pub fn describe(out: &mut Vec<u8>, object: Object, name: &str) {
    let at = begin(out, b'D');
    out.push(object as u8);
    cstr(out, name);
    end(out, at);
}

/// Close: forgets a statement or portal.
pub fn close(out: &mut Vec<u8>, object: Object, name: &str) {
    let at = begin(out, b'C');
    out.push(object as u8);
    cstr(out, name);
    end(out, at);
}

/// Terminate: the connection's end.
pub fn terminate(out: &mut Vec<u8>) {
    out.extend_from_slice(b"X\0\0\0\x04");
}

/// A Bind whose parameters are being written.
#[must_use = "a Bind is complete after `finish`"]
pub struct Bind<'o> {
    out: &'o mut Vec<u8>,
    at: usize,
    count_at: usize,
    count: u16,
}

impl Bind<'_> {
    fn value(&mut self, bytes: &[u8]) {
        self.count += 1;
        let length = i32::try_from(bytes.len()).expect("What is sent in one message is below 2 GiB");
        self.out.extend_from_slice(&length.to_be_bytes());
        self.out.extend_from_slice(bytes);
    }

    /// `integer`.
    pub fn i32(mut self, value: i32) -> Self {
        self.value(&value.to_be_bytes());
        self
    }

    /// `bigint`.
    pub fn i64(mut self, value: i64) -> Self {
        self.value(&value.to_be_bytes());
        self
    }

    /// `text`, `varchar`.
    pub fn text(mut self, value: &str) -> Self {
        self.value(value.as_bytes());
        self
    }

    /// `timestamp`: microseconds since 2000-01-01.
    pub fn timestamp(self, value: i64) -> Self {
        self.i64(value)
    }

    pub fn null(mut self) -> Self {
        self.count += 1;
        self.out.extend_from_slice(&(-1_i32).to_be_bytes());
        self
    }

    /// `integer[]`.
    pub fn int4_array(self, values: impl IntoIterator<Item = i32>) -> Self {
        self.array(oid::INT4, values, |out, value| out.extend_from_slice(&value.to_be_bytes()))
    }

    /// `bigint[]`.
    pub fn int8_array(self, values: impl IntoIterator<Item = i64>) -> Self {
        self.array(oid::INT8, values, |out, value| out.extend_from_slice(&value.to_be_bytes()))
    }

    /// `timestamp[]`: microseconds since 2000-01-01.
    pub fn timestamp_array(self, values: impl IntoIterator<Item = i64>) -> Self {
        self.array(oid::TIMESTAMP, values, |out, value| out.extend_from_slice(&value.to_be_bytes()))
    }

    /// `text[]`.
    pub fn text_array<T: AsRef<str>>(self, values: impl IntoIterator<Item = T>) -> Self {
        self.array(oid::TEXT, values, |out, value| out.extend_from_slice(value.as_ref().as_bytes()))
    }

    /// One dimension from 1 on, without NULLs (`array_send`): four bytes each of dimensions, whether there are NULLs, type, then length and lower bound of each
    /// dimension, then the values. An empty array has no dimension.
    fn array<T>(self, kind: u32, values: impl IntoIterator<Item = T>, write: impl Fn(&mut Vec<u8>, T)) -> Self {
        let Bind { out, at, count_at, count } = self;
        let length_at = out.len();
        out.extend_from_slice(&[0; 16]);
        let head = out.len();
        out[head - 4..].copy_from_slice(&kind.to_be_bytes());
        let mut elements = 0_i32;
        for value in values {
            if elements == 0 {
                out[head - 9] = 1;
                out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
            }
            elements += 1;
            let value_at = out.len();
            out.extend_from_slice(&[0; 4]);
            write(out, value);
            let length = out.len() - value_at - 4;
            set_length(out, value_at, length);
        }
        if elements > 0 {
            out[head..head + 4].copy_from_slice(&elements.to_be_bytes());
        }
        let length = out.len() - length_at - 4;
        set_length(out, length_at, length);
        Bind { out, at, count_at, count: count + 1 }
    }

    /// Ends the message; all columns of the result come in `results`.
    pub fn finish(self, results: Format) {
        self.out[self.count_at..self.count_at + 2].copy_from_slice(&self.count.to_be_bytes());
        self.out.extend_from_slice(&[0, 1, 0, results as u8]);
        end(self.out, self.at);
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use bytes::BytesMut;
    use postgres_protocol::message::frontend as reference;
    use postgres_protocol::types::{self, ArrayDimension};
    use postgres_protocol::{IsNull, message::frontend::BindError};
    use proptest::prelude::*;

    use super::*;

    type Written = Result<IsNull, Box<dyn Error + Sync + Send>>;

    /// A parameter, written by the library that this file does without.
    #[derive(Clone, Debug)]
    enum Parameter {
        I32(i32),
        I64(i64),
        Timestamp(i64),
        Text(String),
        Null,
        Int4Array(Vec<i32>),
        Int8Array(Vec<i64>),
        TimestampArray(Vec<i64>),
        TextArray(Vec<String>),
    }

    fn array<T: Copy>(kind: u32, values: &[T], write: impl Fn(T, &mut BytesMut), out: &mut BytesMut) -> Written {
        // Empty arrays have no dimension in what the server itself sends.
        let dimension = ArrayDimension { len: values.len() as i32, lower_bound: 1 };
        types::array_to_sql(
            (!values.is_empty()).then_some(dimension),
            kind,
            values.iter().copied(),
            |value, out| {
                write(value, out);
                Ok(IsNull::No)
            },
            out,
        )?;
        Ok(IsNull::No)
    }

    impl Parameter {
        fn reference(&self, out: &mut BytesMut) -> Written {
            match self {
                Parameter::I32(value) => types::int4_to_sql(*value, out),
                Parameter::I64(value) => types::int8_to_sql(*value, out),
                Parameter::Timestamp(value) => types::timestamp_to_sql(*value, out),
                Parameter::Text(value) => types::text_to_sql(value, out),
                Parameter::Null => return Ok(IsNull::Yes),
                Parameter::Int4Array(values) => return array(oid::INT4, values, types::int4_to_sql, out),
                Parameter::Int8Array(values) => return array(oid::INT8, values, types::int8_to_sql, out),
                Parameter::TimestampArray(values) => {
                    return array(oid::TIMESTAMP, values, types::timestamp_to_sql, out);
                }
                Parameter::TextArray(values) => {
                    let values: Vec<&str> = values.iter().map(String::as_str).collect();
                    return array(oid::TEXT, &values, types::text_to_sql, out);
                }
            }
            Ok(IsNull::No)
        }

        fn append<'o>(&self, bind: Bind<'o>) -> Bind<'o> {
            match self {
                Parameter::I32(value) => bind.i32(*value),
                Parameter::I64(value) => bind.i64(*value),
                Parameter::Timestamp(value) => bind.timestamp(*value),
                Parameter::Text(value) => bind.text(value),
                Parameter::Null => bind.null(),
                Parameter::Int4Array(values) => bind.int4_array(values.iter().copied()),
                Parameter::Int8Array(values) => bind.int8_array(values.iter().copied()),
                Parameter::TimestampArray(values) => bind.timestamp_array(values.iter().copied()),
                Parameter::TextArray(values) => bind.text_array(values),
            }
        }
    }

    fn parameter() -> impl Strategy<Value = Parameter> {
        use proptest::collection::vec;
        prop_oneof![
            any::<i32>().prop_map(Parameter::I32),
            any::<i64>().prop_map(Parameter::I64),
            any::<i64>().prop_map(Parameter::Timestamp),
            "\\PC{0,40}".prop_map(Parameter::Text),
            Just(Parameter::Null),
            vec(any::<i32>(), 0..20).prop_map(Parameter::Int4Array),
            vec(any::<i64>(), 0..20).prop_map(Parameter::Int8Array),
            vec(any::<i64>(), 0..4).prop_map(Parameter::TimestampArray),
            vec("\\PC{0,20}", 0..8).prop_map(Parameter::TextArray),
        ]
    }

    proptest! {
        #[test]
        fn a_bind_is_what_the_library_writes(
            name in "[a-z_0-9]{0,20}", parameters in proptest::collection::vec(parameter(), 0..12), text in any::<bool>(), before in 0_usize..9
        ) {
            let results = if text { Format::Text } else { Format::Binary };
            // It stands behind what is queued already.
            let mut out = vec![0xee; before];
            parameters.iter().fold(bind(&mut out, &name), |b, p| p.append(b)).finish(results);
            let mut expected = BytesMut::from(&vec![0xee; before][..]);
            let written = reference::bind(
                "", &name, [1], &parameters, |p: &Parameter, out: &mut BytesMut| p.reference(out), [results as i16], &mut expected,
            );
            prop_assert!(!matches!(written, Err(BindError::Conversion(_) | BindError::Serialization(_))));
            prop_assert_eq!(out, expected.to_vec());
        }
    }

    #[test]
    fn the_other_messages_are_what_the_library_writes() {
        let mut out = Vec::new();
        let mut expected = BytesMut::new();
        query(&mut out, "SELECT 1");
        reference::query("SELECT 1", &mut expected).unwrap();
        parse(&mut out, "new_order", "SELECT $1", &[oid::INT4, oid::TEXT_ARRAY]);
        reference::parse("new_order", "SELECT $1", [oid::INT4, oid::TEXT_ARRAY], &mut expected).unwrap();
        execute(&mut out);
        reference::execute("", 0, &mut expected).unwrap();
        sync(&mut out);
        reference::sync(&mut expected);
        flush(&mut out);
        reference::flush(&mut expected);
        describe(&mut out, Object::Statement, "payment");
        reference::describe(b'S', "payment", &mut expected).unwrap();
        close(&mut out, Object::Portal, "");
        reference::close(b'P', "", &mut expected).unwrap();
        terminate(&mut out);
        reference::terminate(&mut expected);
        assert_eq!(out, expected.to_vec());
    }

    #[test]
    fn a_queue_that_has_room_is_not_allocated_anew() {
        let mut out = Vec::with_capacity(4096);
        let place = out.as_ptr();
        bind(&mut out, "new_order")
            .i32(1)
            .int4_array(0..15)
            .int8_array([7])
            .text_array(["a"; 15])
            .null()
            .finish(Format::Binary);
        execute(&mut out);
        sync(&mut out);
        assert_eq!((out.as_ptr(), out.capacity()), (place, 4096));
    }
}
