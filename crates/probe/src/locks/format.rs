//! The positions of a tracepoint's fields in its records, from its `format` file in tracefs (Documentation/trace/events.rst).
//!
//! Invariant: an offset comes from the running kernel and is never assumed.

use std::collections::BTreeMap;

/// A field's position, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub offset: usize,
    pub size: usize,
    pub signed: bool,
}

impl Field {
    /// Its value in `raw`, if `raw` is long enough and the field is a number.
    pub fn read(&self, raw: &[u8]) -> Option<u64> {
        let bytes = raw.get(self.offset..self.offset.checked_add(self.size)?)?;
        let mut word = [0; 8];
        // x86-64 is little-endian.
        word.get_mut(..self.size)?.copy_from_slice(bytes);
        let unused = 64 - 8 * self.size.clamp(1, 8) as u32;
        let value = u64::from_le_bytes(word);
        Some(if self.signed { ((value << unused) as i64 >> unused) as u64 } else { value })
    }
}

/// A tracepoint: its number and fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    pub id: u64,
    fields: BTreeMap<String, Field>,
}

impl Format {
    /// Parses the text of a `format` file; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:")?.trim().parse().ok())?;
        let fields: BTreeMap<_, _> = text.lines().filter_map(field).collect();
        (!fields.is_empty()).then_some(Self { id, fields })
    }

    /// A field by name.
    ///
    /// # Errors
    /// The tracepoint has no such field.
    pub fn field(&self, name: &str) -> Result<Field, String> {
        self.fields.get(name).copied().ok_or_else(|| format!("the tracepoint {} has no field `{name}`", self.id))
    }
}

/// `field:unsigned int flags; offset:16; size:4; signed:0;`, with tabs between them.
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declared = parts.next()?.strip_prefix("field:")?;
    let name = declared.rsplit([' ', '*']).next()?.split('[').next()?.to_owned();
    let (mut offset, mut size, mut signed) = (None, None, false);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", number)) => offset = number.parse().ok(),
            Some(("size", number)) => size = number.parse().ok(),
            Some(("signed", number)) => signed = number == "1",
            _ => {}
        }
    }
    Some((name, Field { offset: offset?, size: size?, signed }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "name: contention_begin\nID: 33\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:void * lock_addr;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int flags;\toffset:16;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"%p (flags=%s)\", REC->lock_addr, __print_flags(REC->flags, \"|\", { (1U << 0), \"SPIN\" })\n";

    #[test]
    fn fields_lie_where_the_kernel_says() {
        let format = Format::parse(BEGIN).unwrap();
        assert_eq!(format.id, 33);
        assert_eq!(format.field("lock_addr").unwrap(), Field { offset: 8, size: 8, signed: false });
        assert_eq!(format.field("flags").unwrap(), Field { offset: 16, size: 4, signed: false });
        assert!(format.field("ret").unwrap_err().contains("`ret`"));
        let other = Format::parse(&BEGIN.replace("offset:16", "offset:24").replace("ID: 33", "ID: 1200")).unwrap();
        assert_eq!((other.id, other.field("flags").unwrap().offset), (1200, 24));
    }

    #[test]
    fn numbers_are_read_with_their_size_and_sign() {
        let raw = [1, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0, 0, 1];
        for (offset, size, signed, value) in [
            (0, 2, false, Some(1)),
            (2, 4, false, Some(0xffff_ffff)),
            (2, 4, true, Some(u64::MAX)),
            (6, 8, false, Some(0x0100_0000_0000_0002)),
            (7, 8, false, None),
            (0, 9, false, None),
        ] {
            assert_eq!(Field { offset, size, signed }.read(&raw), value, "{offset} {size}");
        }
    }

    #[test]
    fn what_is_no_format_is_none() {
        assert_eq!(Format::parse(""), None);
        assert_eq!(Format::parse("name: x\nID: 7\nformat:\n"), None);
        assert_eq!(Format::parse(&BEGIN.replace("ID: 33", "ID: none")), None);
        let arrays = Format::parse("ID: 1\n\tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n").unwrap();
        assert_eq!(arrays.field("args").unwrap().size, 48);
    }
}
