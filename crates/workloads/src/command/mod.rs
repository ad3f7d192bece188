//! `command`: a user's program. Its resource usage is measured from outside, and its own results are found where the user
//! declared them.
//!
//! Invariant: only the program runs between the two readings of the clock; a run that fails or lacks a declared metric fails the
//! trial.

pub mod declared;
pub mod spec;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use self::declared::Source;
use self::spec::{ENVIRONMENT, ProgramSource, Spec};
use bigiron_model::metric::MetricDef;
use bigiron_model::workload::{Options, Window};
use bigiron_service::program::measured;
use bigiron_service::program::measured::MeasuredRun;
use bigiron_service::program::outputs::Outputs;
use bigiron_service::program::process_guard::{ProcessGuard, ProgramSet};
use bigiron_service::program::root;
use bigiron_service::program::root::ProgramNeeds;
use bigiron_service::program::succeeded;
use bigiron_sys::launch::Program;
use bigiron_workload::{
    Configured, Context, ImageContext, Images, Needs, NightlyRow, OptionDef, Progress, Running, RunsOn, Workload,
    WorkloadResult,
};

/// The workload's name.
pub const NAME: &str = "command";

/// The indexes, among the process guard's programs, of the program and of the one that prepares it.
const RUN: usize = 0;
const PREPARE: usize = 1;

/// The workload of any program.
pub struct Command;

const OPTIONS: &[OptionDef] = &[
    OptionDef {
        name: "run",
        default: "",
        allowed: &[],
        summary: "A shell command, or a JSON list of words: program and arguments",
    },
    OptionDef { name: "dir", default: ".", allowed: &[], summary: "Working directory" },
    OptionDef {
        name: "prepare",
        default: "",
        allowed: &[],
        summary: "Unmeasured command before each run, in the same form as `run`",
    },
    OptionDef { name: "repeats", default: "1", allowed: &[], summary: "Measured runs in each trial" },
    OptionDef { name: "warmup", default: "0", allowed: &[], summary: "Unmeasured runs before them" },
    OptionDef { name: "limit", default: "10m", allowed: &[], summary: "Time limit of a run" },
    OptionDef {
        name: "reduce",
        default: "median",
        allowed: &["median", "mean"],
        summary: "How the times and amounts of several runs are combined",
    },
    OptionDef {
        name: "stdout",
        default: "keep",
        allowed: &["keep", "discard"],
        summary: "Whether standard output is kept with the trial; standard error is always kept",
    },
    OptionDef {
        name: "metrics",
        default: "",
        allowed: &[],
        summary: "Declared metrics, one per line; the first is primary",
    },
    OptionDef {
        name: "roots",
        default: "",
        allowed: &[],
        summary: "More files and folders of this machine to provide in a guest, separated by `:`",
    },
    OptionDef { name: "disk", default: "256M", allowed: &[], summary: "Disk space for its output, in a guest" },
];

impl Workload for Command {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "Your own program: its time, its resource usage, and the metrics that it prints"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn check_dotted(&self, name: &str) -> Result<(), String> {
        let variable = name.strip_prefix(ENVIRONMENT);
        let well_formed = |v: &str| !v.is_empty() && v.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if variable.is_some_and(well_formed) {
            return Ok(());
        }
        let names = OPTIONS.iter().map(|o| o.name).chain(["env.NAME"]);
        Err(match bigiron_model::suggest::nearest(name, names.clone()) {
            Some(near) => format!("did you mean `command.{near}`?"),
            None => format!("`command` has {}", bigiron_model::suggest::list(names)),
        })
    }

    fn embed(&self, name: &str, value: &str, on: RunsOn) -> Result<String, String> {
        if name == "dir" { spec::absolute(value, on) } else { Ok(value.to_owned()) }
    }

    fn nightly(&self) -> &'static [NightlyRow] {
        // The metrics of a user's program are unknown here.
        &[]
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Spec::parse(options)?))
    }
}

impl Configured for Spec {
    fn check_arm(&self, on: RunsOn) -> Result<(), String> {
        self.runnable(on)
    }

    fn needs(&self) -> Needs {
        Needs { storage_bytes: Some(self.disk_bytes), memory_bytes: 0, modules: vec!["overlay"] }
    }

    fn images(&self, cx: &ImageContext<'_>) -> anyhow::Result<Images> {
        let wanted = ProgramNeeds {
            whose: "the command",
            words: self.words_of_programs(),
            dir: Some(&self.dir),
            find: &|program| self.find(program),
            roots: &self.roots,
            less: "Run it in a smaller folder, or name less in `command.roots`",
        };
        root::of(&wanted, cx)
    }

    fn metrics(&self) -> Vec<MetricDef> {
        let declared = &self.metrics;
        let own = declared.iter().enumerate().map(|(i, metric)| metric.def(i == 0));
        own.chain(measured::defs(declared.is_empty())).collect()
    }

    fn room_option(&self) -> Option<&'static str> {
        Some("disk")
    }

    fn silence(&self) -> Duration {
        self.limit
    }

    fn lays_out(&self) -> bool {
        false
    }

    fn prepare(&self, cx: &Context<'_>) -> anyhow::Result<Box<dyn Running + '_>> {
        if let Some(image) = cx.images.get(root::ROOT) {
            root::enter::make(image, &cx.dir)?;
        }
        let root = cx.images.contains_key(root::ROOT).then(|| cx.dir.join("root"));
        let mut spec = self.clone();
        if spec.dir.as_os_str().is_empty() {
            spec.dir.clone_from(&cx.dir);
        }
        Ok(Box::new(PreparedCommand { spec, root, outputs: Outputs::make(&cx.dir)? }))
    }
}

/// A command that can be run.
struct PreparedCommand {
    spec: Spec,
    /// The folder that is its `/`, in a guest.
    root: Option<PathBuf>,
    outputs: Outputs,
}

impl Running for PreparedCommand {
    fn run(&mut self, cx: &Context<'_>) -> anyhow::Result<WorkloadResult> {
        let Self { spec, root, outputs } = self;
        let spec = &*spec;
        let prepare = matches!(spec.prepare, ProgramSource::Line(_) | ProgramSource::Words(_));
        let programs = [&spec.what].into_iter().chain(prepare.then_some(&spec.prepare));
        let orders = ProgramSet {
            programs: programs.map(|what| program(spec, what, root.as_deref())).collect::<anyhow::Result<_>>()?,
            limit: spec.limit,
            outputs: outputs.dir(),
            keep_stdout: spec.keep_stdout,
            root: root.clone(),
        };
        let mut process_guard = ProcessGuard::start(&orders)?;
        let of = spec.warmup + spec.repeats;
        let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut runs = Vec::new();
        for n in 0..of {
            let measured = n >= spec.warmup;
            let name = if measured { format!("run-{}", n - spec.warmup + 1) } else { format!("warmup-{}", n + 1) };
            (cx.progress)(Progress { step: &name, done: n, of });
            if prepare {
                let name = format!("prepare-{name}");
                let run = process_guard.run(PREPARE, &name)?;
                succeeded(&run, &failing(&spec.prepare, &name), &name, spec.limit, outputs)?;
                outputs.tidy(&name);
            }
            let run = if measured { process_guard.measure(RUN, &name) } else { process_guard.run(RUN, &name) }?;
            succeeded(&run, &failing(&spec.what, &name), &name, spec.limit, outputs)?;
            if measured {
                for (metric, value) in measured::values(&run) {
                    values.entry(metric.to_owned()).or_default().push(value);
                }
                declared(spec, &name, root.as_deref(), outputs, &mut values)
                    .with_context(|| failing(&spec.what, &name))?;
                runs.push(run);
            }
            outputs.tidy(&name);
        }
        drop(process_guard);
        let windows = runs.iter().map(|run| Window::of(measured::WALL, 1, run.wall_ns)).collect();
        Ok(WorkloadResult {
            values: reduced(spec, &values),
            facts: facts(spec, &runs),
            windows,
            ..WorkloadResult::default()
        })
    }

    fn verify(self: Box<Self>, _: &Context<'_>) -> anyhow::Result<()> {
        // A command reports failure by its exit status, which was checked.
        Ok(())
    }
}

/// The program with all its parameters.
fn program(spec: &Spec, what: &ProgramSource, root: Option<&Path>) -> anyhow::Result<Program> {
    let words = what.words();
    let path = match root {
        Some(root) => spec.find_below(root, &words[0]),
        None => spec.find(&words[0]),
    };
    let path = path.map_err(anyhow::Error::msg)?;
    let text = |s: String| CString::new(s).context("A zero byte in the command");
    let mut variables: BTreeMap<String, String> = match root {
        Some(_) => root::enter::ENVIRONMENT.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        None => std::env::vars().collect(),
    };
    variables.extend(spec.environment.iter().cloned());
    variables.insert("PWD".to_owned(), spec.dir.display().to_string());
    Ok(Program {
        path: text(path.display().to_string())?,
        argv: words.into_iter().map(text).collect::<anyhow::Result<_>>()?,
        environment: variables.into_iter().map(|(n, v)| text(format!("{n}={v}"))).collect::<anyhow::Result<_>>()?,
        dir: text(spec.dir.display().to_string())?,
    })
}

/// `run-3 of `make -C src``.
fn failing(what: &ProgramSource, name: &str) -> String {
    format!("{name} of `{}`", what.typed())
}

fn declared(
    spec: &Spec,
    name: &str,
    root: Option<&Path>,
    outputs: &Outputs,
    values: &mut BTreeMap<String, Vec<f64>>,
) -> anyhow::Result<()> {
    for metric in &spec.metrics {
        let text = match &metric.source {
            Source::Stdout => outputs.read(name, "stdout")?,
            Source::Stderr => outputs.read(name, "stderr")?,
            Source::File(path) => {
                let path = spec.dir.join(path);
                let path = root.map_or(path.clone(), |root| root.join(path.strip_prefix("/").unwrap_or(&path)));
                let read = fs::read(&path).with_context(|| {
                    format!("The metric `{}` is missing: cannot read `{}`", metric.name, path.display())
                })?;
                String::from_utf8_lossy(&read).into_owned()
            }
        };
        let value = metric.value(&text).map_err(anyhow::Error::msg)?;
        values.entry(metric.name.clone()).or_default().push(value);
    }
    Ok(())
}

fn reduced(spec: &Spec, values: &BTreeMap<String, Vec<f64>>) -> BTreeMap<String, f64> {
    let how = |name: &str| spec.metrics.iter().find(|m| m.name == name).map_or(spec.reduce, |m| m.of);
    values.iter().map(|(name, of)| (name.clone(), how(name).of(of))).collect()
}

fn facts(spec: &Spec, runs: &[MeasuredRun]) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([
        ("run".to_owned(), spec.what.typed()),
        ("repeats".to_owned(), spec.repeats.to_string()),
        ("warmup".to_owned(), spec.warmup.to_string()),
    ]);
    if let Some(run) = runs.first() {
        facts.insert("accounting".to_owned(), run.accounting.clone());
    }
    if runs.len() > 1 {
        let times: Vec<String> = runs.iter().map(|r| format!("{:.3}", r.wall_ns as f64 / 1e6)).collect();
        facts.insert("wall-of-runs-ms".to_owned(), times.join(" "));
    }
    if let Some(peak) = runs.iter().filter_map(|r| r.peak_bytes).max() {
        facts.insert("memory-peak-bytes".to_owned(), peak.to_string());
    }
    let left: u32 = runs.iter().map(|r| r.left).sum();
    if left > 0 {
        facts.insert("left-running".to_owned(), left.to_string());
    }
    facts
}
