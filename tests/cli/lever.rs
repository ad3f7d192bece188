//! `bigiron lever`, `bigiron undo`, and levers of this machine: whatever kills bigiron, the machine is as it was.

use std::fs;
use std::path::Path;
use std::process::Command;

use bigiron_lab::undo::Ledger;

use crate::builder::{Test, skipped};
use crate::kills::{alone, wait_for};

#[test]
fn levers_are_listed_shown_and_checked() {
    let test = Test::new();
    let list = test.run(&["lever", "list"]).status(0).stdout;
    for name in
        ["boot.NAME", "block.scheduler", "sysctl.NAME", "file.PATH", "mm.thp", "cpu.pin", "fs.type", "dbsim.OPTION"]
    {
        assert!(list.lines().any(|l| l.starts_with(name)), "{name}: {list}");
    }
    let block = test.run(&["lever", "list", "block"]).status(0).stdout;
    assert!(block.lines().all(|l| l.starts_with("block.")), "{block}");
    test.run(&["lever", "list", "blok"]).refused("No family of levers `blok`");
    test.run(&["lever", "show", "sysctl.vm.swappiness"]).status(0).stdout_has("/proc/sys/vm/swappiness says");
    test.run(&["lever", "show", "block.sheduler"]).refused("did you mean `block.scheduler`?");
    test.run(&["lever", "show", "app.thread"]).refused("did you mean `app.threads`?");
    test.run(&["lever", "show", "jvm"]).status(0).stdout_has("bigiron doc jvm");
    test.run(&["lever", "show", "boot.mitigations"]).status(0).stdout_has("bigiron doc boot");
    let ran = test.run(&["lever", "show", "dbsim.cache.dirty"]).status(0);
    ran.stdout_has("takes: a share from 1% to 90%\ndefault: 25%\n");
    let ran = test.run(&["lever", "show", "dbsim.process.x.request"]).status(0);
    ran.stdout_has("default: 256K").stdout_has("Bytes that the client sends");
    let ran = test.run(&["lever", "show", "oltp.connections"]).status(0);
    ran.stdout_has("takes: `terminals`, or a number from 1 to 10000");
    let ran = test.run(&["lever", "show", "oltp.touched"]).status(0);
    ran.stdout_has("takes: `all`, or the first and the last warehouse as `A..B`");
    test.run(&["lever", "show", "dbsim.cache.nothing"]).refused("`cache` has `size`");
    let ran = test.run(&["lever", "check", "running,sysctl.vm.nosuchthing=1,boot.nosmt", "fs.type=xfs"]).status(1);
    let ran =
        ran.stdout_has("sysctl.vm.nosuchthing=1: not available here: this kernel has no `/proc/sys/vm/nosuchthing`");
    ran.stdout_has("boot.nosmt: well formed").stdout_has("fs.type=xfs: well formed; it acts on guests");
    test.run(&["lever", "check", "cpu.pin=0-4095"]).status(1).stdout_has("is not online; the kernel has");
    test.run(&["lever", "check", "mm.swappiness=many"]).refused("a whole number");
    test.run(&["undo"]).status(0).stdout_has("Nothing to restore");
}

#[test]
fn a_lever_that_needs_root_says_which_file_and_one_that_does_not_needs_none() {
    if rustix::process::geteuid().is_root() {
        skipped("root is never told that it needs root");
        return;
    }
    let test = Test::new();
    let ran = test.run(&["lever", "check", "sysctl.vm.swappiness=10"]).status(1);
    ran.stdout_has("only root may write `/proc/sys/vm/swappiness`; run bigiron as root for this lever");
}

#[test]
fn a_study_on_this_machine_is_refused_a_lever_that_is_not_there() {
    let test = Test::new();
    let compare = |arm: &str| test.run(&["compare", "--on", "local", "running", arm, "dbsim"]);
    compare("running,sysctl.vm.nosuchthing=1").refused("Lever `sysctl.vm.nosuchthing=1` is not available here");
    compare("running,fs.type=xfs").refused("Lever `fs.type` acts on a guest");
    compare("running,fault.inject=panic").refused("Lever `fault.inject` acts on a guest");
    assert!(test.entries("bigiron-results").is_empty());
}

const EXPIRE: &str = "/proc/sys/vm/dirty_expire_centisecs";

/// Changes this machine and panics with the ledger out of reach of any destructor. Started by the test below, in a process of its own.
#[test]
#[ignore = "a process of another test"]
fn a_process_that_panics() {
    std::env::var_os("BIGIRON_TEST_MACHINE").expect("started by a test");
    let mut ledger = Ledger::open().unwrap();
    ledger.write("a test", Path::new(EXPIRE), "2770").unwrap();
    assert_eq!(fs::read_to_string(EXPIRE).unwrap(), "2770\n");
    std::mem::forget(ledger);
    panic!("as it happens");
}

#[test]
fn a_panic_restores_without_any_destructor() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir().unwrap();
    let before = fs::read_to_string(EXPIRE).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lever::a_process_that_panics", "--ignored", "--nocapture"])
        .env("BIGIRON_TEST_MACHINE", dir.path())
        .env("XDG_STATE_HOME", dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("as it happens"), "{said}");
    assert_eq!(fs::read_to_string(EXPIRE).unwrap(), before, "{said}");
}

/// A study that changes a setting of this machine in one arm; its trials run this script.
fn study<'a>(arm: &'a str, script: &'a str) -> Vec<&'a str> {
    let mut words = vec!["compare", "--on", "local", "running", arm, "--pairs", "8", "--idle-gap", "0", "--seed", "5"];
    words.extend(["--out", "study", "--", "sh", "-c", script]);
    words
}

#[test]
fn a_study_restores_after_each_trial_on_ctrl_c_and_by_undo_after_a_kill() {
    let Some(_alone) = alone() else { return };
    let test = Test::new();
    let said = || fs::read_to_string(EXPIRE).unwrap();
    let before = said();
    // While there is a file `hold`, a trial with the setting does not end by itself.
    let hold = test.dir().join("hold");
    fs::write(&hold, "").unwrap();
    let is_set = "[ \"$(cat dirty_expire_centisecs)\" = 2750 ]";
    let script = format!("cd /proc/sys/vm; while [ -e '{}' ] && {is_set}; do sleep 0.05; done", hold.display());
    let words = study("running,sysctl.vm.dirty_expire_centisecs=2750", &script);
    if test.run(&["lever", "check", "sysctl.vm.dirty_expire_centisecs=2750"]).status != 0 {
        skipped(format_args!("{EXPIRE} cannot be written here"));
        return;
    }
    let started = || {
        let mut child = test.start(&words);
        wait_for(&mut child, || said() == "2750\n");
        assert!(child.try_wait().unwrap().is_none(), "{:?}", child.wait_with_output());
        child
    };
    // While it runs nobody else may undo.
    let mut child = started();
    test.run(&["undo"]).status(1).stderr_has("is changing settings of this machine");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    child.wait().unwrap();
    assert_eq!(said(), before, "after Ctrl-C");
    let mut child = started();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(said(), "2750\n", "a kill cannot be helped");
    test.run(&words).status(1).stderr_has("An earlier bigiron was killed and left a setting of this machine changed");
    test.run(&["undo", "--dry-run"]).status(0).stdout_has("would restore");
    assert_eq!(said(), "2750\n");
    test.run(&["undo"]).status(0).stdout_has("restored /proc/sys/vm/dirty_expire_centisecs");
    assert_eq!(said(), before, "after undo");
    let records = || fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap_or_default();
    let change = format!("\"path\":\"{EXPIRE}\",\"before\":\"{}\",\"after\":\"2750\"", before.trim());
    fs::remove_file(hold).unwrap();
    let mut child = test.start(&words);
    // Past a trial of the other arm: each sets and restores for itself.
    wait_for(&mut child, || records().lines().count() >= 3);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    child.wait().unwrap();
    assert_eq!(said(), before, "after some trials");
    let (with, without): (Vec<_>, Vec<_>) =
        records().lines().map(str::to_owned).partition(|l| l.contains("dirty_expire_centisecs=2750"));
    assert!(!with.is_empty() && with.iter().all(|l| l.contains(&change)), "{with:?}");
    assert!(!without.is_empty() && without.iter().all(|l| !l.contains(EXPIRE)), "{without:?}");
}
