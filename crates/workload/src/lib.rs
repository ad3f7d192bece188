//! Workloads: the database-shaped work that is run in a trial. A workload knows nothing of hosts: it is handed a directory,
//! a clock's name and a seed, and gives metrics back.

pub mod acknowledgements;
pub mod by_clock;
pub mod footprint;
pub mod keys;
pub mod length;
pub mod library;
pub mod limits;
pub mod nightly;
pub mod registry;
pub mod shortage;
#[cfg(any(test, feature = "testing"))]
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
use bigiron_sys::network::{self, Network};

pub use by_clock::ByClock;
pub use keys::Explanation;
pub use nightly::NightlyRow;

/// An option of a workload, set as the lever `<workload>.<name>` in a study, on an arm or with `--set`.
#[derive(Clone, Copy, Debug)]
pub struct OptionDef {
    pub name: &'static str,
    pub default: &'static str,
    /// Allowed words; empty if the value is checked by [`Workload::parse`] alone (numbers, sizes).
    pub allowed: &'static [&'static str],
    pub summary: &'static str,
}

/// A folder below [`Context::dir`]; what a workload leaves there is kept with the trial.
pub const ARTIFACTS: &str = "artifacts";

/// What a workload needs of the machine before it can run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of file system it wants under [`Context::dir`], or `None` if it does no file I/O.
    pub storage_bytes: Option<u64>,
    /// Bytes of memory it allocates itself, at most.
    pub memory_bytes: u64,
    /// Kernel modules (any spelling of `-`/`_`) beyond the file system's and the device's own. A module that is built in is fine. Who needs
    /// [`network::MODULE`] finds a pair of such devices in [`Context::network`].
    pub modules: Vec<&'static str>,
}

impl Needs {
    /// Whether the workload has clients behind network devices.
    pub fn has_network(&self) -> bool {
        self.modules.contains(&network::MODULE)
    }
}

/// What a workload wants of raw disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawNeeds {
    /// How many it uses.
    pub count: usize,
    /// Of each.
    pub bytes: u64,
}

/// A file-system image that a workload brings along: built once on the host and kept, handed to each guest copy-on-write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// By which [`Context::images`] has it.
    pub name: &'static str,
    /// A raw file system, its length a multiple of 2 MiB.
    pub path: PathBuf,
    pub filesystem: &'static str,
    pub role: ImageRole,
}

/// What a guest does with an [`Image`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRole {
    /// Mounted read-only.
    Tree,
    /// Lies on the workload's disk in place of an empty file system; one at most. Where the study asks for another file system than its own, its
    /// files are copied onto that.
    Data,
}

/// What [`Configured::images`] may use.
pub struct ImageContext<'a> {
    /// The file system that the study's guests have; `None` on this machine itself, where no image is wanted, but what the trials start from.
    pub filesystem: Option<&'a str>,
    /// What an earlier call has found, and all others must find too; empty for the first.
    pub foundation: &'a BTreeMap<String, String>,
    /// Tells the user what takes long.
    pub note: &'a dyn Fn(&str),
}

/// Images, and all that trials start from, by name: the plan and each record have it.
#[derive(Clone, Debug, Default)]
pub struct Images {
    pub images: Vec<Image>,
    pub foundation: BTreeMap<String, String>,
}

/// Where and how a workload runs.
#[derive(Clone)]
pub struct Context<'a> {
    /// Same for both arms of a pair, another for every pair.
    pub seed: u64,
    pub clock: Clock,
    /// An empty directory on the file system under test (exists only if [`Needs::storage_bytes`] asked for it).
    pub dir: PathBuf,
    /// Where the images that [`Configured::images`] gave are mounted, by their names; none outside a guest.
    pub images: &'a BTreeMap<String, PathBuf>,
    /// Raw disks, free to be overwritten; a workload that can works on them.
    pub devices: &'a [PathBuf],
    /// What the plan says that its trials start from, see [`Images`]; empty without a plan.
    pub foundation: &'a BTreeMap<String, String>,
    /// CPUs and memory of the machine under test.
    pub cpus: u32,
    pub memory_bytes: u64,
    /// This executable, to be started again as `bigiron worker …` by multi-process workloads and by `fork+exec`.
    pub executable: PathBuf,
    /// The network that belongs to the trial alone, if any does: its namespaces. Without one, a workload that needs one makes its own.
    pub network: Option<&'a Network>,
    /// Makes a way for acknowledgements out of a machine that is going to lose its power; `None` for every other.
    pub ack_sink: Option<&'a dyn Fn() -> Box<dyn AckSink>>,
    /// To be called between measured windows, never inside one: tells the host that the trial is alive and how far it is.
    pub progress: &'a dyn Fn(Progress<'_>),
}

/// How far a workload is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What begins now, e.g. the metric's name or `ramp`.
    pub step: &'a str,
    pub done: u32,
    pub of: u32,
}

/// A workload's result: a value for every declared metric, and facts for the record that are not compared.
#[derive(Clone, Debug, Default)]
pub struct WorkloadResult {
    /// By the metric's name.
    pub values: BTreeMap<String, f64>,
    /// Things a reader of the record wants to know: counts, sizes, engine really used, fsync behaviour.
    pub facts: BTreeMap<String, String>,
    /// What it has marked ([`bigiron_sys::mark`]) to be profiled, in the order in which it was cut.
    pub windows: Vec<Window>,
    /// Programs of others that worked in them; its own process's are known.
    pub programs: Vec<Program>,
}

/// Data that a run has lost or got wrong: a run that ends with it counts as one whose check failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongData(pub String);

/// Something that takes what was acknowledged, whole and in order.
pub trait AckSink: Send {
    /// Hands one piece on. When it returns the piece has left the program.
    ///
    /// # Errors
    /// It is not known to have left.
    fn send(&mut self, piece: &[u8]) -> anyhow::Result<()>;
}

impl<W: Write + Send> AckSink for W {
    fn send(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        self.write_all(piece).and_then(|()| self.flush()).context("Cannot pass on acknowledgements")
    }
}

/// Something that can be run in a trial and compared between arms: what is known of it before its options are.
pub trait Workload: Sync {
    fn name(&self) -> &'static str;
    /// One line, as in a list of workloads.
    fn summary(&self) -> &'static str;
    /// The documentation page, printed by `bigiron doc NAME`.
    fn doc(&self) -> &'static str;
    fn options(&self) -> &'static [OptionDef];
    /// Whether the option `name`, which is not among [`Workload::options`], exists all the same: a job's keys go by their dotted names.
    /// The error says what would be right.
    fn check_dotted(&self, name: &str) -> Result<(), String> {
        let names = self.options().iter().map(|o| o.name);
        Err(match suggest::nearest(name, names.clone()) {
            Some(near) => format!("did you mean `{}.{near}`?", self.name()),
            None if self.options().is_empty() => format!("workload `{}` has no options", self.name()),
            None => format!("`{}` has {}", self.name(), suggest::list(names)),
        })
    }
    /// An option, or a key of a job, in words; several if that depends on the job.
    fn explain(&self, name: &str) -> Vec<Explanation> {
        keys::explain_option(self.options(), name).into_iter().collect()
    }
    /// What an option's (checked) value is in a plan, where there are no files of this machine: a file's text for its path.
    fn embed(&self, _name: &str, value: &str) -> Result<String, String> {
        Ok(value.to_owned())
    }
    /// Its rows in the grid of `bigiron nightly`.
    fn nightly(&self) -> &'static [NightlyRow] {
        &[NightlyRow::PLAIN]
    }
    /// The option, and its value, with which little more than `metric` is measured; `None` if all are measured anyway.
    fn alone(&self, _metric: &str) -> Option<(&'static str, String)> {
        None
    }
    /// Reads complete options. Nothing after this sees their text.
    ///
    /// # Errors
    /// What is wrong with them, and what would be right.
    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String>;
}

/// A workload with its options read: what it needs, what it measures, and how a run begins.
pub trait Configured {
    /// Refuses what no arm could be run with, though it is a good beginning for options that arms complete.
    ///
    /// # Errors
    /// What is missing, and what would be right.
    fn check_arm(&self) -> Result<(), String> {
        Ok(())
    }
    fn needs(&self) -> Needs;
    /// What it does with raw disks, if it can work on such.
    fn raw_disks(&self) -> Option<RawNeeds> {
        None
    }
    /// The images that its trials start from; those that are not kept yet are built now, which may take minutes.
    ///
    /// # Errors
    /// What is not available or cannot be built here, in words for the user.
    fn images(&self, _cx: &ImageContext<'_>) -> anyhow::Result<Images> {
        Ok(Images::default())
    }
    /// The declared metrics, exactly one of them primary.
    fn metrics(&self) -> Vec<MetricDef>;
    /// The option that gives it more room on its file system, if it has one.
    fn room_option(&self) -> Option<&'static str> {
        None
    }
    /// The longest time on the wall clock for which a run shows no progress, as far as the options say how long it goes on.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }
    /// Whether the machine rests after [`Configured::prepare`], until what that wrote has gone to the disk.
    fn lays_out(&self) -> bool {
        true
    }
    /// Lays out files and starts servers; nothing of it is measured. What was started ends when the result is dropped.
    ///
    /// # Errors
    /// What cannot be laid out or started.
    fn prepare(&self, cx: &Context<'_>) -> anyhow::Result<Box<dyn Running + '_>>;
    /// Takes the place of [`Configured::prepare`] on a machine that lost its power in the middle of a run: brings the data back and proves
    /// what `acknowledged`, all that its acknowledgement sink has received so far, says. Also returns what was proved, as facts.
    ///
    /// # Errors
    /// A [`WrongData`] if something is missing or wrong.
    fn recover(
        &self,
        _cx: &Context<'_>,
        _acknowledged: &Path,
    ) -> anyhow::Result<(Box<dyn Running + '_>, BTreeMap<String, String>)> {
        bail!("This workload has no test of crashes")
    }
}

/// A workload in a trial, prepared.
pub trait Running {
    /// Measures. A metric that could not be measured is an error, not a gap.
    ///
    /// # Errors
    /// What went wrong; lost data are a [`WrongData`].
    fn run(&mut self, cx: &Context<'_>) -> anyhow::Result<WorkloadResult>;
    /// Checks the data that the run left behind, and ends what was started.
    ///
    /// # Errors
    /// Lost or wrong data, which outrank any speed.
    fn verify(self: Box<Self>, cx: &Context<'_>) -> anyhow::Result<()>;
}

/// The complete options of `workload` as a plan holds them, and the workload with these options read.
///
/// # Errors
/// As [`complete`]; a file that cannot be read; what [`Workload::parse`] refuses.
pub fn configure<'a>(
    workload: &dyn Workload,
    settings: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(Options, Box<dyn Configured>), String> {
    let mut options = complete(workload, settings)?;
    for (name, value) in &mut options {
        *value = workload.embed(name, value)?;
    }
    let configured = workload.parse(&options)?;
    Ok((options, configured))
}

/// The complete options of `workload`: `settings` as they were typed, and the defaults of all others. [`Workload::parse`] reads them.
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
                let allowed = def.allowed.join(", ");
                return Err(format!("`{}.{name}` cannot be `{value}`; it can be {allowed}", workload.name()));
            }
            Some(_) => {}
        }
        options.insert(name.to_owned(), value.to_owned());
    }
    Ok(options)
}
