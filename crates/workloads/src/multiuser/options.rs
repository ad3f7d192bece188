//! The combined options of multiuser.
//!
//! Invariant: valid [`Settings`] can be run, as far as that can be checked without the machine.

use std::path::PathBuf;
use std::time::Duration;

use super::keys::{CROSSOVER, KEYS, UncheckedSettings, Users};
use super::mixes::Mix;
use super::ramp::Spec;
use super::rates;
use super::work::Scale;
use bigiron_model::clock::Clock;
use bigiron_model::document::Table;
use bigiron_model::workload::Options;
use bigiron_workload::keys;

/// ReAIM's default sizes.
const FILE_KIB: u64 = 10;
const POOL_KIB: u64 = 1024;

/// The threshold of a quick crossover, in jobs per minute for each user.
const QUICK: f64 = 60.0;

/// Default load points.
const USERS: [u32; 4] = [1, 2, 4, 8];

/// The settings of a run.
#[derive(Clone)]
pub struct Settings {
    pub mix: Mix,
    pub mode: Mode,
    pub load: Load,
    jobs: Option<u32>,
    file: Size,
    pool: Size,
    /// The directories given; empty for the trial's own.
    pub directories: Vec<PathBuf>,
    scale: Option<u64>,
    pub syncs: bool,
    period: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Multi,
    Single,
}

/// The load points.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    List(Vec<u32>),
    Ramp(Climb),
}

/// A ramp whose start may be the machine's number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Climb {
    start: Option<u32>,
    increment: Option<u32>,
    pub end: Option<u32>,
    adaptive: bool,
    crossover: Option<f64>,
    guess_peak: bool,
}

impl Climb {
    pub fn spec(self, cpus: u32) -> Spec {
        Spec {
            start: self.start.unwrap_or(cpus),
            increment: self.increment.unwrap_or(cpus),
            end: self.end,
            adaptive: self.adaptive,
            crossover: self.crossover,
            guess_peak: self.guess_peak,
        }
    }
}

/// A size in KiB; a size from an option is not scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    kib: u64,
    said: bool,
}

impl Settings {
    /// Parses the options; the error says what would be right.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let mut table = Table::empty("");
        let mut said = UncheckedSettings::default();
        let lay = |(name, value): (&String, &String)| table.lay(&[name], value, &format!("multiuser.{name}"));
        options.iter().try_for_each(lay).map_err(|e| e.to_string())?;
        keys::read(KEYS.iter(), |key| table.get(key), &mut said).map_err(|e| e.to_string())?;
        Self::of(said)
    }

    fn of(said: UncheckedSettings) -> Result<Self, String> {
        let (mix, config) = (&said.mix.file, &said.config);
        let size = |said: Option<u64>, otherwise: u64| Size { kib: said.unwrap_or(otherwise), said: said.is_some() };
        // A mix that gives the size of files but not of a pool has no pool.
        let pool_default = if mix.file_kib.is_some() { 0 } else { POOL_KIB };
        let file = size(said.filesize, mix.file_kib.or(config.file_kib).unwrap_or(FILE_KIB));
        let pool = size(said.poolsize, mix.pool_kib.or(config.pool_kib).unwrap_or(pool_default));
        if (file.kib, pool.kib) == (0, 0) {
            return Err("`multiuser.filesize` and `multiuser.poolsize` are both 0; one must be at least 1K".to_owned());
        }
        Ok(Self {
            mode: said.mode,
            load: said.load()?,
            jobs: said.jobs.or(config.jobs),
            file,
            pool,
            directories: said.diskdir.unwrap_or(said.config.directories),
            scale: said.scale,
            syncs: said.syncs,
            period: said.period,
            mix: said.mix,
        })
    }

    /// The divisor of the tests' loops.
    pub fn divisor(&self, clock: Clock) -> u64 {
        self.scale.unwrap_or(match clock {
            Clock::Wall => 1,
            // Instructions are emulated: some seconds of the host's time for all load points.
            Clock::Exact | Clock::ExactParallel | Clock::Exact1 | Clock::None => 50,
        })
    }

    pub fn scale(&self, clock: Clock) -> Scale {
        Scale::divided_by(self.divisor(clock))
    }

    /// Tests that each user runs, before rounding.
    pub fn jobs(&self) -> u32 {
        self.jobs.unwrap_or(100)
    }

    /// Bytes of a user's file with `users` in parallel; in single mode, which has no pool, with one.
    pub fn file_bytes(&self, users: u32, clock: Clock) -> u64 {
        let scaled = |size: Size| if size.said { size.kib } else { size.kib / self.divisor(clock) };
        let pool = match self.mode {
            Mode::Multi => scaled(self.pool),
            Mode::Single => 0,
        };
        rates::file_kib(scaled(self.file), pool, users).max(1) * 1024
    }

    /// Whether the size of files depends on the number of users.
    pub fn has_pool(&self) -> bool {
        self.mode == Mode::Multi && self.pool.kib > 0
    }

    /// How long single mode repeats each test.
    pub fn period(&self, clock: Clock) -> Duration {
        self.period.unwrap_or(match clock {
            Clock::Wall => Duration::from_secs(10),
            Clock::Exact | Clock::ExactParallel | Clock::Exact1 | Clock::None => Duration::from_millis(20),
        })
    }

    /// The largest known number of users, and whether there may be more.
    pub fn most_users(&self) -> (u32, bool) {
        match (&self.load, self.mode) {
            (_, Mode::Single) => (1, false),
            (Load::List(users), _) => (users.last().copied().unwrap_or(1), false),
            (Load::Ramp(climb), _) => match climb.end {
                Some(end) => (end, false),
                None => (climb.start.unwrap_or(1), true),
            },
        }
    }
}

impl UncheckedSettings {
    fn load(&self) -> Result<Load, String> {
        let config = &self.config;
        let said = self.start.is_some()
            || self.end.is_some()
            || self.increment.is_some()
            || self.crossover.flatten().is_some()
            || self.quick
            || self.guess_peak == Some(true);
        let ramps = config.start.is_some() || config.end.is_some() || config.increment.is_some();
        match &self.users {
            Users::Config if ramps || said => self.climb().map(Load::Ramp),
            Users::Config => Ok(Load::List(USERS.to_vec())),
            Users::Auto => self.climb().map(Load::Ramp),
            Users::List(text, _) if said => Err(format!(
                "`multiuser.users={text}` is not a ramp, so it cannot have `start`, `end`, `increment`, a crossover or a guess of its peak; use `users=auto`"
            )),
            Users::List(_, users) => Ok(Load::List(users.clone())),
        }
    }

    fn climb(&self) -> Result<Climb, String> {
        let config = &self.config;
        let crossover = match (self.crossover, self.quick) {
            (None | Some(None), true) => Some(QUICK),
            (Some(Some(_)), true) => {
                return Err("`multiuser.quick` is a crossover of 60; give only one of the two".to_owned());
            }
            (None, false) => config.crossover.unwrap_or(false).then_some(CROSSOVER),
            (Some(said), false) => said,
        };
        let end = self.end.unwrap_or(config.end);
        let guess_peak = self.guess_peak.unwrap_or(crossover.is_none() && end.is_none());
        if !guess_peak && crossover.is_none() && end.is_none() {
            return Err(
                "The ramp has no end; give `multiuser.end`, `multiuser.crossover` or `multiuser.guess-peak`".to_owned()
            );
        }
        let (start, increment) = (self.start.or(config.start), self.increment.or(config.increment));
        if let (Some(start), Some(end)) = (start, end)
            && start > end
        {
            return Err(format!("`multiuser.start` ({start}) is larger than `multiuser.end` ({end})"));
        }
        Ok(Climb { start, increment, end, adaptive: self.adaptive, crossover, guess_peak })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiuser::Multiuser;
    use bigiron_workload::testing;

    fn parse(settings: &[(&str, &str)]) -> Result<Settings, String> {
        let options = testing::options(&Multiuser, settings.iter().copied())?;
        Settings::parse(&options)
    }

    fn good(settings: &[(&str, &str)]) -> Settings {
        parse(settings).map_err(|e| format!("{settings:?}: {e}")).unwrap()
    }

    fn refused(settings: &[(&str, &str)]) -> String {
        parse(settings).err().unwrap_or_else(|| panic!("{settings:?} is accepted"))
    }

    #[test]
    fn users_are_a_list_or_a_ramp() {
        assert_eq!(good(&[]).load, Load::List(vec![1, 2, 4, 8]));
        assert_eq!(good(&[("users", "3")]).load, Load::List(vec![3]));
        assert_eq!(good(&[("users", "10..50:20")]).load, Load::List(vec![10, 30, 50]));
        let Load::Ramp(climb) = good(&[("users", "auto")]).load else { panic!("a list") };
        let spec = Spec { start: 4, increment: 4, end: None, adaptive: true, crossover: None, guess_peak: true };
        assert_eq!(climb.spec(4), spec);
        let Load::Ramp(climb) = good(&[("start", "2"), ("end", "9"), ("quick", "on"), ("adaptive", "off")]).load else {
            panic!("a list")
        };
        let right =
            Spec { start: 2, increment: 1, end: Some(9), adaptive: false, crossover: Some(60.0), guess_peak: false };
        assert_eq!(climb.spec(1), right);
        for users in ["", "0", "2,1", "1,1", "1,,2", "5..1", "many"] {
            assert!(refused(&[("users", users)]).contains("a rising list such as `1,2,4,8`"), "{users}");
        }
        assert!(refused(&[("users", "4194304")]).contains("the kernel has at most 4194003"));
        assert!(refused(&[("users", "auto"), ("guess-peak", "off")]).starts_with("The ramp has no end; give"));
        assert!(refused(&[("users", "1,2"), ("start", "2")]).contains("is not a ramp"));
        assert!(
            refused(&[("users", "auto"), ("quick", "on"), ("crossover", "3")]).contains("give only one of the two")
        );
        assert!(refused(&[("start", "5"), ("end", "2")]).contains("(5) is larger than"));
    }

    #[test]
    fn a_config_file_gives_the_ramp_and_the_sizes() {
        let config = "# mix c\nSTARTUSERS 2\nENDUSERS 30\nINCREMENT 7\nJOBS 20\nFILESIZE 10k\nPOOLSIZE 1m\nDISKDIR /mnt/a\nCROSSOVER 1\n";
        let settings = good(&[("config", config), ("mix", "sieve"), ("scale", "1")]);
        let Load::Ramp(climb) = &settings.load else { panic!("a list") };
        let spec =
            Spec { start: 2, increment: 7, end: Some(30), adaptive: true, crossover: Some(1.0), guess_peak: false };
        assert_eq!(climb.spec(1), spec);
        assert_eq!((settings.jobs(), settings.file_bytes(4, Clock::Wall)), (20, (10 + 256) << 10));
        assert_eq!(settings.directories, [PathBuf::from("/mnt/a")]);
        // An explicit option counts first; then the workfile, then the config file.
        let settings = good(&[("config", config), ("mix", "dbase"), ("jobs", "5"), ("users", "1,2"), ("scale", "1")]);
        assert_eq!(settings.load, Load::List(vec![1, 2]));
        assert_eq!((settings.jobs(), settings.file_bytes(1, Clock::Wall)), (5, 26 << 20));
    }

    #[test]
    fn sizes_of_files_are_scaled_and_said_ones_are_not() {
        let bytes = |settings: &[(&str, &str)], users, clock| good(settings).file_bytes(users, clock);
        assert_eq!(bytes(&[("mix", "dbase")], 5, Clock::Wall), 6 << 20);
        // 1024 and 25600 KiB, a fiftieth each: 20 + 512 / 8.
        assert_eq!(bytes(&[("mix", "dbase")], 8, Clock::Exact), (20 + 64) << 10);
        let said = [("mix", "dbase"), ("filesize", "1M"), ("poolsize", "0K")];
        assert_eq!(bytes(&said, 8, Clock::Exact), 1 << 20);
        assert_eq!(bytes(&[("mix", "aim9"), ("mode", "single")], 1, Clock::Wall), 5 << 20);
        assert!(refused(&[("filesize", "0K"), ("poolsize", "0K")]).contains("are both 0"));
        assert!(refused(&[("filesize", "10")]).starts_with("`multiuser.filesize` cannot be `10`; write kilobytes"));
    }

    #[test]
    fn bad_values_are_refused_with_what_is_right() {
        assert!(refused(&[("jobs", "0")]).contains("it can be `auto`, or a number from 1 to"));
        assert!(refused(&[("scale", "0")]).contains("from 1 to 1000000"));
        assert!(refused(&[("period", "10")]).contains("such as `20ms` or `10s`"));
        assert!(refused(&[("mode", "aim7")]).contains("it can be `multi` or `single`"));
        assert!(refused(&[("mix", "dbasee")]).contains("did you mean `dbase`?"));
        assert!(refused(&[("diskdir", "/a,,/b")]).contains("single commas"));
        assert!(refused(&[("crossover", "maybe")]).contains("jobs per minute such as 10"));
        assert_eq!(good(&[("period", "5s")]).period(Clock::Exact), Duration::from_secs(5));
    }
}
