//! Workloads: the database-like work that a trial runs. A workload knows nothing of hosts: it gets a directory, a clock's name and a seed, and
//! returns metrics.

pub mod acknowledgements;
pub mod by_clock;
pub mod footprint;
pub mod keys;
pub mod length;
pub mod library;
pub mod limits;
pub mod network;
pub mod nightly;
pub mod option_reader;
pub mod registry;
pub mod run_control;
pub mod shortage;
pub mod silence;
pub mod testing;
pub mod units;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};

use bigiron_model::clock::Clock;
use bigiron_model::metric::MetricDef;
use bigiron_model::suggest;
use bigiron_model::workload::{Options, Program, Window};
use bigiron_sys::network::{self as devices, Network};

pub use by_clock::ByClock;
pub use keys::Explanation;
use library::Library;
pub use nightly::NightlyRow;
pub use option_reader::OptionReader;

/// An option of a workload, set as the lever `<workload>.<name>` in a study, on an arm or with `--set`.
#[derive(Clone, Copy, Debug)]
pub struct OptionDef {
    pub name: &'static str,
    pub default: &'static str,
    /// Allowed words; empty if only [`Workload::parse`] checks the value (numbers, sizes).
    pub allowed: &'static [&'static str],
    pub summary: &'static str,
}

/// An option whose value [`Workload::parse`] checks.
pub const fn option(name: &'static str, default: &'static str, summary: &'static str) -> OptionDef {
    OptionDef { name, default, allowed: &[], summary }
}

/// An option that is one of several words; the first is its default.
pub const fn choice(name: &'static str, allowed: &'static [&'static str], summary: &'static str) -> OptionDef {
    OptionDef { name, default: allowed[0], allowed, summary }
}

/// A folder below [`Context::dir`]; files that a workload leaves there are kept with the trial.
pub const ARTIFACTS: &str = "artifacts";

/// The requirements of a workload on the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of file system that it needs under [`Context::dir`], or `None` if it does no file I/O.
    pub storage_bytes: Option<u64>,
    /// Most bytes of memory that it allocates.
    pub memory_bytes: u64,
    /// Kernel modules (any spelling of `-`/`_`) in addition to the file system's and the device's own. A built-in module is fine. A workload that
    /// needs [`bigiron_sys::network::MODULE`] finds a pair of such devices in [`Context::network`].
    pub modules: Vec<&'static str>,
}

impl Needs {
    /// Whether the workload has clients behind network devices.
    pub fn has_network(&self) -> bool {
        self.modules.contains(&devices::MODULE)
    }
}

/// A workload's requirements on raw disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawNeeds {
    /// Number of disks.
    pub count: usize,
    /// Bytes of each disk.
    pub bytes: u64,
}

/// A file-system image of a workload: built once on the host, cached, and given to each guest copy-on-write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its name in [`Context::images`].
    pub name: &'static str,
    /// A raw file system whose length is a multiple of 2 MiB.
    pub path: PathBuf,
    pub filesystem: &'static str,
    pub role: ImageRole,
}

/// How a guest uses an [`Image`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRole {
    /// Mounted read-only.
    Tree,
    /// Replaces the empty file system on the workload's disk; one at most. If the study uses another file system than the image, the image's files
    /// are copied to it.
    Data,
}

/// The inputs of [`Configured::images`].
pub struct ImageContext<'a> {
    /// The file system of the study's guests; `None` on this machine itself, where no image is needed but the trials still have a foundation.
    pub filesystem: Option<&'a str>,
    /// The foundation that an earlier call found and all others must find too; empty for the first call.
    pub foundation: &'a BTreeMap<String, String>,
    /// Tells the user about slow steps.
    pub note: &'a dyn Fn(&str),
}

/// Images and the whole foundation of trials, by name; the plan and each record contain it.
#[derive(Clone, Debug, Default)]
pub struct Images {
    pub images: Vec<Image>,
    pub foundation: BTreeMap<String, String>,
}

/// The environment of a workload's run.
#[derive(Clone)]
pub struct Context<'a> {
    /// The same for all arms of a pair, different for every pair.
    pub seed: u64,
    pub clock: Clock,
    /// An empty directory on the file system under test (exists only if [`Needs::storage_bytes`] is set).
    pub dir: PathBuf,
    /// Mount points of the images from [`Configured::images`], by name; empty outside a guest.
    pub images: &'a BTreeMap<String, PathBuf>,
    /// Raw disks that may be overwritten, for workloads that can use them.
    pub devices: &'a [PathBuf],
    /// The foundation of the plan's trials, see [`Images`]; empty without a plan.
    pub foundation: &'a BTreeMap<String, String>,
    /// CPUs and memory of the machine under test.
    pub cpus: u32,
    pub memory_bytes: u64,
    /// This executable, for starting `bigiron worker …` in multi-process workloads and in `fork+exec`.
    pub executable: PathBuf,
    /// The network that belongs to this trial alone, if any: its namespaces. Without one, a workload that needs one creates its own.
    pub network: Option<&'a Network>,
    /// Creates a channel for acknowledgements out of a machine that will lose its power; `None` for other machines.
    pub ack_sink: Option<&'a dyn Fn() -> Box<dyn AckSink>>,
    /// To be called between measured windows, never inside one: tells the host that the trial is alive, and its progress.
    pub progress: &'a dyn Fn(Progress<'_>),
}

/// The progress of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The step that begins now, e.g. the metric's name or `ramp`.
    pub step: &'a str,
    pub done: u32,
    pub of: u32,
}

/// A workload's result: a value for every declared metric, and facts for the record that are not compared.
#[derive(Clone, Debug, Default)]
pub struct WorkloadResult {
    /// By the metric's name.
    pub values: BTreeMap<String, f64>,
    /// Information for readers of the record: counts, sizes, the engine actually used, fsync behaviour.
    pub facts: BTreeMap<String, String>,
    /// The windows that it marked ([`bigiron_sys::mark`]) for profiling, in the order of their cuts.
    pub windows: Vec<Window>,
    /// Other programs that worked in the windows; the workload's own program is known.
    pub programs: Vec<Program>,
}

/// Lost or wrong data: a run that ends with this error counts as one whose verification failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongData(pub String);

/// The context of an error from a server that did not stop properly after its data were verified. A verification that fails with it counts as a failed
/// run, not as lost data.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("The data are correct, but the run did not end properly")]
pub struct EndedBadly;

/// A receiver of acknowledgements, whole and in order.
pub trait AckSink: Send {
    /// Sends one piece. When it returns, the piece has left the program.
    ///
    /// # Errors
    /// The piece may not have left.
    fn send(&mut self, piece: &[u8]) -> anyhow::Result<()>;
}

impl<W: Write + Send> AckSink for W {
    fn send(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        self.write_all(piece).and_then(|()| self.flush()).context("Cannot pass on acknowledgements")
    }
}

/// A kind of work that can be run in trials and compared between arms: what is known before its options are.
pub trait Workload: Sync {
    fn name(&self) -> &'static str;
    /// One line, as in a list of workloads.
    fn summary(&self) -> &'static str;
    fn options(&self) -> &'static [OptionDef];
    /// Checks whether the option `name`, which is not in [`Workload::options`], exists nevertheless: a job's keys have dotted names. The error says
    /// what would be right.
    fn check_dotted(&self, name: &str) -> Result<(), String> {
        let names = self.options().iter().map(|o| o.name);
        Err(match suggest::nearest(name, names.clone()) {
            Some(near) => format!("did you mean `{}.{near}`?", self.name()),
            None if self.options().is_empty() => format!("workload `{}` has no options", self.name()),
            None => format!("`{}` has {}", self.name(), suggest::list(names)),
        })
    }
    /// Names other than those of [`Workload::options`] that [`Workload::check_dotted`] accepts, as far as they can be listed.
    fn dotted(&self) -> Vec<String> {
        Vec::new()
    }
    /// The option whose value can be the name of a shipped file, and these files.
    fn library(&self) -> Option<(&'static str, &'static Library)> {
        None
    }
    /// An option, or a key of a job, in words; several explanations if it depends on the job.
    fn explain(&self, name: &str) -> Vec<Explanation> {
        keys::explain_option(self.options(), name).into_iter().collect()
    }
    /// An option's (checked) value as stored in a plan, which cannot refer to files of this machine: a file's text instead of its path.
    fn embed(&self, _name: &str, value: &str, _on: RunsOn) -> Result<String, String> {
        Ok(value.to_owned())
    }
    /// Its rows in the grid of `bigiron nightly`.
    fn nightly(&self) -> &'static [NightlyRow] {
        &[NightlyRow::PLAIN]
    }
    /// The option, and its value, with which little more than `metric` is measured; `None` if all metrics are always measured.
    fn alone(&self, _metric: &str) -> Option<(&'static str, String)> {
        None
    }
    /// Parses complete options. Nothing afterwards sees their text.
    ///
    /// # Errors
    /// What is wrong with the options, and what would be right.
    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String>;
}

/// Where the trials of a study run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsOn {
    /// In guests of this machine.
    Guest,
    /// On this machine itself.
    Here,
    /// On no machine: they are simulated.
    Simulation,
    /// On another machine, whose files and programs are not known when the study is planned.
    Elsewhere,
}

/// The `option` that names a file of another machine, as in a plan.
///
/// # Errors
/// The path is relative, and there is no folder from which it would begin.
pub fn path_elsewhere(option: &str, path: &str) -> Result<String, String> {
    match Path::new(path).is_absolute() {
        true => Ok(path.to_owned()),
        false => Err(format!("`{option}={path}` must be an absolute path, because it is on another machine")),
    }
}

/// Refuses `option`, which names a server on the network, if the trials run in guests, which have no network.
///
/// # Errors
/// The trials run in guests.
pub fn check_network(option: &str, on: RunsOn) -> Result<(), String> {
    match on {
        RunsOn::Guest => Err(format!(
            "a guest has no network and cannot reach the server of `{option}`; use `--on local` or `--on ssh:NAME`"
        )),
        RunsOn::Here | RunsOn::Elsewhere | RunsOn::Simulation => Ok(()),
    }
}

/// A workload with parsed options: what it needs, what it measures, and how a run begins.
pub trait Configured {
    /// Refuses options with which no arm could run, although arms could have completed them.
    ///
    /// # Errors
    /// What is missing, and what would be right.
    fn check_arm(&self, _on: RunsOn) -> Result<(), String> {
        Ok(())
    }
    fn needs(&self) -> Needs;
    /// Most bytes of memory that it allocates on a machine with these CPUs, if that depends on them and may be more than [`Needs::memory_bytes`].
    fn memory_on(&self, _cpus: u32, _clock: Clock) -> Option<u64> {
        None
    }
    /// Its use of raw disks, if it can use them.
    fn raw_disks(&self) -> Option<RawNeeds> {
        None
    }
    /// The images that its trials start from; those not in the cache are built now, which may take minutes.
    ///
    /// # Errors
    /// What is unavailable or cannot be built here, in words for the user.
    fn images(&self, _cx: &ImageContext<'_>) -> anyhow::Result<Images> {
        Ok(Images::default())
    }
    /// The declared metrics, exactly one of them primary.
    fn metrics(&self) -> Vec<MetricDef>;
    /// Whether its connections are encrypted: then a guest gets the whole executable as its agent, which lacks what encrypts.
    fn encrypts(&self) -> bool {
        false
    }
    /// The option that gives it more room on its file system, if it has one.
    fn room_option(&self) -> Option<&'static str> {
        None
    }
    /// The longest time on the wall clock for which a run shows no progress, as far as the options say how long it goes on.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }
    /// As [`Configured::silence`], in CPU time of an emulated guest: what a step may take beyond two minutes.
    fn guest_silence(&self) -> Duration {
        Duration::ZERO
    }
    /// Whether the machine must rest after [`Configured::prepare`], until its writes have reached the disk.
    fn lays_out(&self) -> bool {
        true
    }
    /// Lays out files and starts servers, without measuring. Dropping the result ends what was started.
    ///
    /// # Errors
    /// What cannot be laid out or started.
    fn prepare(&self, cx: &Context<'_>) -> anyhow::Result<Box<dyn Running + '_>>;
    /// Replaces [`Configured::prepare`] on a machine that lost its power in the middle of a run: recovers the data and checks it against
    /// `acknowledged`, everything that the run's acknowledgement sink has received. Also returns what was checked, as facts.
    ///
    /// # Errors
    /// A [`WrongData`] if data are missing or wrong.
    fn recover(
        &self,
        _cx: &Context<'_>,
        _acknowledged: &Path,
    ) -> anyhow::Result<(Box<dyn Running + '_>, BTreeMap<String, String>)> {
        bail!("This workload has no crash test")
    }
}

/// A prepared workload in a trial.
pub trait Running {
    /// Measures. A metric that could not be measured is an error, not a gap.
    ///
    /// # Errors
    /// The failure; lost data are a [`WrongData`].
    fn run(&mut self, cx: &Context<'_>) -> anyhow::Result<WorkloadResult>;
    /// Checks the data that the run left, and ends what was started.
    ///
    /// # Errors
    /// Lost or wrong data, which outweigh any speed.
    fn verify(self: Box<Self>, cx: &Context<'_>) -> anyhow::Result<()>;
}

/// The complete options of `workload` as in a plan, and the workload with these options parsed.
///
/// # Errors
/// As [`complete`]; a file cannot be read; or [`Workload::parse`] refuses the options.
pub fn configure<'a>(
    workload: &dyn Workload,
    settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    on: RunsOn,
) -> Result<(Options, Box<dyn Configured>), String> {
    let mut options = complete(workload, settings)?;
    for (name, value) in &mut options {
        *value = workload.embed(name, value, on)?;
    }
    let configured = workload.parse(&options)?;
    Ok((options, configured))
}

/// The complete options of `workload`: `settings` as typed, and defaults for the others. [`Workload::parse`] parses them.
///
/// # Errors
/// A name that is not an option, or a word that the option does not allow.
pub fn complete<'a>(
    workload: &dyn Workload,
    settings: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Options, String> {
    let mut options: Options = workload.options().iter().map(|o| (o.name.to_owned(), o.default.to_owned())).collect();
    for (name, value) in settings {
        match workload.options().iter().find(|o| o.name == name) {
            None => workload
                .check_dotted(name)
                .map_err(|right| format!("`{}.{name}` is not an option of {0}; {right}", workload.name()))?,
            Some(def) if !def.allowed.is_empty() && !def.allowed.contains(&value) => {
                let allowed = suggest::list(def.allowed);
                return Err(format!("`{}.{name}` cannot be `{value}`; it can be {allowed}", workload.name()));
            }
            Some(_) => {}
        }
        options.insert(name.to_owned(), value.to_owned());
    }
    Ok(options)
}
