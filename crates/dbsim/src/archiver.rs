//! The archiver: copies each full journal to a separate file before the journal is reused.
//!
//! Invariant: an archive file under its final name is whole and durable: it is written under another name, synced and renamed,
//! and its directory is synced before the log writer is told.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use bigiron_sys::async_io::{Blocking, Engine, Request};
use bigiron_sys::load::now_ns;

use super::files::{self, Journals};
use super::instance::{Instance, Milestone, Phase};
use super::job::{ClassKind, Job};
use super::journal::{JOURNAL_HEADER, JournalHeader};
use super::turns::FilledJournal;
use super::waits::{self, WaitEvent};

/// Number of archive files kept: the redo of the last finished turns. Older ones are removed, so that storage is bounded however
/// long a run is; until there are more, the redo is complete from the start.
pub const KEPT: u64 = 8;

/// Requests are whole pages, as direct I/O requires.
const PAGE: usize = 4096;

/// Path of the archive of a turn.
pub fn path(dir: &Path, turn: u64) -> PathBuf {
    dir.join(format!("archive.{turn}"))
}

/// Maximum bytes of storage for archives: those kept, and one being written by each archiver.
pub fn storage_bytes(job: &Job) -> u64 {
    let archivers = job.classes.iter().filter(|c| matches!(c.kind, ClassKind::Archiver { .. })).map(|c| c.count as u64);
    match archivers.sum::<u64>() {
        0 => 0,
        n => (KEPT + n) * job.journal.bytes,
    }
}

struct Archiver<'a> {
    instance: &'a Instance<'a>,
    journals: Journals,
    engine: Blocking,
    request: usize,
    bytes_per_second: Option<u64>,
}

/// Runs an archiver until the window has closed. An unfinished copy is then abandoned: its journal still has the redo.
pub fn run(instance: &Instance<'_>, request: usize, bytes_per_second: Option<u64>) -> Result<()> {
    let request = request.next_multiple_of(PAGE).max(PAGE);
    let mut a = Archiver {
        instance,
        journals: Journals::open(instance.job, instance.dir)?,
        engine: Blocking::new(1, request).context("Cannot allocate a buffer")?,
        request,
        bytes_per_second,
    };
    let turns = &instance.log.turns;
    instance.arrive(Milestone::Ready)?;
    while !instance.reached(Phase::Leave) {
        waits::during(WaitEvent::Idle, || {
            turns.archiver().wait_until(|| turns.archive_due() || instance.reached(Phase::Leave));
        });
        if let Some(full) = turns.claim() {
            a.archive(&full)?;
        }
    }
    Ok(())
}

impl Archiver<'_> {
    fn archive(&mut self, full: &FilledJournal) -> Result<()> {
        let (instance, turns) = (self.instance, &self.instance.log.turns);
        let unfinished = instance.dir.join(format!("archive.{}.unfinished", full.turn));
        let whole = self.copy(full, &unfinished)?;
        // Several archivers may work in parallel; turns become archived in order.
        turns.copied().wait_until(|| !whole || turns.archived() + 1 == full.turn || instance.reached(Phase::Leave));
        if !whole || turns.archived() + 1 != full.turn {
            return fs::remove_file(&unfinished).context("Cannot remove an unfinished archive");
        }
        if let Some(old) = full.turn.checked_sub(KEPT).filter(|n| *n > 0) {
            fs::remove_file(path(instance.dir, old)).context("Cannot remove an old archive")?;
        }
        fs::rename(&unfinished, path(instance.dir, full.turn)).context("Cannot rename an archive")?;
        rustix::fs::fsync(File::open(instance.dir)?).context("Cannot sync the directory")?;
        instance.ledger.archived(full.turn);
        turns.publish_archived(full.turn, bytes(full));
        Ok(())
    }

    /// Copies a journal's turn to `path` and makes the copy durable. Returns false if the window closed first.
    fn copy(&mut self, full: &FilledJournal, path: &Path) -> Result<bool> {
        let to = create(path, self.instance.job.journal.direct)?;
        let (begin, total) = (now_ns(), bytes(full));
        let mut at = 0;
        while at < total {
            self.pace(begin, at);
            if self.instance.reached(Phase::Leave) {
                return Ok(false);
            }
            let len = (total - at).min(self.request as u64) as usize;
            let from = self.journals.file(full.journal);
            let page = &mut self.engine.buffer(0)[..len];
            let read = waits::during(WaitEvent::LogFileRead, || from.read_exact_at(page, at));
            read.with_context(|| format!("Cannot read journal {} at {at}", full.journal))?;
            if at == 0 {
                let expected = JournalHeader { sequence: full.turn, start: full.start };
                let found = JournalHeader::decode(page);
                ensure!(
                    found == Some(expected),
                    "Journal {} should have turn {}, but has {found:?}",
                    full.journal,
                    full.turn
                );
            }
            self.write(&to, at, len).with_context(|| format!("Cannot write {}", path.display()))?;
            at += len as u64;
        }
        let _waiting = waits::enter(WaitEvent::ArchiveWrite);
        rustix::fs::fsync(&to).with_context(|| format!("Cannot sync {}", path.display()))?;
        Ok(true)
    }

    fn write(&mut self, to: &File, offset: u64, len: usize) -> Result<()> {
        let _waiting = waits::enter(WaitEvent::ArchiveWrite);
        let mut done = Vec::with_capacity(1);
        self.engine.submit(&[Request {
            slot: 0,
            fd: to.as_fd(),
            offset,
            len,
            write: true,
            dsync: false,
            dontcache: false,
        }])?;
        self.engine.wait(1, &mut done)?;
        files::finished(&done, len)
    }

    /// Sleeps until the rate allows byte `at`, or the window closes.
    fn pace(&self, begin: u64, at: u64) {
        let Some(rate) = self.bytes_per_second else { return };
        let due = begin + (u128::from(at) * 1_000_000_000 / u128::from(rate.max(1))) as u64;
        let event = self.instance.log.turns.archiver();
        let _waiting = waits::enter(WaitEvent::Pace);
        loop {
            let ticket = event.ticket();
            let now = now_ns();
            if now >= due || self.instance.reached(Phase::Leave) {
                return;
            }
            event.wait_timeout(ticket, Duration::from_nanos(due - now));
        }
    }
}

/// Bytes of a turn's journal including its header, in whole pages.
fn bytes(full: &FilledJournal) -> u64 {
    (JOURNAL_HEADER as u64 + full.end - full.start).next_multiple_of(PAGE as u64)
}

fn create(path: &Path, direct: bool) -> Result<File> {
    // A file that an earlier run in the same directory left unfinished.
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e.into()),
        _ => {}
    }
    let flags = if direct { libc::O_DIRECT } else { 0 };
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(flags)
        .open(path)
        .with_context(|| format!("Cannot create {}", path.display()))
}
