//! Whole studies on the scripted host: from the file to the report, resumed, repeated, gated.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::builder::{PATIENCE, Test};

/// A study of two simulated kernels; `more` is the rest of the file, which ends in `[machine] host = "sim"` and the script.
pub fn study(script: &str) -> String {
    format!(
        "arms = [\"debian:6.1\", \"debian:6.12\"]\nworkloads = [\"micro\"]\n\n[design]\npairs = 8\nseed = 7\n\
         clock = \"exact\"\n\n[machine]\nhost = \"sim\"\n\n[sim]\n{script}"
    )
}

/// A script in which the second kernel is worse.
pub const SLOWER: &str = "noise = 0.002\n[sim.effects.\"debian:6.12\"]\n\"*\" = 1.1\n";

#[test]
fn a_study_is_run_reported_and_shown() {
    let test = Test::new().file("s.toml", study(SLOWER));
    let ran = test.run(&["run", "s.toml", "--out", "out"]).status(0);
    let ran =
        ran.stdout_has(": worse\n").stdout_has("\nReport: out/report.html\nAll of it as text: bigiron report out\n");
    assert!(ran.stdout.lines().count() < 25, "{}", ran.stdout);
    let full = test.run(&["run", "s.toml", "--out", "out", "--full"]).status(0);
    let full = full.stdout_has("--seed 7").stderr_has("Report: out/");
    assert_eq!(test.records("out").len(), 16);
    let page = fs::read_to_string(test.dir().join("out/report.html")).unwrap();
    assert!(page.contains("worse"));
    assert_eq!(test.run(&["report", "out"]).status(0).stdout, full.stdout);
    assert_eq!(test.run(&["report", "out", "--format", "html"]).status(0).stdout, page);
    let json = test.run(&["report", "out", "--format", "json"]).status(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["verdict"], "worse");
    assert!(test.run(&["report", "out", "--format", "csv"]).status(0).stdout.lines().count() > 10);
    test.run(&["show", "out"]).status(0).stdout_has("debian:6.12");
    test.run(&["show", "out", "3"]).status(0).stdout_has("Linux version");
    test.run(&["show", "out", "16"]).refused("its trials are 0 to 15");
    test.run(&["report", "nowhere"]).refused("There is no folder `nowhere`");
}

#[test]
fn a_machine_that_failed_its_check_gives_no_valid_verdict() {
    let card = "bigiron = \"0.1.0\"\nkernel = \"6.12.1\"\nclock = \"exact/2\"\npairs = 8\nseed = 1\nrepeated = true\n\n\
         [machine]\nhost = \"sim\"\ncpus = 1\nmemory_bytes = 1073741824\nstorage = \"nvme\"\nfilesystem = \"ext4\"\n\n\
         [gate]\npassed = false\nreasons = [\"micro geomean is off by +3.00 %\"]\nnoise = []\n";
    let test = Test::new().file("s.toml", study(SLOWER)).file("cache/noise/card.toml", card);
    let ran = test.run(&["run", "s.toml", "--out", "out"]).status(0);
    ran.stderr_has("failed its last A/A check (6.12.1: micro geomean is off").stdout_has("invalid");
    let json = test.run(&["report", "out", "--format", "json"]).status(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["verdict"], &json["comparisons"][0]["reason"]["kind"]),
        (&"invalid".into(), &"failed-check".into())
    );
    // A kernel against itself is a check of its own, and a later card speaks for the machine as it is now.
    let test = test.file("aa.toml", study("noise = 0.0005\n").replace("debian:6.1\"", "debian:6.12\""));
    test.run(&["run", "aa.toml"]).status(0).stdout_has("same");
    let test = test.file("cache/noise/later.toml", card.replace("passed = false", "passed = true"));
    test.run(&["run", "s.toml", "--out", "valid"]).status(0).stdout_has("worse");
}

#[test]
fn a_finished_question_is_answered_from_its_folder() {
    let test = Test::new().file("s.toml", study(SLOWER));
    let first = test.run(&["run", "s.toml", "--out", "out"]).status(0);
    let before = fs::read(test.dir().join("out/records.jsonl")).unwrap();
    let again = test.run(&["run", "s.toml", "--out", "out"]).status(0).stderr_has("nothing to boot");
    assert_eq!(first.stdout, again.stdout);
    assert_eq!(fs::read(test.dir().join("out/records.jsonl")).unwrap(), before);
    test.run(&["run", "s.toml", "--seed", "8", "--out", "out"]).refused("`out` holds another study");
}

#[test]
fn without_a_folder_each_answer_gets_its_own() {
    let test = Test::new().file("s.toml", study(""));
    for count in 1..=2 {
        test.run(&["run", "s.toml"]).status(0);
        assert_eq!(test.entries("bigiron-results").len(), count);
    }
    let names = test.entries("bigiron-results");
    assert_eq!(format!("{}-2", names[0].display()), names[1].display().to_string());
}

#[test]
fn a_gate_fails_on_a_crash_and_passes_what_is_the_same() {
    let gate = |script: &str, fail_on: &[&str]| {
        let test = Test::new().file("s.toml", study(script));
        let args: Vec<&str> = ["run", "s.toml"].iter().chain(fail_on).copied().collect();
        test.run(&args).status
    };
    let (worse, inconclusive) = (["--fail-on", "worse"], ["--fail-on", "inconclusive"]);
    let crash = "[[sim.incidents]]\nwhat = \"panic\"\narm = \"debian:6.12\"\npair = 2\n";
    assert_eq!(gate(crash, &worse), 3, "an arm that crashes is worse");
    assert_eq!(gate("noise = 0.0005\n", &inconclusive), 0, "the same is the same");
}

#[test]
fn a_study_that_had_to_stop_goes_on_where_it_was() {
    let fatal = "[[sim.incidents]]\nwhat = \"fatal\"\nslot = 9\n";
    let test = Test::new().file("s.toml", study(fatal));
    test.run(&["run", "s.toml", "--jobs", "1"]).status(1).stderr_has("the same command resumes");
    let kept = test.records(folder(&test).as_str());
    assert_eq!(kept.len(), 9);
    let test = test.file("s.toml", study(""));
    let resumed = test.run(&["run", "s.toml"]).status(0).stderr_has("Resuming");
    assert_eq!(test.entries("bigiron-results").len(), 1);
    let undisturbed = Test::new().file("s.toml", study(""));
    assert_eq!(undisturbed.run(&["run", "s.toml"]).status(0).stdout, resumed.stdout);
}

#[test]
fn a_study_that_another_build_began_is_reported_but_not_gone_on_with() {
    let fatal = "[[sim.incidents]]\nwhat = \"fatal\"\nslot = 9\n";
    let test = Test::new().file("s.toml", study(fatal));
    test.run(&["run", "s.toml", "--jobs", "1"]).status(1);
    let (folder, test) = (folder(&test), test.file("s.toml", study("")));
    let marked = "executable = \"";
    test.edit_plan(&folder, |plan| plan.replacen(marked, &format!("{marked}0"), 1));
    test.run(&["run", "s.toml"]).refused("was begun by another build of bigiron").stderr_has("--out DIR");
    assert_eq!(test.records(&folder).len(), 9, "nothing more was run");
    test.run(&["report", &folder]).status(0);
    test.edit_plan(&folder, |plan| plan.replacen(&format!("{marked}0"), marked, 1));
    test.run(&["run", "s.toml"]).status(0).stderr_has("Resuming");
    // Plans of builds that did not write down which they were.
    test.edit_plan(&folder, |plan| plan.replacen("[provenance]\n", "", 1).replacen(marked, "# \"", 1));
    test.run(&["report", &folder]).status(0);
}

#[test]
fn a_kill_loses_no_finished_trial_and_the_report_is_the_same() {
    // A trial that lasts for ever: the study cannot end by itself, however late the kill comes.
    let endless = study("delay-ms = 40\n[[sim.incidents]]\nwhat = \"stall\"\nslot = 12\n");
    let test = Test::new().file("s.toml", endless);
    let mut child = test.start(&["run", "s.toml", "--out", "out", "--jobs", "1"]);
    let begun = Instant::now();
    while test.records("out").len() < 4 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = test.records("out");
    assert!((4..16).contains(&kept.len()), "{} records", kept.len());
    let test = test.file("s.toml", study("delay-ms = 40\n"));
    let resumed = test.run(&["run", "s.toml", "--out", "out"]).status(0);
    let all = test.records("out");
    assert_eq!(all.len(), 16);
    assert!(kept.iter().all(|(slot, values)| all[slot] == *values));
    let undisturbed = Test::new().file("s.toml", study("delay-ms = 40\n"));
    assert_eq!(undisturbed.run(&["run", "s.toml", "--out", "out"]).status(0).stdout, resumed.stdout);
}

#[test]
fn the_seed_is_drawn_kept_and_resumed() {
    let text = study("").replace("seed = 7\n", "");
    let test = Test::new().file("s.toml", &text);
    test.run(&["run", "s.toml"]).status(0);
    let plan = fs::read_to_string(test.entries("bigiron-results")[0].join("plan.toml")).unwrap();
    let seed = plan.lines().find_map(|l| l.strip_prefix("seed = ")).unwrap().to_owned();
    let again = test.run(&["run", "s.toml", "--seed", &seed, "--out", "again", "--full"]).status(0);
    let folder = folder(&test);
    assert_eq!(test.records("again"), test.records(&folder));
    let first = test.run(&["report", &folder]).status(0);
    assert_eq!(first.stdout, again.stdout);
}

#[test]
fn every_ready_made_study_runs() {
    let studies = Path::new(env!("CARGO_MANIFEST_DIR")).join("studies");
    let mut count = 0;
    for entry in fs::read_dir(studies).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let simulated = if text.contains("host = \"local\"") {
            text.replace("host = \"local\"", "host = \"sim\"")
        } else if text.contains("[machine]\n") {
            text.replace("[machine]\n", "[machine]\nhost = \"sim\"\n")
        } else {
            format!("{text}\n[machine]\nhost = \"sim\"\n")
        };
        let test = Test::new().file("s.toml", simulated);
        let ran = test.run(&["run", "s.toml", "--seed", "1"]).status(0);
        assert!(ran.stdout.contains("suite"), "{}: {}", path.display(), ran.stdout);
        count += 1;
    }
    assert!(count >= 3);
}

fn folder(test: &Test) -> String {
    let entries = test.entries("bigiron-results");
    assert_eq!(entries.len(), 1);
    entries[0].strip_prefix(test.dir()).unwrap().display().to_string()
}
