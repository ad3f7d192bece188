//! The history's folder: `history.jsonl`, one line for each kernel of each night. Format: docs/reference/history.md.
//!
//! Invariant: lines are only appended, whole or not at all, by one process at a time; a line that cannot be read is reported and left out.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::entry::HistoryEntry;
use bigiron_model::folder_files::{self, Access};
use bigiron_model::store::line;

const FILE: &str = "history.jsonl";

/// Errors of reading or writing a history.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error(
        "Neither XDG_DATA_HOME nor HOME is set, so there is no folder for the history; name one with `--history DIR`"
    )]
    NoFolder,
    #[error("Cannot {doing} `{}`: {cause}", path.display())]
    Io { doing: &'static str, path: PathBuf, cause: io::Error },
    #[error("Cannot write an entry as JSON: {0}")]
    Unwritable(String),
}

/// The entries of a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// In the order in which they were written.
    pub entries: Vec<HistoryEntry>,
    /// Lines that could not be read, numbered from 1, and the reasons.
    pub unreadable: Vec<(usize, String)>,
}

/// `$XDG_DATA_HOME/bigiron/history`, else `~/.local/share/bigiron/history`.
///
/// # Errors
/// Neither variable is set.
pub fn default_folder() -> Result<PathBuf, HistoryError> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("XDG_DATA_HOME")
        .filter(|d| d.is_absolute())
        .or_else(|| set("HOME").map(|d| d.join(".local/share")))
        .map(|d| d.join("bigiron/history"))
        .ok_or(HistoryError::NoFolder)
}

impl History {
    /// Reads a folder; a folder that does not exist yet is an empty history.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn read(dir: &Path) -> Result<Self, HistoryError> {
        let path = dir.join(FILE);
        match folder_files::read(dir, FILE) {
            Ok(bytes) => Ok(parse(&bytes)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(History::default()),
            Err(cause) => Err(HistoryError::Io { doing: "read", path, cause }),
        }
    }

    /// The entries of nights before `begun`, other than `night`.
    pub fn before<'a>(&'a self, night: &'a str, begun: &'a str) -> impl DoubleEndedIterator<Item = &'a HistoryEntry> {
        self.entries.iter().filter(move |e| e.night != night && e.begun.as_str() <= begun)
    }
}

/// Appends the `entries` that the folder does not have yet, and returns their number: a night that is added twice is there once.
///
/// # Errors
/// The entries could not all be written and synced; what the folder held before is unchanged.
pub fn append(dir: &Path, entries: &[HistoryEntry]) -> Result<usize, HistoryError> {
    let path = dir.join(FILE);
    let io = |doing: &'static str| {
        let path = path.clone();
        move |cause| HistoryError::Io { doing, path, cause }
    };
    fs::create_dir_all(dir).map_err(io("create the folder of"))?;
    let mut file = folder_files::open(dir, FILE, Access::Append, 0o666).map_err(io("open"))?;
    // Held while a line is appended; the kernel lets go of it however that ends.
    file.lock().map_err(io("lock"))?;
    let bytes = folder_files::read(dir, FILE).map_err(io("read"))?;
    let known = parse(&bytes).entries;
    let new = entries.iter().filter(|e| !known.iter().any(|k| k.night == e.night && k.arm == e.arm));
    let mut text = Vec::new();
    if bytes.last().is_some_and(|b| *b != b'\n') {
        // A line that a kill left half-written must not become the beginning of the next.
        text.push(b'\n');
    }
    let mut count = 0;
    for entry in new {
        text.extend(line::encode(entry).map_err(HistoryError::Unwritable)?);
        count += 1;
    }
    if count == 0 {
        return Ok(0);
    }
    file.write_all(&text).and_then(|()| file.sync_data()).map_err(|cause| {
        let _ = file.set_len(bytes.len() as u64);
        HistoryError::Io { doing: "append to", path: path.clone(), cause }
    })?;
    File::open(dir).and_then(|d| d.sync_all()).map_err(io("sync the folder of"))?;
    Ok(count)
}

fn parse(bytes: &[u8]) -> History {
    let mut history = History::default();
    for (index, text) in bytes.split(|b| *b == b'\n').enumerate() {
        if text.is_empty() {
            continue;
        }
        match line::decode(text) {
            Ok(entry) => history.entries.push(entry),
            Err(why) => history.unreadable.push((index + 1, why)),
        }
    }
    history
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::series::fixture::entry;

    #[test]
    fn entries_read_back_and_are_added_once() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        assert_eq!(History::read(&folder).unwrap(), History::default());
        let night = [entry("one", "5.10", &[1.0, 1.1]), entry("one", "6.1", &[2.0, 1.0 / 3.0])];
        assert_eq!(append(&folder, &night).unwrap(), 2);
        assert_eq!(append(&folder, &night).unwrap(), 0);
        assert_eq!(append(&folder, &[entry("two", "6.1", &[2.0, 2.1])]).unwrap(), 1);
        let read = History::read(&folder).unwrap();
        assert_eq!((read.entries.len(), read.unreadable.len()), (3, 0));
        assert_eq!(read.entries[..2], night);
        assert_eq!(read.before("two", "9999").count(), 2);
    }

    #[test]
    fn what_a_kill_or_a_hand_left_is_reported_and_left_out() {
        let dir = tempfile::tempdir().unwrap();
        append(dir.path(), &[entry("one", "5.10", &[1.0])]).unwrap();
        let path = dir.path().join(FILE);
        let line = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{line}{}", &line[..40])).unwrap();
        append(dir.path(), &[entry("two", "6.1", &[1.5])]).unwrap();
        let read = History::read(dir.path()).unwrap();
        assert_eq!((read.entries.len(), read.unreadable.len()), (2, 1));
        assert_eq!(read.unreadable[0].0, 2);
        fs::write(&path, line.replace("5.10", "5.11")).unwrap();
        assert!(History::read(dir.path()).unwrap().unreadable[0].1.contains("checksum"));
    }

    #[test]
    fn a_value_that_json_cannot_hold_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(append(dir.path(), &[entry("one", "5.10", &[f64::NAN])]).is_err());
        assert_eq!(History::read(dir.path()).unwrap(), History::default());
    }
}
