//! The only writer of a study's folder.
//!
//! Invariant: `records.jsonl` only ever grows by whole lines. A line that could not be written completely is removed, and the torn line of a killed
//! process is moved aside before the next line, never joined to it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;

use super::error::StoreError;
use super::folder::{ARTIFACTS, Folder, RECORDS, whole};
use super::line;
use crate::evidence::EVIDENCE;
use crate::folder_files::{self, Access};
use crate::record::Record;

/// Locked by the bigiron that works in a folder; the kernel releases it when that process ends, however it ends.
pub(super) const LOCK: &str = "lock";
/// A killed process releases its lock only when the kernel has ended it and any children that it was just starting: a user who kills bigiron and
/// resumes at once must not be refused.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Torn lines are kept here for inspection.
const TORN: &str = "records.torn";
/// Space reserved for the next record: several times the largest seen.
const RESERVE_BYTES: u64 = 128 << 10;

/// Exclusive access to a folder's records.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    path: PathBuf,
    file: File,
    /// Length of the whole lines in `file`.
    len: u64,
    /// A line could neither be written nor removed.
    broken: bool,
    /// Bytes that a killed process had left half-written, if any.
    torn: usize,
    lock: File,
}

impl Writer {
    pub(super) fn new(dir: &Path) -> Result<Self, StoreError> {
        // A folder may have been received from somebody else.
        folder_files::refuse_links(dir, &[LOCK, RECORDS, TORN, ARTIFACTS, EVIDENCE])
            .map_err(|e| StoreError::io("resume the study in", dir, e))?;
        let lock = lock(dir)?;
        let path = dir.join(RECORDS);
        let io = |doing: &'static str, path: &Path| {
            let path = path.to_owned();
            move |e| StoreError::io(doing, &path, e)
        };
        let mut file = folder_files::open(dir, RECORDS, Access::Append, 0o666).map_err(io("open", &path))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read", &path))?;
        let len = whole(&bytes);
        let torn = &bytes[len..];
        if !torn.is_empty() {
            // Worth keeping, not worth failing for: the disk may be full, and the trial will be run again anyway.
            let _ = folder_files::open(dir, TORN, Access::Append, 0o666)
                .and_then(|mut f| f.write_all(torn).and_then(|()| f.write_all(b"\n")));
            file.set_len(len as u64).map_err(io("remove the torn line from", &path))?;
        }
        file.sync_all().map_err(io("sync", &path))?;
        File::open(dir).and_then(|d| d.sync_all()).map_err(io("sync", dir))?;
        let torn = torn.len();
        Ok(Writer { dir: dir.to_owned(), path, file, len: len as u64, broken: false, torn, lock })
    }

    /// Bytes of a torn line that were moved to `records.torn` when the folder was opened; 0 if there was none.
    pub fn torn(&self) -> usize {
        self.torn
    }

    /// Reserves space for the record of a trial that is about to begin (and of `trials` − 1 others): a full disk then stops the session before the
    /// work, not after it.
    pub fn reserve(&self, trials: usize) -> Result<(), StoreError> {
        let bytes = RESERVE_BYTES * trials as u64;
        let reserve = || rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.len, bytes);
        match rustix::io::retry_on_intr(reserve) {
            // A file system that cannot reserve space is no worse than before.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            Err(e) => Err(self.error(e.into())),
        }
    }

    /// Appends a record and returns when it is on stable storage.
    ///
    /// # Errors
    /// It could not be written or synced; the file's content is then unchanged.
    pub fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        if self.broken {
            return Err(self.error(io::Error::other("an earlier write failed and could not be undone")));
        }
        let line = line::encode(record).map_err(StoreError::Unwritable)?;
        if let Err(e) = self.file.write_all(&line).and_then(|()| self.file.sync_data()) {
            self.broken = self.file.set_len(self.len).and_then(|()| self.file.sync_data()).is_err();
            return Err(self.error(e));
        }
        self.len += line.len() as u64;
        Ok(())
    }

    /// Makes an empty directory for a trial's artefacts, removing what an unfinished trial left under that name.
    pub fn artifacts(&self, slot: u32, arm: &str, attempt: u32) -> Result<PathBuf, StoreError> {
        let name = Folder::artifacts_name(slot, arm, attempt);
        let dir = self.dir.join(&name);
        self.clear(&dir)?;
        folder_files::make_folders(&self.dir, &name).map_err(|e| StoreError::io("create", &dir, e))
    }

    /// The artefacts that a trial left in its directory, as sorted paths relative to the folder. An empty directory is removed.
    pub fn collect(&self, dir: &Path) -> Result<Vec<String>, StoreError> {
        let files = files_below(dir).map_err(|e| StoreError::io("list", dir, e))?;
        if files.is_empty() {
            self.clear(dir)?;
        }
        let name =
            |file: PathBuf| dir.join(file).strip_prefix(&self.dir).map(|p| p.to_string_lossy().into_owned()).ok();
        Ok(files.into_iter().filter_map(name).collect())
    }

    /// Removes the artefacts of a trial that made no record.
    pub fn discard(&self, dir: &Path) -> Result<(), StoreError> {
        self.clear(dir)
    }

    /// Removes a directory of this folder.
    fn clear(&self, dir: &Path) -> Result<(), StoreError> {
        let within = dir.strip_prefix(&self.dir).unwrap_or(dir);
        folder_files::remove_all(&self.dir, within).map_err(|e| StoreError::io("remove", dir, e))
    }

    fn error(&self, e: io::Error) -> StoreError {
        StoreError::io("append a record to", &self.path, e)
    }
}

/// The files in `dir` and the folders below it, sorted, relative to it.
pub(super) fn files_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut pending) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(at) = pending.pop() {
        for entry in fs::read_dir(&at)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            } else if let Ok(relative) = entry.path().strip_prefix(dir) {
                files.push(relative.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Returns reserved space; if that fails, only a few blocks are lost.
        let _ = self.file.set_len(self.len);
        // Closing would be enough, except for children that a thread is just starting: they share the file until they exec.
        let _ = self.lock.unlock();
    }
}

/// Takes the folder's lock, or says who has it.
pub(super) fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK);
    let mut file =
        folder_files::open(dir, LOCK, Access::Update, 0o666).map_err(|e| StoreError::io("open", &path, e))?;
    let patience = Instant::now() + LOCK_PATIENCE;
    let locked = loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < patience => thread::sleep(Duration::from_millis(20)),
            other => break other,
        }
    };
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let holder = if holder.trim().is_empty() { "process unknown".to_owned() } else { holder.trim().to_owned() };
            return Err(StoreError::Busy { dir: dir.to_owned(), holder });
        }
        Err(TryLockError::Error(e)) => return Err(StoreError::io("lock", &path, e)),
    }
    // Only information for the message above: a full disk must not stop anything here.
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let _ =
        file.set_len(0).and_then(|()| file.write_all(format!("process {} on {host}\n", std::process::id()).as_bytes()));
    Ok(file)
}
