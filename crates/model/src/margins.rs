//! Margins: the size of change that matters, by kind of metric. Fixed before the first boot.

use std::collections::BTreeMap;

use crate::metric::Kind;
use crate::refusal::Refusal;
use crate::suggest;

/// The kinds of metric by name, with their default margins on the ratio (docs/concepts/statistics.md).
pub const KINDS: &[(&str, Kind, f64)] = &[
    ("throughput", Kind::Throughput, 0.02),
    ("cost", Kind::Cost, 0.02),
    ("p50", Kind::P50, 0.03),
    ("p99", Kind::P99, 0.05),
    ("p99.9", Kind::P999, 0.10),
    ("amount", Kind::Amount, 0.02),
    ("usage", Kind::Usage, 0.05),
];

/// Largest margin: with a larger one, nearly any kernel is "the same".
const LARGEST: f64 = 0.5;

/// Smallest margin: a thousandth of a per cent, less than results vary between seeds even under the exact clock.
const SMALLEST: f64 = 0.00001;

/// The kind with that name (`p999` means `p99.9` where a dot is not possible, as in a study file's key).
pub fn kind(name: &str) -> Result<Kind, Refusal> {
    let name = if name == "p999" { "p99.9" } else { name };
    KINDS.iter().find(|(n, ..)| *n == name).map(|(_, kind, _)| *kind).ok_or_else(|| {
        let names = KINDS.iter().map(|(n, ..)| *n);
        let right = match suggest::nearest(name, names.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("it can be {}", suggest::list(names)),
        };
        Refusal::new(format!("`{name}` is not a kind of metric; {right}"))
    })
}

/// A margin in per cent as a margin on the ratio, if it is in the allowed range.
pub fn from_percent(percent: f64) -> Result<f64, Refusal> {
    let margin = percent / 100.0;
    if (SMALLEST..=LARGEST).contains(&margin) {
        Ok(margin)
    } else {
        Err(Refusal::new(format!(
            "A margin of {percent} % cannot be used; it must be from {} to {} %",
            SMALLEST * 100.0,
            LARGEST * 100.0
        )))
    }
}

/// Reads `KIND=PERCENT`, such as `throughput=1.5` or `p99=3%`.
pub fn parse(text: &str) -> Result<(Kind, f64), Refusal> {
    let wrong = || Refusal::new(format!("`{text}` is not a margin; write KIND=PERCENT, such as `throughput=2`"));
    let (name, percent) = text.split_once('=').ok_or_else(wrong)?;
    let percent = percent.strip_suffix('%').unwrap_or(percent).trim().parse().map_err(|_| wrong())?;
    Ok((kind(name)?, from_percent(percent)?))
}

/// The `asked` margins, and defaults for the other kinds.
pub fn complete(asked: &BTreeMap<Kind, f64>) -> BTreeMap<Kind, f64> {
    KINDS.iter().map(|(_, kind, default)| (*kind, asked.get(kind).copied().unwrap_or(*default))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_read_in_percent() {
        assert_eq!(parse("throughput=1.5").unwrap(), (Kind::Throughput, 0.015));
        assert_eq!(parse("p99.9=8%").unwrap(), (Kind::P999, 0.08));
        for text in ["throughput", "p99=x", "p99=0", "p99=-1", "p99=51", "p99=nan", "speed=1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
