//! One line of `records.jsonl` or of a history: `{"sha256":"<16 hex digits>","record":{…}}` and a newline.
//!
//! Invariant: a line is accepted only if every byte of its content is the one that was written. The checksum covers the JSON exactly as it is in the
//! line, so it can be checked without knowing how numbers are formatted.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// Stored hexadecimal digits of the SHA-256: 64 bits, enough against accidents, and short enough to read.
const DIGITS: usize = 16;

/// A type that a line can contain.
pub trait LineContent: Serialize + DeserializeOwned {
    /// Its name in the line.
    const NAME: &'static str;
    /// The format that is written; each line has its own in its member `schema`.
    const SCHEMA: u32;
    /// The oldest format that can be read.
    const OLDEST: u32 = Self::SCHEMA;

    /// Checks for contradictions in the content.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    sha256: &'a str,
    #[serde(borrow, alias = "entry")]
    record: &'a RawValue,
}

#[derive(Deserialize)]
struct Version {
    schema: u32,
}

/// SHA-256 in lower-case hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// The line that contains `held`, including its newline.
///
/// # Errors
/// JSON cannot represent one of its numbers.
pub fn encode<T: LineContent>(held: &T) -> Result<Vec<u8>, String> {
    let json = serde_json::to_string(held).map_err(|e| e.to_string())?;
    let line = format!("{{\"sha256\":\"{}\",\"{}\":{json}}}\n", &sha256_hex(json.as_bytes())[..DIGITS], T::NAME);
    // A number that JSON cannot represent (NaN) is written as `null`: refusing it now is better than finding it unreadable later.
    decode::<T>(&line.as_bytes()[..line.len() - 1])?;
    Ok(line.into_bytes())
}

/// The content of a line (without its newline), or why it cannot be read.
///
/// # Errors
/// A byte differs from the one written, the format is another, or the content contradicts itself.
pub fn decode<T: LineContent>(line: &[u8]) -> Result<T, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|e| format!("not the line of a {}: {e}", T::NAME))?;
    let json = line.record.get();
    let sum = sha256_hex(json.as_bytes());
    if line.sha256 != &sum[..DIGITS] {
        return Err(format!("its checksum is {}, its bytes say {}", line.sha256, &sum[..DIGITS]));
    }
    let version: Version = serde_json::from_str(json).map_err(|e| e.to_string())?;
    if !(T::OLDEST..=T::SCHEMA).contains(&version.schema) {
        let read = if T::OLDEST == T::SCHEMA { String::new() } else { format!("{} to ", T::OLDEST) };
        return Err(format!("it has format {}, this bigiron reads format {read}{}", version.schema, T::SCHEMA));
    }
    let held: T = serde_json::from_str(json).map_err(|e| e.to_string())?;
    held.check()?;
    Ok(held)
}
