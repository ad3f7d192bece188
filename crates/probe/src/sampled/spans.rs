//! The window to which a moment belongs, from the marks of workloads.
//!
//! Invariant: spans do not overlap, and a moment outside of all of them belongs to no window.

use bigiron_profile::Mark;

/// The spans of all windows, in order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// Begin, end (exclusive) and the window's number.
    spans: Vec<(u64, u64, usize)>,
    windows: usize,
}

impl Spans {
    /// Builds spans from marks in order: a window is everything between begins and ends since the last cut. As in the exact profile, a begin within a
    /// span is ignored, and a cut does not end a span.
    pub fn new(marks: impl IntoIterator<Item = (Mark, u64)>) -> Self {
        let (mut spans, mut windows, mut open) = (Vec::new(), 0, None);
        for (mark, at) in marks {
            match mark {
                Mark::Begin => open = open.or(Some(at)),
                Mark::End => spans.extend(open.take().map(|begin: u64| (begin, at.max(begin), windows))),
                Mark::Cut => {
                    if let Some(begin) = open {
                        spans.push((begin, at.max(begin), windows));
                        open = Some(at);
                    }
                    windows += 1;
                }
                // Of the exact profile alone, and not recorded.
                Mark::Instrument | Mark::Release => {}
            }
        }
        spans.sort_unstable();
        Self { spans, windows }
    }

    /// Builds spans from marks given by number.
    pub fn of_numbers(marks: &[(u8, u64)]) -> Self {
        let mark = |number: u8| [Mark::Begin, Mark::End, Mark::Cut].into_iter().find(|mark| *mark as u8 == number);
        Self::new(marks.iter().filter_map(|(number, ns)| Some((mark(*number)?, *ns))))
    }

    /// Number of windows that were cut.
    pub fn windows(&self) -> usize {
        self.windows
    }

    /// The window that contains `time`.
    pub fn window(&self, time: u64) -> Option<usize> {
        let after = self.spans.partition_point(|(begin, ..)| *begin <= time);
        let (_, end, window) = *self.spans.get(after.checked_sub(1)?)?;
        (time < end && window < self.windows).then_some(window)
    }

    /// The windows that the time from `from` to `to` overlaps, with the nanoseconds of each overlap.
    pub fn parts(&self, from: u64, to: u64) -> Vec<(usize, u64)> {
        let mut parts: Vec<(usize, u64)> = Vec::new();
        let first = self.spans.partition_point(|(_, end, _)| *end <= from);
        for (begin, end, window) in self.spans[first..].iter().take_while(|(begin, ..)| *begin < to) {
            let ns = to.min(*end).saturating_sub(from.max(*begin));
            match parts.last_mut() {
                Some((last, sum)) if last == window => *sum += ns,
                _ if *window < self.windows => parts.push((*window, ns)),
                _ => {}
            }
        }
        parts
    }

    /// The length of a window in nanoseconds.
    pub fn ns(&self, window: usize) -> u64 {
        self.spans.iter().filter(|span| span.2 == window).map(|(begin, end, _)| end - begin).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mark::{Begin, Cut, End};

    #[test]
    fn a_moment_is_of_the_window_whose_span_it_is_in() {
        let spans =
            Spans::new([(Begin, 10), (End, 20), (Begin, 30), (End, 40), (Cut, 45), (Begin, 50), (End, 60), (Cut, 60)]);
        assert_eq!(spans.windows(), 2);
        for (time, window) in
            [(9, None), (10, Some(0)), (19, Some(0)), (20, None), (30, Some(0)), (45, None), (59, Some(1)), (60, None)]
        {
            assert_eq!(spans.window(time), window, "{time}");
        }
        assert_eq!((spans.ns(0), spans.ns(1)), (20, 10));
    }

    #[test]
    fn a_stretch_of_time_is_divided_among_the_windows_it_lies_in() {
        let spans = Spans::new([(Begin, 10), (End, 20), (Begin, 30), (End, 40), (Cut, 45), (Begin, 50), (Cut, 60)]);
        for (from, to, parts) in [
            (0, 10, vec![]),
            (12, 15, vec![(0, 3)]),
            (15, 35, vec![(0, 10)]),
            (20, 30, vec![]),
            (35, 55, vec![(0, 5), (1, 5)]),
            (0, 100, vec![(0, 20), (1, 10)]),
            (59, 70, vec![(1, 1)]),
        ] {
            assert_eq!(spans.parts(from, to), parts, "{from}..{to}");
        }
    }

    #[test]
    fn what_was_never_cut_is_no_window_and_what_is_open_goes_on_after_a_cut() {
        let spans = Spans::new([(Begin, 10), (Begin, 12), (Cut, 20), (End, 30), (End, 35)]);
        assert_eq!((spans.windows(), spans.window(15), spans.window(25)), (1, Some(0), None));
        assert_eq!(Spans::new([(Cut, 5)]).window(5), None);
        assert_eq!(Spans::new([]), Spans::default());
    }
}
