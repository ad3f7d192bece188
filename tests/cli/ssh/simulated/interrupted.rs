//! Studies on the simulated machine that something interrupts: a kill, another study, `bigiron undo`, or a machine that lets nobody in.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Simulated;
use crate::builder::{PATIENCE, Test};

/// The second arm of a study of settings, and of one that boots.
const SETTINGS: &str = "running,sysctl.vm.swappiness=11";
const BOOTS: &str = "running,boot.audit=0";

const SWAPPINESS: &str = "vm/swappiness";

/// The words of the study `out`, whose trials last while there is a file `hold` and this command of the shell succeeds.
fn words(machine: &Simulated, second: &str, out: &str, holds: &str) -> Vec<String> {
    let hold = machine.test.dir().join("hold");
    let script = format!("while [ -e {} ] && {holds}; do sleep 0.05; done", hold.display());
    let mut words = vec!["compare", "--on", "ssh:db3", "running", second, "--quick", "--idle-gap", "0", "--seed", "5"];
    words.extend(["--why", "0", "--no-way-back", "--out", out, "--", "sh", "-c", &script]);
    words.into_iter().map(str::to_owned).collect()
}

#[track_caller]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < PATIENCE, "too late: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a study with the file `hold`, and waits until one of its trials runs.
#[track_caller]
fn start(machine: &Simulated, words: &[String]) -> Child {
    fs::write(machine.test.dir().join("hold"), "").unwrap();
    let mut command = machine.test.command(words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a trial runs", || {
        assert!(child.try_wait().unwrap().is_none(), "the study has ended");
        !machine.trials().is_empty()
    });
    child
}

/// Trials last no longer.
fn let_go(test: &Test) {
    fs::remove_file(test.dir().join("hold")).unwrap();
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Its exit status, and what it wrote to standard error.
fn end(child: Child) -> (Option<i32>, String) {
    let ended = child.wait_with_output().unwrap();
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Records of the study `study` whose trials completed, and all.
fn records(test: &Test) -> (usize, usize) {
    let text = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap_or_default();
    (text.matches("\"kind\":\"completed\"").count(), text.lines().count())
}

fn started(machine: &Simulated) -> usize {
    machine.audit().iter().filter(|what| what.starts_with("trial ")).count()
}

#[test]
fn another_study_is_refused_while_a_trial_runs_which_its_own_study_finds() {
    let Some(machine) = Simulated::start() else { return };
    let test = &machine.test;
    let first = words(&machine, SETTINGS, "study", "true");
    let child = start(&machine, &first);
    let trials = machine.state().join("trials");
    let refused = || {
        for (second, out) in [("running,sysctl.vm.swappiness=12", "settings"), (BOOTS, "boots")] {
            test.run_words(&words(&machine, second, out, "false"))
                .refused("A trial of another study is running on `db3` (")
                .stderr_has(&trials.display().to_string())
                .stderr_has("`bigiron undo --on ssh:db3` ends the trial");
        }
    };
    refused();
    kill(child);
    refused();
    let_go(test);
    test.run_words(&first).status(0);
    assert_eq!((records(test), started(&machine)), ((8, 8), 8), "each trial ran once");
    test.run_words(&words(&machine, BOOTS, "boots", "false")).status(0);
}

#[test]
fn the_way_back_ends_the_trial_of_its_study_which_runs_again() {
    let Some(machine) = Simulated::start() else { return };
    let (test, own) = (&machine.test, machine.command_line());
    let words = words(&machine, BOOTS, "study", "true");
    kill(start(&machine, &words));
    let trials = machine.state().join("trials");
    let study = names(&trials).pop().unwrap();
    // As at the end of a command whose connection was away too long.
    let request = format!("{{\"study\":\"{study}\",\"ends_others\":false}}");
    let script = format!("echo '{request}' | \"$HOME\"/.local/state/bigiron/bin/bigiron-* target return");
    let said = machine.shell(&script);
    assert!(String::from_utf8_lossy(&said.stdout).contains("rebooting"), "{said:?}");
    let trial = trials.join(&study).join(names(&trials.join(&study)).pop().unwrap());
    let result = fs::read_to_string(trial.join("result.json")).unwrap();
    assert!(result.contains("cancelled"), "{result}");
    wait_until("its own kernel is booted", || machine.command_line() == own);
    machine.wait_until_up();
    let_go(test);
    test.run_words(&words).status(0);
    assert_eq!(records(test), (8, 8), "no trial has failed");
    assert_eq!(machine.command_line(), own);
}

#[test]
fn nothing_is_measured_with_the_setting_that_a_killed_trial_left() {
    let Some(machine) = Simulated::start() else { return };
    let (test, before) = (&machine.test, machine.setting(SWAPPINESS));
    let words = words(&machine, SETTINGS, "study", "[ \"$(cat /proc/sys/vm/swappiness)\" = 11 ]");
    let child = start(&machine, &words);
    wait_until("a trial has set its lever", || machine.setting(SWAPPINESS) == "11");
    assert!(machine.kill_trial());
    let trials = started(&machine);
    let (status, said) = end(child);
    assert_eq!(status, Some(1), "{said}");
    for want in ["left settings of `", "`bigiron undo --on ssh:db3` restores them"] {
        assert!(said.contains(want), "no `{want}` in {said}");
    }
    assert_eq!(started(&machine), trials, "another trial was started");
    assert_eq!(machine.setting(SWAPPINESS), "11");
    test.run(&["undo", "--on", "ssh:db3"]).status(0).stdout_has("restored");
    assert_eq!(machine.setting(SWAPPINESS), before);
    let_go(test);
    test.run_words(&words).status(0);
}

#[test]
fn a_trial_that_undo_ends_stops_its_study_and_the_same_command_continues() {
    let Some(machine) = Simulated::start() else { return };
    let (test, before) = (&machine.test, machine.setting(SWAPPINESS));
    let words = words(&machine, SETTINGS, "study", "[ \"$(cat /proc/sys/vm/swappiness)\" = 11 ]");
    let child = start(&machine, &words);
    wait_until("a trial has set its lever", || machine.setting(SWAPPINESS) == "11");
    let would = test.run(&["undo", "--on", "ssh:db3", "--dry-run"]).status(0);
    would.stdout_has("would end the trial in ").stdout_has("would restore ").stdout_has("swappiness");
    assert_eq!(machine.setting(SWAPPINESS), "11", "a dry run changes nothing");
    let undone = test.run(&["undo", "--on", "ssh:db3"]).status(0);
    undone.stderr_has("to restore: ").stderr_has("Ended a trial of the study ");
    assert_eq!(machine.setting(SWAPPINESS), before);
    let audit = machine.audit().join("\n");
    for want in ["of running,sysctl.vm.swappiness=11: sets sysctl.vm.swappiness=11", "end trial "] {
        assert!(audit.contains(want), "no `{want}` in {audit}");
    }
    let (status, said) = end(child);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("The trial was ended on `db3`, by `bigiron undo` or a signal"), "{said}");
    let_go(test);
    test.run_words(&words).status(0);
    assert_eq!(records(test), (8, 8));
}

#[test]
fn a_finished_study_completes_the_way_back_of_a_killed_command() {
    let Some(machine) = Simulated::start() else { return };
    let (test, own) = (&machine.test, machine.command_line());
    let words = words(&machine, BOOTS, "study", "false");
    let systemctl = machine.folder().join("sbin/systemctl");
    let whole = fs::read(&systemctl).unwrap();
    let only_kexec = format!("#!/bin/sh\n[ \"$1\" = kexec ] && : >{}/go-down\n", machine.folder().display());
    fs::write(&systemctl, only_kexec).unwrap();
    let mut child = test.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the way back begins", || {
        assert!(child.try_wait().unwrap().is_none(), "the study has ended");
        let audit = fs::read_to_string(machine.state().join("audit.jsonl")).unwrap_or_default();
        audit.contains("\"reboot to ")
    });
    kill(child);
    assert!(machine.command_line().contains("bigiron.id="));
    fs::write(&systemctl, whole).unwrap();
    test.run_words(&words)
        .status(0)
        .stderr_has("already answers this question")
        .stderr_has("The study has not restored `db3` yet")
        .stderr_has("`db3` is as before: ");
    assert_eq!(machine.command_line(), own);
    assert_eq!((records(test), started(&machine)), ((8, 8), 8));
}

#[test]
fn undo_survives_its_reboot_where_nothing_is_allowed_any_more() {
    let Some(machine) = Simulated::start() else { return };
    let (test, own) = (&machine.test, machine.command_line());
    kill(start(&machine, &words(&machine, BOOTS, "study", "true")));
    fs::remove_file(machine.folder().join("etc/bigiron/allow.toml")).unwrap();
    // What is in /tmp is lost with a reboot; here it would stay.
    let kept = machine.state().join("bin");
    fs::remove_dir_all(&kept).unwrap();
    let undone = test.run(&["undo", "--on", "ssh:db3"]).status(1);
    undone.stderr_has("`db3` is not as before: /etc/bigiron/allow.toml is gone");
    assert_eq!(machine.command_line(), own);
    assert_eq!(names(&kept).len(), 1, "the executable outlives the reboot");
}

#[test]
fn an_interruption_during_a_boot_says_that_it_waits_for_the_machine() {
    let Some(machine) = Simulated::start() else { return };
    let (test, own) = (&machine.test, machine.command_line());
    let (folder, systemctl) = (machine.folder(), machine.folder().join("sbin/systemctl"));
    let whole = fs::read(&systemctl).unwrap();
    let boots_long = format!(
        "#!/bin/sh\necho 'ssh: connect to host db3 port 22: Connection refused' >{0}/refusal\n: >{0}/go-down\n",
        folder.display()
    );
    fs::write(&systemctl, boots_long).unwrap();
    let messages = test.dir().join("messages");
    let mut command = test.command(&words(&machine, BOOTS, "study", "false"));
    let mut child = command.stdout(Stdio::null()).stderr(fs::File::create(&messages).unwrap()).spawn().unwrap();
    wait_until("it boots", || {
        assert!(child.try_wait().unwrap().is_none(), "the study has ended");
        folder.join("refusal").exists()
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let said = || fs::read_to_string(&messages).unwrap();
    wait_until("it says so", || {
        assert!(child.try_wait().unwrap().is_none(), "{}", said());
        said().contains("; waiting up to 120 s for it")
    });
    fs::write(&systemctl, whole).unwrap();
    fs::remove_file(folder.join("refusal")).unwrap();
    assert_eq!(end(child).0, Some(130), "{}", said());
    assert_eq!(
        (said().matches("; waiting up to 120 s for it").count(), machine.command_line()),
        (1, own),
        "{}",
        said()
    );
}

#[test]
fn a_machine_that_refuses_the_login_after_a_boot_is_not_lost() {
    let Some(machine) = Simulated::start() else { return };
    let test = &machine.test;
    let power = test.dir().join("power-ran");
    let hosts = |limit: u32| {
        let text = format!("[db3]\nboot-limit = {limit}\npower = \"touch {}\"\n", power.display());
        fs::write(test.dir().join("config/bigiron/hosts.toml"), text).unwrap();
    };
    hosts(30);
    let (folder, systemctl) = (machine.folder(), machine.folder().join("sbin/systemctl"));
    let whole = fs::read(&systemctl).unwrap();
    let refuses = format!(
        "#!/bin/sh\necho 'root@db3: Permission denied (publickey).' >{0}/refusal\n: >{0}/go-down\n",
        folder.display()
    );
    fs::write(&systemctl, refuses).unwrap();
    let words = words(&machine, BOOTS, "study", "false");
    test.run_words(&words)
        .status(1)
        .stderr_has("now refuses the connection (root@db3: Permission denied (publickey).); no result is recorded");
    assert_eq!(records(test), (0, 0));
    assert!(!power.exists(), "the power command has run");
    assert!(!test.dir().join("state/bigiron/quarantine/db3").exists(), "it is in quarantine");
    fs::write(&systemctl, whole).unwrap();
    fs::remove_file(folder.join("refusal")).unwrap();
    hosts(120);
    test.run_words(&words).status(0);
    assert_eq!(records(test), (8, 8));
}
