//! The undo ledger: every change of this machine is logged, on the disk, before it is made, and changes are undone in reverse
//! order.
//!
//! Invariant: at every moment, however bigiron is killed, the ledger's file says how to undo every change of this machine. Only
//! one process at a time changes a machine: it holds a lock that its death releases, so no other process undoes the changes of a
//! live one.
//!
//! ```no_run
//! # fn main() -> Result<(), bigiron_lab::undo::UndoError> {
//! use bigiron_lab::undo::{Inverse, Ledger};
//! let mut ledger = Ledger::open()?;
//! let mark = ledger.mark();
//! ledger.write("sysctl.vm.swappiness=10", "/proc/sys/vm/swappiness".as_ref(), "10")?;
//! // Anything else: log its undo, then do it.
//! ledger.note("a scratch folder", Inverse::RemoveFolder { path: "/tmp/scratch".into() })?;
//! std::fs::create_dir("/tmp/scratch").unwrap();
//! let troubles = ledger.undo_since(mark); // or at the latest when it is dropped
//! # assert!(troubles.is_empty()); Ok(()) }
//! ```

pub(crate) mod inverse;
mod ledger_file;

use std::fs::File;
use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use bigiron_model::record::FileChange;
use bigiron_sys::kernel_file;
use rustix::fs::{FlockOperation, flock};

pub use inverse::{Inverse, UndoResult};
use ledger_file::LedgerFile;
pub use ledger_file::UndoEntry;

use kernel_file::below;

/// Why the machine cannot be changed, or not restored.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    #[error(
        "Neither XDG_STATE_HOME nor HOME is set, so there is no folder for the ledger of what is changed; set one of them"
    )]
    NoFolder,
    #[error("Another bigiron ({0}) is changing settings of this machine; it restores them when it ends")]
    Held(Holder),
    #[error(
        "An earlier bigiron was killed and left {} of this machine changed: {}; `bigiron undo` restores what was before",
        settings(.0.len()), list(.0)
    )]
    LeftOver(Vec<UndoEntry>),
    #[error("The ledger `{path}` has {lines} unreadable lines; inspect it, then remove it")]
    Damaged { path: PathBuf, lines: usize },
    #[error("The ledger `{path}` is not writable, so nothing was changed: {cause}")]
    Io { path: PathBuf, cause: io::Error },
    #[error("{path} cannot be read, so it could not be restored: {cause}")]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{path} cannot be set to `{value}`: {cause}")]
    Refused { path: PathBuf, value: String, cause: io::Error },
}

fn settings(n: usize) -> String {
    if n == 1 { "a setting".to_owned() } else { format!("{n} settings") }
}

fn list(entries: &[UndoEntry]) -> String {
    let mut whats: Vec<&str> = Vec::new();
    for entry in entries {
        if !whats.contains(&entry.what.as_str()) {
            whats.push(&entry.what);
        }
    }
    whats.join(", ")
}

/// The holder of the lock, if /proc shows it.
#[derive(Debug, PartialEq, Eq)]
pub struct Holder(Option<u32>);

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("of another user or container"),
        }
    }
}

/// A change that could not be undone. It stays in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedUndo {
    pub what: String,
    pub why: String,
}

impl std::fmt::Display for FailedUndo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (changed for {})", self.why, self.what)
    }
}

/// The result of `bigiron undo`, or of its dry run.
#[derive(Debug, Default)]
pub struct Restored {
    /// Latest change first; `None` if it was not tried (a dry run).
    pub entries: Vec<(UndoEntry, Option<Result<UndoResult, String>>)>,
    /// Unreadable lines: damage to the file. They stay.
    pub damaged: usize,
    pub path: PathBuf,
}

/// A position in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerMark(u64);

/// The ledger of one machine, held by this process. Dropping it undoes all remaining changes.
pub struct Ledger {
    lock: Lock,
    root: PathBuf,
    boot: String,
    next: u64,
}

/// The file, and the exclusive right to change the machine.
struct Lock {
    ledger_file: LedgerFile,
    machine: Option<File>,
}

/// As for a study's folder: a killed process releases the lock only when the children that it was starting are gone too.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// The ledger that a panic must undo: its folder, and the process that holds it.
static HELD: Mutex<Option<(PathBuf, u32)>> = Mutex::new(None);

/// `$XDG_STATE_HOME/bigiron`, else `~/.local/state/bigiron`.
///
/// # Errors
/// If neither is known.
pub fn folder() -> Result<PathBuf, UndoError> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("XDG_STATE_HOME")
        .filter(|d| d.is_absolute())
        .or_else(|| set("HOME").map(|d| d.join(".local/state")))
        .map(|d| d.join("bigiron"))
        .ok_or(UndoError::NoFolder)
}

/// Changes left by a killed bigiron, as far as visible without a lock; empty while another one is running.
pub fn left_over() -> Vec<UndoEntry> {
    let Some(contents) = folder().ok().and_then(|folder| ledger_file::peek(&folder)) else { return Vec::new() };
    contents.open.into_iter().filter(|e| !Path::new(&format!("/proc/{}", e.pid)).exists()).collect()
}

impl Lock {
    /// Takes both locks: that of the ledger's file, and that of the machine, which holds against other ledgers.
    fn take(folder: &Path, root: &Path) -> Result<Self, UndoError> {
        Self::of_ledger(folder)?.and_machine(root)
    }

    /// Takes the ledger's lock alone: enough to see that there is nothing to undo.
    fn of_ledger(folder: &Path) -> Result<Self, UndoError> {
        let io = |cause| UndoError::Io { path: folder.join("undo.jsonl"), cause };
        let ledger_file = LedgerFile::open(folder).map_err(io)?;
        lock(ledger_file.file()).map_err(io)?.map_err(UndoError::Held)?;
        Ok(Self { ledger_file, machine: None })
    }

    fn and_machine(mut self, root: &Path) -> Result<Self, UndoError> {
        // A folder that every process sees, and whose lock leaves no trace.
        let machine = File::open(below(root, Path::new("/sys/kernel"))).ok();
        if let Some(machine) = &machine {
            lock(machine).map_err(|cause| io_error(&self.ledger_file, cause))?.map_err(UndoError::Held)?;
        }
        self.machine = machine;
        Ok(self)
    }
}

/// Closing the files would not be enough: a process forked meanwhile also holds them until it executes its program.
impl Drop for Lock {
    fn drop(&mut self) {
        for file in std::iter::once(self.ledger_file.file()).chain(self.machine.as_ref()) {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// Locks `file` for this process, or returns the holder.
fn lock(file: &File) -> io::Result<Result<(), Holder>> {
    let patience = Instant::now() + LOCK_PATIENCE;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Ok(())),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < patience => thread::sleep(Duration::from_millis(20)),
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Err(Holder(holder(file)))),
            Err(e) => return Err(e.into()),
        }
    }
}

/// The process that has locked `file`, from /proc/locks.
fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.st_ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|w| *w == "FLOCK")?;
        let same = words.get(at + 4)?.rsplit(':').next() == Some(inode.as_str());
        same.then(|| words[at + 3].parse().ok()).flatten()
    })
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Ledger {
    /// Opens this machine's ledger and holds it until dropped; a panic of the process undoes everything too.
    ///
    /// # Errors
    /// If another bigiron holds it, a killed one left changes, or the file is not writable.
    pub fn open() -> Result<Self, UndoError> {
        let folder = folder()?;
        let ledger = Self::open_at(&folder, Path::new("/"))?;
        let mut held = HELD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if held.is_none() {
            static HOOK: std::sync::Once = std::sync::Once::new();
            HOOK.call_once(undo_on_panic);
        }
        *held = Some((folder, std::process::id()));
        Ok(ledger)
    }

    /// As [`Ledger::open`], with the ledger in `folder` and a machine whose /proc, /sys and /dev are below `root`.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub fn open_at(folder: &Path, root: &Path) -> Result<Self, UndoError> {
        let lock = Lock::take(folder, root)?;
        let contents = lock.ledger_file.read().map_err(|cause| io_error(&lock.ledger_file, cause))?;
        if contents.damaged > 0 {
            return Err(UndoError::Damaged { path: lock.ledger_file.path().to_owned(), lines: contents.damaged });
        }
        let boot = boot_id();
        // Changes that a reboot has undone do not matter.
        let left: Vec<UndoEntry> =
            contents.open.into_iter().filter(|e| e.boot == boot || !e.undo.is_undone_by_reboot()).collect();
        if !left.is_empty() {
            return Err(UndoError::LeftOver(left));
        }
        lock.ledger_file.clear().map_err(|cause| io_error(&lock.ledger_file, cause))?;
        Ok(Self { lock, root: root.to_owned(), boot, next: 0 })
    }

    /// The present position in the ledger, for [`Ledger::undo_since`].
    pub fn mark(&self) -> LedgerMark {
        LedgerMark(self.next)
    }

    /// Logs how `undo` undoes the caller's next step, on behalf of `what`. The step may be taken only after this has returned.
    ///
    /// # Errors
    /// If the entry could not be written; then nothing may be changed.
    pub fn note(&mut self, what: &str, undo: Inverse) -> Result<(), UndoError> {
        let entry =
            UndoEntry { id: self.next, pid: std::process::id(), boot: self.boot.clone(), what: what.to_owned(), undo };
        self.lock.ledger_file.announce(entry).map_err(|cause| io_error(&self.lock.ledger_file, cause))?;
        self.next += 1;
        Ok(())
    }

    /// As [`ChangeLog::write`].
    ///
    /// # Errors
    /// As [`ChangeLog::write`].
    pub fn write(&mut self, what: &str, path: &Path, value: &str) -> Result<FileChange, UndoError> {
        ChangeLog::write(self, what, path, value)
    }

    /// Undoes all changes since `mark`, the latest first. Changes that could not be undone are returned, and stay in the ledger.
    pub fn undo_since(&mut self, mark: LedgerMark) -> Vec<FailedUndo> {
        replay(&self.lock.ledger_file, &self.root, &self.boot, mark.0)
    }
}

/// A log of changes, written before they are made.
pub trait ChangeLog {
    /// The folder above /proc, /sys and /dev.
    fn root(&self) -> &Path;

    /// Logs how `undo` undoes the caller's next step, on behalf of `what`. The step may be taken only after this has returned.
    ///
    /// # Errors
    /// If the entry could not be written; then nothing may be changed.
    fn note(&mut self, what: &str, undo: Inverse) -> Result<(), UndoError>;

    /// Logs the contents of a file of the kernel, so that they will be restored whatever happens to it from now on. Returns the
    /// text.
    ///
    /// # Errors
    /// If the file cannot be read or the entry cannot be written.
    fn keep(&mut self, what: &str, path: &Path) -> Result<String, UndoError> {
        let shown = kernel_file::read(&below(self.root(), path))
            .map_err(|cause| UndoError::Unreadable { path: path.to_owned(), cause })?;
        let value = chosen(&shown).to_owned();
        self.note(what, Inverse::Write { path: path.to_owned(), value, shown: shown.clone() })?;
        Ok(shown)
    }

    /// Writes `value` into a file of the kernel on behalf of `what`, after logging its old contents. The caller judges from the
    /// result whether the kernel took the value.
    ///
    /// # Errors
    /// As [`ChangeLog::keep`], or if the kernel refuses the value.
    fn write(&mut self, what: &str, path: &Path, value: &str) -> Result<FileChange, UndoError> {
        let before = self.keep(what, path)?;
        let at = below(self.root(), path);
        kernel_file::write(&at, value).map_err(|cause| UndoError::Refused {
            path: path.to_owned(),
            value: value.to_owned(),
            cause,
        })?;
        let after = kernel_file::read(&at).map_err(|cause| UndoError::Unreadable { path: path.to_owned(), cause })?;
        let said = |text: &str| chosen(text).to_owned();
        Ok(FileChange { path: path.display().to_string(), before: said(&before), after: said(&after) })
    }
}

impl ChangeLog for Ledger {
    fn root(&self) -> &Path {
        &self.root
    }

    fn note(&mut self, what: &str, undo: Inverse) -> Result<(), UndoError> {
        Ledger::note(self, what, undo)
    }
}

/// For a machine that is discarded after its trial: a guest. Nothing is logged.
pub struct NoLedger;

impl ChangeLog for NoLedger {
    fn root(&self) -> &Path {
        Path::new("/")
    }

    fn note(&mut self, _: &str, _: Inverse) -> Result<(), UndoError> {
        Ok(())
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        for trouble in self.undo_since(LedgerMark(0)) {
            eprintln!("bigiron: not restored: {trouble}; `bigiron undo` tries again");
        }
        *HELD.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }
}

fn io_error(ledger_file: &LedgerFile, cause: io::Error) -> UndoError {
    UndoError::Io { path: ledger_file.path().to_owned(), cause }
}

/// The value that a file of the kernel shows: the word in brackets if it lists all (`none [bfq]`), else its text.
pub fn chosen(text: &str) -> &str {
    let one_line = text.trim();
    let within = |open, close| Some(one_line.split_once(open)?.1.split_once(close)?.0);
    // debugfs' sched/preempt has parentheses.
    within('[', ']').or_else(|| within('(', ')')).filter(|word| !word.contains(char::is_whitespace)).unwrap_or(one_line)
}

/// Undoes everything from entry `from` on that is still in force, the latest first.
fn replay(ledger_file: &LedgerFile, root: &Path, boot: &str, from: u64) -> Vec<FailedUndo> {
    let contents = match ledger_file.read() {
        Ok(contents) => contents,
        Err(e) => {
            let why = format!("the ledger `{}` cannot be read: {e}", ledger_file.path().display());
            return vec![FailedUndo { what: "everything".to_owned(), why }];
        }
    };
    let mut troubles = Vec::new();
    for entry in contents.open.iter().filter(|e| e.id >= from).rev() {
        if let Err(why) = take_back(ledger_file, root, boot, entry) {
            troubles.push(FailedUndo { what: entry.what.clone(), why });
        }
    }
    // The file is cleared only when nothing is open and nothing else could be lost.
    if troubles.is_empty() && contents.damaged == 0 && contents.open.iter().all(|e| e.id >= from) {
        let _ = ledger_file.clear();
    }
    troubles
}

fn take_back(ledger_file: &LedgerFile, root: &Path, boot: &str, entry: &UndoEntry) -> Result<UndoResult, String> {
    let done = if entry.boot != boot && entry.undo.is_undone_by_reboot() {
        UndoResult::Already
    } else {
        entry.undo.run(root)?
    };
    ledger_file.mark_undone(entry.id).map_err(|e| format!("restored, but the ledger cannot be written: {e}"))?;
    Ok(done)
}

/// Undoes the changes left by a killed bigiron, or with `dry_run` lists them.
///
/// # Errors
/// If a live bigiron holds the ledger, or it cannot be opened.
pub fn restore(folder: &Path, root: &Path, dry_run: bool) -> Result<Restored, UndoError> {
    let mut lock = Lock::of_ledger(folder)?;
    let contents = lock.ledger_file.read().map_err(|cause| io_error(&lock.ledger_file, cause))?;
    if !contents.open.is_empty() && !dry_run {
        lock = lock.and_machine(root)?;
    }
    let boot = boot_id();
    let mut restored =
        Restored { entries: Vec::new(), damaged: contents.damaged, path: lock.ledger_file.path().to_owned() };
    for entry in contents.open.into_iter().rev() {
        let result = (!dry_run).then(|| take_back(&lock.ledger_file, root, &boot, &entry));
        restored.entries.push((entry, result));
    }
    let all = restored.entries.iter().all(|(_, result)| matches!(result, Some(Ok(_))));
    if !dry_run && all && restored.damaged == 0 {
        lock.ledger_file.clear().map_err(|cause| io_error(&lock.ledger_file, cause))?;
    }
    Ok(restored)
}

/// In a release build a panic ends the process without unwinding: nothing is dropped, so the hook undoes the changes.
fn undo_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        let Ok(held) = HELD.try_lock() else { return };
        // A forked child has the hook too, but must not change anything.
        if let Some((folder, pid)) = held.as_ref()
            && *pid == std::process::id()
            && let Ok(ledger_file) = LedgerFile::open(folder)
        {
            for trouble in replay(&ledger_file, Path::new("/"), &boot_id(), 0) {
                eprintln!("bigiron: not restored: {trouble}; `bigiron undo` tries again");
            }
        }
    }));
}

#[cfg(test)]
mod tests;
