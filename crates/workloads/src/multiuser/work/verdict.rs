//! What makes a call fail that has done its work, but not found what it should have.

use std::fmt::Debug;

use bigiron_workload::WrongData;

/// A [`WrongData`] that says what of.
pub fn wrong(text: String) -> anyhow::Error {
    WrongData(text).into()
}

/// Fails unless `found` is what `right` says; `what` begins a sentence.
#[inline]
pub fn expect<T: PartialEq + Debug>(what: &str, found: T, right: T) -> anyhow::Result<()> {
    if found == right { Ok(()) } else { Err(wrong(format!("{what} gave {found:?} where {right:?} is right"))) }
}

/// Fails unless the bytes received are those that were sent.
#[inline]
pub fn received(what: &str, found: &[u8], sent: &[u8]) -> anyhow::Result<()> {
    // Word by word: a loop that the compiler can make wide, where the C library's comparison is of single bytes.
    let (words, rest) = found.as_chunks::<8>();
    let (sent_words, sent_rest) = sent.as_chunks::<8>();
    let differ =
        words.iter().zip(sent_words).fold(0, |d, (a, b)| d | (u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b)));
    if found.len() == sent.len() && differ == 0 && rest == sent_rest {
        Ok(())
    } else {
        Err(wrong(format!("{what} of {} bytes came out as other bytes", sent.len())))
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
            assert_eq!(error.downcast_ref::<WrongData>().unwrap().0, "A message of 21 bytes came out as other bytes");
        }
        assert!(received("A message", &sent[..20], &sent).is_err());
    }
}
