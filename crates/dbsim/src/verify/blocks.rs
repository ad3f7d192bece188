//! The data files as verification reads them, and each block's judgement once the log is known.
//!
//! Invariant: a block that is whole and in its place is compared byte for byte with what its version must contain.

use std::path::Path;

use anyhow::Result;

use super::damage::{self, Damage};
use super::finding::VerifyFailed;
use super::journals::Log;
use super::replay::ReplayOutcome;
use super::{Findings, size_of_file};
use crate::block;
use crate::block::{Address, BLOCK, BlockError};
use crate::files;
use crate::files::ExtentReader;
use crate::job::{EXTENT, Job};
use crate::ledger::{BlockEntry, Ledger, Stop};

/// One block on disk, and what redo there is for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnDisk {
    /// Its version, and LSN and author of its last change; nothing if it is damaged.
    pub version: u32,
    pub process: u32,
    pub lsn: u64,
    pub transaction: u64,
    /// First and last version that redo makes of it; 0 for none.
    pub first: u32,
    pub redo: u32,
    /// It is not whole, or another block is in its place.
    pub damaged: bool,
}

impl OnDisk {
    /// The version after recovery.
    pub fn recovered(&self) -> u32 {
        self.version.max(self.redo)
    }

    /// Versions beyond `committed` that were made before the log begins, by transactions that were still open when the run
    /// stopped. The block tells its last author; whether the others were open as well nobody can tell any more.
    fn before_log(&self, committed: u32, ledger: &Ledger) -> u32 {
        if ledger.stop == Stop::Ended {
            return 0;
        }
        let last = if self.first > 0 { self.first - 1 } else { self.version };
        let author = ledger.commits.get(self.process as usize);
        let open = self.version > last || author.is_some_and(|a| self.transaction > a.transaction);
        if open { last.saturating_sub(committed) } else { 0 }
    }
}

fn pages(job: &Job, file: usize, extent: u64) -> impl Iterator<Item = (u32, Address)> {
    let first = extent as u32 * (EXTENT / BLOCK) as u32;
    let start = file as u32 * job.blocks_per_file();
    (first..first + (EXTENT / BLOCK) as u32).map(move |block| (start + block, Address { file: file as u32, block }))
}

/// Reads every block and checks it as far as it can be without the log. Blocks that are damaged are left for [`judge`].
pub fn read(job: &Job, dir: &Path, ledger: &Ledger, report: &mut Findings) -> Result<Vec<OnDisk>> {
    let mut disk = vec![OnDisk { damaged: true, ..OnDisk::default() }; job.blocks() as usize];
    let bytes = u64::from(job.blocks_per_file()) * BLOCK as u64;
    for file in 0..job.data.files {
        let path = files::data_path(dir, file);
        let size = size_of_file(&path, bytes, report)?;
        if size == 0 {
            continue;
        }
        let mut extents = ExtentReader::open(path, job.data.direct)?;
        for extent in 0..size / EXTENT as u64 {
            let buffer = extents.read(extent)?;
            for ((number, address), page) in pages(job, file, extent).zip(buffer.chunks_exact(BLOCK)) {
                if block::check_unmeasured(page, address).is_err() {
                    continue;
                }
                let stamp = block::stamp(page);
                let block::Stamp { version, lsn, process, transaction } = stamp;
                disk[number as usize] = OnDisk { version, lsn, process, transaction, ..OnDisk::default() };
                if let Err(e) = block::check_body(page, address) {
                    report.add(e.into());
                }
                let written = ledger.blocks[number as usize].written;
                if stamp.version < written {
                    report.add(VerifyFailed::LostWrite { address, written, found: stamp.version });
                }
            }
        }
    }
    Ok(disk)
}

/// Holds every block against log and ledger. Returns how many torn blocks redo makes whole, as after a stop it may.
pub fn judge(
    job: &Job,
    dir: &Path,
    ledger: &Ledger,
    disk: &[OnDisk],
    log: &Log,
    outcome: &ReplayOutcome,
    report: &mut Findings,
) -> Result<u64> {
    let mut torn = 0;
    let mut open: Option<(usize, Option<ExtentReader>)> = None;
    for (number, (block, entry)) in disk.iter().zip(&ledger.blocks).enumerate() {
        let number = number as u32;
        let address = files::address(job, number);
        if block.damaged {
            let file = address.file as usize;
            if open.as_ref().is_none_or(|(f, _)| *f != file) {
                open = Some((file, reopen(job, dir, file)?));
            }
            // A missing file or end of file has been reported.
            let Some((_, Some(extents))) = &mut open else { continue };
            let offset = u64::from(address.block) * BLOCK as u64;
            let Ok(buffer) = extents.read(offset / EXTENT as u64) else { continue };
            let page = &buffer[(offset % EXTENT as u64) as usize..][..BLOCK];
            match damaged(job, ledger, disk, page, address, block, entry) {
                Some(finding) => {
                    report.add(finding);
                    continue;
                }
                None => torn += 1,
            }
        } else if block.lsn > log.end {
            report.add(VerifyFailed::AheadOfLog { address, lsn: block.lsn, end: log.end });
        } else if block.lsn > log.start && block.version > block.redo {
            report.add(VerifyFailed::NotInLog { address, version: block.version, lsn: block.lsn });
        }
        let (found, committed) = (block.recovered(), entry.committed);
        if found < committed {
            report.add(VerifyFailed::LostCommit { address, committed, found });
        } else if found - committed
            > outcome.explained.get(&number).copied().unwrap_or(0) + block.before_log(committed, ledger)
        {
            report.add(VerifyFailed::NeverCommitted { address, committed, found });
        }
    }
    Ok(torn)
}

fn reopen(job: &Job, dir: &Path, file: usize) -> Result<Option<ExtentReader>> {
    let path = files::data_path(dir, file);
    if path.exists() { ExtentReader::open(path, job.data.direct).map(Some) } else { Ok(None) }
}

/// What is wrong with a block that is not whole or not in its place; `None` if the stop explains it and redo makes it whole.
fn damaged(
    job: &Job,
    ledger: &Ledger,
    disk: &[OnDisk],
    page: &[u8],
    wanted: Address,
    block: &OnDisk,
    entry: &BlockEntry,
) -> Option<VerifyFailed> {
    if let Err(BlockError::Misplaced { found, .. }) = block::check_unmeasured(page, wanted) {
        let own = files::number(job, found).map(|n| disk[n as usize]);
        let stamp = block::stamp(page);
        let there = own.is_some_and(|own| !own.damaged && (own.version, own.lsn) == (stamp.version, stamp.lsn));
        return Some(if there {
            VerifyFailed::Duplicated { wanted, found }
        } else {
            VerifyFailed::Misdirected { wanted, found }
        });
    }
    // A write that was on its way: anything between what was there before and what it was to become.
    let latest = match ledger.stop {
        Stop::Ended => 0,
        Stop::Killed => entry.writing,
        Stop::Crashed => block.redo,
    };
    // Redo makes it whole if it has every change after the oldest sector's version.
    let oldest = entry.written.max(block.first.saturating_sub(1));
    let recoverable = |versions: &[_]| block.first > 0 && damage::within(versions, oldest, latest.min(block.redo));
    // The write may have completed since the block was first read: a kill does not cancel requests in flight.
    let in_flight = ledger.stop == Stop::Killed && entry.writing > entry.written;
    let stamped = block::stamp(page).version;
    let whole = || block::check_unmeasured(page, wanted).and_then(|()| block::check_body(page, wanted)).is_ok();
    if in_flight && recoverable(&[vec![stamped..=stamped]]) && whole() {
        return None;
    }
    let last = block.redo.max(entry.writing).max(entry.committed);
    match damage::diagnose(page, wanted, last) {
        Damage::Mixed { versions, .. } if recoverable(&versions) => None,
        Damage::Mixed { finding, .. } | Damage::Corrupted(finding) => Some(finding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dbsim;
    use bigiron_workload::testing;

    #[test]
    fn a_write_that_ends_after_the_first_reading_is_no_damage() {
        let job = Job::parse(&testing::options(&Dbsim, []).unwrap()).unwrap();
        let address = files::address(&job, 3);
        let mut page = [0; BLOCK];
        block::image(&mut page, address, 7);
        block::apply(&mut page, BLOCK, &[], block::Stamp { version: 7, lsn: 90, process: 0, transaction: 4 });
        block::seal(&mut page);
        // At the first reading, some sectors were still of version 6.
        let on_disk = OnDisk { damaged: true, first: 5, redo: 8, ..OnDisk::default() };
        let judged = |page: &[u8], stop, written, writing| {
            let ledger = Ledger { stop, ..Ledger::default() };
            let entry = BlockEntry { committed: 6, written, writing };
            damaged(&job, &ledger, &[], page, address, &on_disk, &entry)
        };
        assert_eq!(judged(&page, Stop::Killed, 6, 7), None);
        for (stop, written, writing) in [
            (Stop::Ended, 6, 7),
            (Stop::Crashed, 6, 7),
            (Stop::Killed, 6, 6),
            (Stop::Killed, 7, 7),
            (Stop::Killed, 8, 8),
        ] {
            assert!(judged(&page, stop, written, writing).is_some(), "{stop:?}, {written} and {writing}");
        }
        page[BLOCK - 1] ^= 1;
        block::seal(&mut page);
        assert!(judged(&page, Stop::Killed, 6, 7).is_some(), "sealed, but of no version");
    }
}
