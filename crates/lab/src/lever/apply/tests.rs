//! Sets and undoes levers on a machine made of files.

use super::super::site::tests::{machine, site};
use super::*;
use crate::lever;
use crate::undo::{Ledger, NoLedger};

const QUEUE: &[(&str, &str)] = &[
    ("/sys/kernel/here", ""),
    ("/sys/block/vda/queue/nr_requests", "256\n"),
    ("/sys/block/vda/queue/wbt_lat_usec", "75000\n"),
    ("/proc/sys/vm/swappiness", "60\n"),
    ("/proc/sys/vm/min_free_kbytes", "67584\n"),
    ("/sys/devices/system/cpu/online", "0-1\n"),
];

fn settings(texts: &[&str]) -> Vec<Setting> {
    texts.iter().map(|t| lever::parse(t).unwrap()).collect()
}

fn says(root: &tempfile::TempDir, path: &str) -> String {
    read(&below(root.path(), Path::new(path))).unwrap().trim().to_owned()
}

#[test]
fn what_is_set_is_in_the_record_and_comes_back() {
    let (state, root) = (tempfile::tempdir().unwrap(), machine(QUEUE));
    let mut ledger = Ledger::open_at(state.path(), root.path()).unwrap();
    let mark = ledger.mark();
    let asked = settings(&["block.nr-requests=64", "sysctl.vm.swappiness=10", "cpu.pin=1"]);
    let applied = apply(&asked, &site(&root), &mut ledger).unwrap();
    let change = |path: &str, before: &str, after: &str| FileChange {
        path: path.to_owned(),
        before: before.to_owned(),
        after: after.to_owned(),
    };
    let want = [change("/sys/block/vda/queue/nr_requests", "256", "64"), change("/proc/sys/vm/swappiness", "60", "10")];
    assert_eq!(applied.changes, want);
    assert_eq!(applied.placement, Placement { cpus: vec![1], ..Placement::default() });
    assert_eq!(says(&root, "/proc/sys/vm/swappiness"), "10");
    assert!(ledger.undo_since(mark).is_empty());
    assert_eq!(
        (says(&root, "/proc/sys/vm/swappiness"), says(&root, "/sys/block/vda/queue/nr_requests")),
        ("60".into(), "256".into())
    );
}

#[test]
fn the_first_that_does_not_take_ends_it_with_its_reason() {
    let (state, root) = (tempfile::tempdir().unwrap(), machine(QUEUE));
    let mut ledger = Ledger::open_at(state.path(), root.path()).unwrap();
    let asked = settings(&["sysctl.vm.swappiness=10", "sysctl.vm.gone=1"]);
    let why = apply(&asked, &site(&root), &mut ledger).unwrap_err();
    assert_eq!(why, "Lever `sysctl.vm.gone=1` did not take: this kernel has no `/proc/sys/vm/gone`");
    drop(ledger);
    assert_eq!(says(&root, "/proc/sys/vm/swappiness"), "60");
}

#[test]
fn what_a_scheduler_resets_is_noted_before_it_is_changed() {
    let files =
        [("/sys/block/vda/queue/scheduler", "none [bfq]\n"), ("/sys/block/vda/queue/iosched/low_latency", "0\n")];
    let (state, root) = (tempfile::tempdir().unwrap(), machine(&[QUEUE, &files].concat()));
    let mut ledger = Ledger::open_at(state.path(), root.path()).unwrap();
    // A plain file keeps only the word; the boot tests read back from a real kernel.
    apply(&settings(&["block.scheduler=none"]), &site(&root), &mut ledger).unwrap();
    // Changes the files like the kernel.
    for (path, text) in [("iosched/low_latency", "1\n"), ("nr_requests", "128\n"), ("wbt_lat_usec", "0\n")] {
        std::fs::write(below(root.path(), &Path::new("/sys/block/vda/queue").join(path)), text).unwrap();
    }
    drop(ledger);
    for (path, text) in [("iosched/low_latency", "0"), ("nr_requests", "256"), ("wbt_lat_usec", "75000")] {
        assert_eq!(says(&root, &format!("/sys/block/vda/queue/{path}")), text);
    }
}

#[test]
fn a_value_that_the_kernel_changed_did_not_take() {
    // The read-back differs: a file that discards writes.
    let root = machine(QUEUE);
    std::os::unix::fs::symlink("/dev/null", root.path().join("proc/sys/vm/null")).unwrap();
    struct Here(std::path::PathBuf);
    impl ChangeLog for Here {
        fn root(&self) -> &Path {
            &self.0
        }
        fn note(&mut self, what: &str, undo: crate::undo::Inverse) -> Result<(), UndoError> {
            NoLedger.note(what, undo)
        }
    }
    let mut here = Here(root.path().to_owned());
    let why = apply(&settings(&["sysctl.vm.null=7"]), &site(&root), &mut here).unwrap_err();
    assert!(why.ends_with("`/proc/sys/vm/null` says `` after `7` was written"), "{why}");
}

#[test]
fn a_scheduler_comes_before_its_tunables_and_swap_last() {
    let root = machine(QUEUE);
    // Each fails because its file is missing: the first one tried is named.
    for (asked, first) in [
        (&["block.iosched.x=1", "block.scheduler=bfq"][..], "block.scheduler=bfq"),
        (&["mm.swap=zram:64M", "sysctl.vm.gone=1"][..], "sysctl.vm.gone=1"),
    ] {
        let (state, site) = (tempfile::tempdir().unwrap(), site(&root));
        let mut ledger = Ledger::open_at(state.path(), root.path()).unwrap();
        let why = apply(&settings(asked), &site, &mut ledger).unwrap_err();
        assert!(why.starts_with(&format!("Lever `{first}`")), "{why}");
    }
}

#[test]
fn a_pinned_process_runs_where_it_was_put() {
    let cpu = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|n| cpu.is_set(*n)).unwrap() as u32;
    // Affects only this thread, which ends with the test.
    Placement { cpus: vec![first], ..Placement::default() }.take().unwrap();
    assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
    assert!(Placement { cpus: vec![1000], ..Placement::default() }.take().is_err());
}
