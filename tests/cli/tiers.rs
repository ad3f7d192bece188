//! `app` with tiers on other machines. A script in place of ssh starts bigiron's worker on this machine, and each tier listens on a loopback address
//! of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::builder::{PATIENCE, Test, skipped};
use crate::oltp;

/// The script in place of ssh. It knows three machines, which see the trial's machine at 127.0.0.1; on `noexec`, no program in `/var/tmp` can run.
const SSH: &str = "#!/bin/sh
while [ \"$1\" != -- ]; do shift; done
export MOUNT=:
case $2 in
app1) at=127.0.0.2 ;;
db1) at=127.0.0.3 ;;
noexec) at=127.0.0.4 MOUNT='mount -t tmpfs -o noexec none /var/tmp' ;;
*)
	echo \"ssh: Could not resolve hostname $2: Name or service not known\" >&2
	exit 255
	;;
esac
export ETC=${0%/bin/ssh}/etc SSH_CONNECTION=\"127.0.0.1 50022 $at 22\"
exec unshare --mount --pid --fork --mount-proc /bin/sh -c 'mount --bind \"$ETC\" /etc && $MOUNT && exec /bin/sh -c \"$1\"' sh \"$3\"
";

const SMALL: [&str; 7] = [
    "app.rate=off",
    "app.length=400",
    "app.warmup=100",
    "app.threads=4",
    "app.dealers=50",
    "app.session=1K",
    "app.compilers=c1",
];

/// `None`, and said, where the machines cannot have an `/etc` of their own.
fn test() -> Option<Test> {
    let can = Command::new("unshare").args(["--mount", "--pid", "--fork", "--mount-proc", "true"]).output();
    if !can.is_ok_and(|ran| ran.status.success()) {
        skipped("this process may not make namespaces, of which the other machines consist");
        return None;
    }
    let test = oltp::test().program("bin/ssh", SSH);
    assert!(Command::new("cp").args(["-a", "/etc"]).arg(test.dir().join("etc")).status().unwrap().success());
    // Servers of other tests belong to processes that such a machine does not see.
    let test = test.file("etc/bigiron/allow.toml", "allow = [\"trials\"]\nservices = [\"unknown\"]\n");
    let path = format!("{}:{}", test.dir().join("bin").display(), std::env::var("PATH").unwrap());
    Some(test.path(&path))
}

fn words<'a>(set: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["compare", "--on", "local", "running", "running", "--idle-gap", "0", "app", "--quick"];
    words.extend(["--seed", "5"]);
    words.extend(SMALL.iter().chain(set).flat_map(|option| ["--set", option]));
    words
}

/// The PIDs of all processes `bigiron target tier`.
fn workers() -> Vec<Pid> {
    let is_worker = |pid: &i32| {
        let words = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        matches!(words[..], [program, b"target", b"tier", ..] if program.ends_with(b"/bigiron"))
    };
    let pids = fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(is_worker).filter_map(Pid::from_raw).collect()
}

/// The folders of workers in `/var/tmp`.
fn left() -> Vec<PathBuf> {
    let entries = fs::read_dir("/var/tmp").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(b"bigiron-worker-")
    };
    entries.filter(is_ours).collect()
}

/// Waits until no worker is left, and no folder besides those of `before`.
#[track_caller]
fn nothing_is_left(before: &[PathBuf]) {
    let since = Instant::now();
    let new = || left().into_iter().filter(|path| !before.contains(path)).collect::<Vec<_>>();
    while !(workers().is_empty() && new().is_empty()) {
        assert!(since.elapsed() < Duration::from_secs(120), "{:?} {:?}", workers(), new());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn completed(record: &Value) {
    assert_eq!(record["outcome"]["kind"], "completed", "{record}");
    assert_eq!(record["facts"]["app.conditions-checked"], "19", "{record}");
    for metric in ["tomcat-cpu", "database-cpu"] {
        assert!(record["metrics"]["app"][metric].as_f64().unwrap() > 0.0, "{metric}: {record}");
    }
}

/// A single test, because [`nothing_is_left`] searches the whole machine and would find another test's workers.
#[test]
fn tiers_on_other_machines_serve_a_trial_and_end_with_it() {
    let Some(test) = test() else { return };
    let before = left();
    let record = test.conforming_record("both", &words(&["app.tomcat-on=ssh:app1", "app.database-on=ssh:db1"]));
    completed(&record);
    assert_eq!(record["facts"]["app.tomcat-on"], "ssh:app1", "{record}");
    assert_eq!(record["facts"]["app.database-on"], "ssh:db1", "{record}");
    nothing_is_left(&before);
    // Only Tomcat is on another machine; the database accepts its connections.
    completed(&test.conforming_record("mariadb", &words(&["app.tomcat-on=ssh:app1", "app.database=mariadb"])));
    nothing_is_left(&before);

    // The worker is killed during the run, and the database ends with it.
    let mut long = words(&["app.database-on=ssh:db1"]);
    long.iter_mut().filter(|word| **word == "app.length=400").for_each(|word| *word = "app.length=600s");
    let dir = test.dir().to_owned();
    let killer = std::thread::spawn(move || {
        let since = Instant::now();
        // Tomcat writes this file when it is ready.
        let is_ready = || {
            let found = Command::new("find").arg(&dir).args(["-path", "*/tomcat/run/pid"]).output().unwrap();
            !found.stdout.is_empty()
        };
        while !is_ready() {
            assert!(since.elapsed() < PATIENCE, "Tomcat did not start");
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(Duration::from_secs(2));
        workers().into_iter().for_each(|worker| kill_process(worker, Signal::KILL).unwrap());
    });
    let record = test.first_record("study", &long);
    killer.join().unwrap();
    assert_eq!(record["outcome"]["kind"], "failed", "{record}");
    let message = record["outcome"]["message"].as_str().unwrap();
    assert!(message.starts_with("app: On `db1`: bigiron's worker ended with status 137"), "{message}");

    nothing_is_left(&before);

    // Machines that cannot be reached, or whose administrator allows nothing, before the study begins.
    let refused = |set: &str| test.run(&[&words(&[set])[..], &["--out", "refused"]].concat()).status(2);
    let cannot = "bigiron's worker cannot be executed (";
    refused("app.tomcat-on=ssh:noexec").stderr_has(cannot).stderr_has("`/var/tmp` may be mounted with `noexec`");
    // Before anything is downloaded, which the empty cache needs.
    let unknown = [&words(&["app.database-on=ssh:db2"])[..], &["--out", "refused"]].concat();
    let ended = test.command(&unknown).env("BIGIRON_CACHE", test.dir().join("empty")).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("On `db2`: ssh: Could not resolve hostname db2: Name or service not known"), "{said}");
    assert!(ended.status.code() == Some(2) && !said.contains("Debian"), "{said}");
    fs::remove_file(test.dir().join("etc/bigiron/allow.toml")).unwrap();
    refused("app.database-on=ssh:db1")
        .stderr_has("On `db1`: this machine has no `/etc/bigiron/allow.toml`, so its administrator allows nothing");
    assert!(!test.dir().join("refused").exists());
    nothing_is_left(&before);
}
