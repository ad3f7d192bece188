//! Runs every test once, with short loops and a small file; and checks the messages of each group when something is wrong.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::*;
use bigiron_sys::process::{Exit, fork_child};
use bigiron_workload::WrongData;

const SEED: u64 = 7;
const FILE_BYTES: u64 = 40 << 10;

/// A directory on the build's file system, which is on a disk and supports O_DIRECT.
fn directory() -> tempfile::TempDir {
    let executable = std::env::current_exe().unwrap();
    tempfile::tempdir_in(executable.parent().unwrap()).unwrap()
}

fn small<'a>(disk: &'a TestDirectory, user: u32) -> UserContext<'a> {
    // No sync, so as not to wait for other programs' data.
    UserContext::new(disk, Path::new("/bin/true"), user, SEED).scaled(Scale::divided_by(1000)).syncing(false)
}

/// All names below `dir`.
fn names(dir: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|p| if p.is_dir() { names(&p) } else { BTreeSet::from([p]) }).collect()
}

#[test]
fn every_test_does_its_work_twice_and_leaves_nothing() {
    let dir = directory();
    let disk = TestDirectory::lay_out(dir.path(), FILE_BYTES, catalogue()).unwrap();
    let before = names(dir.path());
    let mut place = small(&disk, 3);
    for test in catalogue() {
        // These move the program break, which requires a single-threaded process.
        if ["brk_test", "page_test"].contains(&test.name) {
            let child = fork_child(|| (test.run)(&mut place).map_or(1, |()| 0)).unwrap();
            assert_eq!(child.wait().unwrap(), Exit::Status(0), "{}", test.name);
            continue;
        }
        for call in 0..2 {
            (test.run)(&mut place).unwrap_or_else(|e| panic!("{}, call {call}: {e:#}", test.name));
        }
        assert_eq!(names(dir.path()), before, "{} left files behind", test.name);
    }
    disk.clear().unwrap();
    assert!(names(dir.path()).is_empty());
}

#[test]
fn the_catalogue_is_in_order() {
    let names: BTreeSet<_> = catalogue().iter().map(|t| t.name).collect();
    assert_eq!(names.len(), catalogue().len());
    let mut groups: Vec<_> = catalogue().iter().map(|t| t.group).collect();
    groups.dedup();
    assert_eq!(groups, Group::ALL);
    for test in catalogue() {
        assert!(std::ptr::eq(find(test.name).unwrap(), test));
        assert!(test.operations(FILE_BYTES, Scale::FULL) >= 1.0, "{}", test.name);
    }
    assert!(find("disk_nothing").is_none());
}

#[test]
fn credits_follow_the_scale_and_the_file() {
    let credit = |name, scale| find(name).unwrap().operations(10 << 10, scale);
    assert_eq!(credit("add_double", Scale::FULL), 18_000.0);
    assert_eq!(credit("add_double", Scale::divided_by(1000)), 18.0);
    assert_eq!(credit("link_test", Scale::FULL), 63.0);
    // One round of 9 is left; tests without rounds keep all.
    assert_eq!(credit("link_test", Scale::divided_by(1000)), 7.0);
    assert_eq!(credit("disk_src", Scale::divided_by(1000)), 75.0);
    assert_eq!((credit("disk_rr", Scale::FULL), credit("sync_disk_rw", Scale::FULL)), (10.0, 5.0));
    assert_eq!((Scale::divided_by(0), Scale::FULL.times(5)), (Scale::FULL, 5));
}

#[test]
fn draws_are_the_seeds_and_the_users() {
    let dir = tempfile::tempdir().unwrap();
    let disk = TestDirectory::lay_out(dir.path(), 0, []).unwrap();
    let draws = |user, seed| {
        let mut place = UserContext::new(&disk, Path::new("/bin/true"), user, seed);
        (0..8).map(|_| place.below(1000)).collect::<Vec<_>>()
    };
    assert_eq!(draws(1, 2), draws(1, 2));
    assert_ne!(draws(1, 2), draws(2, 2));
    assert_ne!(draws(1, 2), draws(1, 3));
}

#[test]
fn a_place_is_small() {
    assert!(size_of::<UserContext<'_>>() <= 256, "{}", size_of::<UserContext<'_>>());
}

/// The error of `name` in a directory damaged by `spoil`.
fn spoilt(name: &str, spoil: impl FnOnce(&Path)) -> anyhow::Error {
    let outer = directory();
    let dir = outer.path().join("disk");
    fs::create_dir(&dir).unwrap();
    let test = find(name).unwrap();
    let disk = TestDirectory::lay_out(&dir, FILE_BYTES, [test]).unwrap();
    spoil(&dir);
    (test.run)(&mut small(&disk, 0)).expect_err(name)
}

#[test]
fn a_short_file_is_wrong_data() {
    for name in ["disk_brd", "disk_cp", "disk_dio_rd", "disk_dio_cp", "sync_disk_cp"] {
        let error = spoilt(name, |dir| {
            fs::OpenOptions::new().write(true).open(dir.join("source")).unwrap().set_len(3 * 1024).unwrap();
        });
        assert!(error.is::<WrongData>(), "{name}: {error:#}");
        assert!(error.to_string().ends_with("ended in block 3: 0 bytes of 1024 were read"), "{name}: {error}");
    }
}

#[test]
fn a_wrong_byte_is_wrong_data() {
    for name in ["disk_brd", "disk_bcp", "disk_dio_rd"] {
        let error = spoilt(name, |dir| {
            let file = fs::OpenOptions::new().write(true).open(dir.join("source")).unwrap();
            file.write_all_at(b"?", 5 * 1024 + 2).unwrap();
        });
        assert!(error.is::<WrongData>(), "{name}: {error:#}");
        assert!(
            error.to_string().contains("Block 5 of")
                && error.to_string().contains("differs from what was written there")
        );
    }
}

#[test]
fn a_tree_that_lacks_something_is_found_out() {
    let error = spoilt("disk_src", |dir| fs::write(dir.join("tree/a/leaf00"), "x").unwrap());
    assert!(error.is::<WrongData>(), "{error:#}");
    let error = spoilt("disk_src", |dir| fs::remove_file(dir.join("tree/a/b/leaf00")).unwrap());
    assert!(error.to_string().starts_with("Cannot find `"), "{error:#}");
    let error = spoilt("disk_src", |dir| fs::write(dir.join("tree/list"), "s a/leaf00\n").unwrap());
    assert!(error.is::<WrongData>(), "{error:#}");
    let error = spoilt("misc_rtns_1", |dir| fs::write(dir.join("tree/groups"), "").unwrap());
    assert!(error.to_string().contains("has no entry of `1000`"), "{error:#}");
}

#[test]
fn a_directory_that_is_gone_is_named() {
    for name in [
        "creat_clo",
        "link_test",
        "dir_rtns_1",
        "disk_src",
        "fifo_test",
        "disk_wrt",
        "disk_rr",
        "disk_dio_wrt",
        "sync_disk_rw",
        "sync_disk_update",
        "disk_aio_rr",
        "disk_aiodio_rw",
    ] {
        let error = spoilt(name, |dir| {
            fs::remove_dir_all(dir).unwrap();
            // Replaced by a file, in which not even root can create names.
            fs::write(dir, "").unwrap();
            fs::set_permissions(dir, fs::Permissions::from_mode(0o400)).unwrap();
        });
        let text = format!("{error:#}");
        assert!(text.starts_with("Cannot ") && text.contains("Not a directory"), "{name}: {text}");
        assert!(!error.is::<WrongData>());
    }
}

#[test]
fn a_program_that_fails_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let disk = TestDirectory::lay_out(dir.path(), 0, []).unwrap();
    let mut place = UserContext::new(&disk, Path::new("/bin/false"), 0, SEED);
    place.kept.has_shell = Some(false);
    let error = (find("exec_test").unwrap().run)(&mut place).unwrap_err();
    assert_eq!(format!("{error:#}"), "Cannot run a shell: A user's shell ended with status 1");
}

#[test]
fn programs_of_one_thread_alone_move_the_break() {
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv().unwrap_err());
    let dir = tempfile::tempdir().unwrap();
    let disk = TestDirectory::lay_out(dir.path(), 0, []).unwrap();
    let error = (find("brk_test").unwrap().run)(&mut small(&disk, 0)).unwrap_err();
    assert!(
        format!("{error:#}").starts_with("Cannot move the program break: Only a single-threaded process"),
        "{error:#}"
    );
    drop(end);
    thread.join().unwrap();
}
