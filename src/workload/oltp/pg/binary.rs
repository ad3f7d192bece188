//! Values of result columns in binary format.
//!
//! Invariant: bytes that are no value of the type asked for give `None`, never another value.

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
