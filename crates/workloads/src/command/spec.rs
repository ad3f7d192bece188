//! The parsed options of the workload: what to run, and how.
//!
//! Invariant: a valid specification can be tried; all others are refused with a message that says what would be right.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::declared::{self, Declared, Reduce, Source};
use bigiron_image::find_tool;
use bigiron_model::size;
use bigiron_model::workload::Options;
use bigiron_service::program::root::{enter, kits};
use bigiron_workload::{RunsOn, path_elsewhere, units};

/// More runs than any trial needs.
const RUNS_LIMIT: u32 = 10_000;

/// The program, as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramSource {
    /// Not given here: every arm must give it.
    Nothing,
    /// A shell command.
    Line(String),
    /// A program and its arguments.
    Words(Vec<String>),
}

/// All options of the workload, parsed.
#[derive(Clone, Debug)]
pub struct Spec {
    pub what: ProgramSource,
    /// Run before each run, not measured.
    pub prepare: ProgramSource,
    pub dir: PathBuf,
    /// Variables added to the environment that bigiron was started with, by name.
    pub environment: Vec<(String, String)>,
    pub repeats: u32,
    pub warmup: u32,
    pub limit: Duration,
    pub keep_stdout: bool,
    pub reduce: Reduce,
    pub metrics: Vec<Declared>,
    /// More files and folders of this machine to provide in a guest.
    pub roots: Vec<PathBuf>,
    /// Disk space for its output, in a guest.
    pub disk_bytes: u64,
}

/// The prefix of the options that set variables.
pub const ENVIRONMENT: &str = "env.";

impl ProgramSource {
    /// Parses the option `run`: a JSON list of words is a program with its arguments, anything else a shell command.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(ProgramSource::Nothing);
        }
        match serde_json::from_str::<Vec<String>>(text) {
            Ok(words) if words.first().is_none_or(String::is_empty) => {
                Err("A command without a program; write one such as `make -C src`".to_owned())
            }
            Ok(words) if words.iter().any(|w| w.contains('\0')) => Err("A zero byte ends every argument".to_owned()),
            Ok(words) => Ok(ProgramSource::Words(words)),
            Err(_) if text.contains('\0') => Err("A zero byte ends every argument".to_owned()),
            Err(_) => Ok(ProgramSource::Line(text.to_owned())),
        }
    }

    /// A program and its arguments as the option `run`.
    pub fn option(words: &[String]) -> String {
        serde_json::to_string(words).expect("words are plain data")
    }

    /// The program and its arguments.
    pub fn words(&self) -> Vec<String> {
        match self {
            ProgramSource::Nothing => Vec::new(),
            ProgramSource::Line(line) => ["/bin/sh", "-c", line].map(str::to_owned).to_vec(),
            ProgramSource::Words(words) => words.clone(),
        }
    }

    /// As typed in a shell.
    pub fn typed(&self) -> String {
        match self {
            ProgramSource::Nothing => String::new(),
            ProgramSource::Line(line) => line.clone(),
            ProgramSource::Words(words) => {
                words.iter().map(|w| bigiron_model::shell::quote(w)).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

impl Spec {
    pub fn parse(options: &Options) -> Result<Self, String> {
        let get = |name: &str| options.get(name).map_or("", String::as_str);
        let number = |name: &str, least: u32| match get(name).parse::<u32>() {
            Ok(n) if (least..=RUNS_LIMIT).contains(&n) => Ok(n),
            _ => Err(format!("`command.{name}` must be from {least} to {RUNS_LIMIT}, not `{}`", get(name))),
        };
        let limit = units::duration(get("limit")).filter(|d| !d.is_zero());
        let spec = Self {
            what: ProgramSource::parse(get("run"))?,
            prepare: ProgramSource::parse(get("prepare"))?,
            dir: PathBuf::from(get("dir")),
            environment: options
                .iter()
                .filter_map(|(name, value)| Some((name.strip_prefix(ENVIRONMENT)?.to_owned(), value.clone())))
                .collect(),
            repeats: number("repeats", 1)?,
            warmup: number("warmup", 0)?,
            limit: limit.ok_or_else(|| format!("`command.limit` must be {}, not `{}`", units::A_TIME, get("limit")))?,
            keep_stdout: get("stdout") == "keep",
            reduce: Reduce::parse(get("reduce")).map_err(|e| format!("`command.reduce`: {e}"))?,
            metrics: declared::parse_all(get("metrics"))?,
            roots: get("roots").split([':', '\n']).filter(|p| !p.is_empty()).map(PathBuf::from).collect(),
            disk_bytes: size::parse_bytes(get("disk")).map_err(|e| format!("`command.disk`: {e}"))?,
        };
        if let Some(root) = spec.roots.iter().find(|r| !r.is_absolute()) {
            return Err(format!(
                "`command.roots` needs absolute paths, separated by `:`; `{}` is not absolute",
                root.display()
            ));
        }
        if let Some(metric) = spec.metrics.iter().find(|m| m.source == Source::Stdout && !spec.keep_stdout) {
            return Err(format!(
                "Metric `{}` is in standard output, which `command.stdout=discard` discards",
                metric.name
            ));
        }
        Ok(spec)
    }

    /// Whether it could run: there is a program, and a working directory. On another machine these are found by the first trial.
    pub fn runnable(&self, on: RunsOn) -> Result<(), String> {
        let words = self.what.words();
        let Some(program) = words.first() else {
            return Err("the workload `command` has no program; write it after `--`, such as `-- make -C src`, or give each arm its \
                        own with `command.run=LINE`"
                .to_owned());
        };
        if on == RunsOn::Elsewhere {
            return Ok(());
        }
        if !self.dir.is_dir() {
            return Err(format!("there is no folder `{}` to run the command in", self.dir.display()));
        }
        let before = self.prepare.words();
        [Some(program), before.first()].into_iter().flatten().try_for_each(|p| self.find(p).map(drop))
    }

    /// Words of the command that may be names of programs, including those in a shell command.
    pub fn words_of_programs(&self) -> Vec<String> {
        let all = [self.what.words(), self.prepare.words()].concat();
        all.iter().flat_map(|word| kits::tokens(word)).map(str::to_owned).collect()
    }

    /// Finds a program below the root of a guest; returns its path in the guest.
    pub fn find_below(&self, root: &Path, program: &str) -> Result<PathBuf, String> {
        let there = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path)).symlink_metadata().is_ok();
        let missing = || format!("there is no program `{program}` in the guest; add it to `command.roots`");
        if program.contains('/') {
            return Some(self.dir.join(program)).filter(|p| there(p)).ok_or_else(missing);
        }
        let own = self.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_str());
        let path = own.unwrap_or(enter::ENVIRONMENT[0].1);
        let mut found = std::env::split_paths(path).map(|dir| self.dir.join(dir).join(program));
        found.find(|p| there(p)).ok_or_else(missing)
    }

    /// Finds a program: by its path, from the working directory, or in the command's PATH.
    pub fn find(&self, program: &str) -> Result<PathBuf, String> {
        if program.contains('/') {
            let path = self.dir.join(program);
            let there = path.is_file();
            return if there {
                Ok(path)
            } else {
                Err(format!("there is no program `{program}` in `{}`", self.dir.display()))
            };
        }
        let own = self.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
        let found = match own {
            Some(path) => std::env::split_paths(path).map(|dir| self.dir.join(dir).join(program)).find(|p| p.is_file()),
            None => find_tool(program),
        };
        found.ok_or_else(|| format!("there is no program `{program}` in PATH"))
    }
}

/// The option `dir` in a plan: an absolute path; nothing for the trial's own folder on another machine.
pub fn absolute(dir: &str, on: RunsOn) -> Result<String, String> {
    let path = Path::new(dir);
    if on == RunsOn::Elsewhere {
        // The default.
        return if matches!(dir, "." | "") { Ok(String::new()) } else { path_elsewhere("command.dir", dir) };
    }
    let path = std::fs::canonicalize(path).map_err(|e| match path.is_dir() {
        true => format!("`command.dir={dir}`: {e}"),
        false => format!("`command.dir`: there is no folder `{dir}` to run the command in"),
    })?;
    path.into_os_string().into_string().map_err(|_| format!("`command.dir={dir}` has a name that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_machine_are_not_looked_for_here() {
        assert_eq!(absolute(".", RunsOn::Elsewhere), Ok(String::new()));
        assert_eq!(absolute("", RunsOn::Elsewhere), Ok(String::new()), "as in a plan");
        assert_eq!(absolute("/srv/not here", RunsOn::Elsewhere), Ok("/srv/not here".to_owned()));
        assert!(absolute("bench", RunsOn::Elsewhere).unwrap_err().contains("must be an absolute path"));
        assert!(absolute("/srv/not here", RunsOn::Here).is_err());
    }

    #[test]
    fn a_program_is_words_or_a_line() {
        let words = vec!["make".to_owned(), "-C".to_owned(), "a b".to_owned()];
        let what = ProgramSource::parse(&ProgramSource::option(&words)).unwrap();
        assert_eq!((what.words(), what.typed()), (words, "make -C 'a b'".to_owned()));
        let line = "[ -f x ] && sleep 0.3";
        assert_eq!(ProgramSource::parse(line).unwrap().words(), ["/bin/sh", "-c", line]);
        assert_eq!(ProgramSource::parse(" ").unwrap(), ProgramSource::Nothing);
        assert!(ProgramSource::parse("[]").is_err() && ProgramSource::parse("[\"\"]").is_err());
    }
}
