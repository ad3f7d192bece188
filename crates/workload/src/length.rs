//! How long a load goes on: so much work, or so much time.

use std::time::Duration;

use crate::units;
use bigiron_model::clock::Clock;

/// What a length may be, for messages.
pub const A_LENGTH: &str = "a number of passes such as `3`, a time such as `30s`, or `auto`";

/// How long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    Passes(u32),
    Time(Duration),
}

impl Length {
    /// Reads `3`, `30s` or `auto`, which is `wall` on the wall clock and `exact` passes on every other.
    pub fn parse(text: &str, clock: Clock, exact: u32, wall: Duration) -> Option<Self> {
        if text == "auto" {
            return Some(if clock == Clock::Wall { Self::Time(wall) } else { Self::Passes(exact) });
        }
        if let Ok(passes) = text.parse::<u32>() {
            return (passes <= 1_000_000).then_some(Self::Passes(passes));
        }
        units::duration(text).map(Self::Time)
    }

    /// Whether it is none at all.
    pub fn is_nothing(self) -> bool {
        matches!(self, Self::Passes(0) | Self::Time(Duration::ZERO))
    }
}

impl std::fmt::Display for Length {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Passes(1) => f.write_str("1 pass"),
            Self::Passes(n) => write!(f, "{n} passes"),
            Self::Time(time) => f.write_str(&units::print_duration(*time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_work_or_time() {
        let parse = |text| Length::parse(text, Clock::Exact, 2, Duration::from_secs(9));
        assert_eq!(parse("auto"), Some(Length::Passes(2)));
        assert_eq!(Length::parse("auto", Clock::Wall, 2, Duration::from_secs(9)).unwrap().to_string(), "9s");
        assert_eq!(parse("1").unwrap().to_string(), "1 pass");
        assert_eq!(parse("30s"), Some(Length::Time(Duration::from_secs(30))));
        assert!(
            parse("0").unwrap().is_nothing() && parse("0s").unwrap().is_nothing() && !parse("1").unwrap().is_nothing()
        );
        for wrong in ["", "3 passes", "-1", "9999999999", "1.5"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
