//! Reads the file that the plugin writes.
//!
//! Format, all numbers 64 bits and little-endian: [`MAGIC`](crate::MAGIC), then for each window the number of its addresses followed by that many
//! pairs of address and count; then the number of the model's rows, 0 if nothing is modelled, and for each row its address, the number of its
//! counts, and these, each with its place ([`Event::at`](crate::events::Event::at)) in the upper 8 bits; then the instructions of the window, and
//! those among them that were in the model's samples. [`OVERFLOW`](crate::OVERFLOW) in place
//! of a number of addresses or rows means that the window's counts are unknown.

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

/// The windows of a profile, in the order of their cuts.
pub struct Windows<'a> {
    rest: &'a [u8],
}

/// What one window executed.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    /// Of (address, executions of the instruction there), in the order in which QEMU first translated the addresses.
    pub counts: Counts<'a>,
    /// The model's, by the address at which a block of instructions begins; none if nothing was modelled.
    pub rows: Rows<'a>,
    /// Instructions of the window as the model counts them, and those among them in its samples; both 0 if nothing was modelled.
    pub sampled: (u64, u64),
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
    type Item = Result<Window<'a>, Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let window = window(self.rest);
        self.rest = window.as_ref().map_or(&[], |(_, rest)| *rest);
        Some(window.map(|(window, _)| window))
    }
}

/// The first window, and what follows it.
fn window(bytes: &[u8]) -> Result<(Window<'_>, &[u8]), Truncated> {
    let number = |bytes| match word(bytes).ok_or(Truncated::Torn)? {
        (crate::OVERFLOW, _) => Err(Truncated::Overflow),
        found => Ok(found),
    };
    let words = |n: u64, rest: &'_ [u8]| {
        let bytes = usize::try_from(n).ok().and_then(|n| n.checked_mul(8)).ok_or(Truncated::Torn)?;
        if bytes <= rest.len() { Ok(bytes) } else { Err(Truncated::Torn) }
    };
    let (n, rest) = number(bytes)?;
    let (counts, rest) = rest.split_at(words(n.checked_mul(2).ok_or(Truncated::Torn)?, rest)?);
    let (n, rest) = number(rest)?;
    let mut after = rest;
    for _ in 0..n {
        let (_, counts) = word(after).ok_or(Truncated::Torn)?;
        let (k, counts) = word(counts).ok_or(Truncated::Torn)?;
        after = &counts[words(k, counts)?..];
    }
    let rows = &rest[..rest.len() - after.len()];
    let (total, after) = word(after).ok_or(Truncated::Torn)?;
    let (sampled, after) = word(after).ok_or(Truncated::Torn)?;
    let window = Window { counts: Counts { rest: counts }, rows: Rows { rest: rows }, sampled: (total, sampled) };
    Ok((window, after))
}

/// One window's counts.
#[derive(Clone, Copy)]
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

/// One window's rows.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Rows<'a> {
    /// An address, and the model's counts there.
    type Item = (u64, RowCounts<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (address, rest) = word(self.rest)?;
        let (n, rest) = word(rest)?;
        let (counts, rest) = rest.split_at_checked(8 * n as usize)?;
        self.rest = rest;
        Some((address, RowCounts { rest: counts }))
    }
}

/// A row's counts.
#[derive(Clone, Copy)]
pub struct RowCounts<'a> {
    rest: &'a [u8],
}

impl Iterator for RowCounts<'_> {
    /// The place of a count, and the count.
    type Item = (usize, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let (word, rest) = word(self.rest)?;
        self.rest = rest;
        Some(((word >> 56) as usize, word & (u64::MAX >> 8)))
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
        let file = file(
            &[
                [2, 0xffff_ffff_8100_0000, 7, 0x40_0000, 1, 0, 0, 0].as_slice(),
                &[0, 1, 0x50, 2, 3 << 56 | 9, 4, 80, 20],
                &[1, 5, 6, 0, 0, 0],
            ]
            .concat(),
        );
        let windows: Vec<Window<'_>> = Windows::new(&file).unwrap().map(Result::unwrap).collect();
        let counts: Vec<Vec<_>> = windows.iter().map(|w| w.counts.collect()).collect();
        assert_eq!(counts, [vec![(0xffff_ffff_8100_0000, 7), (0x40_0000, 1)], vec![], vec![(5, 6)]]);
        let rows: Vec<Vec<(u64, Vec<_>)>> =
            windows.iter().map(|w| w.rows.map(|(address, counts)| (address, counts.collect())).collect()).collect();
        assert_eq!(rows, [vec![], vec![(0x50, vec![(3, 9), (0, 4)])], vec![]]);
        assert_eq!(windows[1].sampled, (80, 20));
    }

    #[test]
    fn what_is_no_whole_profile_is_refused() {
        assert_eq!(Windows::new(b"short").err(), Some(Truncated::NotOurs));
        assert_eq!(Windows::new(&[0; 64]).err(), Some(Truncated::NotOurs));
        for (words, why) in [
            (&[2, 1, 1][..], Truncated::Torn),
            (&[1, 1, 1], Truncated::Torn),
            (&[0, 1, 5], Truncated::Torn),
            (&[0, 1, 5, 2, 1], Truncated::Torn),
            (&[0, 0, 7], Truncated::Torn),
            (&[crate::OVERFLOW], Truncated::Overflow),
            (&[0, crate::OVERFLOW], Truncated::Overflow),
            (&[1 << 60], Truncated::Torn),
            (&[1 << 63], Truncated::Torn),
            (&[0, 1, 5, 1 << 62], Truncated::Torn),
        ] {
            let file = file(words);
            let mut windows = Windows::new(&file).unwrap();
            assert_eq!(windows.next().map(|w| w.err()), Some(Some(why)), "{words:x?}");
            assert!(windows.next().is_none());
        }
    }
}
