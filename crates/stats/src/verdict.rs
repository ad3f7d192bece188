//! From two intervals and a margin to one word.
//!
//! Invariant: effects are in *improvement* orientation on the log scale: positive is better. Who calls negates metrics where lower is
//! better; mirrored intervals give mirrored verdicts.

use std::{fmt, str::FromStr};

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The 95 % interval lies wholly beyond the margin.
    Better,
    /// The 95 % interval excludes no change, but neither beyond the margin nor inside it is shown.
    SlightlyBetter,
    /// The 90 % interval lies inside the margins: two one-sided tests at 5 % each.
    Same,
    SlightlyWorse,
    Worse,
    /// The data do not settle it.
    Inconclusive,
    /// The session cannot be used: too many void pairs, or the machine failed its own A/A check.
    Invalid,
}

impl Verdict {
    pub const ALL: [Verdict; 7] = [
        Verdict::Better,
        Verdict::SlightlyBetter,
        Verdict::Same,
        Verdict::SlightlyWorse,
        Verdict::Worse,
        Verdict::Inconclusive,
        Verdict::Invalid,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::SlightlyBetter => "slightly-better",
            Verdict::Same => "same",
            Verdict::SlightlyWorse => "slightly-worse",
            Verdict::Worse => "worse",
            Verdict::Inconclusive => "inconclusive",
            Verdict::Invalid => "invalid",
        }
    }

    /// The verdict with the arms exchanged.
    pub const fn mirror(self) -> Verdict {
        match self {
            Verdict::Better => Verdict::Worse,
            Verdict::SlightlyBetter => Verdict::SlightlyWorse,
            Verdict::SlightlyWorse => Verdict::SlightlyBetter,
            Verdict::Worse => Verdict::Better,
            other => other,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is no verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownVerdict(pub String);

impl fmt::Display for UnknownVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Verdict::ALL.map(Verdict::name).join(", ");
        write!(f, "`{}` is not a verdict; one of {names}", self.0)
    }
}

impl std::error::Error for UnknownVerdict {}

impl FromStr for Verdict {
    type Err = UnknownVerdict;

    fn from_str(name: &str) -> Result<Verdict, UnknownVerdict> {
        Verdict::ALL.into_iter().find(|v| v.name() == name).ok_or_else(|| UnknownVerdict(name.to_owned()))
    }
}

/// The verdict of one line before any adjustment for the number of lines.
///
/// `ci95`, `ci90`: intervals of the improvement on the log scale, `None` where the design was too small for one. `margin`: the
/// smallest change that matters, log scale, not negative.
pub fn verdict(ci95: Option<(f64, f64)>, ci90: Option<(f64, f64)>, margin: f64) -> Verdict {
    let inside = ci90.is_some_and(|(low, high)| -margin < low && high < margin);
    match ci95 {
        Some((low, _)) if low > margin => Verdict::Better,
        Some((_, high)) if high < -margin => Verdict::Worse,
        _ if inside => Verdict::Same,
        Some((low, _)) if low > 0.0 => Verdict::SlightlyBetter,
        Some((_, high)) if high < 0.0 => Verdict::SlightlyWorse,
        _ => Verdict::Inconclusive,
    }
}

/// A line judged `same` whose 95 % interval nevertheless excludes no change: "tiny but real".
pub fn tiny_but_real(verdict: Verdict, ci95: Option<(f64, f64)>) -> bool {
    verdict == Verdict::Same && ci95.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
}
