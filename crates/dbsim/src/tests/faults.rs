//! Faults planted into the files of a run, and the required findings of verification.

use std::collections::BTreeMap;

use super::*;
use crate::block::{Address, BLOCK, HEADER, Stamp};
use crate::journal;
use crate::journal::{CHUNK_HEADER, Chunks, JOURNAL_HEADER, JournalHeader};

const SECTOR: usize = 512;

/// A completed run, and its files.
struct Site {
    bench: Bench,
    job: Job,
    ledger: Ledger,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Site {
    fn new(settings: &[(&str, &str)]) -> Self {
        let bench = Bench::new(settings);
        bench.prepare().run().unwrap();
        let verdict = bench.check(AckSource::Ledger);
        assert!(verdict.passed(), "{:?}", verdict.findings);
        let files = std::fs::read_dir(bench.path()).unwrap().map(|e| e.unwrap().path());
        let files = files.map(|p| (p.clone(), std::fs::read(p).unwrap())).collect();
        Self { job: bench.job(), ledger: bench.ledger(), bench, files }
    }

    /// Verifies with a file changed, and restores it. The findings must be exactly of these kinds.
    fn plant(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>), kinds: &[&str]) {
        let mut bytes = self.files[path].clone();
        change(&mut bytes);
        std::fs::write(path, bytes).unwrap();
        let verdict = self.bench.check(AckSource::Ledger);
        std::fs::write(path, &self.files[path]).unwrap();
        let found: Vec<_> = verdict.counts.keys().copied().collect();
        let mut kinds = kinds.to_vec();
        kinds.sort_unstable();
        assert_eq!(found, kinds, "{:?}", verdict.findings);
        assert!(!verdict.passed() && verdict.into_result().is_err());
        let verdict = self.bench.check(AckSource::Ledger);
        assert!(verdict.passed(), "{:?}", verdict.findings);
    }

    fn data(&self, number: u32) -> (PathBuf, std::ops::Range<usize>) {
        let Address { file, block } = files::address(&self.job, number);
        let start = block as usize * BLOCK;
        (files::data_path(self.bench.path(), file as usize), start..start + BLOCK)
    }

    fn page(&self, number: u32) -> &[u8] {
        let (path, range) = self.data(number);
        &self.files[&path][range]
    }

    fn image(&self, number: u32, version: u32) -> Vec<u8> {
        let mut page = vec![0; BLOCK];
        block::image(&mut page, files::address(&self.job, number), version);
        page
    }

    /// Blocks that were written in a version after the first.
    fn written(&self) -> impl Iterator<Item = u32> {
        (0..self.job.blocks()).filter(|n| self.ledger.blocks[*n as usize].written > 1)
    }

    /// Sectors, apart from the first, in which a written block differs from an earlier version.
    fn changed(&self, number: u32, version: u32) -> Vec<usize> {
        let (page, old) = (self.page(number), self.image(number, version));
        (1..BLOCK / SECTOR).filter(|s| page[s * SECTOR..][..SECTOR] != old[s * SECTOR..][..SECTOR]).collect()
    }

    fn journal(&self, sequence: u64) -> PathBuf {
        files::journal_path(self.bench.path(), ((sequence - 1) % self.job.journal.files as u64) as usize)
    }

    /// The chunks of a journal, as ranges of its bytes.
    fn chunks(&self, path: &Path) -> Vec<std::ops::Range<usize>> {
        let bytes = &self.files[path];
        let header = JournalHeader::decode(bytes).unwrap();
        let at = |lsn: u64| (lsn - header.start) as usize + JOURNAL_HEADER;
        Chunks::new(bytes, header).map(|c| at(c.lsn)..at(c.end)).collect()
    }
}

fn sealed(mut page: Vec<u8>, stamp: Stamp) -> Vec<u8> {
    block::apply(&mut page, HEADER, &[], stamp);
    block::seal(&mut page);
    page
}

#[test]
fn faults_in_blocks_are_found() {
    let site = Site::new(&[("sync", "fdatasync"), ("transactions", "400"), ("write", "60")]);
    let number = site.written().next().unwrap();
    let (path, range) = site.data(number);
    let version = block::stamp(site.page(number)).version;
    let lsn = block::stamp(site.page(number)).lsn;

    site.plant(&path, |f| f[range.start + 5000] ^= 4, &["corrupted-block"]);
    site.plant(&path, |f| f[range.start + 30] ^= 4, &["corrupted-block"]);
    site.plant(&path, |f| f[range.clone()].fill(0), &["foreign-block"]);
    site.plant(&path, |f| f[range.start + BLOCK / 2..range.end].fill(0), &["corrupted-block"]);

    // Intact and in its place, but of an earlier version: the log can restore it, yet its write was acknowledged.
    let old = |version| sealed(site.image(number, version), Stamp { version, lsn: 1, process: 0, transaction: 1 });
    site.plant(&path, |f| f[range.clone()].copy_from_slice(&old(0)), &["lost-write"]);

    let neighbour = if range.start == 0 { range.end..range.end + BLOCK } else { range.start - BLOCK..range.start };
    site.plant(&path, |f| f.copy_within(range.clone(), neighbour.start), &["duplicated-block"]);
    let swap = |f: &mut Vec<u8>| {
        let first = f[range.clone()].to_vec();
        f.copy_within(neighbour.clone(), range.start);
        f[neighbour.clone()].copy_from_slice(&first);
    };
    site.plant(&path, swap, &["misdirected-block"]);

    let wrong = |f: &mut Vec<u8>| {
        f[range.start + 7000] ^= 1;
        block::seal(&mut f[range.clone()]);
    };
    site.plant(&path, wrong, &["wrong-body"]);

    // Versions that no transaction created: beyond the log, and where the log has something else.
    let next = |lsn| {
        let stamp =
            Stamp { version: site.ledger.blocks[number as usize].committed + 1, lsn, process: 0, transaction: 1 };
        sealed(site.image(number, stamp.version), stamp)
    };
    let beyond = next(site.ledger.flushed + 8);
    site.plant(&path, |f| f[range.clone()].copy_from_slice(&beyond), &["ahead-of-log", "never-committed"]);
    let foreign = next(site.ledger.flushed - 8);
    site.plant(&path, |f| f[range.clone()].copy_from_slice(&foreign), &["never-committed", "not-in-log"]);
    let restamped = sealed(site.image(number, version), Stamp { version, lsn: lsn + 8, process: 0, transaction: 1 });
    site.plant(&path, |f| f[range.clone()].copy_from_slice(&restamped), &["not-in-log"]);
}

#[test]
fn a_torn_block_and_a_stale_sector_are_told_apart() {
    let site = Site::new(&[("transactions", "400"), ("write", "60")]);
    let half = BLOCK / 2 / SECTOR;
    let number = site.written().find(|n| site.changed(*n, 0).iter().any(|s| *s >= half)).unwrap();
    let (path, range) = site.data(number);
    let version = block::stamp(site.page(number)).version;
    let old = site.image(number, 0);
    let torn = |f: &mut Vec<u8>| f[range.start + BLOCK / 2..range.end].copy_from_slice(&old[BLOCK / 2..]);
    site.plant(&path, torn, &["torn-block"]);

    // The other way round: the second half arrived, the first did not.
    let header = sealed(old.clone(), Stamp { version: 0, lsn: 0, process: 0, transaction: 0 });
    let torn = |f: &mut Vec<u8>| f[range.start..range.start + BLOCK / 2].copy_from_slice(&header[..BLOCK / 2]);
    site.plant(&path, torn, &["torn-block"]);
    assert!(version > 0);

    // A sector of version 0 in a block in which something after that sector is newer than the sector can be.
    let stale = |n: u32| {
        let last = block::stamp(site.page(n)).version;
        let first = |s: usize| {
            (1..=last).find(|v| site.image(n, *v)[s * SECTOR..][..SECTOR] != site.image(n, 0)[s * SECTOR..][..SECTOR])
        };
        let changed = site.changed(n, 0);
        changed.into_iter().find(|s| {
            let until = first(*s).unwrap() - 1;
            site.changed(n, until).iter().any(|o| o > s)
        })
    };
    let (number, sector) = site.written().find_map(|n| Some((n, stale(n)?))).unwrap();
    let (path, range) = site.data(number);
    let old = site.image(number, 0);
    let at = sector * SECTOR;
    site.plant(&path, |f| f[range.start + at..][..SECTOR].copy_from_slice(&old[at..][..SECTOR]), &["stale-sectors"]);
}

#[test]
fn faults_in_redo_are_found() {
    let site = Site::new(&[]);
    let path = site.journal(1);
    let chunks = site.chunks(&path);
    // All of these lose redo and everything that depends on it; the first finding is about the redo.
    let lost = |kinds: &[&str], change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = site.files[&path].clone();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let verdict = site.bench.check(AckSource::Ledger);
        std::fs::write(&path, &site.files[&path]).unwrap();
        for kind in kinds {
            assert!(verdict.counts.contains_key(kind), "{kind}: {:?}", verdict.findings);
        }
        assert_eq!(verdict.findings[0].kind(), kinds[0]);
    };
    // The amount of redo in a chunk depends on which processes committed together; the rest is padding, where damage has no
    // effect.
    let used = |f: &[u8], chunk: &std::ops::Range<usize>| {
        u32::from_le_bytes(f[chunk.start + 20..chunk.start + 24].try_into().unwrap()) as usize
    };
    let full = |from: usize| {
        // Redo may end in zeroes: if they are alone in their sector, it cannot be told from one that was never written.
        let holds = |c: &&std::ops::Range<usize>| {
            let (f, n) = (&site.files[&path], used(&site.files[&path], c));
            n > 3 * SECTOR && f[c.start + (n - 1) / SECTOR * SECTOR..c.start + n].iter().any(|b| *b != 0)
        };
        chunks[from..].iter().find(holds).unwrap().clone()
    };
    let last = chunks.last().unwrap().clone();
    let middle = full(chunks.len() / 2);
    // A flush that was acknowledged but never happened.
    lost(&["lost-redo", "lost-commit-record"], &|f| f[last.clone()].fill(0));
    lost(&["lost-redo"], &|f| f[middle.clone()].fill(0));
    let long = full(0);
    lost(&["torn-redo", "lost-redo"], &|f| f[long.start + 2 * SECTOR..long.end].fill(0));
    lost(&["corrupted-redo", "lost-redo"], &|f| f[long.start + SECTOR] ^= 1);
    let (early, late) = (chunks[1].clone(), middle);
    lost(&["duplicated-redo", "lost-redo"], &|f| f.copy_within(early.clone(), late.start));
    lost(&["misdirected-redo", "lost-redo"], &|f| {
        let later = f[late.clone()].to_vec();
        f.splice(early.start..early.start + later.len(), later);
    });
    // The contents that an earlier turn left there.
    lost(&["stale-redo", "lost-redo"], &|f| {
        let used = used(f, &late);
        journal::seal_chunk(&mut f[late.clone()], used, 4096, 0);
    });
    lost(&["truncated-file", "lost-redo"], &|f| f.truncate(late.start));
    lost(&["lost-journal-header", "no-journal", "lost-redo"], &|f| f[..JOURNAL_HEADER].fill(0));

    // Damage in memory, before the chunk got its checksum.
    let header = JournalHeader::decode(&site.files[&path]).unwrap();
    let reseal = |f: &mut Vec<u8>, chunk: &std::ops::Range<usize>| {
        let used = used(f, chunk);
        let lsn = header.start + (chunk.start - JOURNAL_HEADER) as u64;
        journal::seal_chunk(&mut f[chunk.clone()], used, lsn, header.sequence);
    };
    lost(&["damaged-record"], &|f| {
        f[late.start + CHUNK_HEADER + 60] ^= 1;
        reseal(f, &late);
    });
    // A record numbered twice.
    lost(&["wrong-sequence"], &|f| {
        let start = late.start + CHUNK_HEADER;
        let len = u32::from_le_bytes(f[start..start + 4].try_into().unwrap()) as usize;
        let record = &mut f[start..start + len];
        let sequence = u64::from_le_bytes(record[8..16].try_into().unwrap()) - 1;
        let sum = crc32c::crc32c_append(crc32c::crc32c(&record[..4]), &record[16..]);
        record[4..8].copy_from_slice(&sum.to_le_bytes());
        journal::number_record(record, sequence);
        reseal(f, &late);
    });
    assert!(site.bench.check(AckSource::Ledger).passed());
}

#[test]
fn old_blocks_that_the_log_no_longer_covers_are_found() {
    let settings = [("transactions", "3000"), ("write", "60"), ("sync", "fdatasync"), ("direct", "off")];
    let site = Site::new(&settings);
    assert!(site.ledger.sequence > 2, "the journals were to be used again");
    // Its redo up to the checkpoint has been overwritten.
    let facts = site.bench.check(AckSource::Ledger).facts;
    let covered = |n: &u32| block::stamp(site.page(*n)).lsn < facts["log-start-lsn"];
    let number = site.written().find(covered).unwrap();
    let (path, range) = site.data(number);
    let old = sealed(site.image(number, 1), Stamp { version: 1, lsn: 300, process: 0, transaction: 1 });
    let mut bytes = site.files[&path].clone();
    bytes[range].copy_from_slice(&old);
    std::fs::write(&path, bytes).unwrap();
    let verdict = site.bench.check(AckSource::Ledger);
    std::fs::write(&path, &site.files[&path]).unwrap();
    assert!(verdict.counts.contains_key("lost-write"));
    assert!(verdict.counts.contains_key("lost-commit") || verdict.counts.contains_key("stale-block"), "{verdict:?}");

    // The current journal's header, and the other's.
    for sequence in [site.ledger.sequence, site.ledger.sequence - 1] {
        let path = site.journal(sequence);
        let mut bytes = site.files[&path].clone();
        bytes[100] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let verdict = site.bench.check(AckSource::Ledger);
        std::fs::write(&path, &site.files[&path]).unwrap();
        assert_eq!(verdict.findings[0].kind(), "lost-journal-header");
    }
    // One journal's contents in the other.
    let (current, other) = (site.journal(site.ledger.sequence), site.journal(site.ledger.sequence - 1));
    std::fs::write(&current, &site.files[&other]).unwrap();
    assert_eq!(site.bench.check(AckSource::Ledger).findings[0].kind(), "wrong-journal");
}

#[test]
fn lost_archives_and_checkpoints_are_found() {
    let settings = [
        ("transactions", "3000"),
        ("write", "60"),
        ("process.archiver.kind", "archiver"),
        ("process.checkpointer.kind", "checkpointer"),
    ];
    let site = Site::new(&settings);
    let archive = archiver::path(site.bench.path(), site.ledger.archived);
    let facts = site.bench.check(AckSource::Ledger).facts;
    assert!(site.ledger.archived >= 2 && facts["archives"] == site.ledger.archived.min(archiver::KEPT), "{facts:?}");
    // Written and synced, but its rename never reached the disk; then one that is damaged, short, or of another turn.
    let unfinished = archive.with_extension("unfinished");
    std::fs::rename(&archive, &unfinished).unwrap();
    let turn = site.ledger.archived;
    assert_eq!(site.bench.check(AckSource::Ledger).findings, [VerifyFailed::LostArchive { turn }]);
    std::fs::rename(&unfinished, &archive).unwrap();
    let middle = site.files[&archive].len() / 2;
    site.plant(&archive, |f| f[middle] ^= 1, &["damaged-archive"]);
    site.plant(&archive, |f| f[100] ^= 1, &["damaged-archive"]);
    let other = &site.files[&archiver::path(site.bench.path(), turn - 1)];
    site.plant(&archive, |f| f.clone_from(other), &["damaged-archive"]);

    let control = control_file::path(site.bench.path());
    let last = control_file::ControlEntry::last(site.bench.path()).unwrap().unwrap();
    assert!(last.checkpoint > 0 && last.checkpoint == site.ledger.checkpoint);
    let place = (last.sequence % 2) as usize * 4096;
    site.plant(&control, |f| f[place..place + 4096].fill(0), &["lost-checkpoint"]);
    site.plant(&control, |f| f.fill(0), &["damaged-control-file"]);
}

#[test]
fn files_that_are_missing_and_a_damaged_ledger_are_found() {
    let site = Site::new(&[]);
    let first = |path: &Path| {
        std::fs::rename(path, path.with_extension("away")).unwrap();
        let verdict = site.bench.check(AckSource::Ledger);
        std::fs::rename(path.with_extension("away"), path).unwrap();
        verdict.findings.into_iter().next().unwrap()
    };
    assert_eq!(first(&site.journal(1)), VerifyFailed::MissingFile("journal.0".to_owned()));
    assert_eq!(first(&files::data_path(site.bench.path(), 3)), VerifyFailed::MissingFile("data.003".to_owned()));
    let data = files::data_path(site.bench.path(), 4);
    site.plant(&data, |f| f.truncate(f.len() - 4096), &["truncated-file"]);

    let ledger = site.bench.path().join("ledger");
    for at in [0, 40, 1000] {
        site.plant(&ledger, |f| f[at] ^= 8, &["ledger-damaged"]);
    }
    site.plant(&ledger, |f| f.truncate(f.len() / 2), &["ledger-damaged"]);
    site.plant(&ledger, Vec::clear, &["ledger-damaged"]);
    let new = site.bench.path().join("ledger.new");
    std::fs::rename(&ledger, &new).unwrap();
    assert_eq!(site.bench.check(AckSource::Ledger).findings, [VerifyFailed::LostRename("ledger")]);
    std::fs::rename(&new, &ledger).unwrap();
    assert!(site.bench.check(AckSource::Ledger).passed());
}
