//! A session with a share: requests with their responses, on one channel or several.
//!
//! Invariant: one request is outstanding at a time, so the server has done each before the next is sent, on whatever channel. Meanwhile, the server may take
//! back an oplock; that is answered at once.

use std::net::SocketAddrV4;

use crate::channel::{Channel, wait};
use crate::crypto::{Cipher, Key};
use crate::error::SmbError;
use crate::frame::{Command, Fields, Frame, HEADER, Header, PLAIN, RESPONSE, UNASKED};
use crate::setup::random;
use crate::status::NtStatus;
use crate::unicode::utf16;

/// Credits asked for with each request: enough for the largest.
const CREDITS: u16 = 64;
/// Bytes that one credit pays for.
const OF_CREDIT: usize = 64 << 10;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    V21,
    V302,
    V311,
}

/// What protects the messages of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    None,
    Signed,
    /// Only with 3.1.1.
    Encrypted,
}

/// How to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub dialect: Dialect,
    pub protection: Protection,
    /// Connections of the session, at most [`crate::MOST_CHANNELS`]; more than one need 3.0.2 or 3.1.1.
    pub channels: usize,
}

/// Who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account<'a> {
    pub user: &'a str,
    pub password: &'a str,
}

/// A client with a session and a share.
#[derive(Debug)]
pub struct Client {
    pub(crate) terms: Terms,
    /// By which the server knows that its connections are of one client.
    pub(crate) guid: [u8; 16],
    pub(crate) channels: Vec<Channel>,
    /// The index of the present request's channel.
    pub(crate) current: usize,
    /// That of the last read or write.
    turn: usize,
    pub(crate) session: u64,
    tree: u32,
    /// Signs while a further channel is bound; each has its own key then.
    pub(crate) signing_key: Key,
    /// Whether every message is signed, and not only what must be.
    pub(crate) signs: bool,
    /// One for all channels, as its count must not repeat.
    pub(crate) cipher: Option<Cipher>,
    pub(crate) request: Frame,
    sealed: Vec<u8>,
    /// Most bytes of a read or write.
    pub(crate) most: usize,
}

impl Client {
    /// Connects to `share` of the server at `address`.
    ///
    /// # Errors
    /// The server refuses: the version, the account, a channel or the share.
    pub fn connect(address: SocketAddrV4, terms: Terms, account: Account<'_>, share: &str) -> Result<Self, SmbError> {
        let mut client = Self {
            terms,
            guid: random()?,
            channels: Vec::new(),
            current: 0,
            turn: 0,
            session: 0,
            tree: 0,
            signing_key: Key::default(),
            signs: false,
            cipher: None,
            request: Frame::default(),
            sealed: Vec::new(),
            most: usize::MAX,
        };
        client.add_channel(address, account)?;
        for number in 2..=terms.channels {
            let added = client.add_channel(address, account);
            added.map_err(|cause| SmbError::Channel { number, of: terms.channels, cause: Box::new(cause) })?;
        }
        client.tree(&format!("\\\\{}\\{share}", address.ip()))?;
        Ok(client)
    }

    fn tree(&mut self, path: &str) -> Result<(), SmbError> {
        let path = utf16(path);
        let request = self.begin(Command::TreeConnect, 1);
        request.u16(9).u16(0).u16(HEADER as u16 + 8).u16(path.len() as u16).bytes(&path);
        // 3.1.1 wants this one signed in any session.
        let signs = self.signs;
        self.signs |= self.terms.dialect == Dialect::V311;
        let status = self.exchange();
        self.signs = signs;
        expect(status?, NtStatus::OK)?;
        self.tree = self.message().tree()?;
        Ok(())
    }

    /// Most bytes of a read or write.
    pub fn longest(&self) -> usize {
        self.most
    }

    /// Begins a request with or for this many bytes of data. The channels have reads and writes by turn; the first has everything else.
    pub(crate) fn begin(&mut self, command: Command, bytes: usize) -> &mut Frame {
        self.current = 0;
        if matches!(command, Command::Read | Command::Write) {
            self.turn = (self.turn + 1) % self.channels.len();
            self.current = self.turn;
        }
        self.begin_on(self.current, command, bytes)
    }

    /// Begins a request on the channel with this index.
    pub(crate) fn begin_on(&mut self, channel: usize, command: Command, bytes: usize) -> &mut Frame {
        // 2.0.2 knows no charge; all later versions do.
        let charge = bytes.div_ceil(OF_CREDIT).max(1) as u16;
        let message = self.channels[channel].next();
        // The session does not exist before the server has answered its first setup, nor for a connection that negotiates.
        let session = if command == Command::Negotiate { 0 } else { self.session };
        self.request.begin(Header { command, charge, credits: CREDITS, message, tree: self.tree, session });
        &mut self.request
    }

    /// Sends the request and receives its response; returns its status.
    pub(crate) fn exchange(&mut self) -> Result<NtStatus, SmbError> {
        let charge = Fields(&self.request.0).u16(6)?.max(1);
        let number = self.channels[self.current].pay(charge)?;
        self.send(self.current)?;
        loop {
            // The server may take back an oplock on any channel, and answer nothing before it has it.
            let at = wait(&self.channels, self.current)?;
            self.receive(at)?;
            let channel = &mut self.channels[at];
            let header = channel.last();
            let (found, status, flags) = (header.message()?, header.status()?, header.flags()?);
            if flags & RESPONSE == 0 {
                return Err(SmbError::Response("it is a request"));
            }
            channel.take_credits()?;
            if found == UNASKED {
                self.give_back(at)?;
            } else if channel.has_given_back(found) {
                // Nothing is to be done.
            } else if (at, found) != (self.current, number) {
                return Err(SmbError::Response("it belongs to no request"));
            } else if status != NtStatus::PENDING {
                return Ok(status);
            }
        }
    }

    /// As [`Self::exchange`]; any status but success is an error.
    pub(crate) fn succeed(&mut self) -> Result<(), SmbError> {
        let status = self.exchange()?;
        expect(status, NtStatus::OK)
    }

    /// What comes after the header of the last response.
    pub(crate) fn response(&self) -> Result<Fields<'_>, SmbError> {
        self.message().body()
    }

    /// The last response, header included: offsets count from there.
    pub(crate) fn message(&self) -> Fields<'_> {
        self.channels[self.current].last()
    }

    /// Sends the request on a channel, protected as the session is.
    fn send(&mut self, at: usize) -> Result<(), SmbError> {
        let channel = &mut self.channels[at];
        let message = &mut self.request.0;
        match (&mut self.cipher, &channel.signer) {
            (Some(cipher), _) if channel.is_set_up => {
                cipher.seal(message, &mut self.sealed);
                return channel.send(&self.sealed);
            }
            (_, Some(signer)) if self.signs || !channel.is_set_up => signer.sign(message),
            _ => {}
        }
        channel.send(message)
    }

    /// Receives a message on a channel, and decrypts it or checks its signature. What comes before the channel is set up is checked there.
    fn receive(&mut self, at: usize) -> Result<(), SmbError> {
        let channel = &mut self.channels[at];
        channel.receive()?;
        let cipher = self.cipher.as_ref().filter(|_| channel.is_set_up);
        if let Some(cipher) = cipher {
            let opened = cipher.open(channel.received.message_mut())?;
            channel.received.narrow(opened);
        }
        let header = channel.last();
        if !header.0.starts_with(&PLAIN) || header.0.len() < HEADER {
            return Err(SmbError::Response("it is no message of SMB"));
        }
        // What the server sends unasked has no signature, nor has an answer that is not the last.
        let exempt = header.message()? == UNASKED || header.status()? == NtStatus::PENDING;
        if let (true, false, None, Some(signer)) = (self.signs && channel.is_set_up, exempt, cipher, &channel.signer)
            && !signer.verify(channel.received.message_mut())
        {
            return Err(SmbError::Response("its signature is wrong"));
        }
        Ok(())
    }

    /// Gives back the oplock that the server has taken, on the channel on which it asked for it.
    fn give_back(&mut self, at: usize) -> Result<(), SmbError> {
        let asked = self.channels[at].last();
        if asked.command()? != Command::OplockBreak as u16 {
            return Err(SmbError::Response("the server sends something unasked"));
        }
        let body = asked.body()?.bytes(0, 24)?.to_vec();
        let own = std::mem::take(&mut self.request);
        self.begin_on(at, Command::OplockBreak, 1).bytes(&body);
        self.channels[at].pay_for_giving_back();
        let sent = self.send(at);
        self.request = own;
        sent
    }
}

/// An error unless the status is the expected one.
pub fn expect(status: NtStatus, expected: NtStatus) -> Result<(), SmbError> {
    if status == expected { Ok(()) } else { Err(SmbError::Status(status)) }
}
