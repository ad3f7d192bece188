//! Runs of many processes, and of the classes that the default job lacks.

use super::*;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bigiron_model::clock::Clock;
use bigiron_sys::network::Wiring;
use bigiron_sys::segment::Segment;
use bigiron_workload::testing;
use bigiron_workload::testing::skipped;

use super::instance::Phase;
use super::job::{ClassKind, ClassSpec, Length, Transport, Wire};
use super::plan::Plan;
use super::worker_group::WorkerGroup;
use bigiron_workload::units::Pace;

/// A directory beside the test's executable, with the files of a small job without a scanner.
struct Bench {
    dir: tempfile::TempDir,
    job: Job,
}

/// The remains of a run.
struct Ran {
    /// By process.
    names: Vec<String>,
    counters: Vec<[u64; 4]>,
    round_trips: u64,
    page_tables: u64,
    /// By process: jobs, bytes read, bytes written.
    sidelines: Vec<[u64; 3]>,
}

impl Bench {
    fn new(foregrounds: usize, transactions: u64, classes: Vec<ClassSpec>) -> Self {
        let settings = [("data", "20M"), ("cache", "10M"), ("journal", "16M"), ("scan", "off"), ("direct", "off")];
        let mut job = Job::parse(&testing::options(&Dbsim, settings).unwrap()).unwrap();
        job.run.length = Length::Transactions(transactions);
        job.run.ramp = Some(Length::Transactions(30));
        job.classes.retain_mut(|c| match c.kind {
            ClassKind::Foreground => {
                c.count = foregrounds;
                foregrounds > 0
            }
            _ => true,
        });
        job.classes.extend(classes);
        let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let dir = tempfile::tempdir_in(beside).unwrap();
        files::lay_out(&job, dir.path(), |_| {}).unwrap();
        Self { dir, job }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Runs the job; `during` is called when the window has opened.
    fn run(&self, during: impl FnOnce(&Instance<'_>)) -> Result<Ran> {
        let segment = Segment::new(Instance::bytes(&self.job)).unwrap();
        let cache = Segment::new(cache::Cache::bytes(&self.job)).unwrap();
        let (hear, tell) = std::io::pipe().unwrap();
        let plan = Plan::new(&self.job, Clock::Wall);
        let ledger_file = ledger::LedgerFile::open(&self.job, self.path())?;
        let mut instance = Instance::new(&segment, &cache, &self.job, &ledger_file, 7, plan, tell)?;
        instance.wire = Wiring::of(self.job.run.network == job::Wire::Veth, None)?;
        let mut worker_group = WorkerGroup::start(&instance, hear)?;
        worker_group.wait_milestone()?;
        instance.enter(Phase::Measure);
        during(&instance);
        worker_group.wait_milestone()?;
        let page_tables = worker_group.page_table_bytes()?.iter().map(|(_, bytes)| bytes).sum();
        assert!(worker_group.cpu_time()? > Duration::ZERO);
        instance.enter(Phase::Leave);
        worker_group.wait_gone(|kind| !matches!(kind, ClassKind::LogWriter { .. }))?;
        instance.enter(Phase::End);
        worker_group.wait_gone(|_| true)?;
        ledger_file.close(&instance.ledger)?;
        loader::save(&instance)?;
        let counters = instance.counters.iter();
        let load = |n: [&std::sync::atomic::AtomicU64; 3]| n.map(|n| n.load(SeqCst));
        Ok(Ran {
            names: (0..instance.roles.len()).map(|p| instance.name(p)).collect(),
            counters: counters
                .clone()
                .map(|c| [&c.gets, &c.commits, &c.reads, &c.writes].map(|n| n.load(SeqCst)))
                .collect(),
            round_trips: instance.round_trip.values().map(|h| h.read().count()).sum(),
            page_tables,
            sidelines: counters.map(|c| load([&c.jobs, &c.read_bytes, &c.written_bytes])).collect(),
        })
    }

    fn verify(&self) -> Result<()> {
        verify::verify(&self.job, self.path())
    }
}

fn class(name: &str, count: usize, kind: ClassKind) -> ClassSpec {
    ClassSpec { name: name.to_owned(), count, threads: false, pace: Pace::Closed { think: Duration::ZERO }, kind }
}

fn client(transport: Transport) -> ClassKind {
    ClassKind::Client { transport, request: 100, reply: 3_000 }
}

#[test]
fn clients_are_served_over_every_transport() {
    let ways = [Transport::Socket, Transport::Pipe, Transport::Memory, Transport::Tcp].map(|t| (t, Wire::Loopback));
    for (transport, wire) in ways.into_iter().chain([(Transport::Tcp, Wire::Veth)]) {
        let mut bench = Bench::new(2, 120, vec![class("user", 10, client(transport))]);
        bench.job.run.network = wire;
        let ran = match bench.run(|_| {}) {
            // If neither root nor user namespaces are available.
            Err(e) if transport == Transport::Tcp && format!("{e:#}").contains("network") => {
                skipped("clients over network devices", format_args!("{e:#}"));
                continue;
            }
            ran => ran.unwrap(),
        };
        assert_eq!(ran.round_trips, 100, "{transport:?}: each of 12 that do transactions has 10");
        assert_eq!(
            ran.counters.iter().map(|c| c[0]).sum::<u64>(),
            150 * 8,
            "{transport:?}: gets of the ramp and the window"
        );
        assert_eq!((ran.names[2].as_str(), ran.names[14].as_str()), ("User 0's server", "User 0"));
        bench.verify().unwrap();
    }
}

#[test]
fn idle_sessions_have_page_tables_over_the_cache() {
    let idle = |touch| class("session", 40, ClassKind::Idle { touch, every: Duration::from_millis(2) });
    let [few, many] = [1, 900].map(|touch| {
        let ran = Bench::new(2, 100, vec![idle(touch)])
            .run(|instance| {
                // Each has touched its blocks once before the window; until one has woken in it.
                let gets = || instance.counters[4..].iter().map(|c| c.gets.load(SeqCst)).sum::<u64>();
                let start = Instant::now();
                while gets() <= 40 * touch as u64 && start.elapsed() < Duration::from_secs(300) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
            .unwrap();
        let gets: u64 = ran.counters[4..].iter().map(|c| c[0]).sum();
        assert!(gets > 40 * touch as u64, "nobody has woken: {gets}");
        ran.page_tables
    });
    // 900 blocks are 1,800 pages, of which a table maps 512. On a busy machine not every session has woken often enough.
    assert!(many >= few + 20 * 4096, "{few} {many}");
}

#[test]
fn a_killed_client_and_a_killed_server_are_named() {
    for (victim, name) in [(2, "User 2's server"), (10, "User 3")] {
        let bench = Bench::new(0, 1_000_000, vec![class("user", 5, client(Transport::Socket))]);
        let error = bench.run(|instance| {
            let pid = instance.pid(victim).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        assert_eq!(format!("{:#}", error.err().unwrap()), format!("{name} was ended by signal 9"));
    }
}

#[test]
fn sorts_loads_and_backups_are_done_once_beside_the_transactions() {
    let engine = job::Engine { depth: 4, batch: 4, ..job::Engine::default() };
    let classes = vec![
        class("sorter", 2, ClassKind::Sorter { bytes: 2 << 20, memory: 256 << 10, request: 16 << 10 }),
        class("loader", 2, ClassKind::Loader { engine, request: 64 << 10, bytes: 1 << 20 }),
        class("backup", 1, ClassKind::Backup { request: 256 << 10, bytes_per_second: None }),
    ];
    let bench = Bench::new(3, 200, classes);
    let ran = bench.run(|_| {}).unwrap();
    // By process, after three foregrounds, log writer and database writer: jobs, bytes read, bytes written.
    for sorter in [5, 6] {
        assert_eq!(ran.sidelines[sorter], [1, 2 << 20, 2 << 20]);
    }
    for loader in [7, 8] {
        assert_eq!(ran.sidelines[loader], [1, 0, 1 << 20]);
    }
    assert_eq!(ran.sidelines[9], [1, 40 << 20, 20 << 20], "the copy is read back");
    let names = std::fs::read_dir(bench.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|n| n.starts_with("temp") || n.starts_with("backup")).collect();
    assert!(left.is_empty(), "{left:?}");
    bench.verify().unwrap();

    let loaded = || loader::verify(&bench.job, bench.path());
    loaded().unwrap();
    let path = bench.path().join("load.00001");
    let whole = std::fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[700_000] ^= 1;
    std::fs::write(&path, &flipped).unwrap();
    let failure = |e: anyhow::Error| e.downcast::<VerifyFailed>().unwrap();
    assert!(matches!(failure(loaded().unwrap_err()), VerifyFailed::Block(BlockError::Checksum(_))));
    std::fs::write(&path, &whole[..whole.len() - 4096]).unwrap();
    assert!(matches!(failure(loaded().unwrap_err()), VerifyFailed::LostLoad { blocks: 128, .. }));
    std::fs::write(&path, &whole).unwrap();
    loaded().unwrap();
}

#[test]
fn hundreds_of_processes_start_and_leave_again_and_again() {
    for _ in 0..5 {
        let bench = Bench::new(60, 240, vec![class("user", 70, client(Transport::Socket))]);
        let mut pids = Vec::new();
        let ran = bench.run(|instance| pids.extend((0..instance.roles.len()).filter_map(|p| instance.pid(p)))).unwrap();
        assert_eq!((ran.names.len(), pids.len()), (202, 202));
        assert!(pids.into_iter().all(|pid| rustix::process::test_kill_process(pid).is_err()), "somebody has stayed");
        bench.verify().unwrap();
    }
}
