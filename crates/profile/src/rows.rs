//! The model's counts by address, of one window at a time.
//!
//! Invariant: a row's counts are of the window that is open, or was last.

use crate::processor::{COUNTS, Row};

/// The counts of an address; all zeros is a row of no window.
#[repr(C)]
pub(crate) struct Counted {
    address: u64,
    window: u64,
    counts: Row,
}

pub(crate) struct Rows {
    rows: &'static mut [Counted],
    used: usize,
    /// By the number of the address's counter: one more than the row's, or 0.
    of_counter: &'static mut [u32],
    /// Rows that the window has.
    touched: &'static mut [u32],
    n_touched: usize,
    /// From 1.
    window: u64,
    /// The counter asked for last in this window, and its row's number.
    latest: (usize, usize),
    pub(crate) full: bool,
}

impl Rows {
    /// In zeroed memory; `touched` has room for all rows.
    pub(crate) fn new(
        rows: &'static mut [Counted],
        of_counter: &'static mut [u32],
        touched: &'static mut [u32],
    ) -> Self {
        Self { rows, used: 0, of_counter, touched, n_touched: 0, window: 1, latest: (usize::MAX, 0), full: false }
    }

    /// The counts of an address in this window, given its counter's number.
    #[inline]
    pub(crate) fn of(&mut self, counter: usize, address: u64) -> Option<&mut Row> {
        if self.latest.0 == counter {
            return Some(&mut self.rows[self.latest.1].counts);
        }
        let number = match *self.of_counter.get(counter)? {
            0 if self.used == self.rows.len() => {
                self.full = true;
                return None;
            }
            0 => {
                self.used += 1;
                self.of_counter[counter] = self.used as u32;
                self.used - 1
            }
            n => n as usize - 1,
        };
        let row = &mut self.rows[number];
        if row.window != self.window {
            row.address = address;
            row.window = self.window;
            row.counts.fill(0);
            self.touched[self.n_touched] = number as u32;
            self.n_touched += 1;
        }
        self.latest = (counter, number);
        Some(&mut row.counts)
    }

    /// Outputs the window: the number of rows, then for each its address, how many of its counts are not zero, and these, with their place in the
    /// upper 8 bits.
    pub(crate) fn cut(&mut self, word: &mut dyn FnMut(u64)) {
        word(self.n_touched as u64);
        for number in &self.touched[..self.n_touched] {
            let row = &self.rows[*number as usize];
            let counts = || row.counts.iter().enumerate().filter(|(_, count)| **count > 0);
            word(row.address);
            word(counts().count() as u64);
            counts().for_each(|(at, count)| word((at as u64) << 56 | count & (u64::MAX >> 8)));
        }
        self.n_touched = 0;
        self.latest.0 = usize::MAX;
        self.window += 1;
    }
}

const _: () = assert!(COUNTS < 256);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_of_their_window() {
        let rows = (0..2).map(|_| Counted { address: 0, window: 0, counts: [0; COUNTS] }).collect::<Vec<_>>().leak();
        let mut rows = Rows::new(rows, vec![0; 8].leak(), vec![0; 2].leak());
        rows.of(5, 0x50).unwrap()[3] += 7;
        rows.of(5, 0x50).unwrap()[4] += 1;
        rows.of(2, 0x20).unwrap();
        assert!(rows.of(1, 0x10).is_none() && rows.full);
        let cut = |rows: &mut Rows| {
            let mut words = Vec::new();
            rows.cut(&mut |w| words.push(w));
            words
        };
        assert_eq!(cut(&mut rows), [2, 0x50, 2, 3 << 56 | 7, 4 << 56 | 1, 0x20, 0]);
        rows.of(2, 0x20).unwrap()[0] += 1;
        assert_eq!(cut(&mut rows), [1, 0x20, 1, 1]);
        assert_eq!(cut(&mut rows), [0]);
    }
}
