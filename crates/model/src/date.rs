//! Dates and times of day in records: UTC, in the format of ISO 8601.
//!
//! Invariant: nothing measured depends on them; they only say when something happened.

use std::time::{SystemTime, UNIX_EPOCH};

/// `2026-11-22T13:05:09Z`.
pub fn now() -> String {
    of(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

/// The date and time `seconds` after the beginning of 1970.
pub fn of(seconds: u64) -> String {
    let rest = seconds % 86_400;
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Year, month (from 1) and day of the month of a day counted from 1 January 1970.
pub fn civil(days: u64) -> (u64, u64, u64) {
    // Days are counted from 1 March of the year 0, so that a leap day is the last of its year (Hinnant, "chrono-compatible low-level date
    // algorithms": 719,468 days before 1970, 146,097 days in 400 years).
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(of(seconds), text);
        }
    }
}
