//! The keys of a job file, table by table.
//!
//! Invariant: keys not listed here do not exist.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::forms::{acks, block, choice, limit, memory, pace, place, places, ramp, share, span, steps, stretch, work};
use super::{
    CacheSpec, Choice, ClassKind, ClassSpec, DataSpec, DataSync, EXTENT, Engine, JournalSpec, LogSync, Method, OPTIONS,
    PhaseSpec, Replacement, RequestSpec, RunSpec, TransactionSpec, Transport, Wake, Wire, WorkShare,
};
use bigiron_model::suggest;
use bigiron_workload::keys;
use bigiron_workload::keys::form::{Form, bytes, count, one_of, optional, percent, switch, time, word};
use bigiron_workload::keys::{Described, Explanation, Key, key};

/// Processes of a class.
pub const COUNT: RangeInclusive<u64> = 0..=20_000;
const MIB: u64 = EXTENT as u64;
/// Maximum size of a cache, and of all data files.
const BYTES_MAX: u64 = 1 << 40;

fn depth() -> Form<usize> {
    count(1..=4096)
}

fn message() -> Form<usize> {
    bytes(1..=1 << 20, 1)
}

/// From a sector to the maximum of one request of a block device.
fn request() -> Form<usize> {
    bytes(512..=4 << 20, 512)
}

/// The amount to sort or append.
fn bulk() -> Form<u64> {
    bytes(1 << 20..=1 << 40, 4096)
}

pub const RUN: &[Key<RunSpec>] = &[
    key!(RunSpec, "transactions": length, work(), "Transactions in the window, all processes together")
        .or_given("`auto`: 3000, or 60000 by the wall clock"),
    key!(RunSpec, "time": length, stretch(), "Length of the window, instead of `transactions`"),
    key!(RunSpec, "ramp": ramp, ramp(), "Unmeasured part before the window").or_given("a quarter of the window"),
    key!(RunSpec, "acks": acks, acks(), "Where each commit is first acknowledged").or_given("nowhere"),
    key!(RunSpec, "network": network = "loopback", word::<Wire>(), "Network that clients with `transport = \"tcp\"` use"),
];

pub const PHASE: &[Key<PhaseSpec>] = &[
    key!(PhaseSpec, "time": length, stretch(), "Length of the phase"),
    key!(PhaseSpec, "transactions": length, work(), "Transactions in the phase, instead of `time`"),
    key!(PhaseSpec, "pace": pace, optional(pace()), "Pace of the processes that execute transactions")
        .or_given("their own"),
];

pub const CACHE: &[Key<CacheSpec>] = &[
    key!(CacheSpec, "size": bytes, bytes(MIB..=BYTES_MAX, MIB), "Shared buffer cache")
        .or_given("32M, or 1M if no process executes transactions"),
    key!(CacheSpec, "memory": memory = "mmap", memory(), "Kind of memory of the cache"),
    key!(CacheSpec, "replacement": replacement = "clock", word::<Replacement>(),
        "How a buffer is chosen for replacement"),
    key!(CacheSpec, "dirty": dirty_percent = "25%", percent(1..=90),
        "Share of dirty buffers at which database writers start"),
    key!(CacheSpec, "prefault": prefault = "off", switch(),
        "Whether each process that executes transactions first touches the whole cache"),
];

pub const DATA: &[Key<DataSpec>] = &[
    key!(DataSpec, "files": files = "10", count(1..=4096), "Number of data files").shown(true),
    Key {
        read: |value, data: &mut DataSpec| {
            data.bytes = (bytes(data.unit()..=BYTES_MAX, data.unit()).read)(value)?;
            Ok(())
        },
        ..key!(DataSpec, "size": bytes, bytes(MIB..=BYTES_MAX, MIB), "Bytes of all data files together, whole MiB for each")
    }
    .or_derived("120M", |data| data.bytes = (120 << 20) / data.unit() * data.unit()),
    key!(DataSpec, "direct": direct = "on", switch(), "Whether data files bypass the page cache").shown(true),
    key!(DataSpec, "dontcache": dontcache = "off", switch(), "Whether the page cache drops blocks after use (RWF_DONTCACHE, Linux 6.14)"),
    key!(DataSpec, "sync": sync = "dsync", word::<DataSync>(), "How writes of blocks become durable").shown(true),
    key!(DataSpec, "places": places, places(), "Directories or block devices among which data files are distributed in turn")
        .or_given("the run's own directory"),
    Key {
        // Looked up when all places are known; a job with devices has it set.
        read: |value, _: &mut DataSpec| value.switch().map(drop),
        describe: |of| {
            let form = switch();
            let value = of.filter(|data| data.has_devices()).and_then(|_| (form.print)(&true));
            Described { value, values: form.values, words: form.words }
        },
        ..key!(DataSpec, "overwrite": direct, switch(), "Consent to lose the contents of block devices in `places`")
    }
    .or_given("off"),
];

pub const JOURNAL: &[Key<JournalSpec>] = &[
    key!(JournalSpec, "files": files = "2", count(2..=64), "Number of journals, which are written in turn").shown(true),
    key!(JournalSpec, "size": bytes = "4M", bytes(MIB..=1 << 36, MIB), "Bytes of each journal").shown(true),
    key!(JournalSpec, "direct": direct, switch(), "Whether journals bypass the page cache")
        .or_given("as `data.direct`"),
    key!(JournalSpec, "sync": sync = "dsync", word::<LogSync>(), "How redo becomes durable").shown(true),
    // A sector of a disk, or a page if direct I/O may need that.
    key!(JournalSpec, "block": block, block(), "Redo is written in multiples of this")
        .or_derived("4K, or 512 through the page cache", |j| j.block = if j.direct { 4096 } else { 512 }),
    key!(JournalSpec, "place": place, place(), "Directory of the journals").or_given("the run's own directory"),
];

pub const TRANSACTION: &[Key<TransactionSpec>] = &[
    key!(TransactionSpec, "weight": weight = "1", count(0..=1_000_000), "Relative frequency"),
    key!(TransactionSpec, "steps": steps, steps(), "Its steps, in order"),
];

/// Keys of every class except `kind`.
pub const CLASS: &[Key<ClassSpec>] = &[
    key!(ClassSpec, "count": count = "1", count(COUNT), "Processes of the class; for clients, pairs"),
    key!(ClassSpec, "threads": threads = "off", switch(), "Whether they are threads of one process"),
];

/// A key of classes that have a pace.
pub const PACED: &[Key<ClassSpec>] =
    &[key!(ClassSpec, "pace": pace = "closed", pace(), "When the next piece of work begins")];

macro_rules! engine {
    ($engine:ident) => {
        ClassKind::LogWriter { engine: $engine, .. }
            | ClassKind::DatabaseWriter { engine: $engine, .. }
            | ClassKind::Scanner { engine: $engine, .. }
            | ClassKind::Loader { engine: $engine, .. }
            | ClassKind::Requests(RequestSpec { engine: $engine, .. })
    };
}

/// Keys of classes that have an engine.
pub const ENGINE: &[Key<ClassKind>] = &[
    key!("io", engine!(e) => e.method, word::<Method>(), "How requests reach the kernel")
        .or_given("libaio; `sync` for plain requests"),
    key!("depth", engine!(e) => e.depth, depth(), "Requests in flight").or_derived("what suits the kind", |kind| {
        if let ClassKind::DatabaseWriter { engine, batch, .. } = kind {
            engine.depth = *batch;
        } else if let engine!(e) = kind
            && blocks(e.method)
        {
            e.depth = 1;
        }
    }),
    key!("submit", engine!(e) => e.batch, depth(), "Requests for each system call")
        .or_derived("all of them", |kind| {
            if let engine!(e) = kind {
                e.batch = e.depth;
            }
        })
        .shown(false),
    key!("registered", engine!(e) => e.registered, switch(), "io_uring: registered buffers and files").or("off"),
    key!("sqpoll", engine!(e) => e.sqpoll, switch(), "io_uring: a kernel thread takes the submissions").or("off"),
    key!("iopoll", engine!(e) => e.iopoll, switch(), "io_uring: completions are polled").or("off"),
];

/// Whether a method has only one request in flight.
pub fn blocks(method: Method) -> bool {
    matches!(method, Method::Sync | Method::Vectored)
}

/// A kind of process class.
pub struct KindDef {
    /// Its value before any of its keys is read.
    pub blank: ClassKind,
    /// Whether its processes start their work by themselves, at a pace.
    pub paced: bool,
    /// The keys that only this kind has.
    pub own: &'static [Key<ClassKind>],
}

impl KindDef {
    /// The kind's word in a job file.
    pub fn word(&self) -> &'static str {
        self.blank.word()
    }

    /// Whether it does I/O through an engine.
    pub fn has_engine(&self) -> bool {
        matches!(self.blank, engine!(_e))
    }

    /// Keys of the class.
    pub fn class(&self) -> impl Iterator<Item = &'static Key<ClassSpec>> + Clone {
        CLASS.iter().chain(if self.paced { PACED } else { &[] })
    }

    /// Keys of the kind.
    pub fn kind(&self) -> impl Iterator<Item = &'static Key<ClassKind>> + Clone {
        let engine: &[_] = if self.has_engine() { ENGINE } else { &[] };
        engine.iter().chain(self.own)
    }
}

/// The engine of a kind that reads ahead or writes behind, with `depth` requests in flight if the method allows it.
const fn engine(method: Method, depth: usize) -> Engine {
    Engine { method, depth, batch: depth, registered: false, sqpoll: false, iopoll: false }
}

const fn plain(own: &'static [Key<ClassKind>], blank: ClassKind) -> KindDef {
    KindDef { blank, paced: false, own }
}

const fn paced(own: &'static [Key<ClassKind>], blank: ClassKind) -> KindDef {
    KindDef { blank, paced: true, own }
}

/// Every kind.
pub const KINDS: &[KindDef] = &[
    paced(&[], ClassKind::Foreground),
    plain(
        &[
            key!(ClassKind::LogWriter, "group": group_bytes = "16M", bytes(512..=16 << 20, 512), "Most redo in one write"),
            key!(ClassKind::LogWriter, "group-wait": group_wait = "0", time(Duration::ZERO..=Duration::from_secs(1)),
                "How long it waits for more redo"),
            key!(ClassKind::LogWriter, "wake": wake = "post", word::<Wake>(),
                "How commits wake it and are told that they are durable"),
        ],
        ClassKind::LogWriter {
            engine: engine(Method::Libaio, 1),
            group_bytes: 0,
            group_wait: Duration::ZERO,
            wake: Wake::Post,
        },
    ),
    plain(
        &[
            key!(ClassKind::DatabaseWriter, "batch": batch, depth(),
                "Dirty blocks per batch")
            .or_derived("as `depth`", |kind| {
                if let ClassKind::DatabaseWriter { engine, batch, .. } = kind {
                    *batch = engine.depth;
                }
            }),
            key!(ClassKind::DatabaseWriter, "sorted": sorted = "on", switch(),
                "Whether they are written in the order of their addresses"),
        ],
        ClassKind::DatabaseWriter { engine: engine(Method::Libaio, 32), batch: 32, sorted: true },
    ),
    plain(
        &[key!(ClassKind::Checkpointer, "at": percent = "75%", percent(1..=99),
            "How full a journal is when it requests a checkpoint")
        .shown(true)],
        ClassKind::Checkpointer { percent: 0 },
    ),
    plain(
        &[
            key!(ClassKind::Scanner, "request": request = "1M", request(), "Bytes of a request").shown(true),
            key!(ClassKind::Scanner, "direct": direct, switch(),
                "Whether it bypasses the page cache")
            .or_given("as `data.direct`"),
            key!(ClassKind::Scanner, "work": work, share(),
                "How much it reads")
            .or_given("per 32 transactions; `free` if there are none"),
        ],
        // Read-ahead: while one extent is checked the next is being read.
        ClassKind::Scanner { engine: engine(Method::Libaio, 2), request: 0, direct: true, work: WorkShare::Free },
    ),
    plain(
        &[
            key!(ClassKind::Archiver, "request": request = "1M", request(), "Bytes of a request").shown(true),
            key!(ClassKind::Archiver, "limit": bytes_per_second, limit(), "Maximum bytes per second"),
        ],
        ClassKind::Archiver { request: 0, bytes_per_second: None },
    ),
    plain(
        &[
            key!(ClassKind::Sorter, "size": bytes = "16M", bulk(), "Bytes that each process sorts").shown(true),
            key!(ClassKind::Sorter, "memory": memory = "4M", bytes(64 << 10..=1 << 36, 4096),
                "Memory for sorting")
            .shown(true),
            key!(ClassKind::Sorter, "request": request = "256K", request(), "Bytes of a request").shown(true),
        ],
        ClassKind::Sorter { bytes: 0, memory: 0, request: 0 },
    ),
    plain(
        &[
            key!(ClassKind::Loader, "request": request = "1M", request(), "Bytes of a request").shown(true),
            key!(ClassKind::Loader, "size": bytes = "64M", bulk(), "Bytes that each process appends").shown(true),
        ],
        ClassKind::Loader { engine: engine(Method::Libaio, 4), request: 0, bytes: 0 },
    ),
    plain(
        &[
            key!(ClassKind::Backup, "request": request = "1M", request(), "Bytes of a request").shown(true),
            key!(ClassKind::Backup, "limit": bytes_per_second, limit(), "Maximum bytes per second"),
        ],
        ClassKind::Backup { request: 0, bytes_per_second: None },
    ),
    plain(
        &[
            key!(ClassKind::Idle, "touch": touch = "64", count(0..=1 << 32), "Blocks of the cache that it touches once")
                .shown(true),
            key!(ClassKind::Idle, "every": every = "1s", time(Duration::from_millis(1)..=Duration::from_secs(3600)),
                "How often it wakes")
            .shown(true),
        ],
        ClassKind::Idle { touch: 0, every: Duration::ZERO },
    ),
    paced(
        &[
            key!(ClassKind::Client, "transport": transport = "socket", word::<Transport>(), "How client and server communicate")
                .shown(true),
            key!(ClassKind::Client, "request": request = "256", message(), "Bytes that the client sends").shown(true),
            key!(ClassKind::Client, "reply": reply = "1K", message(), "Bytes that the server sends").shown(true),
        ],
        ClassKind::Client { transport: Transport::Socket, request: 0, reply: 0 },
    ),
    paced(
        &[
            key!("request", ClassKind::Requests(r) => r.bytes, request(), "Bytes of a request").or("8K").shown(true),
            key!("order", ClassKind::Requests(r) => r.random, one_of(&[("random", true), ("sequential", false)]),
                "Order of the requests")
            .or("random")
            .shown(true),
            key!("where", ClassKind::Requests(r) => r.choice, choice(), "Distribution of random requests over blocks").or("uniform"),
            key!("files", ClassKind::Requests(r) => r.files, span(), "Numbers of the data files they use")
                .or_given("all"),
            key!("read", ClassKind::Requests(r) => r.read_percent, percent(0..=100),
                "Share of reads; the rest are writes")
            .or("100%")
            .shown(true),
            key!("direct", ClassKind::Requests(r) => r.direct, switch(),
                "Whether they bypass the page cache")
            .or("on")
            .shown(true),
            key!("dsync", ClassKind::Requests(r) => r.dsync, switch(), "Whether each write is durable when it returns")
                .or("off"),
            key!("fdatasync", ClassKind::Requests(r) => r.fdatasync_every, count(0..=1_000_000),
                "Number of writes after which the file is synced; 0 is never")
            .or("0"),
            key!("verify", ClassKind::Requests(r) => r.verify, switch(),
                "Whether blocks are verified when read")
            .or("off"),
            key!("total", ClassKind::Requests(r) => r.count, optional(count(1..=1_000_000_000_000)),
                "Requests of the whole class")
            .or_given("until the window closes"),
        ],
        ClassKind::Requests(RequestSpec {
            engine: engine(Method::Sync, 1),
            bytes: 0,
            random: true,
            choice: Choice::Uniform,
            files: None,
            read_percent: 0,
            direct: true,
            dsync: false,
            fdatasync_every: 0,
            verify: false,
            count: None,
        }),
    ),
];

/// The description of an option or a key by its dotted name; a key of a process once for each of its meanings.
pub fn explain(dotted: &str) -> Vec<Explanation> {
    let parts: Vec<&str> = dotted.split('.').collect();
    let one = match parts[..] {
        ["run", key] => keys::explain(RUN, key),
        ["cache", key] => keys::explain(CACHE, key),
        ["data", key] => keys::explain(DATA, key),
        ["journal", key] => keys::explain(JOURNAL, key),
        ["phase", _, key] => keys::explain(PHASE, key),
        ["transaction", _, key] => keys::explain(TRANSACTION, key),
        ["process", _, "kind"] => Some(Explanation {
            summary: "Kind of the processes' work",
            values: suggest::list(KINDS.iter().map(KindDef::word)),
            words: KINDS.iter().map(KindDef::word).collect(),
            default: "",
        }),
        ["process", _, key] => {
            let common = [CLASS, PACED].into_iter().find_map(|all| keys::explain(all, key));
            let mut all: Vec<_> = common.or_else(|| keys::explain(ENGINE, key)).into_iter().collect();
            all.extend(KINDS.iter().filter_map(|kind| keys::explain(kind.own, key)));
            all.dedup();
            return all;
        }
        [name] => keys::explain_option(OPTIONS, name),
        _ => None,
    };
    one.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_model::document::Table;

    fn defaults_are_values<T: Clone + 'static>(keys: &[Key<T>], blank: &T) {
        keys::read_table(keys, &Table::empty(""), &mut blank.clone()).unwrap();
    }

    #[test]
    fn every_key_of_a_kind_has_a_default_that_is_one_of_its_values() {
        for kind in KINDS {
            defaults_are_values(ENGINE, &kind.blank);
            defaults_are_values(kind.own, &kind.blank);
        }
    }

    #[test]
    fn the_page_names_every_key_and_its_default() {
        let page = include_str!("../../../../docs/reference/dbsim-job.md");
        let row = |start: String| {
            page.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no row `{start}`"))
        };
        for (table, names) in [
            ("run", keys::names(RUN)),
            ("cache", keys::names(CACHE)),
            ("data", keys::names(DATA)),
            ("journal", keys::names(JOURNAL)),
        ] {
            for name in names {
                assert!(page.contains(&format!("`{table}.{name}`")), "{table}.{name}");
                assert!(!explain(&format!("{table}.{name}")).is_empty(), "{table}.{name}");
            }
        }
        for kind in KINDS {
            let row = row(format!("| `{}` |", kind.word()));
            for key in kind.own {
                assert!(row.contains(&format!("`{}`", key.name)), "{}: {}", kind.word(), key.name);
                let is_number = key.default.starts_with(|c: char| c.is_ascii_digit());
                assert!(!is_number || row.contains(key.default), "{}: {} is {}", kind.word(), key.name, key.default);
            }
        }
    }
}
