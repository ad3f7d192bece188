use super::super::job::{Choice, Length};
use super::*;
use crate::Dbsim;
use crate::job::{ClassSpec, DataSync};
use crate::trial;
use crate::trial::JobContext;
use bigiron_model::clock::Clock;
use bigiron_sys::async_io::EngineSpec;
use bigiron_workload::testing;
use bigiron_workload::testing::skipped;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn requests() -> RequestSpec {
    RequestSpec {
        engine: EngineSpec { method: Method::Sync, ..EngineSpec::default() },
        bytes: 8192,
        random: true,
        choice: Choice::Uniform,
        files: None,
        read_percent: 50,
        direct: false,
        dsync: false,
        fdatasync_every: 0,
        verify: true,
        count: Some(400),
    }
}

fn job(files: usize, bytes: u64, classes: &[(usize, RequestSpec)]) -> Job {
    let mut job = Job::parse(&testing::options(&Dbsim, []).unwrap()).unwrap();
    job.run = crate::job::RunSpec {
        length: Length::Auto,
        ramp: None,
        phases: Vec::new(),
        acks: None,
        network: crate::job::Wire::Loopback,
    };
    job.cache.bytes = MIB;
    job.data.files = files;
    job.data.bytes = bytes;
    job.data.direct = false;
    job.data.sync = DataSync::Fdatasync;
    job.journal.direct = false;
    job.transactions.clear();
    job.classes = classes
        .iter()
        .enumerate()
        .map(|(i, (count, r))| ClassSpec {
            name: format!("plain-{i}"),
            count: *count,
            threads: false,
            pace: Pace::Closed { think: Duration::ZERO },
            kind: ClassKind::Requests(r.clone()),
        })
        .collect();
    job
}

fn context(dir: &Path, seed: u64) -> JobContext<'_> {
    JobContext { dir, seed, clock: Clock::Wall, network: None, progress: &|_| {}, live: None }
}

/// Runs the job on prepared files.
fn run_on(job: &Job, dir: &Path, seed: u64) -> Result<Vec<RequestsOutcome>> {
    Ok(trial::run(job, &context(dir, seed))?.classes.into_iter().filter_map(|c| c.requests).collect())
}

/// Prepares, runs and verifies.
fn whole(job: &Job, seed: u64) -> Result<Vec<RequestsOutcome>> {
    let dir = tempfile::tempdir().unwrap();
    trial::prepare(job, &context(dir.path(), seed)).unwrap();
    let done = run_on(job, dir.path(), seed)?;
    trial::verify(job, &context(dir.path(), seed))?;
    Ok(done)
}

#[test]
fn every_engine_does_its_share_and_what_it_wrote_is_there() {
    let uring = EngineSpec { method: Method::Uring, depth: 8, batch: 4, ..EngineSpec::default() };
    let spec = |method, depth, batch| EngineSpec { method, depth, batch, ..EngineSpec::default() };
    for engine in [
        spec(Method::Sync, 1, 1),
        spec(Method::Vectored, 1, 1),
        spec(Method::Threads, 4, 2),
        spec(Method::Libaio, 8, 8),
        spec(Method::Libaio, 8, 1),
        uring,
        EngineSpec { registered: true, ..uring },
        EngineSpec { sqpoll: true, ..uring },
    ] {
        if let Err(e) = async_io::open(&engine, 8192, &[]) {
            skipped(format_args!("{engine:?}"), e);
            continue;
        }
        let measured = whole(&job(2, 2 * MIB, &[(3, RequestSpec { engine, ..requests() })]), 1).unwrap();
        let m = &measured[0];
        assert_eq!(m.reads + m.writes, 400, "{engine:?}");
        assert!(m.reads.abs_diff(200) < 60, "{engine:?}: {} reads", m.reads);
        let [reads, writes, syncs] = m.latency.each_ref().map(|h| h.count());
        assert_eq!((reads, writes, syncs), (m.reads, m.writes, 0), "{engine:?}");
    }
}

#[test]
fn many_writers_on_the_same_few_blocks_raise_no_false_alarm() {
    // 64 processes on 10 files of 8 blocks each: nearly every request meets another's.
    let libaio = EngineSpec { method: Method::Libaio, depth: 4, batch: 2, ..EngineSpec::default() };
    let blocks = 10 * 8 * u64::from(BLOCK as u32) * 16;
    let mixed = [
        (32, RequestSpec { count: Some(6_400), ..requests() }),
        (32, RequestSpec { engine: libaio, choice: Choice::Zipf(1.1), count: Some(6_400), ..requests() }),
    ];
    let measured = whole(&job(10, blocks.next_multiple_of(10 * MIB), &mixed), 3).unwrap();
    assert!(measured.iter().all(|m| m.reads + m.writes == 6_400));
}

#[test]
fn requests_of_every_size_are_verifiable() {
    for bytes in [512, 4096, 65_536, 1 << 20, 4 << 20] {
        let r = RequestSpec { bytes, random: false, count: Some(20), fdatasync_every: 3, ..requests() };
        let measured = whole(&job(1, 8 * MIB, &[(2, r)]), 1).unwrap();
        assert_eq!(measured[0].reads + measured[0].writes, 20);
        assert!(measured[0].latency[2].count() > 0);
    }
}

/// Writes everything, applies `harm` to data file 0, and lets one process read from end to end.
fn harmed(harm: impl Fn(&File, &Path)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let write = RequestSpec { random: false, read_percent: 0, count: Some(128), ..requests() };
    let job = job(1, MIB, &[(1, write)]);
    files::lay_out(&job, dir.path(), |_| {}).unwrap();
    run_on(&job, dir.path(), 1).unwrap();
    verify(&job, dir.path()).unwrap();
    let path = files::data_path(dir.path(), 0);
    harm(&File::options().read(true).write(true).open(&path).unwrap(), dir.path());
    format!("{:#}", verify(&job, dir.path()).unwrap_err())
}

#[test]
fn every_kind_of_harm_is_found() {
    let block = |file: &File, n: u64| {
        let mut page = vec![0; BLOCK];
        file.read_exact_at(&mut page, n * BLOCK as u64).unwrap();
        page
    };
    let put = |file: &File, n: u64, page: &[u8]| file.write_all_at(page, n * BLOCK as u64).unwrap();
    let flipped = harmed(|f, _| {
        let mut page = block(f, 5);
        page[4_000] ^= 4;
        put(f, 5, &page);
    });
    assert_eq!(flipped, "Checksum of block 5 of data file 0 is wrong: torn or corrupted");
    let misdirected = harmed(|f, _| put(f, 7, &block(f, 6)));
    assert_eq!(misdirected, "block 6 of data file 0 is in place of block 7 of data file 0: misdirected");
    let zeroed = harmed(|f, _| put(f, 3, &[0; BLOCK]));
    assert_eq!(zeroed, "The data in place of block 3 of data file 0 were never written there");
    // The ramp of 32 wrote blocks 0 to 31 once, the window all of them: these have an old version.
    let lost = harmed(|f, _| {
        let mut page = block(f, 9);
        let label = page::Label { address: Address { file: 0, block: 9 }, version: 1, process: 0, sequence: 1 };
        page::seal(&mut page, &label);
        put(f, 9, &page);
    });
    assert_eq!(lost, "block 9 of data file 0 is in version 1 instead of 2: lost write or stale read");
}

#[test]
fn a_bad_block_ends_the_run_that_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let read = RequestSpec { random: false, read_percent: 100, count: Some(128), ..requests() };
    let job = job(1, MIB, &[(1, read)]);
    files::lay_out(&job, dir.path(), |_| {}).unwrap();
    let file = File::options().write(true).open(files::data_path(dir.path(), 0)).unwrap();
    file.write_all_at(&[1], 77 * BLOCK as u64 + 100).unwrap();
    let Err(error) = run_on(&job, dir.path(), 1) else { panic!("a bad block went unnoticed") };
    assert!(format!("{error:#}").contains("Checksum of block 77 of data file 0"), "{error:#}");
}

#[test]
fn an_open_ended_class_goes_on_until_the_window_closes() {
    // On a busy machine, the other class may be done before the open-ended one gets a CPU at all: then once more, with more requests.
    let worked = [400, 4_000, 40_000, 400_000].into_iter().any(|count| {
        let dir = tempfile::tempdir().unwrap();
        let other = RequestSpec { count: Some(count), ..requests() };
        let mut job = job(1, MIB, &[(1, RequestSpec { count: None, ..requests() }), (1, other)]);
        job.run.length = Length::Auto;
        files::lay_out(&job, dir.path(), |_| {}).unwrap();
        let measured = run_on(&job, dir.path(), 1).unwrap();
        assert_eq!(measured[1].reads + measured[1].writes, count);
        verify(&job, dir.path()).unwrap();
        measured[0].reads + measured[0].writes > 0
    });
    assert!(worked, "it never did anything");
}

#[test]
fn an_open_loop_counts_from_the_intended_start() {
    let dir = tempfile::tempdir().unwrap();
    // An impossibly high rate: each request begins later after its intended start than the previous one.
    let reads = |count| job(1, MIB, &[(1, RequestSpec { count: Some(count), read_percent: 100, ..requests() })]);
    let mut job = reads(10_000);
    job.classes[0].pace = Pace::Open { per_second: 1e8, poisson: false };
    trial::prepare(&job, &context(dir.path(), 1)).unwrap();
    let outcome = trial::run(&job, &context(dir.path(), 1)).unwrap();
    let (count, latency) = outcome.requests();
    assert_eq!(count, 10_000);
    // Each has waited for all before it: together they waited thousands of times the total time, and a late one on a busy machine
    // (the process, or its parent) cannot make up for that. Without the waits the sum would equal the total time.
    assert!(latency.mean().unwrap() * 10_000.0 > outcome.elapsed.as_nanos() as f64 * 3.0);
    // At a feasible rate, the window takes as long as the rate implies.
    job = reads(300);
    job.classes[0].pace = Pace::Open { per_second: 3_000.0, poisson: true };
    let outcome = trial::run(&job, &context(dir.path(), 1)).unwrap();
    assert!(outcome.elapsed > Duration::from_millis(50), "{:?}", outcome.elapsed);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |classes: &[(usize, RequestSpec)]| check(&job(1, MIB, classes)).unwrap_err();
    let plain = RequestSpec { verify: false, ..requests() };
    assert_eq!(
        refused(&[(1, RequestSpec { bytes: 1000, ..plain })]),
        "Requests of `plain-0` cannot have 1000 bytes; use a multiple of 512 up to 16777216"
    );
    assert_eq!(
        refused(&[(1, requests()), (1, plain.clone())]),
        "`plain-1` would overwrite what `plain-0` verifies; make it verify as well"
    );
    assert_eq!(
        refused(&[(1, requests()), (1, RequestSpec { bytes: 4096, ..requests() })]),
        "`plain-1` and `plain-0` verify blocks of different sizes; use 8192 bytes for both"
    );
    let null = EngineSpec { method: Method::Null, ..EngineSpec::default() };
    assert_eq!(
        refused(&[(1, RequestSpec { engine: null, ..requests() })]),
        "`plain-0` has nothing to verify: the null engine reads nothing"
    );
    let mut with_transactions = Job::parse(&testing::options(&Dbsim, []).unwrap()).unwrap();
    with_transactions.classes.extend(job(1, MIB, &[(1, plain)]).classes);
    assert_eq!(
        check(&with_transactions).unwrap_err(),
        "`plain-0` would overwrite the database's blocks; with transactions it can only read"
    );
}

#[test]
fn a_class_stays_in_its_files_and_one_without_a_total_is_load_beside() {
    let reader = RequestSpec {
        files: Some((0, 0)),
        random: false,
        read_percent: 100,
        verify: false,
        count: Some(64),
        ..requests()
    };
    let writer =
        RequestSpec { files: Some((1, 1)), random: false, read_percent: 0, verify: false, count: None, ..requests() };
    let job = job(2, 2 * MIB, &[(1, reader), (1, writer)]);
    let dir = tempfile::tempdir().unwrap();
    trial::prepare(&job, &context(dir.path(), 1)).unwrap();
    let before = std::fs::read(dir.path().join("data.000")).unwrap();
    let outcome = trial::run(&job, &context(dir.path(), 1)).unwrap();
    assert_eq!(std::fs::read(dir.path().join("data.000")).unwrap(), before, "the writer kept to its file");
    let requests: Vec<_> = outcome.classes.iter().filter_map(|c| c.requests.as_ref()).collect();
    assert_eq!((requests[0].reads, requests[0].writes), (64, 0));
    assert_eq!(outcome.requests().0, 64, "what has no total is not counted");
    let values = crate::metrics::values(&job, &outcome).unwrap();
    assert_eq!(values["elapsed"], outcome.elapsed.as_nanos() as f64);
}

#[test]
fn a_file_that_is_not_there_is_refused() {
    let job = job(2, 2 * MIB, &[(1, RequestSpec { files: Some((1, 2)), ..requests() })]);
    let refused = check(&job).unwrap_err();
    assert_eq!(refused, "`plain-0` uses data file 2; there are 2, numbered from 0");
}
