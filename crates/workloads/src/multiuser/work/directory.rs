//! Tests of names: files created, linked, looked up, listed.
//!
//! Invariant: the tree that users search is the same for all users and every seed; names that a user creates in it contain the
//! user's number.

use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom};

use super::UserContext;
use super::user_context::TestDirectory;
use super::verdict::{expect, wrong};

/// The tree's root, in the users' shared directory.
const TREE: &str = "tree";
/// A file in it: the names that a user searches for, one per line, after `s` (to look up) or `c` (to create).
const LIST: &str = "list";
/// A directory in it, which is listed.
const LISTED: &str = "listed";
/// A file in it: accounts and groups in the formats of /etc/passwd and /etc/group.
const ACCOUNTS: &str = "accounts";
const GROUPS: &str = "groups";
/// Branches of the tree: one near the root, some deep.
const BRANCHES: [&str; 8] = ["a", "a/b", "a/b/c/d", "a/b/c/d/e/f", "g/h/i/j/k", "g/l", "g/m/n/o/p", "q/r/s/t"];
/// Files of a branch, and of the listed directory.
const LEAVES: usize = 40;
const LISTED_FILES: usize = 100;
/// Names on the list: to look up, to create.
const LOOKED_UP: usize = 57;
const MADE: usize = 43;
/// How often both lists are shuffled.
const SHUFFLES: usize = 5;
/// Accounts and groups.
const ENTRIES: usize = 40;

impl TestDirectory {
    fn tree(&self) -> PathBuf {
        self.dir().join(TREE)
    }

    /// A directory of a hundred empty files.
    pub(super) fn listed(&self) -> PathBuf {
        self.tree().join(LISTED)
    }
}

/// Creates the tree, if it does not exist.
pub(super) fn lay_out(disk: &TestDirectory) -> anyhow::Result<()> {
    let root = disk.tree();
    if root.join(LIST).exists() {
        return Ok(());
    }
    let make = || -> io::Result<()> {
        for branch in BRANCHES {
            fs::create_dir_all(root.join(branch))?;
            for number in 0..LEAVES {
                File::create(root.join(leaf(branch, number)))?;
            }
        }
        fs::create_dir_all(disk.listed())?;
        for number in 0..LISTED_FILES {
            File::create(disk.listed().join(format!("name{number:03}")))?;
        }
        let entry = |n| format!("user{n:02}:x:{}:{}:A user:/home/user{n:02}:/bin/sh\n", 1000 + n, 1000 + n);
        fs::write(root.join(ACCOUNTS), (0..ENTRIES).map(entry).collect::<String>())?;
        let entry = |n| format!("group{n:02}:x:{}:user{n:02}\n", 1000 + n);
        fs::write(root.join(GROUPS), (0..ENTRIES).map(entry).collect::<String>())?;
        // Last, because it marks the tree as complete.
        fs::write(root.join(LIST), list())
    };
    make().with_context(|| format!("Cannot lay out `{}`", root.display()))
}

fn leaf(branch: &str, number: usize) -> String {
    format!("{branch}/leaf{number:02}")
}

/// The names to look up and to create, taken from all branches in turn.
fn list() -> String {
    let branch = |n: usize| BRANCHES[n % BRANCHES.len()];
    let looked_up = (0..LOOKED_UP).map(|n| format!("s {}\n", leaf(branch(n), n / BRANCHES.len() * 5)));
    looked_up.chain((0..MADE).map(|n| format!("c {}/made{n:02}.\n", branch(n)))).collect()
}

/// Removes the tree.
pub(super) fn clear(disk: &TestDirectory) -> anyhow::Result<()> {
    let root = disk.tree();
    match fs::remove_dir_all(&root) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("Cannot remove `{}`", root.display()))
        }
        _ => Ok(()),
    }
}

const ALL: Mode = Mode::from_bits_truncate(0o777);

fn create(at: impl AsFd, path: &Path) -> anyhow::Result<OwnedFd> {
    rustix::fs::openat(at, path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, ALL)
        .with_context(|| format!("Cannot create `{}`", path.display()))
}

/// 1000 times: creates and closes a file of the same name; finally removes it.
pub fn creations(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let path = place.own("created");
    for _ in 0..place.times(1000) {
        drop(create(CWD, &path)?);
    }
    fs::remove_file(&path).with_context(|| format!("Cannot remove `{}`", path.display()))
}

/// 8 names of one file, the number that POSIX guarantees; 7 of them are removed and created again, one after the other, 9 times.
pub fn links(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    const NAMES: usize = 8;
    let names: Vec<_> = (0..NAMES).map(|n| place.own(&format!("link{n}"))).collect();
    let file = create(CWD, &names[0])?;
    let count = || -> io::Result<u64> { Ok(rustix::fs::fstat(&file)?.st_nlink) };
    let run = || -> anyhow::Result<()> {
        let link = |name: &Path| {
            rustix::fs::link(&names[0], name).with_context(|| format!("Cannot link `{}`", name.display()))
        };
        for name in &names[1..] {
            link(name)?;
        }
        for _ in 0..place.times(9) {
            for name in &names[1..] {
                rustix::fs::unlink(name).with_context(|| format!("Cannot unlink `{}`", name.display()))?;
                link(name)?;
            }
        }
        expect("Linking a file", count()?, NAMES as u64)
    };
    let result = run();
    for name in &names {
        let removed = fs::remove_file(name);
        if result.is_ok() {
            removed.with_context(|| format!("Cannot remove `{}`", name.display()))?;
        }
    }
    result?;
    expect("Removing a file's names", count()?, 0)
}

/// Reads a directory of 100 files entry by entry, repeatedly: 10,000 reads, including those that find its end.
pub fn listings(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let path = place.disk().listed();
    let context = || format!("Cannot list `{}`", path.display());
    let directory = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .with_context(context)?;
    let mut buffer = [MaybeUninit::uninit(); 32 << 10];
    let mut left = place.times(10_000);
    while left > 0 {
        rustix::fs::seek(&directory, SeekFrom::Start(0)).with_context(context)?;
        let mut entries = RawDir::new(&directory, &mut buffer);
        let mut found = 0;
        loop {
            left -= 1;
            let Some(entry) = entries.next() else {
                // Includes `.` and `..`.
                expect("Listing a directory", found, LISTED_FILES + 2)?;
                break;
            };
            found += usize::from(!entry.with_context(context)?.file_name().is_empty());
            if left == 0 {
                break;
            }
        }
    }
    Ok(())
}

/// The names to search for: both lists, shuffled.
struct Search {
    looked_up: Vec<PathBuf>,
    made: Vec<PathBuf>,
}

impl Search {
    fn read(place: &mut UserContext<'_>, path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("Cannot read `{}`", path.display()))?;
        let mut search = Search { looked_up: Vec::new(), made: Vec::new() };
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("s", name)) => search.looked_up.push(name.into()),
                Some(("c", name)) => search.made.push(format!("{name}{}", place.user()).into()),
                _ => return Err(wrong(format!("`{}` has the line `{line}`", path.display()))),
            }
        }
        expect("Reading names to search for", (search.looked_up.len(), search.made.len()), (LOOKED_UP, MADE))?;
        for list in [&mut search.looked_up, &mut search.made] {
            for _ in 0..SHUFFLES {
                for i in 0..list.len() {
                    let other = place.below(list.len() as u64) as usize;
                    list.swap(i, other);
                }
            }
        }
        Ok(search)
    }
}

/// Searches the tree: 57 names looked up and 43 created and removed, in the user's own order.
pub fn searches(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let root = place.disk().tree();
    let search = Search::read(place, &root.join(LIST))?;
    let tree = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .with_context(|| format!("Cannot open `{}`", root.display()))?;
    let (mut looked_up, mut made) = (search.looked_up.iter(), search.made.iter());
    // One of each in turn, while there are any.
    loop {
        let (name, new) = (looked_up.next(), made.next());
        if name.is_none() && new.is_none() {
            return Ok(());
        }
        if let Some(name) = name {
            let found = rustix::fs::statat(&tree, name, AtFlags::empty())
                .with_context(|| format!("Cannot find `{}`", root.join(name).display()))?;
            expect("Looking up an empty file", (found.st_size, found.st_nlink), (0, 1))?;
        }
        if let Some(new) = new {
            drop(create(&tree, new)?);
            rustix::fs::unlinkat(&tree, new, AtFlags::empty())
                .with_context(|| format!("Cannot remove `{}`", root.join(new).display()))?;
        }
    }
}

/// Bytes of accounts or groups read at once: all of them.
const READ: usize = 4096;

/// The line, in a file of entries like /etc/passwd, whose field `number` is `key`.
fn entry<'b>(path: &Path, number: usize, key: &[u8], buffer: &'b mut [u8; READ]) -> anyhow::Result<&'b [u8]> {
    let read = File::open(path)
        .and_then(|mut file| io::Read::read(&mut file, buffer))
        .with_context(|| format!("Cannot read `{}`", path.display()))?;
    let mut lines = buffer[..read].split(|b| *b == b'\n');
    lines
        .find(|line| line.split(|b| *b == b':').nth(number) == Some(key))
        .ok_or_else(|| wrong(format!("`{}` has no entry of `{}`", path.display(), String::from_utf8_lossy(key))))
}

/// 10 times: the process's identity and directory, two accounts and a group looked up, the time used, the system's name.
pub fn identities(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    use rustix::process;
    let root = place.disk().tree();
    let (accounts, groups) = (root.join(ACCOUNTS), root.join(GROUPS));
    let (mut named, mut numbered, mut grouped) = ([0; READ], [0; READ], [0; READ]);
    for n in 0..place.times(10) {
        let before = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let directory = process::getcwd(Vec::with_capacity(256)).context("Cannot get the working directory")?;
        let ids = (process::getuid(), process::geteuid(), process::getgid(), process::getegid());
        let member = process::getgroups().context("Cannot get the groups")?;
        let (pid, group, parent) = (process::getpid(), process::getpgrp(), process::getppid());
        let digit = b'0' + (n % 10) as u8;
        let number = [b'1', b'0', b'0', digit];
        let found = [
            entry(&accounts, 0, &[b'u', b's', b'e', b'r', b'0', digit], &mut named)?.starts_with(b"user0"),
            entry(&accounts, 2, &number, &mut numbered)?.starts_with(&[b'u', b's', b'e', b'r', b'0', digit]),
            entry(&groups, 2, &number, &mut grouped)?.starts_with(&[b'g', b'r', b'o', b'u', b'p', b'0', digit]),
        ];
        let after = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let terminal = rustix::termios::isatty(io::stdin());
        let system = rustix::system::uname();
        std::hint::black_box((ids, member, pid, group, parent, terminal));
        let right = !directory.is_empty()
            && found == [true; 3]
            && (before.tv_sec, before.tv_nsec) <= (after.tv_sec, after.tv_nsec)
            && system.sysname().to_bytes() == b"Linux";
        if !right {
            return Err(wrong(format!("Account and group {n}, the time or the system's name is wrong")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_list_has_each_name_once() {
        let text = list();
        let names: BTreeSet<_> = text.lines().collect();
        assert_eq!(names.len(), LOOKED_UP + MADE);
        assert_eq!(names.iter().filter(|n| n.starts_with("s ")).count(), LOOKED_UP);
    }
}
