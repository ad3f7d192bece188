//! Studies of rebuilt kernels: on the scripted host, where builds are seeds alone, and trees that are refused before anything is linked.

use std::fs;

use serde_json::Value;

use crate::builder::{Ran, Test};

/// A study of two equal sources whose builds differ by .1 %, in `pairs` pairs.
fn study(seed: u32, design: &str) -> Test {
    let text = format!(
        "arms = [\"a\", \"b\"]\nworkloads = [\"micro\"]\n[design]\nclock = \"exact\"\nseed = {seed}\n{design}\n\
         [machine]\nhost = \"sim\"\n[sim]\nnoise = 0.00014\nbuild-noise = 0.0007\n"
    );
    Test::new().file("s.toml", text)
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout))
}

/// Whether the study's interval of its primary excludes that the sources are equal.
fn differs(test: &Test) -> bool {
    let found = json(&test.run(&["run", "s.toml", "--format", "json"]).status(0));
    let line = &found["comparisons"][0]["lines"][0];
    assert_eq!(line["metric"]["primary"], true, "{line}");
    let [low, high] = [0, 1].map(|end| line["ci95"][end]["value"].as_f64().unwrap());
    low > 0.0 || high < 0.0
}

#[test]
fn builds_that_differ_are_no_difference_of_sources() {
    let found = |design: &str| (1..=8).filter(|seed| differs(&study(*seed, design))).count();
    let (images, builds) = (found("pairs = 10"), found("pairs = 10\nrebuilds = 10"));
    assert!(
        images >= 5 && builds <= 1,
        "{images} of 8 studies of two images and {builds} of builds say that they differ"
    );
}

#[test]
fn a_report_speaks_of_sources_and_a_trial_of_its_build() {
    let test = study(7, "rebuilds = 6\npairs = 12");
    test.run(&["run", "s.toml", "--out", "o"]).status(0).stdout_has("12 pairs, 6 builds of each source");
    test.run(&["report", "o"])
        .status(0)
        .stdout_has("6 builds from the objects of image")
        .stdout_has("each boots in 2 pairs, whose differences are averaged")
        .stdout_has("The interval is about the sources");
    let plan = fs::read_to_string(test.dir().join("o/plan.toml")).unwrap();
    assert!(plan.contains("rebuilds = 6") && plan.matches("layout = ").count() == 12, "{plan}");
    let found = json(&test.run(&["report", "o", "--format", "json"]).status(0));
    assert_eq!(found["kernels"][0]["builds"].as_array().unwrap().len(), 6);
    // Slots 0 and 12 are of pairs 0 and 6, which boot the first builds.
    test.run(&["show", "o", "0"]).status(0).stdout_has(", build 1 of 6, layout ");
    test.run(&["show", "o", "12"]).status(0).stdout_has(", build 1 of 6, layout ");
    test.run(&["show", "o", "3"]).status(0).stdout_has(", build 2 of 6, layout ");
    test.run(&["run", "s.toml", "--out", "o"]).status(0).stderr_has("nothing to boot");
    // Without rebuilds it is another question, and says so.
    let text = fs::read_to_string(test.dir().join("s.toml")).unwrap();
    let test = test.file("s.toml", text.replace("rebuilds = 6\n", ""));
    test.run(&["run", "s.toml", "--out", "o"]).refused("rebuilds: 6 → none");
}

#[test]
fn a_study_is_resumed_with_the_builds_of_its_plan() {
    let test = study(3, "rebuilds = 8\npairs = 8");
    test.run(&["run", "s.toml", "--out", "whole"]).status(0);
    test.run(&["run", "s.toml", "--out", "cut"]).status(0);
    let path = test.dir().join("cut/records.jsonl");
    let records = fs::read_to_string(&path).unwrap();
    let kept: String = records.split_inclusive('\n').take(5).collect();
    fs::write(&path, kept).unwrap();
    test.run(&["run", "s.toml", "--out", "cut"]).status(0).stderr_has("Resuming");
    let sorted = |name: &str| {
        let text = fs::read_to_string(test.dir().join(name).join("records.jsonl")).unwrap();
        let mut hashes: Vec<String> = text
            .lines()
            .map(|line| {
                let start = line.find("\"image_sha256\"").unwrap();
                format!("{} {}", &line[line.find("\"slot\"").unwrap()..][..10], &line[start..start + 82])
            })
            .collect();
        hashes.sort_unstable();
        hashes
    };
    assert_eq!(sorted("cut"), sorted("whole"));
}
