//! Values of an answer as JSON: null, an integer, or a string. Fractions are strings, so that no reader rounds them.

use anyhow::Result;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

/// An error must not look like a value.
const FORMAT: FormatOptions<'static> = FormatOptions::new().with_display_error(false);

/// Appends the batch's rows to `out` as JSON arrays, with commas between rows (also before the first if `comma` is set), and sets `comma`.
pub fn append_rows(batch: &RecordBatch, comma: &mut bool, out: &mut Vec<u8>) -> Result<()> {
    let columns = batch.columns().iter().map(|array| Column::new(array)).collect::<Result<Vec<_>>>()?;
    let mut text = String::new();
    for row in 0..batch.num_rows() {
        out.extend_from_slice(if std::mem::replace(comma, true) { b",[" } else { b"[" });
        for (number, column) in columns.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            text.clear();
            column.append(row, &mut text, out)?;
        }
        out.push(b']');
    }
    Ok(())
}

struct Column<'a> {
    array: &'a dyn Array,
    /// Includes null values of a dictionary.
    nulls: Option<NullBuffer>,
    format: ArrayFormatter<'a>,
}

impl<'a> Column<'a> {
    fn new(array: &'a dyn Array) -> Result<Column<'a>> {
        Ok(Column { array, nulls: array.logical_nulls(), format: ArrayFormatter::try_new(array, &FORMAT)? })
    }

    /// `text` is an empty buffer, reused between values.
    fn append(&self, row: usize, text: &mut String, out: &mut Vec<u8>) -> Result<()> {
        use std::fmt::Write;
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        match self.array.data_type() {
            // The shortest digits that read back as the same number, as Rust writes them.
            DataType::Float64 => write!(text, "{}", self.array.as_primitive::<Float64Type>().value(row))?,
            DataType::Float32 => write!(text, "{}", self.array.as_primitive::<Float32Type>().value(row))?,
            _ => self.format.value(row).write(text)?,
        }
        if self.array.data_type().is_integer() {
            out.extend_from_slice(text.as_bytes());
        } else {
            serde_json::to_writer(out, text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{
        ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int64Array,
        NullArray, StringArray, StringViewArray, TimestampSecondArray, UInt64Array,
    };
    use datafusion::arrow::datatypes::Int8Type;

    use super::*;

    /// A column of values as JSON.
    fn json(array: impl Array + 'static) -> String {
        let batch = RecordBatch::try_from_iter_with_nullable([("a", Arc::new(array) as ArrayRef, true)]).unwrap();
        let mut out = Vec::new();
        append_rows(&batch, &mut false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers_are_numbers() {
        assert_eq!(json(Int64Array::from(vec![Some(i64::MIN), None, Some(7)])), "[-9223372036854775808],[null],[7]");
        assert_eq!(json(UInt64Array::from(vec![u64::MAX])), "[18446744073709551615]");
    }

    #[test]
    fn decimals_keep_their_digits() {
        let array = Decimal128Array::from(vec![Some(100), Some(-5), None, Some(0)]);
        let array = array.with_precision_and_scale(15, 2).unwrap();
        assert_eq!(json(array), r#"["1.00"],["-0.05"],[null],["0.00"]"#);
    }

    #[test]
    fn dates_are_iso() {
        assert_eq!(json(Date32Array::from(vec![0, 8035, -1])), r#"["1970-01-01"],["1992-01-01"],["1969-12-31"]"#);
        assert_eq!(json(TimestampSecondArray::from(vec![1])), r#"["1970-01-01T00:00:01"]"#);
    }

    #[test]
    fn floats_read_back_as_the_same_number() {
        let values = [0.1, 1.0, -2.5e-9, f64::MAX, f64::MIN_POSITIVE, 1.0 / 3.0, f64::NAN, f64::INFINITY];
        let written: Vec<[String; 1]> =
            serde_json::from_str(&format!("[{}]", json(Float64Array::from(values.to_vec())))).unwrap();
        for ([text], value) in written.iter().zip(values) {
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits(), "{text}");
        }
        assert_eq!(json(Float64Array::from(vec![0.1, 1.0])), r#"["0.1"],["1"]"#);
        assert_eq!(json(Float32Array::from(vec![0.1])), r#"["0.1"]"#);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(json(StringArray::from(vec!["", "a\"b\\\n\u{e9}"])), r#"[""],["a\"b\\\né"]"#);
        assert_eq!(
            json(StringViewArray::from(vec![Some("more than twelve bytes"), None])),
            r#"["more than twelve bytes"],[null]"#
        );
        assert_eq!(json(BooleanArray::from(vec![true, false])), r#"["true"],["false"]"#);
    }

    #[test]
    fn nulls_of_every_kind_are_null() {
        assert_eq!(json(NullArray::new(2)), "[null],[null]");
        let dictionary: DictionaryArray<Int8Type> = [Some("a"), None, Some("a")].into_iter().collect();
        assert_eq!(json(dictionary), r#"["a"],[null],["a"]"#);
    }

    #[test]
    fn rows_follow_rows() {
        let (a, b): (ArrayRef, ArrayRef) =
            (Arc::new(Int64Array::from(vec![1, 2])), Arc::new(StringArray::from(vec!["x", "y"])));
        let batch = RecordBatch::try_from_iter([("a", a), ("b", b)]).unwrap();
        let (mut out, mut comma) = (Vec::new(), false);
        append_rows(&batch, &mut comma, &mut out).unwrap();
        append_rows(&batch.slice(1, 1), &mut comma, &mut out).unwrap();
        assert_eq!(out, br#"[1,"x"],[2,"y"],[2,"y"]"#);
    }
}
