//! Whole runs, small, on this machine's own file system.

mod faults;
mod kills;
pub mod stack;
mod writers;

use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bigiron_model::clock::Clock;
use bigiron_workload::testing;
use bigiron_workload::testing::skipped;

/// A directory beside the test's executable, which is on a real file system, while `/tmp` might be in memory.
struct Bench {
    dir: tempfile::TempDir,
    options: Options,
    seed: u64,
}

impl Bench {
    fn new(settings: &[(&str, &str)]) -> Self {
        let small = [("processes", "4"), ("transactions", "160"), ("data", "10M"), ("cache", "1M"), ("journal", "2M")];
        let options = testing::options(&Dbsim, small.into_iter().chain(settings.iter().copied())).unwrap();
        let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        Self { dir: tempfile::tempdir_in(beside).unwrap(), options, seed: 7 }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn with<T>(&self, f: impl FnOnce(&Context<'_>) -> T) -> T {
        f(&Context { seed: self.seed, clock: Clock::Wall, cpus: 1, ..testing::context(self.path()) })
    }

    fn prepare(&self) -> &Self {
        let job = self.job();
        self.with(|cx| prepare(&job, &job_context(cx))).unwrap();
        self
    }

    fn run(&self) -> Result<WorkloadResult> {
        let job = self.job();
        self.with(|cx| Placed(job).run(cx))
    }

    fn verify(&self) -> Result<()> {
        let job = self.job();
        self.with(|cx| Box::new(Placed(job)).verify(cx))
    }

    /// Sets a key of the job.
    fn set(&mut self, key: &str, value: &str) {
        self.options.insert(key.to_owned(), value.to_owned());
    }

    fn job(&self) -> Job {
        Job::parse(&self.options).unwrap()
    }

    /// The ledger, which must be whole.
    fn ledger(&self) -> Ledger {
        Ledger::load(self.path()).unwrap()
    }

    fn check(&self, acks: AckSource<'_>) -> Verdict {
        verify::check(&self.job(), self.path(), acks).unwrap()
    }

    /// Processes that have `file` in the directory open, or any file for the empty name.
    fn processes(&self, file: &str) -> Vec<i32> {
        let uses = |pid: i32| {
            let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|to| to.starts_with(self.path().join(file)))
        };
        let pids = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
        pids.filter(|pid| uses(*pid)).collect()
    }

    /// Another test that forks at the wrong moment passes open files to its children; those end with that test, while a leaked
    /// process never ends.
    fn no_process_stays(&self) -> bool {
        (0..6_000).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            self.processes("").is_empty()
        })
    }
}

fn count(outcome: &WorkloadResult, fact: &str) -> f64 {
    outcome.facts[fact].parse().unwrap()
}

#[test]
fn every_engine_runs_and_verifies_direct_and_buffered() {
    for io in ["sync", "libaio", "uring"] {
        for (direct, sync) in [("on", "dsync"), ("off", "fdatasync"), ("on", "fdatasync"), ("off", "dsync")] {
            let bench = Bench::new(&[("io", io), ("direct", direct), ("sync", sync)]);
            let outcome = match bench.prepare().run() {
                Err(e) if io == "uring" && format!("{e:#}").contains("gives no io_uring") => {
                    skipped("dbsim by io_uring", format_args!("{e:#}"));
                    continue;
                }
                outcome => outcome.unwrap(),
            };
            bench.verify().unwrap();
            let metrics = bench.job().metrics();
            assert_eq!(outcome.values.len(), metrics.len());
            for m in metrics {
                let value = outcome.values[&m.name];
                assert!(value.is_finite() && value > 0.0, "{io} {direct} {sync}: {} is {value}", m.name);
            }
            assert!(count(&outcome, "block-reads") > 0.0 && count(&outcome, "block-writes") > 0.0);
            assert_eq!(count(&outcome, "extents-scanned").trunc(), 5.0);
        }
    }
}

#[test]
fn journals_are_switched_and_old_redo_is_in_the_data_files() {
    let bench = Bench::new(&[("transactions", "2000"), ("sync", "fdatasync"), ("direct", "off"), ("write", "60")]);
    let outcome = bench.prepare().run().unwrap();
    assert!(count(&outcome, "log-switches") >= 2.0, "{:?}", outcome.facts);
    bench.verify().unwrap();
}

#[test]
fn the_same_seed_does_the_same_transactions() {
    let changes = |seed| {
        let mut bench = Bench::new(&[]);
        bench.seed = seed;
        bench.prepare().run().unwrap();
        let ledger = bench.ledger();
        let versions: Vec<_> = ledger.blocks.iter().map(|b| b.committed).collect();
        (versions, ledger.commits.iter().map(|c| c.transaction).collect::<Vec<_>>())
    };
    let first = changes(1);
    assert_eq!(first, changes(1));
    assert_ne!(first, changes(2));
}

fn edit(path: &Path, offset: u64, change: impl FnOnce(&mut [u8])) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut page = [0; block::BLOCK];
    file.read_exact_at(&mut page, offset).unwrap();
    change(&mut page);
    file.write_all_at(&page, offset).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_broken_block_stops_the_run_and_leaves_no_process() {
    let bench = Bench::new(&[("scan", "off")]);
    bench.prepare();
    // A foreground is sure to read the hottest block that the preload leaves out.
    let job = bench.job();
    let number = choice::Choosers::new(&job, 0).popular(job.buffers() * trial::PRELOAD.0 / trial::PRELOAD.1);
    let address = files::address(&job, number);
    let path = files::data_path(bench.path(), address.file as usize);
    edit(&path, u64::from(address.block) * block::BLOCK as u64, |page| page[100] ^= 1);
    let error = format!("{:#}", bench.run().unwrap_err());
    assert!(error.starts_with("Foreground ") && error.contains("failed: Checksum of block"), "{error}");
    assert!(bench.no_process_stays());
}

#[test]
fn a_killed_process_is_named_and_leaves_no_process() {
    let bench = Bench::new(&[("transactions", "1000000")]);
    let beside = tempfile::tempdir().unwrap();
    let told = beside.path().join("error");
    // In a process of its own, which no other test forks from: a child of another test that has the journals open could be taken for
    // the log writer.
    let parent = bigiron_sys::process::fork_child(|| {
        let error = bench.prepare().run().map(|_| ()).unwrap_err();
        std::fs::write(told.with_extension("new"), format!("{error:#}")).unwrap();
        std::fs::rename(told.with_extension("new"), &told).unwrap();
        // Until it is killed: the end of this process would end those that it has left.
        std::thread::sleep(Duration::from_secs(3600));
        0
    })
    .unwrap();
    // Only the log writer opens the journals during a run; before it, its parent does, to create them and to test the sync.
    let above = parent.pid().as_raw_nonzero().get();
    let victim = loop {
        std::thread::sleep(Duration::from_millis(5));
        match bench.processes("journal.0")[..] {
            [log_writer] if log_writer != above => break log_writer,
            _ => {}
        }
    };
    rustix::process::kill_process(rustix::process::Pid::from_raw(victim).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    let killed = Instant::now();
    while !told.exists() {
        assert!(killed.elapsed() < Duration::from_secs(300), "the run goes on without its log writer");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(std::fs::read_to_string(&told).unwrap(), "Log writer was ended by signal 9");
    assert!(bench.no_process_stays());
    drop(parent);
}

#[test]
fn verification_before_a_run_is_refused() {
    let bench = Bench::new(&[]);
    let error = bench.prepare().verify().unwrap_err();
    assert!(format!("{error:#}").starts_with("No ledger"), "{error:#}");
}
