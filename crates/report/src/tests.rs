mod cycles;
mod example;
mod layout;
mod page;

use super::{Extras, Report, csv, html, json, table, text, trial, trials};
use bigiron_judge::causes::{Cause, NotToldApart, Uncertain};
use bigiron_judge::fixture::{complain, dbsim, fail, micro, void};
use bigiron_judge::judge;
use bigiron_model::clock::Clock;
use bigiron_model::plan::{FailedCheck, Plan};
use bigiron_model::record::{Failure, Record};
use example::configs;

pub(super) use example::{study, why};

pub(super) struct Printed {
    pub(super) text: String,
    json: String,
    csv: String,
    pub(super) html: String,
}

pub(super) fn print(plan: &Plan, records: &[Record], extras: &Extras) -> Printed {
    let judgement = judge(plan, records);
    let report = Report::new(plan, records, &judgement, extras);
    Printed { text: text(&report), json: json(&report), csv: csv(&report), html: html(&report) }
}

/// Every kind of study that a report must be able to print.
pub(super) fn every_study() -> Vec<(&'static str, Plan, Vec<Record>)> {
    let mut all = Vec::new();
    let (plan2, clean) = study(1.05);
    all.push(("clean", plan2.clone(), clean.clone()));

    let mut failed = clean.clone();
    for slot in [1, 5, 9] {
        fail(&mut failed[slot], Failure::Panic, "Kernel panic - not syncing: <Fatal> & \"final\" \u{1b}[31m");
    }
    complain(&mut failed[6], "hung-task", "INFO: task kworker/u2:1 blocked for more than 120 seconds");
    all.push(("failed", plan2.clone(), failed));

    let mut baseline = clean.clone();
    fail(&mut baseline[0], Failure::Hang, "No progress for 60 CPU seconds");
    all.push(("baseline failed", plan2.clone(), baseline));

    let mut odd = clean.clone();
    odd.push(Record { schema: 7, ..clean[0].clone() });
    for slot in [2, 4, 12] {
        let (workload, metric) = (plan2.workloads[0].name.clone(), plan2.workloads[0].metrics[2].name.clone());
        odd[slot].metrics.insert(&workload, &metric, f64::NAN);
    }
    void(&mut odd[6]);
    odd.push(Record { attempt: 1, ..clean[6].clone() });
    all.push(("odd records", plan2.clone(), odd));

    let mut wall = plan2.clone();
    wall.clock = Clock::Wall;
    let mut spoilt = clean.clone();
    for slot in [0, 4, 8] {
        void(&mut spoilt[slot]);
    }
    all.push(("wall", wall.clone(), clean.clone()));
    all.push(("spoilt", wall, spoilt));

    let nothing: Vec<Record> = clean
        .iter()
        .cloned()
        .map(|mut r| {
            fail(&mut r, Failure::NoAgent, "No word from the agent");
            r
        })
        .collect();
    all.push(("nothing completed", plan2.clone(), nothing));
    all.push(("unfinished", plan2.clone(), clean[..9].to_vec()));
    all.push(("not begun", plan2.clone(), Vec::new()));

    let of_two = bigiron_judge::fixture::plan(&["debian:6.1", "debian:6.12"], 18, vec![micro(), dbsim()]);
    let three = bigiron_judge::fixture::on_three_machines(of_two);
    let mut on_three = bigiron_judge::fixture::records(&three, 0.001, |_, _, _| 1.05);
    all.push(("unfinished on three machines", three.clone(), on_three[..7].to_vec()));
    for record in on_three.iter_mut().filter(|r| r.machine.as_deref() == Some("b")) {
        let slow = if record.arm == three.arms[0].name { 2.0 } else { 3.0 };
        for metric in &three.workloads[0].metrics {
            let value = record.metrics.get(&three.workloads[0].name, &metric.name).unwrap_or(1.0);
            record.metrics.insert(&three.workloads[0].name, &metric.name, slow * value);
        }
    }
    all.push(("three machines that disagree", three, on_three));

    let mut no_clock = plan2;
    no_clock.clock = Clock::None;
    all.push(("no clock", no_clock, clean));

    let (plan, records) = study(1.0);
    all.push(("identical", plan.clone(), bigiron_judge::fixture::records(&plan, 0.0, |_, _, _| 1.0)));
    all.push(("same", plan, records));

    let five = bigiron_judge::fixture::plan(
        &["debian:5.10", "debian:6.1", "debian:6.12", "debian:6.18,boot.mitigations=off", "mine"],
        12,
        vec![micro(), dbsim()],
    );
    let records = bigiron_judge::fixture::records(&five, 0.004, |arm, _, _| 1.0 + 0.05 * arm as f64);
    all.push(("five arms", five, records));
    all
}

#[test]
fn the_text_of_a_clean_study() {
    let (plan, records) = study(1.05);
    let text = print(&plan, &records, &configs()).text;
    let golden = include_str!("golden.txt");
    assert!(text == golden, "The text report differs from golden.txt. It is:\n{text}");
}

#[test]
fn sentences_say_what_happened() {
    let said = |change: &dyn Fn(&mut Plan, &mut Vec<Record>), expected: &str| {
        let (mut plan, mut records) = study(1.05);
        change(&mut plan, &mut records);
        let text = print(&plan, &records, &Extras::default()).text;
        let unwrapped = text.split("\n\n").map(|p| p.replace("\n  ", " ")).collect::<Vec<_>>().join("\n\n");
        assert!(unwrapped.contains(expected), "`{expected}` is not in:\n{unwrapped}");
    };
    said(&|_, _| {}, "; beyond the 2 % margin: worse\n");
    said(&|_, _| {}, "suite: debian:6.12 regressed in dbsim and micro against debian:6.1: worse\n");
    let three: &dyn Fn(&mut Plan, &mut Vec<Record>) = &|_, r| {
        for slot in [1, 5, 9] {
            fail(&mut r[slot], Failure::Panic, "Kernel panic");
        }
    };
    said(three, "debian:6.12 panicked in 3 of 10 boots\nmicro: ");
    said(three, "suite: debian:6.12 panicked in 3 of 10 boots: worse\n");
    said(three, "7 of 10 pairs, exact/2 clock");
    said(
        &|p, r| {
            *r = bigiron_judge::fixture::records(p, 0.004, |_, _, _| 1.0);
            fail(&mut r[0], Failure::VerifyFailed, "Block 7 is stale");
        },
        "suite: debian:6.1, the baseline, lost or corrupted data in 1 of 10 boots, so debian:6.12 has no valid baseline to compare with: \
         inconclusive\n",
    );
    said(
        &|_, r| r.iter_mut().for_each(|r| fail(r, Failure::Panic, "no root")),
        "suite: neither survived: debian:6.12 panicked in 10 of 10 boots and debian:6.1, the baseline, panicked in 10 of 10 boots: inconclusive\n",
    );
    said(
        &|p, r| {
            *r = bigiron_judge::fixture::records(p, 0.004, |_, _, _| 1.0);
            [0, 1].iter().for_each(|slot| fail(&mut r[*slot], Failure::Panic, "oops"));
        },
        "neither fails more often than chance explains, and as long as both fail, their speed is not judged: inconclusive\n",
    );
    let many: &dyn Fn(&mut Plan, &mut Vec<Record>) = &|p, r| {
        *r = bigiron_judge::fixture::records(p, 0.004, |_, _, _| 1.0);
        p.slots
            .iter()
            .filter(|s| s.arm == 0 || s.slot == 1)
            .for_each(|s| fail(&mut r[s.slot as usize], Failure::Panic, "oops"));
    };
    said(
        many,
        "suite: debian:6.12 survives more often: debian:6.1, the baseline, panicked in 10 of 10 boots, and debian:6.12 panicked in 1 of 10 boots; \
         there is no valid baseline to compare its speed with: inconclusive\n",
    );
    said(
        &|p, r| {
            *r = bigiron_judge::fixture::records(p, 0.004, |_, _, _| 1.0);
            let completed = Record { attempt: 1, ..r[1].clone() };
            fail(&mut r[1], Failure::Panic, "oops");
            r.push(completed);
        },
        "debian:6.12 panicked in 1 of 10 boots (it did not repeat: unconfirmed)\n",
    );
    said(
        &|_, r| {
            fail(&mut r[1], Failure::Panic, "oops");
            r.push(Record { attempt: 1, artifacts: vec!["artifacts/0001-1/console.log".into()], ..r[1].clone() });
        },
        "artifacts/0001-1/console.log]",
    );
    said(
        &|p, _| p.failed_check = Some(FailedCheck { kernel: "6.12.9".into(), reasons: vec!["too noisy".into()] }),
        "suite: the machine failed its last A/A check (too noisy), so debian:6.12 and debian:6.1 are not compared; once `bigiron selftest` \
         passes, a new study is valid: invalid\n",
    );
    said(
        &|_, r| complain(&mut r[1], "warning", "WARNING: CPU: 0 PID: 1 at mm/slub.c:1"),
        "debian:6.12 logged kernel complaints of class `warning` in 1 of 10 boots, debian:6.1 in none (a warning alone decides nothing): \
         WARNING: CPU: 0 PID: 1 at mm/slub.c:1\nmicro:",
    );
    said(
        &|p, r| {
            p.clock = Clock::Wall;
            [0, 4, 8].iter().for_each(|s| void(&mut r[*s]));
        },
        "suite: the host spoilt 3 of 10 pairs, more than a quarter, so debian:6.12 and debian:6.1 are not compared: invalid\n",
    );
    said(
        &|_, r| r.truncate(9),
        "unfinished: 9 of 20 boots of debian:6.12 against debian:6.1; no effect is estimated before the end.",
    );
    said(&|p, _| p.clock = Clock::None, "without a clock their speed cannot be compared: inconclusive\n");
    said(
        &|p, r| *r = bigiron_judge::fixture::records(p, 0.004, |_, _, _| 1.0),
        "dbsim: debian:6.12 does as well as debian:6.1 (-0.14 %, 95 % CI -0.37 … +0.13 %, 10 pairs, exact/2 clock); within the 2 % margin: same\n",
    );
    said(
        &|p, r| *r = bigiron_judge::fixture::records(p, 0.0005, |_, _, _| 1.006),
        "within the 2 % margin: same (tiny, but these builds differ: +0.6",
    );
    // Of two arms, one has the baseline's kernel.
    let mut three = bigiron_judge::fixture::plan(&["debian:6.1", "set", "debian:6.12"], 10, vec![dbsim()]);
    three.arms[1].kernel = three.arms[0].kernel.clone();
    let records = bigiron_judge::fixture::records(&three, 0.0005, |arm, _, _| if arm == 0 { 1.0 } else { 1.006 });
    let text = print(&three, &records, &Extras::default()).text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in ["same (tiny but real: +0.6", "same (tiny, but these builds differ: +0.6"] {
        assert_eq!(text.matches(said).count(), 1, "`{said}` in {text}");
    }
    said(
        &|p, r| {
            p.clock = Clock::Wall;
            *r = bigiron_judge::fixture::records(p, 0.0005, |_, _, _| 1.006);
        },
        "within the 2 % margin: same (tiny but real: +0.6",
    );
    said(
        &|p, r| {
            *p = bigiron_judge::fixture::plan(&["debian:6.1", "debian:6.12"], 8, vec![micro(), dbsim()]);
            *r = bigiron_judge::fixture::records(p, 0.01, |_, w, _| if w == "micro" { 1.0278 } else { 1.0 });
        },
        "; real, but that it is beyond the 2 % margin does not survive the correction for 2 primaries: slightly-worse (unadjusted: worse)\n",
    );
    said(
        &|p, r| *r = bigiron_judge::fixture::records(p, 0.0, |_, _, _| 1.0),
        "(0.00 %, 95 % CI 0.00 … 0.00 %, 10 pairs, exact/2 clock); within the 2 % margin: same\n",
    );
    // An interval across zero keeps its signs; any other takes the sign of the word.
    said(
        &|p, r| *r = bigiron_judge::fixture::records(p, 0.0005, |_, w, _| if w == "dbsim" { 1.1 } else { 0.9 }),
        "micro: debian:6.12 is 10.00 % faster than debian:6.1 (95 % CI 9.97 … 10.03 %, 10 pairs, exact/2 clock); beyond the 2 % margin: better\n",
    );
    said(
        &|p, _| p.wider_margins = [("dbsim.commit-p99".to_owned(), 0.15)].into(),
        "p50 3 %, amounts 2 %, by this machine's noise card, chosen before the first boot: dbsim commit-p99 15 %\n",
    );
    // A mean that is the same does not hide what is behind it.
    let hidden: &dyn Fn(&mut Plan, &mut Vec<Record>) = &|p, r| {
        let effect = |metric: &str| match metric {
            "null-call" => 1.1,
            "fork-exit" => 0.9,
            _ => 1.0,
        };
        *r = bigiron_judge::fixture::records(p, 0.002, |_, _, metric| effect(metric));
    };
    said(
        hidden,
        "micro, its metrics: 1 of 3 worse, 1 better beyond the margin with debian:6.12 (false discovery rate 5 %; apart from the suite's verdict): worse\n",
    );
    said(
        hidden,
        "suite: no primary metric regressed, although metrics of micro (1 of 3 worse, 1 better) did with debian:6.12: same\n",
    );
}

#[test]
fn no_line_is_too_long_for_a_mail() {
    for (name, plan, records) in every_study() {
        for line in print(&plan, &records, &configs()).text.lines() {
            assert!(table::width(line) <= table::WIDTH, "{name}: {line}");
        }
    }
}

#[test]
fn every_report_fits_the_schema() {
    let schema = serde_json::from_str(include_str!("report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut sampled = configs();
    let not_told_apart = NotToldApart { functions: 31, a: 50.0, b: 48.0, se: 9.0 };
    sampled.why.causes[0].cpus = 1.96;
    sampled.why.causes[0].sampled = Some(Uncertain { samples_a: 400, samples_b: 500, not_told_apart });
    for (name, plan, records) in every_study() {
        for extras in [configs(), sampled.clone(), Extras::default()] {
            let document = serde_json::from_str(&print(&plan, &records, &extras).json).unwrap();
            let errors: Vec<_> =
                validator.iter_errors(&document).map(|e| format!("{}: {e}", e.instance_path())).collect();
            assert!(errors.is_empty(), "{name}: {errors:#?}");
        }
    }
    // The schema can reject a document.
    assert!(!validator.is_valid(&serde_json::json!({"schema": 1})));
}

#[test]
fn each_machine_has_its_row_and_disagreement_is_said() {
    let studies = every_study();
    let printed = |name: &str| {
        let (_, plan, records) = studies.iter().find(|(of, ..)| *of == name).unwrap();
        print(plan, records, &Extras::default())
    };
    let done = printed("three machines that disagree");
    for text in [&done.text, &done.html] {
        let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("By machine") && said.contains("by more than chance: from "), "{text}");
        assert!(said.contains("exchanged within each machine only"), "{text}");
    }
    let document: serde_json::Value = serde_json::from_str(&done.json).unwrap();
    let line = &document["comparisons"][0]["lines"][0];
    assert!(line["machines"].as_array().unwrap().len() == 3 && line["machines_p"].as_f64().unwrap() < 0.01, "{line}");
    let unfinished = printed("unfinished on three machines").text;
    assert!(unfinished.contains("a: 3 of ") && unfinished.contains("c: 2 of "), "{unfinished}");
    assert!(!printed("clean").text.contains("By machine"));
}

#[test]
fn every_format_prints_the_same_numbers() {
    let (plan, records) = study(1.05);
    let printed = print(&plan, &records, &Extras::default());
    let document: serde_json::Value = serde_json::from_str(&printed.json).unwrap();
    let lines = document["comparisons"][0]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 8);
    let plain_html = printed.html.replace('\u{2212}', "-");
    for line in lines {
        for field in ["baseline_mean", "arm_mean", "change", "smallest_visible"] {
            let shown = line[field]["text"].as_str().unwrap();
            // In the text A and B share a unit, and only primaries have their own detectable effect.
            let number = if field == "arm_mean" { shown } else { shown.split(' ').next().unwrap() };
            let in_text = field != "smallest_visible" || line["metric"]["primary"] == true;
            assert!(!in_text || printed.text.contains(number), "{field} {shown} is not in the text");
            assert!(plain_html.contains(&format!(">{shown}<")), "{field} {shown} is not in the page");
        }
        let change = line["change"]["value"].as_f64().unwrap();
        let row = printed.csv.lines().find(|row| row.contains(line["metric"]["name"].as_str().unwrap())).unwrap();
        assert!(row.split(',').any(|cell| cell.parse() == Ok(change)), "{change} is not in {row}");
    }
}

#[test]
fn without_an_end_or_a_clock_there_are_no_numbers() {
    for (name, plan, records) in every_study() {
        if !["unfinished", "no clock", "spoilt"].contains(&name) {
            continue;
        }
        let printed = print(&plan, &records, &Extras::default());
        for page in [&printed.text, &printed.html] {
            // The device model's time is a setting, not a result.
            let page = page.replace("10 µs a request", "");
            for banned in [" µs", " ms", " ns", " tx/s", "95 % CI", "slower", "class=\"forest\""] {
                assert!(!page.contains(banned), "{name}: {banned}");
            }
        }
        assert_eq!(printed.csv.lines().count(), 1, "{name}");
        let document: serde_json::Value = serde_json::from_str(&printed.json).unwrap();
        assert_eq!(document["comparisons"][0]["lines"], serde_json::json!([]));
    }
}

#[test]
fn reports_do_not_depend_on_the_order_or_cost_of_records() {
    for (name, plan, records) in every_study() {
        let expected = print(&plan, &records, &Extras::default());
        let mut other: Vec<Record> = records.into_iter().rev().collect();
        for record in &mut other {
            record.host.wall_s *= 3.0;
            record.host.cpu_s *= 2.0;
        }
        let now = print(&plan, &other, &Extras::default());
        assert_eq!(now.text, expected.text, "{name}");
        assert_eq!(now.json, expected.json, "{name}");
        assert_eq!(now.html, expected.html, "{name}");
    }
}

#[test]
fn csv_has_a_cell_for_every_column() {
    for (name, plan, records) in every_study() {
        let csv = print(&plan, &records, &Extras::default()).csv;
        let columns = csv.lines().next().unwrap().split(',').count();
        for line in csv.lines() {
            let mut quoted = false;
            let commas = line
                .chars()
                .filter(|c| {
                    quoted ^= *c == '"';
                    *c == ',' && !quoted
                })
                .count();
            assert_eq!(commas + 1, columns, "{name}: {line}");
        }
    }
    let reference = include_str!("../../../docs/reference/report.md");
    let (plan, records) = study(1.0);
    for column in print(&plan, &records, &Extras::default()).csv.lines().next().unwrap().split(',') {
        assert!(reference.contains(&format!("`{column}`")), "docs/reference/report.md does not explain `{column}`");
    }
}

#[test]
fn trials_are_listed_with_every_attempt() {
    let (plan, mut records) = study(1.0);
    void(&mut records[2]);
    records.push(Record { attempt: 1, ..study(1.0).1[2].clone() });
    fail(&mut records[3], Failure::Hang, "No progress for 60 CPU seconds");
    records.remove(7);
    let list = trials(&plan, &records);
    assert_eq!(list.lines().count(), 1 + 20 + 1);
    assert!(list.lines().any(|l| l.contains(" void")));
    assert!(list.lines().any(|l| l.contains(" hung")));
    assert!(list.lines().any(|l| l.contains("not yet run")));

    let one = trial(&plan, &records[3], Some("line\u{1b}[2J one\nlast"));
    assert!(one.contains("No progress for 60 CPU seconds") && one.contains("line␛[2J one") && one.contains("  last"));
    let good = trial(&plan, &records[0], None);
    assert!(good.contains("Metrics (exact/2 clock)") && good.contains("dbsim throughput ↑"));
    let mut no_clock = plan;
    no_clock.clock = Clock::None;
    assert!(!trial(&no_clock, &records[0], None).contains("throughput"));
}

#[test]
fn rows_whose_sign_copies_decide_are_marked_in_every_format() {
    let (plan, records) = study(1.05);
    let plan = Plan { clock: Clock::Exact1, ..plan };
    let plain = print(&plan, &records, &configs());
    assert!(
        !plain.text.contains('†') && !plain.html.contains('†') && !plain.json.contains("copies_decide_sign\": true")
    );
    let mut copying = configs();
    let cause = |name: &str, a, b| Cause { name: name.to_owned(), formerly: None, a, b, se: None };
    copying.why.causes[0].causes =
        vec![cause("rep_movs_alternative", 0.0, 100.0), cause("copy_user_generic_unrolled", 20.0, 0.0)];
    copying.why.causes[0].listed = 2;
    let printed = print(&plan, &records, &copying);
    let row = |text: &str| text.lines().find(|l| l.contains("fork-exit")).unwrap_or_default().to_owned();
    assert!(row(&printed.text).ends_with(" †"), "{}", printed.text);
    assert!(printed.text.contains("\n†: without copies of memory"));
    assert_eq!(printed.html.matches("<span class=\"mark\">†</span>").count(), 1);
    assert!(printed.html.contains("†: without copies of memory"));
    assert_eq!(printed.json.matches("\"copies_decide_sign\": true").count(), 1);
    assert!(row(&printed.csv).ends_with(",true"), "{}", printed.csv);
    // On another clock, copies take the time they take.
    for clock in [Clock::Wall, Clock::Exact] {
        let plan = Plan { clock, ..plan.clone() };
        assert!(!print(&plan, &records, &copying).text.contains('†'), "{clock}");
    }
}

#[test]
fn a_question_in_words_stands_on_top() {
    let (mut plan, records) = study(1.0);
    assert!(print(&plan, &records, &Extras::default()).json.contains("\"question\": null"));
    plan.question = Some("Does <it> help?".to_owned());
    let printed = print(&plan, &records, &Extras::default());
    assert!(printed.text.starts_with("question: Does <it> help?\n\nmicro: debian:6.12"), "{}", printed.text);
    assert!(printed.html.contains("<p class=\"question\">Does &lt;it&gt; help?</p>"));
    assert!(printed.json.contains("\"question\": \"Does <it> help?\""));
}
