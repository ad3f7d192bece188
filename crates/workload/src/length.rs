//! The length of a load: an amount of work or of time.

use std::time::Duration;

use crate::{ByClock, units};

/// What a length may be, for messages.
pub const A_LENGTH: &str = "a number of passes such as `3`, a time such as `30s`, or `auto`";

/// The length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    Passes(u32),
    Time(Duration),
}

impl Length {
    /// Parses `3`, `30s` or `auto`, which means `wall` on the wall clock and `exact` passes on the others.
    pub fn parse(text: &str, exact: u32, wall: Duration) -> Option<ByClock<Self>> {
        let always = |length| ByClock { wall: length, other: length };
        if text == "auto" {
            return Some(ByClock { wall: Self::Time(wall), other: Self::Passes(exact) });
        }
        if let Ok(passes) = text.parse::<u32>() {
            return (passes <= 1_000_000).then(|| always(Self::Passes(passes)));
        }
        units::duration(text).map(Self::Time).map(always)
    }

    /// Whether the length is zero.
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
    use bigiron_model::clock::Clock;

    use super::*;

    #[test]
    fn lengths_are_work_or_time() {
        let both = |text| Length::parse(text, 2, Duration::from_secs(9));
        let parse = |text| both(text).map(|length| *length.on(Clock::Exact));
        assert_eq!(parse("auto"), Some(Length::Passes(2)));
        assert_eq!(both("auto").unwrap().on(Clock::Wall).to_string(), "9s");
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
