//! A job in words: its processes, their waits for each other, when writes become durable, what the job needs, and what it does
//! not test.
//!
//! Invariant: every sentence follows from the job; none is about jobs in general.

use std::fmt::Write as _;
use std::time::Duration;

use super::words::print_memory;
use super::{
    Amount, Choice, ClassKind, ClassSpec, DataSync, Engine, Job, Length, LogSync, Memory, Method, RequestSpec, Step,
    TransactionSpec, Transport, Wake, Wire, WorkShare,
};
use bigiron_model::clock::Clock;
use bigiron_model::size::print_bytes;
use bigiron_workload::Needs;
use bigiron_workload::units::Pace;
use bigiron_workload::units::print_duration;

/// Base page, and a page-table entry, of the machines that bigiron knows: bytes.
const PAGE: u64 = 4096;
const ENTRY: u64 = 8;

/// The job in words; `about` is its own description, and `needs` its requirements.
pub fn explain(job: &Job, about: Option<&str>, needs: &Needs) -> String {
    let mut out = format!("Job {}", job.name);
    if let Some(about) = about {
        let _ = write!(out, ": {about}");
    }
    out.push('\n');
    section(&mut out, "Processes", job.classes.iter().map(|c| class(job, c)));
    if !job.transactions.is_empty() {
        let sum: u64 = job.transactions.iter().map(|t| u64::from(t.weight)).sum();
        section(&mut out, "Transactions", job.transactions.iter().map(|t| transaction(t, sum)));
    }
    section(&mut out, "Waits", waits(job));
    section(&mut out, "Durable when", durable(job));
    section(&mut out, "Length", length(job));
    section(&mut out, "Takes", takes(job, needs));
    section(&mut out, "Not tested", not_tested(job));
    out
}

fn section(out: &mut String, title: &str, lines: impl IntoIterator<Item = String>) {
    let lines: Vec<String> = lines.into_iter().collect();
    if !lines.is_empty() {
        let _ = write!(out, "\n{title}\n");
        for line in lines {
            let _ = writeln!(out, "  {line}");
        }
    }
}

fn engine(e: &Engine) -> String {
    let mut text = match e.method {
        Method::Null => "nothing (every request ends at once)",
        Method::Sync => "pread and pwrite",
        Method::Vectored => "preadv2 and pwritev2",
        Method::Threads => "a pool of threads",
        Method::Libaio => "libaio",
        Method::Uring => "io_uring",
    }
    .to_owned();
    if e.depth > 1 {
        let _ = write!(text, ", {} in flight", e.depth);
    }
    if e.batch < e.depth {
        let _ = write!(text, ", {} for each system call", e.batch);
    }
    for (set, word) in [
        (e.registered, "registered buffers and files"),
        (e.sqpoll, "submissions taken by a kernel thread"),
        (e.iopoll, "completions polled"),
    ] {
        if set {
            let _ = write!(text, ", {word}");
        }
    }
    text
}

fn class(job: &Job, c: &ClassSpec) -> String {
    let what = match &c.kind {
        ClassKind::Foreground => format!("executes transactions; reads with pread, one at a time{}", pace(c.pace)),
        ClassKind::LogWriter { engine: e, group_bytes, group_wait, wake } => {
            let mut text =
                format!("writes redo with {}, up to {} at once", engine(e), print_bytes(*group_bytes as u64));
            if !group_wait.is_zero() {
                let _ = write!(text, ", after waiting {} for other commits", print_duration(*group_wait));
            }
            if *wake == Wake::Poll {
                text.push_str("; waiting processes poll");
            }
            text
        }
        ClassKind::DatabaseWriter { engine: e, batch, sorted } => format!(
            "writes dirty blocks with {}, up to {batch} at once, {}",
            engine(e),
            if *sorted { "sorted by address" } else { "unsorted" }
        ),
        ClassKind::Checkpointer { percent } => format!("requests a checkpoint whenever a journal is {percent} % full"),
        ClassKind::Scanner { engine: e, request, direct, work } => {
            let work = match work {
                WorkShare::Free => "as fast as possible".to_owned(),
                WorkShare::PerTransactions(n) => format!("one request for every {n} transactions"),
            };
            let path = if *direct { "past the page cache" } else { "through the page cache" };
            format!(
                "reads the data files from end to end, {} at a time with {}, {path}, {work}",
                print_bytes(*request as u64),
                engine(e)
            )
        }
        ClassKind::Archiver { request, bytes_per_second } => {
            format!("copies each full journal, {} at a time{}", print_bytes(*request as u64), limit(*bytes_per_second))
        }
        ClassKind::Sorter { bytes, memory, request } => format!(
            "sorts {} in {} of memory: {} sorted runs to temporary files and merged, {} at a time",
            print_bytes(*bytes),
            print_bytes(*memory),
            bytes.div_ceil(*memory),
            print_bytes(*request as u64)
        ),
        ClassKind::Loader { engine: e, request, bytes } => {
            format!(
                "appends {} to its own file, {} at a time with {}",
                print_bytes(*bytes),
                print_bytes(*request as u64),
                engine(e)
            )
        }
        ClassKind::Backup { request, bytes_per_second } => {
            format!("copies the data files, {} at a time{}", print_bytes(*request as u64), limit(*bytes_per_second))
        }
        ClassKind::Idle { touch, every } => {
            format!("has touched {touch} blocks of the cache, and wakes every {}", print_duration(*every))
        }
        ClassKind::Client { transport, request, reply } => {
            let way = match transport {
                Transport::Socket => "a pair of Unix sockets",
                Transport::Pipe => "two pipes",
                Transport::Memory => "shared memory",
                Transport::Tcp => match job.run.network {
                    Wire::Loopback => "TCP over the loopback",
                    Wire::Veth => "TCP between two network namespaces (veth)",
                },
            };
            format!(
                "client and server in pairs over {way}, {} per request and {} per reply; the server executes the transactions{}",
                print_bytes(*request as u64),
                print_bytes(*reply as u64),
                pace(c.pace)
            )
        }
        ClassKind::Requests(r) => format!("{}{}", requests(job, r), pace(c.pace)),
    };
    let unit = if c.threads { " (threads)" } else { "" };
    format!("{} × {} ({}){unit}: {what}", c.count, c.name, c.kind.word())
}

fn pace(pace: Pace) -> String {
    match pace {
        Pace::Closed { think } if think.is_zero() => String::new(),
        Pace::Closed { think } => format!("; {} think time between two", print_duration(think)),
        Pace::Open { per_second, poisson } => format!(
            "; {per_second} per second for all together{}, latency counted from the intended start",
            if poisson { ", at random times" } else { "" }
        ),
    }
}

fn limit(bytes_per_second: Option<u64>) -> String {
    bytes_per_second.map_or_else(String::new, |n| format!(", at most {} per second", print_bytes(n)))
}

fn requests(job: &Job, r: &RequestSpec) -> String {
    let what = match r.read_percent {
        100 => "reads".to_owned(),
        0 => "writes".to_owned(),
        p => format!("requests, {p} % of them reads,"),
    };
    let place = match (r.random, r.choice) {
        (false, _) => "in sequence".to_owned(),
        (true, Choice::Uniform) => "anywhere".to_owned(),
        (true, choice) => format!("by {choice}"),
    };
    let path = if r.direct { "past the page cache" } else { "through the page cache" };
    let files = match r.files {
        None => format!("{} data files", job.data.files),
        Some((one, last)) if one == last => format!("data file {one}"),
        Some((first, last)) => format!("data files {first} to {last}"),
    };
    let mut text =
        format!("{what} of {} {place} in {files} with {}, {path}", print_bytes(r.bytes as u64), engine(&r.engine));
    if r.dsync {
        text.push_str(", each write durable");
    }
    if r.fdatasync_every > 0 {
        let _ = write!(text, ", fdatasync after every {} writes", r.fdatasync_every);
    }
    if r.verify {
        text.push_str(", verified when read");
    }
    if let Some(n) = r.count {
        let _ = write!(text, ", {n} in total");
    }
    text
}

fn transaction(t: &TransactionSpec, sum: u64) -> String {
    let steps: Vec<String> = t.steps.iter().map(step).collect();
    format!("{:.4} %  {}: {}", 100.0 * f64::from(t.weight) / sum as f64, t.name, steps.join(", "))
        .replace(".0000 %", " %")
}

fn step(step: &Step) -> String {
    let share = |p: &u32| format!("change each of them with a probability of {p} %");
    match step {
        Step::Read { count, choice: Choice::Uniform } => format!("get {count} blocks at random"),
        Step::Read { count, choice } => format!("get {count} blocks by {choice}"),
        Step::Dirty(Amount::Count(n)) => format!("change {n} of them"),
        Step::Dirty(Amount::Percent(p)) => share(p),
        Step::Redo { min, max } if min == max => format!("make {max} bytes of redo"),
        Step::Redo { min, max } => format!("make {min} to {max} bytes of redo"),
        Step::Commit => "commit".to_owned(),
        Step::Rollback => "roll back".to_owned(),
        Step::Cpu(time) => format!("compute for {}", print_duration(*time)),
        Step::Think(time) => format!("think for {}", print_duration(*time)),
        Step::Sort(bytes) => format!("sort {} in memory", print_bytes(*bytes)),
    }
}

fn has(job: &Job, word: &str) -> bool {
    job.classes.iter().any(|c| c.kind.word() == word)
}

fn names(job: &Job, of: impl Fn(&ClassKind) -> bool) -> String {
    let names: Vec<&str> = job.classes.iter().filter(|c| of(&c.kind)).map(|c| c.name.as_str()).collect();
    names.join(", ")
}

fn steps(job: &Job) -> impl Iterator<Item = &Step> {
    job.transactions.iter().flat_map(|t| &t.steps)
}

fn waits(job: &Job) -> Vec<String> {
    let mut lines = Vec::new();
    let transactors = names(job, ClassKind::transacts);
    let log_writer = names(job, |k| matches!(k, ClassKind::LogWriter { .. }));
    let writers = names(job, |k| matches!(k, ClassKind::DatabaseWriter { .. }));
    let reads = steps(job).any(|s| matches!(s, Step::Read { .. }));
    let dirties = steps(job).any(|s| matches!(s, Step::Dirty(_)));
    if has(job, "client") {
        lines.push("a client waits for its server's reply, a server for its client's next request".to_owned());
    }
    if steps(job).any(|s| matches!(s, Step::Commit)) && !log_writer.is_empty() {
        lines.push(format!("{transactors}: a commit waits until {log_writer} has made its redo durable"));
    }
    if reads && job.cache.bytes < job.data.bytes {
        lines.push(format!("{transactors}: a get of a block outside the cache waits for its read"));
    }
    if dirties && !writers.is_empty() {
        if job.cache.bytes < job.data.bytes {
            lines.push(format!("{transactors}: a get that finds no clean buffer waits for {writers}"));
        }
        lines.push(format!("{writers}: no block is written before its redo is durable, so it waits for {log_writer}"));
    }
    if !log_writer.is_empty() {
        lines.push(format!(
            "{log_writer}: a journal is reused when {writers} has reached the checkpoint that makes it superfluous"
        ));
        if has(job, "archiver") {
            lines.push(format!(
                "{log_writer}: and when {} has copied it",
                names(job, |k| matches!(k, ClassKind::Archiver { .. }))
            ));
        }
        lines.push(format!(
            "{transactors}: redo waits for room in the log buffer of {}, and for the log switch",
            print_bytes(job.log_buffer_bytes() as u64)
        ));
    }
    let paced = names(job, |k| matches!(k, ClassKind::Scanner { work: WorkShare::PerTransactions(_), .. }));
    if !paced.is_empty() {
        lines.push(format!("{paced}: waits until this many transactions have completed"));
    }
    lines
}

/// Whether all processes read and write data files past the page cache.
pub fn bypasses_page_cache(job: &Job) -> bool {
    if job.transactors() > 0 {
        job.data.direct
    } else {
        job.classes.iter().all(|c| !matches!(&c.kind, ClassKind::Requests(r) if !r.direct))
    }
}

/// When what each kind of process writes is durable.
pub fn durable(job: &Job) -> Vec<String> {
    let mut lines = Vec::new();
    if has(job, "log-writer") {
        lines.push(match job.journal.sync {
            LogSync::Dsync => "redo: when its write returns (journals opened O_DSYNC)".to_owned(),
            LogSync::RwfDsync => "redo: when its write returns (RWF_DSYNC on each)".to_owned(),
            LogSync::Fdatasync => "redo: after fdatasync of the journal, for each write".to_owned(),
            LogSync::Fsync => "redo: after fsync of the journal, for each write".to_owned(),
            LogSync::Linked => "redo: after an fdatasync linked to its write (io_uring)".to_owned(),
        });
        lines.push(match job.data.sync {
            DataSync::Dsync => "blocks: when their write returns (data files opened O_DSYNC)".to_owned(),
            DataSync::Fdatasync => "blocks: after fdatasync of the data files, before a checkpoint counts".to_owned(),
        });
    }
    let plain = job.classes.iter().filter_map(|c| match &c.kind {
        ClassKind::Requests(r) if r.read_percent < 100 => Some((c, r)),
        _ => None,
    });
    for (c, r) in plain {
        lines.push(match (r.dsync, r.fdatasync_every) {
            (true, _) => format!("{}: each write when it returns (RWF_DSYNC)", c.name),
            (false, 0) => format!("{}: never", c.name),
            (false, n) => format!("{}: after every {n} writes (fdatasync)", c.name),
        });
    }
    lines
}

fn length(job: &Job) -> Vec<String> {
    if !job.run.phases.is_empty() {
        let phase = |p: &super::PhaseSpec| {
            format!("phase {}: {}{}", p.name, span(p.length), p.pace.map_or_else(String::new, pace))
        };
        return job.run.phases.iter().map(phase).chain([ramp(job)]).collect();
    }
    let window = match job.run.length {
        Length::Auto if job.transactors() == 0 => "until all processes have done their work".to_owned(),
        Length::Auto => format!(
            "{} transactions, or {} by the wall clock",
            job.transactions(Clock::Exact).unwrap_or(0),
            job.transactions(Clock::Wall).unwrap_or(0)
        ),
        length => span(length),
    };
    vec![format!("window: {window}"), ramp(job)]
}

fn span(length: Length) -> String {
    match length {
        Length::Auto => "a number of transactions that suits the clock".to_owned(),
        Length::Transactions(n) => format!("{n} transactions"),
        Length::Time(time) => print_duration(time),
    }
}

fn ramp(job: &Job) -> String {
    match job.run.ramp {
        None => "ramp before it: a quarter of its length".to_owned(),
        Some(Length::Time(Duration::ZERO) | Length::Transactions(0)) => "no ramp before it".to_owned(),
        Some(length) => format!("ramp before it: {}", span(length)),
    }
}

fn takes(job: &Job, needs: &Needs) -> Vec<String> {
    let mib = |bytes: u64| print_bytes(bytes.next_multiple_of(1 << 20));
    let mut lines = vec![format!(
        "storage: {}: {} data files of {}, {} journals of {}, and related files",
        mib(needs.storage_bytes.unwrap_or(0)),
        job.data.files,
        print_bytes(job.data.bytes / job.data.files as u64),
        job.journal.files,
        print_bytes(job.journal.bytes)
    )];
    let processes: usize = job.classes.iter().map(|c| if c.threads { 1 } else { c.count }).sum();
    let processes = processes
        + job.classes.iter().filter(|c| matches!(c.kind, ClassKind::Client { .. })).map(|c| c.count).sum::<usize>();
    lines.push(format!(
        "memory: {}: a cache of {} ({}), and {processes} processes",
        mib(needs.memory_bytes),
        print_bytes(job.cache.bytes),
        print_memory(job.cache.memory)
    ));
    let page = match job.cache.memory {
        Memory::Huge(page) | Memory::SysvHuge(page) | Memory::Hugetlbfs(page) => page,
        Memory::Mmap | Memory::Sysv | Memory::Thp => PAGE,
    };
    if job.transactors() > 0 {
        let which = match job.cache.prefault {
            true => "for each process, which touches the whole cache before its first transaction",
            false => "for each process that has touched the whole cache",
        };
        lines.push(format!(
            "page tables: up to {} bytes {which}, in pages of {}",
            job.cache.bytes.div_ceil(page) * ENTRY,
            print_bytes(page)
        ));
        lines.push(format!(
            "the cache holds {:.0} % of the data",
            100.0 * job.cache.bytes as f64 / job.data.bytes as f64
        ));
    }
    if !job.data.places.is_empty() {
        let places: Vec<String> = job.data.places.iter().map(|p| p.display().to_string()).collect();
        lines.push(format!("data files in turn in {}", places.join(", ")));
    }
    lines
}

fn not_tested(job: &Job) -> Vec<String> {
    let mut lines = Vec::new();
    let mut lacks = |fine: bool, text: &str| {
        if !fine {
            lines.push(text.to_owned());
        }
    };
    let transacts = job.transactors() > 0;
    lacks(transacts, "dependencies: no process waits for another, because none executes transactions");
    if transacts {
        lacks(steps(job).any(|s| matches!(s, Step::Dirty(_))), "changes: no block is ever written");
        lacks(steps(job).any(|s| matches!(s, Step::Commit)), "commits");
        lacks(job.cache.bytes < job.data.bytes, "reads: all data are in the cache");
        lacks(has(job, "scanner") || has(job, "backup"), "large sequential reads beside the transactions");
        lacks(has(job, "archiver"), "archiving of journals");
        lacks(has(job, "checkpointer"), "checkpoints between log switches");
        lacks(has(job, "client"), "clients: no other process requests the transactions");
        lacks(steps(job).any(|s| matches!(s, Step::Rollback)), "rollback");
    }
    lacks(!bypasses_page_cache(job), "the page cache: data files bypass it");
    lacks(false, "row locks, SQL, networks beyond this machine");
    lines
}
