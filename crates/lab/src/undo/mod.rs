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
//! // Anything else: write down how to take it back, then do it.
//! ledger.note("a group", Inverse::RemoveCgroup { path: "/sys/fs/cgroup/scratch".into() })?;
//! std::fs::create_dir("/sys/fs/cgroup/scratch").unwrap();
//! let troubles = ledger.undo_since(mark); // or at the latest when it is dropped
//! # assert!(troubles.is_empty()); Ok(()) }
//! ```

pub(crate) mod inverse;
mod ledger_file;
mod lock;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bigiron_model::record::FileChange;
use bigiron_sys::kernel_file;
use bigiron_sys::this_machine;

pub use inverse::{Inverse, UndoResult};
pub(crate) use ledger_file::FILE as LEDGER;
use ledger_file::LedgerFile;
pub use ledger_file::UndoEntry;
pub use lock::Holder;
use lock::Lock;

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
    #[error("The ledger `{path}` is not used, and nothing is changed: {cause}")]
    Untrusted { path: PathBuf, cause: io::Error },
    #[error("The change for {what} could not be taken back later, so it is not made: {why}")]
    Outside { what: String, why: String },
    #[error("{path} cannot be read, so nothing could restore it: {cause}")]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{path} cannot be set to `{value}`: {cause}")]
    Refused { path: PathBuf, value: String, cause: io::Error },
}

fn settings(n: usize) -> String {
    if n == 1 { "a setting".to_owned() } else { format!("{n} settings") }
}

/// Each change with what takes it back, so that a reader sees which files `bigiron undo` will write.
fn list(entries: &[UndoEntry]) -> String {
    entries.iter().map(|entry| format!("{} ({})", entry.what, entry.undo)).collect::<Vec<_>>().join(", ")
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
    /// Changes of other machines that share the folder. They stay.
    pub elsewhere: usize,
    pub path: PathBuf,
}

/// A position in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerMark(u64);

/// The ledger of one machine, held by this process. Dropping it undoes all remaining changes.
pub struct Ledger {
    lock: Lock,
    root: PathBuf,
    here: Here,
    next: u64,
}

/// The ledger that a panic must take back: its file's folder, and the process that holds it.
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
    folder().map_or_else(|_| Vec::new(), |folder| left_over_in(&folder))
}

/// Changes that a running bigiron will take back at its end, in the order in which it made them.
pub fn of_running() -> Vec<UndoEntry> {
    folder().map_or_else(|_| Vec::new(), |folder| in_force(&folder, true))
}

fn left_over_in(folder: &Path) -> Vec<UndoEntry> {
    in_force(folder, false)
}

/// Changes by processes that run, or by those that do not.
fn in_force(folder: &Path, by_running: bool) -> Vec<UndoEntry> {
    let Some(contents) = ledger_file::peek(folder) else { return Vec::new() };
    let here = Here::now();
    // What a reboot has taken back is not in force.
    let is_meant = |e: &UndoEntry| here.has(e) && e.boot == here.boot && lives(e.pid) == by_running;
    contents.open.into_iter().filter(is_meant).collect()
}

/// Whether a process runs. One that was killed is shown until it is reaped.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Its state follows its name, which may contain anything.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Refuses while changes of a killed bigiron are in force: whatever is measured then is measured with them.
///
/// # Errors
/// [`UndoError::LeftOver`].
pub fn check_restored() -> Result<(), UndoError> {
    let left = left_over();
    if left.is_empty() { Ok(()) } else { Err(UndoError::LeftOver(left)) }
}

/// This machine, since its last boot.
struct Here {
    machine: String,
    boot: String,
}

impl Here {
    fn now() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let machine = Some(read("/etc/machine-id")).filter(|id| !id.is_empty() && id != "uninitialized");
        let name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { machine: machine.unwrap_or_else(name), boot: this_machine::boot_id() }
    }

    /// Whether it was this machine that an entry's change was made on.
    fn has(&self, entry: &UndoEntry) -> bool {
        entry.machine.is_empty() || entry.machine == self.machine
    }
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
        let here = Here::now();
        let (own, elsewhere): (Vec<_>, Vec<_>) = contents.open.into_iter().partition(|e| here.has(e));
        // What a reboot has taken back is no reason to stop: the kernel kept all of it in memory.
        let left: Vec<UndoEntry> = own.into_iter().filter(|e| e.boot == here.boot).collect();
        if !left.is_empty() {
            return Err(UndoError::LeftOver(left));
        }
        // Begun anew, unless that would lose what another machine has to take back.
        let mut next = contents.next;
        if elsewhere.is_empty() {
            lock.ledger_file.clear().map_err(|cause| io_error(&lock.ledger_file, cause))?;
            next = 0;
        }
        Ok(Self { lock, root: root.to_owned(), here, next })
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
        undo.check(&self.root).map_err(|why| UndoError::Outside { what: what.to_owned(), why })?;
        let (machine, boot) = (self.here.machine.clone(), self.here.boot.clone());
        let entry = UndoEntry { id: self.next, pid: std::process::id(), machine, boot, what: what.to_owned(), undo };
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
        replay(&self.lock.ledger_file, &self.root, &self.here, mark.0)
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

/// Takes back everything from entry `from` on that is not, the latest first.
fn replay(ledger_file: &LedgerFile, root: &Path, here: &Here, from: u64) -> Vec<FailedUndo> {
    let contents = match ledger_file.read() {
        Ok(contents) => contents,
        Err(e) => {
            let why = format!("the ledger `{}` cannot be read: {e}", ledger_file.path().display());
            return vec![FailedUndo { what: "everything".to_owned(), why }];
        }
    };
    let mut troubles = Vec::new();
    for entry in contents.open.iter().filter(|e| e.id >= from && here.has(e)).rev() {
        if let Err(why) = take_back(ledger_file, root, here, entry) {
            troubles.push(FailedUndo { what: entry.what.clone(), why });
        }
    }
    // Begun anew only when nothing is open and nothing else could be lost.
    if troubles.is_empty() && contents.damaged == 0 && contents.open.iter().all(|e| e.id >= from && here.has(e)) {
        let _ = ledger_file.clear();
    }
    troubles
}

fn take_back(ledger_file: &LedgerFile, root: &Path, here: &Here, entry: &UndoEntry) -> Result<UndoResult, String> {
    let done = if entry.boot == here.boot { entry.undo.run(root)? } else { UndoResult::Already };
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
    let here = Here::now();
    let (own, elsewhere): (Vec<_>, Vec<_>) = contents.open.into_iter().partition(|e| here.has(e));
    let mut restored = Restored {
        entries: Vec::new(),
        damaged: contents.damaged,
        elsewhere: elsewhere.len(),
        path: lock.ledger_file.path().to_owned(),
    };
    for entry in own.into_iter().rev() {
        let result = (!dry_run).then(|| take_back(&lock.ledger_file, root, &here, &entry));
        restored.entries.push((entry, result));
    }
    let all = restored.entries.iter().all(|(_, result)| matches!(result, Some(Ok(_))));
    if !dry_run && all && restored.damaged == 0 && restored.elsewhere == 0 {
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
            for trouble in replay(&ledger_file, Path::new("/"), &Here::now(), 0) {
                eprintln!("bigiron: not restored: {trouble}; `bigiron undo` tries again");
            }
        }
    }));
}

#[cfg(test)]
mod tests;
