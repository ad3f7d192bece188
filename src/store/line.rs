//! One line of `records.jsonl`: `{"sha256":"<16 hex digits>","record":{…}}` and a newline.
//!
//! Invariant: a line is read back only if every byte of its record is the one that was written. The checksum is taken over the
//! record's JSON exactly as it stands in the line, so that it can be checked without knowing how numbers are formatted.

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::record::{Record, SCHEMA};

/// Hexadecimal digits of the SHA-256 that are kept: 64 bits, plenty against accidents, short enough for the eye.
const DIGITS: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    sha256: &'a str,
    #[serde(borrow)]
    record: &'a RawValue,
}

#[derive(Deserialize)]
struct Version {
    schema: u32,
}

/// SHA-256 in lower-case hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// The line that holds `record`, newline included.
pub fn encode(record: &Record) -> Result<Vec<u8>, String> {
    let json = serde_json::to_string(record).map_err(|e| e.to_string())?;
    let line = format!("{{\"sha256\":\"{}\",\"record\":{json}}}\n", &sha256_hex(json.as_bytes())[..DIGITS]);
    // A number that JSON cannot hold (NaN) is written as `null`: better refused now than found unreadable later.
    decode(&line.as_bytes()[..line.len() - 1])?;
    Ok(line.into_bytes())
}

/// The record that a line (without its newline) holds, or why it cannot be read.
pub fn decode(line: &[u8]) -> Result<Record, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|e| format!("not a record's line: {e}"))?;
    let json = line.record.get();
    let sum = sha256_hex(json.as_bytes());
    if line.sha256 != &sum[..DIGITS] {
        return Err(format!("its checksum is {}, its bytes say {}", line.sha256, &sum[..DIGITS]));
    }
    let version: Version = serde_json::from_str(json).map_err(|e| e.to_string())?;
    if version.schema != SCHEMA {
        return Err(format!("it has format {}, this bigiron reads format {SCHEMA}", version.schema));
    }
    serde_json::from_str(json).map_err(|e| e.to_string())
}
