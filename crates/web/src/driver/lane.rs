//! A client: its requests in order, its present connection, and the line that limits it.
//!
//! Invariant: the order of a client's requests depends only on the settings, the seed and its number.

use super::connection::{Answer, Connection, Wants};
use super::load::Work;
use crate::call::{Call, Calls};
use crate::settings::KeepAlive;
use crate::web99::request::Ask;
use crate::web99::{Draws, Mix};
use bigiron_sys::load::rng::SplitMix64;

/// A connection conforms if it gets this share of its line, SPECweb99's 320,000 of 400,000 bits per second.
const CONFORMING: f64 = 0.8;

/// Which request is next.
pub(super) enum Order<'a> {
    /// One after the other.
    Cycle { next: usize, count: usize },
    /// As in SPECweb99.
    Drawn(Box<Draws>, &'a Mix),
    /// Operations of a program.
    Called(SplitMix64, &'a dyn Calls),
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Web(Ask),
    Call(Call),
}

impl<'a> Order<'a> {
    /// Of the client or thread `number`, which begins with the document `first`.
    pub(super) fn new(work: &'a Work<'_>, seed: u64, number: u32, (first, count): (usize, usize)) -> Self {
        match work {
            Work::Cycle => Self::Cycle { next: first % count, count },
            Work::Drawn(mix) => Self::Drawn(Box::new(Draws::new(seed, number)), mix),
            Work::Called(calls) => Self::Called(SplitMix64::stream(seed, &format!("calls {number}")), *calls),
        }
    }

    /// The next request.
    pub(super) fn next(&mut self) -> Next {
        Next::Web(match self {
            Self::Cycle { next, count } => {
                let document = *next;
                *next = (document + 1) % *count;
                Ask::file(document)
            }
            Self::Drawn(draws, mix) => draws.next(mix),
            Self::Called(rng, calls) => return Next::Call(calls.draw(rng)),
        })
    }

    /// Requests of the next connection.
    pub(super) fn requests(&mut self, keep_alive: KeepAlive) -> u32 {
        match (keep_alive, self) {
            (KeepAlive::Yes, _) => u32::MAX,
            (KeepAlive::No, _) => 1,
            (KeepAlive::Page, Self::Cycle { count, .. }) => *count as u32,
            (KeepAlive::Page, Self::Drawn(draws, _)) => draws.requests(),
            (KeepAlive::Page, Self::Called(..)) => u32::MAX,
        }
    }
}

/// A line of limited speed, which carries the responses of one client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    /// Bits of the window's responses, and the nanoseconds for which these occupied the line.
    bits: f64,
    ns: f64,
}

impl Line {
    /// When the line is free again after a response.
    pub(super) fn free_at(answer: &Answer, rate: f64) -> u64 {
        answer.ended.max(answer.intended + (answer.bytes as f64 * 8e9 / rate) as u64)
    }

    /// Counts a response of the window.
    pub(super) fn count(&mut self, answer: &Answer, rate: f64) {
        self.bits += answer.bytes as f64 * 8.0;
        self.ns += (Self::free_at(answer, rate) - answer.intended) as f64;
    }

    /// Whether the client got enough of its line.
    pub(super) fn conforms(&self, rate: f64) -> bool {
        self.ns > 0.0 && self.bits * 1e9 / self.ns >= CONFORMING * rate
    }
}

/// A client. Its number among those of its thread is that of its events.
pub(super) struct Lane<'a> {
    pub connection: Option<Connection>,
    pub wants: Wants,
    pub order: Order<'a>,
    /// Most requests of the present connection.
    pub limit: u32,
    pub line: Line,
    /// When the line is free.
    pub free_at: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_conforms_at_four_fifths_of_its_rate() {
        // 5,000 bytes occupy a line of 400,000 bit/s for 100 ms.
        let answer = |ms: u64| Answer {
            bytes: 5_000,
            intended: 7,
            sent: 8,
            first_byte: 9,
            ended: 7 + ms * 1_000_000,
            dynamic: None,
            said: None,
        };
        assert_eq!(Line::free_at(&answer(1), 400_000.0), 7 + 100_000_000);
        assert_eq!(Line::free_at(&answer(130), 400_000.0), 7 + 130_000_000);
        let mut line = Line::default();
        assert!(!line.conforms(400_000.0), "nothing was sent");
        line.count(&answer(1), 400_000.0);
        line.count(&answer(149), 400_000.0);
        assert!(line.conforms(400_000.0));
        line.count(&answer(160), 400_000.0);
        assert!(!line.conforms(400_000.0));
    }
}
