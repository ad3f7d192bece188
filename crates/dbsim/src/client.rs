//! A client and its server: the client sends a request over the transport of its class, and the server does one transaction and
//! replies.
//!
//! Invariant: a client has one outstanding request at a time, and every reply is checked to belong to it. The client measures the
//! round trip, as a user would see it.

use std::io;

use anyhow::{Context as _, Result, ensure};

use super::foreground::{self, Transactor};
use super::instance::{Instance, Milestone, Phase};
use super::link::Link;
use super::pace;
use super::waits::{self, WaitEvent};

/// Minimum bytes of a message: its number.
pub const MESSAGE_MIN: usize = 8;
/// The message number with which a client disconnects.
const BYE: u64 = u64::MAX;

/// Fills in message `number`: the number, then its lowest byte throughout.
fn fill(message: &mut [u8], number: u64) {
    message.fill(number as u8);
    message[..MESSAGE_MIN].copy_from_slice(&number.to_le_bytes());
}

/// The number of an intact message.
fn number(message: &[u8]) -> Result<u64> {
    let (number, rest) = message.split_first_chunk::<MESSAGE_MIN>().context("A message is too short")?;
    let number = u64::from_le_bytes(*number);
    ensure!(rest.iter().all(|b| *b == number as u8), "Message {number} has been changed in transit");
    Ok(number)
}

struct Client<'a> {
    instance: &'a Instance<'a>,
    link: Link<'a>,
    request: Vec<u8>,
    reply: Vec<u8>,
    /// Requests so far.
    number: u64,
}

/// Runs client `process`: directs its server through the run; the server does the transactions.
pub fn run<'a>(instance: &'a Instance<'a>, process: usize, link: Link<'a>, request: usize, reply: usize) -> Result<()> {
    ensure_sizes(request, reply)?;
    let role = instance.roles[process];
    let round_trip = instance.round_trip[&role.class].recorder(role.number);
    let mut c = Client { instance, link, request: vec![0; request], reply: vec![0; reply], number: 0 };
    foreground::drive(instance, instance.transactor(process), |intended| {
        let start = intended.unwrap_or_else(pace::now);
        c.call()?;
        if instance.phase() == Phase::Measure as u32 {
            round_trip.record(pace::now().saturating_sub(start));
        }
        Ok(())
    })?;
    fill(&mut c.request, BYE);
    c.sent()
}

impl Client<'_> {
    /// One request and its reply.
    fn call(&mut self) -> Result<()> {
        self.number += 1;
        fill(&mut self.request, self.number);
        self.sent()?;
        let received = waits::during(WaitEvent::Server, || self.link.receive(&mut self.reply));
        other_end(self.instance, received).context("Cannot receive from the server")?;
        let answered = number(&self.reply)?;
        ensure!(answered == self.number, "Request {} got the reply to request {answered}", self.number);
        Ok(())
    }

    fn sent(&mut self) -> Result<()> {
        let sent = self.link.send(&self.request);
        other_end(self.instance, sent).context("Cannot send to the server")
    }
}

/// Runs server `process` until its client disconnects.
pub fn serve<'a>(
    instance: &'a Instance<'a>,
    process: usize,
    mut link: Link<'a>,
    request: usize,
    reply: usize,
) -> Result<()> {
    ensure_sizes(request, reply)?;
    let (mut request, mut reply) = (vec![0; request], vec![0; reply]);
    let mut transactor = Transactor::new(instance, process)?;
    instance.arrive(Milestone::Ready)?;
    loop {
        let received = waits::during(WaitEvent::Client, || link.receive(&mut request));
        other_end(instance, received).context("Cannot receive from the client")?;
        let asked = number(&request)?;
        if asked == BYE {
            return Ok(());
        }
        transactor.transaction(None)?;
        fill(&mut reply, asked);
        other_end(instance, link.send(&reply)).context("Cannot send to the client")?;
    }
}

fn ensure_sizes(request: usize, reply: usize) -> Result<()> {
    let least = request.min(reply);
    ensure!(least >= MESSAGE_MIN, "A client's message of {least} bytes is too short; at least {MESSAGE_MIN}");
    Ok(())
}

/// If the other end is closed, its process has died: the parent is about to learn that, report it and kill this process. Waiting
/// for that keeps the consequence from being reported as the cause.
fn other_end(instance: &Instance<'_>, result: io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    if let Err(e) = &result
        && matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
    {
        instance.wait_for(Phase::End);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_message_is_noticed() {
        let mut message = [0; 100];
        fill(&mut message, 0x1234);
        assert_eq!(number(&message).unwrap(), 0x1234);
        message[99] ^= 1;
        assert!(number(&message).is_err());
        assert!(number(&message[..7]).is_err());
    }
}
