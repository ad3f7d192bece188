//! `build`: compiles a source tree with `make`, with few parallel jobs, with the optimal number for the machine, and with no
//! limit.
//!
//! Invariant: every build starts from a clean tree and ends with a program that gives the results of its source.

mod program;
mod source;
mod spec;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use self::source::Tree;
use self::spec::{AUTO, GENERATED, Load, Spec};
use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_model::workload::{Options, Window};
use bigiron_service::program::measured::MeasuredRun;
use bigiron_service::program::outputs::Outputs;
use bigiron_service::program::process_guard::{ProcessGuard, ProgramSet};
use bigiron_service::program::root;
use bigiron_service::program::root::ProgramNeeds;
use bigiron_service::program::succeeded;
use bigiron_service::program::work_folder;
use bigiron_service::program::work_folder::WorkFolder;
use bigiron_workload::{
    Configured, Context, ImageContext, Images, Needs, OptionDef, Progress, Running, RunsOn, Workload, WorkloadResult,
    WrongData,
};

/// The primary metric's name.
const PRIMARY: &str = "elapsed";

/// The workload of compilers.
pub struct Build;

const OPTIONS: &[OptionDef] = &[
    OptionDef {
        name: "tree",
        default: GENERATED,
        allowed: &[],
        summary: "Your own folder with a Makefile; `generated`: C sources that bigiron generates",
    },
    OptionDef {
        name: "files",
        default: AUTO,
        allowed: &[],
        summary: "Source files of the generated tree; `auto`: 2 under the exact clock, 240 on the wall clock",
    },
    OptionDef { name: "functions", default: "8", allowed: &[], summary: "Functions of a generated source file" },
    OptionDef {
        name: "loads",
        default: "half,optimal",
        allowed: &[],
        summary: "Parallel jobs: `half` of the CPUs, `optimal`, `maximal` (no limit); several, separated by commas",
    },
    OptionDef { name: "optimal", default: AUTO, allowed: &[], summary: "Jobs of `optimal`; `auto`: four for each CPU" },
    OptionDef { name: "runs", default: "1", allowed: &[], summary: "Measured builds of each load" },
    OptionDef { name: "warmup", default: "1", allowed: &[], summary: "Unmeasured builds before them" },
    OptionDef {
        name: "target",
        default: "",
        allowed: &[],
        summary: "The target to make in your tree; by default its first",
    },
    OptionDef { name: "clean", default: "clean", allowed: &[], summary: "The target that removes what was built" },
    OptionDef {
        name: "prepare",
        default: "",
        allowed: &[],
        summary: "A shell command, run once in your tree before all builds: `make defconfig`",
    },
    OptionDef {
        name: "check",
        default: "",
        allowed: &[],
        summary: "A shell command that must succeed in your tree after each build",
    },
    OptionDef { name: "limit", default: "60m", allowed: &[], summary: "Time limit of a build" },
    OptionDef {
        name: "roots",
        default: "",
        allowed: &[],
        summary: "More files and folders of this machine to provide in a guest, separated by `:`",
    },
    OptionDef {
        name: "disk",
        default: AUTO,
        allowed: &[],
        summary: "Disk space for the build, in a guest; `auto`: enough for a generated tree, 256M for yours",
    },
];

/// Name, unit and summary of the metrics that each load has besides the time.
const OF_LOAD: [(&str, Unit, &str); 5] = [
    ("user", Unit::Ns, "CPU time in user mode"),
    ("system", Unit::Ns, "CPU time in the kernel"),
    ("cpu", Unit::Count, "CPU time in per cent of the elapsed time"),
    ("switches", Unit::Count, "Context switches of a process that was still runnable"),
    ("sleeps", Unit::Count, "Context switches of a process that waited"),
];

impl Workload for Build {
    fn name(&self) -> &'static str {
        "build"
    }

    fn summary(&self) -> &'static str {
        "A C source tree compiled by `make` with this machine's tools, half, optimally and fully loaded"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn embed(&self, name: &str, value: &str, on: RunsOn) -> Result<String, String> {
        if name == "tree" { spec::absolute(value, on) } else { Ok(value.to_owned()) }
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Spec::parse(options)?))
    }
}

impl Configured for Spec {
    fn check_arm(&self, on: RunsOn) -> Result<(), String> {
        if on == RunsOn::Elsewhere { Ok(()) } else { self.runnable() }
    }

    fn needs(&self) -> Needs {
        Needs { storage_bytes: Some(self.disk_bytes()), memory_bytes: self.memory_bytes(), modules: vec!["overlay"] }
    }

    fn images(&self, cx: &ImageContext<'_>) -> anyhow::Result<Images> {
        let lines = root::kits::tokens(&self.prepare).chain(root::kits::tokens(&self.check));
        let wanted = ProgramNeeds {
            whose: "`build`",
            words: ["make", "cc", "gcc", "ld"].into_iter().chain(lines).map(str::to_owned).collect(),
            dir: self.tree.as_deref(),
            find: &work_folder::find,
            roots: &self.roots,
            less: "Name a smaller tree, or less in `build.roots`",
        };
        root::of(&wanted, cx)
    }

    fn metrics(&self) -> Vec<MetricDef> {
        let def = |name: String, unit, kind, summary: String| MetricDef {
            primary: name == PRIMARY,
            name,
            unit,
            better: Better::Lower,
            kind,
            summary,
        };
        let whole = "Time of a build: the geometric mean of all loads";
        let mut metrics = vec![def(PRIMARY.to_owned(), Unit::Ns, Kind::Cost, whole.to_owned())];
        for load in self.loads.iter().copied() {
            let word = load.word();
            let time = format!("Time of a build under the load `{word}`");
            metrics.push(def(of(PRIMARY, load), Unit::Ns, Kind::Cost, time));
            for (name, unit, summary) in OF_LOAD {
                let unit = if name == "cpu" { Unit::named("%") } else { unit };
                let mut metric = def(of(name, load), unit, Kind::Usage, format!("{summary}, under the load `{word}`"));
                if name == "cpu" {
                    metric.better = Better::Higher;
                }
                metrics.push(metric);
            }
        }
        metrics
    }

    fn room_option(&self) -> Option<&'static str> {
        Some("disk")
    }

    fn silence(&self) -> Duration {
        self.limit
    }

    fn prepare(&self, cx: &Context<'_>) -> anyhow::Result<Box<dyn Running + '_>> {
        let prepared = PreparedTree::of(self, cx)?;
        let PreparedTree { place, generated, .. } = &prepared;
        place.work_folder.make(cx)?;
        match (generated, &self.tree) {
            (Some(tree), _) => tree.write(&place.outside()),
            // In a guest it is in the image; here the user's own stays as it is.
            (None, Some(from)) if place.work_folder.root().is_none() => copy(from, &place.dir),
            (None, _) => Ok(()),
        }?;
        Ok(Box::new(prepared))
    }
}

/// A tree that can be built.
struct PreparedTree<'a> {
    spec: &'a Spec,
    place: BuildFolder,
    outputs: Outputs,
    /// The tree, unless it is the user's.
    generated: Option<Tree>,
}

impl<'a> PreparedTree<'a> {
    fn of(spec: &'a Spec, cx: &Context<'_>) -> anyhow::Result<Self> {
        let generated = spec.tree.is_none().then(|| Tree::new(spec.files(cx.clock), spec.functions));
        Ok(Self { spec, place: BuildFolder::of(spec, cx), outputs: Outputs::make(&cx.dir)?, generated })
    }
}

impl Running for PreparedTree<'_> {
    fn run(&mut self, cx: &Context<'_>) -> anyhow::Result<WorkloadResult> {
        let Self { spec, place, outputs, .. } = self;
        let mut builder = Builder::found(spec, cx, place, outputs)?;
        let steps = spec.warmup + spec.runs * spec.loads.len() as u32;
        if !spec.prepare.is_empty() {
            builder.step("prepare", PREPARE, &spec.prepare, false)?;
        }
        for n in 0..spec.warmup {
            (cx.progress)(Progress { step: "warmup", done: n, of: steps });
            builder.build(&format!("warmup-{}", n + 1), spec.loads.len() - 1, false)?;
        }
        let mut windows = Vec::new();
        let mut runs: Vec<Vec<MeasuredRun>> = spec.loads.iter().map(|_| Vec::new()).collect();
        for n in 0..spec.runs {
            for (place, load) in spec.loads.iter().enumerate() {
                let name = format!("{}-{}", load.word(), n + 1);
                (cx.progress)(Progress {
                    step: &name,
                    done: spec.warmup + n * spec.loads.len() as u32 + place as u32,
                    of: steps,
                });
                let run = builder.build(&name, place, true)?;
                // With a single load, that load explains the whole.
                let whole = (spec.loads.len() == 1).then(|| PRIMARY.to_owned());
                let metrics = whole.into_iter().chain([of(PRIMARY, *load)]).collect();
                windows.push(Window { metrics, operations: 1, ns: run.wall_ns });
                runs[place].push(run);
            }
        }
        let builds = builder.builds;
        drop(builder);
        Ok(WorkloadResult { windows, ..outcome(spec, cx, &runs, builds)? })
    }

    fn verify(self: Box<Self>, _: &Context<'_>) -> anyhow::Result<()> {
        let spec = self.spec;
        // What a tree of the user's must do is his to say, and was looked at after each build.
        let Some(tree) = &self.generated else { return Ok(()) };
        let path = self.place.outside().join(PRINTED);
        let printed = std::fs::read_to_string(&path).with_context(|| format!("Cannot read {}", path.display()))?;
        let right = tree.prints();
        let builds = (spec.warmup + spec.runs * spec.loads.len() as u32) as usize;
        if let Some(wrong) = printed.split_inclusive('\n').find(|line| *line != right) {
            bail!(WrongData(format!("The program prints `{}` instead of `{}`", wrong.trim(), right.trim())));
        }
        let lines = printed.lines().count();
        if lines != builds {
            bail!(WrongData(format!("Of {builds} programs, {lines} printed anything")));
        }
        Ok(())
    }
}

/// Every built program appends its output to this file of its tree.
const PRINTED: &str = "printed";

fn of(name: &str, load: Load) -> String {
    format!("{name}-{}", load.word())
}

/// Where the tree is built.
struct BuildFolder {
    work_folder: WorkFolder,
    /// The path as programs see it.
    dir: PathBuf,
}

impl BuildFolder {
    fn of(spec: &Spec, cx: &Context<'_>) -> Self {
        let work_folder = WorkFolder::of(cx, "build");
        let dir = match &spec.tree {
            Some(tree) if work_folder.root().is_some() => tree.clone(),
            _ => work_folder.inside().join("tree"),
        };
        Self { work_folder, dir }
    }

    /// The tree as this process sees it.
    fn outside(&self) -> PathBuf {
        self.work_folder.seen_from_outside(&self.dir)
    }
}

/// The process guard's programs: these, then one for each load.
const CLEAN: usize = 0;
const CHECK: usize = 1;
const PREPARE: usize = 2;
const LOADS: usize = 3;

/// Runs one build after the other.
struct Builder<'a> {
    spec: &'a Spec,
    process_guard: ProcessGuard,
    outputs: &'a Outputs,
    lines: Vec<String>,
    builds: u32,
}

impl<'a> Builder<'a> {
    fn found(spec: &'a Spec, cx: &Context<'_>, place: &BuildFolder, outputs: &'a Outputs) -> anyhow::Result<Self> {
        let check = if spec.tree.is_none() { format!("./program >> {PRINTED}") } else { spec.check.clone() };
        let mut lines = vec![format!("exec make -s {}", spec.clean), check, spec.prepare.clone()];
        lines.extend(spec.loads.iter().map(|load| {
            let jobs = spec.jobs(*load, cx.cpus).map_or_else(String::new, |n| n.to_string());
            format!("exec make -s -j{jobs} {}", spec.target).trim_end().to_owned()
        }));
        let orders = ProgramSet {
            programs: lines
                .iter()
                .map(|line| place.work_folder.shell(line, &place.dir))
                .collect::<anyhow::Result<_>>()?,
            limit: spec.limit,
            outputs: outputs.dir(),
            keep_stdout: true,
            root: place.work_folder.root().map(Path::to_owned),
        };
        Ok(Self { spec, process_guard: ProcessGuard::start(&orders)?, outputs, lines, builds: 0 })
    }

    fn step(&mut self, name: &str, program: usize, line: &str, measured: bool) -> anyhow::Result<MeasuredRun> {
        let run =
            if measured { self.process_guard.measure(program, name) } else { self.process_guard.run(program, name) }?;
        succeeded(&run, &format!("{name}: `{line}`"), name, self.spec.limit, self.outputs)?;
        self.outputs.tidy(name);
        Ok(run)
    }

    /// Builds from a clean tree under the load at `place`, and checks the result.
    fn build(&mut self, name: &str, place: usize, measured: bool) -> anyhow::Result<MeasuredRun> {
        let line = |n: usize| self.lines[n].clone();
        let (clean, check, make) = (line(CLEAN), line(CHECK), line(LOADS + place));
        self.step(&format!("{name}-clean"), CLEAN, &clean, false)?;
        let run = self.step(name, LOADS + place, &make, measured)?;
        if !check.is_empty() {
            self.step(&format!("{name}-check"), CHECK, &check, false)?;
        }
        self.builds += 1;
        Ok(run)
    }
}

/// Copies a folder including the files' times, which `make` compares.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut command = std::process::Command::new("cp");
    command.arg("-a").arg("--").arg(from).arg(to);
    let output = bigiron_sys::child::die_with_parent(&mut command).output().context("Cannot start `cp`")?;
    ensure!(
        output.status.success(),
        "Cannot copy `{}`: {}",
        from.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

fn outcome(spec: &Spec, cx: &Context<'_>, runs: &[Vec<MeasuredRun>], builds: u32) -> anyhow::Result<WorkloadResult> {
    let mut outcome = WorkloadResult::default();
    let mut logs = 0.0;
    for (load, runs) in spec.loads.iter().zip(runs) {
        let mean = |of: fn(&MeasuredRun) -> u64| runs.iter().map(of).sum::<u64>() as f64 / runs.len() as f64;
        let (elapsed, user, system) = (mean(|r| r.wall_ns), mean(|r| r.user_ns), mean(|r| r.system_ns));
        ensure!(elapsed > 0.0, "The clock did not advance while the tree was built");
        logs += elapsed.ln();
        let values = [
            (PRIMARY, elapsed),
            ("user", user),
            ("system", system),
            ("cpu", 100.0 * (user + system) / elapsed),
            ("switches", mean(|r| r.involuntary_switches)),
            ("sleeps", mean(|r| r.voluntary_switches)),
        ];
        outcome.values.extend(values.map(|(name, value)| (of(name, *load), value)));
    }
    outcome.values.insert(PRIMARY.to_owned(), (logs / runs.len() as f64).exp());
    let jobs = |l: &Load| {
        let jobs = spec.jobs(*l, cx.cpus).map_or_else(|| "all".to_owned(), |n| n.to_string());
        format!("{}={jobs}", l.word())
    };
    let what = match &spec.tree {
        Some(tree) => tree.display().to_string(),
        None => format!(
            "generated: {} source files of {} functions and a main program",
            spec.files(cx.clock),
            spec.functions
        ),
    };
    let accounting = runs.iter().flatten().next().map_or_else(String::new, |r| r.accounting.clone());
    let facts = [
        ("tree", what),
        ("jobs", spec.loads.iter().map(jobs).collect::<Vec<_>>().join(" ")),
        ("builds-checked", if spec.tree.is_some() && spec.check.is_empty() { 0 } else { builds }.to_string()),
        ("accounting", accounting),
    ];
    outcome.facts.extend(facts.map(|(name, value)| (name.to_owned(), value)));
    Ok(outcome)
}

/// `bigiron worker build-tree DIR FILES FUNCTIONS`: writes a generated tree and prints the expected output of its program, for
/// builds by hand.
pub fn worker_tree(args: &[String]) -> i32 {
    let [dir, files, functions] = args else {
        eprintln!("bigiron worker build-tree DIR FILES FUNCTIONS");
        return 2;
    };
    let (Ok(files), Ok(functions)) = (files.parse(), functions.parse()) else {
        eprintln!("FILES and FUNCTIONS are numbers");
        return 2;
    };
    let tree = Tree::new(files, functions);
    match tree.write(Path::new(dir)) {
        Ok(()) => {
            print!("{}", tree.prints());
            0
        }
        Err(e) => {
            eprintln!("bigiron: {e:#}");
            1
        }
    }
}
