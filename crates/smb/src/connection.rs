//! A session with a share: negotiation, authentication, and requests with their responses.
//!
//! Invariant: one request is outstanding at a time. While it is, the server may take back an oplock; that is answered at once.

use std::io::Write as _;
use std::net::{SocketAddrV4, TcpStream};

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::crypto::{Cipher, Key, Preauth, Signer, Signing, derive};
use crate::error::SmbError;
use crate::frame::{Command, Fields, Frame, HEADER, Header, PLAIN, RESPONSE, SIGNED, UNASKED};
use crate::inbox::Inbox;
use crate::ntlm::{self, Challenge};
use crate::spnego;
use crate::status::NtStatus;
use crate::unicode::utf16;

/// Credits asked for with each request: enough for the largest.
const CREDITS: u16 = 64;
/// Bytes that one credit pays for.
const OF_CREDIT: usize = 64 << 10;
/// Capabilities: requests of more than 64 KiB, and encryption.
const LARGE: u32 = 4;
const ENCRYPTS: u32 = 0x40;
/// Kinds of contexts of a negotiation.
const PREAUTH: u16 = 1;
const ENCRYPTION: u16 = 2;
const SIGNING: u16 = 8;
const AES_128_GCM: u16 = 2;
const AES_GMAC: u16 = 2;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    V21,
    V302,
    V311,
}

impl Dialect {
    fn number(self) -> u16 {
        match self {
            Self::V21 => 0x0210,
            Self::V302 => 0x0302,
            Self::V311 => 0x0311,
        }
    }

    /// How its messages are signed; 3.1.1 agrees on the fastest.
    fn signing(self) -> Signing {
        match self {
            Self::V21 => Signing::HmacSha256,
            Self::V302 => Signing::AesCmac,
            Self::V311 => Signing::AesGmac,
        }
    }
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
    socket: TcpStream,
    terms: Terms,
    /// The next message's number.
    message: u64,
    credits: usize,
    session: u64,
    tree: u32,
    signer: Option<Signer>,
    /// Whether every message is signed, and not only what must be.
    signs: bool,
    cipher: Option<Cipher>,
    pub(crate) request: Frame,
    sealed: Vec<u8>,
    received: Inbox,
    /// Most bytes of a read or write.
    most: usize,
    /// The number of the answer to an oplock that was taken back, whose response is to come.
    given_back: Vec<u64>,
}

impl Client {
    /// Connects to `share` of the server at `address`.
    ///
    /// # Errors
    /// The server refuses: the version, the account or the share.
    pub fn connect(address: SocketAddrV4, terms: Terms, account: Account<'_>, share: &str) -> Result<Self, SmbError> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let mut client = Self {
            socket,
            terms,
            message: 0,
            credits: 1,
            session: 0,
            tree: 0,
            signer: None,
            signs: false,
            cipher: None,
            request: Frame::default(),
            sealed: Vec::new(),
            received: Inbox::default(),
            most: 0,
            given_back: Vec::new(),
        };
        let mut preauth = Preauth::default();
        client.negotiate(&mut preauth)?;
        client.authenticate(account, &mut preauth)?;
        client.tree(&format!("\\\\{}\\{share}", address.ip()))?;
        Ok(client)
    }

    fn negotiate(&mut self, preauth: &mut Preauth) -> Result<(), SmbError> {
        let mut random = [0; 48];
        SystemRandom::new().fill(&mut random).map_err(|_| SmbError::Response("no random numbers"))?;
        let mode = self.security_mode();
        let Terms { dialect, protection } = self.terms;
        let capabilities = if protection == Protection::Encrypted { LARGE | ENCRYPTS } else { LARGE };
        let request = self.begin(Command::Negotiate, 1);
        request.u16(36).u16(1).u16(mode).u16(0).u32(capabilities).bytes(&random[..16]);
        let contexts_at = request.0.len();
        request.u64(0).u16(dialect.number());
        if dialect == Dialect::V311 {
            request.align(8);
            let offset = request.0.len() as u32;
            let mut count = 0;
            let mut context = |request: &mut Frame, kind, data: &[u8]| {
                request.align(8).u16(kind).u16(data.len() as u16).u32(0).bytes(data);
                count += 1;
            };
            let hash = [&[1, 0, 32, 0, 1, 0][..], &random[16..]].concat();
            context(request, PREAUTH, &hash);
            context(request, ENCRYPTION, &[1, 0, AES_128_GCM as u8, 0]);
            context(request, SIGNING, &[1, 0, AES_GMAC as u8, 0]);
            request.0[contexts_at..][..4].copy_from_slice(&offset.to_le_bytes());
            request.0[contexts_at + 4..][..2].copy_from_slice(&u16::to_le_bytes(count));
        }
        preauth.add(&self.request.0);
        let status = self.exchange()?;
        expect(status, NtStatus::OK)?;
        preauth.add(self.received.message());
        let (message, body) = (self.message(), self.response()?);
        if body.u16(4)? != dialect.number() {
            return Err(SmbError::Response("the server chose another version"));
        }
        if dialect == Dialect::V311 {
            let encrypts = self.terms.protection == Protection::Encrypted;
            agreed(message, (body.u32(60)? as usize, body.u16(6)?), encrypts)?;
        }
        self.most = body.u32(32)?.min(body.u32(36)?) as usize;
        Ok(())
    }

    fn security_mode(&self) -> u16 {
        if self.terms.protection == Protection::Signed { 3 } else { 1 }
    }

    fn authenticate(&mut self, account: Account<'_>, preauth: &mut Preauth) -> Result<(), SmbError> {
        let mut own = [0; 8];
        SystemRandom::new().fill(&mut own).map_err(|_| SmbError::Response("no random numbers"))?;
        self.session_setup(&spnego::first(&ntlm::negotiate()));
        preauth.add(&self.request.0);
        let status = self.exchange()?;
        expect(status, NtStatus::MORE_PROCESSING)?;
        preauth.add(self.received.message());
        self.session = self.message().session()?;
        let body = self.response()?;
        let token = self.message().bytes(body.u16(4)?.into(), body.u16(6)?.into())?;
        let challenge = spnego::token(token).and_then(Challenge::read);
        let challenge = challenge.ok_or(SmbError::Response("the server sends no challenge"))?;
        let answer = ntlm::answer(&challenge, account.user, account.password, own);
        self.session_setup(&spnego::next(&answer.message));
        preauth.add(&self.request.0);
        let status = self.exchange()?;
        expect(status, NtStatus::OK)?;
        self.protect(&answer.key, preauth);
        // The first message that the server signs.
        let signer = self.signer.as_ref().expect("the session has just got it");
        let is_signed = self.message().flags()? & SIGNED != 0;
        let right =
            if is_signed { signer.verify(self.received.message_mut()) } else { self.terms.dialect != Dialect::V311 };
        if right { Ok(()) } else { Err(SmbError::Response("the server does not know the session's key")) }
    }

    /// Derives the session's keys.
    fn protect(&mut self, key: &Key, preauth: &Preauth) {
        let Terms { dialect, protection } = self.terms;
        let signing = match dialect {
            Dialect::V21 => *key,
            Dialect::V302 => derive(key, b"SMB2AESCMAC\0", b"SmbSign\0"),
            Dialect::V311 => derive(key, b"SMBSigningKey\0", preauth.value()),
        };
        self.signer = Some(Signer::new(dialect.signing(), &signing));
        self.signs = protection == Protection::Signed;
        if protection == Protection::Encrypted {
            let of = |label: &[u8]| derive(key, label, preauth.value());
            self.cipher = Some(Cipher::new(self.session, &of(b"SMBC2SCipherKey\0"), &of(b"SMBS2CCipherKey\0")));
        }
    }

    fn session_setup(&mut self, token: &[u8]) {
        let mode = self.security_mode() as u8;
        let request = self.begin(Command::SessionSetup, 1);
        request.u16(25).u8(0).u8(mode).u32(0).u32(0).u16(HEADER as u16 + 24).u16(token.len() as u16).u64(0);
        request.bytes(token);
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

    /// Begins a request with or for this many bytes of data.
    pub(crate) fn begin(&mut self, command: Command, bytes: usize) -> &mut Frame {
        // 2.0.2 knows no charge; all later versions do.
        let charge = bytes.div_ceil(OF_CREDIT).max(1) as u16;
        let Self { message, tree, session, .. } = *self;
        // The session does not exist before the server has answered its first setup.
        self.request.begin(Header { command, charge, credits: CREDITS, message, tree, session });
        &mut self.request
    }

    /// Sends the request and receives its response; returns its status.
    pub(crate) fn exchange(&mut self) -> Result<NtStatus, SmbError> {
        let charge = Fields(&self.request.0).u16(6)?.max(1);
        if usize::from(charge) > self.credits {
            return Err(SmbError::Response("the server grants too few credits"));
        }
        self.credits -= usize::from(charge);
        let number = self.message;
        self.message += u64::from(charge);
        self.send()?;
        loop {
            self.receive()?;
            let header = self.message();
            let (found, status, flags) = (header.message()?, header.status()?, header.flags()?);
            if flags & RESPONSE == 0 {
                return Err(SmbError::Response("it is a request"));
            }
            self.credits += usize::from(header.credits()?);
            if found == UNASKED {
                self.give_back()?;
            } else if let Some(at) = self.given_back.iter().position(|n| *n == found) {
                self.given_back.swap_remove(at);
            } else if found != number {
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
        Fields(self.received.message())
    }

    /// Sends the request, protected as the session is.
    fn send(&mut self) -> Result<(), SmbError> {
        let message = &mut self.request.0;
        let message = match (&mut self.cipher, &self.signer) {
            (Some(cipher), _) => {
                cipher.seal(message, &mut self.sealed);
                &self.sealed
            }
            (None, Some(signer)) if self.signs => {
                signer.sign(message);
                &*message
            }
            _ => &*message,
        };
        let length = (message.len() as u32).to_be_bytes();
        let slices = &mut [std::io::IoSlice::new(&length), std::io::IoSlice::new(message)][..];
        let mut rest = slices;
        while !rest.is_empty() {
            let sent = self.socket.write_vectored(rest)?;
            if sent == 0 {
                return Err(SmbError::Io(std::io::ErrorKind::WriteZero.into()));
            }
            std::io::IoSlice::advance_slices(&mut rest, sent);
        }
        Ok(())
    }

    /// Receives a message, and decrypts it or checks its signature.
    fn receive(&mut self) -> Result<(), SmbError> {
        self.received.receive(&mut self.socket)?;
        if let Some(cipher) = &self.cipher {
            let opened = cipher.open(self.received.message_mut())?;
            self.received.narrow(opened);
        }
        let message = self.received.message();
        if !message.starts_with(&PLAIN) || message.len() < HEADER {
            return Err(SmbError::Response("it is no message of SMB"));
        }
        let header = Fields(message);
        // What the server sends unasked has no signature, nor has an answer that is not the last.
        let exempt = header.message()? == UNASKED || header.status()? == NtStatus::PENDING;
        if let (true, false, None, Some(signer)) = (self.signs, exempt, &self.cipher, &self.signer)
            && !signer.verify(self.received.message_mut())
        {
            return Err(SmbError::Response("its signature is wrong"));
        }
        Ok(())
    }

    /// Gives back the oplock that the server has taken.
    fn give_back(&mut self) -> Result<(), SmbError> {
        if self.message().command()? != Command::OplockBreak as u16 {
            return Err(SmbError::Response("the server sends something unasked"));
        }
        let body = self.response()?.bytes(0, 24)?.to_vec();
        let own = std::mem::take(&mut self.request);
        let number = self.message;
        self.begin(Command::OplockBreak, 1).bytes(&body);
        self.message += 1;
        self.credits = self.credits.saturating_sub(1);
        self.given_back.push(number);
        let sent = self.send();
        self.request = own;
        sent
    }
}

/// An error unless the status is the expected one.
fn expect(status: NtStatus, expected: NtStatus) -> Result<(), SmbError> {
    if status == expected { Ok(()) } else { Err(SmbError::Status(status)) }
}

/// Checks that the server agrees to what was offered and will be used, in the `count` contexts from `at` on.
fn agreed(message: Fields<'_>, (mut at, count): (usize, u16), encrypts: bool) -> Result<(), SmbError> {
    let mut found = [false, !encrypts, false];
    for _ in 0..count {
        let (kind, length) = (message.u16(at)?, usize::from(message.u16(at + 2)?));
        let data = Fields(message.bytes(at + 8, length)?);
        match kind {
            PREAUTH => found[0] = true,
            ENCRYPTION => found[1] |= data.u16(2)? == AES_128_GCM,
            SIGNING => found[2] = data.u16(2)? == AES_GMAC,
            _ => {}
        }
        at = (at + 8 + length).next_multiple_of(8);
    }
    match found {
        [true, true, true] => Ok(()),
        [_, true, false] => Err(SmbError::Response("the server does not sign with AES-GMAC")),
        [_, false, _] => Err(SmbError::Response("the server does not encrypt with AES-128-GCM")),
        _ => Err(SmbError::Response("the server does not hash what comes before the keys")),
    }
}
