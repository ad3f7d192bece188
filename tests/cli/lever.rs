//! `bigiron lever`, `bigiron undo`, and levers of this machine: whatever kills bigiron, the machine is as it was.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bigiron_lab::lever::apply;
use bigiron_lab::lever::disks::Disks;
use bigiron_lab::lever::site::Site;
use bigiron_lab::undo::{Ledger, restore};
use rustix::fs::{FlockOperation, flock};

use crate::builder::{Test, skipped};

/// Kills that must leave nothing behind.
const KILLS: u32 = 50;

/// Random moments; the same sequence every time, which the machine's own timing makes different ones of.
struct Moments(u64);

impl Moments {
    /// From 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The right to change this machine among all tests that do, those of other checkouts included. `None`, and said, without root.
fn alone() -> Option<File> {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can change this machine's settings");
        return None;
    }
    let lock = File::create(std::env::temp_dir().join("bigiron-tests-change-this-machine")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    Some(lock)
}

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
    test.run(&["lever", "show", "boot.mitigations"]).status(0).stdout_has("bigiron doc boot");
    let ran = test.run(&["lever", "show", "dbsim.cache.dirty"]).status(0);
    ran.stdout_has("takes: a share from 1% to 90%\ndefault: 25%\n");
    let ran = test.run(&["lever", "show", "dbsim.process.x.request"]).status(0);
    ran.stdout_has("default: 256K").stdout_has("Bytes that the client sends");
    let ran = test.run(&["lever", "show", "oltp.connections"]).status(0);
    ran.stdout_has("takes: `terminals`, or a number from 1 to 10000");
    test.run(&["lever", "show", "dbsim.cache.nothing"]).status(0).stdout_has("an option of the workload");
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

/// What the machine of files below a folder says.
fn texts(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(texts(&path));
        } else {
            all.insert(path.clone(), fs::read_to_string(&path).unwrap());
        }
    }
    all
}

const FILES: &[(&str, &str)] = &[
    ("sys/kernel/here", ""),
    // The lock is no setting.
    ("run/bigiron/undo.lock", ""),
    ("sys/block/vda/queue/nr_requests", "256\n"),
    ("sys/block/vda/queue/read_ahead_kb", "128\n"),
    ("sys/block/vda/queue/wbt_lat_usec", "75000\n"),
    ("proc/sys/vm/swappiness", "60\n"),
    ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
];

const SETTINGS: &[&str] = &[
    "block.nr-requests=64",
    "block.read-ahead=1M",
    "block.wbt-lat-us=0",
    "sysctl.vm.swappiness=10",
    "sysctl.net.ipv4.tcp_rmem=1 2 3",
];

/// Sets levers on a machine of files and takes them back, until it is killed. Started by the test below, in a process of its own.
#[test]
#[ignore = "a process of another test"]
fn a_process_that_changes_a_machine_of_files() {
    let dir = PathBuf::from(std::env::var_os("BIGIRON_TEST_MACHINE").expect("started by a test"));
    let root = dir.join("root");
    let settings: Vec<_> = SETTINGS.iter().map(|s| bigiron::study::setting::parse(s).unwrap()).collect();
    let vda = vec!["vda".to_owned()];
    let link = bigiron_sys::network::TrialLink::none("nobody talks");
    let site = Site { root: &root, disks: Ok(Disks { devices: vda.clone(), disks: vda }), link: &link };
    loop {
        let mut ledger = Ledger::open_at(&dir.join("state"), &root).unwrap();
        let mark = ledger.mark();
        apply::apply(&settings, &site, &mut ledger).unwrap();
        assert!(ledger.undo_since(mark).is_empty());
    }
}

#[test]
fn a_machine_of_files_survives_50_kills() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    for (path, text) in FILES {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), text).unwrap();
    }
    let before = texts(&root);
    let mut moments = Moments(5);
    let mut restored = 0;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lever::a_process_that_changes_a_machine_of_files", "--ignored"])
            .env("BIGIRON_TEST_MACHINE", dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let ledger = dir.path().join("state/undo.jsonl");
        wait_for(&mut child, || fs::metadata(&ledger).is_ok_and(|m| m.len() > 0));
        std::thread::sleep(Duration::from_secs_f64(moments.next() * 0.05));
        child.kill().unwrap();
        child.wait().unwrap();
        // It may be killed before it has begun again: then there is nothing to restore.
        let done = restore(&dir.path().join("state"), &root, false).unwrap();
        assert!(done.entries.iter().all(|(_, result)| matches!(result, Some(Ok(_)))), "kill {kill}: {done:?}");
        restored += u32::from(!done.entries.is_empty());
        assert_eq!(texts(&root), before, "kill {kill}");
    }
    assert!(restored > 0, "no kill came while anything was changed");
}

fn wait_for(child: &mut Child, seen: impl Fn() -> bool) {
    let begun = Instant::now();
    while !seen() && child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(120), "nothing happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Everything on this machine that the levers below, and what they touch, may change.
fn snapshot() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut take = |path: PathBuf| {
        if let Ok(text) = fs::read_to_string(&path) {
            all.insert(path.display().to_string(), text);
        }
    };
    for disk in fs::read_dir("/sys/block").unwrap().flatten() {
        take(disk.path().join("disksize"));
        for folder in ["queue", "queue/iosched"] {
            let files = fs::read_dir(disk.path().join(folder)).into_iter().flatten().flatten();
            files.filter(|f| f.file_type().is_ok_and(|t| t.is_file())).for_each(|f| take(f.path()));
        }
    }
    for path in [
        "/proc/sys/vm/swappiness",
        "/proc/sys/vm/min_free_kbytes",
        "/proc/sys/vm/nr_hugepages",
        "/proc/sys/vm/dirty_expire_centisecs",
        "/proc/sys/kernel/printk_ratelimit",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "/proc/self/mounts",
    ] {
        take(path.into());
    }
    // How much of a swap device is used differs from moment to moment: its name is what counts.
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let names: Vec<&str> = swaps.lines().filter_map(|line| line.split_whitespace().next()).collect();
    all.insert("/proc/swaps".to_owned(), names.join(" "));
    let names = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|e| e.file_name().into_string().unwrap_or_default()).collect();
        names.sort();
        names.join(" ")
    };
    for folder in ["/sys/block", "/sys/fs/cgroup"] {
        all.insert(folder.to_owned(), names(folder));
    }
    all
}

/// Those of some harmless settings that this machine has.
fn harmless(test: &Test) -> Vec<String> {
    let settings = [
        "block.scheduler=none",
        "block.scheduler=bfq",
        "block.nr-requests=64",
        "block.read-ahead=256K",
        "block.wbt-lat-us=0",
        "mm.swappiness=17",
        "sysctl.vm.dirty_expire_centisecs=2800",
        "sysctl.kernel.printk_ratelimit=7",
        "mm.thp=always",
        "mm.thp-defrag=defer",
        "mm.hugepages-2m=2",
        "mm.swap=zram:16M",
        "memory.limit=64M",
    ];
    let mut available: Vec<String> = Vec::new();
    for setting in settings {
        let name = setting.split('=').next().unwrap();
        let twice = available.iter().position(|s| s.starts_with(&format!("{name}=")));
        if test.run(&["lever", "check", setting]).status == 0 {
            twice.map(|at| available.remove(at));
            available.push(setting.to_owned());
        }
    }
    available
}

#[test]
fn this_machine_survives_50_kills() {
    let Some(_alone) = alone() else { return };
    let test = Test::new();
    let settings = harmless(&test);
    assert!(settings.len() >= 2, "{settings:?}");
    let mut args = vec!["lever", "check", "--apply"];
    args.extend(settings.iter().map(String::as_str));
    let before = snapshot();
    let begun = Instant::now();
    test.run(&args).status(0);
    let whole = begun.elapsed();
    assert_eq!(snapshot(), before, "an undisturbed run");
    let mut moments = Moments(7);
    let (mut kills, mut restored, mut early) = (0, 0, 0);
    let ledger = test.dir().join("state/bigiron/undo.jsonl");
    while kills < KILLS {
        let mut child = test.start(&args);
        // Half of them from its start, half from the first change on.
        if kills % 2 == 1 {
            wait_for(&mut child, || fs::metadata(&ledger).is_ok_and(|m| m.len() > 0));
        }
        std::thread::sleep(whole.mul_f64(moments.next()));
        if child.try_wait().unwrap().is_some() {
            early += 1;
            assert!(early < 1000, "it always ends before it is killed");
            continue;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        let undone = test.run(&["undo"]).status(0);
        restored += u32::from(!undone.stdout.contains("Nothing to restore"));
        assert_eq!(snapshot(), before, "after kill {kills}: {}", undone.stdout);
    }
    assert!(restored > 0, "no kill came while anything was changed");
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

/// A study of moments that changes a setting of this machine in one arm.
fn study(arm: &str) -> Vec<&str> {
    let mut words = vec!["compare", "--on", "local", "running", arm, "micro", "--set", "micro.only=null-call"];
    words.extend(["--pairs", "8", "--idle-gap", "0", "--seed", "5", "--out", "study"]);
    words
}

#[test]
fn a_study_restores_after_each_trial_on_ctrl_c_and_by_undo_after_a_kill() {
    let Some(_alone) = alone() else { return };
    let test = Test::new();
    let said = || fs::read_to_string(EXPIRE).unwrap();
    let before = said();
    let words = study("running,sysctl.vm.dirty_expire_centisecs=2750");
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
