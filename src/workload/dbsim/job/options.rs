//! The job that the workload's options describe.

use std::time::Duration;

use super::{
    Amount, CacheSpec, Choice, ClassSpec, DataSpec, DataSync, EXTENT, Engine, Job, JournalSpec, Kind, Length, LogSync,
    Memory, Method, Pace, Replacement, Run, Share, Step, TransactionSpec, Wake,
};
use crate::workload::dbsim::block::BLOCK;
use crate::workload::{OptionDef, Options};

/// Number of data files.
const DATA_FILES: usize = 10;
/// Number of journals, written in turn.
const JOURNALS: usize = 2;
/// Block gets of a transaction.
const GETS: u32 = 8;
/// Transactions for each extent that the scanner reads: its work is a fixed share of the foregrounds', whatever their speed.
const TRANSACTIONS_PER_SCAN: u64 = 32;
/// Blocks that the database writer has in flight at most.
const WRITE_DEPTH: usize = 32;

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

impl Job {
    /// The job that complete `options` describe; the error says what would be right.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let text = |name: &str| options.get(name).map(String::as_str).ok_or(format!("`dbsim.{name}` is missing"));
        let method = match text("io")? {
            "sync" => Method::Sync,
            "libaio" => Method::Libaio,
            "uring" => Method::Uring,
            other => return Err(format!("`dbsim.io` cannot be `{other}`; it can be sync, libaio, uring")),
        };
        let direct = switch("direct", text("direct")?)?;
        let (data_sync, log_sync) = match text("sync")? {
            "dsync" => (DataSync::Dsync, LogSync::Dsync),
            "fdatasync" => (DataSync::Fdatasync, LogSync::Fdatasync),
            other => return Err(format!("`dbsim.sync` cannot be `{other}`; it can be dsync, fdatasync")),
        };
        let processes = number("processes", text("processes")?, 1, 1000)? as usize;
        let length = match text("transactions")? {
            "auto" => Length::Auto,
            n => Length::Transactions(
                number("transactions", n, 1, 1_000_000_000).map_err(|e| format!("{e}, or `auto`"))?,
            ),
        };
        let write_percent = number("write", text("write")?, 1, 100)? as u32;
        let scan = switch("scan", text("scan")?)?;
        let engine = |depth| Engine { method, depth, batch: depth, ..Engine::default() };
        let class = |name: &str, count, kind| ClassSpec {
            name: name.to_owned(),
            count,
            threads: false,
            pace: Pace::Closed { think: Duration::ZERO },
            kind,
        };
        let mut classes = vec![
            class("foreground", processes, Kind::Foreground),
            class(
                "log-writer",
                1,
                Kind::LogWriter {
                    engine: engine(1),
                    group_bytes: 16 * EXTENT,
                    group_wait: Duration::ZERO,
                    wake: Wake::Post,
                },
            ),
            class(
                "database-writer",
                1,
                Kind::DatabaseWriter { engine: engine(WRITE_DEPTH), batch: WRITE_DEPTH, sorted: true },
            ),
        ];
        if scan {
            // Read-ahead: while one extent is checked the next is on its way.
            let engine = engine(if method == Method::Sync { 1 } else { 2 });
            let work = Share::PerTransactions(TRANSACTIONS_PER_SCAN);
            classes.push(class("scanner", 1, Kind::Scanner { engine, request: EXTENT, direct, work }));
        }
        let job = Self {
            name: "orasim".to_owned(),
            run: Run { length, ramp: None, phases: Vec::new(), acks: None },
            cache: CacheSpec {
                bytes: size("cache", text("cache")?, EXTENT as u64, 1 << 35)?,
                memory: Memory::Mmap,
                replacement: Replacement::Clock,
                dirty_percent: 25,
            },
            data: DataSpec {
                files: DATA_FILES,
                bytes: size("data", text("data")?, DATA_FILES as u64 * EXTENT as u64, 1 << 36)?,
                direct,
                sync: data_sync,
                places: Vec::new(),
            },
            journal: JournalSpec {
                files: JOURNALS,
                bytes: size("journal", text("journal")?, EXTENT as u64, 1 << 32)?,
                direct,
                sync: log_sync,
                // A sector of a disk, or a page where direct I/O may want that.
                block: if direct { 4096 } else { 512 },
                place: None,
            },
            transactions: vec![TransactionSpec {
                name: "update".to_owned(),
                weight: 1,
                steps: vec![
                    Step::Read { count: GETS, choice: Choice::Zipf(0.9) },
                    Step::Dirty(Amount::Percent(write_percent)),
                    Step::Commit,
                ],
            }],
            classes,
        };
        job.fits()?;
        Ok(job)
    }

    fn fits(&self) -> Result<(), String> {
        let processes = self.transactors();
        let cache_min = (processes as u64 * 2 * self.gets_max() as u64 * BLOCK as u64).next_multiple_of(EXTENT as u64);
        let journal_min = (4 * self.log_buffer_bytes() as u64).next_multiple_of(EXTENT as u64);
        if self.cache.bytes * 2 > self.data.bytes {
            Err(format!(
                "`dbsim.cache` is more than half of `dbsim.data`, so that hardly a block would be read; at most {}",
                human((self.data.bytes / 2) >> 20 << 20)
            ))
        } else if self.cache.bytes < cache_min {
            Err(format!("`dbsim.cache` is too small for {processes} processes; at least {}", human(cache_min)))
        } else if self.journal.bytes < journal_min {
            Err(format!("`dbsim.journal` is too small for {processes} processes; at least {}", human(journal_min)))
        } else {
            Ok(())
        }
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
    use crate::clock::Clock;

    fn job(settings: &[(&str, &str)]) -> Result<Job, String> {
        let mut options: Options = OPTIONS.iter().map(|o| (o.name.to_owned(), o.default.to_owned())).collect();
        options.extend(settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        Job::parse(&options)
    }

    #[test]
    fn the_default_job_is_whole() {
        let job = job(&[]).unwrap();
        assert_eq!((job.blocks(), job.blocks_per_file(), job.buffers()), (15_360, 1_536, 4_096));
        assert_eq!((job.transactions(Clock::Exact), job.ramp(Clock::Exact)), (Some(3_000), Some(750)));
        assert_eq!(job.transactions(Clock::Wall), Some(60_000));
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
