//! The environments of trials: in records, in reports, and between two studies.

use crate::builder::Test;
use crate::studies::study;

/// A script with facts; `more` are those of the second kernel.
fn script(microcode: &str, more: &str) -> String {
    format!(
        "noise = 0.0005\n[sim.environment.\"*\"]\nmicrocode = \"{microcode}\"\nclock-source = \"tsc\"\n\"module.zswap.enabled\" = \"N\"\n\
         [sim.environment.\"debian:6.12\"]\n{more}\n"
    )
}

#[test]
fn a_report_tells_what_no_lever_asked_for() {
    let test =
        Test::new().file("s.toml", study(&script("0x1", "preemption = \"lazy\"\n\"module.new.parameter\" = \"1\"")));
    let ran = test.run(&["run", "s.toml", "--out", "out", "--full"]).status(0);
    ran.stdout_has(
        "What else differs between the arms\n  - preemption: not noted → lazy\n  - 1 module parameters exist",
    );
    let json = test.run(&["report", "out", "--format", "json"]).status(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let differences = json["environment"]["differences"].as_array().unwrap();
    assert_eq!((differences.len(), &differences[0]["fact"]), (1, &"preemption".into()));
    assert_eq!(json["environment"]["noted"], 5);
    let page = test.run(&["report", "out", "--format", "html"]).status(0).stdout;
    let shown =
        test.run(&["show", "out", "0"]).status(0).stdout_has("Environment\n  clock-source: tsc\n  microcode: 0x1\n");
    shown.stdout_has("parameters of modules, in the record");
    assert!(page.contains("1 of 5 noted facts differ"), "{page}");
}

#[test]
fn two_studies_are_compared() {
    let newer = study(&script("0x2", "thp = \"always\"")).replace("pairs = 8", "pairs = 10");
    let test = Test::new().file("one.toml", study(&script("0x1", "thp = \"madvise\""))).file("two.toml", newer);
    test.run(&["run", "one.toml", "--out", "one"]).status(0);
    test.run(&["run", "two.toml", "--out", "two"]).status(0);
    let same = test.run(&["diff", "one", "one"]).status(0).stdout_has("Plans and programs\n  no difference\n");
    same.stdout_has("4 facts of the environment are noted in A, 4 in B; those not named here are the same");
    let ran = test.run(&["diff", "one", "two"]).status(0);
    ran.stdout_has("A = one, begun ")
        .stdout_has("  pairs  8")
        .stdout_has("  microcode          0x1")
        .stdout_has("thp (debian:6.12)  madvise");
    let json = test.run(&["diff", "one", "two", "--format", "json"]).status(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["plan"], serde_json::json!([{"what": "pairs", "a": "8", "b": "10"}]));
    let facts: Vec<&str> =
        json["environment"].as_array().unwrap().iter().map(|d| d["what"].as_str().unwrap()).collect();
    assert_eq!(facts, ["microcode", "thp (debian:6.12)"]);
}

#[test]
fn what_is_no_study_is_refused() {
    let test = Test::new().file("s.toml", study("")).file("a-file", "");
    test.run(&["run", "s.toml", "--out", "out"]).status(0);
    test.run(&["diff", "out", "nowhere"]).refused("There is no folder `nowhere`");
    test.run(&["diff", "a-file", "out"]).refused("`a-file` is a file; a study is a folder with a plan.toml");
    test.run(&["diff", ".", "out"]).refused("`.` holds no study: it has no plan.toml");
    // A study of an older build has no facts.
    let told = test.run(&["diff", "out", "out"]).status(0);
    told.stdout_has("Neither study has noted the environment of its trials");
}

#[test]
fn a_trial_on_this_machine_notes_its_environment() {
    let test = Test::new();
    let words = [
        "compare",
        "--on",
        "local",
        "running",
        "running",
        "micro",
        "--idle-gap",
        "0",
        "--set",
        "micro.only=null-call",
        "--set",
        "micro.scale=0.01",
    ];
    let record = test.first_record("out", &words);
    let facts = record["environment"].as_object().unwrap();
    for name in ["memory-kib", "cpus", "cpu", "clock-source"] {
        assert!(facts.contains_key(name), "{name}: {facts:?}");
    }
    assert!(facts.keys().any(|name| name.starts_with("module.")), "{facts:?}");
}
