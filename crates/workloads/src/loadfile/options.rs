//! The option that names a loadfile, and its value in a plan, which cannot refer to files of this machine.
//!
//! Invariant: the embedded text is that of the file, byte for byte; a long one is compressed, because people often read plans.

use std::io::{Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::{Loadfile, Size, generate, parse};
use bigiron_model::workload::Options;

/// The value of `loadfile` for a generated loadfile.
pub const DEFAULT: &str = "generated";
/// Longer texts are compressed.
const LONG: usize = 64 << 10;
/// Prefix of a compressed text, before its name and the base64 data.
const PACKED: &str = "packed ";
/// Prefix of an embedded uncompressed text: a comment, as allowed in loadfiles.
const PLAIN: &str = "# loadfile ";
/// Longest text.
const LONGEST: u64 = 1 << 30;

/// The text of the file called `value`, for a plan.
///
/// # Errors
/// If it cannot be read.
pub fn embed(value: &str) -> Result<String, String> {
    if value == DEFAULT || value.starts_with(PACKED) || value.contains('\n') {
        return Ok(value.to_owned());
    }
    let text = std::fs::read_to_string(value)
        .map_err(|e| format!("Cannot read the loadfile `{value}`: {e}; it can be a file's path, or `{DEFAULT}`"))?;
    let name =
        std::path::Path::new(value).file_name().map_or(value.into(), |n| n.to_string_lossy().replace([' ', '\n'], "_"));
    parse(&name, &text).map_err(|e| e.to_string())?;
    if text.len() <= LONG {
        return Ok(format!("{PLAIN}{name}\n{text}"));
    }
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    let packed = packed.write_all(text.as_bytes()).and_then(|()| packed.finish()).map_err(|e| e.to_string())?;
    Ok(format!("{PACKED}{name} {}", base64(&packed)))
}

/// The name of the loadfile and its requests.
///
/// # Errors
/// If the loadfile is wrong; the message has the line.
pub fn of(options: &Options, size: Size) -> Result<(String, Arc<Loadfile>), String> {
    let value = options.get("loadfile").map_or(DEFAULT, String::as_str);
    if value == DEFAULT {
        return Ok((DEFAULT.to_owned(), generate(size).into()));
    }
    let (name, text) = unpack(&embed(value)?)?;
    let file = parse(&name, &text).map_err(|e| e.to_string())?;
    Ok((name, file.into()))
}

/// Name and text of a value from [`embed`].
fn unpack(value: &str) -> Result<(String, String), String> {
    let Some((name, packed)) = value.strip_prefix(PACKED).and_then(|rest| rest.split_once(' ')) else {
        let (first, rest) = value.split_once('\n').unwrap_or((value, ""));
        // Without the added line, so that errors give the file's own line numbers.
        return Ok(match first.strip_prefix(PLAIN) {
            Some(name) => (name.to_owned(), rest.to_owned()),
            None => ("loadfile".to_owned(), value.to_owned()),
        });
    };
    let damaged = || format!("The loadfile `{name}` is damaged in the plan; create the plan again from the file");
    let packed = unbase64(packed).ok_or_else(damaged)?;
    let mut text = String::new();
    DeflateDecoder::new(&packed[..]).take(LONGEST).read_to_string(&mut text).map_err(|_| damaged())?;
    Ok((name.to_owned(), text))
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - three.len()));
        for n in 0..4 {
            text.push(if n <= three.len() { LETTERS[(word >> (18 - 6 * n) & 63) as usize].into() } else { '=' });
        }
    }
    text
}

fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut values = [u8::MAX; 256];
    LETTERS.iter().zip(0..).for_each(|(letter, value)| values[usize::from(*letter)] = value);
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for four in text.chunks(4) {
        let mut word = 0u32;
        for letter in four {
            let value = values[usize::from(*letter)];
            if value > 63 {
                return None;
            }
            word = word << 6 | u32::from(value);
        }
        let word = word << (6 * (4 - four.len())) << 8;
        bytes.extend(&word.to_be_bytes()[..(four.len() * 6) / 8]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes: Vec<u8>) {
            prop_assert_eq!(unbase64(&base64(&bytes)), Some(bytes));
        }
    }

    #[test]
    fn it_is_base_64() {
        assert_eq!((base64(b"fo"), base64(b"foobar")), ("Zm8=".to_owned(), "Zm9vYmFy".to_owned()));
        assert_eq!(unbase64("Zm9*"), None);
    }

    #[test]
    fn a_file_is_embedded_whole_and_a_long_one_packed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some load.txt");
        for lines in [3, 20_000] {
            let text = "Mkdir \"\\clients\\client1\" NT_STATUS_OK\n".repeat(lines);
            std::fs::write(&path, &text).unwrap();
            let embedded = embed(path.to_str().unwrap()).unwrap();
            assert_eq!(embedded.starts_with(PACKED), lines > 3);
            assert!(embedded.len() < 10_000, "{}", embedded.len());
            assert_eq!(embed(&embedded).as_ref(), Ok(&embedded));
            assert_eq!(unpack(&embedded), Ok(("some_load.txt".to_owned(), text)));
            let options = Options::from([("loadfile".to_owned(), embedded)]);
            assert_eq!(of(&options, Size::default()).unwrap().1.requests.len(), lines);
        }
        let wrong = Options::from([("loadfile".to_owned(), "packed x ====a".to_owned())]);
        assert!(of(&wrong, Size::default()).unwrap_err().contains("damaged"));
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        std::fs::write(&path, "Flush 3 NT_STATUS_OK\n").unwrap();
        let error = embed(path.to_str().unwrap()).unwrap_err();
        assert_eq!(error, "a.txt:1: Handle 3 is not open; an NTCreateX must open it first");
        assert!(embed("/nonexistent").unwrap_err().contains("`generated`"));
    }
}
