//! Steps as text: `read 8 zipf:0.9`, `dirty 30%`, `redo 1200..3600`, `commit`.
//!
//! Invariant: the printed text parses to the same step.

use std::fmt;
use std::str::FromStr;

use super::{Amount, Choice, Step};
use bigiron_model::{size, suggest};
use bigiron_workload::units;

/// The verbs, each with an example.
const VERBS: &[(&str, &str)] = &[
    ("read", "read 8 zipf:0.9"),
    ("dirty", "dirty 3` or `dirty 30%"),
    ("redo", "redo 1200..3600"),
    ("commit", "commit"),
    ("rollback", "rollback"),
    ("cpu", "cpu 40us"),
    ("think", "think 10ms"),
    ("sort", "sort 1M"),
];

/// The choices of blocks, for messages.
pub const A_CHOICE: &str = "`uniform`, `zipf:0.9`, `nurand:8191` or `hot:80/20` (80 % of gets on 20 % of blocks)";

/// Number of blocks that one step may get.
const GETS: std::ops::RangeInclusive<u32> = 1..=1000;
/// Bytes of redo that one step may add.
const REDO_MAX: u32 = 1 << 20;

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let Some((verb, rest)) = words.split_first() else {
            return Err(format!("A step cannot be empty; it can be {}", verbs()));
        };
        let Some((_, example)) = VERBS.iter().find(|(v, _)| v == verb) else {
            let right = match suggest::nearest(verb, VERBS.iter().map(|(v, _)| *v)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("a step can be {}", verbs()),
            };
            return Err(format!("`{verb}` is not a step; {right}"));
        };
        let wrong = || format!("The step `{text}` cannot be read; write one such as `{example}`");
        match (*verb, rest) {
            ("read", [count]) => read(count, Choice::Uniform).ok_or_else(wrong),
            ("read", [count, choice]) => {
                let choice = choice.parse().map_err(|e| format!("{e}, in the step `{text}`"))?;
                read(count, choice).ok_or_else(wrong)
            }
            ("dirty", [amount]) => dirty(amount).ok_or_else(wrong),
            ("redo", [bytes]) => redo(bytes)
                .ok_or_else(|| format!("{}, with at most {} at once", wrong(), size::print_bytes(u64::from(REDO_MAX)))),
            ("commit", []) => Ok(Step::Commit),
            ("rollback", []) => Ok(Step::Rollback),
            ("cpu", [time]) => units::duration(time).map(Step::Cpu).ok_or_else(wrong),
            ("think", [time]) => units::duration(time).map(Step::Think).ok_or_else(wrong),
            ("sort", [bytes]) => match size::parse_bytes(bytes) {
                Ok(n) if (4096..=1 << 30).contains(&n) => Ok(Step::Sort(n)),
                _ => Err(format!("{}, from 4K to 1G", wrong())),
            },
            _ => Err(wrong()),
        }
    }
}

fn verbs() -> String {
    suggest::list(VERBS.iter().map(|(verb, _)| *verb))
}

fn read(count: &str, choice: Choice) -> Option<Step> {
    let count = count.parse().ok().filter(|n| GETS.contains(n))?;
    Some(Step::Read { count, choice })
}

fn dirty(amount: &str) -> Option<Step> {
    let amount = match amount.strip_suffix('%') {
        Some(_) => Amount::Percent(units::percent(amount).filter(|p| *p > 0)?),
        None => Amount::Count(amount.parse().ok().filter(|n| GETS.contains(n))?),
    };
    Some(Step::Dirty(amount))
}

fn redo(bytes: &str) -> Option<Step> {
    let (min, max) = bytes.split_once("..").unwrap_or((bytes, bytes));
    let bytes = |text: &str| size::parse_bytes(text).ok().and_then(|n| u32::try_from(n).ok());
    let (min, max) = (bytes(min)?, bytes(max)?);
    (min <= max && max > 0 && max <= REDO_MAX).then_some(Step::Redo { min, max })
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let found = match name {
            "uniform" if value.is_empty() => Some(Choice::Uniform),
            // Beyond 4 practically every get is the hottest block.
            "zipf" => value.parse().ok().filter(|e| (0.01..=4.0).contains(e)).map(Choice::Zipf),
            "nurand" => value.parse().ok().filter(|a| (1..=u64::from(u32::MAX)).contains(a)).map(Choice::NuRand),
            "hot" => value.split_once('/').and_then(|(gets, blocks)| {
                let share = |text: &str| units::percent(text).filter(|p| (1..=99).contains(p));
                Some(Choice::Hot { gets: share(gets)?, blocks: share(blocks)? })
            }),
            _ => None,
        };
        found.ok_or_else(|| format!("`{text}` is not a choice of blocks; it can be {A_CHOICE}"))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Uniform => f.write_str("uniform"),
            Choice::Zipf(exponent) => write!(f, "zipf:{exponent}"),
            Choice::NuRand(a) => write!(f, "nurand:{a}"),
            Choice::Hot { gets, blocks } => write!(f, "hot:{gets}/{blocks}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Read { count, choice: Choice::Uniform } => write!(f, "read {count}"),
            Step::Read { count, choice } => write!(f, "read {count} {choice}"),
            Step::Dirty(Amount::Count(n)) => write!(f, "dirty {n}"),
            Step::Dirty(Amount::Percent(p)) => write!(f, "dirty {p}%"),
            Step::Redo { min, max } if min == max => write!(f, "redo {max}"),
            Step::Redo { min, max } => write!(f, "redo {min}..{max}"),
            Step::Commit => f.write_str("commit"),
            Step::Rollback => f.write_str("rollback"),
            Step::Cpu(time) => write!(f, "cpu {}", units::print_duration(*time)),
            Step::Think(time) => write!(f, "think {}", units::print_duration(*time)),
            Step::Sort(bytes) => write!(f, "sort {}", size::print_bytes(*bytes)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn steps_are_read() {
        assert_eq!("read 8 zipf:0.9".parse(), Ok(Step::Read { count: 8, choice: Choice::Zipf(0.9) }));
        assert_eq!("read 8".parse(), Ok(Step::Read { count: 8, choice: Choice::Uniform }));
        assert_eq!("dirty 30%".parse(), Ok(Step::Dirty(Amount::Percent(30))));
        assert_eq!("redo 1K..3600".parse(), Ok(Step::Redo { min: 1024, max: 3600 }));
        assert_eq!("cpu 40us".parse(), Ok(Step::Cpu(Duration::from_micros(40))));
    }

    #[test]
    fn what_is_no_step_is_refused_with_what_would_be() {
        for (text, want) in [
            ("", "A step cannot be empty; it can be `read`"),
            ("raed 8", "did you mean `read`?"),
            ("delete", "a step can be `read`"),
            ("read", "such as `read 8 zipf:0.9`"),
            ("read 0", "such as `read 8 zipf:0.9`"),
            ("read 8 zipf", "it can be `uniform`, `zipf:0.9`"),
            ("read 8 hot:80", "`hot:80/20`"),
            ("dirty 0%", "`dirty 3` or `dirty 30%`"),
            ("redo 9..3", "`redo 1200..3600`"),
            ("redo 2M", "at most 1M at once"),
            ("commit now", "such as `commit`"),
            ("cpu 40", "`cpu 40us`"),
            ("sort 1", "from 4K to 1G"),
        ] {
            let error = text.parse::<Step>().unwrap_err();
            assert!(error.contains(want), "{text:?}: {error}");
        }
    }

    pub fn choices() -> impl Strategy<Value = Choice> {
        prop_oneof![
            Just(Choice::Uniform),
            (0.01f64..4.0).prop_map(Choice::Zipf),
            (1u64..1 << 32).prop_map(Choice::NuRand),
            (1u32..100, 1u32..100).prop_map(|(gets, blocks)| Choice::Hot { gets, blocks }),
        ]
    }

    pub fn steps() -> impl Strategy<Value = Step> {
        let time = || (0u64..10_000_000_000).prop_map(Duration::from_nanos);
        prop_oneof![
            (1u32..=1000, choices()).prop_map(|(count, choice)| Step::Read { count, choice }),
            (1u32..=1000).prop_map(|n| Step::Dirty(Amount::Count(n))),
            (1u32..=100).prop_map(|p| Step::Dirty(Amount::Percent(p))),
            (0u32..1 << 20, 1u32..1 << 20).prop_map(|(a, b)| Step::Redo { min: a.min(b), max: a.max(b) }),
            Just(Step::Commit),
            Just(Step::Rollback),
            time().prop_map(Step::Cpu),
            time().prop_map(Step::Think),
            (4096u64..=1 << 30).prop_map(Step::Sort),
        ]
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(step in steps()) {
            prop_assert_eq!(step.to_string().parse(), Ok(step));
        }
    }
}
