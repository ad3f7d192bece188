//! The levers `multiuser.NAME`, and what they ask for together.
//!
//! Invariant: [`Settings`] that exist can be run, as far as that can be told without a machine.

use std::path::PathBuf;
use std::time::Duration;

use super::mixes::{self, Mix};
use super::ramp::Spec;
use super::rates;
use super::work::Scale;
use super::workfile;
use crate::clock::Clock;
use crate::workload::{OptionDef, Options};

/// What an option is when a config file, the workfile or the clock decides.
pub const AUTO: &str = "auto";
pub const NONE: &str = "none";

const fn option(
    name: &'static str,
    default: &'static str,
    allowed: &'static [&'static str],
    summary: &'static str,
) -> OptionDef {
    OptionDef { name, default, allowed, summary }
}

/// The options, as levers `multiuser.NAME`.
pub const OPTIONS: &[OptionDef] = &[
    option(
        "mix",
        "new_dbase",
        &[],
        "Tests and their weights: a shipped mix, a ReAIM workfile, or tests separated by commas",
    ),
    option("config", NONE, &[], "A ReAIM config file, or `none`"),
    option("mode", "multi", &["multi", "single"], "Many users at a time, or one process with one test after the other"),
    option(
        "users",
        "config",
        &[],
        "Load points: a list `1,2,4,8`, `A..B:STEP`, `auto` (a ramp), or `config`: the config file's ramp if it has one, else 1,2,4,8",
    ),
    option("start", AUTO, &[], "Users of a ramp's first point; `auto`: the config file's, else as many as CPUs"),
    option("end", AUTO, &[], "Most users of a ramp, or `none`; `auto`: the config file's, else none"),
    option(
        "increment",
        AUTO,
        &[],
        "Users from one point of a ramp to the next; `auto`: the config file's, else as many as CPUs",
    ),
    option("adaptive", "on", &["on", "off"], "Whether a ramp's increment follows what its points took"),
    option(
        "crossover",
        AUTO,
        &[],
        "A ramp ends at so many jobs per minute for each user; `on` is 1, `off` never; `auto`: the config file's, else off",
    ),
    option("quick", "off", &["off", "on"], "The crossover of 60 jobs per minute for each user"),
    option(
        "guess-peak",
        AUTO,
        &["auto", "on", "off"],
        "A ramp ends when its rate falls or rises no more; `auto`: if nothing else ends it",
    ),
    option("jobs", AUTO, &[], "Tests that each user runs, about; `auto`: the config file's, else 100"),
    option(
        "filesize",
        AUTO,
        &[],
        "Bytes of each user's file, `10K`, whatever the users; `auto`: the workfile's, else the config file's, else 10K",
    ),
    option(
        "poolsize",
        AUTO,
        &[],
        "Bytes that all users' files share besides; `auto`: the workfile's, else the config file's",
    ),
    option(
        "diskdir",
        AUTO,
        &[],
        "Directories, separated by commas, one of which each user works in; `auto`: the config file's, else the trial's own",
    ),
    option(
        "scale",
        AUTO,
        &[],
        "Divides the loops of each test, and the file sizes of workfile and config file; `auto`: 1 on the wall clock, else 50",
    ),
    option(
        "sync",
        "on",
        &["on", "off"],
        "Whether the disk tests call `sync`, which writes to every disk of the machine",
    ),
    option(
        "period",
        AUTO,
        &[],
        "How long each test is repeated in single mode; `auto`: 10s on the wall clock, else 20ms",
    ),
];

/// The ancestor's sizes where nothing else is said.
const FILE_KIB: u64 = 10;
const POOL_KIB: u64 = 1024;

/// The kernel's own limit of process numbers (`PID_MAX_LIMIT`), less those that are never given out.
const MOST_USERS: u32 = (1 << 22) - 301;
const MOST_JOBS: u32 = 1_000_000;
const MOST_SCALE: u64 = 1_000_000;
/// The documented threshold of a crossover, and that of a quick one, in jobs per minute for each user.
const CROSSOVER: f64 = 1.0;
const QUICK: f64 = 60.0;

/// Load points where nothing is said.
const USERS: [u32; 4] = [1, 2, 4, 8];

/// What is asked for.
#[derive(Clone)]
pub struct Settings {
    pub mix: Mix,
    pub mode: Mode,
    pub load: Load,
    jobs: Option<u32>,
    file: Size,
    pool: Size,
    /// Besides the trial's own, which is meant where there are none.
    pub directories: Vec<PathBuf>,
    scale: Option<u64>,
    pub syncs: bool,
    period: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Multi,
    Single,
}

/// The load points.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    List(Vec<u32>),
    Ramp(Climb),
}

/// A ramp whose beginning may be the machine's number of CPUs.
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

/// A size in KiB; what an option says is not scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    kib: u64,
    said: bool,
}

impl Settings {
    /// Reads complete options; the error says what would be right.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let get = |name: &str| {
            let default = || OPTIONS.iter().find(|o| o.name == name).map_or("", |o| o.default);
            options.get(name).map_or_else(default, String::as_str)
        };
        let mix = Mix::of(get("mix")).map_err(|e| e.to_string())?;
        let config = mixes::config(get("config")).map_err(|e| e.to_string())?;
        let count = |name: &str, most: u32| number(name, get(name), most);
        let size = |name: &str, workfile: Option<u64>, config: Option<u64>, default: u64| match get(name) {
            AUTO => Ok(Size { kib: workfile.or(config).unwrap_or(default), said: false }),
            text => match workfile::size(text) {
                Ok(kib) => Ok(Size { kib, said: true }),
                Err(e) => Err(format!("`multiuser.{name}` {e}")),
            },
        };
        // A mix that says how long files are and nothing of a pool has none.
        let pool_default = if mix.file.file_kib.is_some() { 0 } else { POOL_KIB };
        let (file, pool) = (
            size("filesize", mix.file.file_kib, config.file_kib, FILE_KIB)?,
            size("poolsize", mix.file.pool_kib, config.pool_kib, pool_default)?,
        );
        if (file.kib, pool.kib) == (0, 0) {
            return Err(
                "`multiuser.filesize` and `multiuser.poolsize` are both 0; one has to be at least 1K".to_owned()
            );
        }
        let climb = || -> Result<Climb, String> {
            let crossover = match (get("crossover"), get("quick")) {
                (AUTO | "off", "on") => Some(QUICK),
                (_, "on") => return Err("`multiuser.quick` is a crossover of 60; give one of both".to_owned()),
                (AUTO, _) => config.crossover.unwrap_or(false).then_some(CROSSOVER),
                ("off", _) => None,
                ("on", _) => Some(CROSSOVER),
                (text, _) => Some(text.parse().ok().filter(|n| (1e-3..=1e9).contains(n)).ok_or_else(|| {
                    format!(
                        "`multiuser.crossover` cannot be `{text}`; it can be `on`, `off`, or jobs per minute such as 10"
                    )
                })?),
            };
            let end = match get("end") {
                NONE => None,
                AUTO => config.end,
                _ => count("end", MOST_USERS)?,
            };
            let (start, increment) = (count("start", MOST_USERS)?, count("increment", MOST_USERS)?);
            let guess_peak = match get("guess-peak") {
                AUTO => crossover.is_none() && end.is_none(),
                word => word == "on",
            };
            if !guess_peak && crossover.is_none() && end.is_none() {
                return Err(
                    "The ramp has no end; give `multiuser.end`, `multiuser.crossover` or `multiuser.guess-peak`"
                        .to_owned(),
                );
            }
            let (start, increment) = (start.or(config.start), increment.or(config.increment));
            if let (Some(start), Some(end)) = (start, end)
                && start > end
            {
                return Err(format!("`multiuser.start` of {start} are more users than `multiuser.end` of {end}"));
            }
            Ok(Climb { start, increment, end, adaptive: get("adaptive") == "on", crossover, guess_peak })
        };
        let ramps = config.start.is_some() || config.end.is_some() || config.increment.is_some();
        let of_ramps = [
            ("start", AUTO),
            ("end", AUTO),
            ("increment", AUTO),
            ("crossover", AUTO),
            ("quick", "off"),
            ("guess-peak", AUTO),
        ];
        let said = of_ramps.into_iter().any(|(name, default)| ![default, "off"].contains(&get(name)));
        let load = match get("users") {
            "config" if ramps || said => Load::Ramp(climb()?),
            "config" => Load::List(USERS.to_vec()),
            AUTO => Load::Ramp(climb()?),
            text if said => {
                return Err(format!(
                    "`multiuser.users={text}` is no ramp, and has neither `start`, `end`, `increment` nor a crossover or a guess of its peak; say `auto`"
                ));
            }
            text => Load::List(list(text)?),
        };
        let scale = match get("scale") {
            AUTO => None,
            text => Some(text.parse().ok().filter(|n| (1..=MOST_SCALE).contains(n)).ok_or_else(|| {
                format!(
                    "`multiuser.scale` cannot be `{text}`; it can be `auto` or a whole number from 1 to {MOST_SCALE}"
                )
            })?),
        };
        let directories = match get("diskdir") {
            AUTO => config.directories.clone(),
            text => text.split(',').map(|d| PathBuf::from(d.trim())).collect(),
        };
        if directories.iter().any(|d| d.as_os_str().is_empty()) {
            return Err("`multiuser.diskdir` has an empty name; separate directories by single commas".to_owned());
        }
        Ok(Self {
            mode: if get("mode") == "single" { Mode::Single } else { Mode::Multi },
            load,
            jobs: count("jobs", MOST_JOBS)?.or(config.jobs),
            file,
            pool,
            directories,
            scale,
            syncs: get("sync") == "on",
            period: period(get("period"))?,
            mix,
        })
    }

    /// What divides the tests' loops.
    pub fn divisor(&self, clock: Clock) -> u64 {
        self.scale.unwrap_or(match clock {
            Clock::Wall => 1,
            // Emulated instructions: some seconds of the host's time for all load points.
            Clock::Exact | Clock::None => 50,
        })
    }

    pub fn scale(&self, clock: Clock) -> Scale {
        Scale::divided_by(self.divisor(clock))
    }

    /// Tests that each user runs, before rounding.
    pub fn jobs(&self) -> u32 {
        self.jobs.unwrap_or(100)
    }

    /// Bytes of a user's file with `users` side by side; with one in single mode, which has no pool.
    pub fn file_bytes(&self, users: u32, clock: Clock) -> u64 {
        let scaled = |size: Size| if size.said { size.kib } else { size.kib / self.divisor(clock) };
        let pool = match self.mode {
            Mode::Multi => scaled(self.pool),
            Mode::Single => 0,
        };
        rates::file_kib(scaled(self.file), pool, users).max(1) * 1024
    }

    /// Whether files change with the number of users.
    pub fn has_pool(&self) -> bool {
        self.mode == Mode::Multi && self.pool.kib > 0
    }

    /// How long single mode repeats each test.
    pub fn period(&self, clock: Clock) -> Duration {
        self.period.unwrap_or(match clock {
            Clock::Wall => Duration::from_secs(10),
            Clock::Exact | Clock::None => Duration::from_millis(20),
        })
    }

    /// The most users that are known to come, and whether there may be more.
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

/// `auto`, or a whole number from 1.
fn number(name: &str, text: &str, most: u32) -> Result<Option<u32>, String> {
    match text.parse() {
        _ if text == AUTO => Ok(None),
        Ok(n) if (1..=most).contains(&n) => Ok(Some(n)),
        _ => Err(format!("`multiuser.{name}` cannot be `{text}`; it can be `auto` or a whole number from 1 to {most}")),
    }
}

/// `1,2,4,8` or `A..B:STEP`.
fn list(text: &str) -> Result<Vec<u32>, String> {
    let wrong = || {
        format!(
            "`multiuser.users` cannot be `{text}`; it can be a rising list such as `1,2,4,8`, `10..50:10`, `auto` or `config`"
        )
    };
    let count = |text: &str| -> Result<u32, String> {
        let n: u32 = text.trim().parse().map_err(|_| wrong())?;
        if n > MOST_USERS {
            return Err(format!(
                "`multiuser.users` cannot be {n}: each is a process, and the kernel numbers {MOST_USERS} at most"
            ));
        }
        Ok(n)
    };
    let users = match text.split_once("..").map(|(from, rest)| (from, rest.split_once(':').unwrap_or((rest, "1")))) {
        Some((from, (to, step))) => {
            let (from, to, step) = (count(from)?, count(to)?, count(step)?);
            (from..=to).step_by(step.max(1) as usize).collect()
        }
        None => text.split(',').map(count).collect::<Result<Vec<_>, _>>()?,
    };
    let rises = users.windows(2).all(|two| two[0] < two[1]);
    if rises && users.first().is_some_and(|n| *n > 0) { Ok(users) } else { Err(wrong()) }
}

/// `20ms`, `10s`.
fn period(text: &str) -> Result<Option<Duration>, String> {
    if text == AUTO {
        return Ok(None);
    }
    let wrong = || format!("`multiuser.period` cannot be `{text}`; write one such as `20ms` or `10s`");
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let n: u64 = digits.parse().map_err(|_| wrong())?;
    let period = match unit {
        "ms" => Duration::from_millis(n),
        "s" => Duration::from_secs(n),
        _ => return Err(wrong()),
    };
    if period.is_zero() || period > Duration::from_secs(3600) { Err(wrong()) } else { Ok(Some(period)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload;
    use crate::workload::multiuser::Multiuser;

    fn parse(settings: &[(&str, &str)]) -> Result<Settings, String> {
        let options = workload::options(&Multiuser, settings.iter().copied())?;
        Settings::parse(&options)
    }

    fn good(settings: &[(&str, &str)]) -> Settings {
        parse(settings).map_err(|e| format!("{settings:?}: {e}")).unwrap()
    }

    fn refused(settings: &[(&str, &str)]) -> String {
        parse(settings).err().unwrap_or_else(|| panic!("{settings:?} is taken"))
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
        assert!(refused(&[("users", "4194304")]).contains("the kernel numbers 4194003 at most"));
        assert!(refused(&[("users", "auto"), ("guess-peak", "off")]).starts_with("The ramp has no end; give"));
        assert!(refused(&[("users", "1,2"), ("start", "2")]).contains("is no ramp"));
        assert!(refused(&[("users", "auto"), ("quick", "on"), ("crossover", "3")]).contains("give one of both"));
        assert!(refused(&[("start", "5"), ("end", "2")]).contains("of 5 are more users than"));
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
        // What is said beside it counts; the workfile comes between.
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
        assert!(refused(&[("jobs", "0")]).contains("it can be `auto` or a whole number from 1 to"));
        assert!(refused(&[("scale", "0")]).contains("from 1 to 1000000"));
        assert!(refused(&[("period", "10")]).contains("such as `20ms` or `10s`"));
        assert!(refused(&[("mode", "aim7")]).contains("it can be multi, single"));
        assert!(refused(&[("mix", "dbasee")]).contains("did you mean `dbase`?"));
        assert!(refused(&[("diskdir", "/a,,/b")]).contains("single commas"));
        assert!(refused(&[("crossover", "maybe")]).contains("jobs per minute such as 10"));
        assert_eq!(good(&[("period", "5s")]).period(Clock::Exact), Duration::from_secs(5));
    }
}
