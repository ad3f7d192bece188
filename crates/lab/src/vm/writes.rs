//! The state of a disk with a volatile write cache after a power loss, computed from the log of the guest's writes and flushes.
//!
//! QEMU's filter `blklogwrites` keeps the log, in the format of the kernel's dm-log-writes (its `Documentation/admin-guide/device-mapper/log-writes.rst`):
//! a sector of head, then for each request a sector that says what it is and the sectors that were written.
//!
//! Invariant: what was written before a flush that is in the log, or with FUA, is kept; of everything else each block is kept or lost by a draw.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use bigiron_stats::order::Rng;

const MAGIC: u64 = 0x006a_7366_7773_6872;
/// Of the log, which QEMU counts in.
const SECTOR: usize = 512;
/// What a disk writes as a whole or not at all.
const BLOCK: usize = 4096;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;

/// A request in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WriteLogEntry {
    /// On the disk, in bytes.
    offset: u64,
    bytes: u64,
    /// Of its data in the log.
    at: u64,
    flags: u64,
}

/// Whether the disk executes flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Honesty {
    Honest,
    /// It acknowledges flushes that it does not do, and has lost everything since some moment in the first half of its life.
    Lying,
}

/// What happened to the writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFate {
    pub writes: u64,
    pub flushes: u64,
    /// Writes that were not followed by a flush.
    pub unflushed: u64,
    /// Blocks of 4 KiB of those that were lost.
    pub lost_blocks: u64,
}

/// Brings the image `disk`, as it was when the guest was started, to what it is after a loss of power at the end of `log`. `None` if the log does
/// not say it: QEMU was killed between two pieces of it.
///
/// # Errors
/// The log is none, or a file cannot be read or written.
pub fn lose_power(log: &Path, disk: &Path, honesty: Honesty, rng: &mut impl Rng) -> Result<Option<WriteFate>> {
    let file = File::open(log).with_context(|| format!("Cannot open {}", log.display()))?;
    let Some(entries) = read(&file).with_context(|| format!("The log {}", log.display()))? else { return Ok(None) };
    let disk = OpenOptions::new().write(true).open(disk).with_context(|| format!("Cannot open {}", disk.display()))?;
    let is_write = |entry: &&WriteLogEntry| entry.flags & (FLUSH | DISCARD) == 0;
    let mut fate = WriteFate {
        writes: entries.iter().filter(is_write).count() as u64,
        flushes: entries.iter().filter(|entry| entry.flags & FLUSH != 0).count() as u64,
        ..WriteFate::default()
    };
    let (kept, rest) = match honesty {
        Honesty::Honest => {
            let last = entries.iter().rposition(|entry| entry.flags & FLUSH != 0);
            entries.split_at(last.map_or(0, |last| last + 1))
        }
        Honesty::Lying => {
            // The last commits are in the second half, however few there are.
            let (kept, lost) = entries.split_at((rng.next_u64() % (entries.len() as u64 / 2).max(1)) as usize);
            fate.lost_blocks = lost.iter().filter(is_write).map(|entry| entry.bytes.div_ceil(BLOCK as u64)).sum();
            (kept, &[][..])
        }
    };
    kept.iter().try_for_each(|entry| copy(&file, entry, &disk, &mut |_| true))?;
    for entry in rest.iter().filter(is_write) {
        let forced = entry.flags & FUA != 0;
        fate.unflushed += u64::from(!forced);
        copy(&file, entry, &disk, &mut |_| {
            let is_kept = forced || rng.next_u64() & 1 == 0;
            fate.lost_blocks += u64::from(!is_kept);
            is_kept
        })?;
    }
    Ok(Some(fate))
}

/// The entries, in order; `None` if one is not there in the middle.
fn read(file: &File) -> Result<Option<Vec<WriteLogEntry>>> {
    let length = file.metadata()?.len();
    let mut reader = BufReader::with_capacity(SECTOR, file);
    let mut head = [0; SECTOR];
    ensure!(length >= SECTOR as u64, "It is empty");
    reader.read_exact(&mut head)?;
    ensure!(number(&head, 0) == MAGIC, "It is not a log of writes");
    let sector = u64::from(u32::from_le_bytes([head[24], head[25], head[26], head[27]]));
    ensure!(sector == SECTOR as u64, "Its sectors have {sector} bytes, not {SECTOR}");
    let (mut entries, mut at) = (Vec::new(), SECTOR as u64);
    while at + SECTOR as u64 <= length {
        reader.seek(SeekFrom::Start(at))?;
        reader.read_exact(&mut head)?;
        let (offset, bytes, flags) = (number(&head, 0) * sector, number(&head, 8) * sector, number(&head, 16));
        at += sector;
        if bytes == 0 && flags == 0 {
            // Requests are written side by side: this one was not there yet.
            return Ok(None);
        }
        let data = if flags & (FLUSH | DISCARD) == 0 { bytes } else { 0 };
        if at + data > length {
            // The last one, cut short: it was never answered.
            break;
        }
        entries.push(WriteLogEntry { offset, bytes, at, flags });
        at += data;
    }
    Ok(Some(entries))
}

fn number(head: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"))
}

/// Writes an entry's blocks onto the disk, those that are `kept`. What is discarded is left: a disk may keep it.
fn copy(log: &File, entry: &WriteLogEntry, disk: &File, kept: &mut dyn FnMut(u64) -> bool) -> Result<()> {
    if entry.flags & (FLUSH | DISCARD) != 0 {
        return Ok(());
    }
    let mut block = [0; BLOCK];
    let mut done = 0;
    while done < entry.bytes {
        let offset = entry.offset + done;
        // Up to where the disk's next block begins.
        let length = (BLOCK as u64 - offset % BLOCK as u64).min(entry.bytes - done);
        if kept(offset) {
            let piece = &mut block[..length as usize];
            log.read_exact_at(piece, entry.at + done).context("Cannot read the log of writes")?;
            disk.write_all_at(piece, offset).context("Cannot write the disk")?;
        }
        done += length;
    }
    if done == 0 {
        bail!("A write of nothing is in the log");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_stats::order::rng;
    use proptest::prelude::*;

    /// A log of (offset, bytes, flags), each write filled with its own number, from 1.
    fn log(entries: &[(u64, u64, u64)]) -> Vec<u8> {
        let head = |numbers: [u64; 3]| {
            let mut head = vec![0; SECTOR];
            for (slot, n) in head.chunks_exact_mut(8).zip(numbers) {
                slot.copy_from_slice(&n.to_le_bytes());
            }
            head
        };
        let mut bytes = head([MAGIC, 1, entries.len() as u64]);
        bytes[24..28].copy_from_slice(&(SECTOR as u32).to_le_bytes());
        for (n, (offset, length, flags)) in (1..).zip(entries) {
            bytes.extend(head([offset / SECTOR as u64, length / SECTOR as u64, *flags]));
            if flags & (FLUSH | DISCARD) == 0 {
                bytes.extend(vec![n; *length as usize]);
            }
        }
        bytes
    }

    fn after(log: &[u8], honesty: Honesty, seed: u64) -> Option<(WriteFate, Vec<u8>)> {
        let dir = tempfile::tempdir().unwrap();
        let (path, disk) = (dir.path().join("log"), dir.path().join("disk"));
        std::fs::write(&path, log).unwrap();
        std::fs::write(&disk, vec![0; 64 << 10]).unwrap();
        let fate = lose_power(&path, &disk, honesty, &mut rng(seed)).unwrap()?;
        Some((fate, std::fs::read(&disk).unwrap()))
    }

    proptest! {
        #[test]
        fn what_was_flushed_stays_and_the_rest_is_drawn_by_block(
            writes in proptest::collection::vec((0u64..15, 1u64..9, any::<bool>()), 1..30), seed in any::<u64>(),
        ) {
            let mut entries = Vec::new();
            for (at, sectors, flush) in writes {
                entries.push((at * 4096, sectors * 512, 0));
                if flush {
                    entries.push((0, 0, FLUSH));
                }
            }
            let (fate, disk) = after(&log(&entries), Honesty::Honest, seed).unwrap();
            let last = entries.iter().rposition(|e| e.2 == FLUSH).map_or(0, |n| n + 1);
            let flushed = after(&log(&entries[..last]), Honesty::Honest, seed).unwrap();
            prop_assert_eq!(flushed.0.lost_blocks, 0);
            let rest = entries[last..].iter().filter(|e| e.2 == 0).count() as u64;
            prop_assert_eq!((fate.unflushed, fate.lost_blocks <= rest), (rest, true));
            // Every sector is as it was flushed, or as a later write made it.
            for (sector, (now, before)) in disk.chunks(512).zip(flushed.1.chunks(512)).enumerate() {
                let at = sector as u64 * 512;
                let mut possible = vec![before[0]];
                possible.extend((1..).zip(&entries).skip(last).filter(|(_, e)| e.0 <= at && at < e.0 + e.1).map(|(n, _)| n));
                prop_assert!(now.iter().all(|b| *b == now[0]) && possible.contains(&now[0]), "{} at {}", now[0], at);
            }
        }
    }

    #[test]
    fn unflushed_writes_are_lost_in_part_and_forced_ones_never() {
        let entries: Vec<_> = (0..15).map(|n| (n * 4096, 4096, 0)).collect();
        let lost: Vec<u64> =
            (0..20).map(|seed| after(&log(&entries), Honesty::Honest, seed).unwrap().0.lost_blocks).collect();
        assert!(lost.iter().all(|n| (1..15).contains(n)), "{lost:?}");
        let forced: Vec<_> = entries.iter().map(|e| (e.0, e.1, FUA)).collect();
        let (fate, disk) = after(&log(&forced), Honesty::Honest, 1).unwrap();
        assert_eq!((fate.unflushed, fate.lost_blocks, disk[4096 * 14]), (0, 0, 15));
    }

    #[test]
    fn a_disk_that_lies_loses_what_was_flushed() {
        let entries: Vec<_> =
            (0..30).map(|n| if n % 2 == 0 { (n / 2 * 4096, 4096, 0) } else { (0, 0, FLUSH) }).collect();
        let (fate, disk) = after(&log(&entries), Honesty::Lying, 3).unwrap();
        assert!(fate.lost_blocks > 0 && fate.unflushed == 0, "{fate:?}");
        assert_eq!(disk[4096 * 14], 0);
        assert!(fate.lost_blocks >= 8);
    }

    #[test]
    fn a_log_that_ends_in_a_request_is_read_and_one_with_a_gap_is_not() {
        let whole = log(&[(0, 4096, 0), (0, 0, FLUSH), (4096, 4096, 0)]);
        let (fate, disk) = after(&whole[..whole.len() - 1], Honesty::Honest, 1).unwrap();
        assert_eq!((fate.writes, fate.unflushed, disk[0], disk[4096]), (1, 0, 1, 0));
        let mut gap = whole;
        gap[512..1024].fill(0);
        assert_eq!(after(&gap, Honesty::Honest, 1), None);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log"), [7; 600]).unwrap();
        let error = lose_power(&dir.path().join("log"), &dir.path().join("disk"), Honesty::Honest, &mut rng(1));
        assert!(format!("{:#}", error.unwrap_err()).contains("not a log of writes"));
    }
}
