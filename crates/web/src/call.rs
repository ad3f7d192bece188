//! Requests for operations of a program, and what its pages say of them. The driver of another workload is this one.
//!
//! Invariant: a client's calls depend only on the seed and its number.

use bigiron_sys::load::Histogram;
use bigiron_sys::load::rng::SplitMix64;

/// The first line of a page: `<!--`, whether the operation was done (0 or 1), three numbers, `-->`.
const BEGIN: &str = "<!--";
const END: &str = "-->";
/// Longest beginning of a page that is kept.
const KEPT: usize = 128;

/// The operations of a program.
pub trait Calls: Sync {
    /// The next operation of a client, drawn from its own random numbers.
    fn draw(&self, rng: &mut SplitMix64) -> Call;
    /// The name of a kind of operation, for messages.
    fn name(&self, kind: usize) -> &'static str;
    /// The bytes of the request; with `close`, the last one of its connection.
    fn write(&self, call: Call, host: &str, close: bool) -> Vec<u8>;
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub kind: usize,
    /// Its parameters are drawn from this.
    pub seed: u64,
}

/// What a page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    pub kind: usize,
    pub done: bool,
    pub numbers: [i64; 3],
}

/// A call whose response is awaited.
#[derive(Clone, Debug)]
pub(crate) struct Awaited {
    pub kind: usize,
    pub name: &'static str,
    /// The beginning of the page so far.
    kept: Vec<u8>,
}

impl Awaited {
    pub fn new(kind: usize, name: &'static str) -> Self {
        Self { kind, name, kept: Vec::new() }
    }

    pub fn take(&mut self, part: &[u8]) {
        let room = KEPT - self.kept.len();
        self.kept.extend_from_slice(&part[..part.len().min(room)]);
    }

    /// What the page said; `None` if its first line does not say it.
    pub fn said(&self) -> Option<Said> {
        let text = str::from_utf8(&self.kept).ok().or_else(|| {
            // A character may be cut at the end of what is kept.
            str::from_utf8(self.kept.split(|b| *b == b'\n').next()?).ok()
        })?;
        let (line, _) = text.strip_prefix(BEGIN)?.split_once(END)?;
        let mut words = line.split(' ');
        let done = match words.next()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let mut number = || words.next()?.parse().ok();
        let numbers = [number()?, number()?, number()?];
        words.next().is_none().then_some(Said { kind: self.kind, done, numbers })
    }

    pub fn beginning(&self) -> String {
        self.kept.escape_ascii().to_string()
    }
}

/// Operations of one kind.
#[derive(Clone, Debug, Default)]
pub struct CallTally {
    /// All that were done, with the sums of their numbers.
    pub done: u64,
    pub sums: [i64; 3],
    /// In the window: all, those that were done, and the sum of their first numbers.
    pub counted: u64,
    pub counted_done: u64,
    pub counted_first: i64,
    pub latency: Histogram,
}

impl CallTally {
    pub(crate) fn see(&mut self, said: &Said) {
        self.done += u64::from(said.done);
        self.sums.iter_mut().zip(said.numbers).for_each(|(sum, number)| *sum += number);
    }

    pub(crate) fn count(&mut self, said: &Said, ns: u64) {
        self.counted += 1;
        self.counted_done += u64::from(said.done);
        self.counted_first += said.numbers[0];
        self.latency.record(ns);
    }

    pub fn add(&mut self, other: &Self) {
        self.done += other.done;
        self.sums.iter_mut().zip(other.sums).for_each(|(sum, number)| *sum += number);
        self.counted += other.counted;
        self.counted_done += other.counted_done;
        self.counted_first += other.counted_first;
        self.latency.merge(&other.latency);
    }
}

/// The tally of `kind`, which grows with the kinds that are seen.
pub(crate) fn of_kind(all: &mut Vec<CallTally>, kind: usize) -> &mut CallTally {
    if all.len() <= kind {
        all.resize_with(kind + 1, CallTally::default);
    }
    &mut all[kind]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_what_was_done_however_it_is_cut() {
        let said = |text: &str, cut: usize| {
            let mut awaited = Awaited::new(3, "Order");
            let (begin, end) = text.as_bytes().split_at(cut.min(text.len()));
            awaited.take(begin);
            awaited.take(end);
            awaited.said()
        };
        let page = format!("<!--1 -20 3 0-->\n<p>{}", "é".repeat(200));
        for cut in 0..140 {
            assert_eq!(said(&page, cut), Some(Said { kind: 3, done: true, numbers: [-20, 3, 0] }), "{cut}");
        }
        for wrong in ["", "<p>", "<!--1 2 3-->", "<!--2 1 2 3-->", "<!--1 2 3 4 5-->", "<!--1 2 3 4", "<!--0 a 3 4-->"]
        {
            assert_eq!(said(wrong, 2), None, "{wrong}");
        }
        assert_eq!(said("<!--0 0 0 0-->", 9), Some(Said { kind: 3, done: false, numbers: [0; 3] }));
    }

    #[test]
    fn tallies_add_up() {
        let said = |done, first| Said { kind: 1, done, numbers: [first, 1, 0] };
        let mut all = Vec::new();
        of_kind(&mut all, 1).see(&said(true, 5));
        all[1].see(&said(true, 7));
        all[1].count(&said(true, 7), 1000);
        let mut sum = CallTally::default();
        sum.add(&all[1]);
        sum.add(&all[1]);
        assert_eq!((all.len(), sum.done, sum.sums), (2, 4, [24, 4, 0]));
        assert_eq!((sum.counted, sum.counted_done, sum.counted_first, sum.latency.count()), (2, 2, 14, 2));
    }
}
