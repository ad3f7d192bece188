//! File names: a client's own, and those that a pattern matches.

use std::ffi::CString;

use anyhow::{Context as _, Result};

use crate::loadfile::{CLIENT, ROOT};

/// A loadfile's path as used by client number `client` (from 0), below the working directory.
///
/// # Errors
/// If it has a zero byte.
pub fn of_client(path: &str, client: usize) -> Result<CString> {
    let path = match path.strip_prefix(CLIENT) {
        Some(rest) => format!("{ROOT}/client{}{rest}", client + 1),
        None => ROOT.to_owned(),
    };
    CString::new(path).context("A path of the loadfile has a zero byte")
}

/// Whether `pattern` matches `name`: `*` matches anything, `?` one byte, and case is ignored.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // The position of the last `*`, and the end of its match.
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(b) if *b == b'?' || b.eq_ignore_ascii_case(&name[n]) => {
                p += 1;
                n += 1;
            }
            _ => match &mut star {
                None => return false,
                Some((at, end)) => {
                    *end += 1;
                    (p, n) = (*at + 1, *end);
                }
            },
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_the_clients_own() {
        let path = |path, client| of_client(path, client).unwrap().into_string().unwrap();
        assert_eq!(path("client1/a/b", 0), "clients/client1/a/b");
        assert_eq!(path("client1", 11), "clients/client12");
        assert_eq!(path("", 4), "clients");
    }

    #[test]
    fn patterns_mean_names() {
        for (pattern, name, fits) in [
            ("*", "anything", true),
            ("FILLER.*", "filler.000", true),
            ("FILLER.*", "filler", false),
            ("f?o*", "foobar", true),
            ("*bar", "foobarbar", true),
            ("*bar", "foobars", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxcyyb", false),
            ("abc", "ABC", true),
            ("abc", "abcd", false),
            ("", "", true),
            ("**", "", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }
}
