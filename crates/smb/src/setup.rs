//! How a session begins: each channel negotiates and authenticates; the first begins the session, each further one is bound to it (MS-SMB2 3.2.4.2).
//!
//! Invariant: a channel is used only after the server has proved, with its signature, that it knows the key of this authentication.

use std::net::SocketAddrV4;

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::channel::Channel;
use crate::connection::{Account, Client, Dialect, Protection, Terms, expect};
use crate::crypto::{Cipher, Key, Preauth, Signer, Signing, derive};
use crate::error::SmbError;
use crate::frame::{Command, Fields, Frame, HEADER, SIGNED};
use crate::ntlm::{self, Challenge};
use crate::spnego;
use crate::status::NtStatus;

/// Capabilities: requests of more than 64 KiB, several channels, and encryption.
const LARGE: u32 = 4;
const MULTICHANNEL: u32 = 8;
const ENCRYPTS: u32 = 0x40;
/// The flag of a session's setup that binds a channel.
const BINDING: u8 = 1;
/// Kinds of contexts of a negotiation.
const PREAUTH: u16 = 1;
const ENCRYPTION: u16 = 2;
const SIGNING: u16 = 8;
const AES_128_GCM: u16 = 2;
const AES_GMAC: u16 = 2;

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

    /// The key that signs a channel's messages, from that of the channel's own authentication.
    pub(crate) fn signing_key(self, key: &Key, preauth: &Preauth) -> Key {
        match self {
            Self::V21 => *key,
            Self::V302 => derive(key, b"SMB2AESCMAC\0", b"SmbSign\0"),
            Self::V311 => derive(key, b"SMBSigningKey\0", preauth.value()),
        }
    }
}

impl Terms {
    fn capabilities(self) -> u32 {
        let channels = if self.channels > 1 { MULTICHANNEL } else { 0 };
        let encrypts = if self.protection == Protection::Encrypted { ENCRYPTS } else { 0 };
        LARGE | channels | encrypts
    }

    fn security_mode(self) -> u8 {
        if self.protection == Protection::Signed { 3 } else { 1 }
    }
}

/// Bytes that nobody can guess.
pub fn random<const N: usize>() -> Result<[u8; N], SmbError> {
    let mut random = [0; N];
    SystemRandom::new().fill(&mut random).map_err(|_| SmbError::Response("no random numbers"))?;
    Ok(random)
}

impl Client {
    /// Adds a channel: the first begins the session, a further one is bound to it.
    pub(crate) fn add_channel(&mut self, address: SocketAddrV4, account: Account<'_>) -> Result<(), SmbError> {
        let binds = !self.channels.is_empty();
        self.current = self.channels.len();
        self.channels.push(Channel::connect(address)?);
        let mut preauth = Preauth::default();
        self.negotiate(&mut preauth)?;
        self.authenticate(account, preauth, binds)?;
        self.channels[self.current].is_set_up = true;
        Ok(())
    }

    fn negotiate(&mut self, preauth: &mut Preauth) -> Result<(), SmbError> {
        let (terms, guid, salt) = (self.terms, self.guid, random::<32>()?);
        let request = self.begin_on(self.current, Command::Negotiate, 1);
        request.u16(36).u16(1).u16(terms.security_mode().into()).u16(0).u32(terms.capabilities()).bytes(&guid);
        let contexts_at = request.0.len();
        request.u64(0).u16(terms.dialect.number());
        if terms.dialect == Dialect::V311 {
            request.align(8);
            let offset = request.0.len() as u32;
            let mut count = 0;
            let mut context = |request: &mut Frame, kind, data: &[u8]| {
                request.align(8).u16(kind).u16(data.len() as u16).u32(0).bytes(data);
                count += 1;
            };
            let hash = [&[1, 0, 32, 0, 1, 0][..], &salt].concat();
            context(request, PREAUTH, &hash);
            context(request, ENCRYPTION, &[1, 0, AES_128_GCM as u8, 0]);
            context(request, SIGNING, &[1, 0, AES_GMAC as u8, 0]);
            request.0[contexts_at..][..4].copy_from_slice(&offset.to_le_bytes());
            request.0[contexts_at + 4..][..2].copy_from_slice(&u16::to_le_bytes(count));
        }
        let status = self.exchange_hashed(preauth)?;
        expect(status, NtStatus::OK)?;
        preauth.add(self.message().0);
        let (message, body) = (self.message(), self.response()?);
        if body.u16(4)? != terms.dialect.number() {
            return Err(SmbError::Response("the server chose another version"));
        }
        if terms.channels > 1 && body.u32(24)? & MULTICHANNEL == 0 {
            return Err(SmbError::NoMultichannel);
        }
        if terms.dialect == Dialect::V311 {
            let encrypts = terms.protection == Protection::Encrypted;
            agreed(message, (body.u32(60)? as usize, body.u16(6)?), encrypts)?;
        }
        self.most = self.most.min(body.u32(32)?.min(body.u32(36)?) as usize);
        Ok(())
    }

    fn authenticate(&mut self, account: Account<'_>, mut preauth: Preauth, binds: bool) -> Result<(), SmbError> {
        let own = random()?;
        if binds {
            self.channels[self.current].signer = Some(Signer::new(self.terms.dialect.signing(), &self.signing_key));
        }
        self.session_setup(&spnego::first(&ntlm::negotiate()), binds);
        let status = self.exchange_hashed(&mut preauth)?;
        expect(status, NtStatus::MORE_PROCESSING)?;
        preauth.add(self.message().0);
        self.check_signature(binds)?;
        self.session = self.message().session()?;
        let body = self.response()?;
        let token = self.message().bytes(body.u16(4)?.into(), body.u16(6)?.into())?;
        let challenge = spnego::token(token).and_then(Challenge::read);
        let challenge = challenge.ok_or(SmbError::Response("the server sends no challenge"))?;
        let answer = ntlm::answer(&challenge, account.user, account.password, own);
        self.session_setup(&spnego::next(&answer.message), binds);
        let status = self.exchange_hashed(&mut preauth)?;
        expect(status, NtStatus::OK)?;
        self.protect(&answer.key, &preauth, binds);
        // The first message that the server signs with the channel's key.
        self.check_signature(binds || self.terms.dialect == Dialect::V311)
    }

    /// Derives the channel's key and, with the first channel, those of the session, which all channels encrypt with.
    fn protect(&mut self, key: &Key, preauth: &Preauth, binds: bool) {
        let Terms { dialect, protection, .. } = self.terms;
        let signing = dialect.signing_key(key, preauth);
        self.channels[self.current].signer = Some(Signer::new(dialect.signing(), &signing));
        if binds {
            return;
        }
        self.signing_key = signing;
        self.signs = protection == Protection::Signed;
        if protection == Protection::Encrypted {
            let of = |label: &[u8]| derive(key, label, preauth.value());
            self.cipher = Some(Cipher::new(self.session, &of(b"SMBC2SCipherKey\0"), &of(b"SMBS2CCipherKey\0")));
        }
    }

    fn session_setup(&mut self, token: &[u8], binds: bool) {
        let (flags, mode) = (if binds { BINDING } else { 0 }, self.terms.security_mode());
        let request = self.begin_on(self.current, Command::SessionSetup, 1);
        request.u16(25).u8(flags).u8(mode).u32(0).u32(0).u16(HEADER as u16 + 24).u16(token.len() as u16).u64(0);
        request.bytes(token);
    }

    /// As [`Self::exchange`]; the request is hashed as it was sent, with its signature.
    fn exchange_hashed(&mut self, preauth: &mut Preauth) -> Result<NtStatus, SmbError> {
        let status = self.exchange()?;
        preauth.add(&self.request.0);
        Ok(status)
    }

    /// Checks the signature of the last response, if it has one or `must`.
    fn check_signature(&mut self, must: bool) -> Result<(), SmbError> {
        let channel = &mut self.channels[self.current];
        let is_signed = channel.last().flags()? & SIGNED != 0;
        let right = match &channel.signer {
            Some(signer) if is_signed => signer.verify(channel.received.message_mut()),
            _ => !must,
        };
        if right { Ok(()) } else { Err(SmbError::Response("the server does not know the session's key")) }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    fn key(text: &str) -> Key {
        unhex(text).try_into().unwrap()
    }

    /// Microsoft's "SMB 2 and SMB 3 security in Windows 10: the anatomy of signing and cryptographic keys": the second channels of its two examples. In
    /// that of 3.1.1, the server signs with AES-CMAC.
    #[test]
    fn a_further_channels_key_and_messages_are_those_published() {
        let (of_3_0, none) = (key("4e01a2b313bcf660cc250bef021aede6"), Preauth::default());
        assert_eq!(Dialect::V302.signing_key(&of_3_0, &none), key("ba1a17dbbfec349bca105563d598952f"));

        // After the channel's negotiation.
        let mut preauth = Preauth::of(&unhex(
            "e267ab1aa0403082aa2a9feb0224af3ea92e53caa50a893a9635f0659f93591f\
             81391737e68db0c9ad878c56449c36a6895ebcf435a7d97072c7b596b8af3817",
        ));
        // As it was sent, with its signature.
        let mut binding = unhex(
            "fe534d4240000100000000000100800008000000000000000200000000000000fffe0000000000001900000000100000\
             68bd0c58f613ce1334b1eb51c68d39ea\
             19000101010000000000000058004a000000000000000000\
             604806062b0601050502a03e303ca00e300c060a2b06010401823702020aa22a04284e544c4d5353500001000000978208e2\
             00000000000000000000000000000000060380250000000f",
        );
        preauth.add(&binding);
        let after = unhex(
            "8346469934a59e951a3f2da7fa4c2c29f0f6b13a6b0951d4cd5279f8d40fd84f\
             f98157937613c6be9514582e44344b1710dd5bfce3bb023d28c6ea512e0adebd",
        );
        assert_eq!(preauth.value(), after);
        let of_session = Signer::new(Signing::AesCmac, &key("73fe7a9a77bef0bde49c650d8ccb5f76"));
        assert!(of_session.verify(&mut binding));

        let last = unhex(
            "ea3bf912b11cbfec5b1889e8209614218687f82fa5294521ad3063425e49e88a\
             10bd022124ce25123bc9111f52d9566ba88bf46344e6063dc5e3ff0389026f6c",
        );
        let of_channel = key("84b9dbb730116a8fa6e9889555c265f9");
        let of_channel = Dialect::V311.signing_key(&of_channel, &Preauth::of(&last));
        assert_eq!(of_channel, key("c962bca1a9dd1697b030644199705431"));
        let mut bound = unhex(
            "fe534d4240000100000000000100800009000000000000000300000000000000fffe0000000000001900000000100000\
             8d604217ffbacf40635bf9d872992150\
             0900000048001d00a11b3019a0030a0100a312041001000000cfb046fc5d368e2200000000",
        );
        assert!(Signer::new(Signing::AesCmac, &of_channel).verify(&mut bound.clone()));
        assert!(!of_session.verify(&mut bound));
    }
}
