//! `--on ssh:…`: trials and boots on another machine. Those with a machine run in `make test-hosts`: Debian 12 in QEMU (tests/ssh/make-target).

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::builder::{Ran, Test};

/// Nothing listens there.
const UNREACHABLE: &str = "Host db3\n  HostName 127.0.0.1\n  Port 1\n";

fn configured(config: &str, more: &str) -> Test {
    let test = Test::new().file("ssh_config", config);
    let path = test.dir().join("ssh_config");
    let hosts = format!("[db3]\nssh-config = {:?}\n{more}", path.display().to_string());
    test.file("config/bigiron/hosts.toml", hosts)
}

#[test]
fn what_is_wrong_with_a_host_is_refused_before_anything_else() {
    let test = configured(UNREACHABLE, "");
    for (on, want) in [
        ("ssh", "`ssh` needs the name of a machine, as in `ssh:db-test-3`"),
        ("ssh:-x", "cannot be the name of a machine"),
        ("cloud", "possible values: vm, local, ssh:NAME"),
    ] {
        let ran = test.run(&["compare", "--on", on, "running", "running", "micro"]);
        assert_eq!(ran.status, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(want), "{}", ran.stderr);
    }
    for args in [
        &["compare", "--on", "ssh:db3", "running", "running", "micro"][..],
        &["host", "check", "ssh:db3"],
        &["undo", "--on", "ssh:db3"],
    ] {
        let ran = test.run(args);
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("`db3` cannot be reached: ") && ran.stderr.contains("refused"), "{}", ran.stderr);
    }
    assert!(test.entries("bigiron-results").is_empty());
    let wrong = configured(UNREACHABLE, "pwer = \"x\"\n").run(&["host", "check", "ssh:db3"]);
    assert!(wrong.stderr.contains("hosts.toml:3: Unknown key `pwer`; did you mean `power`?"), "{}", wrong.stderr);
}

/// A machine that has just been started, and a test that calls it `db3`.
struct Machine {
    qemu: Child,
    test: Test,
}

impl Machine {
    fn start(more: &str) -> Self {
        Self::start_with(more, &[])
    }

    /// With more options for QEMU.
    fn start_with(more: &str, options: &[&str]) -> Self {
        let made = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ssh/make-target")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let folder = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "Host db3\n  HostName 127.0.0.1\n  Port {port}\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
             StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
            folder.join("key").display()
        );
        let test = configured(&config, more).cache(folder.parent().unwrap().to_owned());
        let console = test.dir().join("console");
        let qemu = Command::new(folder.join("start"))
            .arg(port.to_string())
            .args(options)
            .env("SERIAL", format!("file:{}", console.display()))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let machine = Self { qemu, test };
        machine.wait_until("it answers", || machine.shell("true").0);
        machine
    }

    fn wait_until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let since = Instant::now();
        while !done() {
            assert!(since.elapsed() < Duration::from_secs(600), "not after ten minutes: {what}");
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// Runs a script there: whether it succeeded, and its output.
    fn shell(&self, script: &str) -> (bool, String) {
        let mut ssh = Command::new("ssh");
        ssh.arg("-F").arg(self.test.dir().join("ssh_config")).args(["-o", "ConnectTimeout=5", "-o", "BatchMode=yes"]);
        let ran = ssh.args(["db3", script]).stdin(Stdio::null()).output().unwrap();
        (ran.status.success(), String::from_utf8_lossy(&ran.stdout).into_owned())
    }

    #[track_caller]
    fn says(&self, script: &str) -> String {
        let (done, out) = self.shell(script);
        assert!(done, "{script}: {out}");
        out
    }

    fn allow(&self, file: &str) {
        self.says(&format!("mkdir -p /etc/bigiron; echo '{file}' >/etc/bigiron/allow.toml"));
    }

    #[track_caller]
    fn ends(&self, ran: &Ran, status: i32, want: &[&str]) {
        assert_eq!(ran.status, status, "{}{}", ran.stdout, ran.stderr);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        want.iter().for_each(|want| assert!(all.contains(want), "no `{want}` in:\n{all}"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

const ALL: &str = "allow = [\"trials\", \"settings\", \"kernels\", \"reboots\"]\nreboots-per-day = 20";

/// A study of these arms with trials of seconds.
fn study<'a>(arms: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
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
fn of_settings() -> Vec<&'static str> {
    study(&["running", "running,sysctl.vm.swappiness=11"], &[])
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn a_setting_is_compared_on_another_machine_and_taken_back() {
    let machine = Machine::start("");
    let test = &machine.test;
    let check = test.run(&["host", "check", "ssh:db3"]);
    machine.ends(&check, 1, &["boot method      kexec", "`/etc/bigiron/allow.toml` does not exist", "sshd (22)"]);
    let refused = test.run(&of_settings());
    machine.ends(&refused, 2, &["so its administrator allows nothing", "allow = [\"trials\", \"settings\"]"]);
    assert_eq!(machine.says("cat /proc/sys/vm/swappiness").trim(), "60");
    // A look leaves nothing.
    assert_eq!(machine.says("ls -d /tmp/bigiron* ~/.local 2>/dev/null; true"), "");
    machine.allow("allow = [\"trials\", \"settings\"]");
    machine.ends(&test.run(&["host", "check", "ssh:db3"]), 0, &["settings         allowed"]);
    // The orchestrator is killed at five moments, and its connection is cut once; the same command goes on.
    for moment in [200, 3100, 5300, 7900, 11_000] {
        let mut first = test.start_quiet(&of_settings());
        thread::sleep(Duration::from_millis(moment));
        let _ = kill_process(Pid::from_raw(first.id() as i32).unwrap(), Signal::KILL);
        first.wait().unwrap();
    }
    let last = test.start(&of_settings());
    machine.wait_until("a trial runs", || machine.shell("pgrep -f 'target [r]un'").0);
    machine.shell("pkill -f 'sshd: root@notty'");
    let ended = last.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(test.records("study").len(), 8);
    let audit = machine.says("grep -c '\"trial ' ~/.local/state/bigiron/audit.jsonl");
    assert_eq!(audit.trim(), "8", "each trial ran once");
    assert_eq!(machine.says("cat /proc/sys/vm/swappiness").trim(), "60");
    machine.ends(&test.run(&["undo", "--on", "ssh:db3"]), 0, &["Nothing to restore"]);
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn kernels_are_booted_once_each_and_the_machine_is_as_before() {
    let machine = Machine::start("boot-limit = 400\n");
    let test = &machine.test;
    const KERNELS: [&str; 2] = ["debian:6.1", "debian:6.12"];
    machine.allow(ALL);
    machine.ends(&test.run(&study(&KERNELS, &[])), 2, &["bigiron cannot turn `db3` off and on again", "--no-way-back"]);
    // Without the folders' own lines: their times tell that something has been in them.
    let state = "cat /boot/grub/grubenv /boot/grub/grub.cfg /var/lib/dpkg/status; \
                 ls -laR /boot /lib/modules | grep -v -e '^total' -e ' [.][.]*$'";
    let (before, kernel) = (machine.says(state), machine.says("uname -r"));
    let ran = test.run(&study(&KERNELS, &["--no-way-back"]));
    machine.ends(&ran, 0, &["Copying 6.12", "Removed from `db3`: 6.12", "`db3` is as before: "]);
    assert_eq!(test.records("study").len(), 8);
    assert_eq!(machine.says("grep -c '\"boot ' ~/.local/state/bigiron/audit.jsonl").trim(), "8");
    assert_eq!(machine.says("uname -r"), kernel);
    let after = machine.says(state);
    let differing: Vec<&str> =
        before.lines().zip(after.lines()).filter(|(a, b)| a != b).map(|(_, b)| b).take(9).collect();
    assert!(before == after, "the machine is not as before: {differing:#?}");
    let records = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap();
    assert_eq!(records.matches("bigiron.id=").count(), 8, "each boot has its nonce");
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn a_kernel_that_does_not_boot_has_failed_and_the_machine_is_as_before() {
    let machine = Machine::start("boot-limit = 400\n");
    let test = &machine.test;
    machine.allow(ALL);
    // It panics, since nothing fits into its memory, and reboots into the default after 30 s.
    let arms = ["running", "running,boot.mem=96M"];
    let words = study(&arms, &["--no-way-back", "--seed=1"]);
    let ran = test.run(&words);
    machine.ends(&ran, 1, &["did not come up: after its boot `db3` runs ", "is as before"]);
    let records = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap();
    assert_eq!(records.matches("\"kind\":\"failed\"").count(), 1, "{records}");
    assert!(!machine.says("cat /proc/cmdline").contains("bigiron.id="));
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn a_machine_that_does_not_come_back_is_in_quarantine_and_its_power_command_runs_once() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let machine = Machine::start_with(
        "boot-limit = 120\npower = \"bash power.sh\"\n",
        &["-qmp", &format!("tcp:127.0.0.1:{port},server=on,wait=off")],
    );
    let reset = "{\"execute\":\"qmp_capabilities\"}{\"execute\":\"system_reset\"}";
    let power = format!("exec 3<>/dev/tcp/127.0.0.1/{port}\necho '{reset}' >&3\nsleep 2\necho x >>power-log\n");
    fs::write(machine.test.dir().join("power.sh"), power).unwrap();
    let test = &machine.test;
    machine.allow(ALL);
    // Its initramfs waits at a prompt for ever.
    let words = study(&["running", "running,boot.break=premount"], &["--seed=1"]);
    let ran = test.run(&words);
    machine.ends(
        &ran,
        1,
        &[
            "did not come back within 120 s",
            "is in quarantine; its power command was run once, and the machine answers again",
        ],
    );
    assert_eq!(fs::read_to_string(test.dir().join("power-log")).unwrap(), "x\n");
    machine.ends(&test.run(&words), 2, &["`db3` is in quarantine: "]);
    machine.ends(&test.run(&["undo", "--on", "ssh:db3"]), 0, &["the quarantine of `db3` has ended"]);
    machine.ends(&test.run(&["host", "check", "ssh:db3"]), 0, &["other kernels    allowed"]);
}
