//! A FastCGI application: pages from a process that stays.
//!
//! Invariant: a request is answered whole, or its connection ends and standard error says why.

use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use anyhow::{Context as _, Result, bail};

const VERSION: u8 = 1;
const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMETERS: u8 = 4;
const INPUT: u8 = 5;
const OUTPUT: u8 = 6;
/// In a request's beginning: the connection stays after the response.
const KEEP: u8 = 1;
/// Bytes of output in a record, of 65,535.
const PIECE: usize = 32 << 10;

/// A request.
#[derive(Debug, Default)]
pub(super) struct Call {
    parameters: Vec<u8>,
    /// Its body.
    pub input: Vec<u8>,
}

impl Call {
    /// The value of a parameter; empty if there is none.
    pub(super) fn get(&self, name: &str) -> Result<&str> {
        Ok(str::from_utf8(parameter(&self.parameters, name.as_bytes()).unwrap_or_default())?)
    }
}

/// Answers requests from the listening socket on standard input with `threads` threads. `begin` makes what answers in each of them, in the form of a
/// CGI program's output.
pub(super) fn serve<A>(threads: u32, begin: impl Fn() -> Result<A> + Sync) -> Result<()>
where
    A: Fn(&Call) -> Result<Vec<u8>>,
{
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned().context("There is no socket")?);
    thread::scope(|scope| {
        let work = || -> Result<()> {
            let answer = begin()?;
            for stream in listener.incoming() {
                if let Err(error) = converse(&stream?, &answer) {
                    eprintln!("{error:#}");
                }
            }
            Ok(())
        };
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("A thread panicked")))
    })
}

fn converse(stream: &UnixStream, answer: &impl Fn(&Call) -> Result<Vec<u8>>) -> Result<()> {
    let mut input = BufReader::new(stream);
    let (mut call, mut keep) = (Call::default(), false);
    while let Some((kind, id, content)) = record(&mut input)? {
        match kind {
            BEGIN => (call, keep) = (Call::default(), content.get(2).is_some_and(|flags| flags & KEEP != 0)),
            PARAMETERS => call.parameters.extend(content),
            // The end of the request's body.
            INPUT if content.is_empty() => {
                let text = answer(&call)?;
                let mut output = Vec::with_capacity(text.len() + 64);
                text.chunks(PIECE).chain([&[][..]]).for_each(|piece| put(&mut output, OUTPUT, id, piece));
                put(&mut output, END, id, &[0; 8]);
                (&mut &*stream).write_all(&output)?;
                if !keep {
                    return Ok(());
                }
            }
            INPUT => call.input.extend(content),
            _ => {}
        }
    }
    Ok(())
}

/// A record's kind, request and content.
type Record = (u8, [u8; 2], Vec<u8>);

/// The next record.
fn record(input: &mut impl Read) -> Result<Option<Record>> {
    let mut head = [0; 8];
    match input.read_exact(&mut head) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let [VERSION, kind, id1, id2, high, low, padding, _] = head else { bail!("This is not FastCGI") };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let mut content = vec![0; length + usize::from(padding)];
    input.read_exact(&mut content)?;
    content.truncate(length);
    Ok(Some((kind, [id1, id2], content)))
}

fn put(output: &mut Vec<u8>, kind: u8, [id1, id2]: [u8; 2], content: &[u8]) {
    let [high, low] = (content.len() as u16).to_be_bytes();
    output.extend([VERSION, kind, id1, id2, high, low, 0, 0]);
    output.extend_from_slice(content);
}

/// The value of a parameter.
fn parameter<'a>(mut all: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    while !all.is_empty() {
        let (name, value) = (length(&mut all)?, length(&mut all)?);
        let pair = all.get(..name.checked_add(value)?)?;
        all = &all[pair.len()..];
        if &pair[..name] == wanted {
            return Some(&pair[name..]);
        }
    }
    None
}

/// A length of one byte, or of four with the highest bit set.
fn length(all: &mut &[u8]) -> Option<usize> {
    let (first, rest) = all.split_first()?;
    if *first < 0x80 {
        *all = rest;
        return Some(usize::from(*first));
    }
    let (bytes, rest) = all.split_first_chunk::<4>()?;
    *all = rest;
    Some((u32::from_be_bytes(*bytes) & 0x7fff_ffff) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::database::{PAGES, PageDatabase, page};
    use crate::page::visit;

    #[test]
    fn parameters_are_found_whatever_their_lengths() {
        let long = vec![b'x'; 300];
        let mut all = vec![1, 2, b'A', b'b', b'c', 1];
        all.extend(0x8000_012c_u32.to_be_bytes());
        all.push(b'L');
        all.extend(&long);
        assert_eq!(parameter(&all, b"A"), Some(&b"bc"[..]));
        assert_eq!(parameter(&all, b"L"), Some(&long[..]));
        assert_eq!(parameter(&all, b"B"), None);
        assert_eq!(parameter(&all[..100], b"L"), None, "cut off");
    }

    #[test]
    fn requests_are_answered_in_records_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.db");
        let database = PageDatabase::create(&path).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let served = thread::spawn(move || {
            let database = PageDatabase::open(&path).unwrap();
            converse(&far, &|call: &Call| visit(&database, call)).is_ok()
        });
        for (number, keep) in [(PAGES, KEEP), (1, 0)] {
            let mut request = Vec::new();
            put(&mut request, BEGIN, [0, 7], &[0, 1, keep, 0, 0, 0, 0, 0]);
            let query = format!("worker+web-page+{number}");
            let mut pair = vec![12, query.len() as u8];
            pair.extend(b"QUERY_STRING");
            pair.extend(query.as_bytes());
            let (first, second) = pair.split_at(9);
            [first, second, &[]].iter().for_each(|part| put(&mut request, PARAMETERS, [0, 7], part));
            put(&mut request, INPUT, [0, 7], &[]);
            (&near).write_all(&request).unwrap();
            let mut said = Vec::new();
            loop {
                let (kind, id, content) = record(&mut &near).unwrap().unwrap();
                assert_eq!(id, [0, 7]);
                if kind == END {
                    break;
                }
                said.extend(content);
            }
            let said = String::from_utf8(said).unwrap();
            assert!(said.ends_with(&format!("\r\n\r\n{}", page(number))), "{said}");
        }
        assert!(served.join().unwrap(), "the connection was not to stay");
        assert_eq!(database.visits().unwrap(), 2);
    }
}
