//! Every format says what the report says, in a form that its readers accept.

use bigiron_judge::Judgement;
use bigiron_judge::fixture::{complain, fail, records, void};
use bigiron_judge::judge;
use bigiron_model::clock::Clock;
use bigiron_model::plan::Plan;
use bigiron_model::record::{Failure, Record};
use bigiron_stats::Verdict;

use crate::export::jsonl::{jsonl, lines_schema};
use crate::table::width;
use crate::tests::{every_study, study};
use crate::{Extras, Report, junit, mail, markdown, openmetrics};

fn with<T>(plan: &Plan, records: &[Record], of: impl FnOnce(&Report<'_>, &Judgement) -> T) -> T {
    let judgement = judge(plan, records);
    of(&Report::new(plan, records, &judgement, &Extras::default()), &judgement)
}

/// A worse arm whose name would be markup everywhere.
fn hostile() -> (Plan, Vec<Record>) {
    let (mut plan, mut records) = study(1.05);
    let name = "a|<b c=\"d\">\n@e&]]>";
    for record in records.iter_mut().filter(|r| r.arm == plan.arms[1].name) {
        record.arm = name.to_owned();
    }
    plan.arms[1].name = name.to_owned();
    (plan, records)
}

#[test]
fn every_table_of_markdown_has_its_columns() {
    let (plan, records) = hostile();
    let text = with(&plan, &records, |report, _| markdown(report));
    let bars = |line: &str| line.replace("\\|", "").matches('|').count();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 4 && rows.iter().all(|row| bars(row) == 7), "{text}");
    assert!(!text.contains("<b") && !text.contains("@e"), "{text}");
    assert!(text.starts_with("### bigiron: worse, ") && text.contains("**worse**"), "{text}");
}

#[test]
fn a_test_fails_where_the_report_says_worse() {
    for (name, plan, records) in every_study() {
        with(&plan, &records, |report, judgement| {
            let text = junit(report);
            let verdicts = || judgement.comparisons.iter().flat_map(|c| c.suite.as_ref()).map(|suite| suite.verdict);
            let failed = text.contains("name=\"verdict\"><failure");
            let worse = |v: Verdict| matches!(v, Verdict::Worse | Verdict::SlightlyWorse);
            assert_eq!(failed, verdicts().any(worse), "{name}: {text}");
            if judgement.decision().is_none() {
                assert!(text.contains("<error ") || text.contains("<failure "), "{name}: {text}");
            }
            let said: usize = text.split("tests=\"").nth(1).and_then(|t| t.split('"').next()?.parse().ok()).unwrap();
            assert_eq!(said, text.matches("<testcase ").count(), "{name}");
        });
    }
    let (plan, records) = hostile();
    let text = with(&plan, &records, |report, _| junit(report));
    assert!(text.contains("a|&lt;b c=&quot;d&quot;&gt;"), "{text}");
    assert!(!text.contains("<b c") && !text.contains("]]>"), "{text}");
}

/// The test of survival in the JUnit report of a study of equal arms that `change` changed, the whole report, and the study's verdict.
fn survived(change: impl FnOnce(&mut Plan, &mut Vec<Record>)) -> (String, String, Verdict) {
    let (mut plan, _) = study(1.0);
    let mut records = records(&plan, 0.0005, |_, _, _| 1.0);
    change(&mut plan, &mut records);
    with(&plan, &records, |report, judgement| {
        let text = junit(report);
        let case = text.lines().find(|line| line.contains("name=\"every trial completed\"")).unwrap().to_owned();
        (case, text, judgement.verdict.unwrap())
    })
}

/// Makes B's first boots fail, as many as `failed` says, and complete when they are run again.
fn fail_once(plan: &Plan, records: &mut Vec<Record>, failed: usize) {
    for slot in plan.slots.iter().filter(|slot| slot.arm == 1).take(failed) {
        let record = &mut records[slot.slot as usize];
        let again = Record { attempt: 1, ..record.clone() };
        fail(record, Failure::Panic, "Fatal exception");
        records.push(again);
    }
}

const OOPS: &str = "BUG: unable to handle page fault";

#[test]
fn what_decides_nothing_is_the_output_of_a_test_that_passes() {
    let passes = |change: &dyn Fn(&mut Plan, &mut Vec<Record>), said: &str| {
        let (case, text, verdict) = survived(change);
        assert!(case.contains("\"><system-out>") && case.contains(said), "{case}");
        assert!(!text.contains("<failure ") && !text.contains("<skipped ") && verdict == Verdict::Same, "{text}");
        assert!(text.contains("<testsuites name=\"bigiron\" tests=\"4\" failures=\"0\""), "{text}");
    };
    passes(&|_, r| complain(&mut r[1], "warning", "WARNING: mm/slub.c:1"), "(a warning alone decides nothing)");
    passes(&|p, r| fail_once(p, r, 1), "panicked in 1 of 10 boots (it did not repeat: unconfirmed)<");
    passes(
        &|p, r| {
            fail_once(p, r, 1);
            complain(&mut r[1], "oops", OOPS);
        },
        "`oops` in 1 of 10 boots, debian:6.1 in none (unconfirmed, so it decides nothing): BUG: ",
    );
    assert!(survived(|_, _| ()).0.ends_with("/>"));
}

#[test]
fn survival_that_decides_is_a_failure() {
    let fails = |change: &dyn Fn(&mut Plan, &mut Vec<Record>), expected: Verdict, said: &str| {
        let (case, text, verdict) = survived(change);
        assert!(case.contains("><failure message=\"") && case.contains(said), "{case}");
        assert_eq!(verdict, expected, "{text}");
        text
    };
    let died = |r: &mut Record| fail(r, Failure::Panic, "Fatal exception");
    fails(&|_, r| died(&mut r[1]), Verdict::Worse, "panicked in 1 of 10 boots");
    fails(&|_, r| r[..2].iter_mut().for_each(died), Verdict::Inconclusive, "panicked in 1 of 10 boots");
    fails(&|_, r| r.iter_mut().for_each(died), Verdict::Inconclusive, "panicked in 10 of 10 boots");
    fails(&|_, r| complain(&mut r[1], "oops", OOPS), Verdict::Worse, "`oops` in 1 of 10 boots, debian:6.1 in none: ");
    // None of them repeats, but they are too many for chance.
    fails(&|p, r| fail_once(p, r, 6), Verdict::Worse, "panicked in 6 of 10 boots (6 of these did not repeat");
    // What an unconfirmed failure of the baseline logged does not excuse B.
    let excused: &dyn Fn(&mut Plan, &mut Vec<Record>) = &|_, r| {
        let again = Record { attempt: 1, ..r[0].clone() };
        died(&mut r[0]);
        r.push(again);
        [0, 1].iter().for_each(|slot| complain(&mut r[*slot], "oops", OOPS));
    };
    let text = fails(excused, Verdict::Worse, "`oops` in 1 of 10 boots, debian:6.1 in unconfirmed failures only: ");
    let suite = "complained (`oops`) where that of debian:6.1 did so in unconfirmed failures only: worse\"";
    assert!(text.contains(suite), "{text}");
    // The host spoilt A's boot; B's log counts, although its result does not.
    let partner: &dyn Fn(&mut Plan, &mut Vec<Record>) = &|p, r| {
        p.clock = Clock::Wall;
        let again = [0, 1].map(|slot: usize| Record { attempt: 1, ..r[slot].clone() });
        void(&mut r[0]);
        complain(&mut r[1], "oops", OOPS);
        r.extend(again);
    };
    let text = fails(partner, Verdict::Worse, "`oops` in 1 of 11 boots, debian:6.1 in none: ");
    assert!(text.contains("debian:6.12 logged `oops` in 1 of 11 boots: "), "{text}");
}

#[test]
fn a_mail_fits_the_lists_and_repeats_the_study() {
    for (name, plan, records) in every_study() {
        let text = with(&plan, &records, |report, _| mail(report));
        let (head, body) = text.split_once("\n\n").unwrap();
        assert!(head.starts_with("Subject: [bigiron] ") && head.lines().count() == 1, "{name}: {head}");
        let long = body.lines().filter(|line| width(line) > 72 && !line.contains(&plan.repeat)).collect::<Vec<_>>();
        assert!(long.is_empty(), "{name}: {long:#?}");
        assert!(body.contains(&format!("\n  {}\n", plan.repeat)), "{name}: {body}");
    }
}

#[test]
fn samples_of_a_family_stand_together_and_the_text_ends_with_eof() {
    for (name, plan, records) in every_study().into_iter().chain([("hostile", hostile().0, hostile().1)]) {
        let text = with(&plan, &records, |report, _| openmetrics(report));
        assert!(text.ends_with("\n# EOF\n"), "{name}");
        let mut family = "";
        let mut seen = Vec::new();
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split(' ').next().unwrap();
                assert!(!seen.contains(&family), "{name}: {family} comes twice");
                seen.push(family);
            } else if !line.starts_with("# HELP ") {
                let (head, value) = line.rsplit_once("} ").unwrap_or_else(|| panic!("{name}: {line}"));
                assert!(head.starts_with(&format!("{family}{{")) && value.parse::<f64>().is_ok(), "{name}: {line}");
            }
        }
    }
}

#[test]
fn every_line_fits_the_schema_of_lines() {
    let schema = serde_json::from_str(&lines_schema()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (name, plan, records) in every_study() {
        let text = with(&plan, &records, |report, _| jsonl(report));
        assert!(text.starts_with("{\"type\":\"study\"") || text.contains("\"type\":\"study\""), "{name}");
        for line in text.lines() {
            let document = serde_json::from_str(line).unwrap();
            let errors: Vec<_> =
                validator.iter_errors(&document).map(|e| format!("{}: {e}", e.instance_path())).collect();
            assert!(errors.is_empty(), "{name}: {errors:#?}");
        }
    }
    assert!(!validator.is_valid(&serde_json::json!({ "type": "line" })));
}
