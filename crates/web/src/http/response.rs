//! Reads the responses of a connection, however the network has cut them into pieces.
//!
//! Invariant: the pieces of the body, joined, are the body that the server sent; no byte of the input is skipped, and none is kept but the beginning
//! of a head or of a chunk's size.

use thiserror::Error;

use bigiron_sys::load::rng::SplitMix64;

/// Most bytes of a head, and of the line with a chunk's size.
const LONGEST_HEAD: usize = 64 << 10;
const LONGEST_LINE: usize = 1 << 10;
const SET_COOKIE: &[u8] = b"set-cookie:";

/// What a server sent instead of a response.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    #[error("The server's response does not begin like one of HTTP/1.1: `{0}`")]
    Start(String),
    #[error("The server's response has a header that cannot be read: `{0}`")]
    Header(String),
    #[error("The server's response has no length: neither `Content-Length` nor chunks")]
    NoLength,
    #[error("The head of the server's response is longer than {LONGEST_HEAD} bytes")]
    TooLong,
    #[error("The server's response has a chunk whose size cannot be read: `{0}`")]
    Chunk(String),
}

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    /// The length of the body; `None` if it comes in chunks.
    pub length: Option<u64>,
    /// Whether the server ends the connection after this response.
    pub close: bool,
    /// The [`digest`] of the cookie that it sets.
    pub cookie: Option<u64>,
}

/// A number for a cookie's text.
pub fn digest(cookie: &str) -> u64 {
    SplitMix64::stream(0, cookie).next()
}

/// The next part of a response.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    Head(Head),
    /// Some bytes of the body.
    Body(&'a [u8]),
    /// The response is complete; another may follow.
    End,
    /// The input is used up.
    More,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Head,
    Body {
        left: u64,
    },
    ChunkSize,
    Chunk {
        left: u64,
    },
    /// The line end after a chunk.
    ChunkEnd,
    /// Lines after the last chunk, until an empty one.
    Trailer,
    End,
}

/// Reads responses.
#[derive(Debug)]
pub struct ResponseReader {
    phase: Phase,
    /// The beginning of a head or a line whose rest has not arrived.
    begun: Vec<u8>,
}

impl Default for ResponseReader {
    fn default() -> Self {
        Self { phase: Phase::Head, begun: Vec::new() }
    }
}

impl ResponseReader {
    /// Forgets everything, for a new connection.
    pub fn reset(&mut self) {
        self.phase = Phase::Head;
        self.begun.clear();
    }

    /// Takes the next piece off the beginning of `input`.
    ///
    /// # Errors
    /// It is not a response.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, Malformed> {
        loop {
            match self.phase {
                Phase::Body { left: 0 } | Phase::End => {
                    self.phase = Phase::Head;
                    return Ok(Piece::End);
                }
                _ if input.is_empty() => return Ok(Piece::More),
                Phase::Body { left } => {
                    let taken = take(input, left);
                    self.phase = Phase::Body { left: left - taken.len() as u64 };
                    return Ok(Piece::Body(taken));
                }
                Phase::Chunk { left } => {
                    let taken = take(input, left);
                    let left = left - taken.len() as u64;
                    self.phase = if left == 0 { Phase::ChunkEnd } else { Phase::Chunk { left } };
                    return Ok(Piece::Body(taken));
                }
                Phase::Head => match self.head(input)? {
                    Some(head) => return Ok(Piece::Head(head)),
                    None => return Ok(Piece::More),
                },
                Phase::ChunkSize | Phase::ChunkEnd | Phase::Trailer => {
                    if !self.line(input)? {
                        return Ok(Piece::More);
                    }
                }
            }
        }
    }

    /// A whole head, if its end is in `input`.
    fn head(&mut self, input: &mut &[u8]) -> Result<Option<Head>, Malformed> {
        let (whole, kept) = (*input, self.begun.len());
        let head = if kept == 0 {
            let Some(end) = end_of_head(whole, 0) else {
                self.keep(input, LONGEST_HEAD)?;
                return Ok(None);
            };
            *input = &whole[end..];
            read_head(&whole[..end])?
        } else {
            self.begun.extend_from_slice(whole);
            // The end may have begun in what was kept.
            let Some(end) = end_of_head(&self.begun, kept.saturating_sub(3)) else {
                *input = &[];
                return if self.begun.len() > LONGEST_HEAD { Err(Malformed::TooLong) } else { Ok(None) };
            };
            *input = &whole[end - kept..];
            let head = read_head(&self.begun[..end]);
            self.begun.clear();
            head?
        };
        self.phase = match head.length {
            Some(left) => Phase::Body { left },
            None => Phase::ChunkSize,
        };
        Ok(Some(head))
    }

    /// Takes a line of the chunks' framing; `false` if its end is not in `input`.
    fn line(&mut self, input: &mut &[u8]) -> Result<bool, Malformed> {
        let Some(end) = input.iter().position(|b| *b == b'\n') else {
            self.keep(input, LONGEST_LINE)?;
            return Ok(false);
        };
        let (line, rest) = input.split_at(end);
        *input = &rest[1..];
        self.begun.extend_from_slice(line);
        let text = self.begun.trim_ascii_end();
        self.phase = match self.phase {
            Phase::ChunkEnd if text.is_empty() => Phase::ChunkSize,
            Phase::Trailer if text.is_empty() => Phase::End,
            Phase::Trailer => Phase::Trailer,
            Phase::ChunkSize => match chunk_size(text) {
                Some(0) => Phase::Trailer,
                Some(left) => Phase::Chunk { left },
                None => return Err(Malformed::Chunk(shown(text))),
            },
            _ => return Err(Malformed::Chunk(shown(text))),
        };
        self.begun.clear();
        Ok(true)
    }

    /// Keeps all of `input` until more arrives.
    fn keep(&mut self, input: &mut &[u8], most: usize) -> Result<(), Malformed> {
        self.begun.extend_from_slice(input);
        *input = &[];
        if self.begun.len() > most { Err(Malformed::TooLong) } else { Ok(()) }
    }
}

/// At most `left` bytes off the beginning of `input`.
fn take<'a>(input: &mut &'a [u8], left: u64) -> &'a [u8] {
    let length = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
    let (taken, rest) = input.split_at(length);
    *input = rest;
    taken
}

/// Where the head in `bytes` ends, if it ends; the search begins at `from`.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    const END: &[u8] = b"\r\n\r\n";
    bytes[from..].windows(END.len()).position(|w| w == END).map(|at| from + at + END.len())
}

fn read_head(text: &[u8]) -> Result<Head, Malformed> {
    let mut lines = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii_end);
    let first = lines.next().unwrap_or_default();
    let status = first.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(decimal);
    let status = status.ok_or_else(|| Malformed::Start(shown(first)))? as u16;
    let mut head = Head { status, length: None, close: first.starts_with(b"HTTP/1.0"), cookie: None };
    let mut chunked = false;
    for line in lines.filter(|line| !line.is_empty()) {
        // The first letters of the few headers that matter.
        let sets = line.get(..SET_COOKIE.len()).is_some_and(|name| name.eq_ignore_ascii_case(SET_COOKIE));
        if !matches!(line[0] | 0x20, b'c' | b't') && !sets {
            continue;
        }
        let Some(colon) = line.iter().position(|b| *b == b':') else { return Err(Malformed::Header(shown(line))) };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if sets {
            head.cookie = str::from_utf8(value).ok().map(digest);
        } else if name.eq_ignore_ascii_case(b"content-length") {
            head.length = Some(decimal(value).ok_or_else(|| Malformed::Header(shown(line)))?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            chunked = value.eq_ignore_ascii_case(b"chunked");
        } else if name.eq_ignore_ascii_case(b"connection") {
            head.close = value.eq_ignore_ascii_case(b"close");
        }
    }
    match (chunked, head.length) {
        (true, _) => head.length = None,
        // Of a response that is refused for its status, the length does not matter.
        (false, None) if status == 200 => return Err(Malformed::NoLength),
        (false, length) => head.length = length.or(Some(0)),
    }
    Ok(head)
}

fn decimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.len() < 19 && text.iter().all(u8::is_ascii_digit);
    digits.then(|| text.iter().fold(0, |n, b| n * 10 + u64::from(b - b'0')))
}

/// The size at the beginning of a chunk's line; extensions may follow.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(line.len());
    let extension = line.get(end).is_none_or(|b| matches!(b, b';' | b' ' | b'\t'));
    (extension && (1..16).contains(&end)).then(|| u64::from_str_radix(str::from_utf8(&line[..end]).ok()?, 16).ok())?
}

/// The beginning of some bytes as text.
fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(80)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What was read of a stream, given in pieces: the responses as status, body and whether the connection ends.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<(u16, Vec<u8>, bool)>, Malformed> {
        let mut reader = ResponseReader::default();
        let (mut all, mut now) = (Vec::new(), None);
        for mut piece in pieces {
            loop {
                match reader.next(&mut piece)? {
                    Piece::Head(head) => now = Some((head.status, Vec::new(), head.close)),
                    Piece::Body(bytes) => now.as_mut().unwrap().1.extend_from_slice(bytes),
                    Piece::End => all.push(now.take().unwrap()),
                    Piece::More => break,
                }
            }
        }
        assert!(now.is_none());
        Ok(all)
    }

    const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-LENGTH: 5\r\n\r\nhello\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1F;x=y\r\n0123456789abcdef0123456789abcde\r\n0\r\nA: b\r\n\r\n\
        HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

    fn responses() -> Vec<(u16, Vec<u8>, bool)> {
        let chunked = b"abc0123456789abcdef0123456789abcde".to_vec();
        vec![(200, b"hello".to_vec(), false), (200, chunked, false), (404, Vec::new(), true)]
    }

    #[test]
    fn responses_are_read_however_they_are_cut() {
        assert_eq!(read([STREAM]).unwrap(), responses());
        for size in 1..STREAM.len() {
            assert_eq!(read(STREAM.chunks(size)).unwrap(), responses(), "{size}");
        }
    }

    #[test]
    fn what_is_no_response_is_refused() {
        for (text, words) in [
            (&b"SSH-2.0\r\n\r\n"[..], "does not begin like one of HTTP/1.1: `SSH-2.0`"),
            (b"HTTP/1.1 2x0 OK\r\n\r\n", "does not begin"),
            (b"HTTP/1.1 200 OK\r\n\r\n", "no length"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "`Content-Length: -1`"),
            (b"HTTP/1.1 200 OK\r\nContent\r\n\r\n", "header that cannot be read"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "chunk"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naXX\r\n", "chunk"),
        ] {
            let said = read([text]).unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
        let long = [b"HTTP/1.1 200 OK\r\nA: ".as_slice(), &vec![b'x'; LONGEST_HEAD]].concat();
        assert_eq!(read([&long[..]]), Err(Malformed::TooLong));
        assert_eq!(read(long.chunks(1000)), Err(Malformed::TooLong));
    }

    proptest! {
        #[test]
        fn any_cuts_are_read(cuts in prop::collection::vec(1usize..40, 1..200)) {
            let (mut rest, mut pieces) = (STREAM, Vec::new());
            for cut in cuts {
                let (piece, left) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = left;
            }
            pieces.push(rest);
            prop_assert_eq!(read(pieces).unwrap(), responses());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0..STREAM.len()) {
            let mut reader = ResponseReader::default();
            let bytes = [&STREAM[..at], &bytes].concat();
            let mut input = &bytes[..];
            while let Ok(piece) = reader.next(&mut input) && piece != Piece::More {}
        }
    }
}
