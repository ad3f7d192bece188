//! The clock from which a study's times are read. Times of two clocks are never in one table.

use serde::{Deserialize, Serialize};

/// The clock of a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Real time, of a guest that runs under KVM (or a real machine).
    Wall,
    /// Virtual time of a QEMU guest under `-icount shift=0,sleep=off`: each executed instruction takes one nanosecond, and an idle guest jumps to its
    /// next timer. Bit-identical between runs, on any host.
    Exact,
    /// No clock: software emulation without instruction counting. Such a trial shows whether a kernel survives the work and keeps the data; its times
    /// are never recorded or printed.
    None,
}

impl Clock {
    /// The name as users type it and reports print it.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Wall => "wall",
            Clock::Exact => "exact",
            Clock::None => "none",
        }
    }
}

impl std::str::FromStr for Clock {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "wall" => Ok(Clock::Wall),
            "exact" => Ok(Clock::Exact),
            "none" => Ok(Clock::None),
            _ => Err(format!("`{s}` is not a clock: `wall`, `exact` or `none`")),
        }
    }
}

impl std::fmt::Display for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
