//! The clock from which a study's times are read. Times of two clocks are never in one table.

use serde::{Deserialize, Serialize};

/// The clock of a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Real time, of a guest that runs under KVM (or a real machine).
    Wall,
    /// Virtual time of a QEMU guest under `-icount shift=0,sleep=off`: each executed instruction takes one nanosecond, a repeated move of memory as long
    /// as its bytes, and an idle guest jumps to its next timer. Bit-identical between runs, on any host.
    #[serde(rename = "exact/2")]
    Exact,
    /// The same for guests with several CPUs, whose busy CPUs spend the same time: a round of them costs one CPU's.
    #[serde(rename = "exact/3")]
    ExactParallel,
    /// The exact clock's first version, in which each iteration of a repeated move takes a nanosecond, so that its guests must not use them.
    #[serde(rename = "exact")]
    Exact1,
    /// No clock: software emulation without instruction counting. Such a trial shows whether a kernel survives the work and keeps the data; its times
    /// are never recorded or printed.
    None,
}

impl Clock {
    /// All clocks.
    pub const ALL: [Self; 5] = [Clock::Wall, Clock::Exact, Clock::ExactParallel, Clock::Exact1, Clock::None];

    /// The name as plans, records and history have it and reports print it.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Wall => "wall",
            Clock::Exact => "exact/2",
            Clock::ExactParallel => "exact/3",
            Clock::Exact1 => "exact",
            Clock::None => "none",
        }
    }

    /// The name as users type it, which means this version for ever.
    pub fn word(self) -> &'static str {
        match self {
            Clock::Exact1 => "exact/1",
            other => other.name(),
        }
    }

    /// The clock with that [name](Clock::name).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|clock| clock.name() == name)
    }

    /// Whether time is virtual, and repeats exactly.
    pub fn is_exact(self) -> bool {
        self.charges_moves() || self == Clock::Exact1
    }

    /// The number of the host's CPUs that a guest with `cpus` CPUs uses at the same time. On the exact clock, QEMU executes all CPUs of a guest in
    /// turns, on one thread.
    pub fn host_cpus(self, cpus: u32) -> u32 {
        if self.is_exact() { 1 } else { cpus }
    }

    /// Whether a repeated move of memory takes as long as its bytes.
    pub fn charges_moves(self) -> bool {
        matches!(self, Clock::Exact | Clock::ExactParallel)
    }

    /// The newest version that a guest with this many CPUs has of this clock.
    pub fn with_cpus(self, cpus: u32) -> Self {
        match self {
            Clock::Exact | Clock::ExactParallel if cpus > 1 => Clock::ExactParallel,
            Clock::ExactParallel => Clock::Exact,
            other => other,
        }
    }
}

/// The clock that a user's word means: `exact` is its newest version.
impl std::str::FromStr for Clock {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "wall" => Ok(Clock::Wall),
            "exact" | "exact/2" => Ok(Clock::Exact),
            "exact/3" => Ok(Clock::ExactParallel),
            "exact/1" => Ok(Clock::Exact1),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_on_the_exact_clock_uses_one_cpu_of_its_host() {
        assert_eq!([Clock::Exact, Clock::ExactParallel, Clock::Wall].map(|clock| clock.host_cpus(4)), [1, 1, 4]);
    }

    #[test]
    fn old_plans_keep_the_first_version_of_the_exact_clock() {
        for clock in Clock::ALL {
            assert_eq!(serde_json::to_value(clock).unwrap(), clock.name());
            assert_eq!(Clock::named(clock.name()), Some(clock));
            assert_eq!(clock.word().parse(), Ok(clock));
        }
        assert_eq!(serde_json::from_str::<Clock>("\"exact\"").unwrap(), Clock::Exact1);
        assert_eq!("exact".parse(), Ok(Clock::Exact));
        assert_eq!("exact/1".parse(), Ok(Clock::Exact1));
    }

    #[test]
    fn several_cpus_have_a_version_of_their_own() {
        for clock in [Clock::Exact, Clock::ExactParallel] {
            assert_eq!((clock.with_cpus(1), clock.with_cpus(2)), (Clock::Exact, Clock::ExactParallel));
        }
        assert!(Clock::ALL.into_iter().filter(|c| !c.charges_moves()).all(|c| c.with_cpus(4) == c));
    }
}
