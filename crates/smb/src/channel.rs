//! A channel of a session: one connection to its server, with message numbers, credits and a signing key of its own.
//!
//! Invariant: a message is sent and received whole.

use std::io::{self, IoSlice, Write as _};
use std::net::{SocketAddrV4, TcpStream};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::crypto::Signer;
use crate::error::SmbError;
use crate::frame::Fields;
use crate::inbox::Inbox;

/// Most channels of a session; Samba accepts 32.
pub const MOST_CHANNELS: usize = 8;

#[derive(Debug)]
pub struct Channel {
    socket: TcpStream,
    /// The next message's number.
    message: u64,
    credits: usize,
    pub received: Inbox,
    /// Signs and verifies its messages. Until the session has a key, there is none; until a further channel is bound, it has the session's key.
    pub signer: Option<Signer>,
    /// Whether its messages are protected as the session is. Until then, a channel that has a key signs all of them and encrypts none.
    pub is_set_up: bool,
    /// The numbers of the answers to oplocks that were taken back, whose responses are to come.
    given_back: Vec<u64>,
}

impl Channel {
    /// Connects, and says nothing.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(address: SocketAddrV4) -> Result<Self, SmbError> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            message: 0,
            credits: 1,
            received: Inbox::default(),
            signer: None,
            is_set_up: false,
            given_back: Vec::new(),
        })
    }

    /// The number that the next message has.
    pub fn next(&self) -> u64 {
        self.message
    }

    /// Pays for a request of `charge` credits; returns its number.
    ///
    /// # Errors
    /// There are too few.
    pub fn pay(&mut self, charge: u16) -> Result<u64, SmbError> {
        let left = self.credits.checked_sub(charge.into());
        self.credits = left.ok_or(SmbError::Response("the server grants too few credits"))?;
        let number = self.message;
        self.message += u64::from(charge);
        Ok(number)
    }

    /// Pays for the answer to an oplock that was taken back, which the server does not let wait for credits.
    pub fn pay_for_giving_back(&mut self) {
        self.given_back.push(self.message);
        self.message += 1;
        self.credits = self.credits.saturating_sub(1);
    }

    /// Whether the response with this number answers the giving back of an oplock. It comes once.
    pub fn has_given_back(&mut self, number: u64) -> bool {
        let at = self.given_back.iter().position(|n| *n == number);
        at.map(|at| self.given_back.swap_remove(at)).is_some()
    }

    /// Sends a message as it is.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, message: &[u8]) -> Result<(), SmbError> {
        let length = (message.len() as u32).to_be_bytes();
        let mut rest = &mut [IoSlice::new(&length), IoSlice::new(message)][..];
        while !rest.is_empty() {
            let sent = self.socket.write_vectored(rest)?;
            if sent == 0 {
                return Err(SmbError::Io(io::ErrorKind::WriteZero.into()));
            }
            IoSlice::advance_slices(&mut rest, sent);
        }
        Ok(())
    }

    /// Receives a message as it is, in the place of the last.
    ///
    /// # Errors
    /// The connection broke, or the message is too long.
    pub fn receive(&mut self) -> Result<(), SmbError> {
        self.received.receive(&mut self.socket)
    }

    /// The last message, header included.
    pub fn last(&self) -> Fields<'_> {
        Fields(self.received.message())
    }

    /// Takes the credits that come with the last message.
    pub fn take_credits(&mut self) -> Result<(), SmbError> {
        self.credits += usize::from(self.last().credits()?);
        Ok(())
    }
}

/// Waits for a message on any of the channels, `awaited` the last of them: if it had the first turn, requests on it could keep an oplock's break on another
/// waiting. Returns the channel's index.
///
/// # Errors
/// The kernel refuses to wait.
pub fn wait(channels: &[Channel], awaited: usize) -> Result<usize, SmbError> {
    let count = channels.len();
    if count == 1 {
        return Ok(0);
    }
    let order = || (1..=count).map(|n| (awaited + n) % count);
    if let Some(at) = order().find(|at| channels[*at].received.has_more()) {
        return Ok(at);
    }
    let mut sockets: [_; MOST_CHANNELS] =
        std::array::from_fn(|n| PollFd::new(&channels[n.min(count - 1)].socket, PollFlags::IN));
    let sockets = &mut sockets[..count];
    loop {
        match poll(sockets, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => return Err(SmbError::Io(e.into())),
        }
        if let Some(at) = order().find(|at| !sockets[*at].revents().is_empty()) {
            return Ok(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// Two channels, and the server's ends of them.
    fn two() -> ([Channel; 2], [TcpStream; 2]) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        let both = [(); 2].map(|()| (Channel::connect(address).unwrap(), listener.accept().unwrap().0));
        let [(a, of_a), (b, of_b)] = both;
        ([a, b], [of_a, of_b])
    }

    #[test]
    fn what_comes_on_another_channel_is_seen_first() {
        let (mut channels, mut servers) = two();
        servers[0].write_all(b"\0\0\0\x02ab\0\0\0\x01c").unwrap();
        assert_eq!(wait(&channels, 0).unwrap(), 0);
        channels[0].receive().unwrap();
        assert_eq!(channels[0].received.message(), b"ab");
        // The second message has been received with the first: the socket has nothing to wait for.
        assert_eq!(wait(&channels, 1).unwrap(), 0);
        servers[1].write_all(b"\0\0\0\x01d").unwrap();
        channels[0].receive().unwrap();
        servers[0].write_all(b"\0\0\0\x01e").unwrap();
        // Both have one: it is the turn of the one that is not awaited.
        for (awaited, first) in [(0, 1), (1, 0)] {
            let ready = |channel: &Channel| poll(&mut [PollFd::new(&channel.socket, PollFlags::IN)], None).unwrap();
            channels.iter().for_each(|channel| assert_eq!(ready(channel), 1));
            assert_eq!(wait(&channels, awaited).unwrap(), first);
        }
        drop(servers);
        channels[1].receive().unwrap();
        assert_eq!(wait(&channels, 0).unwrap(), 1);
        assert!(matches!(channels[1].receive(), Err(SmbError::Io(_))), "it is closed");
    }

    #[test]
    fn each_channel_counts_its_own_numbers_and_credits() {
        let ([mut one, mut other], _servers) = two();
        assert_eq!((one.pay(1).unwrap(), one.next(), other.next()), (0, 1, 0));
        assert!(matches!(one.pay(1), Err(SmbError::Response("the server grants too few credits"))));
        assert_eq!(other.pay(1).unwrap(), 0);
        one.pay_for_giving_back();
        assert!(!other.has_given_back(1));
        assert!(one.has_given_back(1) && !one.has_given_back(1));
    }
}
