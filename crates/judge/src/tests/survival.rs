//! How failed boots decide.

use super::*;

#[test]
fn survival_outranks_speed() {
    let (plan, mut records) = study(0.8, 0.002);
    for slot in [1, 5, 9] {
        fail(&mut records[slot], Failure::Panic, "Kernel panic - not syncing: Attempted to kill init!");
    }
    let arm = plan.slots[1].arm;
    let j = judge(&plan, &records);
    assert_eq!(arm, 1);
    assert_eq!(suite(&j), Verdict::Worse);
    assert_eq!(j.comparisons[0].suite.as_ref().unwrap().reason, Reason::Failed);
    let b = &j.survival[1];
    assert_eq!((b.boots, b.completed, b.failed(), b.failures[0].trials.len()), (8, 5, 3, 3));
    let line = &j.comparisons[0].lines[0];
    assert_eq!((line.deltas.len(), line.missing.failed), (5, 3), "a pair without one side is counted, not dropped");
}

#[test]
fn a_failing_baseline_leaves_nothing_to_compare_with() {
    let (plan, mut records) = study(1.0, 0.002);
    fail(&mut records[0], Failure::Hang, "No progress for 60 CPU seconds");
    assert_eq!(plan.slots[0].arm, 0);
    let j = judge(&plan, &records);
    assert_eq!(suite(&j), Verdict::Inconclusive);
    assert_eq!(j.comparisons[0].suite.as_ref().unwrap().reason, Reason::BaselineFailed);
    // If both fail alike, neither is worse; by the first rule the arm's failure decided.
    fail(&mut records[1], Failure::VerifyFailed, "Block 7 of data3 is from an older checkpoint");
    assert_eq!(decided(&plan, &records), (Verdict::Inconclusive, Reason::BothFailed));
    assert_eq!(decided(&first_rule(&plan), &records), (Verdict::Worse, Reason::Failed));
    // A regression in the other boots stands.
    let (_, mut slow) = study(1.2, 0.002);
    fail(&mut slow[0], Failure::Hang, "No progress for 60 CPU seconds");
    assert!(matches!(decided(&plan, &slow), (Verdict::Worse, Reason::Primaries { .. })));
    assert_eq!(decided(&first_rule(&plan), &slow), (Verdict::Inconclusive, Reason::BaselineFailed));
}

fn decided(plan: &Plan, records: &[Record]) -> (Verdict, Reason) {
    let suite = judge(plan, records).comparisons[0].suite.clone().unwrap();
    (suite.verdict, suite.reason)
}

/// The records of `plan` in which the first boots of each arm failed, as many as `failed` says.
fn failing(plan: &Plan, failed: [usize; 2]) -> Vec<Record> {
    let mut records = records(plan, 0.002, |_, _, _| 1.0);
    for (arm, failed) in failed.into_iter().enumerate() {
        for slot in plan.slots.iter().filter(|slot| slot.arm == arm).take(failed) {
            fail(&mut records[slot.slot as usize], Failure::Panic, "Kernel panic");
        }
    }
    records
}

#[test]
fn failures_are_counted_in_both_arms() {
    use Verdict::{Inconclusive, Worse};
    let plan = plan(&TWO, 12, vec![micro()]);
    for (failed, verdict, reason) in [
        ([0, 1], Worse, Reason::Failed),
        ([1, 1], Inconclusive, Reason::BothFailed),
        // Fisher's p is .065, and .0046.
        ([1, 5], Inconclusive, Reason::BothFailed),
        ([1, 8], Worse, Reason::Failed),
        ([12, 1], Inconclusive, Reason::SurvivesBetter),
        ([5, 0], Inconclusive, Reason::SurvivesBetter),
        ([3, 0], Inconclusive, Reason::BaselineFailed),
        ([12, 12], Inconclusive, Reason::NeitherSurvived),
    ] {
        let records = failing(&plan, failed);
        assert_eq!(decided(&plan, &records), (verdict, reason), "{failed:?}");
        // No gate passes an arm that fails boots.
        let decision = judge(&plan, &records).decision();
        assert_eq!(decision.is_none_or(|verdict| verdict == Worse), failed[1] > 0, "{failed:?}: {decision:?}");
    }
    // By the first rule any failure of the arm was worse.
    for failed in [[1, 1], [12, 1]] {
        assert_eq!(decided(&first_rule(&plan), &failing(&plan, failed)), (Worse, Reason::Failed));
    }
}

#[test]
fn on_the_exact_clock_a_failure_that_does_not_repeat_is_unconfirmed() {
    let plan = plan(&TWO, 12, vec![micro()]);
    let clean = records(&plan, 0.002, |_, _, _| 1.0);
    let run_again = |failed: [usize; 2], outcome: &dyn Fn(&Record) -> Record| {
        let mut all = failing(&plan, failed);
        let again: Vec<Record> = all
            .iter()
            .filter(|r| r.outcome != Outcome::Completed)
            .map(|r| Record { attempt: 1, artifacts: vec!["artifacts/again/console.log".into()], ..outcome(r) })
            .collect();
        all.extend(again);
        all
    };
    let same = |r: &Record| r.clone();
    let completes = |r: &Record| clean[r.slot as usize].clone();
    let differs = |r: &Record| {
        let mut r = r.clone();
        fail(&mut r, Failure::Panic, "Another panic");
        r
    };
    // The failure repeats: the guest's.
    let records = run_again([0, 1], &same);
    let j = judge(&plan, &records);
    assert_eq!((suite(&j), j.survival[1].confirmed(), j.set_aside.len()), (Verdict::Worse, 1, 0));
    // It does not, or in another way: the verdict is that of the other boots, and both runs are kept.
    for outcome in [&completes as &dyn Fn(&Record) -> Record, &differs] {
        let records = run_again([0, 1], outcome);
        let j = judge(&plan, &records);
        let b = &j.survival[1];
        assert_eq!((suite(&j), b.failed(), b.unconfirmed(), b.boots), (Verdict::Same, 1, 1, 12));
        let trial = &b.failures[0].trials[0];
        assert_eq!(trial.repeat.as_ref().unwrap().artifacts, ["artifacts/again/console.log"]);
        assert_eq!((j.comparisons[0].lines[0].missing.failed, j.set_aside.len()), (1, 0));
    }
    // Failures of one arm that never repeat, but too many for chance, count.
    assert_eq!(decided(&plan, &run_again([0, 6], &completes)), (Verdict::Worse, Reason::Failed));
    // No other clock repeats a boot exactly.
    let other = Plan { clock: Clock::None, ..plan.clone() };
    let j = judge(&other, &run_again([0, 1], &completes));
    assert_eq!((suite(&j), j.survival[1].unconfirmed(), j.set_aside.len()), (Verdict::Worse, 0, 1));
}

#[test]
fn where_no_boot_of_either_arm_completes_neither_is_worse() {
    let (_, clean) = study(1.0, 0.002);
    let (plan, mut records) = study(1.0, 0.002);
    for record in &mut records {
        fail(record, Failure::Panic, "Kernel panic - not syncing: VFS: Unable to mount root fs");
    }
    let j = judge(&plan, &records);
    assert_eq!((suite(&j), j.verdict), (Verdict::Inconclusive, Some(Verdict::Inconclusive)));
    assert_eq!(j.comparisons[0].suite.as_ref().unwrap().reason, Reason::NeitherSurvived);
    // One completed boot of either tells no more; by the first rule it made the arm worse.
    let (of_a, of_b) =
        (plan.slots.iter().find(|s| s.arm == 0).unwrap(), plan.slots.iter().find(|s| s.arm == 1).unwrap());
    for slot in [of_a.slot, of_b.slot] {
        let mut one = records.clone();
        one[slot as usize] = clean[slot as usize].clone();
        assert_eq!(decided(&plan, &one), (Verdict::Inconclusive, Reason::BothFailed));
        assert_eq!(decided(&first_rule(&plan), &one), (Verdict::Worse, Reason::Failed));
    }
}

const OOPS: &str = "BUG: unable to handle page fault for address: ffffc90000a00000";

/// Makes the first run of `slot` die and adds a second one, which completes.
fn die_once(records: &mut Vec<Record>, slot: usize) {
    let again = Record { attempt: 1, ..records[slot].clone() };
    fail(&mut records[slot], Failure::Panic, "Kernel panic - not syncing: Fatal exception");
    records.push(again);
}

fn complained() -> (Verdict, Reason) {
    (Verdict::Worse, Reason::Complained { classes: vec!["oops".to_owned()] })
}

#[test]
fn a_complaint_of_an_unconfirmed_failure_is_shown_and_decides_only_if_it_is_confirmed() {
    // Whether the first run logged it, whether the second did, whether the second completed, and whether the complaint decides.
    for (first, second, completes, decides) in [
        (true, false, true, false),
        (true, false, false, false),
        (true, true, true, true),
        (true, true, false, true),
        // A second run that completed is a boot like any other.
        (false, true, true, true),
        (false, true, false, false),
    ] {
        let plan = plan(&TWO, 12, vec![micro()]);
        let mut records = records(&plan, 0.002, |_, _, _| 1.0);
        die_once(&mut records, 1);
        let again = records.len() - 1;
        if !completes {
            fail(&mut records[again], Failure::Hang, "No progress for 60 CPU seconds");
        }
        for (run, _) in [(1, first), (again, second)].into_iter().filter(|(_, logs)| *logs) {
            complain(&mut records[run], "oops", OOPS);
        }
        let j = judge(&plan, &records);
        let case = (first, second, completes);
        assert_eq!(decided(&plan, &records) == complained(), decides, "{case:?}");
        assert!(decides || suite(&j) == Verdict::Same, "{case:?}: {}", suite(&j));
        let (a, b) = (&j.survival[0], &j.survival[1]);
        let new: Vec<_> = b.new_complaints(a).map(|c| (c.boots, c.is_unconfirmed(), c.decides())).collect();
        assert_eq!(new, [(1, !decides, decides)], "{case:?}");
        assert_eq!((b.unconfirmed(), b.logs(), b.complaints[0].lines.len()), (1, 12, 1), "{case:?}");
    }
}

#[test]
fn a_complaint_of_a_failure_that_repeated_decides() {
    let plan = plan(&TWO, 12, vec![micro()]);
    let mut records = records(&plan, 0.002, |_, _, _| 1.0);
    complain(&mut records[1], "oops", OOPS);
    fail(&mut records[1], Failure::Panic, "Kernel panic - not syncing: Fatal exception");
    records.push(Record { attempt: 1, ..records[1].clone() });
    let j = judge(&plan, &records);
    let b = &j.survival[1];
    assert_eq!((suite(&j), b.confirmed()), (Verdict::Worse, 1));
    assert_eq!((b.complaints[0].boots, b.complaints[0].unconfirmed, b.complaints[0].decides()), (1, 0, true));
}

#[test]
fn what_only_an_unconfirmed_failure_of_the_baseline_logged_excuses_no_arm() {
    let plan = plan(&TWO, 12, vec![micro()]);
    let mut records = records(&plan, 0.002, |_, _, _| 1.0);
    for record in records.iter_mut().filter(|r| r.arm == TWO[1]) {
        complain(record, "oops", OOPS);
    }
    assert_eq!((plan.slots[0].arm, plan.slots[3].arm), (0, 0));
    die_once(&mut records, 0);
    let again = records.len() - 1;
    complain(&mut records[0], "oops", OOPS);
    assert_eq!(decided(&plan, &records), complained());
    assert!(judge(&plan, &records).survival[0].has_logged("oops"), "it is shown nevertheless");
    // A run that counts makes the class known: the second one if it completed, or another boot.
    for slot in [again, 3] {
        let mut known = records.clone();
        complain(&mut known[slot], "oops", OOPS);
        assert_eq!(suite(&judge(&plan, &known)), Verdict::Same, "{slot}");
    }
}

#[test]
fn a_complaint_counts_although_the_host_spoilt_the_partner() {
    let (mut plan, mut records) = study(1.0, 0.0);
    plan.clock = Clock::Wall;
    let rerun = [0, 1].map(|slot: usize| Record { attempt: 1, ..records[slot].clone() });
    void(&mut records[0]);
    complain(&mut records[1], "oops", OOPS);
    let counts = |j: &Judgement| {
        let b = &j.survival[1];
        (j.done, b.boots, b.superseded, b.logs(), b.complaints[0].boots, j.set_aside.len())
    };
    assert_eq!(counts(&judge(&plan, &records)), (14, 7, 1, 8, 1, 0), "the pair is still to be run again");
    records.extend(rerun);
    assert_eq!(counts(&judge(&plan, &records)), (16, 8, 1, 9, 1, 0));
    assert_eq!(decided(&plan, &records), complained());
    // The other way round, the baseline is known to complain, so that what the arm logs is not new.
    let (_, mut records) = study(1.0, 0.0);
    let rerun = [0, 1].map(|slot: usize| Record { attempt: 1, ..records[slot].clone() });
    complain(&mut records[0], "oops", OOPS);
    void(&mut records[1]);
    assert_eq!(plan.slots[2].arm, 1);
    complain(&mut records[2], "oops", OOPS);
    records.extend(rerun);
    assert_eq!(suite(&judge(&plan, &records)), Verdict::Same);
}
