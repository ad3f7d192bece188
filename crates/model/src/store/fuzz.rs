//! Plans and records of folders that others have made. Checksums are repaired first: who writes a folder writes those too.

use std::collections::BTreeMap;

use super::line;
use super::{Folder, SlotState, SlotTally, testing};
use crate::clock::Clock;
use crate::counters::{Amounts, TrialCounters, WindowCounters};
use crate::fuzz_target;
use crate::plan::FailedCheck;
use crate::record::{Complaint, Failure, FileChange, Outcome, Record};

/// The words in the text of a seed are the format's own.
const PLAN_WORDS: &[&str] = &[
    "[[slots]]",
    "[[arms]]",
    "[[workloads]]",
    "order = []",
    "slots = []",
    "arms = []",
    "workloads = []",
    "[design]",
    "wall",
    "exact",
    "none",
    "p50",
    "amount",
    "usage",
    "throughput",
    "nan",
    "inf",
    "-inf",
    "1979-05-27T07:32:00Z",
    "'''",
    "\"\"\"",
    "{",
    "}",
    "[",
    "]",
    "local",
    "vm",
    "\\u0000",
    "0x",
    "pairs = 4294967295",
];

#[test]
fn plans() {
    let mut large = testing::plan(4, 3, Clock::Wall, 7);
    large.question = Some("Is it \"better\"?".to_owned());
    large.failed_check = Some(FailedCheck { kernel: "6.1".to_owned(), reasons: vec!["noise".to_owned()] });
    let small = testing::plan(2, 2, Clock::Exact, 1);
    let seeds = [small, large].iter().map(|plan| testing::plan_text(plan).into_bytes()).collect();
    let dir = tempfile::tempdir().unwrap();
    fuzz_target!(plans, seeds, PLAN_WORDS).run(|input| {
        testing::write_plan(dir.path(), input);
        let folder = Folder::open(dir.path()).map_err(|e| e.to_string())?;
        let plan = folder.plan();
        // What each reader of a plan asks it.
        let tally = SlotTally::of::<Record>(plan, &[]);
        assert_eq!(tally.missing().len(), plan.slots.len());
        for arm in &plan.arms {
            plan.workloads.iter().for_each(|w| drop(plan.options_in(arm, &w.name)));
        }
        let kinds = [plan.is_aa(), plan.is_screening(), plan.failed_check.is_some(), plan.slots.is_empty()];
        Ok(format!("{} {kinds:?}", plan.trial()))
    });
}

const RECORD_WORDS: &[&str] = &[
    "null",
    "true",
    "[]",
    "{}",
    "[[",
    "{\"",
    "\\ud800",
    "\\u0000",
    "completed",
    "failed",
    "void",
    "\"schema\":1",
    "\"attempt\":4294967295",
    "\"kind\":",
    "\"failure\":",
    "panic",
    "NaN",
    "1e999",
    "counters",
    "guest",
    "windows",
];

/// A record with every part that a record may have.
fn whole(mut record: Record) -> Record {
    record.counters = Some(TrialCounters {
        schema: 1,
        names: vec!["mem.Slab".to_owned(), "vm.a".to_owned()],
        readings: 2,
        reading_ns: 10,
        windows: vec![WindowCounters {
            workload: "micro".to_owned(),
            metrics: vec!["fork".to_owned()],
            operations: 10,
            ns: 100,
            counts: vec![(1, 7)],
            unknown: vec![0],
        }],
        amounts: vec![Amounts { workload: "micro".to_owned(), values: vec![(0, 9)] }],
    });
    record.changes.push(FileChange { path: "/sys/x".to_owned(), before: "0".to_owned(), after: "1".to_owned() });
    record.complaints.push(Complaint { class: "BUG".to_owned(), line: "BUG: bad".to_owned() });
    record.artifacts.push("artifacts/0000-a-0/console.log".to_owned());
    record
}

#[test]
fn records() {
    let plan = testing::plan(4, 2, Clock::Wall, 1);
    let failed = Outcome::Failed { failure: Failure::Panic, message: "Oops".to_owned() };
    let of = |slot, attempt, outcome| serde_json::to_string(&testing::record(&plan, slot, attempt, outcome)).unwrap();
    let void = Outcome::Void { cause: "the disk is full".to_owned() };
    let lines = [of(0, 0, Outcome::Completed), of(1, 0, void), of(1, 1, failed), of(2, 0, Outcome::Completed)];
    let with_all = serde_json::to_string(&whole(testing::record(&plan, 3, 0, Outcome::Completed))).unwrap();
    let seeds = vec![format!("{}\n", lines.join("\n")).into_bytes(), format!("{with_all}\n").into_bytes()];
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(dir.path(), &plan).unwrap();
    fuzz_target!(records, seeds, RECORD_WORDS).run(|input| {
        testing::write_records(dir.path(), input);
        let read = folder.records().map_err(|e| e.to_string())?;
        for record in &read.records {
            // What was read can be written, and is then the same.
            let line = line::encode(record).unwrap();
            assert_eq!(line::decode::<Record>(&line[..line.len() - 1]).as_ref(), Ok(record));
            if let Some(counters) = &record.counters {
                counters.windows.iter().for_each(|window| drop(counters.counts(window)));
                counters.amounts.iter().for_each(|amounts| drop(counters.amounts_of(&amounts.workload)));
            }
        }
        let tally = SlotTally::of(&plan, &read.records);
        for (slot, state) in tally.slots.iter().enumerate() {
            if let SlotState::Finished { record } = state {
                assert_eq!(read.records[*record].slot as usize, slot);
            }
        }
        let kinds: BTreeMap<bool, usize> =
            read.records.iter().map(|r| (matches!(r.outcome, Outcome::Completed), 0)).collect();
        match read.unreadable.first() {
            Some((_, why)) => Err(why.clone()),
            None => Ok(format!("{kinds:?} {}", tally.finished())),
        }
    });
}
