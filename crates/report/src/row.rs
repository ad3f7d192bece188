//! A row: one line of the judgement, laid out for every format.
//!
//! Invariant: everything printed of a line is decided here, once; the formats only lay it out.

use bigiron_stats::Verdict;

use super::quantity::{Quantity, percent_decimals, size_decimals};
use bigiron_judge::line::Line;
use bigiron_model::metric::Better;

/// One line of the judgement in printable quantities.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    pub line: &'a Line,
    /// Geometric means of the two arms.
    pub a: Option<Quantity>,
    pub b: Option<Quantity>,
    /// The ratio of geometric means, B to A, as a change in per cent; and its intervals.
    pub change: Option<Quantity>,
    pub ci95: Option<(Quantity, Quantity)>,
    pub ci90: Option<(Quantity, Quantity)>,
    /// The smallest detectable effect: the smallest change that would be detected with 80 % power.
    pub mde: Option<Quantity>,
    pub margin: Quantity,
    /// Whether the sign of the change depends on how the exact clock counts copies of memory (see
    /// [`subsystem::without_copies`](super::subsystem::without_copies)).
    pub copies_decide: bool,
}

/// The mark of rows whose sign depends on copies of memory.
pub const COPIES_MARK: &str = "†";

impl<'a> Row<'a> {
    pub fn new(line: &'a Line) -> Row<'a> {
        let mut row = Row {
            line,
            a: None,
            b: None,
            change: None,
            ci95: None,
            ci90: None,
            mde: None,
            margin: Quantity::margin(line.margin),
            copies_decide: false,
        };
        if let Some(estimate) = line.estimate {
            let interval = estimate.ci95.or(estimate.ci90);
            let half = interval.map_or(0.0, |(low, high)| (high - low) / 2.0);
            let percent = |log: f64| 100.0 * log.exp_m1();
            let decimals = percent_decimals(percent(estimate.mean), interval.map(|(l, h)| (percent(l), percent(h))));
            let both = |(low, high)| (Quantity::change(low, decimals), Quantity::change(high, decimals));
            row.change = Some(Quantity::change(estimate.mean, decimals));
            row.ci95 = estimate.ci95.map(both);
            row.ci90 = estimate.ci90.map(both);
            row.mde = estimate.mde.map(|mde| {
                let size = percent(mde);
                Quantity::percent(size, size_decimals(size))
            });
            if let (Some(a), Some(b)) = (line.a, line.b) {
                // If the interval is a point, the digits must still show the change.
                let spread = if half > 0.0 { half } else { estimate.mean.abs() / 2.0 };
                let (a, b) = Quantity::couple(a, b, line.metric.unit, spread * a.min(b));
                let floor = line.metric.floor();
                (row.a, row.b) = (Some(a.floored(floor)), Some(b.floored(floor)));
            }
        }
        row
    }

    /// Which direction is better, as an arrow.
    pub fn arrow(&self) -> &'static str {
        match self.line.metric.better {
            Better::Higher => "↑",
            Better::Lower => "↓",
        }
    }

    /// The 95 % interval as `low … high`, without unit.
    pub fn interval(&self) -> String {
        self.ci95
            .as_ref()
            .map_or_else(|| "none".to_owned(), |(low, high)| format!("{} … {}", low.number(), high.number()))
    }

    /// The verdict with its marks, if any (see [`Mark`]); `~` if the arms' spreads make it doubtful; `†` if copies of memory decide the sign.
    pub fn verdict(&self) -> String {
        let mark = self.mark().map_or_else(String::new, |mark| format!(" {}", mark.text(self.line)));
        let doubtful = if self.is_doubtful() { " ~" } else { "" };
        let copies = if self.copies_decide { format!(" {COPIES_MARK}") } else { String::new() };
        format!("{}{mark}{doubtful}{copies}", self.line.verdict)
    }

    /// Whether one arm seems to vary more than the other, and a wider interval would give another verdict.
    pub fn is_doubtful(&self) -> bool {
        self.line.estimate.is_some_and(|e| e.doubtful)
    }

    pub fn mark(&self) -> Option<Mark> {
        let line = self.line;
        match line.verdict {
            _ if line.unadjusted.is_some() => Some(Mark::TakenBack),
            Verdict::Inconclusive if line.more_pairs.is_some() => Some(Mark::MorePairs),
            Verdict::Same if line.tiny => Some(Mark::Tiny),
            Verdict::Same | Verdict::Inconclusive | Verdict::Invalid => None,
            _ if line.metric.primary || line.discovery() => None,
            _ => Some(Mark::Chance),
        }
    }

    /// `8 pairs`, or `5 of 8 pairs` where some are missing.
    pub fn pairs(&self) -> String {
        let used = self.line.deltas.len();
        match self.line.missing.total() {
            0 => format!("{used} pairs"),
            missing => format!("{used} of {} pairs", used + missing as usize),
        }
    }
}

/// The suffix of a verdict in a table, a few characters long; the legend explains those that occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// The correction for the number of primaries weakened or withdrew the claim.
    TakenBack,
    /// This many more pairs would settle the line.
    MorePairs,
    /// `same`, but the interval excludes no change.
    Tiny,
    /// An exploratory difference that Benjamini–Hochberg does not flag.
    Chance,
}

impl Mark {
    pub fn text(self, line: &Line) -> String {
        match self {
            Mark::TakenBack => line.unadjusted.map_or_else(String::new, |v| format!("({v}!)")),
            Mark::MorePairs => line.more_pairs.map_or_else(String::new, |n| format!("+{n}")),
            Mark::Tiny => "(tiny)".to_owned(),
            Mark::Chance => "?".to_owned(),
        }
    }

    pub fn legend(self) -> &'static str {
        match self {
            Mark::TakenBack => {
                "(worse!): alone it would be worse; that does not survive the correction for the number of primaries"
            }
            Mark::MorePairs => "inconclusive +N: about N more pairs would settle it, if effect and noise stay the same",
            Mark::Tiny => {
                "same (tiny): inside the margin, but these arms differ: no change is excluded after the correction, and the change is at least a tenth of the margin"
            }
            Mark::Chance => {
                "worse ?: among this many exploratory metrics, this one may be chance (false discovery rate above 5 %)"
            }
        }
    }
}
