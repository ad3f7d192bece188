//! Tests whether a sync reaches the device: makes a few redo writes durable like the job, and compares with the device's own
//! counters.
//!
//! Invariant: if the counters cannot tell, the result is "not known", never "honest".
//!
//! Counters: `stat` of a block device in sysfs (the kernel's Documentation/block/stat.rst): field 5 counts writes completed,
//! field 16 flushes completed (since Linux 5.5, only for the whole disk). A write-through device gets no flushes; there a synced
//! write is a plain write. The same holds for FUA, by which a direct write with `O_DSYNC` becomes durable without a flush;
//! `fdatasync` and `fsync` always flush a cache.

use std::fmt;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use thiserror::Error;

use bigiron_sys::async_io::{Blocking, Engine};

use super::files::Journals;
use super::job::{Job, LogSync};
use super::log_facts;

/// Synced writes made.
const SYNCS: u64 = 16;
/// The disk is then observed without these writes for as long as they took, but no longer than this.
const CONTROL_MAX: Duration = Duration::from_millis(200);

/// The result of the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Honesty {
    /// The device received the syncs; the evidence.
    Honest(String),
    /// The device received none of them.
    NoOp(String),
    /// It cannot be determined; the reason.
    NotKnown(String),
}

/// The error for a proven no-op in a job that must pass or fail.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("Your sync is a no-op on {0}")]
pub struct SyncIsNoOp(String);

impl Honesty {
    /// For a job that must pass or fail: an error if the sync is proven to be a no-op.
    pub fn validate(&self) -> Result<(), SyncIsNoOp> {
        match self {
            Honesty::NoOp(text) => Err(SyncIsNoOp(text.clone())),
            Honesty::Honest(_) | Honesty::NotKnown(_) => Ok(()),
        }
    }
}

impl fmt::Display for Honesty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Honesty::Honest(text) => write!(f, "honest: {text}"),
            Honesty::NoOp(text) => write!(f, "WARNING: your sync is a no-op on {text}"),
            Honesty::NotKnown(text) => write!(f, "not known: {text}"),
        }
    }
}

/// Makes [`SYNCS`] redo writes durable like `job`, in the last block of the last journal (which the log has not reached yet, and
/// whose contents do not change), and reads the device's counters.
pub fn test(job: &Job, dir: &Path) -> Result<Honesty> {
    let journals = Journals::open(job, dir)?;
    let last = job.journal.files - 1;
    let disk = match Disk::of(journals.file(last)) {
        Ok(disk) => disk,
        Err(why) => return Ok(Honesty::NotKnown(why)),
    };
    let block = job.journal.block;
    // The same path through the kernel except for the engine: the sync is tested.
    let mut engine = Blocking::new(1, block.next_multiple_of(4096)).context("Cannot allocate a buffer")?;
    engine.buffer(0).fill(0);
    let Ok(before) = disk.count() else { return Ok(Honesty::NotKnown(disk.silent())) };
    let start = Instant::now();
    for _ in 0..SYNCS {
        journals.write(job, &mut engine, last, job.journal.bytes - block as u64, block)?;
    }
    let (took, after) = (start.elapsed(), disk.count());
    std::thread::sleep(took.min(CONTROL_MAX));
    let (Ok(after), Ok(control)) = (after, disk.count()) else { return Ok(Honesty::NotKnown(disk.silent())) };
    let how = log_facts::durability(job);
    let by_write = job.journal.direct && matches!(job.journal.sync, LogSync::Dsync | LogSync::RwfDsync);
    Ok(disk.judge(how, by_write, before, after.since(before), control.since(after)))
}

/// A whole disk, with its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Disk {
    name: String,
    /// Whole disks whose counters are added: itself or, for a stacked device, those below.
    parts: Vec<PathBuf>,
    /// Whether it has a volatile cache, according to the kernel.
    cache: bool,
    /// Whether it makes single writes durable without a flush.
    fua: bool,
    /// Whether it keeps counters.
    counting: bool,
}

/// The counters of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    writes: u64,
    /// `None` if this kernel does not count them.
    flushes: Option<u64>,
}

impl Count {
    fn since(self, before: Self) -> Self {
        let flushes = self.flushes.zip(before.flushes).map(|(now, then)| now.saturating_sub(then));
        Self { writes: self.writes.saturating_sub(before.writes), flushes }
    }

    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<u64> = stat.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { writes: *fields.get(4)?, flushes: fields.get(15).copied() })
    }
}

impl Disk {
    /// The disk that holds a file; the error says why there is none.
    fn of(file: &fs::File) -> Result<Self, String> {
        let meta = file.metadata().map_err(|e| format!("The journal has no metadata: {e}"))?;
        let device = if meta.file_type().is_block_device() { meta.st_rdev() } else { meta.st_dev() };
        let id = number(device);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let sys = Path::new("/sys/dev/block");
        // Some file systems have their own device number, and name the disk in the mount table.
        let id = match sys.join(&id).exists() {
            true => id,
            false => mount_source(&mounts, &id)
                .and_then(|source| Some(number(fs::metadata(source).ok()?.st_rdev())))
                .filter(|id| sys.join(id).exists())
                .ok_or_else(|| format!("The file system ({id}) is not on a block device"))?,
        };
        let path = fs::canonicalize(sys.join(&id)).map_err(|e| format!("No block device {id} in sysfs: {e}"))?;
        Self::at(&path).ok_or_else(|| format!("{} has no information about its cache", path.display()))
    }

    /// The disk with this folder in sysfs, or of the partition with this folder.
    fn at(path: &Path) -> Option<Self> {
        let whole = if path.join("partition").exists() { path.parent()? } else { path };
        let read = |file: &str| fs::read_to_string(whole.join("queue").join(file)).ok();
        let mut parts = vec![whole.to_owned()];
        let slaves = fs::read_dir(whole.join("slaves")).into_iter().flatten().flatten();
        for below in slaves.filter_map(|s| Self::at(&fs::canonicalize(s.path()).ok()?)) {
            parts.extend(below.parts.into_iter().filter(|p| !parts.contains(p)).collect::<Vec<_>>());
        }
        Some(Self {
            name: whole.file_name()?.to_string_lossy().into_owned(),
            cache: read("write_cache")?.trim() == "write back",
            fua: read("fua").is_some_and(|f| f.trim() == "1"),
            counting: read("iostats").is_none_or(|i| i.trim() != "0"),
            parts,
        })
    }

    fn count(&self) -> Result<Count> {
        let mut sum = Count { writes: 0, flushes: Some(0) };
        for part in &self.parts {
            let stat = fs::read_to_string(part.join("stat"))?;
            let count = Count::parse(&stat).with_context(|| format!("Not counters: `{}`", stat.trim()))?;
            sum.writes += count.writes;
            sum.flushes = sum.flushes.zip(count.flushes).map(|(a, b)| a + b);
        }
        Ok(sum)
    }

    fn silent(&self) -> String {
        format!("{} has no counters", self.name)
    }

    /// Judges the counters: `total` before the writes, `ours` during them, `others` in an equally long time without. `by_write`:
    /// the disk is asked to make single writes durable without a flush.
    fn judge(&self, how: &str, by_write: bool, total: Count, ours: Count, others: Count) -> Honesty {
        let name = &self.name;
        if !self.counting {
            return Honesty::NotKnown(format!("{name} does not count (its `iostats` is off)"));
        }
        // The journals themselves were written to it.
        if total.writes == 0 && ours.writes == 0 {
            return Honesty::NotKnown(format!("{name} counts nothing"));
        }
        let seen = |what, others: u64| match others * 4 > SYNCS {
            true => Honesty::NotKnown(format!("{name} is busy with other requests ({what})")),
            false => Honesty::Honest(format!("{name} counted a {what} for each of {SYNCS} synced redo writes ({how})")),
        };
        let flushes = ours.flushes.unwrap_or(0);
        if self.cache && flushes >= SYNCS {
            return seen("flush", others.flushes.unwrap_or(0));
        }
        let durable_by_write = !self.cache || self.fua && by_write;
        if durable_by_write && ours.writes >= SYNCS {
            return seen(if self.cache { "write through its cache" } else { "write" }, others.writes);
        }
        if !durable_by_write && ours.flushes.is_none() {
            return Honesty::NotKnown(format!("this kernel does not count the flushes of {name}, which has a cache"));
        }
        let cache = if self.cache { "has a volatile cache" } else { "is write-through" };
        Honesty::NoOp(format!(
            "{name}, which {cache}: {SYNCS} synced redo writes ({how}) were {} writes and {flushes} flushes there",
            ours.writes
        ))
    }
}

/// `MAJOR:MINOR` of a device number.
fn number(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// The source of the mount with that device number, in the format of /proc/self/mountinfo (proc(5)), if it is a path.
fn mount_source<'a>(mounts: &'a str, id: &str) -> Option<&'a str> {
    let line = mounts.lines().find(|l| l.split(' ').nth(2) == Some(id))?;
    let (_, after) = line.split_once(" - ")?;
    after.split(' ').nth(1).filter(|source| source.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: &str = "O_DSYNC";

    fn disk(cache: bool, fua: bool) -> Disk {
        Disk { name: "vda".to_owned(), parts: Vec::new(), cache, fua, counting: true }
    }

    fn count(writes: u64, flushes: u64) -> Count {
        Count { writes, flushes: Some(flushes) }
    }

    fn judge(disk: &Disk, ours: Count, others: Count) -> Honesty {
        disk.judge(HOW, true, count(1000, 10), ours, others)
    }

    #[test]
    fn flushes_of_a_cache_are_honest_and_their_lack_is_not() {
        let cached = disk(true, false);
        assert!(matches!(judge(&cached, count(16, 16), count(0, 0)), Honesty::Honest(_)));
        // Written, but never flushed: as without barriers.
        let no_op = judge(&cached, count(16, 0), count(0, 0));
        assert_eq!(
            no_op.validate().unwrap_err().to_string(),
            "Your sync is a no-op on vda, which has a volatile cache: 16 synced redo writes (O_DSYNC) were 16 writes and 0 flushes there"
        );
        assert!(matches!(judge(&cached, count(16, 15), count(0, 0)), Honesty::NoOp(_)));
    }

    #[test]
    fn a_write_is_enough_only_where_writes_are_durable() {
        for (cache, fua) in [(false, false), (false, true), (true, true)] {
            assert!(matches!(judge(&disk(cache, fua), count(16, 0), count(0, 0)), Honesty::Honest(_)), "{cache} {fua}");
            assert!(matches!(judge(&disk(cache, fua), count(3, 0), count(0, 0)), Honesty::NoOp(_)), "{cache} {fua}");
        }
    }

    #[test]
    fn fdatasync_flushes_a_cache_even_where_writes_could_be_durable() {
        let judge = |ours| disk(true, true).judge(HOW, false, count(1000, 10), ours, count(0, 0));
        assert!(matches!(judge(count(16, 16)), Honesty::Honest(_)));
        assert!(matches!(judge(count(16, 0)), Honesty::NoOp(_)));
    }

    #[test]
    fn what_cannot_be_told_is_not_known() {
        let not_known = |h: Honesty| {
            h.validate().unwrap();
            assert!(h.to_string().starts_with("not known: "), "{h}");
        };
        let cached = disk(true, false);
        not_known(judge(&cached, count(16, 20), count(0, 5)));
        not_known(judge(&disk(false, false), count(20, 0), count(5, 0)));
        not_known(judge(&cached, Count { writes: 16, flushes: None }, Count { writes: 0, flushes: None }));
        not_known(judge(&Disk { counting: false, ..cached.clone() }, count(0, 0), count(0, 0)));
        not_known(cached.judge(HOW, true, count(0, 0), count(0, 0), count(0, 0)));
    }

    #[test]
    fn counters_are_read_with_and_without_flushes() {
        let old = "  120 0 960 20 77 1 640 30 0 40 50 0 0 0 0";
        assert_eq!(Count::parse(old), Some(Count { writes: 77, flushes: None }));
        assert_eq!(Count::parse(&format!("{old} 9 3\n")), Some(count(77, 9)));
        assert_eq!(Count::parse("1 2 3"), None);
    }

    #[test]
    fn partitions_and_stacked_devices_lead_to_whole_disks() {
        let sys = tempfile::tempdir().unwrap();
        let make = |path: &str, text: &str| {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (disk, writes) in [("sda", 5), ("sdb", 7), ("dm-0", 100)] {
            make(&format!("{disk}/queue/write_cache"), "write back\n");
            make(&format!("{disk}/stat"), &format!("0 0 0 0 {writes} 0 0 0 0 0 0 0 0 0 0 1 0\n"));
        }
        make("sda/sda1/partition", "1\n");
        make("sda/sda1/stat", "0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0\n");
        fs::create_dir_all(sys.path().join("dm-0/slaves")).unwrap();
        for (name, below) in [("sda1", "sda/sda1"), ("sdb", "sdb")] {
            std::os::unix::fs::symlink(sys.path().join(below), sys.path().join("dm-0/slaves").join(name)).unwrap();
        }
        let partition = Disk::at(&sys.path().join("sda/sda1")).unwrap();
        assert_eq!((partition.name.as_str(), partition.count().unwrap()), ("sda", count(5, 1)));
        assert!(partition.cache && !partition.fua && partition.counting);
        assert_eq!(Disk::at(&sys.path().join("dm-0")).unwrap().count().unwrap(), count(112, 3));
    }

    #[test]
    fn a_file_system_without_a_device_number_names_its_disk() {
        let mounts =
            "36 35 0:31 / /data rw,noatime shared:1 - btrfs /dev/sdb2 rw\n37 35 0:32 / /tmp rw - tmpfs tmpfs rw\n";
        assert_eq!(mount_source(mounts, "0:31"), Some("/dev/sdb2"));
        assert_eq!(mount_source(mounts, "0:32"), None);
        assert_eq!(mount_source(mounts, "0:33"), None);
    }
}
