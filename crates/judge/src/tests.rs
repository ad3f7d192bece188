use std::sync::atomic::AtomicBool;

use bigiron_stats::Verdict;
use proptest::prelude::*;

use super::fixture::{self, complain, dbsim, fail, micro, plan, records, void};
use super::suite::{Reason, combine};
use super::workers::Stopped;
use super::{Judgement, State, judge, judge_until};
use bigiron_model::clock::Clock;
use bigiron_model::plan::{FailedCheck, Plan};
use bigiron_model::record::{Failure, Outcome, Record};
use bigiron_model::rule::Rule;

mod builds;
mod survival;

const TWO: [&str; 2] = ["debian:6.1", "debian:6.12"];

fn study(effect: f64, spread: f64) -> (Plan, Vec<Record>) {
    let plan = plan(&TWO, 8, vec![micro()]);
    let records = records(&plan, spread, |_, _, _| effect);
    (plan, records)
}

fn suite(j: &Judgement) -> Verdict {
    j.comparisons[0].suite.as_ref().unwrap().verdict
}

#[test]
fn every_verdict_can_be_reached() {
    // B's cost as a multiple of A's, the noise of a boot, and the verdict at a margin of 2 %; lower is better.
    for (effect, spread, expected) in [
        (0.90, 0.002, Verdict::Better),
        (0.978, 0.01, Verdict::SlightlyBetter),
        (1.000, 0.002, Verdict::Same),
        (1.005, 0.0005, Verdict::Same),
        (1.018, 0.01, Verdict::SlightlyWorse),
        (1.10, 0.002, Verdict::Worse),
        (1.005, 0.08, Verdict::Inconclusive),
    ] {
        let (plan, records) = study(effect, spread);
        let j = judge(&plan, &records);
        let line = &j.comparisons[0].lines[0];
        assert_eq!(line.verdict, expected, "effect {effect}, spread {spread}: {:?}", line.estimate);
        assert_eq!(line.deltas.len(), 8);
        let expected_suite = if expected == Verdict::SlightlyWorse { Verdict::Worse } else { expected };
        assert_eq!(suite(&j), expected_suite, "effect {effect}");
        assert_eq!(j.verdict, Some(expected_suite));
    }
}

/// B varies forty times as much as A. The verdict is doubtful if the interval ends just beyond the margin, and not if it ends far from it.
#[test]
fn a_verdict_is_doubtful_where_spreads_differ_and_it_is_close() {
    let plan = plan(&TWO, 10, vec![micro()]);
    let judged = |effect: f64, spread: f64| {
        let records = plan.slots.iter().map(|slot| {
            fixture::completed(&plan, slot, &|_, metric| {
                let (factor, spread) = if slot.arm == 0 { (1.0, 0.0005) } else { (effect, spread) };
                factor * (1.0 + spread * fixture::noise(slot, &metric.name))
            })
        });
        let line = judge(&plan, &records.collect::<Vec<_>>()).comparisons[0].lines[0].clone();
        let estimate = line.estimate.unwrap();
        (line.verdict, estimate.uneven, estimate.doubtful)
    };
    let lines: Vec<_> = (0..100).map(|n| judged(1.0 + 0.001 * f64::from(n), 0.02)).collect();
    assert!(lines.iter().all(|(_, uneven, _)| *uneven), "{lines:?}");
    let first = lines.iter().position(|(verdict, ..)| *verdict == Verdict::Worse).unwrap();
    assert!(lines[first].2 && !lines[first + 10].2 && !lines[99].2, "{first} {lines:?}");
    assert!(lines.iter().filter(|(_, _, doubtful)| *doubtful).count() < 25, "{lines:?}");
    // Without a difference in spread nothing is doubtful, however close it is.
    assert!((0..100).all(|n| !judged(1.0 + 0.0005 * f64::from(n), 0.0005).2));
}

#[test]
fn tiny_but_real_is_same() {
    let (mut plan, records) = study(1.005, 0.0005);
    assert!(judge(&plan, &records).comparisons[0].lines[0].tiny);
    // .1 % of a margin of 2 % is too little to mention, except by the first rule.
    let records = fixture::records(&plan, 0.0001, |_, _, _| 1.001);
    assert!(!judge(&plan, &records).comparisons[0].lines[0].tiny);
    plan.rule = Rule::First;
    assert!(judge(&plan, &records).comparisons[0].lines[0].tiny);
}

#[test]
fn tiny_but_real_is_adjusted_for_the_number_of_primaries() {
    // Seven primaries, of which one differs a little: p = 2/256 > .05/7.
    let arms: Vec<String> = (0..8).map(|arm| format!("debian:6.{arm}")).collect();
    let arms: Vec<&str> = arms.iter().map(String::as_str).collect();
    let many = plan(&arms, 8, vec![micro()]);
    let j = judge(&many, &records(&many, 0.0005, |arm, _, _| if arm == 1 { 1.005 } else { 1.0 }));
    let line = &j.comparisons[0].lines[0];
    assert_eq!((line.claim.no_change, line.verdict, line.tiny), (2.0 / 256.0, Verdict::Same, false));
    let enough = plan(&arms, 10, vec![micro()]);
    let j = judge(&enough, &records(&enough, 0.0005, |arm, _, _| if arm == 1 { 1.005 } else { 1.0 }));
    assert!(j.comparisons[0].lines[0].tiny && j.comparisons[1..].iter().all(|c| !c.lines[0].tiny));
}

#[test]
fn higher_is_better_is_not_mirrored() {
    let plan = plan(&TWO, 10, vec![dbsim()]);
    let faster = judge(&plan, &records(&plan, 0.002, |_, _, m| if m == "throughput" { 1.1 } else { 1.0 }));
    let line = &faster.comparisons[0].lines[0];
    assert_eq!(line.verdict, Verdict::Better);
    assert!(line.estimate.unwrap().mean > 0.09);
    let slower = judge(&plan, &records(&plan, 0.002, |_, _, _| 0.9));
    assert_eq!(slower.comparisons[0].lines[0].verdict, Verdict::Worse);
    assert_eq!(slower.comparisons[0].lines[1].verdict, Verdict::Better, "a lower latency is better");
}

#[test]
fn the_interval_holds_the_truth_and_the_estimate() {
    let (plan, records) = study(1.05, 0.01);
    let estimate = judge(&plan, &records).comparisons[0].lines[0].estimate.unwrap();
    let (low, high) = estimate.ci95.unwrap();
    let (low90, high90) = estimate.ci90.unwrap();
    assert!(low <= low90 && low90 <= estimate.mean && estimate.mean <= high90 && high90 <= high);
    assert!(low < 1.05_f64.ln() && 1.05_f64.ln() < high);
    assert!(estimate.mde.unwrap() > 0.0);
}

#[test]
fn identical_boots_are_the_same() {
    let (plan, records) = study(1.0, 0.0);
    let j = judge(&plan, &records);
    for line in &j.comparisons[0].lines {
        let estimate = line.estimate.unwrap();
        assert_eq!((estimate.mean, estimate.ci95, estimate.mde), (0.0, Some((0.0, 0.0)), Some(0.0)));
        assert_eq!((line.verdict, line.tiny), (Verdict::Same, false));
        assert!(estimate.mean.is_sign_positive());
    }
    assert_eq!(j.verdict, Some(Verdict::Same));
}

#[test]
fn a_claim_beyond_the_margin_that_only_differs_among_several_is_slight() {
    let plan = plan(&TWO, 8, vec![micro(), dbsim()]);
    let records = records(&plan, 0.01, |_, w, _| if w == "micro" { 1.0278 } else { 1.0 });
    let j = judge(&plan, &records);
    let line = &j.comparisons[0].lines[0];
    // Beyond the margin at .047, which is not .05/2; different at .0078.
    assert_eq!((line.verdict, line.unadjusted), (Verdict::SlightlyWorse, Some(Verdict::Worse)));
    assert_eq!((line.claim.within, line.claim.no_change, line.adjusted_p), (12.0 / 256.0, 2.0 / 256.0, 4.0 / 256.0));
    assert_eq!((suite(&j), line.more_pairs), (Verdict::Worse, None));
    // The mirror image is an improvement.
    let (plan, records) = swapped(&plan, &records);
    let j = judge(&plan, &records);
    assert_eq!((j.comparisons[0].lines[0].verdict, suite(&j)), (Verdict::SlightlyBetter, Verdict::SlightlyBetter));
}

#[test]
fn under_the_first_rule_holm_takes_back_what_eight_pairs_cannot_carry() {
    // Two primaries at 8 pairs: 2 · 2/70 > 5 %.
    let mut plan = plan(&TWO, 8, vec![micro(), dbsim()]);
    plan.rule = Rule::First;
    let j = judge(&plan, &records(&plan, 0.002, |_, w, _| if w == "micro" { 1.2 } else { 1.0 }));
    let line = &j.comparisons[0].lines[0];
    assert_eq!((line.verdict, line.unadjusted), (Verdict::Inconclusive, Some(Verdict::Worse)));
    assert_eq!(line.more_pairs, Some(2), "10 pairs carry two primaries");
    assert_eq!(suite(&j), Verdict::Inconclusive);
    // The same, withdrawn on the good side, is not a regression, and not an improvement either.
    let j = judge(&plan, &records(&plan, 0.002, |_, w, _| if w == "micro" { 0.8 } else { 1.0 }));
    assert_eq!(j.comparisons[0].lines[0].unadjusted, Some(Verdict::Better));
    assert_eq!(suite(&j), Verdict::Same);
    // The second rule has 256 alternatives instead of 70.
    plan.rule = Rule::Second;
    let j = judge(&plan, &records(&plan, 0.002, |_, w, _| if w == "micro" { 1.2 } else { 1.0 }));
    assert_eq!((j.comparisons[0].lines[0].verdict, suite(&j)), (Verdict::Worse, Verdict::Worse));
}

#[test]
fn inconclusive_lines_say_what_would_settle_them() {
    let (plan, records) = study(1.005, 0.08);
    let line = &judge(&plan, &records).comparisons[0].lines[0];
    assert!(line.more_pairs.is_some_and(|n| n >= 2 && n % 2 == 0), "{:?}", line.more_pairs);
    let (plan, records) = self::study(1.0, 0.001);
    assert_eq!(judge(&plan, &records).comparisons[0].lines[0].more_pairs, None);
}

#[test]
fn exploratory_metrics_are_flagged_by_their_false_discovery_rate() {
    let plan = plan(&TWO, 10, vec![micro()]);
    let j = judge(&plan, &records(&plan, 0.01, |_, _, m| if m == "fork-exit" { 1.3 } else { 1.0 }));
    let lines = &j.comparisons[0].lines;
    assert!(lines[2].discovery() && lines[2].metric.name == "fork-exit");
    assert!(!lines[1].discovery());
    assert!(lines[2].adjusted_p > lines[2].claim_p);
    assert_eq!(suite(&j), Verdict::Same, "an exploratory metric carries no verdict");
}

fn first_rule(plan: &Plan) -> Plan {
    Plan { rule: Rule::First, ..plan.clone() }
}

#[test]
fn nothing_is_valid_on_a_machine_that_failed_its_check() {
    let (mut plan, mut records) = study(1.2, 0.002);
    plan.failed_check = Some(FailedCheck { kernel: "6.12.1".into(), reasons: vec!["micro geomean is off".into()] });
    let j = judge(&plan, &records);
    assert_eq!((j.state, suite(&j), j.verdict), (State::Finished, Verdict::Invalid, Some(Verdict::Invalid)));
    assert_eq!(j.comparisons[0].suite.as_ref().unwrap().reason, Reason::FailedCheck);
    assert!(j.comparisons[0].lines.iter().all(|l| l.verdict == Verdict::Invalid && l.estimate.is_some()));
    // Noise does not cause kernel panics.
    fail(&mut records[1], Failure::Panic, "Oops");
    assert_eq!(suite(&judge(&plan, &records)), Verdict::Worse);
}

#[test]
fn judging_stops_when_it_is_told_to() {
    let (plan, records) = study(1.0, 0.002);
    assert_eq!(judge_until(&plan, &records, &AtomicBool::new(true)), Err(Stopped));
    assert_eq!(judge_until(&plan, &records, &AtomicBool::new(false)), Ok(judge(&plan, &records)));
}

#[test]
fn new_complaints_are_survival_findings() {
    for (class, on_baseline_too, expected) in [
        ("bug", false, Verdict::Worse),
        ("hung-task", false, Verdict::Worse),
        ("io-error", true, Verdict::Same),
        ("warning", false, Verdict::Same),
        ("never-heard-of", false, Verdict::Worse),
    ] {
        let (plan, mut records) = study(1.0, 0.002);
        complain(&mut records[1], class, "a line");
        if on_baseline_too {
            complain(&mut records[0], class, "a line");
        }
        let j = judge(&plan, &records);
        assert_eq!(suite(&j), expected, "{class}");
        assert_eq!(j.survival[1].complaints[0].boots, 1);
    }
}

#[test]
fn void_trials_are_counted_and_run_again() {
    let (plan, records) = study(1.0, 0.0);
    let clean = judge(&plan, &records);
    let mut with_void = records.clone();
    void(&mut with_void[4]);
    let j = judge(&plan, &with_void);
    assert_eq!((j.state, j.done, j.void_pairs), (State::Unfinished, 15, 1), "a void slot must still be run");
    with_void.push(Record { attempt: 1, ..records[4].clone() });
    let j = judge(&plan, &with_void);
    assert_eq!((j.state, &j.comparisons, j.void_pairs), (State::Finished, &clean.comparisons, 1));
    assert_eq!((j.survival[0].void, j.survival[0].void_causes.len(), j.set_aside.len()), (1, 1, 0));
}

#[test]
fn on_the_wall_clock_a_void_trial_voids_its_pair() {
    let (mut plan, mut records) = study(1.0, 0.0);
    plan.clock = Clock::Wall;
    let partner = records[5].clone();
    void(&mut records[4]);
    // The partner's result in the spoilt attempt is twice as slow and must not count.
    records[5].metrics.scale(2.0);
    assert_eq!(judge(&plan, &records).done, 14, "the partner must be run again too");
    let again = Record { attempt: 1, slot: 4, ..study(1.0, 0.0).1[4].clone() };
    records.push(again);
    records.push(Record { attempt: 1, ..partner });
    let j = judge(&plan, &records);
    assert_eq!((j.state, suite(&j), j.set_aside.len()), (State::Finished, Verdict::Same, 0));
}

#[test]
fn too_many_void_pairs_spoil_a_study_on_the_wall_clock_only() {
    let (mut plan, mut records) = study(1.2, 0.002);
    for slot in [3, 8] {
        void(&mut records[slot]);
    }
    plan.clock = Clock::Wall;
    assert_eq!(judge(&plan, &records).state, State::Unfinished);
    void(&mut records[12]);
    let j = judge(&plan, &records);
    assert_eq!((j.state, suite(&j), j.verdict), (State::Spoilt, Verdict::Invalid, Some(Verdict::Invalid)));
    assert!(j.comparisons[0].lines.is_empty());
    plan.clock = Clock::Exact;
    assert_eq!(judge(&plan, &records).state, State::Unfinished);
    // Survival takes precedence over the host's faults.
    plan.clock = Clock::Wall;
    fail(&mut records[1], Failure::Panic, "Oops");
    assert_eq!(suite(&judge(&plan, &records)), Verdict::Worse);
}

#[test]
fn a_success_never_replaces_a_failure() {
    let (plan, mut records) = study(1.0, 0.0);
    let success = Record { attempt: 1, ..records[1].clone() };
    fail(&mut records[1], Failure::Panic, "Oops");
    records.push(success);
    let j = judge(&plan, &records);
    assert_eq!((j.survival[1].failed(), j.comparisons[0].lines[0].deltas.len(), j.set_aside.len()), (1, 7, 0));
    // Where failures are not run again on purpose, the success is set aside.
    assert_eq!(judge(&first_rule(&plan), &records).set_aside.len(), 1);
}

#[test]
fn records_that_fit_nowhere_are_set_aside_with_a_reason() {
    let (plan, records) = study(1.0, 0.0);
    let strange = |change: &dyn Fn(&mut Record), reason: &str| {
        let mut all = records.clone();
        change(&mut all[0]);
        let j = judge(&plan, &all);
        assert_eq!((j.state, j.done), (State::Unfinished, 15), "{reason}");
        assert!(j.set_aside[0].reason.contains(reason), "{:?}", j.set_aside);
    };
    strange(&|r| r.schema = 99, "version 99");
    strange(&|r| r.arm = "debian:5.10".into(), "no arm `debian:5.10`");
    strange(&|r| r.slot = 400, "no such slot");
    strange(&|r| r.pair = 3, "pair 3");
    strange(&|r| r.image_sha256 = "0".repeat(64), "a kernel image other than");
    strange(&|r| r.guest.as_mut().unwrap().release = "4.19.0".into(), "4.19.0");
}

#[test]
fn an_unfinished_study_is_not_judged() {
    let (plan, mut records) = study(1.5, 0.0);
    records.truncate(9);
    let j = judge(&plan, &records);
    assert_eq!((j.state, j.done, j.planned, j.verdict), (State::Unfinished, 9, 16, None));
    assert!(j.comparisons.iter().all(|c| c.lines.is_empty() && c.suite.is_none()));
    assert_eq!(judge(&plan, &[]).done, 0);
}

#[test]
fn without_a_clock_only_survival_is_judged() {
    let (mut plan, mut records) = study(1.5, 0.0);
    plan.clock = Clock::None;
    let j = judge(&plan, &records);
    assert!(j.comparisons[0].lines.is_empty());
    assert_eq!(j.comparisons[0].suite.as_ref().unwrap().reason, Reason::NoClock);
    fail(&mut records[1], Failure::Panic, "Oops");
    assert_eq!(suite(&judge(&plan, &records)), Verdict::Worse);
}

#[test]
fn a_metric_that_is_not_as_declared_is_absent() {
    let (plan, mut records) = study(1.0, 0.001);
    let (workload, metric) = (plan.workloads[0].name.as_str(), plan.workloads[0].metrics[1].name.as_str());
    records[0].metrics.insert(workload, metric, f64::NAN);
    records[2].metrics.insert(workload, metric, 0.0);
    records[4].metrics.remove(workload, metric);
    let j = judge(&plan, &records);
    let lines = &j.comparisons[0].lines;
    assert_eq!((lines[1].missing.absent, lines[1].verdict), (3, Verdict::Invalid));
    assert_eq!(lines[0].missing.absent, 0);
}

#[test]
fn every_arm_is_held_against_the_first() {
    let plan = plan(&["debian:5.10", "debian:6.1", "debian:6.12"], 10, vec![micro()]);
    let j = judge(&plan, &records(&plan, 0.002, |arm, _, _| [1.0, 0.8, 1.3][arm]));
    let words: Vec<_> = j.comparisons.iter().map(|c| (c.arm, c.suite.as_ref().unwrap().verdict)).collect();
    assert_eq!(words, [(1, Verdict::Better), (2, Verdict::Worse)]);
    assert_eq!(j.verdict, Some(Verdict::Worse));
}

#[test]
fn the_word_for_many_verdicts() {
    use Verdict::{Better, Inconclusive, Invalid, Same, SlightlyBetter, SlightlyWorse, Worse};
    for (verdicts, expected) in [
        (vec![], Inconclusive),
        (vec![Same, Same], Same),
        (vec![Same, SlightlyBetter], SlightlyBetter),
        (vec![Same, SlightlyBetter, Better], Better),
        (vec![Better, Inconclusive], Inconclusive),
        (vec![Better, Inconclusive, Invalid], Invalid),
        (vec![Better, Invalid, SlightlyWorse], Worse),
        (vec![Better, Worse], Worse),
    ] {
        assert_eq!(combine(verdicts.clone()), expected, "{verdicts:?}");
    }
}

/// The plan and records with the two arms exchanged.
fn swapped(plan: &Plan, records: &[Record]) -> (Plan, Vec<Record>) {
    let mut plan = plan.clone();
    plan.arms.swap(0, 1);
    for slot in &mut plan.slots {
        slot.arm = 1 - slot.arm;
    }
    (plan, records.to_vec())
}

fn passes(v: Verdict) -> bool {
    matches!(v, Verdict::Better | Verdict::SlightlyBetter | Verdict::Same)
}

fn any_study() -> impl Strategy<Value = (Plan, Vec<Record>)> {
    (0.85..1.15f64, 0.0..0.05f64, prop::sample::select(vec![8u32, 10, 12]), prop::bool::ANY).prop_map(
        |(effect, spread, pairs, two)| {
            let workloads = if two { vec![micro(), dbsim()] } else { vec![dbsim()] };
            let plan = fixture::plan(&TWO, pairs, workloads);
            let records = fixture::records(&plan, spread, |_, _, _| effect);
            (plan, records)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn swapping_the_arms_negates_the_changes((plan, records) in any_study()) {
        let there = judge(&plan, &records);
        let (plan, records) = swapped(&plan, &records);
        let back = judge(&plan, &records);
        for (x, y) in there.comparisons[0].lines.iter().zip(&back.comparisons[0].lines) {
            prop_assert_eq!(x.verdict, y.verdict.mirror());
            let (ex, ey) = (x.estimate.unwrap(), y.estimate.unwrap());
            prop_assert!((ex.mean + ey.mean).abs() < 1e-12);
            let ((lx, hx), (ly, hy)) = (ex.ci95.unwrap(), ey.ci95.unwrap());
            prop_assert!((lx + hy).abs() < 1e-12 && (hx + ly).abs() < 1e-12);
            prop_assert!((x.adjusted_p - y.adjusted_p).abs() < 1e-12);
        }
    }

    #[test]
    fn the_order_of_records_does_not_matter((plan, records) in any_study(), seed in any::<u64>()) {
        let mut all = records.clone();
        fail(&mut all[3], Failure::Hang, "No progress");
        all.push(Record { attempt: 1, ..records[3].clone() });
        all.push(Record { schema: 9, ..records[4].clone() });
        void(&mut all[5]);
        all.push(Record { attempt: 1, ..records[5].clone() });
        let expected = judge(&plan, &all);
        let mut shuffled = all.clone();
        shuffled.sort_by_key(|r| fixture::hash(&[&seed.to_string(), &r.slot.to_string(), &r.attempt.to_string()]));
        prop_assert_eq!(judge(&plan, &shuffled), expected);
    }

    #[test]
    fn a_failed_trial_never_improves_the_suite((plan, mut records) in any_study(), slots in prop::collection::vec(0usize..16, 1..5)) {
        let mut last = suite(&judge(&plan, &records));
        let mut failed = [false; 2];
        for slot in slots {
            fail(&mut records[slot], Failure::EarlyExit, "Gone");
            failed[plan.slots[slot].arm] = true;
            let now = suite(&judge(&plan, &records));
            if failed == [false, true] {
                prop_assert_eq!(now, Verdict::Worse);
            }
            prop_assert!(!passes(now), "{last} became {now}");
            last = now;
        }
    }
}
