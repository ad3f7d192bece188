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
use super::{ClassSpec, Engine, Job, Kind, Length, Memory, Pace, Replacement, Requests, Share, Wake, Wire};
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
    if job.run.network != Wire::Loopback {
        table.word("network", job.run.network);
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
    if let Some((first, last)) = r.files {
        table.text("files", format!("{first}..{last}"));
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::step_text::tests::{choices, steps};
    use super::super::*;
    use super::print;

    fn pick<T: Clone + std::fmt::Debug + 'static>(all: &[T]) -> impl Strategy<Value = T> + use<T> {
        proptest::sample::select(all.to_vec())
    }

    fn words<W: words::Word + std::fmt::Debug>() -> impl Strategy<Value = W> {
        pick(&W::ALL.iter().map(|(_, value)| *value).collect::<Vec<_>>())
    }

    fn engines() -> impl Strategy<Value = Engine> {
        (words::<Method>(), 1usize..=4096, 1usize..=4096, any::<[bool; 3]>()).prop_map(
            |(method, depth, batch, [registered, sqpoll, iopoll])| Engine {
                method,
                depth,
                batch,
                registered,
                sqpoll,
                iopoll,
            },
        )
    }

    fn times() -> impl Strategy<Value = Duration> {
        (0u64..1_000_000).prop_map(Duration::from_micros)
    }

    fn paces() -> impl Strategy<Value = Pace> {
        prop_oneof![
            times().prop_map(|think| Pace::Closed { think }),
            (0.001f64..1e6, any::<bool>()).prop_map(|(per_second, poisson)| Pace::Open { per_second, poisson }),
        ]
    }

    fn kinds() -> impl Strategy<Value = Kind> {
        let request = || (1usize..=8192).prop_map(|n| n * 512);
        let limit = || proptest::option::of(1u64..1 << 40);
        let requests = (
            engines(),
            request(),
            choices(),
            0u32..=100,
            any::<[bool; 4]>(),
            0u32..100,
            proptest::option::of(1u64..1 << 30),
            proptest::option::of((0usize..10, 0usize..10).prop_map(|(a, b)| (a.min(b), a.max(b)))),
        );
        prop_oneof![
            Just(Kind::Foreground),
            (engines(), 1usize..=32768, times(), words::<Wake>()).prop_map(|(engine, n, group_wait, wake)| {
                Kind::LogWriter { engine, group_bytes: n * 512, group_wait, wake }
            }),
            (engines(), 1usize..=4096, any::<bool>()).prop_map(|(engine, batch, sorted)| Kind::DatabaseWriter {
                engine,
                batch,
                sorted
            }),
            (1u32..100).prop_map(|percent| Kind::Checkpointer { percent }),
            (engines(), request(), any::<bool>(), proptest::option::of(1u64..1000)).prop_map(
                |(engine, request, direct, per)| {
                    Kind::Scanner { engine, request, direct, work: per.map_or(Share::Free, Share::PerTransactions) }
                }
            ),
            (request(), limit()).prop_map(|(request, bytes_per_second)| Kind::Archiver { request, bytes_per_second }),
            (256u64..1 << 20, 16u64..1 << 20, request()).prop_map(|(b, m, request)| Kind::Sorter {
                bytes: b * 4096,
                memory: m * 4096,
                request
            }),
            (engines(), request(), 256u64..1 << 20).prop_map(|(engine, request, n)| Kind::Loader {
                engine,
                request,
                bytes: n * 4096
            }),
            (request(), limit()).prop_map(|(request, bytes_per_second)| Kind::Backup { request, bytes_per_second }),
            (0usize..1 << 20, 1u64..1000)
                .prop_map(|(touch, ms)| Kind::Idle { touch, every: Duration::from_millis(ms) }),
            (words::<Transport>(), 1usize..1 << 20, 1usize..1 << 20)
                .prop_map(|(transport, request, reply)| Kind::Client { transport, request, reply }),
            requests.prop_map(
                |(
                    engine,
                    bytes,
                    choice,
                    read_percent,
                    [random, direct, dsync, verify],
                    fdatasync_every,
                    count,
                    files,
                )| {
                    Kind::Requests(Requests {
                        engine,
                        bytes,
                        random,
                        choice,
                        files,
                        read_percent,
                        direct,
                        dsync,
                        fdatasync_every,
                        verify,
                        count,
                    })
                }
            ),
        ]
    }

    /// Values that a file can say, whether or not they go together.
    fn jobs() -> impl Strategy<Value = Job> {
        let class = (1usize..=20_000, any::<bool>(), paces(), kinds()).prop_map(|(count, threads, pace, kind)| {
            let paced = matches!(kind, Kind::Foreground | Kind::Client { .. } | Kind::Requests(_));
            let pace = if paced { pace } else { Pace::Closed { think: Duration::ZERO } };
            ClassSpec { name: String::new(), count, threads, pace, kind }
        });
        let classes = proptest::collection::vec(class, 0..6).prop_map(|mut classes| {
            for (i, class) in classes.iter_mut().enumerate() {
                class.name = format!("class-{i}");
            }
            classes
        });
        let transactions = proptest::collection::vec((1u32..1000, proptest::collection::vec(steps(), 0..6)), 0..4)
            .prop_map(|all| {
                let named = all.into_iter().enumerate();
                named.map(|(i, (weight, steps))| TransactionSpec { name: format!("t{i}"), weight, steps }).collect()
            });
        let lengths = || {
            prop_oneof![
                (1u64..1 << 30).prop_map(Length::Transactions),
                (1u64..100_000).prop_map(|ms| Length::Time(Duration::from_millis(ms)))
            ]
        };
        let run = (
            proptest::option::of(lengths()),
            proptest::option::of(lengths()),
            proptest::collection::vec((1u64..9999, proptest::option::of(paces())), 0..3),
            proptest::option::of(prop_oneof!["tcp:[a-z]{1,8}:[1-9][0-9]{0,3}", "/[a-z]{1,9} [a-z]{1,9}"]),
            pick(&[Wire::Loopback, Wire::Veth]),
        )
            .prop_map(|(length, ramp, phases, acks, network)| {
                let phases: Vec<_> = phases
                    .into_iter()
                    .enumerate()
                    .map(|(i, (n, pace))| PhaseSpec { name: format!("p{i}"), length: Length::Transactions(n), pace })
                    .collect();
                let sum = phases.iter().map(|p| if let Length::Transactions(n) = p.length { n } else { 0 }).sum();
                let length = if phases.is_empty() { length.unwrap_or(Length::Auto) } else { Length::Transactions(sum) };
                Run { length, ramp, phases, acks: acks.map(|to| to.parse().unwrap()), network }
            });
        let memory = prop_oneof![
            pick(&[Memory::Mmap, Memory::Thp, Memory::Sysv]),
            pick(&[1u64 << 21, 1 << 30]).prop_flat_map(|n| pick(&[
                Memory::Huge(n),
                Memory::SysvHuge(n),
                Memory::Hugetlbfs(n)
            ])),
        ];
        let cache = (1u64..1 << 20, memory, words::<Replacement>(), 1u32..=90).prop_map(
            |(n, memory, replacement, dirty_percent)| CacheSpec { bytes: n << 20, memory, replacement, dirty_percent },
        );
        let places = pick(&[vec![], vec!["/mnt/a b".into()], vec!["/dev/vdb".into(), "x\"y".into()]]);
        let data = (1usize..=64, 1u64..1000, any::<bool>(), words::<DataSync>(), places).prop_map(
            |(files, n, direct, sync, places)| DataSpec {
                files,
                bytes: (files as u64 * n) << 20,
                direct,
                sync,
                places,
            },
        );
        let journal = (2usize..=64, 1u64..1000, any::<bool>(), words::<LogSync>(), 9u32..=16, any::<bool>()).prop_map(
            |(files, n, direct, sync, block, place)| JournalSpec {
                files,
                bytes: n << 20,
                direct,
                sync,
                block: 1 << block,
                place: place.then(|| "/redo".into()),
            },
        );
        (run, cache, data, journal, transactions, classes).prop_map(
            |(run, cache, data, journal, transactions, classes)| Job {
                name: "a-job".to_owned(),
                run,
                cache,
                data,
                journal,
                transactions,
                classes,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(job in jobs()) {
            let text = print(&job);
            let read = Draft::parse("x", &text).unwrap().unchecked();
            prop_assert_eq!(read, Ok(job), "{}", text);
        }
    }

    #[test]
    fn shipped_jobs_read_back() {
        for shipped in shipped::ALL {
            let job = draft(shipped.name).unwrap().job().unwrap();
            assert_eq!(Draft::parse("x", &print(&job)).unwrap().job(), Ok(job));
        }
    }
}
