//! SPNEGO (RFC 4178) around NTLM's messages: just what a session setup needs of it.
//!
//! Invariant: a token is found only where its tags and lengths lead to it.

/// The object identifiers of SPNEGO and of NTLM (MS-NLMP), as DER.
const SPNEGO: &[u8] = &[6, 6, 0x2b, 6, 1, 5, 5, 2];
const NTLM: &[u8] = &[6, 10, 0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 10];
const SEQUENCE: u8 = 0x30;
const OCTETS: u8 = 4;
const APPLICATION: u8 = 0x60;

const fn field(number: u8) -> u8 {
    0xa0 + number
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut all = vec![tag];
    match content.len() {
        short @ ..=0x7f => all.push(short as u8),
        long @ ..=0xff => all.extend([0x81, long as u8]),
        longer => all.extend([0x82, (longer >> 8) as u8, longer as u8]),
    }
    all.extend(content);
    all
}

/// The first message of the client: it offers NTLM alone, and begins it.
pub fn first(token: &[u8]) -> Vec<u8> {
    let mechanisms = tagged(field(0), &tagged(SEQUENCE, NTLM));
    let token = tagged(field(2), &tagged(OCTETS, token));
    let init = tagged(field(0), &tagged(SEQUENCE, &[mechanisms, token].concat()));
    tagged(APPLICATION, &[SPNEGO, &init].concat())
}

/// A later message of the client.
pub fn next(token: &[u8]) -> Vec<u8> {
    tagged(field(1), &tagged(SEQUENCE, &tagged(field(2), &tagged(OCTETS, token))))
}

/// The token in a message of the server.
pub fn token(message: &[u8]) -> Option<&[u8]> {
    let (inner, _) = part(message, field(1))?;
    let (mut fields, _) = part(inner, SEQUENCE)?;
    while let Some(tag) = fields.first() {
        let (content, rest) = part(fields, *tag)?;
        if *tag == field(2) {
            return part(content, OCTETS).map(|(token, _)| token);
        }
        fields = rest;
    }
    None
}

/// The content of what begins with `tag`, and what follows it.
fn part(from: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = from.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(u16::from_be_bytes(rest.get(..2)?.try_into().ok()?)), &rest[2..]),
        short @ ..=0x7f => (usize::from(*short), rest),
        _ => return None,
    };
    (*first == tag && length <= rest.len()).then(|| rest.split_at(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_wraps_is_der() {
        let first = first(b"NTLMSSP\0");
        assert_eq!(first[..10], [0x60, 40, 6, 6, 0x2b, 6, 1, 5, 5, 2]);
        assert!(first.ends_with(b"\xa2\x0a\x04\x08NTLMSSP\0"));
        for length in [1, 0x7f, 0x80, 0xff, 0x100, 0x1234] {
            let token_bytes = vec![7; length];
            assert_eq!(token(&next(&token_bytes)), Some(&token_bytes[..]), "{length}");
        }
    }

    #[test]
    fn a_servers_token_is_found_behind_other_fields() {
        let state = tagged(field(0), &[10, 1, 1]);
        let mechanism = tagged(field(1), NTLM);
        let response = tagged(field(2), &tagged(OCTETS, b"challenge"));
        let message = tagged(field(1), &tagged(SEQUENCE, &[state, mechanism, response].concat()));
        assert_eq!(token(&message), Some(&b"challenge"[..]));
        for end in 0..message.len() {
            assert_eq!(token(&message[..end]), None, "{end}");
        }
    }
}
