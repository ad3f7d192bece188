//! A machine for tests: Debian 12 in QEMU, started for one test and lost at its end.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::builder::{PATIENCE, Ran, Test};

pub(super) fn configured(config: &str, more: &str) -> Test {
    let test = Test::new().file("ssh_config", config);
    let path = test.dir().join("ssh_config");
    let hosts = format!("[db3]\nssh-config = {:?}\n{more}", path.display().to_string());
    test.file("config/bigiron/hosts.toml", hosts)
}

/// How a machine is started.
#[derive(Default)]
pub(super) struct Setup<'a> {
    /// Its boot loader, GRUB unless named (tests/ssh/make-target).
    pub loader: Option<&'a str>,
    /// Lines for its table in hosts.toml.
    pub hosts: &'a str,
    /// Options for QEMU.
    pub options: &'a [&'a str],
    /// Whether its disk outlives its power.
    pub keeps_disk: bool,
}

/// A machine that has just been started, and a test that calls it `db3`.
pub(super) struct Machine {
    qemu: Child,
    start: Command,
    pub test: Test,
}

impl Machine {
    pub(super) fn start(hosts: &str) -> Self {
        Self::start_as(&Setup { hosts, ..Setup::default() })
    }

    pub(super) fn start_as(setup: &Setup<'_>) -> Self {
        let mut make = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ssh/make-target"));
        let made = make.args(setup.loader).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let folder = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "Host db3\n  HostName 127.0.0.1\n  Port {port}\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
             StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
            folder.join("key").display()
        );
        let test = configured(&config, setup.hosts).cache(folder.parent().unwrap().to_owned());
        let mut start = Command::new(folder.join("start"));
        start.arg(port.to_string()).args(setup.options).stdin(Stdio::null());
        start.env("SERIAL", format!("file:{}", test.dir().join("console").display()));
        let restarts = setup.loader == Some("systemd-boot");
        if restarts {
            start.env("RESET", "restart");
        }
        if setup.keeps_disk || restarts {
            for (variable, file) in [("DISK", "disk.raw"), ("VARS", "variables.fd")] {
                let copy = test.dir().join(file);
                if folder.join(file).exists() {
                    let mut cp = Command::new("cp");
                    cp.args(["--sparse=always", "--reflink=auto"]).args([folder.join(file), copy.clone()]);
                    assert!(cp.status().unwrap().success());
                    start.env(variable, copy);
                }
            }
            start.env("SNAPSHOT", "off");
        }
        // QEMU may be a child of the script.
        start.process_group(0);
        let machine = Self { qemu: start.spawn().unwrap(), start, test };
        machine.wait_until("it answers", || machine.shell("true").0);
        machine
    }

    /// With a power command that resets it, and notes each time in the file `power-log`.
    pub(super) fn with_power(hosts: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let qmp = format!("tcp:127.0.0.1:{port},server=on,wait=off");
        let hosts = format!("{hosts}power = \"bash power.sh\"\n");
        let machine = Self::start_as(&Setup { hosts: &hosts, options: &["-qmp", &qmp], ..Setup::default() });
        let reset = "{\"execute\":\"qmp_capabilities\"}{\"execute\":\"system_reset\"}";
        let power = format!("exec 3<>/dev/tcp/127.0.0.1/{port}\necho '{reset}' >&3\nsleep 2\necho x >>power-log\n");
        fs::write(machine.test.dir().join("power.sh"), power).unwrap();
        machine
    }

    /// Cuts its power, and turns it on again.
    pub(super) fn cut_power(&mut self) {
        self.end();
        self.qemu = self.start.spawn().unwrap();
    }

    fn end(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.qemu), Signal::KILL);
        let _ = self.qemu.wait();
    }

    #[track_caller]
    pub(super) fn wait_until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let since = Instant::now();
        while !done() {
            assert!(since.elapsed() < PATIENCE, "too late: {what}");
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// Runs a script there: whether it succeeded, and its output.
    pub(super) fn shell(&self, script: &str) -> (bool, String) {
        let mut ssh = Command::new("ssh");
        ssh.arg("-F").arg(self.test.dir().join("ssh_config")).args(["-o", "ConnectTimeout=60", "-o", "BatchMode=yes"]);
        let ran = ssh.args(["db3", script]).stdin(Stdio::null()).output().unwrap();
        (ran.status.success(), String::from_utf8_lossy(&ran.stdout).into_owned())
    }

    #[track_caller]
    pub(super) fn says(&self, script: &str) -> String {
        let (done, out) = self.shell(script);
        assert!(done, "{script}: {out}");
        out
    }

    /// Lines of the audit log that contain this.
    #[track_caller]
    pub(super) fn audited(&self, words: &str) -> usize {
        self.says(&format!("cat ~/.local/state/bigiron/audit.jsonl 2>/dev/null | grep -c '{words}' || true"))
            .trim()
            .parse()
            .unwrap()
    }

    pub(super) fn allow(&self, file: &str) {
        self.says(&format!("mkdir -p /etc/bigiron; echo '{file}' >/etc/bigiron/allow.toml; sync"));
    }

    #[track_caller]
    pub(super) fn ends(&self, ran: &Ran, status: i32, want: &[&str]) {
        let console = || {
            let text = fs::read(self.test.dir().join("console")).unwrap_or_default();
            String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned()
        };
        assert_eq!(ran.status, status, "{}{}\nconsole: …{}", ran.stdout, ran.stderr, console());
        let all = format!("{}{}", ran.stdout, ran.stderr);
        want.iter().for_each(|want| assert!(all.contains(want), "no `{want}` in:\n{all}\nconsole: …{}", console()));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

pub(super) const ALL: &str = "allow = [\"trials\", \"settings\", \"kernels\", \"reboots\"]\nreboots-per-day = 20";

/// A study of these arms with trials of seconds.
pub(super) fn study<'a>(arms: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    const SHORT: [&str; 9] = [
        "micro",
        "--quick",
        "--why=0",
        "--out=study",
        "--idle-gap=0",
        "--set",
        "micro.only=signal",
        "--set",
        "micro.scale=0.01",
    ];
    [&["compare", "--on", "ssh:db3"], arms, &SHORT, more].concat()
}

/// A study of the running kernel.
pub(super) fn of_settings() -> Vec<&'static str> {
    study(&["running", "running,sysctl.vm.swappiness=11"], &[])
}
