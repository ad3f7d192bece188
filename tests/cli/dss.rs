//! `bigiron dss`: runs without a study, and the texts of the queries.

use crate::builder::Test;

const SMALL: [&str; 4] = ["--set", "engine=sqlite", "--set", "scale=0.001"];

#[test]
fn a_run_checks_its_answers_prints_its_times_and_leaves_nothing() {
    let test = Test::new();
    let run = test.run(&[&["dss", "run"][..], &SMALL].concat()).status(0);
    run.stdout_has("Every answer is right").stdout_has("q22").stdout_has("rf2").stdout_has("SQLite");
    let json = test
        .run(&[&["dss", "run", "--format", "json", "--set", "queries=6", "--set", "refresh=no"][..], &SMALL].concat());
    let value: serde_json::Value = serde_json::from_str(&json.status(0).stdout).unwrap();
    assert!(value["metrics"]["q06"].as_f64().unwrap() > 0.0, "{value}");
    assert!(value["metrics"].get("q01").is_none() && value.get("seed").is_none(), "{value}");
    let left = test.entries(".");
    assert!(!left.iter().any(|name| name.starts_with("bigiron-work-")), "{left:?}");
}

#[test]
fn queries_are_printed_with_their_parameters_in_the_engines_sql() {
    let test = Test::new();
    let text = |set: &[&str]| test.run(&[&["dss", "queries"][..], set].concat()).status(0).stdout;
    let all = text(&["--set", "engine=postgres"]);
    assert!((1..=22).all(|query| all.contains(&format!("-- Query {query}. "))), "{all}");
    let [postgres, sqlite] = ["engine=postgres", "engine=sqlite"].map(|engine| text(&["6", "--set", engine]));
    assert!(postgres.contains("DATE '1994-01-01'") && !postgres.contains('{'), "{postgres}");
    assert!(sqlite.contains("'1994-01-01'") && !sqlite.contains("DATE"), "{sqlite}");
    assert_ne!(text(&["6", "--set", "engine=sqlite", "--set", "parameters=7"]), sqlite);
}

#[test]
fn wrong_words_are_refused_with_what_would_be_right() {
    let test = Test::new();
    for (words, right) in [
        (&["queries", "23"][..], "1 to 22"),
        (&["queries", "5", "--set", "queries=6"], "omit one of the two"),
        (&["queries", "--set", "engin=sqlite"], "did you mean `dss.engine`?"),
        (&["run", "--set", "job=power"], "job"),
        (&["run", "--set", "scale=0"], "0.001 to 1000"),
        (&["run", "--set", "engine=sqlite", "--dir", "not-there"], "There is no folder not-there"),
        (&["load", "mysql://me@db.example/bench"], "postgresql://"),
        (&["load", "postgresql://me@db.example/bench", "--scale", "0"], "0.001 to 1000"),
    ] {
        test.run(&[&["dss"], words].concat()).refused(right);
    }
}
