//! The rule by which a study is judged.
//!
//! Invariant: a plan holds its rule, so a later bigiron judges a folder as it was planned. Every rule that was ever planned with stays.

use bigiron_stats::Flips;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;

/// A version of the judge's rules (docs/concepts/statistics.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub enum Rule {
    /// That of plans without a rule. Balanced flips on every clock; Holm over the verdicts' claims; any failed boot of an arm makes it `worse`; "tiny
    /// but real" for each line alone.
    #[default]
    First = 1,
    /// Full flips on the exact clock; nested claims; failed boots are counted in both arms, and on the exact clock run again; "tiny but real" is
    /// adjusted and at least a tenth of the margin.
    Second = 2,
}

impl Rule {
    /// The rule of new plans.
    pub const LATEST: Rule = Rule::Second;

    /// Which pairs its re-randomisations may exchange. On the exact clock a boot's result does not depend on when it runs, so the order of a pair has no
    /// effect that would have to cancel.
    pub fn flips(self, clock: Clock) -> Flips {
        if clock.is_exact() && self >= Rule::Second { Flips::Full } else { Flips::Balanced }
    }

    /// The same for a study on this many machines, of which each has its own order wherever order counts.
    pub fn flips_on(self, clock: Clock, machines: usize) -> Flips {
        match self.flips(clock) {
            Flips::Balanced if machines > 1 => Flips::Blocks(machines as u32),
            flips => flips,
        }
    }

    /// Whether it is the rule of plans that name none.
    pub fn is_first(&self) -> bool {
        *self == Rule::First
    }
}

impl From<Rule> for u32 {
    fn from(rule: Rule) -> u32 {
        rule as u32
    }
}

impl TryFrom<u32> for Rule {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, String> {
        match number {
            1 => Ok(Rule::First),
            2 => Ok(Rule::Second),
            _ => Err(format!("{number} is not a rule of this bigiron, which knows 1 and 2; a newer one may")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_reads_back_and_an_unknown_one_is_refused() {
        for rule in [Rule::First, Rule::Second] {
            assert_eq!(serde_json::from_str::<Rule>(&serde_json::to_string(&rule).unwrap()).unwrap(), rule);
        }
        assert_eq!(Rule::LATEST, Rule::Second);
        assert!(serde_json::from_str::<Rule>("3").unwrap_err().to_string().contains("knows 1 and 2"));
    }
}
