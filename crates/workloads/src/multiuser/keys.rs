//! The keys of multiuser, and the forms of their values.
//!
//! Invariant: each value is valid by itself; combinations are checked elsewhere.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use super::config_file::ConfigFile;
use super::mixes::{self, Mix};
use super::options::Mode;
use super::workfile;
use bigiron_model::document::Value;
use bigiron_model::refusal::Refusal;
use bigiron_workload::OptionDef;
use bigiron_workload::keys::form::{Form, count, or, switch, text, word, words_of};
use bigiron_workload::keys::{Key, key};
use bigiron_workload::units;

/// The value of an option that the config file, the workfile or the clock decides.
const AUTO: &str = "auto";
pub const NONE: &str = "none";

/// The kernel's limit of process numbers (`PID_MAX_LIMIT`), minus the reserved ones.
const MOST_USERS: u32 = (1 << 22) - 301;
const MOST_JOBS: u32 = 1_000_000;
const MOST_SCALE: u64 = 1_000_000;
/// The documented threshold of a crossover, in jobs per minute for each user.
pub const CROSSOVER: f64 = 1.0;

words_of!(Mode: "multi" => Multi, "single" => Single);

/// The settings before their combination is checked; `None` is `auto`.
#[derive(Default)]
pub struct UncheckedSettings {
    pub mix: Mix,
    pub config: ConfigFile,
    pub mode: Mode,
    pub users: Users,
    pub start: Option<u32>,
    pub end: Option<Option<u32>>,
    pub increment: Option<u32>,
    pub adaptive: bool,
    pub crossover: Option<Option<f64>>,
    pub quick: bool,
    pub guess_peak: Option<bool>,
    pub jobs: Option<u32>,
    pub filesize: Option<u64>,
    pub poolsize: Option<u64>,
    pub diskdir: Option<Vec<PathBuf>>,
    pub scale: Option<u64>,
    pub syncs: bool,
    pub period: Option<Duration>,
}

#[derive(Default)]
pub enum Users {
    #[default]
    Config,
    Auto,
    /// The text, and its users.
    List(String, Vec<u32>),
}

/// The keys; each is an option.
pub const KEYS: &[Key<UncheckedSettings>] = &[
    key!(UncheckedSettings, "mix": mix = "new_dbase", mix(),
        "Tests and their weights: a shipped mix, a ReAIM workfile, or tests separated by commas"),
    key!(UncheckedSettings, "config": config = NONE, config(), "A ReAIM config file, or `none`"),
    key!(UncheckedSettings, "mode": mode = "multi", word::<Mode>(),
        "Many users in parallel, or one process that runs one test after the other"),
    key!(UncheckedSettings, "users": users = "config", users(),
        "Load points: a list `1,2,4,8`, `A..B:STEP`, `auto` (a ramp), or `config`: the config file's ramp if it has one, else 1,2,4,8"),
    key!(UncheckedSettings, "start": start = AUTO, number(MOST_USERS),
        "Users of a ramp's first point; `auto`: the config file's, else as many as CPUs"),
    key!(UncheckedSettings, "end": end = AUTO, or(AUTO, or(NONE, count(1..=MOST_USERS.into()))),
        "Maximum users of a ramp, or `none`; `auto`: the config file's, else none"),
    key!(UncheckedSettings, "increment": increment = AUTO, number(MOST_USERS),
        "Users from one point of a ramp to the next; `auto`: the config file's, else as many as CPUs"),
    key!(UncheckedSettings, "adaptive": adaptive = "on", switch(), "Whether a ramp's increment adapts to the times of its points"),
    key!(UncheckedSettings, "crossover": crossover = AUTO, text("`on`, `off`, or jobs per minute such as 10", crossover),
        "A ramp ends at this many jobs per minute for each user; `on` is 1, `off` never; `auto`: the config file's, else off"),
    key!(UncheckedSettings, "quick": quick = "off", switch(), "The crossover of 60 jobs per minute for each user"),
    key!(UncheckedSettings, "guess-peak": guess_peak = AUTO, or(AUTO, switch()),
        "A ramp ends when its rate falls or no longer rises; `auto`: if nothing else ends it"),
    key!(UncheckedSettings, "jobs": jobs = AUTO, number(MOST_JOBS),
        "Approximate number of tests that each user runs; `auto`: the config file's, else 100"),
    key!(UncheckedSettings, "filesize": filesize = AUTO, kib(),
        "Bytes of each user's file, such as `10K`, for any number of users; `auto`: the workfile's, else the config file's, else 10K"),
    key!(UncheckedSettings, "poolsize": poolsize = AUTO, kib(),
        "Additional bytes divided among all users' files; `auto`: the workfile's, else the config file's"),
    key!(UncheckedSettings, "diskdir": diskdir = AUTO, directories(),
        "Directories, separated by commas, among which the users are distributed; `auto`: the config file's, else the trial's own"),
    key!(UncheckedSettings, "scale": scale = AUTO, or(AUTO, count(1..=MOST_SCALE)),
        "Divides the loops of each test, and the file sizes of workfile and config file; `auto`: 1 on the wall clock, else 50"),
    key!(UncheckedSettings, "sync": syncs = "on", switch(),
        "Whether the disk tests call `sync`, which writes to every disk of the machine"),
    key!(UncheckedSettings, "period": period = AUTO, text("`auto`, or a time such as `20ms` or `10s`", period),
        "How long each test is repeated in single mode; `auto`: 10s on the wall clock, else 20ms"),
];

/// The options, as levers `multiuser.NAME`.
pub static OPTIONS: LazyLock<Vec<OptionDef>> = LazyLock::new(|| KEYS.iter().map(|key| key.option(&[])).collect());

fn mix() -> Form<Mix> {
    Form::new("a mix", |value| Mix::of(&value.string()?), |_| None)
}

fn config() -> Form<ConfigFile> {
    Form::new("`none`, or a config file", |value| mixes::config(&value.string()?), |_| None)
}

fn users() -> Form<Users> {
    let read = |value: &Value| match value.string()?.as_str() {
        "config" => Ok(Users::Config),
        AUTO => Ok(Users::Auto),
        text => list(text, value).map(|users| Users::List(text.to_owned(), users)),
    };
    Form::new(SOME_USERS, read, |_| None)
}

/// `auto`, or a whole number from 1.
fn number(most: u32) -> Form<Option<u32>> {
    or(AUTO, count(1..=most.into()))
}

/// `Some(None)` is none.
fn crossover(text: &str) -> Option<Option<Option<f64>>> {
    match text {
        AUTO => Some(None),
        "off" => Some(Some(None)),
        "on" => Some(Some(Some(CROSSOVER))),
        _ => text.parse().ok().filter(|n| (1e-3..=1e9).contains(n)).map(|n| Some(Some(n))),
    }
}

fn kib() -> Form<Option<u64>> {
    let read = |value: &Value| match value.scalar()?.as_str() {
        AUTO => Ok(None),
        text => workfile::size(text).map(Some).map_err(|e| value.refuse(format!("`{}` {e}", value.key()))),
    };
    Form::new("`auto`, or kilobytes or megabytes, such as `10K` or `25M`", read, |_| None)
}

fn directories() -> Form<Option<Vec<PathBuf>>> {
    let read = |value: &Value| match value.string()?.as_str() {
        AUTO => Ok(None),
        text => match text.split(',').map(|d| PathBuf::from(d.trim())).collect::<Vec<_>>() {
            some if some.iter().all(|d| !d.as_os_str().is_empty()) => Ok(Some(some)),
            _ => {
                let message = format!("`{}` has an empty name; separate directories by single commas", value.key());
                Err(value.refuse(message))
            }
        },
    };
    Form::new("`auto`, or directories separated by commas", read, |_| None)
}

const SOME_USERS: &str = "a rising list such as `1,2,4,8`, `10..50:10`, `auto` or `config`";

/// `1,2,4,8` or `A..B:STEP`.
fn list(text: &str, value: &Value) -> Result<Vec<u32>, Refusal> {
    let wrong = || value.cannot_be(SOME_USERS);
    let count = |text: &str| -> Result<u32, Refusal> {
        let n: u32 = text.trim().parse().map_err(|_| wrong())?;
        if n > MOST_USERS {
            return Err(value.refuse(format!(
                "`{}` cannot be {n}: each is a process, and the kernel has at most {MOST_USERS}",
                value.key()
            )));
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

fn period(text: &str) -> Option<Option<Duration>> {
    let times = Duration::from_millis(1)..=Duration::from_secs(3600);
    if text == AUTO { Some(None) } else { units::duration(text).filter(|time| times.contains(time)).map(Some) }
}
