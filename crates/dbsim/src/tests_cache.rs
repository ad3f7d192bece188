//! Whole runs with other memory, replacement, database writers and checkpoints than the options offer.

use super::*;
use std::time::Duration;

use bigiron_model::clock::Clock;
use bigiron_workload::testing;
use bigiron_workload::testing::skipped;

use control_file::ControlEntry;
use huge_pages::Refused;
use job::{ClassKind, ClassSpec, Length, Memory, Pace, Replacement};

struct Bench {
    dir: tempfile::TempDir,
    job: Job,
}

impl Bench {
    /// A small job, most of whose gets change the block.
    fn new(change: impl FnOnce(&mut Job)) -> Self {
        let small = [
            ("processes", "6"),
            ("transactions", "1500"),
            ("data", "10M"),
            ("cache", "1M"),
            ("journal", "2M"),
            ("write", "60"),
            ("direct", "off"),
            ("sync", "fdatasync"),
        ];
        let options = testing::options(&Dbsim, small).unwrap();
        let mut job = Job::parse(&options).unwrap();
        change(&mut job);
        let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        Self { dir: tempfile::tempdir_in(beside).unwrap(), job }
    }

    /// Prepares, runs and verifies.
    fn run(&self) -> Result<WorkloadResult> {
        let cx = Context { seed: 11, clock: Clock::Wall, cpus: 1, ..testing::context(self.dir.path()) };
        files::lay_out(&self.job, &cx.dir, |_| {})?;
        let outcome = result(&self.job, &run(&self.job, &job_context(&cx))?)?;
        verify::verify(&self.job, &cx.dir)?;
        Ok(outcome)
    }
}

fn count(outcome: &WorkloadResult, fact: &str) -> f64 {
    outcome.facts[fact].parse().unwrap()
}

/// Sets the number of database writers, each of which takes `batch` blocks at once and has `depth` of them in flight.
fn writers(job: &mut Job, n: usize, batch_of: usize, depth: usize, sort: bool) {
    for class in &mut job.classes {
        if let ClassKind::DatabaseWriter { engine, batch, sorted } = &mut class.kind {
            class.count = n;
            (*batch, engine.depth, engine.batch, *sorted) = (batch_of, depth, depth, sort);
        }
    }
}

fn checkpointer(job: &mut Job, percent: u32) {
    job.classes.push(ClassSpec {
        name: "checkpointer".to_owned(),
        count: 1,
        threads: false,
        pace: Pace::Closed { think: Duration::ZERO },
        kind: ClassKind::Checkpointer { percent },
    });
}

/// Runs a job of 1,500 transactions. If that does not give what is wanted, a longer one: on a busy machine a process may get no CPU for as long as
/// a short run lasts, and what it has not done at the end is left.
fn run_for(change: impl Fn(&mut Job), wanted: impl Fn(&WorkloadResult) -> bool) -> Bench {
    let mut transactions = 1_500;
    loop {
        let bench = Bench::new(|job| {
            job.run.length = Length::Transactions(transactions);
            change(job);
        });
        let outcome = bench.run().unwrap();
        if wanted(&outcome) {
            return bench;
        }
        assert!(transactions < 20_000, "{:?}", outcome.facts);
        transactions *= 4;
    }
}

#[test]
fn several_writers_share_the_cleaning() {
    for (n, batch, depth, sorted) in [(3, 32, 8, true), (4, 5, 16, false), (2, 16, 1, true)] {
        for replacement in [Replacement::Clock, Replacement::Lru] {
            let change = |job: &mut Job| {
                writers(job, n, batch, depth, sorted);
                job.cache.replacement = replacement;
            };
            run_for(change, |outcome| {
                count(outcome, "block-writes") > 0.0
                    && count(outcome, "log-switches") >= 1.0
                    && count(outcome, "checkpoints") >= 1.0
            });
        }
    }
}

#[test]
fn a_process_that_looks_at_the_whole_cache_has_the_page_tables_of_it() {
    let run = |seconds| {
        let bench = Bench::new(|job| {
            job.cache.prefault = true;
            // 32 tables of 2 MiB each, of which the gets of two or three transactions need some.
            (job.cache.bytes, job.data.bytes) = (64 << 20, 80 << 20);
            // All processes are present until the end of a window of time.
            job.run.length = Length::Time(Duration::from_secs(seconds));
            job.run.ramp = Some(Length::Transactions(0));
            for class in job.classes.iter_mut().filter(|c| c.kind.transacts()) {
                class.pace = Pace::Closed { think: Duration::from_millis(1200) };
            }
        });
        bench.run()
    };
    // A disk can stall for seconds, and a window in which nothing is committed is an error: then a much longer one.
    let outcome = match run(3) {
        Err(error) if format!("{error:#}").contains("too small") => run(60).unwrap(),
        outcome => outcome.unwrap(),
    };
    // Not compared with a run without: how many gets a process does before its tables are read depends on the machine.
    let [has, needs] = ["page-table-bytes-per-foreground", "page-table-arithmetic-bytes"].map(|f| count(&outcome, f));
    assert!(has >= needs, "{has} bytes, the whole cache needs {needs}");
}

#[test]
fn a_checkpointer_keeps_ahead_of_the_log_switches() {
    let change = |job: &mut Job| {
        writers(job, 2, 32, 32, true);
        checkpointer(job, 20);
    };
    let bench = run_for(change, |outcome| {
        let switches = count(outcome, "log-switches");
        switches >= 1.0 && count(outcome, "checkpoints") > switches
    });
    let entry = ControlEntry::last(bench.dir.path()).unwrap().expect("there is a control file");
    let flushed = Ledger::load(bench.dir.path()).unwrap().flushed;
    assert!(entry.sequence > 1 && (1..=flushed).contains(&entry.checkpoint), "{entry:?}, flushed up to {flushed}");
}

#[test]
fn the_cache_lives_in_any_memory() {
    for memory in
        [Memory::Sysv, Memory::Thp, Memory::Huge(2 << 20), Memory::SysvHuge(2 << 20), Memory::Hugetlbfs(2 << 20)]
    {
        let bench = Bench::new(|job| {
            job.cache.memory = memory;
            job.run.length = job::Length::Transactions(200);
        });
        let outcome = match bench.run() {
            Ok(outcome) => outcome,
            Err(e) => {
                skipped(memory, e.downcast::<Refused>().unwrap());
                continue;
            }
        };
        assert_eq!(outcome.facts["cache-memory"], memory.to_string());
        assert_eq!(count(&outcome, "cache-page-bytes"), memory.page() as f64, "{memory:?}");
        let (each, private) =
            (count(&outcome, "page-table-bytes-per-foreground"), count(&outcome, "page-table-private-bytes"));
        assert!(each > 0.0 && private > 0.0);
        let all: f64 = bench.job.classes.iter().map(|c| count(&outcome, &format!("page-table-bytes-{}", c.name))).sum();
        assert_eq!(all, outcome.values["page-table-bytes"]);
    }
}

#[test]
fn memory_that_the_machine_does_not_have_is_refused() {
    let error = Bench::new(|job| job.cache.memory = Memory::Huge(64 << 10)).run().unwrap_err();
    let text = format!("{error:#}");
    assert!(text.starts_with("This kernel has no huge pages of 64K; it has"), "{text}");
}

#[test]
fn dontcache_reads_correct_blocks_or_names_the_missing_support() {
    match Bench::new(|job| job.data.dontcache = true).run() {
        Ok(outcome) => assert!(outcome.facts["page-cache"].contains("RWF_DONTCACHE"), "{:?}", outcome.facts),
        Err(error) => {
            let error = format!("{error:#}");
            assert!(error.contains("needs Linux 6.14"), "{error}");
            skipped("RWF_DONTCACHE", "this kernel or file system does not support it");
        }
    }
}
