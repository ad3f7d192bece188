//! A target that boots in a second (tests/ssh/simulated), for tests that need many boots.

mod interrupted;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::builder::{Test, skipped};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ssh/simulated");

const ALLOW: &str = "allow = [\"trials\", \"settings\", \"kernels\", \"reboots\"]\nreboots-per-day = 1000000\n";

/// A machine, and a test that calls it `db3`.
pub(super) struct Simulated {
    machine: Child,
    pub test: Test,
}

impl Simulated {
    /// `None`, and said, where there can be none.
    pub(super) fn start() -> Option<Self> {
        let can = Command::new("unshare").args(["--mount", "--net", "--pid", "--fork", "true"]).output();
        if !can.is_ok_and(|ran| ran.status.success()) {
            skipped("this process may not make namespaces, of which the simulated machine consists");
            return None;
        }
        let test = Test::new();
        let folder = test.dir().join("db3");
        fs::create_dir(&folder).unwrap();
        let ssh = format!("#!/bin/sh\nexec {PROGRAM} ssh {} \"$@\"\n", folder.display());
        let test = test.program("bin/ssh", &ssh).file("config/bigiron/hosts.toml", "[db3]\nboot-limit = 120\n");
        let path = format!("{}:{}", test.dir().join("bin").display(), std::env::var("PATH").unwrap());
        let test = test.path(&path);
        let machine = Command::new(PROGRAM)
            .arg("machine")
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let simulated = Self { machine, test };
        simulated.wait_until_up();
        let allow = folder.join("etc/bigiron");
        fs::create_dir_all(&allow).unwrap();
        fs::write(allow.join("allow.toml"), ALLOW).unwrap();
        Some(simulated)
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.test.dir().join("db3")
    }

    fn wait_until_up(&self) {
        let since = Instant::now();
        while !self.shell("true").status.success() {
            assert!(since.elapsed() < Duration::from_secs(120), "the simulated machine does not start");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn shell(&self, script: &str) -> Output {
        let mut ssh = Command::new(PROGRAM);
        ssh.arg("ssh").arg(self.folder()).args(["--", "db3", script]).stdin(Stdio::null()).output().unwrap()
    }

    /// bigiron's folder on the machine.
    pub(super) fn state(&self) -> PathBuf {
        self.folder().join("home/.local/state/bigiron")
    }

    /// A setting of the running kernel.
    pub(super) fn setting(&self, name: &str) -> String {
        fs::read_to_string(self.folder().join("settings").join(name)).unwrap_or_default().trim().to_owned()
    }

    pub(super) fn command_line(&self) -> String {
        fs::read_to_string(self.folder().join("cmdline")).unwrap_or_default()
    }

    /// What the audit log says was done, in order.
    pub(super) fn audit(&self) -> Vec<String> {
        let text = fs::read_to_string(self.state().join("audit.jsonl")).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.map(|line| line["what"].as_str().unwrap().to_owned()).collect()
    }

    /// Processes that run trials, as this machine numbers them.
    pub(super) fn trials(&self) -> Vec<Pid> {
        let home = self.state();
        let is_trial = |pid: &i32| {
            let words = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            matches!(words[..], [_, b"target", b"run", dir, ..] if dir.starts_with(home.as_os_str().as_encoded_bytes()))
        };
        let pids = fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(is_trial).filter_map(Pid::from_raw).collect()
    }

    /// Kills a trial's process, if one runs.
    pub(super) fn kill_trial(&self) -> bool {
        self.trials().into_iter().any(|pid| kill_process(pid, Signal::KILL).is_ok())
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.machine.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.machine.wait();
    }
}
