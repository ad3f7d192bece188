//! A number with its unit and precision, as a report prints it.
//!
//! Invariant: every figure that a report prints, as text, JSON or HTML, is a [`Quantity`]'s display, so they agree to the last digit.
//! Signs are ASCII, and there is one space before the unit.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use bigiron_model::metric::Unit;

/// Digits shown of a value whose spread is zero or unknown.
const PLAIN_DIGITS: i32 = 4;
/// More digits carry no information for a reader (the fifth is at most 0.01 %); fewer look rounded off.
const FEWEST_DIGITS: i32 = 3;
const MOST_DIGITS: i32 = 5;
/// Percentages: nothing finer than a hundredth of a per cent is of interest, unless the value itself is smaller.
const MOST_PERCENT_DECIMALS: i32 = 2;
const MOST_DECIMALS: i32 = 6;

/// A value, its display unit and its precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    /// In the base unit.
    pub value: f64,
    /// The base unit: `ns`, `B`, `B/s`, `tx/s`, `tx/min`, `op/s`, `jobs/min`, `count`, `%` or a user's own name.
    pub unit: &'static str,
    /// Base units in one display unit.
    scale: f64,
    shown: &'static str,
    decimals: usize,
    signed: bool,
    /// The value is an upper bound; the exact value was not worth measuring.
    at_most: bool,
}

impl Quantity {
    /// A metric's value; `half` is the half-width of its spread in the base unit, 0 if unknown, and determines the digits.
    pub fn metric(value: f64, unit: Unit, half: f64) -> Quantity {
        Quantity::scaled(value, unit, half, value)
    }

    /// Two values for comparison: one scale (that of the smaller) and one precision for both.
    pub fn couple(a: f64, b: f64, unit: Unit, half: f64) -> (Quantity, Quantity) {
        let guide = if a.abs() < b.abs() { a } else { b };
        (Quantity::scaled(a, unit, half, guide), Quantity::scaled(b, unit, half, guide))
    }

    fn scaled(value: f64, unit: Unit, half: f64, guide: f64) -> Quantity {
        let (base, scale, shown) = scale(unit, guide.abs());
        let guide = guide.abs() / scale;
        let whole = if guide > 0.0 { guide.log10().floor() as i32 } else { 0 };
        let digits = match half / scale {
            h if h > 0.0 && h.is_finite() => whole + 1 + decimals_for(h),
            _ => PLAIN_DIGITS,
        };
        let decimals = digits.clamp(FEWEST_DIGITS, MOST_DIGITS) - 1 - whole;
        let decimals = if scale == 1.0 && is_whole(unit) { 0 } else { decimals };
        let decimals = decimals.clamp(0, MOST_DECIMALS) as usize;
        Quantity { value, unit: base, scale, shown, decimals, signed: false, at_most: false }
    }

    /// A change given on the log scale, as a signed percentage.
    pub fn change(log: f64, decimals: usize) -> Quantity {
        Quantity { signed: true, ..Quantity::percent(100.0 * log.exp_m1(), decimals) }
    }

    /// A share in per cent.
    pub fn percent(value: f64, decimals: usize) -> Quantity {
        Quantity { value, unit: "%", scale: 1.0, shown: "%", decimals, signed: false, at_most: false }
    }

    /// A margin such as .02, with no more decimals than it needs.
    pub fn margin(ratio: f64) -> Quantity {
        let value = (ratio * 1e6).round() / 1e4;
        let decimals = (0..4).find(|d| (value * 10f64.powi(*d)).fract().abs() < 1e-9).unwrap_or(4);
        Quantity::percent(value, decimals as usize)
    }

    /// The same quantity, marked as a bound if it is at most `floor`.
    pub fn floored(self, floor: f64) -> Quantity {
        let at_most = floor > 0.0 && self.value <= floor * (1.0 + 1e-9);
        Quantity { at_most, ..self }
    }

    /// Another value as this one is shown.
    pub fn with(&self, value: f64) -> Quantity {
        Quantity { value, ..self.clone() }
    }

    /// The same quantity without its sign.
    pub fn size(&self) -> Quantity {
        Quantity { value: self.value.abs(), signed: false, ..self.clone() }
    }

    /// The number without its unit.
    pub fn number(&self) -> String {
        let shown = self.value / self.scale;
        let text = format!("{:.*}", self.decimals, shown);
        // "-0.0" and "+0.0" would claim a sign that the digits do not show.
        if text.chars().all(|c| matches!(c, '-' | '0' | '.')) {
            return text.trim_start_matches('-').to_owned();
        }
        if self.signed && shown > 0.0 { format!("+{text}") } else { text }
    }

    /// Whether the printed digits are all zero.
    pub fn is_zero(&self) -> bool {
        !self.number().contains(|c: char| ('1'..='9').contains(&c))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.shown.is_empty() { self.number() } else { format!("{} {}", self.number(), self.shown) };
        if self.at_most { f.pad(&format!("≤ {text}")) } else { f.pad(&text) }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Quantity", 3)?;
        object.serialize_field("value", &self.value)?;
        object.serialize_field("unit", self.unit)?;
        object.serialize_field("text", &self.to_string())?;
        object.end()
    }
}

/// Decimals for an estimate and its interval, all in per cent, from the interval's half-width. If the interval excludes 0, there are enough decimals
/// that neither the estimate nor the end next to 0 is printed as 0.
pub fn percent_decimals(value: f64, interval: Option<(f64, f64)>) -> usize {
    let (low, high) = interval.unwrap_or((value, value));
    let half = (high - low) / 2.0;
    let least = if value.abs() < 100.0 { 1 } else { 0 };
    let decimals = if half > 0.0 && half.is_finite() { decimals_for(half) } else { MOST_PERCENT_DECIMALS };
    let decimals = decimals.clamp(least, MOST_PERCENT_DECIMALS);
    if low <= 0.0 && high >= 0.0 {
        return decimals as usize;
    }
    let nearest = low.abs().min(high.abs()).min(value.abs());
    // Below half of the last place, rounding to d decimals gives zero.
    let first = if nearest > 0.0 { (-(2.0 * nearest).log10()).ceil() as i32 } else { 0 };
    decimals.max(first.min(4)) as usize
}

/// Decimals for a size in per cent that has no interval: one, or as many as its first digit needs.
pub fn size_decimals(percent: f64) -> usize {
    if percent > 0.0 { (-percent.log10().floor()).clamp(1.0, 4.0) as usize } else { 1 }
}

/// Decimals that give a spread one or two significant digits (the Particle Data Group's rule: two if its leading digits are below 355, one from 355
/// to 949).
fn decimals_for(half: f64) -> i32 {
    let magnitude = half.log10().floor();
    let leading = (half / 10f64.powf(magnitude) * 100.0).round();
    let magnitude = magnitude as i32;
    match leading {
        l if l < 355.0 => 1 - magnitude,
        l if l < 950.0 => -magnitude,
        _ => -magnitude,
    }
}

fn is_whole(unit: Unit) -> bool {
    matches!(unit, Unit::Bytes | Unit::Count)
}

/// Base unit, factor and display unit for a value of this size.
fn scale(unit: Unit, size: f64) -> (&'static str, f64, &'static str) {
    const K: f64 = 1024.0;
    let pick = |steps: &[(f64, &'static str)]| {
        steps.iter().rev().find(|(from, _)| size >= *from).or(steps.first()).map_or((1.0, ""), |s| *s)
    };
    let (base, (factor, shown)) = match unit {
        Unit::Ns => ("ns", pick(&[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")])),
        Unit::Bytes => {
            ("B", pick(&[(1.0, "B"), (K, "KiB"), (K * K, "MiB"), (K * K * K, "GiB"), (K * K * K * K, "TiB")]))
        }
        Unit::BytesPerSecond => ("B/s", pick(&[(1.0, "B/s"), (K, "KiB/s"), (K * K, "MiB/s"), (K * K * K, "GiB/s")])),
        Unit::TransactionsPerSecond => ("tx/s", thousands(size, ["tx/s", "k tx/s", "M tx/s"])),
        Unit::TransactionsPerMinute => ("tx/min", thousands(size, ["tx/min", "k tx/min", "M tx/min"])),
        Unit::OperationsPerSecond => ("op/s", thousands(size, ["op/s", "k op/s", "M op/s"])),
        Unit::JobsPerMinute => ("jobs/min", thousands(size, ["jobs/min", "k jobs/min", "M jobs/min"])),
        Unit::QueriesPerHour => ("queries/h", thousands(size, ["queries/h", "k queries/h", "M queries/h"])),
        Unit::Count => ("count", thousands(size, ["", "k", "M"])),
        Unit::Other(name) => (name.as_str(), (1.0, name.as_str())),
    };
    (base, factor, shown)
}

/// Rates and counts stay whole up to five digits: "12345 tx/s" is easier to read than "12.3 k tx/s".
fn thousands(size: f64, names: [&'static str; 3]) -> (f64, &'static str) {
    match size {
        s if s >= 1e7 => (1e6, names[2]),
        s if s >= 1e5 => (1e3, names[1]),
        _ => (1.0, names[0]),
    }
}

/// A cell of a table: the quantity, or `none`.
pub fn shown(quantity: &Option<Quantity>) -> String {
    quantity.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_scaled_and_rounded_to_their_spread() {
        for (value, unit, half, expected) in [
            (314.3, Unit::Ns, 0.4, "314.3 ns"),
            (1_234_567.0, Unit::Ns, 1_200.0, "1.2346 ms"),
            (23_456.0, Unit::Ns, 900.0, "23.5 µs"),
            (284_255.4, Unit::Ns, 0.0, "284.3 µs"),
            (4_300_000.0, Unit::Bytes, 0.0, "4.101 MiB"),
            (512.0, Unit::Bytes, 0.0, "512 B"),
            (3.3e9, Unit::BytesPerSecond, 2e7, "3.073 GiB/s"),
            (1163.78, Unit::TransactionsPerSecond, 3.0, "1163.8 tx/s"),
            (12_345.6, Unit::TransactionsPerMinute, 12.0, "12346 tx/min"),
            (123_456.0, Unit::OperationsPerSecond, 400.0, "123.5 k op/s"),
            (17.0, Unit::Count, 0.0, "17"),
            (0.25, Unit::Ns, 0.0, "0.2500 ns"),
        ] {
            assert_eq!(Quantity::metric(value, unit, half).to_string(), expected);
        }
    }

    #[test]
    fn couples_share_scale_and_precision() {
        let (a, b) = Quantity::couple(990.0, 1_010.0, Unit::Ns, 3.0);
        assert_eq!((a.to_string(), b.to_string()), ("990.0 ns".into(), "1010.0 ns".into()));
    }

    #[test]
    fn changes_carry_their_sign_unless_they_are_nothing() {
        assert_eq!(Quantity::change(1.031_f64.ln(), 1).to_string(), "+3.1 %");
        assert_eq!(Quantity::change(0.969_f64.ln(), 1).to_string(), "-3.1 %");
        assert_eq!(Quantity::change(-1e-9, 1).to_string(), "0.0 %");
        assert_eq!(Quantity::change(0.0, 2).to_string(), "0.00 %");
        assert_eq!(Quantity::change(-0.5_f64, 1).size().to_string(), "39.3 %");
    }

    #[test]
    fn percentages_follow_the_interval() {
        for (value, interval, decimals) in [
            (3.1, Some((2.2, 4.0)), 1),
            (3.1, Some((0.6, 5.6)), 1),
            (3.1, Some((3.075, 3.125)), 2),
            (0.04, Some((-0.6, 0.7)), 1),
            (0.8, Some((0.02, 1.7)), 2),
            (0.8, Some((-0.02, 1.7)), 1),
            (0.004, Some((0.003, 0.005)), 3),
            (250.0, Some((210.0, 290.0)), 0),
            (0.0, Some((0.0, 0.0)), 2),
            (5.0, None, 2),
        ] {
            assert_eq!(percent_decimals(value, interval), decimals, "{value} {interval:?}");
        }
        assert_eq!([3.0, 0.3, 0.03, 0.0].map(size_decimals), [1, 1, 2, 1]);
    }

    #[test]
    fn margins_are_short() {
        for (m, text) in [(0.02, "2 %"), (0.1, "10 %"), (0.005, "0.5 %"), (0.0025, "0.25 %"), (0.0, "0 %")] {
            assert_eq!(Quantity::margin(m).to_string(), text);
        }
    }
}
