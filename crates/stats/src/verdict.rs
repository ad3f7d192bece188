//! From two intervals and a margin to one verdict.
//!
//! Invariant: effects have *improvement* orientation on the log scale: positive is better. The caller negates metrics where lower is better; mirrored
//! intervals give mirrored verdicts.

use std::{fmt, str::FromStr};

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The 95 % interval lies wholly beyond the margin.
    Better,
    /// The 95 % interval excludes no change, but is neither wholly beyond the margin nor inside it.
    SlightlyBetter,
    /// The 90 % interval lies inside the margins: two one-sided tests at 5 % each.
    Same,
    SlightlyWorse,
    Worse,
    /// The data do not settle it.
    Inconclusive,
    /// The session is unusable: too many void pairs, or the machine failed its own A/A check.
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

    /// Whether it claims a difference.
    pub const fn claims(self) -> bool {
        matches!(self, Verdict::Better | Verdict::SlightlyBetter | Verdict::SlightlyWorse | Verdict::Worse)
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

/// A word that is not a verdict.
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
/// `ci95`, `ci90`: intervals of the improvement on the log scale, `None` if the design was too small for one. `margin`: the smallest change that
/// matters, on the log scale, not negative.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule() {
        let m = 0.02;
        let cases = [
            ((0.021, 0.050), (0.025, 0.045), Verdict::Better),
            // Touching the margin does not count as beyond it.
            ((0.020, 0.050), (0.025, 0.045), Verdict::SlightlyBetter),
            ((0.001, 0.030), (0.005, 0.025), Verdict::SlightlyBetter),
            ((0.001, 0.015), (0.002, 0.014), Verdict::Same),
            ((-0.010, 0.015), (-0.008, 0.012), Verdict::Same),
            ((-0.010, 0.021), (-0.008, 0.020), Verdict::Inconclusive),
            ((-0.010, 0.021), (-0.008, 0.0199), Verdict::Same),
            ((0.000, 0.030), (0.001, 0.029), Verdict::Inconclusive),
            ((-0.030, -0.001), (-0.025, -0.005), Verdict::SlightlyWorse),
            ((-0.050, -0.021), (-0.045, -0.025), Verdict::Worse),
            // The result of an exact clock when nothing changed.
            ((0.0, 0.0), (0.0, 0.0), Verdict::Same),
        ];
        for (ci95, ci90, expected) in cases {
            assert_eq!(verdict(Some(ci95), Some(ci90), m), expected, "{ci95:?} {ci90:?}");
        }
        assert_eq!(verdict(None, None, m), Verdict::Inconclusive);
        assert_eq!(verdict(None, Some((-0.01, 0.01)), m), Verdict::Same);
    }

    #[test]
    fn tiny_but_real_is_said_of_same_only() {
        assert!(tiny_but_real(Verdict::Same, Some((0.001, 0.015))));
        assert!(!tiny_but_real(Verdict::Same, Some((-0.001, 0.015))));
        assert!(!tiny_but_real(Verdict::Better, Some((0.03, 0.04))));
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_known_ones() {
        let error = "faster".parse::<Verdict>().unwrap_err().to_string();
        assert!(error.contains("`faster`") && error.contains("slightly-better"));
    }
}
