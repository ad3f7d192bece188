//! Durations, shares, rates and paces in the syntax of job files.
//!
//! Invariant: printed values read back the same.

use std::time::Duration;

use bigiron_model::size;

/// Units of time, largest first, with their nanoseconds.
const UNITS: &[(&str, u64)] = &[
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Longer than any sensible duration, and short enough to count in nanoseconds.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// The possible durations, for messages.
pub const A_TIME: &str = "a time such as `40us`, `10ms`, `30s` or `5m`, at most 30 days";
/// The possible amounts of bytes, for messages.
pub const AN_AMOUNT: &str = "an amount such as `8K`, `16M` or `2G`";

/// Reads `40us`, `1.5s`, `5m`; `0` needs no unit.
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = (&text[..digits], text[digits..].trim());
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(fraction.len() as u32);
    // A fraction of a unit is refused unless it is a whole number of nanoseconds.
    let part = fraction.parse::<u64>().ok()?.checked_mul(*nanos)?;
    if !part.is_multiple_of(scale) {
        return None;
    }
    let total = whole.parse::<u64>().ok()?.checked_mul(*nanos)?.checked_add(part / scale)?;
    Some(Duration::from_nanos(total)).filter(|d| *d <= LONGEST)
}

/// The shortest exact form.
pub fn print_duration(time: Duration) -> String {
    let nanos = time.as_nanos() as u64;
    let (name, unit) = UNITS.iter().find(|(_, unit)| nanos > 0 && nanos.is_multiple_of(*unit)).unwrap_or(&("s", 1));
    format!("{}{name}", nanos / unit)
}

/// Reads `25%` or `25`: 0 to 100.
pub fn percent(text: &str) -> Option<u32> {
    text.strip_suffix('%').unwrap_or(text).trim().parse().ok().filter(|p| *p <= 100)
}

/// Reads a number of bytes per second: `200M/s`.
pub fn bytes_per_second(text: &str) -> Option<u64> {
    size::parse_bytes(text.strip_suffix("/s")?.trim()).ok().filter(|n| *n > 0)
}

/// When the next piece of work begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// After the last one is done and a think time has passed.
    Closed { think: Duration },
    /// At this rate for the class as a whole, whether or not the last one is done; latencies count from the intended start.
    Open { per_second: f64, poisson: bool },
}

/// The possible paces, for messages.
pub const A_PACE: &str = "`closed`, `closed think 10ms`, `open 800/s` or `open 800/s poisson`";

/// Reads `closed`, `closed think 10ms`, `open 800/s`, `open 800/s poisson`.
pub fn pace(text: &str) -> Option<Pace> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["closed"] => Some(Pace::Closed { think: Duration::ZERO }),
        ["closed", "think", time] => Some(Pace::Closed { think: duration(time)? }),
        ["open", rate] => open(rate, false),
        ["open", rate, "poisson"] => open(rate, true),
        _ => None,
    }
}

fn open(rate: &str, poisson: bool) -> Option<Pace> {
    let per_second: f64 = rate.strip_suffix("/s")?.parse().ok()?;
    // From one a day to one a nanosecond.
    (1e-5..=1e9).contains(&per_second).then_some(Pace::Open { per_second, poisson })
}

/// In the syntax that [`pace`] reads.
pub fn print_pace(pace: Pace) -> String {
    match pace {
        Pace::Closed { think } if think.is_zero() => "closed".to_owned(),
        Pace::Closed { think } => format!("closed think {}", print_duration(think)),
        Pace::Open { per_second, poisson: false } => format!("open {per_second}/s"),
        Pace::Open { per_second, poisson: true } => format!("open {per_second}/s poisson"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, nanos) in
            [("40us", 40_000), ("10ms", 10_000_000), ("1.5s", 1_500_000_000), ("2m", 120_000_000_000), ("0", 0)]
        {
            assert_eq!(duration(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["", "s", "5", "1.s", ".5s", "-1s", "1.5ns", "40 days", "31000000s", "1 s s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn paces_are_read() {
        assert_eq!(pace("open 8000/s poisson"), Some(Pace::Open { per_second: 8000.0, poisson: true }));
        for text in
            ["", "open", "open 8000", "open 0/s", "open -1/s", "open NaN/s", "open 1/s gauss", "closed think", "fast"]
        {
            assert_eq!(pace(text), None, "{text}");
        }
    }

    #[test]
    fn shares_and_rates_are_read() {
        assert_eq!(
            (percent("25%"), percent("100"), percent("101%"), percent("-1%")),
            (Some(25), Some(100), None, None)
        );
        assert_eq!(
            (bytes_per_second("200M/s"), bytes_per_second("200M"), bytes_per_second("0/s")),
            (Some(200 << 20), None, None)
        );
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(nanos in 0u64..2_592_000_000_000_000, per_second in 1e-5f64..1e9, poisson: bool) {
            let time = Duration::from_nanos(nanos);
            prop_assert_eq!(duration(&print_duration(time)), Some(time));
            for p in [Pace::Closed { think: time }, Pace::Open { per_second, poisson }] {
                prop_assert_eq!(pace(&print_pace(p)), Some(p));
            }
        }
    }
}
