//! `--on ssh:…`: trials and boots on another machine. Those with a machine run in `make test-hosts`: Debian 12 in QEMU (tests/ssh/make-target).

mod faults;
mod kills;
mod machine;
mod simulated;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::builder::PATIENCE;
use machine::{ALL, Machine, configured, of_settings, study};
use simulated::Simulated;

/// Nothing listens there.
const UNREACHABLE: &str = "Host db3\n  HostName 127.0.0.1\n  Port 1\n";

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
    for args in [&["compare", "--on", "ssh:db3", "running", "running", "micro"][..], &["host", "check", "ssh:db3"]] {
        let ran = test.run(args);
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("`db3` cannot be reached: ") && ran.stderr.contains("refused"), "{}", ran.stderr);
    }
    assert!(test.entries("bigiron-results").is_empty());
    let wrong = configured(UNREACHABLE, "pwer = \"x\"\n").run(&["host", "check", "ssh:db3"]);
    assert!(wrong.stderr.contains("hosts.toml:3: Unknown key `pwer`; did you mean `power`?"), "{}", wrong.stderr);
}

#[test]
fn a_simulated_machine_boots_for_each_trial_and_runs_its_own_kernel_after_an_interruption() {
    let Some(machine) = Simulated::start() else { return };
    let test = &machine.test;
    let own = machine.command_line();
    // The third trial lasts until it is ended: the study is not further when it is interrupted, however late that is.
    let trials = test.dir().join("trials");
    let script = format!("echo >>'{0}'; while [ $(wc -l <'{0}') -gt 2 ]; do sleep 0.05; done", trials.display());
    let mut words = vec!["compare", "--on", "ssh:db3", "running", "running,boot.audit=0", "--quick", "--idle-gap", "0"];
    words.extend(["--why", "0", "--no-way-back", "--out", "study", "--", "sh", "-c", &script]);
    let child = test.start(&words);
    let since = Instant::now();
    while test.records("study").len() < 2 {
        assert!(since.elapsed() < PATIENCE, "no pair is done");
        thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("`db3` boots its own kernel") && said.contains("`db3` is as before: "), "{said}");
    assert_eq!(machine.command_line(), own);
    let records = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap();
    assert!(records.matches("\"machine.booted by\":\"kexec\"").count() >= 2, "{records}");
    let boots = machine.audit().iter().filter(|what| what.starts_with("boot ")).count();
    assert!((2..=3).contains(&boots), "{:?}", machine.audit());
}

#[test]
fn a_command_runs_in_a_folder_of_the_other_machine() {
    let Some(machine) = Simulated::start() else { return };
    let test = &machine.test;
    let command = |more: &[&str]| {
        let question = ["compare", "--on", "ssh:db3", "running", "running", "--quick", "--idle-gap", "0", "--why", "0"];
        let script = format!("pwd >>{}", test.dir().join("folders").display());
        test.run(&[&question[..], more, &["--", "sh", "-c", &script]].concat())
    };
    command(&["--set", "command.dir=bench"]).refused("`command.dir=bench` must be an absolute path");
    command(&["--out", "own"]).status(0);
    command(&["--set", "command.dir=/proc", "--out", "named"]).status(0);
    let folders = fs::read_to_string(test.dir().join("folders")).unwrap();
    let (own, named) = folders.lines().partition::<Vec<_>, _>(|folder| *folder != "/proc");
    assert_eq!((own.len(), named.len()), (8, 8), "{folders}");
    let state = machine.state().canonicalize().unwrap();
    assert!(own.iter().all(|folder| folder.starts_with(state.to_str().unwrap())), "{folders}");
    // What is not there is known when it runs.
    let arms =
        ["compare", "--on", "ssh:db3", "running", "running", "--quick", "--out", "none", "--", "no-such-program"];
    test.run(&arms).status(1).stderr_has("there is no program `no-such-program` in PATH");
}

#[test]
fn a_study_is_not_resumed_with_a_program_that_has_changed_on_the_machine() {
    let Some(machine) = Simulated::start() else { return };
    let test = &machine.test;
    let (work, trials) = (test.dir().join("work"), test.dir().join("trials"));
    // The third trial lasts until the study is interrupted.
    let first = format!("echo >>'{0}'; while [ $(wc -l <'{0}') = 3 ]; do sleep 0.05; done", trials.display());
    fs::write(&work, &first).unwrap();
    let mut words = vec!["compare", "--on", "ssh:db3", "running", "running", "--quick", "--idle-gap", "0"];
    let script = work.display().to_string();
    words.extend(["--why", "0", "--out", "study", "--", "sh", &script]);
    let child = test.start(&words);
    let since = Instant::now();
    let begun = || fs::read_to_string(&trials).unwrap_or_default().lines().count();
    while begun() < 3 {
        assert!(since.elapsed() < PATIENCE, "the third trial does not begin");
        thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(130) && said.contains("Preparing the workloads on `db3`"), "{said}");
    assert!(machine.audit().contains(&"prepared the workloads command".to_owned()), "{:?}", machine.audit());
    fs::write(&work, "true").unwrap();
    let change = format!("have changed since it began: `command.file {script}`: ");
    test.run(&words).refused(&change);
    fs::write(&work, first).unwrap();
    // Four trials for each kernel, and the interrupted one.
    test.run(&words).status(0);
    assert_eq!(begun(), 9);
}

#[test]
fn undo_waits_for_a_machine_that_does_not_answer_and_not_for_a_wrong_name() {
    let test = configured(UNREACHABLE, "");
    let mut child = test.start(&["undo", "--on", "ssh:db3"]);
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    while !said.contains("waiting up to 900 s for it") {
        said.push_str(&lines.next().expect("it ended without waiting").unwrap());
    }
    assert!(said.contains("`db3` cannot be reached: "), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
    let wrong = configured("Host db3\n  HostName no-such-name.invalid\n", "");
    let ran = wrong.run(&["undo", "--on", "ssh:db3"]);
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("Could not resolve hostname"), "{}", ran.stderr);
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
    let machine = Machine::start("boot-limit = 1800\n");
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
    let machine = Machine::start("boot-limit = 1800\n");
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
    let machine = Machine::with_power("boot-limit = 240\n");
    let test = &machine.test;
    machine.allow(ALL);
    // Its initramfs waits at a prompt for ever.
    let words = study(&["running", "running,boot.break=premount"], &["--seed=1"]);
    let ran = test.run(&words);
    machine.ends(
        &ran,
        1,
        &[
            "did not come back within 240 s",
            "is in quarantine; its power command was run once, and the machine answers again",
        ],
    );
    assert_eq!(fs::read_to_string(test.dir().join("power-log")).unwrap(), "x\n");
    machine.ends(&test.run(&words), 2, &["`db3` is in quarantine: "]);
    machine.ends(&test.run(&["undo", "--on", "ssh:db3"]), 0, &["the quarantine of `db3` has ended"]);
    machine.ends(&test.run(&["host", "check", "ssh:db3"]), 0, &["other kernels    allowed"]);
}

#[test]
#[ignore = "boots machines: make test-hosts"]
fn two_machines_boot_their_own_pairs_at_the_same_time() {
    let (first, second) = (Machine::start("boot-limit = 1800\n"), Machine::start(""));
    let test = &first.test;
    // The first's test knows both.
    let configs = [&first, &second].map(|machine| fs::read_to_string(machine.test.dir().join("ssh_config")).unwrap());
    fs::write(test.dir().join("ssh_config"), configs[0].clone() + &configs[1].replace("Host db3", "Host db4")).unwrap();
    let hosts = test.dir().join("config/bigiron/hosts.toml");
    let table = fs::read_to_string(&hosts).unwrap();
    fs::write(&hosts, table.clone() + &table.replace("[db3]", "[db4]")).unwrap();
    for machine in [&first, &second] {
        machine.allow(ALL);
    }
    let mut words = study(&["running", "running,boot.audit=0"], &["--no-way-back"]);
    words[2] = "ssh:db3,ssh:db4";
    let all = ["2 pairs on each of 2", "`db3` is as before: ", "`db4` is as before: "];
    let ran = test.run(&words);
    first.ends(&ran, 0, &all[1..]);
    first.ends(&test.run(&["report", "study"]), 0, &all[..1]);
    for machine in [&first, &second] {
        assert_eq!((machine.audited("\"trial "), machine.audited("\"boot ")), (4, 4), "{}", ran.stderr);
        assert!(!machine.says("cat /proc/cmdline").contains("bigiron.id="));
    }
}
