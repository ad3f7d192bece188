//! Several machines in one study: simulated ones, and two "machines" over an `ssh` that runs everything here, in folders of their own.

use std::fs;
use std::process::Command;

use crate::builder::{Ran, Test, skipped};

/// Three machines of unlike speed and noise.
const SIMULATED: &str = "arms = [\"debian:6.1\", \"debian:6.12\"]\nworkloads = [\"micro\"]\n\
    [design]\nseed = 7\n[machine]\nhost = \"sim\"\n\
    [sim]\nmachines = 3\nmachine-speed = 1\nmachine-noise = 0.5\n\
    [sim.effects.\"debian:6.12\"]\n\"micro.*\" = 1.1\n";

#[track_caller]
fn ends(ran: &Ran, status: i32, want: &[&str]) {
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.status, status, "{all}");
    want.iter().for_each(|want| assert!(all.contains(want), "no `{want}` in:\n{all}"));
}

#[test]
fn a_lost_machine_stops_its_own_pairs_and_the_report_shows_each() {
    let lost = format!("{SIMULATED}[[sim.incidents]]\nwhat = \"fatal\"\nmachine = \"m2\"\npair = 7\n");
    let test = Test::new().file("s.toml", lost);
    let ran = test.run(&["run", "s.toml", "--out=study"]);
    ends(&ran, 1, &["24 trials in 12 pairs, 3 in parallel", "`m2` runs no more trials", "`m2` lacks 4 trials"]);
    assert_eq!(test.records("study").len(), 20);
    let unfinished = test.run(&["report", "study"]);
    assert!(unfinished.stdout.contains("m2: 4 of 8 boots have results"), "{}", unfinished.stdout);
    assert!(unfinished.stdout.contains("m3: 8 of 8 boots have results"), "{}", unfinished.stdout);
    let test = test.file("s.toml", SIMULATED);
    ends(&test.run(&["run", "s.toml", "--out=study"]), 0, &["Resuming"]);
    let want = ["By machine", " m1 ", " m2 ", " m3 ", "mean over these machines", "4 pairs on each of 3"];
    ends(&test.run(&["report", "study"]), 0, &want);
    let json = test.run(&["report", "study", "--format=json"]);
    let report: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let line = &report["comparisons"][0]["lines"][0];
    let machines = line["machines"].as_array().unwrap();
    assert_eq!(machines.iter().map(|m| m["name"].as_str().unwrap()).collect::<Vec<_>>(), ["m1", "m2", "m3"]);
    let mean = |m: &serde_json::Value| m["baseline_mean"]["value"].as_f64().unwrap();
    assert!((mean(&machines[0]) / mean(&machines[1])).ln().abs() > 0.1, "they are unlike in speed: {machines:?}");
    let change = line["change"]["value"].as_f64().unwrap();
    assert!((change - 10.0).abs() < 2.0, "and the change is the same on all: {change}");
    assert!(fs::read_to_string(test.dir().join("study/report.html")).unwrap().contains("By machine"));
}

#[test]
fn machines_that_disagree_are_named() {
    let test = Test::new().file("s.toml", SIMULATED.replace("machines = 3", "machines = 3\nmachine-effect = 0.1"));
    ends(
        &test.run(&["run", "s.toml", "--out=study"]),
        0,
        &["The machines disagree about micro geomean by more than chance"],
    );
}

#[test]
fn a_number_of_pairs_that_leaves_a_machine_unbalanced_is_refused() {
    let study = |more: &str| SIMULATED.replace("seed = 7", &format!("seed = 7\n{more}"));
    for (more, want) in [
        (
            "pairs = 14",
            "14 pairs cannot be balanced, with each arm first as often as last on each of 3 machines; use 12 or 18",
        ),
        ("pairs = 6", "6 pairs are too few for any verdict; use 12 or more"),
        ("clock = \"exact\"", "Several machines need the clock `wall`"),
    ] {
        ends(&Test::new().file("s.toml", study(more)).run(&["run", "s.toml"]), 2, &[want]);
    }
}

/// Plays OpenSSH: the machine NAME is the folder NAME of `$MACHINES`, with the `/etc` that is there. A machine starts no more trials than `NAME.limit`
/// says.
const SSH: &str = r#"#!/bin/sh
case " $* " in *" -O exit "* | *" -M "*) exit 0 ;; esac
name=
before=
for word; do
	[ "$before" = -- ] && name=$word
	before=$word
done
here=$MACHINES/$name
mkdir -p "$here"
case $word in *"target start"*)
	echo start >>"$here.starts"
	if [ -e "$here.limit" ] && [ "$(wc -l <"$here.starts")" -gt "$(cat "$here.limit")" ]; then
		echo "the disk is gone" >&2
		exit 3
	fi
	;;
esac
export XDG_STATE_HOME="$here"
# Servers of other tests listen on the network around.
[ "$(id -u)" = 0 ] && new=-mn || new=-rmn
exec unshare $new sh -c 'mount --bind "$0" /etc && exec sh -c "$1"' "$MACHINES/etc" "$word"
"#;

/// A test whose `ssh` plays machines; `None` where it cannot.
fn with_machines() -> Option<Test> {
    let as_root = rustix::process::getuid().is_root();
    let tried = Command::new("unshare")
        .args([if as_root { "-mn" } else { "-rmn" }, "mount", "--bind", "/tmp", "/etc"])
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        skipped("no namespaces of mounts and network can be made here");
        return None;
    }
    let test = Test::new().program("bin/ssh", SSH).file("machines/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    let path = format!("{}:{}", test.dir().join("bin").display(), std::env::var("PATH").unwrap());
    Some(test.path(&path))
}

fn run(test: &Test, args: &[&str]) -> Ran {
    let output = test.command(args).env("MACHINES", test.dir().join("machines")).output().unwrap();
    Ran {
        status: output.status.code().expect("ended by itself"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn two_machines_over_ssh_each_run_their_own_pairs() {
    let Some(test) = with_machines() else { return };
    let study = [
        "compare",
        "--on=ssh:alpha,ssh:beta",
        "running",
        "running,micro.scale=0.02",
        "micro",
        "--quick",
        "--why=0",
        "--out=study",
        "--idle-gap=0",
        "--set=micro.only=signal",
    ];
    // Each machine's administrator is asked.
    let one = "`alpha` and `beta` are the same machine";
    ends(&run(&test, &study), 2, &[one, "`alpha` has no `/etc/bigiron/allow.toml`"]);
    // That is a warning, unless it would be rebooted by two.
    let boots = run(&test, &["compare", "--on=ssh:alpha,ssh:beta", "running", "running,boot.nosmt", "micro"]);
    ends(&boots, 2, &[one, "Name each machine once"]);
    let check = run(&test, &["host", "check", "ssh:beta"]);
    let (_, allow) = check.stdout.split_once("for all of this").expect("the smallest file");
    let (_, allow) = allow.split_once(":\n").unwrap();
    let test = test.file("machines/etc/bigiron/allow.toml", allow);
    // The second machine is lost after its first trial.
    let test = test.file("machines/beta.limit", "1");
    let ran = run(&test, &study);
    ends(&ran, 1, &["`beta` runs no more trials of this study", "the disk is gone", "`beta` lacks 3 trials"]);
    assert_eq!(test.records("study").len(), 5);
    let report = test.run(&["report", "study"]);
    let (alpha, beta) = ("alpha: 4 of 4 trials have results", "beta: 1 of 4 trials have results");
    assert!(report.stdout.contains(alpha) && report.stdout.contains(beta), "{}", report.stdout);
    // In quarantine it stops only its own pairs again, and no new study begins.
    let test = test.file("state/bigiron/quarantine/beta", "it did not come back\n");
    ends(&run(&test, &study), 1, &["`beta` lacks 3 trials: `beta` is in quarantine: it did not come back"]);
    let mut other = study.to_vec();
    other.extend(["--seed=5", "--fresh"]);
    ends(&run(&test, &other), 2, &["`beta` is in quarantine"]);
    fs::remove_file(test.dir().join("state/bigiron/quarantine/beta")).unwrap();
    // Once it is well, the same command runs what is missing there.
    fs::remove_file(test.dir().join("machines/beta.limit")).unwrap();
    ends(&run(&test, &study), 0, &["Resuming"]);
    ends(&test.run(&["report", "study"]), 0, &["By machine", " alpha ", " beta ", "2 pairs on each of 2"]);
    for name in ["alpha", "beta"] {
        let audit = test.dir().join(format!("machines/{name}/bigiron/audit.jsonl"));
        let text = fs::read_to_string(audit).unwrap();
        assert_eq!(text.matches("\"trial ").count(), 4, "each trial ran once, on its own machine: {text}");
    }
    let plan = fs::read_to_string(test.dir().join("study/plan.toml")).unwrap();
    assert_eq!(plan.matches("[[machine.members]]").count(), 2, "{plan}");
    for line in fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap().lines() {
        let record = &serde_json::from_str::<serde_json::Value>(line).unwrap()["record"];
        let (pair, machine) = (record["pair"].as_u64().unwrap(), record["machine"].as_str().unwrap());
        assert_eq!(machine, ["alpha", "beta"][pair as usize % 2]);
    }
}

#[test]
fn lists_of_machines_that_are_wrong_are_refused() {
    for (on, want) in [
        ("ssh:a,ssh:b,ssh:a", "The machine `a` is named twice"),
        ("ssh:a,b", "`b` in `ssh:a,b` is no host"),
        ("ssh:a,local", "Only machines over SSH can be several, and `local`"),
        ("vm,ssh:a", "Only machines over SSH can be several, and `vm`"),
    ] {
        let ran = Test::new().run(&["compare", "--on", on, "running", "running", "micro"]);
        ends(&ran, 2, &[want]);
    }
    let run = |on| Test::new().run(&["run", "kernel-upgrade", "--on", on]);
    ends(&run("ssh:a,ssh:a"), 2, &["The machine `a` is named twice"]);
    ends(&run("local"), 2, &["possible values: slurm[:PARTITION], ssh:NAME[,ssh:NAME…]"]);
    let bisect = ["bisect", "--kernels=debian:6.1,debian:6.6,debian:6.12", "micro", "--on=ssh:a,ssh:b"];
    ends(&Test::new().run(&bisect), 2, &["This command needs one machine, and 2 are named"]);
    let one = Test::new().run(&["host", "check", "ssh:a,ssh:b"]);
    ends(&one, 2, &["name another machine, as in `ssh:db-test-3`"]);
}
