//! The tables `[process.NAME]`: what each kind of process can be told.
//!
//! Invariant: [`KINDS`] lists every key that a kind reads, and no other.

use std::time::Duration;

use super::take;
use super::units;
use super::words::Word;
use super::{ClassSpec, Engine, Kind, Method, Pace, Requests, Share, Transport, Wake};
use crate::document::Table;
use crate::refusal::Refusal;
use crate::suggest;

/// Requests are from a sector to what one request of a block device is at most.
pub const REQUEST: std::ops::RangeInclusive<u64> = 512..=4 << 20;
/// Processes of a class.
pub const COUNT: std::ops::RangeInclusive<u64> = 0..=20_000;
/// Dirty blocks that a database writer takes at once, if nothing is said.
const BATCH: u64 = 32;
/// Transactions for each request of a scanner, if nothing is said.
const TRANSACTIONS_PER_SCAN: u64 = 32;

/// Keys of every class.
const COMMON: &[&str] = &["kind", "count", "threads"];
/// Keys of an engine.
const ENGINE: &[&str] = &["io", "depth", "submit", "registered", "sqpoll", "iopoll"];

/// Kinds: word, whether it has an engine, its own keys.
pub const KINDS: &[(&str, bool, &[&str])] = &[
    ("foreground", false, &["pace"]),
    ("log-writer", true, &["group", "group-wait", "wake"]),
    ("database-writer", true, &["batch", "sorted"]),
    ("checkpointer", false, &["at"]),
    ("scanner", true, &["request", "direct", "work"]),
    ("archiver", false, &["request", "limit"]),
    ("sorter", false, &["size", "memory", "request"]),
    ("loader", true, &["request", "size"]),
    ("backup", false, &["request", "limit"]),
    ("idle", false, &["touch", "every"]),
    ("client", false, &["pace", "transport", "request", "reply"]),
    (
        "requests",
        true,
        &["pace", "request", "order", "where", "read", "direct", "dsync", "fdatasync", "verify", "total", "files"],
    ),
];

/// Every key that a class of some kind has.
pub fn keys() -> Vec<&'static str> {
    let mut keys = [COMMON, ENGINE].concat();
    keys.extend(KINDS.iter().flat_map(|(_, _, own)| own.iter()));
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Whether the kind of that word does I/O through an engine.
pub fn has_engine(kind: &str) -> bool {
    KINDS.iter().any(|(word, engine, _)| *word == kind && *engine)
}

/// What a class takes from the rest of the job.
pub struct Surroundings {
    /// `data.direct`.
    pub direct: bool,
    /// Whether any class does transactions.
    pub transacts: bool,
}

/// The class that `table` describes; `None` if it has no processes. `name` is the class's.
pub fn read(name: &str, table: &Table, around: &Surroundings) -> Result<Option<ClassSpec>, Refusal> {
    let Some(kind) = table.get("kind") else {
        return Err(Refusal::new(format!(
            "Process `{name}` has no `kind`; it can be {}",
            suggest::list(KINDS.iter().map(|(word, ..)| *word))
        )));
    };
    let word = kind.string()?;
    let Some((word, engine, own)) = KINDS.iter().find(|(w, ..)| *w == word) else {
        let words = KINDS.iter().map(|(word, ..)| *word);
        return Err(match suggest::nearest(&word, words.clone()) {
            Some(near) => kind.refuse(format!("`{}` cannot be `{word}`; did you mean `{near}`?", kind.key())),
            None => kind.cannot_be(suggest::list(words)),
        });
    };
    let known = [COMMON, if *engine { ENGINE } else { &[] }, own].concat();
    table.only(&known)?;
    let count = take::count(table, "count", 1, COUNT)? as usize;
    let threads = take::switch(table, "threads", false)?;
    let pace = pace(table)?.unwrap_or(Pace::Closed { think: Duration::ZERO });
    let kind = own_keys(word, table, around)?;
    Ok((count > 0).then(|| ClassSpec { name: name.to_owned(), count, threads, pace, kind }))
}

/// The key `pace` of a table, if it has one.
pub fn pace(table: &Table) -> Result<Option<Pace>, Refusal> {
    let Some(value) = table.get("pace") else { return Ok(None) };
    units::pace(&value.string()?).map(Some).ok_or_else(|| value.cannot_be(units::A_PACE))
}

fn own_keys(word: &str, table: &Table, around: &Surroundings) -> Result<Kind, Refusal> {
    let request = |default: u64| take::bytes(table, "request", default, REQUEST, 512).map(|n| n as usize);
    Ok(match word {
        "foreground" => Kind::Foreground,
        "log-writer" => Kind::LogWriter {
            engine: engine(table, Method::Libaio, |_| 1)?,
            group_bytes: take::bytes(table, "group", 16 << 20, 512..=16 << 20, 512)? as usize,
            group_wait: take::time(table, "group-wait", Duration::ZERO, Duration::ZERO..=Duration::from_secs(1))?,
            wake: take::word(table, "wake", Wake::Post)?,
        },
        "database-writer" => {
            let depth = take::count(table, "depth", BATCH, DEPTH)?;
            let batch = take::count(table, "batch", depth, 1..=4096)?;
            Kind::DatabaseWriter {
                engine: engine(table, Method::Libaio, |_| batch)?,
                batch: batch as usize,
                sorted: take::switch(table, "sorted", true)?,
            }
        }
        "checkpointer" => Kind::Checkpointer { percent: take::percent(table, "at", 75, 1..=99)? },
        "scanner" => Kind::Scanner {
            // Read-ahead: while one extent is checked the next is on its way.
            engine: engine(table, Method::Libaio, |method| if blocks(method) { 1 } else { 2 })?,
            request: request(1 << 20)?,
            direct: take::switch(table, "direct", around.direct)?,
            work: work(table, around.transacts)?,
        },
        "archiver" => Kind::Archiver { request: request(1 << 20)?, bytes_per_second: limit(table)? },
        "sorter" => Kind::Sorter {
            bytes: take::bytes(table, "size", 16 << 20, 1 << 20..=1 << 40, 4096)?,
            memory: take::bytes(table, "memory", 4 << 20, 64 << 10..=1 << 36, 4096)?,
            request: request(256 << 10)?,
        },
        "loader" => Kind::Loader {
            engine: engine(table, Method::Libaio, |method| if blocks(method) { 1 } else { 4 })?,
            request: request(1 << 20)?,
            bytes: take::bytes(table, "size", 64 << 20, 1 << 20..=1 << 40, 4096)?,
        },
        "backup" => Kind::Backup { request: request(1 << 20)?, bytes_per_second: limit(table)? },
        "idle" => Kind::Idle {
            touch: take::count(table, "touch", 64, 0..=1 << 32)? as usize,
            every: take::time(table, "every", Duration::from_secs(1), EVERY)?,
        },
        "client" => Kind::Client {
            transport: take::word(table, "transport", Transport::Socket)?,
            request: take::bytes(table, "request", 256, MESSAGE, 1)? as usize,
            reply: take::bytes(table, "reply", 1024, MESSAGE, 1)? as usize,
        },
        _ => Kind::Requests(requests(table)?),
    })
}

const DEPTH: std::ops::RangeInclusive<u64> = 1..=4096;
const MESSAGE: std::ops::RangeInclusive<u64> = 1..=1 << 20;
const EVERY: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3600);

/// Whether a method has one request in flight and no more.
pub fn blocks(method: Method) -> bool {
    matches!(method, Method::Sync | Method::Vectored)
}

fn engine(table: &Table, default: Method, depth: impl Fn(Method) -> u64) -> Result<Engine, Refusal> {
    let method = take::word(table, "io", default)?;
    let depth = take::count(table, "depth", depth(method), DEPTH)?;
    Ok(Engine {
        method,
        depth: depth as usize,
        batch: take::count(table, "submit", depth, DEPTH)? as usize,
        registered: take::switch(table, "registered", false)?,
        sqpoll: take::switch(table, "sqpoll", false)?,
        iopoll: take::switch(table, "iopoll", false)?,
    })
}

/// `free`, or `per 32 transactions`.
fn work(table: &Table, transacts: bool) -> Result<Share, Refusal> {
    let Some(value) = table.get("work") else {
        return Ok(if transacts { Share::PerTransactions(TRANSACTIONS_PER_SCAN) } else { Share::Free });
    };
    let text = value.string()?;
    let wrong = || value.cannot_be("`free`, or a request for so many transactions: `per 32 transactions`");
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        ["free"] => Ok(Share::Free),
        ["per", n, "transactions"] => {
            n.parse().ok().filter(|n| (1..=1_000_000_000).contains(n)).map(Share::PerTransactions).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

fn limit(table: &Table) -> Result<Option<u64>, Refusal> {
    let Some(value) = table.get("limit") else { return Ok(None) };
    let right = "an amount for each second, such as `200M/s`";
    units::bytes_per_second(&value.string()?).map(Some).ok_or_else(|| value.cannot_be(right))
}

/// Whether plain requests go to random places.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Random(bool);

impl Word for Random {
    const ALL: &'static [(&'static str, Self)] = &[("random", Random(true)), ("sequential", Random(false))];
}

/// `2` or `0..3`: numbers of data files.
fn span(table: &Table) -> Result<Option<(usize, usize)>, Refusal> {
    let Some(value) = table.get("files") else { return Ok(None) };
    let text = value.string()?;
    let (first, last) = text.split_once("..").unwrap_or((&text, &text));
    let numbers = first.trim().parse().ok().zip(last.trim().parse().ok()).filter(|(first, last)| first <= last);
    numbers.map(Some).ok_or_else(|| value.cannot_be("numbers of data files from 0 on, such as `2` or `0..3`"))
}

fn requests(table: &Table) -> Result<Requests, Refusal> {
    let choice = match table.get("where") {
        Some(value) => value.string()?.parse().map_err(|e: String| value.refuse(e))?,
        None => super::Choice::Uniform,
    };
    let total = take::count(table, "total", 0, 1..=1_000_000_000_000)?;
    let engine = engine(table, Method::Sync, |_| 1)?;
    Ok(Requests {
        engine,
        bytes: take::bytes(table, "request", 8192, REQUEST, 512)? as usize,
        random: take::word(table, "order", Random(true))?.0,
        choice,
        files: span(table)?,
        read_percent: take::percent(table, "read", 100, 0..=100)?,
        direct: take::switch(table, "direct", true)?,
        dsync: take::switch(table, "dsync", false)?,
        fdatasync_every: take::count(table, "fdatasync", 0, 0..=1_000_000)? as u32,
        verify: take::switch(table, "verify", false)?,
        count: (total > 0).then_some(total),
    })
}
