//! The job: what dbsim is asked to do, from its options to numbers.
//!
//! Invariant: a [`Job`] that exists can be run: everything that can be refused without a machine has been refused.

use crate::clock::Clock;
use crate::workload::{OptionDef, Options};

use super::block::BLOCK;

/// Number of data files.
pub const DATA_FILES: usize = 10;
/// Number of journals, written in turn.
pub const JOURNALS: usize = 2;
/// Block gets of a transaction.
pub const GETS: usize = 8;
/// Bytes of the scanner's reads, and the unit in which files are laid out and verified.
pub const EXTENT: usize = 1 << 20;
/// Transactions for each extent that the scanner reads: its work is a fixed share of the foregrounds', whatever their speed.
pub const TRANSACTIONS_PER_SCAN: u64 = 32;
/// Blocks that the database writer has in flight at most.
pub const WRITE_DEPTH: usize = 32;

/// The options, as levers `dbsim.NAME`.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef {
        name: "io",
        default: "libaio",
        allowed: &["sync", "libaio", "uring"],
        summary: "Engine of the database writer, the log writer and the scanner; foreground reads are always pread",
    },
    OptionDef {
        name: "direct",
        default: "on",
        allowed: &["on", "off"],
        summary: "Whether data files and journals bypass the page cache (O_DIRECT)",
    },
    OptionDef {
        name: "sync",
        default: "dsync",
        allowed: &["dsync", "fdatasync"],
        summary: "How writes are made durable: files opened O_DSYNC, or fdatasync after each redo write and at each checkpoint",
    },
    OptionDef { name: "processes", default: "8", allowed: &[], summary: "Foreground processes, 1 to 1000" },
    OptionDef {
        name: "transactions",
        default: "auto",
        allowed: &[],
        summary: "Transactions in the measured window, all processes together; `auto`: 3000, or 60000 by the wall clock",
    },
    OptionDef { name: "data", default: "120M", allowed: &[], summary: "Bytes of the 10 data files together" },
    OptionDef { name: "cache", default: "32M", allowed: &[], summary: "Bytes of the shared buffer cache" },
    OptionDef { name: "journal", default: "4M", allowed: &[], summary: "Bytes of each of the 2 journals" },
    OptionDef {
        name: "write",
        default: "30",
        allowed: &[],
        summary: "Percentage of block gets that change the block, 1 to 100",
    },
    OptionDef {
        name: "scan",
        default: "on",
        allowed: &["on", "off"],
        summary: "Whether a scanner reads the data files, 1 MiB for every 32 transactions",
    },
];

/// Engine of the background processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    Sync,
    Libaio,
    Uring,
}

/// How a write becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Files opened with `O_DSYNC`.
    Dsync,
    /// `fdatasync` after every redo write, and of the data files before a checkpoint ends.
    Fdatasync,
}

/// A checked job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub io: Io,
    pub direct: bool,
    pub sync: Sync,
    /// Foreground processes.
    pub processes: usize,
    /// Transactions in the measured window; `None`: as many as suit the clock.
    transactions: Option<u64>,
    pub data_bytes: u64,
    pub cache_bytes: u64,
    pub journal_bytes: u64,
    pub write_percent: u32,
    pub scan: bool,
}

impl Job {
    /// The job that complete `options` describe; the error says what would be right.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let text = |name: &str| options.get(name).map(String::as_str).ok_or(format!("`dbsim.{name}` is missing"));
        let job = Self {
            io: match text("io")? {
                "sync" => Io::Sync,
                "libaio" => Io::Libaio,
                "uring" => Io::Uring,
                other => return Err(format!("`dbsim.io` cannot be `{other}`; it can be sync, libaio, uring")),
            },
            direct: switch("direct", text("direct")?)?,
            sync: match text("sync")? {
                "dsync" => Sync::Dsync,
                "fdatasync" => Sync::Fdatasync,
                other => return Err(format!("`dbsim.sync` cannot be `{other}`; it can be dsync, fdatasync")),
            },
            processes: number("processes", text("processes")?, 1, 1000)? as usize,
            transactions: match text("transactions")? {
                "auto" => None,
                n => Some(number("transactions", n, 1, 1_000_000_000).map_err(|e| format!("{e}, or `auto`"))?),
            },
            data_bytes: size("data", text("data")?, DATA_FILES as u64 * EXTENT as u64, 1 << 36)?,
            cache_bytes: size("cache", text("cache")?, EXTENT as u64, 1 << 35)?,
            journal_bytes: size("journal", text("journal")?, EXTENT as u64, 1 << 32)?,
            write_percent: number("write", text("write")?, 1, 100)? as u32,
            scan: switch("scan", text("scan")?)?,
        };
        job.fits()?;
        Ok(job)
    }

    fn fits(&self) -> Result<(), String> {
        let cache_min = (self.processes as u64 * 2 * GETS as u64 * BLOCK as u64).next_multiple_of(EXTENT as u64);
        let journal_min = (4 * self.log_buffer_bytes() as u64).next_multiple_of(EXTENT as u64);
        if self.cache_bytes * 2 > self.data_bytes {
            Err(format!(
                "`dbsim.cache` is more than half of `dbsim.data`, so that hardly a block would be read; at most {}",
                human((self.data_bytes / 2) >> 20 << 20)
            ))
        } else if self.cache_bytes < cache_min {
            Err(format!("`dbsim.cache` is too small for {} processes; at least {}", self.processes, human(cache_min)))
        } else if self.journal_bytes < journal_min {
            Err(format!(
                "`dbsim.journal` is too small for {} processes; at least {}",
                self.processes,
                human(journal_min)
            ))
        } else {
            Ok(())
        }
    }

    /// Transactions in the measured window under `clock`.
    pub fn transactions(&self, clock: Clock) -> u64 {
        self.transactions.unwrap_or(match clock {
            Clock::Wall => 60_000,
            // Emulated instructions: a few seconds of the host's time.
            Clock::Exact | Clock::None => 3_000,
        })
    }

    /// Transactions before the window, which bring cache, log and writer into motion.
    pub fn ramp(&self, clock: Clock) -> u64 {
        self.transactions(clock).div_ceil(4)
    }

    /// Database blocks in all data files.
    pub fn blocks(&self) -> u32 {
        (self.data_bytes / BLOCK as u64) as u32
    }

    /// Database blocks in each data file.
    pub fn blocks_per_file(&self) -> u32 {
        self.blocks() / DATA_FILES as u32
    }

    /// Buffers in the cache.
    pub fn buffers(&self) -> usize {
        (self.cache_bytes / BLOCK as u64) as usize
    }

    /// Bytes of the log buffer: room for what every foreground may have under way.
    pub fn log_buffer_bytes(&self) -> usize {
        (self.processes * 16 * 1024).clamp(512 * 1024, 16 * EXTENT)
    }

    /// Redo is written in multiples of this: a sector of a disk, or a page where direct I/O may want that.
    pub fn redo_block(&self) -> usize {
        if self.direct { 4096 } else { 512 }
    }
}

fn switch(name: &str, text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`dbsim.{name}` cannot be `{text}`; it can be on, off")),
    }
}

fn number(name: &str, text: &str, min: u64, max: u64) -> Result<u64, String> {
    match text.parse() {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        _ => Err(format!("`dbsim.{name}` cannot be `{text}`; it can be a number from {min} to {max}")),
    }
}

/// A size in bytes, with a suffix K, M or G. What is no multiple of `unit` is refused rather than rounded.
fn size(name: &str, text: &str, unit: u64, max: u64) -> Result<u64, String> {
    let (digits, scale) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    match digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)) {
        Some(n) if n > 0 && n <= max && n.is_multiple_of(unit) => Ok(n),
        _ => Err(format!(
            "`dbsim.{name}` cannot be `{text}`; it can be a multiple of {} up to {}, such as {}",
            human(unit),
            human(max),
            human(unit * 12)
        )),
    }
}

/// Bytes as they are typed: the largest suffix that leaves a whole number.
fn human(bytes: u64) -> String {
    match bytes {
        b if b.is_multiple_of(1 << 30) => format!("{}G", b >> 30),
        b if b.is_multiple_of(1 << 20) => format!("{}M", b >> 20),
        b if b.is_multiple_of(1 << 10) => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(settings: &[(&str, &str)]) -> Result<Job, String> {
        let mut options: Options = OPTIONS.iter().map(|o| (o.name.to_owned(), o.default.to_owned())).collect();
        options.extend(settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        Job::parse(&options)
    }

    #[test]
    fn the_default_job_is_whole() {
        let job = job(&[]).unwrap();
        assert_eq!((job.blocks(), job.blocks_per_file(), job.buffers()), (15_360, 1_536, 4_096));
        assert_eq!((job.transactions(Clock::Exact), job.ramp(Clock::Exact)), (3_000, 750));
        assert_eq!(job.transactions(Clock::Wall), 60_000);
    }

    #[test]
    fn refusals_say_what_would_be_right() {
        let refused = |name, value| job(&[(name, value)]).unwrap_err();
        assert_eq!(refused("processes", "0"), "`dbsim.processes` cannot be `0`; it can be a number from 1 to 1000");
        assert_eq!(
            refused("transactions", "many"),
            "`dbsim.transactions` cannot be `many`; it can be a number from 1 to 1000000000, or `auto`"
        );
        assert_eq!(
            refused("data", "100000"),
            "`dbsim.data` cannot be `100000`; it can be a multiple of 10M up to 64G, such as 120M"
        );
        assert_eq!(
            refused("cache", "64M"),
            "`dbsim.cache` is more than half of `dbsim.data`, so that hardly a block would be read; at most 60M"
        );
        assert_eq!(refused("journal", "1M"), "`dbsim.journal` is too small for 8 processes; at least 2M");
        assert_eq!(
            job(&[("processes", "1000")]).unwrap_err(),
            "`dbsim.cache` is too small for 1000 processes; at least 125M"
        );
        for (name, value) in
            [("write", "0"), ("write", "101"), ("scan", "yes"), ("io", "mmap"), ("data", "10T"), ("cache", "")]
        {
            assert!(refused(name, value).contains("it can be"), "{name}={value}");
        }
    }
}
