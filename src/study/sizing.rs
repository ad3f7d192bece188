//! How a question says what its pairs are to achieve, in words.

use std::time::Duration;

use bigiron_model::margins;
use bigiron_workload::units;

/// Reads the time that a study's trials may take.
///
/// # Errors
/// What would be right.
pub fn budget(text: &str) -> Result<Duration, String> {
    let time = units::duration(text).filter(|time| *time >= Duration::from_secs(1));
    time.ok_or_else(|| format!("`{text}` is no budget; write a time such as `45m` or `2h`, at most 30 days"))
}

/// Reads a precision in per cent, `1%` or `1`, as a ratio.
///
/// # Errors
/// What would be right.
pub fn precision(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    let ratio = percent.and_then(|percent| margins::from_percent(percent).ok());
    ratio.ok_or_else(|| format!("`{text}` is no precision; write a number of per cent such as `1%`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_precisions_are_read() {
        assert_eq!(budget("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!((precision("1%"), precision("0.5")), (Ok(0.01), Ok(0.005)));
        for wrong in ["2", "1ms", "soon", "-2h", "40 days"] {
            assert!(budget(wrong).unwrap_err().contains("`45m` or `2h`"), "{wrong}");
        }
        for wrong in ["", "0", "-1", "99", "NaN", "half"] {
            assert!(precision(wrong).unwrap_err().contains("`1%`"), "{wrong}");
        }
    }
}
