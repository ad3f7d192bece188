//! A client's connection, and the answering process at its other end.
//!
//! Invariant: a packet begins with its length. A request gives the length of its reply; a reply gives the number of its request
//! in its first and last bytes, so that a late, truncated or foreign reply is detected.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use anyhow::{Context as _, Result, ensure};

use crate::loadfile::replay::Server;
use crate::loadfile::{Loadfile, Packets, Request};
use bigiron_sys::network;
use bigiron_sys::network::Wiring;
use bigiron_sys::process::{Child, fork_child};

/// Bytes of the length.
const LENGTH: usize = 4;
/// Bytes of a packet's identity: in a request the reply's length and the request's number; in a reply twice its number.
const MARK: usize = 4;
/// Smallest packet.
const LEAST: usize = LENGTH + 2 * MARK;

/// A client and its connection.
pub struct Caller<'a> {
    file: &'a Loadfile,
    stream: TcpStream,
    buffer: Vec<u8>,
    number: u32,
    client: u32,
    /// Ends with the client.
    _server: Child,
}

impl<'a> Caller<'a> {
    /// Starts a server process for `client` on the servers' network, and connects to it.
    ///
    /// # Errors
    /// If the network cannot be entered.
    pub fn connect(file: &'a Loadfile, wiring: &Wiring, client: usize) -> Result<Self> {
        let sizes = file.requests.iter().filter_map(|r| Packets::of(file, r));
        let longest = sizes.map(|p| p.request.max(p.answer)).max().unwrap_or(0).max(LEAST);
        let (stream, served) = network::connect(wiring.pair()).context("Cannot connect")?;
        let mut ends = Some((stream, served));
        let server = fork_child(|| {
            // The client's end is closed here, so that the end of the client can be detected.
            let Some((_, served)) = ends.take() else { return 1 };
            serve(served, longest).map_or(1, |()| 0)
        })
        .context("Cannot start a server")?;
        let (stream, _) = ends.take().context("The connection was closed")?;
        wiring.enter_clients()?;
        Ok(Self { file, stream, buffer: vec![0; longest], number: 0, client: client as u32, _server: server })
    }

    fn exchange(&mut self, packets: Packets) -> Result<()> {
        self.number = self.number.wrapping_add(1);
        let mark = (self.number ^ self.client << 20).to_le_bytes();
        let request = &mut self.buffer[..packets.request];
        put(request, 0, length(packets.request));
        put(request, LENGTH, length(packets.answer));
        put(request, LENGTH + MARK, mark);
        put(request, packets.request - MARK, mark);
        self.stream.write_all(request).context("Cannot send to the server")?;
        let answer = receive(&mut self.stream, &mut self.buffer).context("Cannot receive from the server")?;
        let answer = answer.context("The server has ended")?;
        ensure!(answer.len() == packets.answer, "A reply has {} bytes instead of {}", answer.len(), packets.answer);
        let marked = |at: usize| answer[at..at + MARK] == mark;
        ensure!(
            marked(LENGTH) && marked(answer.len() - MARK),
            "Request {} got the reply of another request",
            self.number
        );
        Ok(())
    }
}

impl Server for Caller<'_> {
    fn begin(&mut self, _pass: u32) -> Result<()> {
        Ok(())
    }

    fn serve(&mut self, request: &Request) -> Result<()> {
        match Packets::of(self.file, request) {
            Some(packets) => self.exchange(packets),
            None => Ok(()),
        }
    }

    fn reset(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Answers until the client has ended.
fn serve(mut stream: TcpStream, longest: usize) -> io::Result<()> {
    let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let mut buffer = vec![0; longest];
    while let Some(request) = receive(&mut stream, &mut buffer)? {
        let mark = word(request, LENGTH + MARK);
        if word(request, request.len() - MARK) != mark {
            return wrong("A request was changed in transit");
        }
        let answer = u32::from_be_bytes(word(request, LENGTH)) as usize + LENGTH;
        if !(LEAST..=longest).contains(&answer) {
            return wrong("A request needs a reply of an impossible length");
        }
        let answer = &mut buffer[..answer];
        let bytes = length(answer.len());
        put(answer, 0, bytes);
        put(answer, LENGTH, mark);
        let end = answer.len() - MARK;
        put(answer, end, mark);
        stream.write_all(answer)?;
    }
    Ok(())
}

/// A whole packet, or `None` if the other end was closed.
fn receive<'b>(stream: &mut TcpStream, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
    let (head, rest) = buffer.split_at_mut(LENGTH);
    match stream.read_exact(head) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let within = rest.get_mut(..length).filter(|p| p.len() >= 2 * MARK);
    stream.read_exact(within.ok_or(io::ErrorKind::InvalidData)?)?;
    Ok(Some(&buffer[..LENGTH + length]))
}

/// The length field of a packet of this many bytes: the number of bytes that follow.
fn length(bytes: usize) -> [u8; LENGTH] {
    ((bytes - LENGTH) as u32).to_be_bytes()
}

fn put(packet: &mut [u8], at: usize, word: [u8; MARK]) {
    packet[at..at + MARK].copy_from_slice(&word);
}

fn word(packet: &[u8], at: usize) -> [u8; MARK] {
    let mut word = [0; MARK];
    word.copy_from_slice(&packet[at..at + MARK]);
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadfile::{Size, generate};

    #[test]
    fn a_late_answer_is_not_taken_for_the_one_that_is_waited_for() {
        let file = generate(Size { requests: 200, seed: 1 });
        let mut caller = Caller::connect(&file, &Wiring::Own, 1).unwrap();
        let packets = Packets { request: 100, answer: 60 };
        caller.exchange(packets).unwrap();
        // An extra request, whose reply comes first.
        let mut extra = vec![0; 50];
        put(&mut extra, 0, length(50));
        put(&mut extra, LENGTH, length(60));
        caller.stream.write_all(&extra).unwrap();
        let error = caller.exchange(packets).unwrap_err().to_string();
        assert_eq!(error, "Request 2 got the reply of another request");
    }

    #[test]
    fn a_request_that_was_changed_ends_the_server() {
        let file = generate(Size { requests: 200, seed: 1 });
        let mut caller = Caller::connect(&file, &Wiring::Own, 1).unwrap();
        let mut changed = vec![0; 50];
        put(&mut changed, 0, length(50));
        put(&mut changed, LENGTH, length(60));
        changed[49] = 1;
        caller.stream.write_all(&changed).unwrap();
        let error = format!("{:#}", caller.exchange(Packets { request: 100, answer: 60 }).unwrap_err());
        assert!(error.contains("server"), "{error}");
    }
}
