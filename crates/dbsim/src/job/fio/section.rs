//! Converts one job of a fio job file to a class of plain requests.
//!
//! Invariant: every option is either expressed or refused; none is ignored. Options that only change fio's output are listed as
//! such here.

use std::time::Duration;

use super::ini::{Section, Setting};
use crate::job::{Choice, ClassKind, ClassSpec, Engine, Length, Method, RequestSpec};
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;
use bigiron_workload::units;
use bigiron_workload::units::Pace;

/// Options that only change fio's output.
const REPORTING: &[&str] =
    &["group_reporting", "percentile_list", "clat_percentiles", "lat_percentiles", "slat_percentiles", "description"];

/// The properties of a fio job besides its class.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    pub class: ClassSpec,
    /// Bytes of each file.
    pub size: u64,
    /// The file that all its processes share; `None` if each has its own.
    pub file: Option<String>,
    pub directory: Option<String>,
    /// The window, if the job gives one.
    pub time: Option<Duration>,
    pub ramp: Duration,
    /// Notes for readers of the dbsim job.
    pub notes: Vec<String>,
}

/// Options collected so far.
struct Draft {
    engine: Method,
    depth: usize,
    submit: Option<usize>,
    fixed_buffers: bool,
    fixed_files: bool,
    sqpoll: bool,
    iopoll: bool,
    count: usize,
    threads: bool,
    random: bool,
    mixed: bool,
    read_percent: u32,
    mix_percent: u32,
    bytes: u64,
    direct: bool,
    dsync: bool,
    fdatasync: u32,
    verify: bool,
    choice: Choice,
    map: bool,
    size: Option<u64>,
    time_based: bool,
    runtime: Option<Duration>,
    ramp: Duration,
    loops: u64,
    rate: Option<f64>,
    poisson: bool,
    think: Duration,
    file: Option<String>,
    directory: Option<String>,
    notes: Vec<String>,
}

/// Converts a fio job to a class of plain requests called `name`.
pub fn import(section: &Section, name: String) -> Result<Imported, Refusal> {
    let mut draft = Draft {
        engine: Method::Sync,
        depth: 1,
        submit: None,
        fixed_buffers: false,
        fixed_files: false,
        sqpoll: false,
        iopoll: false,
        count: 1,
        threads: false,
        random: false,
        mixed: false,
        read_percent: 100,
        mix_percent: 50,
        bytes: 4096,
        direct: false,
        dsync: false,
        fdatasync: 0,
        verify: false,
        choice: Choice::Uniform,
        map: true,
        size: None,
        time_based: false,
        runtime: None,
        ramp: Duration::ZERO,
        loops: 1,
        rate: None,
        poisson: false,
        think: Duration::ZERO,
        file: None,
        directory: None,
        notes: Vec::new(),
    };
    for setting in &section.settings {
        draft.take(setting)?;
    }
    draft.finish(section, name)
}

impl Draft {
    fn take(&mut self, s: &Setting) -> Result<(), Refusal> {
        match s.name.as_str() {
            "ioengine" => {
                self.engine = match word(s)? {
                    "psync" => Method::Sync,
                    "pvsync" | "pvsync2" => Method::Vectored,
                    "posixaio" => Method::Threads,
                    "libaio" => Method::Libaio,
                    "io_uring" => Method::Uring,
                    "null" => Method::Null,
                    "sync" | "vsync" => {
                        return Err(s.refuse("It seeks before each request, which no dbsim engine does; use `psync`"));
                    }
                    other => {
                        return Err(s.refuse(format!(
                            "dbsim has no engine like `{other}`; it has equivalents of `psync`, `pvsync2`, `posixaio`, `libaio`, `io_uring` and `null`"
                        )));
                    }
                }
            }
            "rw" | "readwrite" => {
                (self.random, self.mixed, self.read_percent) = match word(s)? {
                    "read" => (false, false, 100),
                    "write" => (false, false, 0),
                    "randread" => (true, false, 100),
                    "randwrite" => (true, false, 0),
                    "rw" | "readwrite" => (false, true, 50),
                    "randrw" => (true, true, 50),
                    other => {
                        return Err(s.refuse(format!(
                            "dbsim does not support `{other}`; it supports read, write, randread, randwrite, rw and randrw"
                        )));
                    }
                }
            }
            "rwmixread" => self.mix_percent = percent(s)?,
            "rwmixwrite" => self.mix_percent = 100 - percent(s)?,
            "bs" | "blocksize" => self.bytes = bytes(s)?,
            "direct" => self.direct = flag(s)?,
            "buffered" => self.direct = !flag(s)?,
            "iodepth" => self.depth = number(s)? as usize,
            "iodepth_batch" | "iodepth_batch_submit" => self.submit = Some(number(s)? as usize),
            "fixedbufs" => self.fixed_buffers = flag(s)?,
            "registerfiles" => self.fixed_files = flag(s)?,
            "sqthread_poll" => self.sqpoll = flag(s)?,
            "hipri" => self.iopoll = flag(s)?,
            "numjobs" => self.count = number(s)? as usize,
            "thread" => self.threads = flag(s)?,
            "size" | "filesize" => self.size = Some(bytes(s)?),
            "nrfiles" if number(s)? == 1 => {}
            "filename" => self.file = Some(path(s)?),
            "directory" => self.directory = Some(path(s)?),
            "fdatasync" => self.fdatasync = number(s)? as u32,
            "sync" => {
                self.dsync = match word(s)? {
                    "0" | "none" => false,
                    "dsync" => true,
                    _ => {
                        return Err(s.refuse(
                            "Plain requests of dbsim can be durable only as with O_DSYNC; write `sync=dsync`",
                        ));
                    }
                }
            }
            "fsync" => {
                if number(s)? > 0 {
                    return Err(s.refuse("Plain requests of dbsim are synced with fdatasync; write `fdatasync=N`"));
                }
            }
            "time_based" => self.time_based = flag(s)?,
            "runtime" => self.runtime = Some(seconds(s)?),
            "ramp_time" => self.ramp = seconds(s)?,
            "loops" => self.loops = number(s)?,
            "rate_iops" => self.rate = Some(number(s)? as f64),
            "rate_process" => {
                self.poisson = match word(s)? {
                    "linear" => false,
                    "poisson" => true,
                    other => {
                        return Err(s.refuse(format!("dbsim knows `linear` and `poisson` arrivals, not `{other}`")));
                    }
                }
            }
            "thinktime" => self.think = microseconds(s)?,
            "norandommap" => self.map = !flag(s)?,
            "random_distribution" => self.distribution(s)?,
            "verify" => match word(s)? {
                "crc32c" | "crc32c-intel" => self.verify = true,
                "0" | "null" => {}
                _ => return Err(s.refuse("dbsim verifies with CRC-32C; write `verify=crc32c`")),
            },
            "invalidate" if flag(s)? => {}
            "invalidate" => {
                return Err(s.refuse("dbsim starts without its files in the page cache; omit the option"));
            }
            "randrepeat" | "randseed" => {
                let value = s.value.as_deref().unwrap_or("1");
                self.notes.push(format!("{}={value}: dbsim draws from the seed of the run, `--seed N`", s.name));
            }
            name if REPORTING.contains(&name) => {
                self.notes.push(format!("{name} changes only fio's output"));
            }
            "stonewall" | "wait_for" => {
                return Err(s.refuse("All processes of a dbsim job run at the same time; split it into two jobs"));
            }
            "nrfiles" => {
                return Err(
                    s.refuse("A process of a dbsim job works on one file; write `nrfiles=1`, or more `numjobs`")
                );
            }
            "bsrange" | "bssplit" => return Err(s.refuse("Requests of a dbsim class have one size; write `bs`")),
            name => {
                let known = KNOWN.iter().chain(REPORTING).copied();
                return Err(s.refuse(match suggest::nearest(name, known) {
                    Some(near) => format!("No dbsim job can express it; did you mean `{near}`?"),
                    None => "No dbsim job can express it; omit it if the comparison does not need it".to_owned(),
                }));
            }
        }
        Ok(())
    }

    fn distribution(&mut self, s: &Setting) -> Result<(), Refusal> {
        let word = word(s)?;
        let wrong = || s.refuse("dbsim draws `random`, or `zipf:THETA` with a THETA from 0.01 to 4");
        match word.split_once(':') {
            None if word == "random" => {}
            Some(("zipf", _)) => {
                self.choice = word.parse().map_err(|_: String| wrong())?;
                self.map = false;
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    fn finish(self, section: &Section, name: String) -> Result<Imported, Refusal> {
        let refuse = |option: &str, why: String| {
            let setting = section.settings.iter().find(|s| s.name == option);
            let place = setting.map_or(&section.place, |s| &s.place).clone();
            Refusal::new(format!("Job `{}`: {why}", section.name)).at(Some(place))
        };
        let Some(size) = self.size else {
            return Err(refuse("size", "dbsim creates the files itself; set their size with `size`".to_owned()));
        };
        if !size.is_multiple_of(1 << 20) {
            return Err(refuse(
                "size",
                "Files of a dbsim job must be whole MiB; make `size` a multiple of 1m".to_owned(),
            ));
        }
        if self.random && self.map {
            let why = "By default fio visits each place once, but dbsim draws with repetition; add `norandommap`";
            return Err(refuse("rw", why.to_owned()));
        }
        if self.depth > 1 && matches!(self.engine, Method::Sync | Method::Vectored) {
            let why = format!("`iodepth` {} has no effect with a blocking engine; omit it", self.depth);
            return Err(refuse("iodepth", why));
        }
        if self.fixed_buffers != self.fixed_files {
            let why =
                "dbsim registers buffers and files together; use both `fixedbufs` and `registerfiles`, or neither";
            return Err(refuse(if self.fixed_files { "registerfiles" } else { "fixedbufs" }, why.to_owned()));
        }
        if self.runtime.is_some() != self.time_based {
            let why = "With only one of `runtime` and `time_based` fio also ends by its `size`; use both, or neither";
            return Err(refuse(if self.time_based { "time_based" } else { "runtime" }, why.to_owned()));
        }
        if self.file.is_none() && self.count > 1 && (self.random || self.runtime.is_some() || self.loops > 1) {
            let why = "Each of fio's `numjobs` uses its own file, but processes of a dbsim class use all files; set `filename`";
            return Err(refuse("numjobs", why.to_owned()));
        }
        let pace = match self.rate {
            Some(_) if !self.think.is_zero() => {
                return Err(refuse("thinktime", "A pace is a rate or a think time, not both".to_owned()));
            }
            Some(rate) => Pace::Open { per_second: rate * self.count as f64, poisson: self.poisson },
            None => Pace::Closed { think: self.think },
        };
        let total = (size / self.bytes).max(1) * self.count as u64 * self.loops;
        let requests = RequestSpec {
            engine: Engine {
                method: self.engine,
                depth: self.depth,
                batch: self.submit.unwrap_or(1),
                registered: self.fixed_buffers,
                sqpoll: self.sqpoll,
                iopoll: self.iopoll,
            },
            bytes: self.bytes as usize,
            random: self.random,
            choice: self.choice,
            files: None,
            read_percent: if self.mixed { self.mix_percent } else { self.read_percent },
            direct: self.direct,
            dsync: self.dsync,
            fdatasync_every: self.fdatasync,
            verify: self.verify,
            count: self.runtime.is_none().then_some(total),
        };
        Ok(Imported {
            class: ClassSpec {
                name,
                count: self.count,
                threads: self.threads,
                pace,
                kind: ClassKind::Requests(requests),
            },
            size,
            file: self.file,
            directory: self.directory,
            time: self.runtime,
            ramp: self.ramp,
            notes: self.notes,
        })
    }
}

impl Imported {
    /// The window as a dbsim job gives it.
    pub fn length(&self) -> Length {
        self.time.map_or(Length::Auto, Length::Time)
    }
}

/// Known names, for near misses.
const KNOWN: &[&str] = &[
    "ioengine",
    "rw",
    "readwrite",
    "rwmixread",
    "rwmixwrite",
    "bs",
    "blocksize",
    "direct",
    "buffered",
    "iodepth",
    "iodepth_batch",
    "iodepth_batch_submit",
    "fixedbufs",
    "registerfiles",
    "sqthread_poll",
    "hipri",
    "numjobs",
    "thread",
    "size",
    "filesize",
    "nrfiles",
    "filename",
    "directory",
    "fdatasync",
    "sync",
    "fsync",
    "time_based",
    "runtime",
    "ramp_time",
    "loops",
    "rate_iops",
    "rate_process",
    "thinktime",
    "norandommap",
    "random_distribution",
    "verify",
    "invalidate",
    "randrepeat",
    "randseed",
];

fn word(s: &Setting) -> Result<&str, Refusal> {
    s.value.as_deref().filter(|v| !v.is_empty()).ok_or_else(|| s.refuse("It has no value"))
}

fn path(s: &Setting) -> Result<String, Refusal> {
    let path = word(s)?;
    if path.contains(':') {
        return Err(s.refuse("A process of a dbsim job works on one file, not on a list"));
    }
    if path.starts_with("/dev/") {
        return Err(s.refuse(
            "A dbsim job on a device must allow the loss of its contents; name a file here, and then set `places` and `overwrite` in the job",
        ));
    }
    Ok(path.to_owned())
}

fn number(s: &Setting) -> Result<u64, Refusal> {
    word(s)?.parse().ok().filter(|n| *n <= 1_000_000_000).ok_or_else(|| s.refuse("It must be a number here"))
}

/// Without a value an option is on.
fn flag(s: &Setting) -> Result<bool, Refusal> {
    match s.value.as_deref() {
        None | Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        Some(_) => Err(s.refuse("It can be 0 or 1")),
    }
}

fn percent(s: &Setting) -> Result<u32, Refusal> {
    units::percent(word(s)?).ok_or_else(|| s.refuse("It must be a share from 0 to 100"))
}

/// `4k`, `1m`, `2gib`; units are powers of 1024, as fio's are by default.
fn bytes(s: &Setting) -> Result<u64, Refusal> {
    let text = word(s)?;
    if text.contains([',', '-', '%']) {
        return Err(s.refuse("It must be one size here, such as `8k`, for reads and writes alike"));
    }
    bigiron_model::size::parse_bytes(text)
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| s.refuse("It must be a size, such as `8k`"))
}

/// Seconds, unless a unit is given.
fn seconds(s: &Setting) -> Result<Duration, Refusal> {
    let text = word(s)?;
    let time = text.parse().ok().map(Duration::from_secs).or_else(|| units::duration(text));
    time.ok_or_else(|| s.refuse("It must be a time, such as `30` or `30s`"))
}

/// Microseconds, unless a unit is given.
fn microseconds(s: &Setting) -> Result<Duration, Refusal> {
    let text = word(s)?;
    let time = text.parse().ok().map(Duration::from_micros).or_else(|| units::duration(text));
    time.ok_or_else(|| s.refuse("It must be a time, such as `100` or `100us`"))
}
