//! Proof that everything acknowledged is there and nothing else: data files and journals against the ledger, after a stop, a
//! kill or a crash.
//!
//! Invariant: nothing is repaired, the files are only read. Memory is a few words for each block, whatever the journals' size.
//!
//! A block's body and every change's bytes follow from address and version. So redo is replayed as versions: each block on disk
//! must be what its version says, each redo record what its version says, and together they must lead to what was acknowledged.

mod archives;
mod blocks;
mod damage;
mod finding;
mod journals;
mod replay;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::acks;
use super::control_file;
use super::job::{ClassKind, EXTENT, Job};
use super::ledger::{Ledger, LedgerLookup};

pub use finding::VerifyFailed;

/// Findings that are kept; the others are only counted.
const KEPT: usize = 100;

/// Where to find the acknowledgements.
#[derive(Clone, Copy, Debug)]
pub enum AckSource<'a> {
    /// The run's own ledger: after a clean stop, or after a kill of its processes.
    Ledger,
    /// A stream of acknowledgements that was received elsewhere: after a crash of the machine.
    Stream(&'a Path),
}

/// The result of verification.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What is wrong, the first [`KEPT`] of them: of the log, then of commits, then of blocks in their order.
    pub findings: Vec<VerifyFailed>,
    /// All findings, by kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// What was looked at, by name.
    pub facts: BTreeMap<&'static str, u64>,
}

impl Verdict {
    /// Whether everything is there and nothing else.
    pub fn passed(&self) -> bool {
        self.counts.is_empty()
    }

    /// The first finding as an error, with the number of the others.
    pub fn into_result(self) -> Result<()> {
        let others: u64 = self.counts.values().sum::<u64>().saturating_sub(1);
        let Some(first) = self.findings.into_iter().next() else { return Ok(()) };
        let error = anyhow::Error::new(first);
        Err(if others == 0 { error } else { error.context(format!("Verification failed, {} findings", others + 1)) })
    }
}

/// Findings collected so far.
#[derive(Default)]
struct Findings {
    findings: Vec<VerifyFailed>,
    counts: BTreeMap<&'static str, u64>,
}

impl Findings {
    fn add(&mut self, finding: VerifyFailed) {
        *self.counts.entry(finding.kind()).or_default() += 1;
        if self.findings.len() < KEPT {
            self.findings.push(finding);
        }
    }
}

/// Checks the files that a run of `job` left in `dir` and reports all errors. An error is a reason why it could not check.
pub fn check(job: &Job, dir: &Path, acks: AckSource<'_>) -> Result<Verdict> {
    let mut report = Findings::default();
    let ledger = match acks {
        AckSource::Ledger => match Ledger::find(dir)? {
            LedgerLookup::Whole(ledger) => Ok(ledger),
            LedgerLookup::Damaged(how) => Err(VerifyFailed::LedgerDamaged(how)),
            LedgerLookup::NotRenamed => Err(VerifyFailed::LostRename("ledger")),
        },
        AckSource::Stream(path) => Ok(acks::load(job, path)?),
    };
    let ledger = match ledger {
        Ok(ledger) => ledger,
        Err(finding) => {
            report.add(finding);
            return Ok(Verdict { findings: report.findings, counts: report.counts, facts: BTreeMap::new() });
        }
    };
    ensure!(
        ledger.blocks.len() == job.blocks() as usize && ledger.commits.len() == job.transactors(),
        "The ledger is of another job: {} blocks and {} foregrounds instead of {} and {}",
        ledger.blocks.len(),
        ledger.commits.len(),
        job.blocks(),
        job.transactors()
    );
    // Blocks are read first, but the log says what they should be: its findings are told first.
    let mut of_blocks = Findings::default();
    let mut disk = blocks::read(job, dir, &ledger, &mut of_blocks)?;
    let mut replay = replay::Replay::new(job, &ledger, &mut disk);
    let log = journals::read(job, dir, &ledger, &mut report, |entry, report| replay.apply(entry, report))?;
    let outcome = replay.end(&log, &mut report);
    control_file(job, dir, &ledger, &log, &mut report)?;
    let archives = archives::check(job, dir, &ledger, &log, &mut report)?;
    let torn = blocks::judge(job, dir, &ledger, &disk, &log, &outcome, &mut of_blocks)?;
    for (kind, n) in of_blocks.counts {
        *report.counts.entry(kind).or_default() += n;
    }
    report.findings.extend(of_blocks.findings);
    report.findings.truncate(KEPT);
    let facts = [
        ("blocks", u64::from(job.blocks())),
        ("redo-records", log.records),
        ("log-start-lsn", log.start),
        ("log-end-lsn", log.end),
        ("acknowledged-lsn", ledger.flushed),
        ("commits-in-log", outcome.commits),
        ("commits-in-doubt", outcome.in_doubt),
        ("losers", outcome.losers),
        ("blocks-to-recover", outcome.recovered),
        ("torn-writes-repaired-by-redo", torn),
        ("archives", archives),
    ];
    Ok(Verdict { findings: report.findings, counts: report.counts, facts: facts.into() })
}

/// The control file has to name a checkpoint that is as late as what was recorded, and from which there is redo.
fn control_file(job: &Job, dir: &Path, ledger: &Ledger, log: &journals::Log, report: &mut Findings) -> Result<()> {
    let kept = job.classes.iter().any(|c| matches!(c.kind, ClassKind::Checkpointer { .. }));
    // Before the first checkpoint a run may have been stopped without having made one.
    if !kept || ledger.checkpoint == 0 {
        return Ok(());
    }
    if !control_file::path(dir).exists() {
        report.add(VerifyFailed::MissingFile("control".to_owned()));
        return Ok(());
    }
    match control_file::ControlEntry::last(dir) {
        Ok(Some(entry)) if entry.checkpoint < ledger.checkpoint => {
            report.add(VerifyFailed::LostCheckpoint { found: entry.checkpoint, recorded: ledger.checkpoint });
        }
        Ok(Some(entry)) if entry.checkpoint < log.start => {
            report.add(VerifyFailed::RedoGone { checkpoint: entry.checkpoint, start: log.start });
        }
        Ok(_) => {}
        Err(_) => report.add(VerifyFailed::DamagedControlFile),
    }
    Ok(())
}

/// Bytes of memory that verification takes, at most: what is kept of each block, the ledger as words and as entries, two extents,
/// and a window of a journal, which is an extent and the largest chunk.
pub fn memory_bytes(job: &Job) -> u64 {
    let per_block = size_of::<blocks::OnDisk>() + 24 + size_of::<super::ledger::BlockEntry>();
    u64::from(job.blocks()) * per_block as u64 + (job.log_buffer_bytes() + 4 * EXTENT) as u64
}

/// As [`check`] against the run's own ledger. Lost or wrong data is a [`VerifyFailed`].
#[cfg(test)]
pub fn verify(job: &Job, dir: &Path) -> Result<()> {
    check(job, dir, AckSource::Ledger)?.into_result()
}

/// The whole extents of a file that should have `wanted` bytes. A file that is missing or short is reported.
fn size_of_file(path: &Path, wanted: u64, report: &mut Findings) -> Result<u64> {
    let name = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let metadata = match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            report.add(VerifyFailed::MissingFile(name()));
            return Ok(0);
        }
        other => other.with_context(|| format!("Cannot look at {}", path.display()))?,
    };
    // A device has no length to look at; reading beyond its end is an error.
    if !metadata.is_file() || metadata.len() >= wanted {
        return Ok(wanted);
    }
    report.add(VerifyFailed::Truncated { file: name(), found: metadata.len(), wanted });
    Ok(metadata.len() / EXTENT as u64 * EXTENT as u64)
}
