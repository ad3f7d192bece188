//! A job as the text of a job file.
//!
//! Invariant: what is printed reads back as the same job. What a key would be anyway is left out where that does not depend on
//! other keys.

use std::fmt::Display;
use std::fmt::Write as _;
use std::time::Duration;

use super::draft::{VERSION, default_cache, default_journal};
use super::units::{print_duration, print_pace};
use super::words::{self, Word};
use super::{ClassSpec, Engine, Job, Kind, Length, Memory, Pace, Replacement, Requests, Share, Wake};
use crate::size::print_bytes;

/// The text of a job file that describes `job`.
pub fn print(job: &Job) -> String {
    let mut out = format!("dbsim = {VERSION}\nname = {}\n", quoted(&job.name));
    run(&mut out, job);
    for phase in &job.run.phases {
        let mut table = Section::new(format!("phase.{}", phase.name));
        table.length(phase.length);
        if let Some(pace) = phase.pace {
            table.text("pace", print_pace(pace));
        }
        table.end(&mut out);
    }
    cache(&mut out, job);
    data(&mut out, job);
    journal(&mut out, job);
    for t in &job.transactions {
        let mut table = Section::new(format!("transaction.{}", t.name));
        table.unless("weight", t.weight, 1);
        let steps: Vec<String> = t.steps.iter().map(|s| quoted(&s.to_string())).collect();
        table.raw("steps", format!("[{}]", steps.join(", ")));
        table.end(&mut out);
    }
    for c in &job.classes {
        class(&mut out, c);
    }
    out
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// A table on its way to the text; one without keys is left out.
struct Section {
    name: String,
    lines: String,
}

impl Section {
    fn new(name: String) -> Self {
        Section { name, lines: String::new() }
    }

    fn raw(&mut self, key: &str, value: impl Display) {
        let _ = writeln!(self.lines, "{key} = {value}");
    }

    fn text(&mut self, key: &str, value: impl AsRef<str>) {
        self.raw(key, quoted(value.as_ref()));
    }

    fn bytes(&mut self, key: &str, bytes: u64) {
        self.text(key, print_bytes(bytes));
    }

    fn unless<T: PartialEq + Display>(&mut self, key: &str, value: T, default: T) {
        if value != default {
            self.raw(key, value);
        }
    }

    fn percent(&mut self, key: &str, value: u32) {
        self.text(key, format!("{value}%"));
    }

    fn word<W: Word>(&mut self, key: &str, value: W) {
        self.text(key, value.word());
    }

    fn length(&mut self, length: Length) {
        match length {
            Length::Auto => {}
            Length::Transactions(n) => self.raw("transactions", n),
            Length::Time(time) => self.text("time", print_duration(time)),
        }
    }

    fn engine(&mut self, engine: &Engine) {
        self.word("io", engine.method);
        self.raw("depth", engine.depth);
        self.unless("submit", engine.batch, engine.depth);
        self.unless("registered", engine.registered, false);
        self.unless("sqpoll", engine.sqpoll, false);
        self.unless("iopoll", engine.iopoll, false);
    }

    fn end(self, out: &mut String) {
        if !self.lines.is_empty() {
            let _ = write!(out, "\n[{}]\n{}", self.name, self.lines);
        }
    }
}

fn run(out: &mut String, job: &Job) {
    let mut table = Section::new("run".to_owned());
    // With phases the window is as long as they are.
    if job.run.phases.is_empty() {
        table.length(job.run.length);
    }
    match job.run.ramp {
        None | Some(Length::Auto) => {}
        Some(Length::Transactions(n)) => table.raw("ramp", n),
        Some(Length::Time(time)) => table.text("ramp", print_duration(time)),
    }
    if let Some(to) = &job.run.acks {
        table.text("acks", to.to_string());
    }
    table.end(out);
}

fn cache(out: &mut String, job: &Job) {
    if job.cache == default_cache(job.transactors() > 0) {
        return;
    }
    let mut table = Section::new("cache".to_owned());
    table.bytes("size", job.cache.bytes);
    if job.cache.memory != Memory::Mmap {
        table.text("memory", words::print_memory(job.cache.memory));
    }
    if job.cache.replacement != Replacement::Clock {
        table.word("replacement", job.cache.replacement);
    }
    if job.cache.dirty_percent != 25 {
        table.percent("dirty", job.cache.dirty_percent);
    }
    table.end(out);
}

fn data(out: &mut String, job: &Job) {
    let mut table = Section::new("data".to_owned());
    table.raw("files", job.data.files);
    table.bytes("size", job.data.bytes);
    table.raw("direct", job.data.direct);
    table.word("sync", job.data.sync);
    if !job.data.places.is_empty() {
        let places: Vec<String> = job.data.places.iter().map(|p| quoted(&p.to_string_lossy())).collect();
        table.raw("places", format!("[{}]", places.join(", ")));
        table.unless("overwrite", job.data.places.iter().any(|p| p.starts_with("/dev")), false);
    }
    table.end(out);
}

fn journal(out: &mut String, job: &Job) {
    if job.journal == default_journal(job.data.direct) {
        return;
    }
    let mut table = Section::new("journal".to_owned());
    table.raw("files", job.journal.files);
    table.bytes("size", job.journal.bytes);
    table.raw("direct", job.journal.direct);
    table.word("sync", job.journal.sync);
    table.bytes("block", job.journal.block as u64);
    if let Some(place) = &job.journal.place {
        table.text("place", place.to_string_lossy());
    }
    table.end(out);
}

fn class(out: &mut String, c: &ClassSpec) {
    let mut table = Section::new(format!("process.{}", c.name));
    table.text("kind", c.kind.word());
    table.unless("count", c.count, 1);
    table.unless("threads", c.threads, false);
    if c.pace != (Pace::Closed { think: Duration::ZERO }) {
        table.text("pace", print_pace(c.pace));
    }
    let limit = |table: &mut Section, limit: Option<u64>| {
        if let Some(n) = limit {
            table.text("limit", format!("{}/s", print_bytes(n)));
        }
    };
    match &c.kind {
        Kind::Foreground => {}
        Kind::LogWriter { engine, group_bytes, group_wait, wake } => {
            table.engine(engine);
            if *group_bytes != 16 << 20 {
                table.bytes("group", *group_bytes as u64);
            }
            if !group_wait.is_zero() {
                table.text("group-wait", print_duration(*group_wait));
            }
            if *wake != Wake::Post {
                table.word("wake", *wake);
            }
        }
        Kind::DatabaseWriter { engine, batch, sorted } => {
            table.engine(engine);
            table.raw("batch", batch);
            table.unless("sorted", *sorted, true);
        }
        Kind::Checkpointer { percent } => table.percent("at", *percent),
        Kind::Scanner { engine, request, direct, work } => {
            table.engine(engine);
            table.bytes("request", *request as u64);
            table.raw("direct", direct);
            match work {
                Share::Free => table.text("work", "free"),
                Share::PerTransactions(n) => table.text("work", format!("per {n} transactions")),
            }
        }
        Kind::Archiver { request, bytes_per_second } | Kind::Backup { request, bytes_per_second } => {
            table.bytes("request", *request as u64);
            limit(&mut table, *bytes_per_second);
        }
        Kind::Sorter { bytes, memory, request } => {
            table.bytes("size", *bytes);
            table.bytes("memory", *memory);
            table.bytes("request", *request as u64);
        }
        Kind::Loader { engine, request, bytes } => {
            table.engine(engine);
            table.bytes("request", *request as u64);
            table.bytes("size", *bytes);
        }
        Kind::Idle { touch, every } => {
            table.raw("touch", touch);
            table.text("every", print_duration(*every));
        }
        Kind::Client { transport, request, reply } => {
            table.word("transport", *transport);
            table.bytes("request", *request as u64);
            table.bytes("reply", *reply as u64);
        }
        Kind::Requests(r) => requests(&mut table, r),
    }
    table.end(out);
}

fn requests(table: &mut Section, r: &Requests) {
    table.engine(&r.engine);
    table.bytes("request", r.bytes as u64);
    table.text("order", if r.random { "random" } else { "sequential" });
    if r.choice != super::Choice::Uniform {
        table.text("where", r.choice.to_string());
    }
    table.percent("read", r.read_percent);
    table.raw("direct", r.direct);
    table.unless("dsync", r.dsync, false);
    table.unless("fdatasync", r.fdatasync_every, 0);
    table.unless("verify", r.verify, false);
    if let Some(total) = r.count {
        table.raw("total", total);
    }
}
