//! Reads the file that the plugin writes.
//!
//! Format, all numbers 64 bits and little-endian: [`MAGIC`](crate::MAGIC), then for each window the number of its addresses followed by that many
//! pairs of address and count. [`OVERFLOW`](crate::OVERFLOW) in place of the number means that the window's counts are unknown.

/// The file ends in the middle of a window, does not come from the plugin, or a window had too many addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncated {
    NotOurs,
    Torn,
    Overflow,
}

impl core::fmt::Display for Truncated {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Truncated::NotOurs => "it does not begin like a profile",
            Truncated::Torn => "it ends in the middle of a window",
            Truncated::Overflow => "a window executed more distinct instructions than the plugin has room for",
        })
    }
}

/// The windows of a profile, in the order of their cuts. Each is an iterator over (address, executions of the instruction there), in the order in
/// which QEMU first translated the addresses.
pub struct Windows<'a> {
    rest: &'a [u8],
}

impl<'a> Windows<'a> {
    /// # Errors
    /// `file` was not written by the plugin.
    pub fn new(file: &'a [u8]) -> Result<Self, Truncated> {
        match word(file) {
            Some((crate::MAGIC, rest)) => Ok(Self { rest }),
            _ => Err(Truncated::NotOurs),
        }
    }
}

impl<'a> Iterator for Windows<'a> {
    type Item = Result<Counts<'a>, Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let window = (|| {
            let (n, rest) = word(self.rest).ok_or(Truncated::Torn)?;
            if n == crate::OVERFLOW {
                return Err(Truncated::Overflow);
            }
            let bytes = usize::try_from(n).ok().and_then(|n| n.checked_mul(16)).ok_or(Truncated::Torn)?;
            rest.split_at_checked(bytes).ok_or(Truncated::Torn)
        })();
        match window {
            Ok((counts, rest)) => {
                self.rest = rest;
                Some(Ok(Counts { rest: counts }))
            }
            Err(e) => {
                self.rest = &[];
                Some(Err(e))
            }
        }
    }
}

/// One window's counts.
pub struct Counts<'a> {
    rest: &'a [u8],
}

impl Iterator for Counts<'_> {
    /// An address, and how often the instruction there was executed.
    type Item = (u64, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let (address, rest) = word(self.rest)?;
        let (count, rest) = word(rest)?;
        self.rest = rest;
        Some((address, count))
    }
}

fn word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(words: &[u64]) -> Vec<u8> {
        [crate::MAGIC].iter().chain(words).flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn windows_come_back_in_their_order() {
        let file = file(&[2, 0xffff_ffff_8100_0000, 7, 0x40_0000, 1, 0, 1, 5, 6]);
        let windows: Vec<Vec<_>> = Windows::new(&file).unwrap().map(|w| w.unwrap().collect()).collect();
        assert_eq!(windows, [vec![(0xffff_ffff_8100_0000, 7), (0x40_0000, 1)], vec![], vec![(5, 6)]]);
    }

    #[test]
    fn what_is_no_whole_profile_is_refused() {
        assert_eq!(Windows::new(b"short").err(), Some(Truncated::NotOurs));
        assert_eq!(Windows::new(&[0; 64]).err(), Some(Truncated::NotOurs));
        for (words, why) in [
            (&[2, 1, 1][..], Truncated::Torn),
            (&[crate::OVERFLOW], Truncated::Overflow),
            (&[1 << 60], Truncated::Torn),
        ] {
            let file = file(words);
            let mut windows = Windows::new(&file).unwrap();
            assert_eq!(windows.next().map(|w| w.err()), Some(Some(why)));
            assert!(windows.next().is_none());
        }
    }
}
