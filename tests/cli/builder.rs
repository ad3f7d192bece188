//! One run of the executable in a folder of its own, with a cache of its own.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::fs::Permissions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// How long tests wait for a boot or a trial that must come, on a slow machine with much other work too. Not for an end that is itself tested: what has
/// to end might end by itself by then.
pub const PATIENCE: Duration = Duration::from_secs(2400);

/// A run to be made, and then what came of it.
pub struct Test {
    dir: TempDir,
    path: Option<String>,
    cache: Option<PathBuf>,
}

/// Says that the test that runs now shows nothing on this machine. Not by `eprintln!`, which the harness shows of failed tests alone; `scripts/test`
/// repeats it at its end.
pub fn skipped(why: impl std::fmt::Display) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// Whether long tests run in full (`make test-long`); else they run their short form.
pub fn is_long() -> bool {
    std::env::var_os("BIGIRON_LONG").is_some_and(|value| value == "1")
}

/// Processes that work below `dir`.
pub fn processes_in(dir: &Path) -> usize {
    let links = fs::read_dir("/proc").unwrap().filter_map(|e| fs::read_link(e.ok()?.path().join("cwd")).ok());
    links.filter(|cwd| cwd.starts_with(dir)).count()
}

/// What a run printed.
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Test {
    pub fn new() -> Self {
        Test { dir: tempfile::tempdir().unwrap(), path: None, cache: None }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file of the working directory.
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.dir().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Adds a program, as [`write_program`] does.
    pub fn program(self, name: &str, text: &str) -> Self {
        write_program(&self.dir().join(name), text);
        self
    }

    /// PATH of the run.
    pub fn path(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// A cache that outlives the run, instead of one of its own.
    pub fn cache(mut self, cache: PathBuf) -> Self {
        self.cache = Some(cache);
        self
    }

    pub fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(executable());
        command
            .args(args)
            .current_dir(self.dir())
            .env("BIGIRON_CACHE", self.cache.clone().unwrap_or_else(|| self.dir().join("cache")))
            .env("XDG_STATE_HOME", self.dir().join("state"))
            .env("XDG_CONFIG_HOME", self.dir().join("config"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_words(args)
    }

    /// The same for words that need not be UTF-8.
    pub fn run_words(&self, args: &[impl AsRef<OsStr>]) -> Ran {
        let output = self.command(args).output().unwrap();
        Ran {
            status: output.status.code().expect("ended by itself"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Starts it and lets it run; what it printed can be read when it has ended.
    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Starts it, and what it prints is lost: for a run that may print more than a pipe holds while nobody reads.
    pub fn start_quiet(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The record of the first trial of a study in `out`, which is interrupted then.
    pub fn first_record(&self, out: &str, args: &[&str]) -> Value {
        // Before the words of a program, which come last.
        let mut child = self.start(&[&args[..1], &["--out", out], &args[1..]].concat());
        let begun = Instant::now();
        let record = loop {
            let text = fs::read_to_string(self.dir().join(out).join("records.jsonl")).unwrap_or_default();
            if let Some(line) = text.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok()) {
                break line["record"].clone();
            }
            if child.try_wait().unwrap().is_some() {
                let output = child.wait_with_output().unwrap();
                panic!("ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
            }
            assert!(begun.elapsed() < PATIENCE, "no trial is done");
            std::thread::sleep(Duration::from_millis(100));
        };
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        child.wait_with_output().unwrap();
        record
    }

    /// [`Test::first_record`] of a study of `app`, repeated until its run conforms: on a machine that stalls for seconds, it may not.
    pub fn conforming_record(&self, out: &str, args: &[&str]) -> Value {
        for n in 1.. {
            let record = self.first_record(&format!("{out}-{n}"), args);
            let message = record["outcome"]["message"].as_str().unwrap_or_default();
            if n == 10 || !message.contains("The run does not conform: the 90th percentile of `") {
                return record;
            }
        }
        unreachable!("the tenth is returned")
    }

    /// The values of all metrics in a study's folder, by slot.
    pub fn records(&self, study: &str) -> BTreeMap<u64, Vec<(String, f64)>> {
        let text = fs::read_to_string(self.dir().join(study).join("records.jsonl")).unwrap_or_default();
        let record = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            let workloads = line["record"]["metrics"].as_object()?.values();
            let metrics = workloads.flat_map(|values| values.as_object().unwrap());
            let values = metrics.map(|(name, value)| (name.clone(), value.as_f64().unwrap()));
            Some((line["record"]["slot"].as_u64()?, values.collect()))
        };
        text.lines().filter_map(record).collect()
    }

    /// Edits a study's plan as another bigiron would have written it, checksum included.
    pub fn edit_plan(&self, study: &str, edit: impl FnOnce(&str) -> String) {
        let path = self.dir().join(study).join("plan.toml");
        let text = fs::read_to_string(&path).unwrap();
        let (preamble, rest) = text.split_once("# sha256 ").unwrap();
        let body = edit(rest.split_once('\n').unwrap().1);
        let sum: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(path, format!("{preamble}# sha256 {sum}\n{body}")).unwrap();
    }

    /// Names in a directory, sorted; empty if there is none.
    pub fn entries(&self, name: &str) -> Vec<PathBuf> {
        let read = fs::read_dir(self.dir().join(name));
        let mut entries: Vec<PathBuf> = read.into_iter().flatten().map(|e| e.unwrap().path()).collect();
        entries.sort();
        entries
    }
}

/// Whether a text has `want`, wherever its lines are broken.
fn has(text: &str, want: &str) -> bool {
    let in_a_line = || text.replace(" \\\n", " ").split_whitespace().collect::<Vec<_>>().join(" ");
    text.contains(want) || in_a_line().contains(want)
}

impl Ran {
    #[track_caller]
    pub fn status(self, want: i32) -> Self {
        assert_eq!(self.status, want, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub fn stdout_has(self, want: &str) -> Self {
        assert!(has(&self.stdout, want), "no `{want}` in stdout: {}", self.stdout);
        self
    }

    #[track_caller]
    pub fn stderr_has(self, want: &str) -> Self {
        assert!(has(&self.stderr, want), "no `{want}` in stderr: {}", self.stderr);
        self
    }

    /// Refused: exit status 2, nothing on standard output, the reason on standard error.
    #[track_caller]
    pub fn refused(self, want: &str) -> Self {
        let ran = self.status(2).stderr_has(want);
        assert!(ran.stdout.is_empty(), "stdout: {}", ran.stdout);
        ran
    }
}

/// Writes an executable script and creates its folder. Another process writes it: a child forked by another test would inherit this process's open
/// file, and Linux does not execute a file that is open for writing.
pub fn write_program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let write = "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"";
    assert!(Command::new("sh").args(["-c", write, "sh"]).arg(path).arg(text).status().unwrap().success());
}

/// bigiron as `scripts/build` makes it: with the agent appended, without which each guest would get the larger executable.
pub fn executable() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let agent = fs::read(env!("CARGO_BIN_EXE_bigiron-agent")).unwrap();
        let mut bytes = fs::read(env!("CARGO_BIN_EXE_bigiron")).unwrap();
        bytes.extend_from_slice(&agent);
        bytes.extend(format!("{:016x}BIGIRON-AGENT-01", agent.len()).into_bytes());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bigiron");
        // Other tests may be running the file that is there.
        let new = path.with_extension(format!("new-{}", std::process::id()));
        fs::write(&new, bytes).unwrap();
        fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, &path).unwrap();
        // A child that another test has just started holds the file open for writing, too, until it executes its program; until then the file is not
        // executed.
        let begun = Instant::now();
        let is_busy = || {
            let ran = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
            ran.is_err_and(|error| error.kind() == ErrorKind::ExecutableFileBusy)
        };
        while is_busy() {
            assert!(begun.elapsed() < PATIENCE, "somebody writes to {}", path.display());
            std::thread::sleep(Duration::from_millis(5));
        }
        path
    })
}
