use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::*;
use bigiron_archive::Store;
use bigiron_service::java::{RECIPE, SERIES};
use bigiron_service::programs::Programs;
use bigiron_service::root;
use bigiron_workload::{WrongData, testing};

const SMALL: [(&str, &str); 4] = [("warehouses", "1"), ("operations", "1000"), ("warmup", "500"), ("data", "1M")];

fn settings(more: &[(&str, &str)]) -> Settings {
    let options = testing::options(&JavaBusiness, SMALL.into_iter().chain(more.iter().copied())).unwrap();
    Settings::parse(&options).unwrap().other
}

fn programs() -> Programs {
    bigiron_service::java::testing::install();
    let root = root::ensure(&Store::open().unwrap(), &RECIPE, SERIES, &|line| eprintln!("{line}")).unwrap();
    Programs::of(&RECIPE, &root).unwrap()
}

fn trial<'a>(settings: &'a Settings, programs: &Programs, dir: &Path) -> Result<Trial<'a>> {
    let cx = testing::context(dir);
    Ok(Trial { settings, warehouses: settings.warehouses(cx.cpus), jvm: Some(Jvm::start(settings, programs, &cx)?) })
}

fn run(more: &[(&str, &str)], dir: &Path) -> Result<WorkloadResult> {
    let settings = settings(more);
    trial(&settings, &programs(), dir)?.run(&testing::context(dir))
}

#[test]
fn every_collector_does_the_same_work_and_delivers_every_metric() {
    let mut digests = Vec::new();
    for collector in ["serial", "parallel", "g1", "zgc"] {
        let dir = tempfile::tempdir().unwrap();
        let more = [("collector", collector), ("operations", "8000")];
        let outcome = run(&more, dir.path()).unwrap_or_else(|e| panic!("{collector}: {e:#}"));
        let declared = settings(&more).metrics();
        for def in &declared {
            assert!(def.kind.takes(outcome.values[&def.name]), "{collector} {}: {:?}", def.name, outcome.values);
        }
        assert_eq!(outcome.values.len(), declared.len());
        assert_eq!(outcome.windows.iter().map(|w| w.operations).collect::<Vec<_>>(), [8000, 16_000]);
        assert_eq!(outcome.facts["transactions"], "24000");
        let mean = (outcome.values["operations-1"] + outcome.values["operations-2"]) / 2.0;
        assert!((outcome.values[PRIMARY] / mean - 1.0).abs() < 1e-9, "{:?}", outcome.values);
        let log = fs::read_to_string(dir.path().join("artifacts/gc.log")).unwrap();
        assert!(log.contains("Pause"), "{log}");
        digests.push(outcome.facts["digest"].clone());
    }
    assert!(digests.iter().all(|d| *d == digests[0]), "{digests:?}");
}

#[test]
fn pauses_outside_the_windows_do_not_count_and_a_time_is_a_length() {
    let dir = tempfile::tempdir().unwrap();
    // A heap in which nothing of this length collects, beside the collections that the program forces.
    let outcome = run(&[("heap", "256M"), ("operations", "50ms"), ("warmup", "10ms")], dir.path()).unwrap();
    let log = fs::read_to_string(dir.path().join("artifacts/gc.log")).unwrap();
    assert_eq!(log.matches("Pause Full (System.gc())").count(), 4, "{log}");
    assert_eq!(outcome.facts["collections"], "0");
    assert!(outcome.windows.iter().all(|w| w.ns >= 50_000_000), "{:?}", outcome.windows);
}

#[test]
fn methods_that_are_compiled_in_the_windows_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = run(&[("operations", "4000"), ("warmup", "0")], dir.path()).unwrap();
    let fact = &outcome.facts["compiled-in-windows"];
    let points: Vec<usize> = fact
        .split("; ")
        .zip(1..)
        .map(|(point, n)| {
            let count = point.strip_prefix(&format!("{n}: ")).and_then(|rest| rest.split_once(" method"));
            count.unwrap_or_else(|| panic!("{fact}")).0.parse().unwrap()
        })
        .collect();
    let log = fs::read_to_string(dir.path().join("artifacts/gc.log")).unwrap();
    // Without a warm-up, methods are compiled in the first window; and others were before it.
    let all = super::log::compilations(&log);
    assert!(points.len() == 2 && points[0] > 20 && points.iter().sum::<usize>() < all, "{fact} of {all}");
}

#[test]
fn a_heap_that_is_mapped_several_times_counts_once() {
    for (collector, counts_once) in [("zgc", true), ("serial", false)] {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(&[("collector", collector)]);
        let mut trial = trial(&settings, &programs(), dir.path()).unwrap();
        let jvm = trial.jvm.as_mut().unwrap();
        jvm.load().unwrap();
        let point = jvm.measure().unwrap();
        assert_eq!(point.memory.is_some(), counts_once, "{collector}");
        let (memory, resident) = (point.memory.unwrap_or(1 << 20), jvm.program.max_rss());
        assert!((1 << 20..resident).contains(&memory), "{collector}: {memory} of {resident}");
    }
}

#[test]
fn a_long_step_is_not_taken_for_a_hang() {
    let silence = |more: &[(&str, &str)]| {
        let small = [("data", "1M"), ("warmup", "0"), ("operations", "1")];
        let kept = small.into_iter().filter(|(name, _)| more.iter().all(|(other, _)| other != name));
        let options = testing::options(&JavaBusiness, kept.chain(more.iter().copied())).unwrap();
        let configured = JavaBusiness.parse(&options).unwrap();
        (configured.silence().as_secs(), configured.guest_silence().as_secs())
    };
    // An emulated second takes longer than the processor's.
    assert_eq!(silence(&[("operations", "20m"), ("warmup", "1m")]), (1200, 20 * 1200));
    assert_eq!(silence(&[("operations", "20m"), ("warmup", "1h")]), (3600, 20 * 3600));
    // Each of 2N warehouses does the operations.
    let million = ("operations", "1000000");
    assert_eq!(silence(&[million, ("warehouses", "2")]), (4000, 4000));
    // The limit of a trial counts for each CPU.
    assert_eq!(silence(&[million]), (2000, 2000));
    assert_eq!(silence(&[("warmup", "1000000"), ("data", "1G"), ("warehouses", "2")]), (5024, 5024));
    assert!(silence(&[("operations", "1000000000000"), ("warehouses", "128")]).0 > 1_000_000_000);
}

#[test]
fn a_heap_that_is_too_small_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = format!("{:#}", run(&[("heap", "20M"), ("data", "10M")], dir.path()).unwrap_err());
    assert!(
        error.starts_with("The heap is too small; increase `jvm.heap`: ")
            && error.contains("The JVM ended (exit status: 3): ")
            && error.contains("OutOfMemoryError: Java heap"),
        "{error}"
    );
    let log = fs::read_to_string(dir.path().join("artifacts/gc.log")).unwrap();
    assert!(log.contains("Pause Full"), "{log}");
}

#[test]
fn a_killed_jvm_and_one_that_crashes_fail_the_trial_and_a_dropped_one_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&[]);
    let mut killed = trial(&settings, &programs(), dir.path()).unwrap();
    let pid = Pid::from_raw(killed.jvm.as_ref().unwrap().program.pid() as i32).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let error = format!("{:#}", killed.run(&testing::context(dir.path())).unwrap_err());
    assert!(error.contains("The JVM ended (signal: 9 (SIGKILL))"), "{error}");
    let mut crashed = trial(&settings, &programs(), dir.path()).unwrap();
    let pid = Pid::from_raw(crashed.jvm.as_ref().unwrap().program.pid() as i32).unwrap();
    kill_process(pid, Signal::SEGV).unwrap();
    let error = format!("{:#}", crashed.run(&testing::context(dir.path())).unwrap_err());
    assert!(
        error.starts_with("The JVM crashed (signal: 6 (SIGABRT)") && error.contains("; SIGSEGV (0xb) at pc="),
        "{error}"
    );
    let report = fs::read_to_string(dir.path().join("artifacts/crash.log")).unwrap();
    assert!(report.contains("Problematic frame"), "{report}");
    let dropped = trial(&settings, &programs(), dir.path()).unwrap();
    let pid = Pid::from_raw(dropped.jvm.as_ref().unwrap().program.pid() as i32).unwrap();
    drop(dropped);
    assert!(test_kill_process(pid).is_err());
}

/// What a trial says of an installed Java that is this shell script.
fn with_java(script: &str) -> anyhow::Error {
    bigiron_service::java::testing::install();
    let dir = tempfile::tempdir().unwrap();
    let java = dir.path().join("java");
    // Not by this process: one that another test forks meanwhile would have the file open too, and while it is open for writing nobody can execute it.
    let write = ["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"];
    let text = format!("#!/bin/sh\n{script}\n");
    assert!(Command::new("sh").args(write).arg(&java).arg(text).status().unwrap().success());
    // Root's servers run as another user.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let settings = settings(&[]);
    let programs = Programs::installed(&RECIPE, dir.path(), SERIES);
    match trial(&settings, &programs, dir.path()) {
        Ok(mut trial) => trial.run(&testing::context(dir.path())).unwrap_err(),
        Err(error) => error,
    }
}

#[test]
fn wrong_data_are_told_from_a_wrong_java() {
    let error = with_java("echo '{}'; read load; echo 'Self-check failed: warehouse 1' >&2; exit 4");
    assert!(error.downcast_ref::<WrongData>().is_some_and(|w| w.0 == "Self-check failed: warehouse 1"), "{error:#}");
    let old = "UnsupportedClassVersionError: bigiron/Main has been compiled by a more recent version";
    let error = with_java(&format!("echo '{old}' >&2; exit 1"));
    assert_eq!(format!("{error:#}"), format!("The JVM ended (exit status: 1): {old}"));
    assert!(error.downcast_ref::<WrongData>().is_none());
    let error = format!("{:#}", with_java("echo hello; sleep 600"));
    assert_eq!(error, "The program said `hello` instead of JSON: expected value at line 1 column 1");
}

#[test]
fn huge_pages_that_are_not_there_fail_the_trial() {
    let free = fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
    if free.trim() != "0" {
        return testing::skipped("missing huge pages", "this machine has some");
    }
    let dir = tempfile::tempdir().unwrap();
    let error = format!("{:#}", run(&[("large-pages", "on")], dir.path()).unwrap_err());
    assert!(error.contains("`jvm.large-pages` asks for: reserve enough") && error.contains("nr_hugepages"), "{error}");
}

#[test]
fn the_jvm_asks_for_transparent_huge_pages() {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if enabled.is_empty() || enabled.contains("[never]") {
        return testing::skipped("a heap on transparent huge pages", "this machine gives none");
    }
    let dir = tempfile::tempdir().unwrap();
    run(&[("thp", "on")], dir.path()).unwrap();
}

#[test]
fn options_are_refused_with_what_would_be_right() {
    for (more, want) in [
        (&[("warehouses", "0")][..], "`jvm.warehouses` cannot be `0`; it can be 1 to 128, or `auto`"),
        (&[("operations", "0")], "a number of operations above 0"),
        (&[("warmup", "soon")], "`jvm.warmup` cannot be `soon`"),
        (&[("data", "1K")], "an amount from `1M` to `1G`"),
        (&[("heap", "1M")], "an amount from `16M` to `1T`"),
        (&[("heap", "511M"), ("data", "64M"), ("warehouses", "4")], "it can be at least `512M`"),
        (&[("compiler-threads", "1")], "2 to 64"),
        (&[("collector", "cms")], "it can be `serial`"),
        (&[("thp", "on"), ("large-pages", "on")], "exclude each other"),
    ] {
        let error = testing::options(&JavaBusiness, more.iter().copied()).unwrap_err();
        assert!(error.contains(want), "{more:?}: {error}");
    }
    let auto = Settings::parse(&testing::options(&JavaBusiness, []).unwrap()).unwrap();
    assert_eq!((auto.other.warehouses(1), auto.wall.warehouses(8)), (1, 8));
    // 2N warehouses of 4 and 25 MiB.
    assert_eq!((auto.other.heap(1) >> 20, auto.wall.heap(8) >> 20), (32 + 16, 32 + 800));
    assert_eq!(auto.memory_on(8, Clock::Wall), Some(auto.wall.heap(8) + BESIDE_HEAP));
    assert_eq!(auto.memory_on(8, Clock::Exact), Some(auto.other.heap(8) + BESIDE_HEAP));
    assert!(auto.other.arguments(1, 9, "/j", "/l").contains(&"-XX:-BackgroundCompilation".to_owned()));
}
