//! The log under threads that act as foregrounds, log writer and checkpointer, over journals in memory.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::super::job::{EXTENT, LogSync};
use super::super::journal::{self, Chunk, Chunks, JournalHeader, RECORD_HEADER, Record};
use super::*;

/// The default job, with such a log.
fn job(files: usize, block: usize, group: usize, wait: Duration, polling: bool) -> Job {
    let options = bigiron_workload::testing::options(&crate::Dbsim, []).unwrap();
    let mut job = Job::parse(&options).unwrap();
    job.journal.files = files;
    job.journal.bytes = EXTENT as u64;
    job.journal.block = block;
    job.journal.sync = LogSync::Dsync;
    let writer = job.classes.iter_mut().find(|c| matches!(c.kind, ClassKind::LogWriter { .. })).unwrap();
    let ClassKind::LogWriter { group_bytes, group_wait, wake, .. } = &mut writer.kind else { unreachable!() };
    (*group_bytes, *group_wait) = (group, wait);
    *wake = if polling { Wake::Poll } else { Wake::Post };
    job
}

/// A record of this many bytes beyond its header, which identifies its writer and number.
fn record(process: usize, n: u64, len: usize) -> Vec<u8> {
    let mut record = vec![0; journal::change_bytes(len)];
    let address = super::super::block::Address { file: process as u32, block: n as u32 };
    let stamp = super::super::block::Stamp { version: n as u32, lsn: 0, process: process as u32, transaction: n };
    let extent = super::super::block::ByteRange { offset: 100, len };
    let payload = vec![(process as u64 * 31 + n) as u8; len];
    journal::encode_change(&mut record, address, stamp, extent, &payload);
    record
}

fn commit_record(process: usize, n: u64) -> Vec<u8> {
    let mut record = vec![0; RECORD_HEADER];
    journal::encode_commit(&mut record, process as u32, n);
    record
}

/// A transaction of records with payloads of this many bytes; waits for its commit. Every other one is appended all at once.
fn transact(log: &Log<'_>, process: usize, n: u64, payloads: &[usize]) -> Stages {
    let mut records: Vec<_> = payloads.iter().map(|len| record(process, n, *len)).collect();
    records.push(commit_record(process, n));
    let records: Vec<_> = records.iter().map(Vec::as_slice).collect();
    let commit = if n.is_multiple_of(2) {
        log.commit(process, &records, now_ns()).unwrap()
    } else {
        let bytes = records.iter().map(|r| r.len()).sum();
        let mut redo = log.reserve(process, records.len(), bytes).unwrap();
        let (commit, changes) = records.split_last().unwrap();
        for change in changes {
            redo.append(change);
        }
        redo.commit(&[commit], now_ns())
    };
    let stages = log.wait(&commit);
    assert!(log.flushed() >= commit.lsn, "acknowledged before it was durable");
    stages
}

/// The log writer's output.
struct Written {
    /// By journal.
    journals: Vec<Vec<u8>>,
    /// Every chunk ever written, with its turn.
    history: Vec<(u64, Closed, Vec<u8>)>,
}

/// A log writer that writes to memory, until `stop`.
fn write_log(log: &Log<'_>, job: &Job, stop: &AtomicBool) -> Written {
    let mut journals = vec![vec![0; job.journal.bytes as usize]; job.journal.files];
    JournalHeader { sequence: 1, start: 0 }.encode(&mut journals[0]);
    let mut history = Vec::new();
    let mut buffer = vec![0; log.chunk_bytes()];
    loop {
        log.sleep_until(|| log.flush_due() || log.switch_due() || stop.load(SeqCst));
        if log.flush_due() {
            std::thread::sleep(log.gather());
            let Some(closed) = log.take(&mut buffer) else { continue };
            journal::seal_chunk(&mut buffer[..closed.len], closed.used, closed.lsn, log.turns.turn());
            let at = log.journal_offset(closed.lsn) as usize;
            journals[log.turns.journal()][at..at + closed.len].copy_from_slice(&buffer[..closed.len]);
            history.push((log.turns.turn(), closed, buffer[..closed.len].to_vec()));
            log.publish_flushed(&closed);
        } else if log.switch_due() {
            let turn = log.turns.turn() + 1;
            let reuse = log.turns.reuse();
            // Turns are freed in order, each by the redo before the next one.
            assert_eq!(reuse.checkpoint > 0, turn > job.journal.files as u64);
            log.publish_checkpoint(reuse.checkpoint);
            let journal = log.turns.journal_of(turn);
            assert_eq!(journal as u64, (turn - 1) % job.journal.files as u64);
            JournalHeader { sequence: turn, start: log.switch_lsn() }.encode(&mut journals[journal]);
            log.switched();
        } else if stop.load(SeqCst) {
            return Written { journals, history };
        }
    }
}

/// Runs transactions of several processes, given by payloads, against a log writer.
fn run(job: &Job, processes: &[Vec<Vec<usize>>]) -> (Written, LogCounts) {
    let segment = Segment::new(Log::bytes(job, processes.len())).unwrap();
    let log = Log::new(&segment, job, processes.len());
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_log(&log, job, &stop));
        let foregrounds: Vec<_> = processes
            .iter()
            .enumerate()
            .map(|(process, transactions)| {
                let log = &log;
                scope.spawn(move || {
                    for (n, payloads) in transactions.iter().enumerate() {
                        transact(log, process, n as u64 + 1, payloads);
                    }
                })
            })
            .collect();
        for f in foregrounds {
            f.join().unwrap();
        }
        stop.store(true, SeqCst);
        log.wake_all();
        writer.join().unwrap()
    });
    (written, log.counts())
}

fn transactions() -> impl Strategy<Value = Vec<Vec<Vec<usize>>>> {
    let transaction = prop::collection::vec(1usize..700, 0..6);
    let transactions = prop::collection::vec(transaction, 1..30).prop_map(|t| vec![t; 12].concat());
    prop::collection::vec(transactions, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn records_are_in_order_without_a_gap_in_groups_that_are_not_too_large(
        processes in transactions(),
        files in 2usize..5,
        group in prop::sample::select(vec![1 << 10, 4 << 10, 64 << 10, 16 << 20]),
        block in prop::sample::select(vec![512, 4096]),
        polling in prop::bool::ANY,
    ) {
        let job = job(files, block, group, Duration::ZERO, polling);
        let (written, counts) = run(&job, &processes);
        let mut lsn = 0;
        let mut sequence = 0;
        let mut last: HashMap<u32, u64> = HashMap::new();
        let mut commits = 0;
        for (turn, closed, bytes) in &written.history {
            let chunk = Chunk::at(bytes, lsn, *turn).expect("chunks follow each other");
            prop_assert_eq!((closed.lsn, bytes.len() % block), (lsn, 0));
            lsn = chunk.end;
            let records: Vec<_> = chunk.records().collect::<Result<_, _>>().unwrap();
            prop_assert!(bytes.len() <= group.next_multiple_of(block) || records.len() == 1, "{} bytes", bytes.len());
            for entry in records {
                sequence += 1;
                prop_assert_eq!(entry.sequence, sequence);
                match entry.record {
                    Record::Change { process, transaction, payload, .. } => {
                        prop_assert_eq!(transaction, last.get(&process).unwrap_or(&0) + 1);
                        let byte = (u64::from(process) * 31 + transaction) as u8;
                        prop_assert!(payload.iter().all(|b| *b == byte), "a record was damaged");
                    }
                    Record::Filler { .. } => prop_assert!(false, "nobody has written filler"),
                    Record::Commit { process, transaction } => {
                        commits += 1;
                        prop_assert_eq!(last.insert(process, transaction).unwrap_or(0) + 1, transaction);
                    }
                }
            }
        }
        prop_assert_eq!(commits, processes.iter().map(Vec::len).sum::<usize>());
        prop_assert_eq!((counts.flushes, counts.flushed_bytes), (written.history.len() as u64, lsn));

        // The journals still hold the end of it, turn by turn.
        let last_turn = written.history.last().map_or(1, |(turn, ..)| *turn);
        for (j, bytes) in written.journals.iter().enumerate() {
            let Some(header) = JournalHeader::decode(bytes) else { continue };
            prop_assert_eq!((header.sequence - 1) as usize % files, j);
            prop_assert!(header.sequence + files as u64 > last_turn);
            let here: Vec<_> = Chunks::new(bytes, header).map(|c| c.lsn).collect();
            let written: Vec<_> =
                written.history.iter().filter(|(turn, ..)| *turn == header.sequence).map(|(_, c, _)| c.lsn).collect();
            prop_assert_eq!(here, written);
        }
    }
}

#[test]
fn all_journals_get_their_turns() {
    for files in [2, 3, 5] {
        let job = job(files, 512, 16 << 20, Duration::ZERO, false);
        let transactions = vec![vec![600; 20]; 800];
        let (written, counts) = run(&job, &[transactions.clone(), transactions]);
        assert!(counts.turns.switches > files as u64 + 1, "{counts:?}");
        assert!(written.journals.iter().all(|j| JournalHeader::decode(j).is_some()));
    }
}

#[test]
fn all_commits_that_wait_go_with_one_write() {
    const PROCESSES: usize = 16;
    let job = job(2, 512, 16 << 20, Duration::ZERO, false);
    let segment = Segment::new(Log::bytes(&job, PROCESSES)).unwrap();
    let log = Log::new(&segment, &job, PROCESSES);
    let stages = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for process in 0..PROCESSES {
            let (log, stages) = (&log, &stages);
            scope.spawn(move || {
                let s = transact(log, process, 1, &[100]);
                stages.lock().unwrap().push(s);
            });
        }
        // The log writer comes when the last process has posted.
        Poll::until(|| log.control.posted.load(SeqCst) == PROCESSES as u64);
        let mut buffer = vec![0; log.chunk_bytes()];
        let closed = log.take(&mut buffer).unwrap();
        assert_eq!(log.take(&mut buffer), None);
        log.publish_flushed(&closed);
    });
    assert_eq!(log.counts().flushes, 1);
    let stages = stages.into_inner().unwrap();
    // One write for all: none waited longer than from its own post to the end of it.
    assert_eq!(stages.len(), PROCESSES);
    assert!(stages.iter().all(|s| s.0[2] > 0 && s.total() >= s.0[2]), "{stages:?}");
}

#[test]
fn only_those_are_acknowledged_who_wait_for_what_was_written() {
    let job = job(2, 512, 1 << 10, Duration::ZERO, false);
    let segment = Segment::new(Log::bytes(&job, 10_000)).unwrap();
    let log = Log::new(&segment, &job, 10_000);
    let commit = |process| {
        let mut redo = log.reserve(process, 2, journal::change_bytes(600) + RECORD_HEADER).unwrap();
        redo.append(&record(process, 1, 600));
        redo.commit(&[&commit_record(process, 1)], now_ns())
    };
    let commits = [9_999, 0, 5_000].map(commit);
    let mut buffer = vec![0; log.chunk_bytes()];
    for (i, commit) in commits.iter().enumerate() {
        assert_eq!(log.control.acknowledged.load(SeqCst), i as u64);
        while log.flushed() < commit.lsn {
            assert!(log.flush_due());
            log.publish_flushed(&log.take(&mut buffer).unwrap());
        }
        log.wait(commit);
    }
    assert!(!log.flush_due());
    assert_eq!(log.control.acknowledged.load(SeqCst), 3);
}

#[test]
fn commits_gather_for_as_long_as_the_job_says() {
    let hour = Duration::from_secs(3600);
    let job = job(2, 512, 2 << 10, hour, false);
    let segment = Segment::new(Log::bytes(&job, 1)).unwrap();
    let log = Log::new(&segment, &job, 1);
    assert_eq!(log.gather(), Duration::ZERO);
    let commit = |n, ago: u64| {
        let mut redo = log.reserve(0, 2, journal::change_bytes(600) + RECORD_HEADER).unwrap();
        redo.append(&record(0, n, 600));
        redo.commit(&[&commit_record(0, n)], now_ns().saturating_sub(ago))
    };
    commit(1, 0);
    assert!(log.gather() > hour / 2 && log.gather() <= hour);
    // Counted from the first post: a second one changes nothing.
    commit(2, hour.as_nanos() as u64);
    assert!(log.gather() > hour / 2);
    // A full group has nothing to wait for.
    commit(3, 0);
    assert_eq!(log.gather(), Duration::ZERO);
    let mut buffer = vec![0; log.chunk_bytes()];
    log.publish_flushed(&log.take(&mut buffer).unwrap());
    // The rest is a group of its own.
    assert!(log.gather() > hour / 2);
    log.publish_flushed(&log.take(&mut buffer).unwrap());
    assert_eq!(log.gather(), Duration::ZERO);
}

#[test]
fn room_is_given_first_come_first_served() {
    let job = job(2, 512, 16 << 20, Duration::ZERO, false);
    let segment = Segment::new(Log::bytes(&job, 3)).unwrap();
    let log = Log::new(&segment, &job, 3);
    let half = job.log_buffer_bytes() / 2;
    let first = log.reserve(0, 1, half).unwrap();
    let queued = |n| Poll::until(|| log.control.queued.load(SeqCst) == n);
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let (log, order) = (&log, &order);
        for (process, bytes) in [(1, half), (2, 100)] {
            let done = scope.spawn(move || {
                let room = log.reserve(process, 1, bytes).unwrap();
                order.lock().unwrap().push(process);
                drop(room);
            });
            queued(process as u64);
            // There is room for the small one, but the large one came first.
            assert!(!done.is_finished());
        }
        assert_eq!(log.control.granted.load(SeqCst), 0);
        drop(first);
    });
    assert_eq!(order.into_inner().unwrap().len(), 2);
    assert_eq!((log.control.granted.load(SeqCst), log.control.reserved.load(SeqCst)), (2, 0));
}

#[test]
fn more_than_the_buffer_holds_is_refused() {
    let job = job(2, 512, 16 << 20, Duration::ZERO, false);
    let segment = Segment::new(Log::bytes(&job, 1)).unwrap();
    let log = Log::new(&segment, &job, 1);
    let error = log.reserve(0, 1, job.log_buffer_bytes()).err().unwrap().to_string();
    assert!(error.starts_with("A transaction's redo may need 52"), "{error}");
}
