//! Grid, entries and the previous night's comparison, on made-up studies.

use bigiron_stats::Verdict;

use super::collect;
use super::folder::{Group, Night, NightArm};
use super::grid::{Grid, Studied};
use super::previous::{Previous, previous};
use super::rows::{Budget, Row};
use bigiron_judge as judge;
use bigiron_judge::fixture::{complain, dbsim, fail, micro, plan, records};
use bigiron_judge::history::{History, HistoryEntry};
use bigiron_model::clock::Clock;
use bigiron_model::plan::PlannedWorkload;
use bigiron_model::record::{Failure, Record};
use bigiron_model::rule::Rule;

fn row(workload: &str) -> Row {
    Row { name: workload.into(), workload: workload.into(), filesystem: "ext4".into(), settings: Vec::new() }
}

/// A study of `arms` with four pairs, in which arm 1 differs by `effect`.
fn study(
    arms: &[&str],
    workloads: Vec<PlannedWorkload>,
    effect: impl Fn(&str, &str) -> f64,
    spoil: impl Fn(&mut Record),
) -> Studied {
    let rows = workloads.iter().map(|w| row(&w.name)).collect();
    let plan = plan(arms, 4, workloads);
    let mut records = records(&plan, 0.001, |_, workload, metric| effect(workload, metric));
    records.iter_mut().for_each(spoil);
    let judgement = judge::judge(&plan, &records);
    Studied { folder: "ext4".into(), rows, plan, records, judgement, split: false, alone: false, is_finished: true }
}

fn night(study: &Studied, begun: &str) -> Night {
    let arms = study.plan.arms.iter().map(|a| NightArm { name: a.name.clone(), kernel: a.kernel.clone() });
    Night {
        schema: Night::schema(),
        bigiron: "0.1.0".into(),
        executable: "e1".into(),
        qemu: None,
        qemu_build: None,
        question_sha256: "q".into(),
        begun: begun.into(),
        budget: Budget::Quick,
        pairs: 4,
        clock: Clock::Exact,
        repeat: "bigiron nightly".into(),
        arms: arms.collect(),
        left_out: Vec::new(),
        groups: vec![Group { folder: study.folder.clone(), rows: study.rows.clone() }],
    }
}

fn slower(workload: &str, metric: &str) -> f64 {
    if (workload, metric) == ("micro", "fork-exit") { 1.1 } else { 1.0 }
}

const ARMS: [&str; 2] = ["debian:6.1", "debian:6.12"];

#[test]
fn a_row_says_what_changed_beyond_its_margin() {
    let study = study(&ARMS, vec![micro(), dbsim()], slower, |_| ());
    let grid = Grid::new(&ARMS.map(str::to_owned), &[study], &[]);
    let [micro, dbsim] = &grid.rows[..] else { panic!("{:?}", grid.rows) };
    let names = |lines: Vec<&judge::line::Line>| lines.iter().map(|l| l.metric.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(micro.cells[0].regressed()), ["fork-exit"]);
    assert!(names(micro.cells[0].improved()).is_empty() && names(dbsim.cells[0].regressed()).is_empty());
    assert!(micro.passed() && micro.cells[0].lines[0].metric.primary);
    // An exploratory metric alone does not make a kernel worse.
    assert_eq!((micro.cells[0].verdict, grid.verdict()), (Some(Verdict::Same), Some(Verdict::Same)));
}

#[test]
fn a_row_says_what_the_report_of_its_study_says() {
    // An improvement of the primary, and one that is small; among other rows and alone.
    for change in [0.9, 0.985, 1.0, 1.015, 1.1] {
        let of = || study(&ARMS, vec![micro(), dbsim()], |_, m| if m == "geomean" { change } else { 1.0 }, |_| ());
        let studies: Vec<Studied> = (0..30).map(|_| of()).collect();
        let grid = Grid::new(&ARMS.map(str::to_owned), &studies, &[]);
        for (row, study) in grid.rows.iter().step_by(2).zip(&studies) {
            let own = study.judgement.comparisons[0].primaries().next().unwrap();
            assert_eq!((row.cells[0].primary(), row.cells[0].verdict), (Some(own), Some(own.verdict)));
        }
        assert_eq!(grid.verdict(), studies[0].judgement.verdict);
    }
}

#[test]
fn failures_and_complaints_are_told_of_the_kernel_that_had_them() {
    let crash = |r: &mut Record| {
        if r.arm == ARMS[1] && r.pair == 2 {
            fail(r, Failure::Panic, "not syncing");
        }
    };
    let arms = ARMS.map(str::to_owned);
    let grid = Grid::new(&arms, &[study(&ARMS, vec![micro()], |_, _| 1.0, crash)], &[]);
    let row = &grid.rows[0];
    assert!(!row.passed() && row.fates[0].failed == 0);
    assert_eq!(row.fates[1].failures, ["panicked in 1 of 4 boots: not syncing"]);
    assert_eq!(grid.verdict(), Some(Verdict::Worse));
    let first = |r: &mut Record| {
        if r.arm == ARMS[0] && r.pair == 2 {
            fail(r, Failure::Hang, "no progress");
        }
    };
    let grid = Grid::new(&arms, &[study(&ARMS, vec![micro()], |_, _| 1.0, first)], &[]);
    assert_eq!(grid.verdict(), Some(Verdict::Inconclusive), "no valid baseline to compare with");
    let oops = |r: &mut Record| {
        if r.arm == ARMS[1] {
            complain(r, "oops", "unable to handle page fault");
        }
    };
    let grid = Grid::new(&arms, &[study(&ARMS, vec![micro()], |_, _| 1.0, oops)], &[]);
    assert!(grid.rows[0].passed() && grid.rows[0].fates[1].complaints == ["oops"]);
    assert_eq!(grid.verdict(), Some(Verdict::Worse));
}

#[test]
fn where_no_boot_of_either_kernel_completes_neither_is_worse() {
    let all = |r: &mut Record| fail(r, Failure::NoAgent, "no root");
    let arms = ARMS.map(str::to_owned);
    let of = |split: bool| Studied { split, ..study(&ARMS, vec![micro()], |_, _| 1.0, all) };
    for split in [false, true] {
        let grid = Grid::new(&arms, &[of(split)], &[]);
        assert!(!grid.rows[0].passed());
        assert_eq!((grid.rows[0].cells[0].verdict, grid.verdict()), (Some(Verdict::Inconclusive), grid.verdicts[0]));
    }
    // One boot of the baseline that completes shows no more; by the first rule it showed that the kernel is worse.
    let all_but_one = |r: &mut Record| {
        if r.slot > 0 {
            fail(r, Failure::NoAgent, "no root");
        }
    };
    let mut almost = study(&ARMS, vec![micro()], |_, _| 1.0, all_but_one);
    let grid = Grid::new(&arms, std::slice::from_ref(&almost), &[]);
    assert_eq!((grid.rows[0].fates[0].failed, grid.verdict()), (3, Some(Verdict::Inconclusive)));
    assert_eq!(grid.rows[0].cells[0].verdict, grid.verdict());
    almost.plan.rule = Rule::First;
    almost.judgement = judge::judge(&almost.plan, &almost.records);
    let grid = Grid::new(&arms, &[almost], &[]);
    assert_eq!((grid.rows[0].cells[0].verdict, grid.verdict()), (Some(Verdict::Worse), Some(Verdict::Worse)));
}

#[test]
fn an_unfinished_night_has_no_verdict() {
    let part = |split: bool| {
        let mut part = study(&ARMS, vec![micro()], |_, _| 1.0, |_| ());
        part.records.pop();
        part.judgement = judge::judge(&part.plan, &part.records);
        Studied { split, is_finished: false, ..part }
    };
    for split in [false, true] {
        let grid = Grid::new(&ARMS.map(str::to_owned), &[part(split)], &[]);
        let cell = &grid.rows[0].cells[0];
        assert_eq!((grid.verdict(), grid.decision(), cell.verdict, cell.lines.len()), (None, None, None, 0));
    }
}

#[test]
fn a_night_in_which_something_is_left_to_run_decides_nothing_but_worse() {
    let arms = ARMS.map(str::to_owned);
    let decision = |studies: &[Studied], waiting: &[Row]| {
        let grid = Grid::new(&arms, studies, waiting);
        assert_eq!((grid.verdict(), grid.verdicts[0]), (grid.decision(), grid.decision()));
        grid.decision()
    };
    let same = || study(&ARMS, vec![micro()], |_, _| 1.0, |_| ());
    let split = || Studied { split: true, ..same() };
    assert_eq!((decision(&[same()], &[]), decision(&[split()], &[])), (Some(Verdict::Same), Some(Verdict::Same)));
    // Another study has not begun; rows of a shared boot have not run alone; a failed boot is still to run again; nothing has begun.
    assert_eq!(decision(&[same()], &[row("dbsim")]), None);
    assert_eq!(decision(&[split()], &[row("micro")]), None);
    assert_eq!(decision(&[Studied { is_finished: false, ..same() }], &[]), None);
    assert_eq!((decision(&[], &[row("micro")]), decision(&[], &[])), (None, None));
    let oops = |r: &mut Record| {
        if r.arm == ARMS[1] {
            complain(r, "oops", "unable to handle page fault");
        }
    };
    let worse = || study(&ARMS, vec![micro()], |_, _| 1.0, oops);
    assert_eq!(decision(&[same(), worse()], &[row("dbsim")]), Some(Verdict::Worse));
    let grid = Grid::new(&arms, &[worse()], &[row("dbsim")]);
    let waiting = &grid.rows[1];
    assert_eq!(
        (waiting.name.as_str(), waiting.folder.as_str(), waiting.state),
        ("dbsim", "", judge::State::Unfinished)
    );
    assert_eq!((waiting.fates.len(), waiting.cells.len(), waiting.cells[0].verdict), (2, 1, None));
}

#[test]
fn one_kernel_that_is_worse_decides_while_another_is_open() {
    let arms = ["debian:6.1", "debian:6.12", "debian:6.13"];
    let oops = |r: &mut Record| {
        if r.arm == arms[1] {
            complain(r, "oops", "unable to handle page fault");
        }
    };
    let grid = Grid::new(&arms.map(str::to_owned), &[study(&arms, vec![micro()], |_, _| 1.0, oops)], &[row("dbsim")]);
    assert_eq!((&grid.verdicts[..], grid.decision()), (&[Some(Verdict::Worse), None][..], Some(Verdict::Worse)));
}

/// Compares tonight's 6.13 with last night's 6.12, after `change` of last night's entries.
fn two_nights(change: impl Fn(&mut HistoryEntry), clock: Clock) -> Vec<Previous> {
    let last = study(&ARMS, vec![micro(), dbsim()], slower, |_| ());
    let mut entries = collect::entries(&night(&last, "2026-11-21T00:00:00Z"), std::slice::from_ref(&last));
    entries.iter_mut().for_each(change);
    let mut tonight = study(&["debian:6.1", "debian:6.13"], vec![micro(), dbsim()], |_, _| 1.0, |_| ());
    tonight.plan.clock = clock;
    let described = night(&tonight, "2026-11-22T00:00:00Z");
    let mine = collect::entries(&described, std::slice::from_ref(&tonight));
    let history = History { entries, unreadable: Vec::new() };
    previous(&mine, &[tonight], &history)
}

#[test]
fn last_nights_kernel_is_compared_boot_by_boot() {
    let all = two_nights(|_| (), Clock::Exact);
    let [found] = &all[..] else { panic!("{all:?}") };
    assert_eq!((found.arm, found.name.as_str()), (1, "debian:6.12"));
    let cell = found.rows[0].cell.as_ref().unwrap();
    let improved: Vec<&str> = cell.improved().iter().map(|l| l.metric.name.as_str()).collect();
    assert_eq!((improved, cell.regressed().len(), cell.primary().unwrap().deltas.len()), (vec!["fork-exit"], 0, 4));
}

#[test]
fn what_was_measured_otherwise_is_not_compared() {
    let why = |all: Vec<Previous>| all[0].rows[0].cell.clone().unwrap_err();
    let set = |key: &'static str| {
        move |e: &mut HistoryEntry| {
            e.rows[0].configuration.insert(key.to_owned(), "another".to_owned());
        }
    };
    assert_eq!(why(two_nights(set("executable"), Clock::Exact)), "measured differently then: executable");
    let seeds = |e: &mut HistoryEntry| e.rows[0].boots.iter_mut().for_each(|b| b.workload_seed += 100);
    assert!(why(two_nights(seeds, Clock::Exact)).contains("other seeds"));
    let gone = |e: &mut HistoryEntry| {
        e.rows.remove(0);
    };
    assert!(why(two_nights(gone, Clock::Exact)).contains("did not run this row"));
    let failed = |e: &mut HistoryEntry| e.rows[0].failures.push("panicked: x".to_owned());
    assert!(why(two_nights(failed, Clock::Exact)).contains("boots failed"));
    assert!(why(two_nights(|_| (), Clock::Wall)).contains("two nights are not comparable"));
    // A baseline is not a snapshot, and tonight's own kernel is not a previous one.
    assert!(two_nights(|e| e.baseline = true, Clock::Exact).is_empty());
    assert!(two_nights(|e| e.begun = "2026-11-23T00:00:00Z".to_owned(), Clock::Exact).is_empty());
}

#[test]
fn another_build_of_the_same_qemu_is_another_configuration() {
    let study = study(&ARMS, vec![micro()], |_, _| 1.0, |_| ());
    let emulator = |build: Option<&str>| {
        let night = Night { qemu_build: build.map(str::to_owned), ..night(&study, "2026-11-22T00:00:00Z") };
        let entry = collect::entries(&night, std::slice::from_ref(&study)).remove(0);
        entry.rows[0].configuration["emulator"].clone()
    };
    assert_eq!(emulator(Some("Debian 1:7.2-b3")), "QEMU 7.2.22 (Debian 1:7.2-b3) tcg");
    assert_ne!(emulator(Some("Debian 1:7.2-b3")), emulator(Some("Debian 1:7.2-b4")));
    assert_eq!(emulator(None), "QEMU 7.2.22 tcg", "of a night from before the build was stored");
    assert_eq!(emulator(Some("")), emulator(None));
}

#[test]
fn a_night_reads_back_and_another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("night");
    assert_eq!(Night::open(&at).unwrap(), None);
    let night = night(&study(&ARMS, vec![micro()], |_, _| 1.0, |_| ()), "2026-11-22T00:00:00Z");
    night.create(&at).unwrap();
    assert_eq!(Night::open(&at).unwrap().as_ref(), Some(&night));
    Night { schema: 9, ..night }.create(&at).unwrap();
    assert!(Night::open(&at).unwrap_err().to_string().contains("it has format 9"));
}
