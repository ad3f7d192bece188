//! Every format says what the report says, in a form that its readers accept.

use bigiron_judge::Judgement;
use bigiron_judge::judge;
use bigiron_model::plan::Plan;
use bigiron_model::record::Record;
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
