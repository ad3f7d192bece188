//! Failures of calls that did their work, but with a wrong result.

use std::fmt::Debug;

use bigiron_workload::WrongData;

/// A [`WrongData`] with this text.
pub fn wrong(text: String) -> anyhow::Error {
    WrongData(text).into()
}

/// Fails unless `found` equals `right`; `what` begins the message.
#[inline]
pub fn expect<T: PartialEq + Debug>(what: &str, found: T, right: T) -> anyhow::Result<()> {
    if found == right { Ok(()) } else { Err(wrong(format!("{what} gave {found:?} instead of {right:?}"))) }
}

/// Fails unless the bytes received equal those sent.
#[inline]
pub fn received(what: &str, found: &[u8], sent: &[u8]) -> anyhow::Result<()> {
    // Word by word: the compiler can vectorize this loop, while the C library compares single bytes.
    let (words, rest) = found.as_chunks::<8>();
    let (sent_words, sent_rest) = sent.as_chunks::<8>();
    let differ =
        words.iter().zip(sent_words).fold(0, |d, (a, b)| d | (u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b)));
    if found.len() == sent.len() && differ == 0 && rest == sent_rest {
        Ok(())
    } else {
        Err(wrong(format!("{what} of {} bytes was changed", sent.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let sent: Vec<u8> = (0..21).collect();
        received("A message", &sent, &sent).unwrap();
        for at in [0, 9, 16, 20] {
            let mut found = sent.clone();
            found[at] ^= 1;
            let error = received("A message", &found, &sent).unwrap_err();
            assert_eq!(error.downcast_ref::<WrongData>().unwrap().0, "A message of 21 bytes was changed");
        }
        assert!(received("A message", &sent[..20], &sent).is_err());
    }
}
