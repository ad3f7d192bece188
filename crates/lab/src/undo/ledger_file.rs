//! The ledger's file: one line for each change that is about to be made, and one for each that was undone.
//!
//! Invariant: a complete line is on the disk before the change that it announces. An incomplete line therefore announces a change
//! that never happened, unless the file was damaged; the two can be told apart because only the last line can be torn by a kill.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use bigiron_model::folder_files::{self, Access, Owner};
use serde::{Deserialize, Serialize};

use super::inverse::Inverse;

/// Its name in bigiron's folder.
pub(crate) const FILE: &str = "undo.jsonl";

/// A change of the machine, as it was written down before it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoEntry {
    pub id: u64,
    /// The process that made it.
    pub pid: u32,
    /// The machine that was changed: a home folder may be shared. Empty in ledgers of builds that did not write it down, which is this one.
    #[serde(default)]
    pub machine: String,
    /// The kernel's id of the boot in which it was made.
    pub boot: String,
    /// The reason for the change, such as `block.scheduler=bfq`.
    pub what: String,
    pub undo: Inverse,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Change(UndoEntry),
    Undone(u64),
}

/// The open file; its folder entry is on the disk.
pub(super) struct LedgerFile {
    path: PathBuf,
    file: File,
}

/// The contents of a file.
#[derive(Default)]
pub(super) struct Contents {
    /// Changes that were not undone, in the order in which they were made.
    pub(super) open: Vec<UndoEntry>,
    /// The first unused id.
    pub(super) next: u64,
    /// Complete lines that cannot be parsed.
    pub(super) damaged: usize,
}

impl LedgerFile {
    /// Opens or makes the ledger's file in `folder`, which nobody else may have written: what is in it is done.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        folder_files::check_owner(folder, Owner::User)?;
        let path = folder.join(FILE);
        let file = folder_files::open(folder, FILE, Access::Append, 0o600)?;
        folder_files::check_owner(&path, Owner::User)?;
        file.sync_all()?;
        // A new file survives a crash of the machine only if its folder's entry is on the disk.
        File::open(folder)?.sync_all()?;
        Ok(Self { path, file })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn read(&self) -> io::Result<Contents> {
        Ok(parse(&fs::read(&self.path)?))
    }

    pub(super) fn announce(&self, entry: UndoEntry) -> io::Result<()> {
        self.append(&Line::Change(entry))
    }

    pub(super) fn mark_undone(&self, id: u64) -> io::Result<()> {
        self.append(&Line::Undone(id))
    }

    fn append(&self, line: &Line) -> io::Result<()> {
        let text = serde_json::to_string(line)?;
        let bytes = format!("{:08x} {text}\n", crc32c::crc32c(text.as_bytes())).into_bytes();
        // The torn rest of a line is removed first: it announced nothing that happened, and would make the next line unreadable.
        let all = fs::read(&self.path)?;
        if all.last().is_some_and(|b| *b != b'\n') {
            self.file.set_len(whole(&all) as u64)?;
        }
        (&self.file).write_all(&bytes)?;
        self.file.sync_data()
    }

    /// Clears the file: nothing is left to undo.
    pub(super) fn clear(&self) -> io::Result<()> {
        // Not removed, because its lock would be lost with it.
        self.file.set_len(0)?;
        self.file.sync_all()
    }
}

/// Reads `folder`'s ledger without creating one.
pub(super) fn peek(folder: &Path) -> Option<Contents> {
    folder_files::check_owner(folder, Owner::User).ok()?;
    folder_files::check_owner(&folder.join(FILE), Owner::User).ok()?;
    folder_files::read(folder, FILE).ok().map(|bytes| parse(&bytes))
}

fn parse(bytes: &[u8]) -> Contents {
    let mut contents = Contents::default();
    let mut open: BTreeMap<u64, UndoEntry> = BTreeMap::new();
    for line in bytes[..whole(bytes)].split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        match understood(line) {
            Some(Line::Change(entry)) => {
                contents.next = contents.next.max(entry.id + 1);
                open.insert(entry.id, entry);
            }
            Some(Line::Undone(id)) => {
                contents.next = contents.next.max(id + 1);
                open.remove(&id);
            }
            None => contents.damaged += 1,
        }
    }
    contents.open = open.into_values().collect();
    contents
}

/// The length of all complete lines.
fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1)
}

fn understood(line: &[u8]) -> Option<Line> {
    let (sum, text) = line.split_at_checked(9)?;
    let sum = u32::from_str_radix(std::str::from_utf8(&sum[..8]).ok()?, 16).ok()?;
    if crc32c::crc32c(text) != sum {
        return None;
    }
    serde_json::from_slice(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(id: u64) -> UndoEntry {
        let undo = Inverse::RemoveCgroup { path: format!("/sys/fs/cgroup/{id}").into() };
        UndoEntry { id, pid: 1, machine: "m".to_owned(), boot: "b".to_owned(), what: "test".to_owned(), undo }
    }

    #[test]
    fn what_is_undone_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let ledger_file = LedgerFile::open(folder.path()).unwrap();
        for id in 0..3 {
            ledger_file.announce(entry(id)).unwrap();
        }
        ledger_file.mark_undone(1).unwrap();
        let read = LedgerFile::open(folder.path()).unwrap().read().unwrap();
        assert_eq!((read.open, read.next, read.damaged), (vec![entry(0), entry(2)], 3, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Torn anywhere, every complete line counts, and the torn one does not harm later lines.
        #[test]
        fn what_was_written_before_a_cut_is_read(ids in 1u64..5, cut in 0usize..500) {
            let folder = tempfile::tempdir().unwrap();
            let ledger_file = LedgerFile::open(folder.path()).unwrap();
            let mut ends = Vec::new();
            for id in 0..ids {
                ledger_file.announce(entry(id)).unwrap();
                ends.push(fs::metadata(ledger_file.path()).unwrap().len());
            }
            let length = ends[ends.len() - 1].min(cut as u64);
            ledger_file.file().set_len(length).unwrap();
            let whole = ends.iter().filter(|end| **end <= length).count();
            let torn = ledger_file.read().unwrap();
            prop_assert_eq!((torn.open.len(), torn.damaged), (whole, 0));
            ledger_file.announce(entry(99)).unwrap();
            let after = ledger_file.read().unwrap();
            prop_assert_eq!((after.open.last(), after.open.len(), after.damaged), (Some(&entry(99)), whole + 1, 0));
        }
    }
}
