//! The ledger on a machine made of files.

use std::fs::{self, File};

use proptest::prelude::*;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use super::*;

/// A folder for the ledger, and a machine with `files` below its root.
fn machine(files: &[(&str, &str)]) -> (TempDir, TempDir) {
    let (state, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (path, text) in files.iter().chain(&[("/sys/kernel/here", "")]) {
        let at = below(root.path(), Path::new(path));
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }
    (state, root)
}

const SWAPPINESS: &str = "/proc/sys/vm/swappiness";

fn says(root: &TempDir, path: &str) -> String {
    fs::read_to_string(below(root.path(), Path::new(path))).unwrap()
}

/// Simulates a ledger whose process is killed: only the locks are dropped.
fn kill(ledger: Ledger) {
    let ledger = std::mem::ManuallyDrop::new(ledger);
    for file in [Some(ledger.lock.ledger_file.file()), ledger.lock.machine.as_ref()].into_iter().flatten() {
        flock(file, FlockOperation::Unlock).unwrap();
    }
}

#[test]
fn what_is_changed_is_restored_in_reverse_when_dropped() {
    let (state, root) = machine(&[(SWAPPINESS, "60\n")]);
    let mut ledger = Ledger::open_at(state.path(), root.path()).unwrap();
    let change = ledger.write("first", Path::new(SWAPPINESS), "10").unwrap();
    assert_eq!((change.before.as_str(), change.after.as_str()), ("60", "10"));
    ledger.write("second", Path::new(SWAPPINESS), "20").unwrap();
    assert_eq!(says(&root, SWAPPINESS), "20\n");
    drop(ledger);
    assert_eq!(says(&root, SWAPPINESS), "60\n");
    assert_eq!(fs::read(state.path().join("undo.jsonl")).unwrap(), b"");
}

#[test]
fn a_mark_is_come_back_to() {
    let (state, root) = machine(&[(SWAPPINESS, "60\n")]);
    let mut ledger = Ledger::open_at(state.path(), root.path()).unwrap();
    ledger.write("session", Path::new(SWAPPINESS), "10").unwrap();
    for value in ["20", "30"] {
        let mark = ledger.mark();
        ledger.write("trial", Path::new(SWAPPINESS), value).unwrap();
        assert_eq!(ledger.undo_since(mark), []);
        assert_eq!(says(&root, SWAPPINESS), "10\n");
    }
    drop(ledger);
    assert_eq!(says(&root, SWAPPINESS), "60\n");
}

#[test]
fn a_living_bigiron_is_left_alone() {
    let (state, root) = machine(&[(SWAPPINESS, "60\n")]);
    let mut first = Ledger::open_at(state.path(), root.path()).unwrap();
    first.write("first", Path::new(SWAPPINESS), "10").unwrap();
    assert!(matches!(Ledger::open_at(state.path(), root.path()), Err(UndoError::Held(_))));
    assert!(matches!(restore(state.path(), root.path(), false), Err(UndoError::Held(_))));
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Ledger::open_at(elsewhere.path(), root.path()).err().unwrap();
    assert!(matches!(other, UndoError::Held(_)), "another ledger, the same machine");
    assert_eq!(says(&root, SWAPPINESS), "10\n");
    drop(first);
    assert!(Ledger::open_at(elsewhere.path(), root.path()).is_ok());
}

#[test]
fn after_a_kill_the_next_start_says_so_and_undo_restores_once() {
    let (state, root) = machine(&[(SWAPPINESS, "60\n")]);
    let mut ledger = Ledger::open_at(state.path(), root.path()).unwrap();
    ledger.write("sysctl.vm.swappiness=10", Path::new(SWAPPINESS), "10").unwrap();
    kill(ledger);
    let Err(error) = Ledger::open_at(state.path(), root.path()) else { panic!("the change is overlooked") };
    let text = error.to_string();
    assert!(text.contains("a setting") && text.contains("sysctl.vm.swappiness=10"), "{text}");
    assert!(text.contains("`bigiron undo`"), "{text}");
    let dry = restore(state.path(), root.path(), true).unwrap();
    assert_eq!((dry.entries.len(), dry.entries[0].1.is_none()), (1, true));
    assert_eq!(says(&root, SWAPPINESS), "10\n");
    let done = restore(state.path(), root.path(), false).unwrap();
    assert_eq!(done.entries[0].1, Some(Ok(UndoResult::Restored)));
    assert_eq!(says(&root, SWAPPINESS), "60\n");
    assert!(restore(state.path(), root.path(), false).unwrap().entries.is_empty());
}

#[test]
fn what_cannot_be_restored_is_said_and_kept() {
    let (state, root) = machine(&[(SWAPPINESS, "60\n"), ("/sys/a/x", "1\n")]);
    let mut ledger = Ledger::open_at(state.path(), root.path()).unwrap();
    ledger.write("a", Path::new("/sys/a/x"), "2").unwrap();
    ledger.write("b", Path::new(SWAPPINESS), "10").unwrap();
    // It can no longer be written as a file.
    let path = below(root.path(), Path::new(SWAPPINESS));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let troubles = ledger.undo_since(LedgerMark(0));
    assert_eq!(troubles.len(), 1);
    assert!(troubles[0].to_string().contains("(changed for b)"), "{}", troubles[0]);
    assert_eq!(says(&root, "/sys/a/x"), "1\n", "the others are restored all the same");
    kill(ledger);
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "10\n").unwrap();
    let again = restore(state.path(), root.path(), false).unwrap();
    assert_eq!(again.entries.len(), 1);
    assert_eq!(says(&root, SWAPPINESS), "60\n");
}

#[test]
fn a_reboot_restores_the_kernel() {
    let (state, root) = machine(&[(SWAPPINESS, "60\n")]);
    let mut ledger = Ledger::open_at(state.path(), root.path()).unwrap();
    ledger.here.boot = "another boot".to_owned();
    ledger.write("sysctl", Path::new(SWAPPINESS), "10").unwrap();
    kill(ledger);
    fs::write(below(root.path(), Path::new(SWAPPINESS)), "33\n").unwrap();
    restore(state.path(), root.path(), false).unwrap();
    assert_eq!(says(&root, SWAPPINESS), "33\n", "what this boot set is not touched");
}

#[test]
fn what_a_killed_process_changed_since_the_last_boot_is_left_over() {
    let (state, root) = machine(&[(SWAPPINESS, "60\n")]);
    let mut ledger = Ledger::open_at(state.path(), root.path()).unwrap();
    ledger.write("alive", Path::new(SWAPPINESS), "10").unwrap();
    let mut killed = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let (machine, boot) = (ledger.here.machine.clone(), ledger.here.boot.clone());
    let entry = |id, pid, boot: &str, what: &str| {
        let undo = Inverse::Write { path: SWAPPINESS.into(), value: "10".into(), shown: "10\n".into() };
        UndoEntry { id, pid, machine: machine.clone(), boot: boot.to_owned(), what: what.to_owned(), undo }
    };
    ledger.lock.ledger_file.announce(entry(1, killed.id(), &boot, "killed")).unwrap();
    // No process has this number.
    ledger.lock.ledger_file.announce(entry(2, u32::MAX, &boot, "gone")).unwrap();
    ledger.lock.ledger_file.announce(entry(3, u32::MAX, "another boot", "gone with its boot")).unwrap();
    let left = || left_over_in(state.path()).into_iter().map(|entry| entry.what).collect::<Vec<_>>();
    assert_eq!(left(), ["gone"]);
    // Not reaped yet.
    killed.kill().unwrap();
    while lives(killed.id()) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(Path::new(&format!("/proc/{}", killed.id())).exists());
    assert_eq!(left(), ["killed", "gone"]);
    killed.wait().unwrap();
    kill(ledger);
}

#[test]
fn a_ledger_that_others_may_have_written_is_not_used() {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    let untrusted = |state: &TempDir, root: &TempDir, want: &str| {
        for error in [
            Ledger::open_at(state.path(), root.path()).err().expect("the ledger is not opened"),
            restore(state.path(), root.path(), true).unwrap_err(),
        ] {
            assert!(matches!(error, UndoError::Untrusted { .. }), "{error}");
            assert!(error.to_string().contains(want), "{error}");
        }
    };
    let (state, root) = machine(&[(SWAPPINESS, "60\n")]);
    let file = state.path().join("undo.jsonl");
    for path in [state.path(), &file] {
        fs::write(&file, "").unwrap();
        let before = fs::metadata(path).unwrap().permissions();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        untrusted(&state, &root, "`chmod go-w`");
        fs::set_permissions(path, before).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(path, Some(65534), None).unwrap();
            untrusted(&state, &root, "belongs to user 65534");
            chown(path, Some(0), None).unwrap();
        }
    }
    let precious = root.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    fs::remove_file(&file).unwrap();
    symlink(&precious, &file).unwrap();
    untrusted(&state, &root, "symbolic link");
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
}

#[test]
fn nothing_but_the_kernels_files_is_touched() {
    use std::os::unix::fs::symlink;
    let (state, root) = machine(&[(SWAPPINESS, "60\n"), ("/etc/passwd", "root\n"), ("/sys/fs/cgroup/x", "")]);
    symlink(below(root.path(), Path::new("/etc")), below(root.path(), Path::new("/proc/sys/root"))).unwrap();
    let write = |path: &str| Inverse::Write { path: path.into(), value: "evil".into(), shown: "evil\n".into() };
    let planted = [
        write("/etc/passwd"),
        write("/sys/../etc/passwd"),
        write("/proc/sys/root/passwd"),
        write("/proc/self/root/etc/passwd"),
        Inverse::RemoveCgroup { path: "/etc".into() },
        Inverse::RemoveCgroup { path: "/sys/fs/cgroup/../../../etc".into() },
        Inverse::SwapOff { path: "/etc/passwd".into() },
    ];
    let mut ledger = Ledger::open_at(state.path(), root.path()).unwrap();
    for undo in &planted {
        let refused = ledger.note("evil", undo.clone()).unwrap_err();
        assert!(matches!(refused, UndoError::Outside { .. }), "{refused}");
    }
    // As by another hand.
    for (id, undo) in (0..).zip(planted) {
        let entry = UndoEntry {
            id,
            pid: 1,
            machine: String::new(),
            boot: ledger.here.boot.clone(),
            what: "evil".to_owned(),
            undo,
        };
        ledger.lock.ledger_file.announce(entry).unwrap();
    }
    kill(ledger);
    let Err(UndoError::LeftOver(left)) = Ledger::open_at(state.path(), root.path()) else { panic!() };
    assert!(UndoError::LeftOver(left).to_string().contains("/etc/passwd = evil"), "the paths are shown");
    let done = restore(state.path(), root.path(), false).unwrap();
    assert_eq!(done.entries.len(), 7);
    for (entry, result) in done.entries {
        let why = result.unwrap().unwrap_err();
        assert!(why.contains("where alone bigiron makes such changes"), "{entry:?}: {why}");
    }
    assert_eq!(says(&root, "/etc/passwd"), "root\n");
}

#[test]
fn what_another_machine_changed_is_left_for_it() {
    let (state, root) = machine(&[(SWAPPINESS, "60\n")]);
    let mut there = Ledger::open_at(state.path(), root.path()).unwrap();
    (there.here.machine, there.here.boot) = ("another machine".to_owned(), "its boot".to_owned());
    there.write("there", Path::new(SWAPPINESS), "10").unwrap();
    kill(there);
    let ours = tempfile::tempdir().unwrap();
    let path = below(ours.path(), Path::new(SWAPPINESS));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "70\n").unwrap();
    // Changes of this machine come and go.
    let mut here = Ledger::open_at(state.path(), ours.path()).unwrap();
    here.write("here", Path::new(SWAPPINESS), "20").unwrap();
    drop(here);
    assert_eq!(fs::read_to_string(&path).unwrap(), "70\n");
    let done = restore(state.path(), ours.path(), false).unwrap();
    assert_eq!((done.entries.len(), done.elsewhere), (0, 1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "70\n");
    // It finds its own, with its own identity.
    let contents = ledger_file::peek(state.path()).unwrap();
    assert_eq!(
        contents.open.iter().map(|e| (e.what.as_str(), e.machine.as_str())).collect::<Vec<_>>(),
        [("there", "another machine")]
    );
}

#[test]
fn nobody_else_can_hold_roots_lock() {
    use std::os::unix::fs::PermissionsExt as _;
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED root's lock: this is not root");
        return;
    }
    let (state, root) = machine(&[(SWAPPINESS, "60\n")]);
    // What any user can lock.
    let held = File::open(below(root.path(), Path::new("/sys/kernel"))).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    drop(Ledger::open_at(state.path(), root.path()).unwrap());
    let folder = below(root.path(), Path::new("/run/bigiron"));
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = Ledger::open_at(state.path(), root.path()).err().unwrap();
    assert!(matches!(refused, UndoError::Untrusted { .. }), "{refused}");
}

#[test]
fn a_damaged_ledger_stops_everything() {
    let (state, root) = machine(&[(SWAPPINESS, "60\n")]);
    fs::write(state.path().join("undo.jsonl"), "00000000 {}\n").unwrap();
    assert!(matches!(Ledger::open_at(state.path(), root.path()), Err(UndoError::Damaged { lines: 1, .. })));
    assert_eq!(restore(state.path(), root.path(), false).unwrap().damaged, 1);
    assert!(!fs::read(state.path().join("undo.jsonl")).unwrap().is_empty(), "it is not removed");
}

#[test]
fn the_chosen_word_is_what_would_be_written() {
    for (text, want) in [
        ("none [mq-deadline] kyber\n", "mq-deadline"),
        ("none voluntary (full) lazy\n", "full"),
        ("60\n", "60"),
        ("4096\t131072\t6291456\n", "4096\t131072\t6291456"),
        ("no (word in here) at all\n", "no (word in here) at all"),
    ] {
        assert_eq!(chosen(text), want);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// After any order of changes, marks and kills, `undo` leaves the machine as before.
    #[test]
    fn nothing_stays_changed(steps in proptest::collection::vec((0usize..3, 0u32..9, 0u8..10), 1..15)) {
        let files = [("/proc/sys/a", "1\n"), ("/proc/sys/b", "2\n"), ("/sys/c", "3\n")];
        let (state, root) = machine(&files);
        let mut ledger = Ledger::open_at(state.path(), root.path()).unwrap();
        for (file, value, then) in steps {
            let mark = ledger.mark();
            ledger.write("step", Path::new(files[file].0), &value.to_string()).unwrap();
            match then {
                0 => {
                    kill(ledger);
                    restore(state.path(), root.path(), false).unwrap();
                    prop_assert!(files.iter().all(|(path, text)| says(&root, path) == *text));
                    ledger = Ledger::open_at(state.path(), root.path()).unwrap();
                }
                1 => prop_assert!(ledger.undo_since(mark).is_empty()),
                _ => {}
            }
        }
        drop(ledger);
        prop_assert!(files.iter().all(|(path, text)| says(&root, path) == *text));
    }
}
