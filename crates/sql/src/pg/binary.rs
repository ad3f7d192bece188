//! Values of result columns in binary format.
//!
//! Invariant: bytes that are not a value of the requested type give `None`, never another value.

/// `smallint`, `integer`, `bigint` and `timestamp` (microseconds since 2000-01-01), by their width.
pub fn integer(bytes: &[u8]) -> Option<i64> {
    match *bytes {
        [a, b] => Some(i64::from(i16::from_be_bytes([a, b]))),
        [a, b, c, d] => Some(i64::from(i32::from_be_bytes([a, b, c, d]))),
        _ => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
    }
}

/// `text`, `varchar`.
pub fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// The elements of an array of one dimension, from first to last; `None` within is NULL. Empty for an empty array.
pub fn array(bytes: &[u8]) -> Option<Elements<'_>> {
    let (dimensions, rest) = take_i32(bytes)?;
    // Whether there are NULLs, and the type.
    let rest = rest.get(8..)?;
    match dimensions {
        0 => rest.is_empty().then_some(Elements { left: 0, bytes: rest }),
        1 => {
            let (count, rest) = take_i32(rest)?;
            let elements = Elements { left: u32::try_from(count).ok()?, bytes: rest.get(4..)? };
            let mut check = elements.clone();
            (0..elements.left).all(|_| check.next().is_some()).then_some(())?;
            check.bytes.is_empty().then_some(elements)
        }
        _ => None,
    }
}

fn take_i32(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((i32::from_be_bytes(*head), rest))
}

#[derive(Clone, Debug)]
pub struct Elements<'a> {
    left: u32,
    bytes: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        self.left = self.left.checked_sub(1)?;
        let (length, rest) = take_i32(self.bytes)?;
        if length == -1 {
            self.bytes = rest;
            return Some(None);
        }
        let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.bytes = rest;
        Some(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use bytes::BytesMut;
    use postgres_protocol::types::{int8_to_sql, text_to_sql};

    use crate::pg::frontend::{Parameter, write_array};
    use crate::pg::oid;

    fn encoded(parameter: &Parameter) -> BytesMut {
        let mut out = BytesMut::new();
        parameter.write(&mut out).unwrap();
        out
    }

    fn encoded_array<T>(kind: u32, values: &[T], write: impl Fn(&T, &mut BytesMut)) -> BytesMut {
        let mut out = BytesMut::new();
        write_array(kind, values, write, &mut out).unwrap();
        out
    }

    proptest! {
        #[test]
        fn what_is_sent_is_what_is_read(small: i32, large: i64, word in "\\PC*", many: Vec<i64>, words in proptest::collection::vec("\\PC{0,9}", 0..9)) {
            prop_assert_eq!(integer(&encoded(&Parameter::Int4(small))), Some(i64::from(small)));
            prop_assert_eq!(integer(&encoded(&Parameter::Timestamp(large))), Some(large));
            let sent = encoded(&Parameter::Text(word.clone()));
            prop_assert_eq!(text(&sent), Some(word.as_str()));
            let sent = encoded_array(oid::INT8, &many, |n, out| int8_to_sql(*n, out));
            let read: Option<Vec<i64>> = array(&sent).unwrap().map(|v| integer(v?)).collect();
            prop_assert_eq!(read, Some(many));
            let sent = encoded_array(oid::TEXT, &words, |word, out| text_to_sql(word, out));
            let read: Option<Vec<&str>> = array(&sent).unwrap().map(|v| text(v?)).collect();
            prop_assert_eq!(read.unwrap(), words);
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            integer(&bytes);
            if let Some(elements) = array(&bytes) {
                let count = elements.left;
                prop_assert_eq!(elements.count(), count as usize);
            }
        }

        #[test]
        fn a_cut_array_is_none(values in proptest::collection::vec(any::<i32>(), 1..9), cut in 1_usize..80) {
            let sent = encoded(&Parameter::Int4Array(values));
            prop_assert!(array(&sent[..sent.len().saturating_sub(cut)]).is_none());
            let mut longer = sent;
            longer.extend_from_slice(&[0]);
            prop_assert!(array(&longer).is_none());
        }
    }

    #[test]
    fn nulls_and_widths() {
        assert_eq!(integer(&(-2_i16).to_be_bytes()), Some(-2));
        assert_eq!(integer(&[1, 2, 3]), None);
        assert_eq!(integer(&[]), None);
        assert_eq!(text(&[0xff]), None);
        // SELECT ARRAY[NULL, 5]::int[], as PostgreSQL 15 sends it.
        let sent =
            [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 23, 0, 0, 0, 2, 0, 0, 0, 1, 255, 255, 255, 255, 0, 0, 0, 4, 0, 0, 0, 5];
        let read: Vec<_> = array(&sent).unwrap().collect();
        assert_eq!(read, [None, Some(&[0, 0, 0, 5][..])]);
        // Two dimensions are never requested.
        let mut square = sent;
        square[3] = 2;
        assert!(array(&square).is_none());
    }
}
