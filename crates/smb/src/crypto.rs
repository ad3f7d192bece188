//! The keys of a session, signatures and encryption (MS-SMB2 3.1.4 and 3.1.5).
//!
//! Invariant: a nonce is used once: signatures take the message's number, encryption counts. The exception is the protocol's own: further channels are
//! bound with messages of the same numbers and the same key.

use std::ops::Range;

use aes::Aes128;
use cmac::{Cmac, KeyInit as _, Mac as _};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use ring::{digest, hmac};

use crate::error::SmbError;
use crate::frame::{ENCRYPTED, FLAGS_AT, Fields, HEADER, RESPONSE, SIGNATURE_AT, SIGNED};

/// A key of 128 bits.
pub type Key = [u8; 16];
/// Bytes before an encrypted message, and where they hold the signature and the nonce, from which on they are authenticated.
const TRANSFORM: usize = 52;
const NONCE_AT: usize = 20;
const SIGNATURE: usize = 16;
/// Bytes of an encrypted message's signature.
const TAG: usize = MAX_TAG_LEN;

/// How messages are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signing {
    HmacSha256,
    AesCmac,
    AesGmac,
}

/// The hash over all messages until the session's keys exist (3.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preauth([u8; 64]);

impl Default for Preauth {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Preauth {
    #[cfg(test)]
    pub fn of(hash: &[u8]) -> Self {
        Self(hash.try_into().expect("512 bits"))
    }

    pub fn add(&mut self, message: &[u8]) {
        let mut hash = digest::Context::new(&digest::SHA512);
        hash.update(&self.0);
        hash.update(message);
        self.0.copy_from_slice(hash.finish().as_ref());
    }

    pub fn value(&self) -> &[u8] {
        &self.0
    }
}

/// A key for one use: SP800-108 in counter mode with HMAC-SHA256.
pub fn derive(key: &Key, label: &[u8], context: &[u8]) -> Key {
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    [&1u32.to_be_bytes()[..], label, &[0], context, &128u32.to_be_bytes()].iter().for_each(|part| mac.update(part));
    mac.sign().as_ref()[..16].try_into().expect("half of a hash")
}

/// Signs and verifies.
pub enum Signer {
    HmacSha256(hmac::Key),
    AesCmac(Box<Cmac<Aes128>>),
    AesGmac(Box<LessSafeKey>),
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

fn gcm(key: &Key) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).expect("a key of 128 bits"))
}

impl Signer {
    pub fn new(signing: Signing, key: &Key) -> Self {
        match signing {
            Signing::HmacSha256 => Self::HmacSha256(hmac::Key::new(hmac::HMAC_SHA256, key)),
            Signing::AesCmac => Self::AesCmac(Box::new(Cmac::new(key.into()))),
            Signing::AesGmac => Self::AesGmac(Box::new(gcm(key))),
        }
    }

    /// The signature of a message whose own place for it holds zeros.
    fn signature(&self, message: &[u8]) -> Key {
        match self {
            Self::HmacSha256(key) => hmac::sign(key, message).as_ref()[..16].try_into().expect("half of a hash"),
            Self::AesCmac(mac) => {
                let mut mac = (**mac).clone();
                mac.update(message);
                mac.finalize().into_bytes().into()
            }
            Self::AesGmac(key) => {
                // MS-SMB2 3.1.4.1: the message's number, and whether it is the server's.
                let mut nonce = [0; NONCE_LEN];
                nonce[..8].copy_from_slice(&message[24..32]);
                nonce[8] = message[FLAGS_AT] & RESPONSE as u8;
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(message), &mut []);
                tag.expect("little data").as_ref().try_into().expect("a tag of 128 bits")
            }
        }
    }

    /// Signs a message.
    pub fn sign(&self, message: &mut [u8]) {
        message[FLAGS_AT] |= SIGNED as u8;
        message[SIGNATURE_AT..][..SIGNATURE].fill(0);
        let signature = self.signature(message);
        message[SIGNATURE_AT..][..SIGNATURE].copy_from_slice(&signature);
    }

    /// Whether a message's signature, which is removed, is right.
    pub fn verify(&self, message: &mut [u8]) -> bool {
        if message.len() < HEADER {
            return false;
        }
        let place = &mut message[SIGNATURE_AT..][..SIGNATURE];
        let found: Key = (&*place).try_into().expect("as long as a key");
        place.fill(0);
        self.signature(message) == found
    }
}

/// Encrypts the client's messages and decrypts the server's.
#[derive(Debug)]
pub struct Cipher {
    session: u64,
    sent: u64,
    to_server: LessSafeKey,
    to_client: LessSafeKey,
}

impl Cipher {
    pub fn new(session: u64, to_server: &Key, to_client: &Key) -> Self {
        Self { session, sent: 0, to_server: gcm(to_server), to_client: gcm(to_client) }
    }

    /// Encrypts `message` into `to`, whose contents are replaced.
    pub fn seal(&mut self, message: &[u8], to: &mut Vec<u8>) {
        self.sent += 1;
        to.clear();
        to.extend(ENCRYPTED);
        to.extend([0; SIGNATURE]);
        to.extend(self.sent.to_le_bytes());
        to.extend([0; 8]);
        to.extend((message.len() as u32).to_le_bytes());
        // Reserved; and the flag of an encrypted message.
        to.extend([0, 0, 1, 0]);
        to.extend(self.session.to_le_bytes());
        to.extend(message);
        let (head, body) = to.split_at_mut(TRANSFORM);
        let tag = self.to_server.seal_in_place_separate_tag(nonce(head), Aad::from(&head[NONCE_AT..]), body);
        head[4..][..SIGNATURE].copy_from_slice(tag.expect("a short message").as_ref());
    }

    /// Decrypts a message in its place; returns where it is then.
    ///
    /// # Errors
    /// It is not one of this session.
    pub fn open(&self, message: &mut [u8]) -> Result<Range<usize>, SmbError> {
        let wrong = SmbError::Response("it cannot be decrypted");
        if message.len() < TRANSFORM || !message.starts_with(&ENCRYPTED) {
            return Err(SmbError::Response("it is not encrypted"));
        }
        let length = message.len() - TRANSFORM;
        if Fields(message).u64(44)? != self.session || Fields(message).u32(36)? as usize != length {
            return Err(wrong);
        }
        let mut head = [0; TRANSFORM];
        head.copy_from_slice(&message[..TRANSFORM]);
        // The tag comes before the message, and the library wants it behind.
        let start = TRANSFORM - TAG;
        message.copy_within(TRANSFORM.., start);
        message[start + length..].copy_from_slice(&head[4..][..TAG]);
        let opened = self.to_client.open_in_place(nonce(&head), Aad::from(&head[NONCE_AT..]), &mut message[start..]);
        opened.map(|_| start..start + length).map_err(|_| wrong)
    }
}

fn nonce(head: &[u8]) -> Nonce {
    let nonce: [u8; NONCE_LEN] = head[NONCE_AT..][..NONCE_LEN].try_into().expect("its place");
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Command, Frame, Header};

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|n| u8::from_str_radix(&text[n..n + 2], 16).unwrap()).collect()
    }

    fn key(text: &str) -> Key {
        unhex(text).try_into().unwrap()
    }

    /// Microsoft's examples of keys in "SMB 2 and SMB 3 security in Windows 10" and "Encryption in SMB 3.0: A protocol perspective".
    #[test]
    fn the_published_keys_come_out() {
        let session = key("7cd451825d0450d235424e44ba6e78cc");
        assert_eq!(derive(&session, b"SMB2AESCMAC\0", b"SmbSign\0"), key("0b7e9c5cac36c0f6ea9ab275298cedce"));
        let session = key("b4546771b515f766a86735532dd6c4f0");
        assert_eq!(derive(&session, b"SMB2AESCCM\0", b"ServerIn \0"), key("261b72350558f2e9dcf613070383edbf"));
        assert_eq!(derive(&session, b"SMB2AESCCM\0", b"ServerOut\0"), key("8fe2b57ec34d2db5b1a9727f526bbdb5"));
        let preauth = unhex(
            "0dd13628cc3ed218ef9df9772d436d0887ab9814bfae63a80aa845f36909db79\
             28622dddad522d9751640a459762c5a9d6bb084cbb3ce6bdadef5d5bce3c6c01",
        );
        let session = key("270e1ba896585eeb7af3472d3b4c75a7");
        assert_eq!(derive(&session, b"SMBSigningKey\0", &preauth), key("73fe7a9a77bef0bde49c650d8ccb5f76"));
        assert_eq!(derive(&session, b"SMBC2SCipherKey\0", &preauth), key("629bcbc54422a0f572b97f45989b6073"));
        assert_eq!(derive(&session, b"SMBS2CCipherKey\0", &preauth), key("e2af0dcefac68da71a0dfbd0d1350d74"));
    }

    /// RFC 4493, examples 2 and 3; RFC 4231, test 2, cut to 128 bits.
    #[test]
    fn signatures_are_those_of_the_standards() {
        let signer = Signer::new(Signing::AesCmac, &key("2b7e151628aed2a6abf7158809cf4f3c"));
        let text = unhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411");
        assert_eq!(signer.signature(&text[..16]), key("070a16b46b4d4144f79bdd9dd04a287c"));
        assert_eq!(signer.signature(&text), key("dfa66747de9ae63030ca32611497c827"));
        let signer = Signer::HmacSha256(hmac::Key::new(hmac::HMAC_SHA256, b"Jefe"));
        assert_eq!(signer.signature(b"what do ya want for nothing?"), key("5bdcc146bf60754e6a042426089575c7"));
    }

    fn message() -> Vec<u8> {
        let mut frame = Frame::default();
        frame.begin(Header { command: Command::Read, charge: 1, credits: 1, message: 5, tree: 1, session: 2 });
        frame.bytes(b"body");
        frame.0
    }

    #[test]
    fn a_changed_message_has_a_wrong_signature() {
        for signing in [Signing::HmacSha256, Signing::AesCmac, Signing::AesGmac] {
            let signer = Signer::new(signing, &[3; 16]);
            let mut signed = message();
            signer.sign(&mut signed);
            assert!(signer.verify(&mut signed.clone()), "{signing:?}");
            for at in 0..signed.len() {
                let mut changed = signed.clone();
                changed[at] ^= 1;
                assert!(!signer.verify(&mut changed), "{signing:?} {at}");
            }
        }
        assert!(!Signer::new(Signing::AesGmac, &[3; 16]).verify(&mut [0; 10]));
    }

    #[test]
    fn what_is_sealed_is_opened_and_a_change_is_found() {
        // One key for both directions, so that a client can open its own.
        let mut cipher = Cipher::new(9, &[4; 16], &[4; 16]);
        let (mut sealed, mut again) = (Vec::new(), Vec::new());
        cipher.seal(&message(), &mut sealed);
        cipher.seal(&message(), &mut again);
        assert_ne!(sealed, again, "a nonce is used twice");
        let mut opened = sealed.clone();
        let place = cipher.open(&mut opened).unwrap();
        assert_eq!(opened[place], *message());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(cipher.open(&mut changed).is_err(), "{at}");
        }
        assert!(cipher.open(&mut sealed[..40]).is_err());
    }
}
