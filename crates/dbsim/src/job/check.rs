//! Errors of a job as a whole, although each of its values may be valid.
//!
//! Invariant: depends only on the job, not on files, devices or the kernel.

use super::keys::{COUNT, blocks as blocks_in_each};
use super::{
    Amount, ClassKind, ClassSpec, EXTENT, Engine, Job, Length, LogSync, Method, RequestSpec, Step, TransactionSpec,
    Transport, Wire, WorkShare,
};
use crate::block::BLOCK;
use bigiron_model::size::print_bytes;
use bigiron_workload::units::Pace;

/// A job cannot run: the dotted name of the key at fault, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    pub at: String,
    pub message: String,
}

fn complain<T>(at: impl Into<String>, message: impl Into<String>) -> Result<T, Complaint> {
    Err(Complaint { at: at.into(), message: message.into() })
}

fn ensure(fine: bool, at: impl Into<String>, message: impl FnOnce() -> String) -> Result<(), Complaint> {
    if fine { Ok(()) } else { complain(at, message()) }
}

/// Refuses jobs that could not run on any machine.
pub fn check(job: &Job) -> Result<(), Complaint> {
    check_processes(job)?;
    check_transactions(job)?;
    check_length(job)?;
    ensure(!(job.data.dontcache && job.data.direct), "data.dontcache", || {
        "Direct I/O bypasses the page cache; set `data.direct` to `off`, or omit `data.dontcache`".to_owned()
    })?;
    for class in &job.classes {
        check_class(job, class)?;
    }
    check_sizes(job)
}

fn of_kind<'j>(job: &'j Job, word: &'static str) -> impl Iterator<Item = &'j ClassSpec> {
    job.classes.iter().filter(move |c| c.kind.word() == word)
}

fn key(class: &ClassSpec, key: &str) -> String {
    format!("process.{}.{key}", class.name)
}

/// The classes of processes, and their dependencies.
fn check_processes(job: &Job) -> Result<(), Complaint> {
    ensure(!job.classes.is_empty(), "process", || {
        "A job needs at least one process; add a table such as `[process.foreground]`".to_owned()
    })?;
    let total: usize = job.classes.iter().map(|c| c.count).sum();
    let tcp = |c: &ClassSpec| matches!(c.kind, ClassKind::Client { transport: Transport::Tcp, .. });
    ensure(job.run.network == Wire::Loopback || job.classes.iter().any(tcp), "run.network", || {
        "No process of the job uses a network; give a process of kind `client` `transport = \"tcp\"`".to_owned()
    })?;
    ensure(total <= *COUNT.end() as usize, "process", || {
        format!("{total} processes are too many; the maximum is {}", COUNT.end())
    })?;
    for (word, what) in [("log-writer", "log writer"), ("checkpointer", "checkpointer"), ("archiver", "archiver")] {
        let mut classes = of_kind(job, word);
        let first = classes.next();
        if let Some(second) = classes.next() {
            return complain(
                key(second, "kind"),
                format!("A job has only one {what}, but `{}` is another", second.name),
            );
        }
        if let Some(class) = first.filter(|c| c.count > 1) {
            return complain(key(class, "count"), format!("A job has only one {what}, not {}", class.count));
        }
    }
    let transactor = job.classes.iter().find(|c| c.kind.transacts());
    let needs = |word: &'static str, other: &'static str, why: &str| match (
        of_kind(job, word).next(),
        of_kind(job, other).next(),
    ) {
        (Some(class), None) => complain(
            key(class, "kind"),
            format!(
                "Process `{}` has no {}: {why}; add a process of kind `{other}`",
                class.name,
                other.replace('-', " ")
            ),
        ),
        _ => Ok(()),
    };
    let lasting = |s: &Step| matches!(s, Step::Dirty(_) | Step::Redo { .. } | Step::Commit | Step::Rollback);
    if job.transactions.iter().flat_map(|t| &t.steps).any(lasting) {
        for word in ["foreground", "client"] {
            needs(word, "log-writer", "a commit waits until its redo is on disk")?;
        }
    }
    needs("log-writer", "database-writer", "a journal is reused when the blocks it covers are in the data files")?;
    needs("checkpointer", "database-writer", "nothing would write the blocks of its checkpoints")?;
    needs("archiver", "log-writer", "there is nothing to copy")?;
    if let (None, Some(writer)) = (transactor, of_kind(job, "log-writer").chain(of_kind(job, "database-writer")).next())
    {
        return complain(
            key(writer, "kind"),
            format!("Process `{}` has nothing to write: no process executes transactions", writer.name),
        );
    }
    Ok(())
}

fn check_transactions(job: &Job) -> Result<(), Complaint> {
    match (job.transactors(), job.transactions.first()) {
        (0, Some(t)) => {
            return complain(
                format!("transaction.{}", t.name),
                format!(
                    "No process executes the transaction `{}`; add a process of kind `foreground` or `client`",
                    t.name
                ),
            );
        }
        (1.., None) => {
            return complain(
                "process",
                "The job has no transactions; add a table such as `[transaction.update]` with `steps`",
            );
        }
        _ => {}
    }
    job.transactions.iter().try_for_each(check_transaction)
}

fn check_transaction(t: &TransactionSpec) -> Result<(), Complaint> {
    let at = || format!("transaction.{}.steps", t.name);
    ensure(!t.steps.is_empty(), at(), || format!("Transaction `{}` has no steps; add some", t.name))?;
    // Blocks got since the last change, and whether there are uncommitted changes.
    let (mut got, mut open) = (0, false);
    for step in &t.steps {
        match step {
            Step::Read { count, .. } => got += count,
            Step::Dirty(amount) => {
                ensure(got > 0, at(), || {
                    format!("`{step}` in transaction `{}` has no block to change; `read` first", t.name)
                })?;
                if let Amount::Count(n) = amount {
                    ensure(*n <= got, at(), || {
                        format!(
                            "`{step}` in transaction `{}` changes more blocks than the {got} that were read",
                            t.name
                        )
                    })?;
                }
                (got, open) = (0, true);
            }
            Step::Redo { .. } => open = true,
            Step::Commit | Step::Rollback => open = false,
            Step::Cpu(_) | Step::Think(_) | Step::Sort(_) => {}
        }
    }
    ensure(!open, at(), || format!("Transaction `{}` leaves changes open; end it with `commit` or `rollback`", t.name))
}

fn check_length(job: &Job) -> Result<(), Complaint> {
    if job.transactors() > 0 {
        return Ok(());
    }
    let endless = |c: &&ClassSpec| match &c.kind {
        // If some classes are counted, the others are background load.
        ClassKind::Requests(r) => r.count.is_none() && !crate::requests::counted(job),
        ClassKind::Sorter { .. } | ClassKind::Loader { .. } | ClassKind::Backup { .. } => false,
        _ => true,
    };
    match (job.run.length, job.classes.iter().find(endless)) {
        (Length::Transactions(_), _) => complain(
            "run.transactions",
            "No process executes transactions; set the length of the window with `run.time`",
        ),
        (Length::Auto, Some(class)) => {
            let total = if matches!(class.kind, ClassKind::Requests(_)) { " or `total`" } else { "" };
            complain(
                format!("process.{}", class.name),
                format!(
                    "Process `{}` would never end: no process executes transactions; set `run.time`{total}",
                    class.name
                ),
            )
        }
        _ => match job.run.ramp {
            Some(Length::Transactions(n)) if n > 0 => {
                complain("run.ramp", "No process executes transactions; the ramp must be a time, such as `5s`")
            }
            _ => Ok(()),
        },
    }
}

fn check_class(job: &Job, class: &ClassSpec) -> Result<(), Complaint> {
    let blocks = |name: &str, bytes: usize| {
        ensure(bytes.is_multiple_of(BLOCK), key(class, name), || {
            format!(
                "`{}` is {} for process `{}`, which works on whole blocks; make it a multiple of 8K",
                name,
                print_bytes(bytes as u64),
                class.name
            )
        })
    };
    let divides = |name: &str, request: usize| {
        let file = job.data.bytes / job.data.files as u64;
        ensure(file.is_multiple_of(request as u64), key(class, name), || {
            format!(
                "A data file of {} is not a multiple of `{name}`, {}",
                print_bytes(file),
                print_bytes(request as u64)
            )
        })
    };
    match &class.kind {
        ClassKind::Foreground | ClassKind::Checkpointer { .. } => Ok(()),
        ClassKind::LogWriter { engine, group_bytes, .. } => {
            check_engine(class, engine, job.journal.direct, "journal.direct")?;
            ensure(engine.depth == 1, key(class, "depth"), || {
                format!(
                    "The log is written in order, one write after the other; `depth` must be 1 for process `{}`",
                    class.name
                )
            })?;
            ensure(group_bytes.is_multiple_of(job.journal.block), key(class, "group"), || {
                format!("`group` is not a multiple of `journal.block`, {}", print_bytes(job.journal.block as u64))
            })?;
            ensure(job.journal.sync != LogSync::Linked || engine.method == Method::Uring, "journal.sync", || {
                format!("`linked` requests exist in io_uring only; give process `{}` `io = \"uring\"`", class.name)
            })?;
            ensure(
                !engine.iopoll || matches!(job.journal.sync, LogSync::Dsync | LogSync::RwfDsync),
                key(class, "iopoll"),
                || "A polled ring does not sync; with `iopoll` make `journal.sync` `dsync` or `rwf-dsync`".to_owned(),
            )
        }
        ClassKind::DatabaseWriter { engine, .. } => check_engine(class, engine, job.data.direct, "data.direct"),
        ClassKind::Scanner { engine, request, direct, work } => {
            check_engine(class, engine, *direct, &key(class, "direct"))?;
            blocks("request", *request)?;
            divides("request", *request)?;
            ensure(*work == WorkShare::Free || job.transactors() > 0, key(class, "work"), || {
                "No process executes transactions; the scanner's work can only be `free`".to_owned()
            })
        }
        ClassKind::Archiver { request, .. } => ensure(request.is_multiple_of(4096), key(class, "request"), || {
            "An archiver's `request` must be a multiple of 4K".to_owned()
        }),
        ClassKind::Sorter { bytes, memory, request } => {
            ensure(request.is_multiple_of(4096), key(class, "request"), || {
                "A sorter's `request` must be a multiple of 4K".to_owned()
            })?;
            ensure(memory <= bytes, key(class, "memory"), || {
                "With `memory` for the whole sort nothing would be spilled; make it less than `size`".to_owned()
            })?;
            // Merging needs a buffer for each run and one for the output.
            let runs = bytes.div_ceil(*memory);
            let least = (runs + 1) * *request as u64;
            ensure(*memory >= least, key(class, "memory"), || {
                format!(
                    "{runs} sorted runs cannot be merged at once in {}; make `memory` at least {}, or `request` smaller",
                    print_bytes(*memory),
                    print_bytes(least)
                )
            })
        }
        ClassKind::Loader { engine, request, bytes } => {
            check_engine(class, engine, job.data.direct, "data.direct")?;
            blocks("request", *request)?;
            ensure(bytes.is_multiple_of(*request as u64), key(class, "size"), || {
                format!("`size` is not a multiple of `request`, {}", print_bytes(*request as u64))
            })
        }
        ClassKind::Backup { request, .. } => {
            blocks("request", *request)?;
            divides("request", *request)
        }
        ClassKind::Idle { touch, .. } => ensure(*touch <= job.buffers(), key(class, "touch"), || {
            format!("The cache has {} buffers; `touch` can be at most that many", job.buffers())
        }),
        ClassKind::Client { .. } => ensure(!class.threads, key(class, "threads"), || {
            "A client and its server are processes; `threads` is not possible".to_owned()
        }),
        ClassKind::Requests(requests) => check_requests(job, class, requests),
    }
}

fn check_engine(class: &ClassSpec, engine: &Engine, direct: bool, direct_key: &str) -> Result<(), Complaint> {
    let name = &class.name;
    ensure(engine.method != Method::Null || matches!(class.kind, ClassKind::Requests(_)), key(class, "io"), || {
        format!("`null` stores nothing; process `{name}` needs an engine that does I/O")
    })?;
    // A database writer hands over a batch, in flight or not.
    let batches = matches!(class.kind, ClassKind::DatabaseWriter { .. });
    ensure(batches || !blocks_in_each(engine.method) || engine.depth == 1, key(class, "depth"), || {
        format!(
            "Process `{name}` blocks in each request; with more than one in flight it needs `io` `threads`, `libaio` or `uring`"
        )
    })?;
    ensure(engine.batch <= engine.depth, key(class, "submit"), || {
        format!("Process `{name}` has at most {} requests in flight; `submit` cannot be {}", engine.depth, engine.batch)
    })?;
    for (set, word) in [(engine.registered, "registered"), (engine.sqpoll, "sqpoll"), (engine.iopoll, "iopoll")] {
        ensure(!set || engine.method == Method::Uring, key(class, word), || {
            format!("`{word}` exists only in io_uring; give process `{name}` `io = \"uring\"` or omit it")
        })?;
    }
    ensure(!engine.iopoll || direct, key(class, "iopoll"), || {
        format!("Only direct I/O can be polled; make `{direct_key}` `on`, or omit `iopoll`")
    })
}

fn check_requests(job: &Job, class: &ClassSpec, r: &RequestSpec) -> Result<(), Complaint> {
    check_engine(class, &r.engine, r.direct, &key(class, "direct"))?;
    let file = job.data.bytes / job.data.files as u64;
    ensure(r.bytes as u64 <= file, key(class, "request"), || {
        format!("A request of {} does not fit a data file of {}", print_bytes(r.bytes as u64), print_bytes(file))
    })?;
    let writes = r.read_percent < 100;
    ensure(
        writes || !(r.dsync || r.fdatasync_every > 0),
        key(class, if r.dsync { "dsync" } else { "fdatasync" }),
        || format!("Process `{}` writes nothing to sync; make `read` less than 100%", class.name),
    )?;
    ensure(!(r.engine.iopoll && r.fdatasync_every > 0), key(class, "fdatasync"), || {
        "A polled ring does not sync; use `dsync` with `iopoll`".to_owned()
    })?;
    ensure(!writes || job.transactors() == 0, key(class, "read"), || {
        format!(
            "Plain writes of process `{}` would destroy the blocks that foregrounds work on; make `read` 100%, or omit them",
            class.name
        )
    })?;
    let open = matches!(class.pace, Pace::Open { .. });
    ensure(!open || r.engine.depth == 1, key(class, "depth"), || {
        format!(
            "Process `{}` has a rate, so each of its processes has one request in flight; use more processes for more",
            class.name
        )
    })?;
    if let Some((other, o)) = verifier(job).filter(|(other, _)| other.name != class.name) {
        ensure(!r.verify || r.bytes == o.bytes, key(class, "request"), || {
            format!("Processes `{}` and `{}` verify the same blocks; make `request` the same", other.name, class.name)
        })?;
        ensure(r.verify || !writes, key(class, "verify"), || {
            format!(
                "Process `{}` would overwrite what `{}` verifies; make its `verify` true too",
                class.name, other.name
            )
        })?;
    }
    ensure(!r.verify || r.engine.method != Method::Null || r.read_percent == 0, key(class, "verify"), || {
        "`null` stores nothing to verify; it can only write".to_owned()
    })
}

/// The first class that verifies plain requests.
fn verifier(job: &Job) -> Option<(&ClassSpec, &RequestSpec)> {
    job.classes.iter().find_map(|c| match &c.kind {
        ClassKind::Requests(r) if r.verify => Some((c, r)),
        _ => None,
    })
}

/// Maximum redo of one change: header, changed bytes, and the padding of the redo block that it may end.
const CHANGE: u64 = 1024;

fn check_sizes(job: &Job) -> Result<(), Complaint> {
    let (mib, processes) = (EXTENT as u64, job.transactors());
    ensure(!job.data.has_devices() || job.data.files <= job.data.places.len(), "data.places", || {
        format!(
            "A device holds one data file; name {} of them, or make `data.files` {}",
            job.data.files,
            job.data.places.len()
        )
    })?;
    ensure(!job.journal.place.as_ref().is_some_and(|p| p.starts_with("/dev")), "journal.place", || {
        "Journals are files; `journal.place` must be a directory".to_owned()
    })?;
    if processes == 0 {
        return Ok(());
    }
    let cache_min = (processes as u64 * 2 * job.gets_max() as u64 * BLOCK as u64).next_multiple_of(mib).max(mib);
    let buffer = job.log_buffer_bytes() as u64;
    let journal_min = (4 * buffer).next_multiple_of(mib);
    ensure(job.cache.bytes <= job.data.bytes, "cache.size", || {
        format!(
            "A cache of {} is larger than the data; make `cache.size` at most {}",
            print_bytes(job.cache.bytes),
            print_bytes(job.data.bytes)
        )
    })?;
    ensure(job.cache.bytes >= cache_min, "cache.size", || {
        format!(
            "A cache of {} is too small for {processes} processes; make `cache.size` at least {}",
            print_bytes(job.cache.bytes),
            print_bytes(cache_min)
        )
    })?;
    ensure(job.journal.bytes >= journal_min, "journal.size", || {
        format!(
            "A journal of {} is too small for {processes} processes; make `journal.size` at least {}",
            print_bytes(job.journal.bytes),
            print_bytes(journal_min)
        )
    })?;
    for t in &job.transactions {
        let redo = redo_max(t, job.journal.block as u64);
        ensure(redo <= buffer, format!("transaction.{}.steps", t.name), || {
            format!(
                "Transaction `{}` may need {redo} bytes of the log buffer, which has {buffer}; use fewer changes or less redo before each `commit`",
                t.name
            )
        })?;
    }
    Ok(())
}

/// Maximum bytes of log buffer that a transaction reserves between two commits.
fn redo_max(t: &TransactionSpec, block: u64) -> u64 {
    let (mut most, mut sum, mut got) = (0, 0, 0);
    for step in &t.steps {
        match step {
            Step::Read { count, .. } => got += u64::from(*count),
            Step::Dirty(amount) => {
                let changes = if let Amount::Count(n) = amount { u64::from(*n) } else { got };
                sum += changes * (CHANGE + block);
                got = 0;
            }
            Step::Redo { max, .. } => sum += u64::from(*max) + CHANGE + block,
            Step::Commit | Step::Rollback => {
                most = most.max(sum + CHANGE + 2 * block);
                sum = 0;
            }
            Step::Cpu(_) | Step::Think(_) | Step::Sort(_) => {}
        }
    }
    most
}
