//! The parsed options that all replays of loadfiles share.

use std::sync::Arc;
use std::time::Duration;

use super::{DEFAULT, Loadfile, Size, of};
use bigiron_workload::length::{A_LENGTH, Length};
use bigiron_workload::silence::{BESIDE_LOAD, EMULATED_SECOND};
use bigiron_workload::units;
use bigiron_workload::{ByClock, OptionDef, OptionReader, option};

/// Limits of the number of clients, and of the requests of a generated pass.
const CLIENTS: std::ops::RangeInclusive<usize> = 1..=10_000;
const REQUESTS: std::ops::RangeInclusive<u32> = 200..=1_000_000;
/// Maximum CPU time before a request.
const MOST_WORK: Duration = Duration::from_secs(1);
/// Default passes: measured, and before that.
const PASSES: (u32, u32) = (2, 1);
const TIMES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(2));

/// The clients.
pub const CLIENTS_OPTION: OptionDef = option("clients", "4", "Clients, each of which replays the loadfile");
/// Their requests.
pub const LOADFILE: OptionDef =
    option("loadfile", DEFAULT, "The requests of each client: the path of a dbench 4 loadfile, or `generated`");
pub const REQUESTS_OPTION: OptionDef = option("requests", "4000", "Requests of a generated loadfile, 200 to 1000000");
pub const SEED: OptionDef =
    option("loadfile-seed", "1", "Seed of the generated loadfile, which is the same in every trial of a study");
/// Their own work.
pub const WORK: OptionDef =
    option("work", "0", "CPU time of a client's own work before each request, such as `5us`, up to 1s");
/// Their duration.
pub const WARM_UP: OptionDef = option(
    "warmup",
    "auto",
    "Unmeasured part before the window: `1` pass, `5s`, or `auto`: 2 s on the wall clock, else 1 pass",
);
pub const LENGTH: OptionDef = option(
    "length",
    "auto",
    "Measured part: `3` passes of each client, `30s`, or `auto`: 10 s on the wall clock, else 2 passes",
);

/// Time of a request at most, on average: some wait for a disk.
const REQUEST: Duration = Duration::from_millis(5);
const EMULATED_REQUEST: Duration = Duration::from_millis(20);

/// The settings of a replay.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the loadfile.
    pub name: String,
    pub file: Arc<Loadfile>,
    pub clients: usize,
    /// CPU time of a client's own work before each request.
    pub work: Duration,
    pub warm_up: Length,
    pub length: Length,
}

impl Settings {
    /// The longest time without progress.
    pub fn silence(&self) -> Duration {
        BESIDE_LOAD + self.longest(REQUEST, 1)
    }

    /// The same in CPU time of an emulated guest, beyond what every step may take.
    pub fn guest_silence(&self) -> Duration {
        self.longest(EMULATED_REQUEST, EMULATED_SECOND)
    }

    /// If a request takes up to `request` of all of the machine, and a second of a length of time `second`.
    fn longest(&self, request: Duration, second: u32) -> Duration {
        let pass = (request + self.work).saturating_mul((self.clients * self.file.requests.len()) as u32);
        let part = |length| match length {
            Length::Passes(n) => pass.saturating_mul(n),
            Length::Time(time) => time.saturating_mul(second),
        };
        part(self.warm_up).saturating_add(part(self.length))
    }

    /// Parses the options of a replay's workload.
    ///
    /// # Errors
    /// The fault, and what would be right.
    pub fn parse(read: &OptionReader<'_>) -> Result<ByClock<Self>, String> {
        let text = |def: &OptionDef| read.text(def.name);
        let wrong = |def: &OptionDef, right: &str| read.wrong(def.name, right);
        let clients = text(&CLIENTS_OPTION).parse().ok().filter(|n| CLIENTS.contains(n));
        let clients = clients.ok_or_else(|| wrong(&CLIENTS_OPTION, "1 to 10000"))?;
        let requests = text(&REQUESTS_OPTION).parse().ok().filter(|n| REQUESTS.contains(n));
        let requests = requests.ok_or_else(|| wrong(&REQUESTS_OPTION, "200 to 1000000"))?;
        let seed = text(&SEED).parse().map_err(|_| wrong(&SEED, "a whole number"))?;
        let work = units::duration(text(&WORK)).filter(|t| *t <= MOST_WORK);
        let work = work.ok_or_else(|| wrong(&WORK, "a time such as `5us`, up to 1s, or `0`"))?;
        let part =
            |def: &OptionDef, passes, time| Length::parse(text(def), passes, time).ok_or_else(|| wrong(def, A_LENGTH));
        let length = part(&LENGTH, PASSES.0, TIMES.0)?;
        if length.other.is_nothing() {
            return Err(wrong(&LENGTH, "at least 1 pass, or a time"));
        }
        let warm_up = part(&WARM_UP, PASSES.1, TIMES.1)?;
        let (name, file) = of(read.options, Size { requests, seed })?;
        // The text of `loadfile` is a whole file: the message cannot repeat it.
        let is_set = |def: &&OptionDef| !read.is_default(def.name);
        if let Some(def) = [&REQUESTS_OPTION, &SEED].into_iter().find(|def| name != DEFAULT && is_set(def)) {
            let (workload, option) = (read.workload, def.name);
            return Err(format!(
                "`{workload}.{option}` has no effect with `{workload}.{}`, whose requests are all replayed; omit it",
                LOADFILE.name
            ));
        }
        if file.bytes() == (0, 0) {
            return Err(format!(
                "The loadfile `{name}` reads and writes nothing, so it has no throughput; at least one ReadX or WriteX must succeed"
            ));
        }
        ByClock::read(|clock| {
            let (name, file) = (name.clone(), Arc::clone(&file));
            Ok(Self { name, file, clients, work, warm_up: *warm_up.on(clock), length: *length.on(clock) })
        })
    }
}
