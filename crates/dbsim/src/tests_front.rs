//! Whole runs: steps, pace, phases, waits, threads.

use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::job::{Amount, Choice, ClassKind, Length, Memory, PhaseSpec, Step, TransactionSpec, WorkShare};
use super::outcome::JobOutcome;
use super::waits::WaitEvent;
use super::*;
use bigiron_model::clock::Clock;
use bigiron_workload::units::Pace;
use bigiron_workload::{Progress, testing};

/// A small job beside the test's executable, which is on a real file system, while `/tmp` might be in memory.
struct Bench {
    dir: tempfile::TempDir,
    job: Job,
}

const READ: Step = Step::Read { count: 4, choice: Choice::Zipf(0.9) };

impl Bench {
    fn new(change: impl FnOnce(&mut Job)) -> Self {
        let small = [("processes", "4"), ("transactions", "160"), ("data", "10M"), ("cache", "1M"), ("journal", "2M")];
        let mut job = Job::parse(&testing::options(&Dbsim, small).unwrap()).unwrap();
        assert_eq!(job.cache.memory, Memory::Mmap);
        change(&mut job);
        let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        Self { dir: tempfile::tempdir_in(beside).unwrap(), job }
    }

    /// Prepares, runs and verifies.
    fn run(&self) -> Result<JobOutcome> {
        self.run_and_tell(&|_| {})
    }

    fn run_and_tell(&self, progress: &dyn Fn(Progress<'_>)) -> Result<JobOutcome> {
        let cx = JobContext { dir: self.dir.path(), seed: 7, clock: Clock::Wall, network: None, progress, live: None };
        prepare(&self.job, &cx)?;
        let outcome = run(&self.job, &cx)?;
        verify(&self.job, &cx)?;
        let result = result(&self.job, &outcome)?;
        let declared: Vec<_> = metrics(&self.job).into_iter().map(|m| m.name).collect();
        assert_eq!(result.values.len(), declared.len(), "{declared:?}");
        for name in declared {
            let value = result.values[&name];
            assert!(value.is_finite() && value > 0.0, "{name} is {value}");
        }
        Ok(outcome)
    }

    fn facts(&self, outcome: &JobOutcome) -> std::collections::BTreeMap<String, String> {
        result(&self.job, outcome).unwrap().facts
    }
}

fn kind(name: &str, weight: u32, steps: &[Step]) -> TransactionSpec {
    TransactionSpec { name: name.to_owned(), weight, steps: steps.to_vec() }
}

fn foregrounds(job: &mut Job) -> &mut super::job::ClassSpec {
    job.classes.iter_mut().find(|c| c.kind == ClassKind::Foreground).unwrap()
}

#[test]
fn every_step_is_done_and_what_is_left_behind_verifies() {
    let ms = Duration::from_millis(1);
    let bench = Bench::new(|job| {
        job.transactions = vec![
            kind(
                "update",
                4,
                &[READ, Step::Dirty(Amount::Count(2)), Step::Redo { min: 9_000, max: 20_000 }, Step::Commit],
            ),
            kind("undo", 2, &[READ, Step::Dirty(Amount::Percent(50)), Step::Rollback]),
            kind("late", 2, &[READ, Step::Cpu(ms), Step::Dirty(Amount::Count(1)), Step::Think(ms)]),
            kind(
                "two",
                1,
                &[READ, Step::Dirty(Amount::Count(1)), Step::Commit, READ, Step::Dirty(Amount::Count(4)), Step::Commit],
            ),
            kind("report", 2, &[Step::Read { count: 20, choice: Choice::Uniform }, Step::Sort(100_000), Step::Commit]),
        ];
    });
    let outcome = bench.run().unwrap();
    assert_eq!(outcome.transactions, 160);
    assert_eq!(outcome.kinds.iter().map(|k| k.latency.count()).sum::<u64>(), 160);
    let count = |name: &str| outcome.kinds.iter().find(|k| k.name == name).unwrap().latency.count();
    assert!(["update", "undo", "late", "two", "report"].iter().all(|k| count(k) > 0));
    assert_eq!(outcome.counts.rollbacks, count("undo"));
    // A transaction without a final commit is committed at its end; one that changed nothing does not wait.
    assert_eq!(outcome.counts.commits, count("update") + count("late") + 2 * count("two"));
    assert!(outcome.kinds[2].latency.quantile(0.0).unwrap() >= 2_000_000, "computes and thinks");
    assert_eq!(outcome.waits().of(WaitEvent::Think).count, count("late"));
    let syncs = outcome.waits().of(WaitEvent::LogFileSync);
    assert!(syncs.count > 0 && syncs.count <= outcome.counts.commits + outcome.counts.rollbacks);
    assert!(outcome.counts.log.flushed_bytes > 9_000 * count("update"));
}

#[test]
fn a_job_that_only_reads_needs_no_log() {
    let bench = Bench::new(|job| {
        job.transactions = vec![kind("lookup", 1, &[READ, Step::Commit])];
        job.classes.retain(|c| c.kind == ClassKind::Foreground);
    });
    let outcome = bench.run().unwrap();
    assert_eq!((outcome.counts.commits, outcome.commits.count()), (0, 0));
    assert!(outcome.waits().of(WaitEvent::DataFileRead).count > 0);
    // All of the data fits: then no read is promised.
    let bench = Bench::new(|job| {
        job.transactions = vec![kind("lookup", 1, &[READ])];
        job.classes.retain(|c| c.kind == ClassKind::Foreground);
        job.cache.bytes = job.data.bytes * 2;
    });
    bench.run().unwrap();
    assert!(metrics(&bench.job).iter().all(|m| m.name != "read-mean" && m.name != "commit-p50"));
}

#[test]
fn redo_alone_can_be_a_job() {
    let bench = Bench::new(|job| {
        job.transactions = vec![kind("append", 1, &[Step::Redo { min: 500, max: 1_500 }, Step::Commit])];
        job.classes.retain(|c| {
            matches!(c.kind, ClassKind::Foreground | ClassKind::LogWriter { .. } | ClassKind::DatabaseWriter { .. })
        });
    });
    let outcome = bench.run().unwrap();
    assert_eq!((outcome.counts.commits, outcome.reads.count(), outcome.counts.gets), (160, 0, 0));
}

#[test]
fn what_would_wait_for_ever_is_refused() {
    let error = |change: fn(&mut Job)| Bench::new(change).run().unwrap_err().to_string();
    assert!(
        error(|job| job.classes.retain(|c| !matches!(c.kind, ClassKind::LogWriter { .. }))).contains("no log-writer")
    );
    assert!(
        error(|job| job.classes.retain(|c| !matches!(c.kind, ClassKind::DatabaseWriter { .. })))
            .contains("no database-writer")
    );
    assert!(error(|job| job.classes.retain(|c| !c.kind.transacts())).contains("must be a time"));
}

/// Runs the job in a window of 300 ms; in a longer one if a machine that stalled let nothing happen in it, which is an error, or did not let
/// the parent look in between.
fn in_a_window(change: impl Fn(&mut Job)) -> (Duration, JobOutcome) {
    let mut time = Duration::from_millis(300);
    loop {
        let bench = Bench::new(|job| {
            job.run.length = Length::Time(time);
            change(job);
        });
        let is_last = time > Duration::from_secs(60);
        match bench.run() {
            Ok(outcome) if is_last || !outcome.series.points.is_empty() => return (time, outcome),
            Err(error) if is_last || !format!("{error:#}").contains("too small") => panic!("{error:#}"),
            _ => time *= 6,
        }
    }
}

#[test]
fn a_window_of_time_ends_by_time_and_a_free_scanner_with_it() {
    let (time, outcome) = in_a_window(|job| {
        job.run.ramp = Some(Length::Time(Duration::from_millis(100)));
        for class in &mut job.classes {
            if let ClassKind::Scanner { work, .. } = &mut class.kind {
                *work = WorkShare::Free;
            }
        }
    });
    assert!(outcome.elapsed >= time && outcome.transactions > 0 && outcome.counts.scanned > 0);
    assert!(!outcome.series.points.is_empty() && outcome.series.points.len() <= series::POINTS);
    // Only scanners, without a share of any transactions.
    let (_, outcome) = in_a_window(|job| {
        job.classes.retain(|c| matches!(c.kind, ClassKind::Scanner { .. }));
        let ClassKind::Scanner { work, .. } = &mut job.classes[0].kind else { unreachable!() };
        *work = WorkShare::Free;
    });
    assert!(outcome.counts.scanned > 0);
}

#[test]
fn phases_have_their_own_pace_and_figures() {
    let phase = |name: &str, length, pace| PhaseSpec { name: name.to_owned(), length, pace };
    let slow = Pace::Open { per_second: 100.0, poisson: false };
    let bench = Bench::new(|job| {
        job.run.phases =
            vec![phase("full", Length::Transactions(80), None), phase("slow", Length::Transactions(20), Some(slow))];
    });
    let outcome = bench.run().unwrap();
    let [full, slow] = &outcome.phases[..] else { panic!("{:?}", outcome.phases) };
    assert_eq!((full.transactions, slow.transactions, outcome.transactions), (80, 20, 100));
    assert_eq!((full.latency.count(), slow.latency.count()), (80, 20));
    // 20 starts, 10 ms apart, the first at once; the workers begin when they wake.
    assert!(slow.elapsed >= Duration::from_millis(185), "{:?}", slow.elapsed);
    assert!(bench.facts(&outcome)["phase.slow"].contains("tx/s"));
    // On a heavily loaded machine, few transactions complete even in a second.
    let of_time = |seconds: u64| {
        let bench = Bench::new(|job| {
            let part = Length::Time(Duration::from_secs(seconds));
            job.run.length = Length::Time(Duration::from_secs(5 * seconds));
            job.run.phases = vec![
                phase("a", Length::Auto, None),
                phase("b", part, Some(Pace::Closed { think: Duration::from_secs(600) })),
            ];
        });
        bench.run().map(|outcome| (outcome.phases[0].transactions, outcome.phases[1].transactions))
    };
    let has_more = |ran: &anyhow::Result<(u64, u64)>| matches!(ran, Ok((a, b)) if a > b);
    let mut ran = of_time(1);
    if !has_more(&ran) {
        ran = of_time(10);
    }
    assert!(has_more(&ran), "{ran:?}");
}

#[test]
fn an_open_loop_counts_from_the_intended_start() {
    // Twice as fast as possible: the transactions sleep.
    let bench = Bench::new(|job| {
        job.transactions = vec![kind("sleep", 1, &[Step::Think(Duration::from_millis(4))])];
        let class = foregrounds(job);
        class.count = 1;
        class.pace = Pace::Open { per_second: 500.0, poisson: true };
        job.run.length = Length::Transactions(100);
        job.classes.retain(|c| c.kind == ClassKind::Foreground);
    });
    let outcome = bench.run().unwrap();
    assert!(outcome.counts.late > 50, "{}", outcome.counts.late);
    // Every start is some 2 ms later than the previous one.
    let max = outcome.kinds[0].latency.max().unwrap();
    assert!(max > 40_000_000, "{max}");
    assert_eq!(bench.facts(&outcome)["late-starts"], outcome.counts.late.to_string());
}

#[test]
fn waits_and_cpu_explain_the_time_of_transactions() {
    // Nothing explains the time for which a hypervisor takes a CPU away, so one of several runs must add up.
    let mut tries: Vec<Option<f64>> = Vec::new();
    while !tries.last().is_some_and(|tried| tried.is_none_or(|explained| (0.8..=1.2).contains(&explained))) {
        assert!(tries.len() < 10, "{tries:?}");
        tries.push(explained_by_waits_and_cpu());
    }
}

/// Checks the waits of a run and returns the share of the audited transactions' time that is explained, if the kernel counts run delays.
fn explained_by_waits_and_cpu() -> Option<f64> {
    let bench = Bench::new(|job| {
        job.run.length = Length::Transactions(1_600);
        foregrounds(job).count = 8;
    });
    let (opened, closed) = (Cell::new(None), Cell::new(None));
    let outcome = bench.run_and_tell(&|progress: Progress<'_>| match progress.step {
        "window" => opened.set(Some(Instant::now())),
        "shut down" => closed.set(Some(Instant::now())),
        _ => {}
    });
    let (outcome, between) = (outcome.unwrap(), closed.get().unwrap() - opened.get().unwrap());
    for event in [WaitEvent::LogFileSync, WaitEvent::DataFileRead] {
        assert!(outcome.waits().of(event).count > 0, "{}", event.name());
    }
    let scanner = outcome.classes.iter().find(|c| c.kind == "scanner").unwrap();
    assert!(scanner.waits.of(WaitEvent::DataFileScan).count > 0);
    // Whatever else the machine does, no worker waits longer than the time in which the window is watched. (The window's own end is a little
    // earlier than the reading of the waits, and a parent that stalls in between makes it much earlier.)
    for class in &outcome.classes {
        assert!(u128::from(class.waits.ns()) <= class.workers as u128 * between.as_nanos(), "{class:?} in {between:?}");
    }
    let audit = outcome.audit();
    let explained = audit.explained();
    if explained.is_some() {
        // One of 64 of each worker's 200, in turn.
        assert!((24..=32).contains(&audit.count), "{audit:?}");
        assert!(bench.facts(&outcome)["wait-identity"].contains("of the time of "));
    }
    explained
}

#[test]
fn threads_are_one_process() {
    let bench = Bench::new(|job| foregrounds(job).threads = true);
    let outcome = bench.run().unwrap();
    assert_eq!((outcome.transactions, outcome.processes), (160, 7));
    assert!(outcome.cpu > Duration::ZERO);
    // The hottest block that the preload leaves out is broken: the thread that reads it ends them all.
    let bench = Bench::new(|job| {
        foregrounds(job).threads = true;
        job.classes.retain(|c| !matches!(c.kind, ClassKind::Scanner { .. }));
    });
    let progress = |_: Progress<'_>| {};
    let cx = JobContext {
        dir: bench.dir.path(),
        seed: 7,
        clock: Clock::Wall,
        network: None,
        progress: &progress,
        live: None,
    };
    prepare(&bench.job, &cx).unwrap();
    let popular = choice::Choosers::new(&bench.job, 7);
    let block = popular.popular(bench.job.buffers() * trial::PRELOAD.0 / trial::PRELOAD.1);
    let address = files::address(&bench.job, block);
    let path = files::data_path(bench.dir.path(), address.file as usize);
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&[7; 512], u64::from(address.block) * block::BLOCK as u64).unwrap();
    let error = format!("{:#}", run(&bench.job, &cx).unwrap_err());
    assert!(error.starts_with("Foreground ") && error.contains(" failed: "), "{error}");
}

#[test]
fn the_same_seed_does_the_same_steps() {
    let versions = || {
        let bench = Bench::new(|job| {
            let hot = Choice::Hot { gets: 80, blocks: 10 };
            job.transactions = vec![
                kind("a", 1, &[Step::Read { count: 3, choice: hot }, Step::Dirty(Amount::Count(2)), Step::Commit]),
                kind(
                    "b",
                    1,
                    &[
                        Step::Read { count: 3, choice: Choice::NuRand(255) },
                        Step::Dirty(Amount::Count(1)),
                        Step::Rollback,
                    ],
                ),
            ];
        });
        bench.run().unwrap();
        let ledger = ledger::Ledger::load(bench.dir.path()).unwrap();
        ledger.blocks.iter().map(|b| b.committed).collect::<Vec<_>>()
    };
    assert_eq!(versions(), versions());
}
