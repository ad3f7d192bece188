//! NTLMv2 (MS-NLMP): proves that the client knows a password, and yields the session's key.
//!
//! Invariant: only the second version is spoken, and the key is never sent.

use hmac::{Hmac, KeyInit as _, Mac as _};
use md4::{Digest as _, Md4};
use md5::Md5;

use crate::unicode::utf16;

const SIGNATURE: &[u8; 8] = b"NTLMSSP\0";
/// Flags: Unicode, the target's name, NTLM, extended session security, target information, 128 and 56 bit, a signature's key.
const FLAGS: u32 =
    0x0000_0001 | 0x0000_0004 | 0x0000_0200 | 0x0008_0000 | 0x0080_0000 | 0x2000_0000 | 0x8000_0000 | 0x10;
/// The attribute of a challenge with the server's time.
const TIME: u16 = 7;

/// The hash by which servers know a password.
pub fn nt_hash(password: &str) -> [u8; 16] {
    Md4::digest(utf16(password)).into()
}

pub fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    let mut mac = Hmac::<Md5>::new_from_slice(key).expect("any length is a key");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// The first message of the client.
pub fn negotiate() -> Vec<u8> {
    let mut message = SIGNATURE.to_vec();
    message.extend(1u32.to_le_bytes());
    message.extend(FLAGS.to_le_bytes());
    // No domain, no name of this machine.
    message.extend([0; 16]);
    message
}

/// The server's challenge.
#[derive(Debug, PartialEq, Eq)]
pub struct Challenge<'a> {
    number: [u8; 8],
    /// Attributes, which the client repeats.
    target: &'a [u8],
}

impl<'a> Challenge<'a> {
    /// Reads the server's message; `None` if it is none.
    pub fn read(message: &'a [u8]) -> Option<Self> {
        let field = |at: usize| Some(u32::from_le_bytes(message.get(at..at + 4)?.try_into().ok()?));
        if !message.starts_with(SIGNATURE) || field(8)? != 2 {
            return None;
        }
        let (length, offset) = (field(40)? as usize & 0xffff, field(44)? as usize);
        Some(Self {
            number: message.get(24..32)?.try_into().ok()?,
            target: message.get(offset..offset.checked_add(length)?)?,
        })
    }

    /// The server's time, in which it expects the answer.
    fn time(&self) -> [u8; 8] {
        let mut rest = self.target;
        while let [a, b, c, d, more @ ..] = rest {
            let (kind, length) = (u16::from_le_bytes([*a, *b]), usize::from(u16::from_le_bytes([*c, *d])));
            let Some(value) = more.get(..length) else { break };
            if kind == TIME {
                return value.try_into().unwrap_or_default();
            }
            rest = &more[length..];
        }
        [0; 8]
    }
}

/// The answer to a challenge, and the session's key.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub message: Vec<u8>,
    pub key: [u8; 16],
}

/// Answers as `user` with `password`; `own` is a random number.
pub fn answer(challenge: &Challenge<'_>, user: &str, password: &str, own: [u8; 8]) -> Answer {
    let (response, key) = respond(challenge, user, "", password, own);
    let user = utf16(user);
    // The responses, domain, user and workstation, each with its length twice and its offset, then the key, which is not exchanged, and the flags.
    let start = 64;
    let mut message = SIGNATURE.to_vec();
    message.extend(3u32.to_le_bytes());
    let mut offset = start;
    for length in [24, response.len(), 0, user.len(), 0, 0] {
        message.extend((length as u16).to_le_bytes().repeat(2));
        message.extend((offset as u32).to_le_bytes());
        offset += length;
    }
    message.extend(FLAGS.to_le_bytes());
    // No response of the first version.
    message.extend([0; 24]);
    message.extend(&response);
    message.extend(user);
    Answer { message, key }
}

/// `NTLMv2_RESPONSE` and `SessionBaseKey`.
fn respond(challenge: &Challenge<'_>, user: &str, domain: &str, password: &str, own: [u8; 8]) -> (Vec<u8>, [u8; 16]) {
    let name = utf16(&(user.to_uppercase() + domain));
    let key = hmac_md5(&nt_hash(password), &[&name]);
    let mut claims = vec![1, 1, 0, 0, 0, 0, 0, 0];
    claims.extend(challenge.time());
    claims.extend(own);
    claims.extend([0; 4]);
    claims.extend(challenge.target);
    claims.extend([0; 4]);
    let proof = hmac_md5(&key, &[&challenge.number, &claims]);
    ([&proof[..], &claims].concat(), hmac_md5(&key, &[&proof]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// MS-NLMP 4.2.4: user `User` of `Domain`, password `Password`, time 0.
    #[test]
    fn the_published_example_comes_out() {
        let target = [&[2, 0, 12, 0][..], &utf16("Domain"), &[1, 0, 12, 0], &utf16("Server"), &[0; 4]].concat();
        let challenge = Challenge { number: CHALLENGE, target: &target };
        let (response, key) = respond(&challenge, "User", "Domain", "Password", [0xaa; 8]);
        assert_eq!(hex(&nt_hash("Password")), "a4f49c406510bdcab6824ee7c30fd852");
        assert_eq!(hex(&response[..16]), "68cd0ab851e51c96aabc927bebef6a1c");
        assert_eq!(hex(&key), "8de40ccadbc14a82f15cb0ad0de95ca3");
        assert_eq!(hex(&response[16..32]), "01010000000000000000000000000000");
    }

    #[test]
    fn a_challenge_is_read_and_its_time_repeated() {
        let target = [&[TIME as u8, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8][..], &[0; 4]].concat();
        let mut message = [&SIGNATURE[..], &2u32.to_le_bytes(), &[0; 12], &CHALLENGE, &[0; 8]].concat();
        message.extend((target.len() as u16).to_le_bytes().repeat(2));
        message.extend(56u32.to_le_bytes());
        message.extend([0; 8]);
        message.extend(&target);
        let challenge = Challenge::read(&message).unwrap();
        assert_eq!((challenge.number, challenge.time()), (CHALLENGE, [1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(Challenge::read(&message[..60]), None);
        assert_eq!(Challenge::read(b"no"), None);
        let answer = answer(&challenge, "me", "secret", [7; 8]);
        let field = |at: usize| u32::from_le_bytes(answer.message[at..at + 4].try_into().unwrap()) as usize;
        let (length, offset) = (field(36) & 0xffff, field(40));
        assert_eq!(answer.message[offset..][..length], utf16("me"));
        assert_eq!(answer.message.len(), offset + length);
    }
}
