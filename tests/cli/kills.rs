//! bigiron killed at random moments, while it changes this machine or runs a study that does: nothing is lost, doubled or left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bigiron_lab::lever::apply;
use bigiron_lab::lever::disks::Disks;
use bigiron_lab::lever::site::Site;
use bigiron_lab::undo::{Ledger, restore};
use rustix::fs::{FlockOperation, flock};

use crate::builder::{Test, is_long, processes_in, skipped};

/// Kills that must leave nothing behind.
const KILLS: u32 = 50;

/// Random moments; the same sequence every time, which the machine's own timing makes different ones of.
pub struct Moments(u64);

impl Moments {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 to 1.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The right to change this machine among all tests that do, those of other checkouts included. `None`, and said, without root.
pub fn alone() -> Option<File> {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can change this machine's settings");
        return None;
    }
    let lock = File::create(std::env::temp_dir().join("bigiron-tests-change-this-machine")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    Some(lock)
}

/// The same for a test that changes this machine by the way: without root it runs, too, for then no test changes anything.
pub fn alone_as_root() -> Option<File> {
    if rustix::process::geteuid().is_root() { alone() } else { None }
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
            .args(["--exact", "kills::a_process_that_changes_a_machine_of_files", "--ignored"])
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

pub fn wait_for(child: &mut Child, seen: impl Fn() -> bool) {
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
    ] {
        take(path.into());
    }
    // Other tests mount small disks (`SmallDisk`) meanwhile.
    let is_of_a_test = |line: &&str| line.starts_with("none ") && line.contains("/disk tmpfs ");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts: Vec<&str> = mounts.lines().filter(|line| !is_of_a_test(line)).collect();
    all.insert("/proc/self/mounts".to_owned(), mounts.join("\n"));
    // How much of a swap device is used differs from moment to moment: its name is what counts.
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let names: Vec<&str> = swaps.lines().filter_map(|line| line.split_whitespace().next()).collect();
    all.insert("/proc/swaps".to_owned(), names.join(" "));
    let names = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().into_string().unwrap_or_default()).collect();
        // Other tests make cgroups of their own (`limits`) meanwhile.
        names.retain(|name| !name.starts_with("bigiron-test-"));
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
    let mut whole = begun.elapsed();
    assert_eq!(snapshot(), before, "an undisturbed run");
    let mut moments = Moments(7);
    let (mut kills, mut restored, mut early) = (0, 0, 0);
    let ledger = test.dir().join("state/bigiron/undo.jsonl");
    while kills < KILLS {
        let begun = Instant::now();
        let mut child = test.start(&args);
        // Half of them from its start, half from the first change on.
        if kills % 2 == 1 {
            wait_for(&mut child, || fs::metadata(&ledger).is_ok_and(|m| m.len() > 0));
        }
        std::thread::sleep(whole.mul_f64(moments.next()));
        if child.try_wait().unwrap().is_some() {
            early += 1;
            assert!(early < 1000, "it always ends before it is killed");
            // If the first run was delayed, most moments would come too late.
            whole = whole.min(begun.elapsed());
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

/// Pairs of one study below.
const PAIRS: usize = 40;

/// One run of it until it is killed: time for some trials.
const LONGEST: Duration = Duration::from_secs(2);

/// The lines of a study's records that are complete.
fn complete_records(study: &Path) -> Vec<String> {
    let text = fs::read_to_string(study.join("records.jsonl")).unwrap_or_default();
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
}

/// Kills a study at a random moment, resumes it, and so on until it has ended; begins another one while kills are left.
#[test]
fn a_study_survives_kills_at_random_moments() {
    let kills = if is_long() { 1000 } else { 15 };
    if alone().is_none() {
        return;
    }
    let test = Test::new();
    let mut settings = harmless(&test);
    assert!(settings.len() >= 2, "{settings:?}");
    let first = format!("running,{}", settings.split_off(settings.len() / 2).join(","));
    let second = format!("running,{}", settings.join(","));
    let (mut killed, mut studies, mut restored, mut changed) = (0, 0, 0, BTreeSet::new());
    let mut moments = Moments(11);
    let ledger = test.dir().join("state/bigiron/undo.jsonl");
    // More kills than asked for if none came while anything was changed, as may be on a slow machine.
    let is_enough = |killed: u32, restored: u32| killed >= kills && (restored > 0 || killed >= 20 * kills);
    while !is_enough(killed, restored) {
        let name = format!("study-{studies}");
        let dir = test.dir().join(&name);
        let pairs = PAIRS.to_string();
        let mut words = vec!["compare", "--on", "local", &first, &second, "--pairs", &pairs, "--idle-gap", "0"];
        words.extend(["--seed", "5", "--out", &name, "--", "true"]);
        let mut kept = Vec::new();
        loop {
            // Others may use the machine between two kills.
            let Some(_alone) = alone() else { return };
            let before = snapshot();
            let mut child = test.start_quiet(&words);
            let moment = LONGEST.mul_f64(moments.next());
            let is_last = is_enough(killed, restored);
            // Half of the moments from its start, half from the first change on, before which much time may pass.
            if killed % 2 == 1 && !is_last {
                wait_for(&mut child, || fs::metadata(&ledger).is_ok_and(|m| m.len() > 0));
            }
            let begun = Instant::now();
            while (is_last || begun.elapsed() < moment) && child.try_wait().unwrap().is_none() {
                assert!(begun.elapsed() < Duration::from_secs(600), "the study does not end");
                std::thread::sleep(Duration::from_millis(2));
            }
            let ended = child.try_wait().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            let after = snapshot();
            changed.extend(after.iter().filter(|(path, text)| before.get(*path) != Some(text)).map(|(p, _)| p.clone()));
            let waited = Instant::now();
            while processes_in(&dir) > 0 {
                assert!(waited.elapsed() < Duration::from_secs(60), "processes are left after kill {killed}");
                std::thread::sleep(Duration::from_millis(5));
            }
            let undone = test.run(&["undo"]).status(0);
            restored += u32::from(!undone.stdout.contains("Nothing to restore"));
            assert_eq!(snapshot(), before, "after kill {killed}: {}", undone.stdout);
            test.run(&["undo"]).status(0).stdout_has("Nothing to restore");
            let records = complete_records(&dir);
            assert!(records.starts_with(&kept), "kill {killed}: a record is lost or changed");
            kept = records;
            let Some(status) = ended else {
                killed += 1;
                continue;
            };
            assert!(status.success(), "{status}: {}", test.run(&words).stderr);
            break;
        }
        studies += 1;
        let slots: Vec<u64> = kept.iter().map(|line| slot_of(line)).collect();
        let distinct: BTreeSet<u64> = slots.iter().copied().collect();
        assert_eq!((slots.len(), distinct.len()), (2 * PAIRS, 2 * PAIRS), "trials are lost or doubled: {slots:?}");
        let folders = Command::new("find").arg(&dir).args(["-name", "bigiron-work-*"]).output().unwrap();
        assert!(folders.stdout.is_empty(), "{}", String::from_utf8_lossy(&folders.stdout));
        test.run(&["report", &name]).status(0);
    }
    eprintln!("{killed} kills, {studies} studies, {restored} times restored by `undo`; seen changed: {changed:?}");
    assert!(restored > 0, "no kill came while anything was changed");
}

/// The slot of a record of a trial that counts.
fn slot_of(line: &str) -> u64 {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["record"]["outcome"]["kind"], "completed", "{line}");
    line["record"]["slot"].as_u64().unwrap()
}
