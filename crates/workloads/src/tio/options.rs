//! The parsed options of `tio`.

use bigiron_model::clock::Clock;
use bigiron_model::size::parse_bytes;
use bigiron_model::workload::Options;
use bigiron_sys::load::stamp::BLOCK;
use bigiron_workload::{OptionDef, choice, option};

/// Defaults of the bytes of all files and the random operations of all threads: on the wall clock, and on every other.
const BYTES: (u64, u64) = (256 << 20, 8 << 20);
const RANDOM: (u64, u64) = (4000, 1000);
const THREADS: std::ops::RangeInclusive<usize> = 1..=256;

pub const OPTIONS: &[OptionDef] = &[
    option("threads", "1,2,4,8", "Numbers of parallel threads; the phases run for each of them"),
    option(
        "size",
        "auto",
        "Bytes of all files together; `auto`: 256M on the wall clock, else 8M, and at least a block for each thread",
    ),
    option("block", "4K", "Bytes of an operation, a multiple of 4K"),
    option(
        "random",
        "auto",
        "Random operations of a phase, all threads together; `auto`: 4000 on the wall clock, else 1000",
    ),
    choice("access", &["buffered", "direct", "mmap"], "How files are accessed: the page cache, O_DIRECT, or a mapping"),
    choice("sync", &["off", "on"], "Whether every write is synchronous (O_SYNC)"),
    choice("writing", &["parallel", "sequential"], "Whether threads write in parallel or one after the other"),
    choice("cache", &["cold", "warm"], "Whether the files are dropped from the page cache before each read phase"),
];

/// How files are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Buffered,
    Direct,
    Mapped,
}

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub threads: Vec<usize>,
    pub bytes: u64,
    pub block: usize,
    pub random: u64,
    pub access: Access,
    pub sync: bool,
    /// Threads write one after the other.
    pub in_turn: bool,
    pub cold: bool,
}

impl Settings {
    /// Parses the options.
    ///
    /// # Errors
    /// The fault, and what would be right.
    pub fn parse(options: &Options, clock: Clock) -> Result<Self, String> {
        let text = |name: &str| {
            let default = OPTIONS.iter().find(|o| o.name == name).map_or("", |o| o.default);
            options.get(name).map_or(default, String::as_str)
        };
        let wrong = |name: &str, right: &str| format!("`tio.{name}` cannot be `{}`; it can be {right}", text(name));
        let by_clock = |(wall, other)| if clock == Clock::Wall { wall } else { other };
        let threads: Option<Vec<usize>> =
            text("threads").split(',').map(|w| w.trim().parse().ok().filter(|n| THREADS.contains(n))).collect();
        let threads = threads.filter(|t| t.is_sorted_by(|a, b| a < b));
        let threads = threads
            .ok_or_else(|| wrong("threads", "rising numbers from 1 to 256, separated by commas, such as `1,2,4,8`"))?;
        let block =
            parse_bytes(text("block")).ok().filter(|n| (1..=16 << 20).contains(n) && n.is_multiple_of(BLOCK as u64));
        let block = block.ok_or_else(|| wrong("block", "a multiple of 4K up to 16M"))?;
        let most = threads.last().copied().unwrap_or(1) as u64;
        let bytes = match text("size") {
            // An `auto` that is valid on only one clock would be refused on all.
            "auto" => Some(by_clock(BYTES).max(most * block)),
            size => parse_bytes(size).ok(),
        };
        let bytes = bytes.ok_or_else(|| wrong("size", "an amount such as `64M` or `2G`, or `auto`"))?;
        let random = match text("random") {
            "auto" => Some(by_clock(RANDOM)),
            n => n.parse().ok().filter(|n| (1..=1 << 32).contains(n)),
        };
        let random = random.ok_or_else(|| wrong("random", "a number, or `auto`"))?;
        let access = match text("access") {
            "direct" => Access::Direct,
            "mmap" => Access::Mapped,
            _ => Access::Buffered,
        };
        let sync = text("sync") == "on";
        if sync && access == Access::Mapped {
            return Err(
                "`tio.sync` cannot be `on` with `tio.access` `mmap`: O_SYNC does not apply to mappings; it can be `off`"
                    .to_owned(),
            );
        }
        if bytes / most < block || bytes > 1 << 44 {
            return Err(wrong("size", &format!("at least a block for each of {most} threads, and at most 16T")));
        }
        Ok(Self {
            threads,
            bytes,
            block: block as usize,
            random,
            access,
            sync,
            in_turn: text("writing") == "sequential",
            cold: text("cache") == "cold",
        })
    }

    /// Number of blocks of each file with this many threads.
    pub fn blocks(&self, threads: usize) -> u64 {
        self.bytes / threads as u64 / self.block as u64
    }

    /// Number of random operations of each thread.
    pub fn random_each(&self, threads: usize) -> u64 {
        self.random.div_ceil(threads as u64)
    }
}

/// The phases of a run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Write,
    RandomWrite,
    Read,
    RandomRead,
}

impl Phase {
    pub const ALL: [Self; 4] = [Self::Write, Self::RandomWrite, Self::Read, Self::RandomRead];

    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::RandomWrite => "random-write",
            Self::Read => "read",
            Self::RandomRead => "random-read",
        }
    }

    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::RandomWrite)
    }

    pub fn is_random(self) -> bool {
        matches!(self, Self::RandomWrite | Self::RandomRead)
    }

    /// The metric of its throughput with this many threads.
    pub fn rate(self, threads: usize) -> String {
        format!("{}-{threads}t", self.name())
    }

    /// The metric of its mean latency.
    pub fn latency(self, threads: usize) -> String {
        format!("{}-{threads}t-mean", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(settings: &[(&str, &str)]) -> Result<Settings, String> {
        let options = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::parse(&options, Clock::Exact)
    }

    #[test]
    fn defaults_and_shares() {
        let s = parse(&[]).unwrap();
        assert_eq!((s.threads.as_slice(), s.bytes, s.random), (&[1, 2, 4, 8][..], 8 << 20, 1000));
        assert_eq!((s.blocks(8), s.random_each(8), s.blocks(3)), (256, 125, 682));
        assert_eq!(Phase::RandomRead.rate(4), "random-read-4t");
    }

    #[test]
    fn the_default_size_has_room_for_large_blocks_on_every_clock() {
        let options = [("block", "16M")].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let bytes = |clock| Settings::parse(&options, clock).unwrap().bytes;
        assert_eq!((bytes(Clock::Wall), bytes(Clock::Exact)), (256 << 20, 128 << 20));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (name, value, right) in [
            ("threads", "4,2", "rising numbers"),
            ("threads", "0", "1 to 256"),
            ("block", "1000", "a multiple of 4K"),
            ("size", "16K", "a block for each of 8 threads"),
            ("size", "big", "or `auto`"),
            ("random", "0", "a number"),
        ] {
            let error = parse(&[(name, value)]).unwrap_err();
            assert!(
                error.starts_with(&format!("`tio.{name}` cannot be `{value}`")) && error.contains(right),
                "{error}"
            );
        }
        assert!(parse(&[("sync", "on"), ("access", "mmap")]).unwrap_err().contains("it can be `off`"));
    }
}
