//! Calendar days: the queries contain literal dates, so that they need no engine's date arithmetic.
//!
//! Invariant: a date prints as ISO 8601, so that dates sort as texts too.

use std::fmt;

/// A day, as the number of days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(i32);

impl Date {
    /// The first day of a month, 1 to 12.
    pub fn first_of(year: i32, month: u32) -> Self {
        // Hinnant, "chrono-Compatible Low-Level Date Algorithms": years begin in March.
        let (years, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let (era, year_of_era) = (years.div_euclid(400), years.rem_euclid(400));
        let day_of_year = (153 * from_march as i32 + 2) / 5;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        Self(era * 146_097 + day_of_era - 719_468)
    }

    pub fn plus_days(self, days: i32) -> Self {
        Self(self.0 + days)
    }

    /// The first day of the month `months` after this date's month.
    pub fn plus_months(self, months: u32) -> Self {
        let (year, month, _) = self.parts();
        let month = month - 1 + months;
        Self::first_of(year + (month / 12) as i32, month % 12 + 1)
    }

    /// Days since 1970-01-01.
    pub fn days(self) -> i32 {
        self.0
    }

    /// Year, month, and day of the month.
    pub fn parts(self) -> (i32, u32, u32) {
        let shifted = self.0 + 719_468;
        let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = (from_march + 2) % 12 + 1;
        let year = year_of_era + era * 400 + i32::from(month <= 2);
        (year, month as u32, (day_of_year - (153 * from_march + 2) / 5 + 1) as u32)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.parts();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let mut date = Date::first_of(1970, 1);
        assert_eq!((date.days(), date.to_string().as_str()), (0, "1970-01-01"));
        for year in 1970..2101 {
            for month in 1..=12 {
                let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
                let length =
                    [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize - 1];
                assert_eq!(Date::first_of(year, month), date);
                for day in 1..=length {
                    assert_eq!(date.parts(), (year, month, day));
                    date = date.plus_days(1);
                }
            }
        }
        assert_eq!(Date::first_of(1998, 12).plus_days(-90).to_string(), "1998-09-02");
        assert_eq!(Date::first_of(1993, 11).plus_months(3).to_string(), "1994-02-01");
        assert_eq!(Date::first_of(1994, 1).plus_months(12).to_string(), "1995-01-01");
    }
}
