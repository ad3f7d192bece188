//! The parsed options of the workload.
//!
//! Invariant: a valid specification can be built, as far as this can be checked without building.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bigiron_model::clock::Clock;
use bigiron_model::size;
use bigiron_model::workload::Options;
use bigiron_service::program::work_folder;
use bigiron_workload::{RunsOn, units};

/// The value that leaves a choice to the clock or the machine.
pub const AUTO: &str = "auto";
/// The value of `tree` for a generated tree.
pub const GENERATED: &str = "generated";

/// Default number of source files, under the exact clock (or none) and on the wall clock.
const FILES: (usize, usize) = (2, 240);
const FILES_LIMIT: usize = 999;
const FUNCTIONS_LIMIT: usize = 99;
const RUNS_LIMIT: u32 = 100;
const JOBS_LIMIT: u32 = 4096;
/// Assumed CPUs of a machine that is not yet known.
const USUAL_CPUS: u32 = 4;
/// Memory of a compiler for a generated source file, and of everything needed once.
const JOB_MEMORY: u64 = 20 << 20;
const OTHER_MEMORY: u64 = 64 << 20;
const MAKEFILES: [&str; 3] = ["GNUmakefile", "makefile", "Makefile"];

/// The number of parallel jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// One job for every two CPUs.
    Half,
    /// Four for each CPU by default.
    Optimal,
    /// No limit.
    Maximal,
}

impl Load {
    pub const WORDS: [(&'static str, Load); 3] =
        [("half", Load::Half), ("optimal", Load::Optimal), ("maximal", Load::Maximal)];

    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, l)| *l == self).map_or("", |(word, _)| word)
    }
}

/// All options, parsed.
pub struct Spec {
    /// The user's tree; `None` for a generated one.
    pub tree: Option<PathBuf>,
    files: Option<usize>,
    pub functions: usize,
    pub loads: Vec<Load>,
    optimal: Option<u32>,
    pub runs: u32,
    pub warmup: u32,
    pub target: String,
    pub clean: String,
    /// Shell commands; empty if there is nothing to do.
    pub prepare: String,
    pub check: String,
    pub limit: Duration,
    pub roots: Vec<PathBuf>,
    disk_bytes: Option<u64>,
}

impl Spec {
    pub fn parse(options: &Options) -> Result<Self, String> {
        let get = |name: &str| options.get(name).map_or("", String::as_str);
        let number = |name: &str, least: u32, most: u32| match get(name).parse::<u32>() {
            Ok(n) if (least..=most).contains(&n) => Ok(n),
            _ => Err(format!("`build.{name}` must be a number from {least} to {most}, not `{}`", get(name))),
        };
        let auto = |name: &str, least: u32, most: u32| match get(name) {
            AUTO => Ok(None),
            _ => number(name, least, most).map(Some).map_err(|e| format!("{e} (or `{AUTO}`)")),
        };
        let word = |name: &str| match get(name) {
            text if text.starts_with('-')
                || text.contains(|c: char| c.is_whitespace() || "'\"\\$;&|<>`()*?".contains(c)) =>
            {
                Err(format!("`build.{name}` must be a target of the tree's Makefile, not `{text}`"))
            }
            text => Ok(text.to_owned()),
        };
        let limit = units::duration(get("limit")).filter(|d| !d.is_zero());
        let tree = Some(get("tree")).filter(|t| *t != GENERATED).map(PathBuf::from);
        let (target, clean) = (word("target")?, word("clean")?);
        if clean.is_empty() {
            return Err("`build.clean` must be the target that removes the build's files, such as `clean`".to_owned());
        }
        let spec = Self {
            files: auto("files", 1, FILES_LIMIT as u32)?.map(|n| n as usize),
            functions: number("functions", 1, FUNCTIONS_LIMIT as u32)? as usize,
            loads: loads(get("loads"))?,
            optimal: auto("optimal", 1, JOBS_LIMIT)?,
            runs: number("runs", 1, RUNS_LIMIT)?,
            warmup: number("warmup", 0, RUNS_LIMIT)?,
            target,
            clean,
            prepare: get("prepare").to_owned(),
            check: get("check").to_owned(),
            limit: limit.ok_or_else(|| format!("`build.limit` must be {}, not `{}`", units::A_TIME, get("limit")))?,
            roots: get("roots").split([':', '\n']).filter(|p| !p.is_empty()).map(PathBuf::from).collect(),
            disk_bytes: match get("disk") {
                AUTO => None,
                text => Some(size::parse_bytes(text).map_err(|e| format!("`build.disk`: {e}"))?),
            },
            tree,
        };
        if let Some(root) = spec.roots.iter().find(|r| !r.is_absolute()) {
            return Err(format!(
                "`build.roots` needs absolute paths, separated by `:`; `{}` is not absolute",
                root.display()
            ));
        }
        if spec.tree.is_none() && (!spec.check.is_empty() || !spec.prepare.is_empty() || !spec.target.is_empty()) {
            return Err(
                "`build.prepare`, `build.target` and `build.check` need your own tree, `build.tree=DIR`".to_owned()
            );
        }
        Ok(spec)
    }

    /// Refuses a build that this machine cannot run.
    pub fn runnable(&self) -> Result<(), String> {
        if let Some(tree) = &self.tree {
            has_makefile(tree)?;
        }
        // A user's tree may need another compiler, which its own Makefile names.
        let needs = [("make", "make"), ("cc", "gcc"), ("ld", "binutils")];
        let missing = work_folder::missing(if self.tree.is_some() { needs[..1].to_vec() } else { needs.to_vec() });
        if missing.is_empty() { Ok(()) } else { Err(work_folder::bring(&missing)) }
    }

    /// Number of source files of the generated tree.
    pub fn files(&self, clock: Clock) -> usize {
        self.files.unwrap_or(if clock == Clock::Wall { FILES.1 } else { FILES.0 })
    }

    /// Number of parallel jobs; `None` for no limit.
    pub fn jobs(&self, load: Load, cpus: u32) -> Option<u32> {
        match load {
            Load::Half => Some((cpus / 2).max(1)),
            Load::Optimal => Some(self.optimal.unwrap_or(cpus.saturating_mul(4))),
            Load::Maximal => None,
        }
    }

    /// Maximum bytes of the build's files.
    pub fn disk_bytes(&self) -> u64 {
        let files = self.files(Clock::Wall) as u64;
        let own = if self.tree.is_some() { 256 << 20 } else { files * (96 << 10) + (40 << 20) };
        self.disk_bytes.unwrap_or(own)
    }

    /// Memory of all parallel jobs for generated sources.
    pub fn memory_bytes(&self) -> u64 {
        let jobs =
            self.loads.iter().map(|l| self.jobs(*l, USUAL_CPUS).map_or(self.files(Clock::Wall) as u64, u64::from));
        jobs.max().unwrap_or(1) * JOB_MEMORY + OTHER_MEMORY
    }
}

fn loads(text: &str) -> Result<Vec<Load>, String> {
    let mut loads = Vec::new();
    for word in text.split(',').map(str::trim) {
        let load = Load::WORDS.iter().find(|(w, _)| *w == word).map(|(_, l)| *l);
        let load = load.ok_or_else(|| {
            let words = bigiron_model::suggest::list(Load::WORDS.iter().map(|(w, _)| *w));
            format!("`build.loads` cannot contain `{word}`; it can contain {words}, separated by commas")
        })?;
        if loads.contains(&load) {
            return Err(format!("`build.loads` has `{word}` twice"));
        }
        loads.push(load);
    }
    Ok(loads)
}

fn has_makefile(tree: &Path) -> Result<(), String> {
    if !tree.is_dir() {
        return Err(format!("`build.tree` must be a folder with a Makefile; there is no folder `{}`", tree.display()));
    }
    if MAKEFILES.iter().any(|name| tree.join(name).is_file()) {
        return Ok(());
    }
    Err(format!("`build.tree` must be a folder with a Makefile, and `{}` has none", tree.display()))
}

/// The option `tree` in a plan: an absolute path, or the word `generated`.
pub fn absolute(tree: &str, on: RunsOn) -> Result<String, String> {
    if tree == GENERATED {
        return Ok(tree.to_owned());
    }
    if on == RunsOn::Elsewhere {
        return bigiron_workload::path_elsewhere("build.tree", tree);
    }
    has_makefile(Path::new(tree))?;
    let path = std::fs::canonicalize(tree).map_err(|e| format!("`build.tree={tree}`: {e}"))?;
    path.into_os_string().into_string().map_err(|_| format!("`build.tree={tree}` has a name that is not UTF-8"))
}
