//! Reports on folders that others have made: plan, records and evidence, judged and shown in every format.

use std::fs;
use std::sync::atomic::AtomicBool;

use bigiron_judge::{calls, causes, counters, fixture, judge, locks, modelled, stacks};
use bigiron_model::counters::{Amounts, TrialCounters, WindowCounters};
use bigiron_model::evidence::{Evidence, Executed, Sampled};
use bigiron_model::fuzz_target;
use bigiron_model::plan::Plan;
use bigiron_model::record::{Failure, Record};
use bigiron_model::store::{Folder, testing};

use super::flame::{self, FlameView};
use super::why::Why;
use super::{Extras, Report, csv, html, json, text, trial, trials};

/// Between plan, records, evidence, and the stacks of all trials.
const PART: &str = "\n---\n";

const WORDS: &[&str] = &[
    "pairs = 0",
    "pairs = 1",
    "arms = []",
    "[[arms]]",
    "slots = []",
    "metrics = []",
    "workloads = []",
    "nan",
    "inf",
    "-inf",
    "primary = false",
    "p99",
    "amount",
    "usage",
    "throughput",
    "wall",
    "none",
    "exact",
    "local",
    "1e308",
    "1e-308",
    "null",
    "[]",
    "{}",
    "18446744073709551615",
    "\"samples\":0",
    "\"period_ns\":0",
    "\"operations\":0",
    "failed",
    "void",
    "panic",
    "\"ns\":0",
    "\u{202e}",
    "\\u0000",
    "<script>",
    "=1+1",
];

/// A small study of two arms that differ, with counters and with evidence of its first pairs.
fn study(sampled: bool, change: impl Fn(&mut Plan, &mut Vec<Record>)) -> Vec<u8> {
    let mut micro = fixture::micro();
    micro.metrics.truncate(2);
    let mut plan = fixture::plan(&["debian:6.1", "debian:6.12"], 4, vec![micro]);
    let mut records = fixture::records(&plan, 0.001, |arm, _, _| 1.0 + 0.2 * arm as f64);
    let window = |name: &str| (name.to_owned(), 100_u64, 5_000_u64);
    for record in &mut records {
        let (metric, operations, ns) = window("null-call");
        record.counters = Some(TrialCounters {
            schema: 1,
            names: vec!["mem.Slab".to_owned(), "vm.a".to_owned()],
            readings: 2,
            reading_ns: 10,
            windows: vec![WindowCounters {
                workload: "micro".to_owned(),
                metrics: vec![metric],
                operations,
                ns,
                counts: vec![(1, 70 + u64::from(record.slot))],
                unknown: vec![],
            }],
            amounts: vec![Amounts { workload: "micro".to_owned(), values: vec![(0, 9 + u64::from(record.slot))] }],
        });
    }
    change(&mut plan, &mut records);
    let evidence = records.iter().take(4).map(|record| {
        let functions =
            vec![("do_it".to_owned(), 3000 + 700 * u64::from(record.slot)), ("user: /init".to_owned(), 900)];
        let (metric, operations, ns) = window("null-call");
        let calls = vec![("read".to_owned(), 100)];
        let modelled = vec![("do_it".to_owned(), vec![(0, 40), (1, 7 * u64::from(record.slot))])];
        let workload = "micro".to_owned();
        let executed = Executed { workload, metric, operations, ns, functions, calls, modelled };
        let how = Sampled { event: "cycles".to_owned(), period_ns: 1000, cpus: 1, samples: 9, lost: 0, others: 1 };
        let evidence = Evidence {
            schema: bigiron_model::evidence::SCHEMA,
            slot: record.slot,
            image_sha256: record.image_sha256.clone(),
            metrics: record.metrics.clone(),
            cpu_s: 1.5,
            windows: vec![executed],
            sampled: sampled.then_some(how),
            stacks: String::new(),
            places: bigiron_model::modelled::places(),
        };
        serde_json::to_string(&evidence).unwrap()
    });
    let evidence: Vec<String> = evidence.collect();
    let records: Vec<String> = records.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
    let folded = "micro null-call;f;f;f;a 7\nmicro null-call;init;do_it 7\n".to_owned();
    let parts = [testing::plan_text(&plan), records.join("\n"), evidence.join("\n"), folded];
    parts.join(PART).into_bytes()
}

#[test]
fn folders() {
    let seeds = vec![
        study(false, |_, _| {}),
        study(true, |_, records| fixture::fail(&mut records[3], Failure::Panic, "Oops")),
        study(false, |plan, records| {
            fixture::complain(&mut records[1], "bug", "BUG: bad");
            plan.repeat = "bigiron compare `a` \"b\"".to_owned();
        }),
    ];
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("evidence")).unwrap();
    fuzz_target!(folders, seeds, WORDS).run(|input| {
        let input = String::from_utf8_lossy(input);
        let mut parts = input.split(PART);
        testing::write_plan(dir.path(), parts.next().unwrap_or_default().as_bytes());
        testing::write_records(dir.path(), parts.next().unwrap_or_default().as_bytes());
        let mut evidence = parts.next().unwrap_or_default().lines();
        let folded = parts.next().unwrap_or("micro null-call;init;do_it 7\n");
        for slot in 0..4 {
            let path = dir.path().join("evidence");
            fs::write(path.join(format!("{slot:04}.json")), evidence.next().unwrap_or_default()).unwrap();
            fs::write(path.join(format!("{slot:04}.folded")), folded).unwrap();
        }
        let folder = Folder::open(dir.path()).map_err(|e| e.to_string())?;
        let records = folder.records().map_err(|e| e.to_string())?.records;
        let plan = folder.plan();
        let judgement = judge(plan, &records);
        let counted = counters::counters(plan, &records, &judgement, &AtomicBool::new(false)).ok().unwrap_or_default();
        let evidence = folder.evidence();
        let found = causes::causes(plan, &judgement, &evidence);
        let stacks = |c| stacks::of_line(plan, &judgement, c, &evidence, &|slot| folder.stacks_of(slot));
        let why = Why {
            looking: (!evidence.is_empty()).then(|| causes::looking(plan, &records, &evidence)),
            calls: calls::calls(plan, &judgement, &evidence),
            stacks: found.iter().filter(|c| c.sampled.is_some()).filter_map(stacks).collect(),
            locks: locks::Locks::new(plan, &records, &judgement, &folder.waiting()),
            modelled: modelled::windows(plan, &judgement, &evidence),
            causes: found,
            missing: Vec::new(),
        };
        let drawn =
            why.stacks.iter().map(|of| flame::svg(of, ("a", "b"), FlameView::Difference).len() + of.root.depth()).max();
        let shown = [why.causes.len(), why.stacks.len(), counted.len()].map(|n| n.min(2));
        let extras = Extras { why, counters: counted, all_counters: true, ..Extras::default() };
        let report = Report::new(plan, &records, &judgement, &extras);
        let all = [text(&report), html(&report), json(&report), csv(&report), trials(plan, &records)];
        assert!(all.iter().all(|part| !part.contains('\0')));
        records.iter().for_each(|record| drop(trial(plan, record, None)));
        let lines = judgement.comparisons.first().map_or(0, |c| c.lines.len());
        Ok(format!("{:?} {lines} {} {shown:?} {}", judgement.state, records.len().min(9), drawn.is_some()))
    });
}
