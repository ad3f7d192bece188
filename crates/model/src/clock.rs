//! Which clock a study's times are read from. Two clocks never meet in one table.

use serde::{Deserialize, Serialize};

/// The clock of a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Real time, of a guest that runs under KVM (or a real machine).
    Wall,
    /// Virtual time of a QEMU guest under `-icount shift=0,sleep=off`: one executed instruction is one nanosecond, and an
    /// idle guest jumps to its next timer. Bit-identical from run to run, on any host.
    Exact,
    /// No clock: software emulation without instruction counting. Such a trial says whether a kernel survives the work and
    /// keeps the data, and no time of it is ever recorded or printed.
    None,
}

impl Clock {
    /// The name as typed by a user and printed in a report.
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
