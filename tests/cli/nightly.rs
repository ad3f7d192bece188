//! Nights on the scripted host: the grid, a kill and what follows it, a kernel that crashes in one workload, the previous night, the history;
//! and kernels that change after a night has begun.

use std::fs;

use serde_json::Value;

use crate::builder::{Ran, Test};
use crate::kernels::bzimage;
use crate::refusals::machine;

/// A second kernel that is 5 % slower in `micro`; `more` comes before it.
fn script(more: &str) -> String {
    format!("noise = 0.002\n{more}\n[effects.\"debian:6.12\"]\n\"micro.*\" = 1.05\n")
}

fn night(test: &Test, kernels: &[&str], more: &[&str]) -> Ran {
    let args = ["nightly", "--quick", "--sim", "s.toml", "--history", "h"];
    test.run(&args.iter().chain(kernels).chain(more).copied().collect::<Vec<_>>())
}

fn rows(json: &str) -> Vec<Value> {
    let json: Value = serde_json::from_str(json).unwrap();
    json["comparisons"][0]["rows"].as_array().unwrap().clone()
}

#[test]
fn a_night_prints_its_grid_and_is_made_again_from_its_folder() {
    let test = Test::new().file("s.toml", script(""));
    let pair = ["debian:6.1", "debian:6.12"];
    let ran = night(&test, &pair, &["--out", "n"]).status(0);
    let ran = ran.stdout_has("regressed in micro").stderr_has("2 kernels added to the history");
    assert!(ran.stdout.lines().all(|l| l.chars().count() <= 100), "{}", ran.stdout);
    assert_eq!(test.run(&["report", "n"]).status(0).stdout, ran.stdout);
    let again = night(&test, &pair, &["--out", "n"]).status(0).stderr_has("nothing to boot");
    assert_eq!(again.stdout, ran.stdout);
    assert!(!again.stderr.contains("added to the history"), "{}", again.stderr);
    let rows = rows(&fs::read_to_string(test.dir().join("n/report.json")).unwrap());
    let row = |name: &str| rows.iter().find(|r| r["row"] == name).unwrap_or_else(|| panic!("no row {name}"));
    let (micro, dbsim) = (row("micro"), row("dbsim"));
    assert_eq!((&micro["outcome"], &micro["verdict"]), (&"Pass".into(), &"worse".into()));
    assert!(micro["regressions"].as_array().unwrap().iter().any(|m| m["metric"] == "fork-exit"), "{micro}");
    // A bandwidth that grows with everything else is an improvement.
    assert!(micro["improvements"].as_array().unwrap().iter().any(|m| m["metric"] == "copy-memory"), "{micro}");
    assert_eq!((&dbsim["verdict"], dbsim["regressions"].as_array().unwrap().len()), (&"same".into(), 0));
    let page = fs::read_to_string(test.dir().join("n/report.html")).unwrap();
    for row in &rows {
        let link = row["report"].as_str().unwrap();
        assert!(page.contains(&format!("href=\"{link}\"")) && test.dir().join("n").join(link).exists(), "{link}");
    }
    night(&test, &["debian:6.1", "debian:6.13"], &["--out", "n"]).refused("`n` holds another night");
}

#[test]
fn a_night_gates_as_the_reports_of_its_studies_do() {
    let test = Test::new().file("s.toml", script(""));
    let gate = ["--fail-on", "worse"];
    night(&test, &["debian:6.1", "debian:6.12"], &gate).refused("a screening has too few boots");
    let rows_of = ["micro", "dbsim", "fs-clients"];
    let full = ["nightly", "debian:6.1", "debian:6.12", "--sim", "s.toml", "--history", "h", "--out", "n"];
    let full = [&full[..], &rows_of].concat();
    test.run(&[&full[..], &gate].concat()).status(3);
    let rows = rows(&fs::read_to_string(test.dir().join("n/report.json")).unwrap());
    let mut worst = 0;
    for study in test.entries("n").iter().filter(|dir| dir.is_dir()) {
        let dir = study.display().to_string();
        worst = worst.max(test.run(&[&["report", &dir], &gate[..]].concat()).status);
        let json = test.run(&["report", &dir, "--format", "json"]).status(0).stdout;
        let json: Value = serde_json::from_str(&json).unwrap();
        for line in json["comparisons"][0]["lines"].as_array().unwrap().iter().filter(|l| l["primary"] == true) {
            let name = study.file_name().unwrap().to_string_lossy();
            let of_line = |row: &&Value| {
                row["report"].as_str().unwrap().starts_with(&format!("{name}/"))
                    && row["row"].as_str().unwrap().split('.').next() == line["workload"].as_str()
            };
            let row = rows.iter().find(of_line).unwrap_or_else(|| panic!("no row for {line}"));
            assert_eq!(row["verdict"], line["verdict"], "{row} {line}");
        }
    }
    assert_eq!(worst, 3);
    assert_eq!(test.run(&[&["report", "n"], &gate[..]].concat()).status, 3);
}

#[test]
fn a_night_that_had_to_stop_goes_on_where_it_was() {
    let fatal = "[[incidents]]\nwhat = \"fatal\"\nslot = 5\n";
    let test = Test::new().file("s.toml", script(fatal));
    let pair = ["debian:6.1", "debian:6.12"];
    night(&test, &pair, &["--jobs", "1"]).status(1);
    let folder = test.entries("bigiron-results").pop().unwrap();
    let study = format!("{}/ext4", folder.strip_prefix(test.dir()).unwrap().display());
    let kept = test.records(&study);
    assert_eq!(kept.len(), 5);
    assert!(!test.dir().join("h").exists(), "an unfinished night is not history");
    let test = test.file("s.toml", script(""));
    let resumed = night(&test, &pair, &["--jobs", "1"]).status(0).stderr_has("Resuming");
    assert!(kept.iter().all(|(slot, values)| test.records(&study)[slot] == *values));
    assert_eq!(test.entries("bigiron-results").len(), 1);
    let undisturbed = Test::new().file("s.toml", script(""));
    assert_eq!(night(&undisturbed, &pair, &[]).status(0).stdout, resumed.stdout);
    // Asked once more, it is another night.
    night(&test, &pair, &[]).status(0);
    assert_eq!(test.entries("bigiron-results").len(), 2);
}

/// A full night in `n`, of `dbsim` and `fs-clients` in two groups, in which the second kernel is faster by `factor`.
fn full_night(factor: f64, more: &str) -> (Test, Ran) {
    let script = format!("noise = 0.002\n{more}[effects.\"debian:6.12\"]\n\"*\" = {factor}\n");
    let test = Test::new().file("s.toml", script);
    let words = ["nightly", "debian:6.1", "debian:6.12", "dbsim", "fs-clients", "--fail-on", "worse"];
    let ran = test.run(&[&words[..], &["--sim", "s.toml", "--history", "h", "--out", "n"]].concat());
    (test, ran)
}

/// Removes a study of the night, as if the night had been killed before it began.
fn forget(test: &Test, study: &str) {
    fs::remove_dir_all(test.dir().join("n").join(study)).unwrap();
}

/// The night's report as a gate reads it.
fn gate(test: &Test) -> Ran {
    test.run(&["report", "n", "--fail-on", "worse"])
}

#[test]
fn an_unfinished_night_passes_no_gate() {
    let (test, whole) = full_night(1.1, "");
    whole.status(0).stdout_has("debian:6.12 against debian:6.1: better: improved in");
    forget(&test, "xfs");
    gate(&test).status(5).stdout_has(
        "debian:6.12 against debian:6.1: unfinished: improved in dbsim and fs-clients.ext4; \
        unfinished are fs-clients.xfs",
    );
    let json = test.run(&["report", "n", "--format", "json"]).status(0).stdout;
    let row = rows(&json).into_iter().find(|r| r["row"] == "fs-clients.xfs").unwrap();
    assert_eq!((&row["outcome"], &row["verdict"], &row["report"]), (&"unfinished".into(), &Value::Null, &Value::Null));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["verdict"], &json["comparisons"][0]["verdict"]), (&Value::Null, &Value::Null));
    let page = test.run(&["report", "n", "--format", "html"]).status(0).stdout;
    assert!(page.contains("answer unfinished") && !page.contains("xfs/report.html"), "{page}");
    test.run(&["site", "n", "--out", "site"]).status(0);
    let index = fs::read_to_string(test.dir().join("site/index.html")).unwrap();
    assert!(index.contains("chip unfinished") && !index.contains("chip better"), "{index}");
    forget(&test, "ext4");
    gate(&test).status(5).stdout_has("unfinished are dbsim, fs-clients.ext4 and fs-clients.xfs");
    // Whatever the rest of a night shows, a kernel that is worse stays so.
    let (test, whole) = full_night(0.9, "");
    whole.status(3);
    forget(&test, "xfs");
    gate(&test).status(3).stdout_has("debian:6.12 against debian:6.1: worse: ");
    forget(&test, "ext4");
    gate(&test).status(5);
}

#[test]
fn rows_of_a_shared_boot_that_failed_are_unfinished_until_they_have_run_alone() {
    // The boot completes when it is run again, so that its failure counts against no kernel.
    let once =
        "[[incidents]]\nwhat = \"panic\"\narm = \"debian:6.12\"\nworkload = \"fs-clients\"\npair = 1\nattempt = 0\n";
    let (test, whole) = full_night(1.1, once);
    whole.status(0).stderr_has("running each of these rows alone");
    gate(&test).status(0);
    forget(&test, "alone-dbsim");
    gate(&test).status(5).stdout_has("unfinished are dbsim");
}

#[test]
fn a_finished_night_is_the_answer_of_its_own_build_only() {
    let test = Test::new().file("s.toml", script(""));
    let ask = || night(&test, &["debian:6.1", "debian:6.12"], &["micro", "--out", "n"]);
    ask().status(0);
    let path = test.dir().join("n/night.toml");
    let text = fs::read_to_string(&path).unwrap();
    let of_another = text.replacen("executable = \"", "executable = \"0", 1);
    assert_ne!(of_another, text);
    fs::write(&path, of_another).unwrap();
    ask().refused("The night in `n` was begun by another build of bigiron");
    test.run(&["report", "n"]).status(0);
}

#[test]
fn a_night_whose_kernels_were_replaced_is_neither_resumed_nor_the_answer() {
    let test = machine("7.2.22");
    let ask = ["nightly", "./bzImage", "mine", "micro", "--history", "h", "--out", "n"];
    // This QEMU boots nothing, so the night begins and stays unfinished.
    test.run(&ask).status(1).stderr_has("Parts that did not complete");
    test.run(&ask).status(1).stderr_has("Resuming the study in `n/ext4`");
    let changed = "The kernels of the night in `n` have changed since it began:";
    let test = test.file("bzImage", bzimage("6.1.8-mine"));
    let refused = test.run(&ask).refused(&format!("{changed} `./bzImage`: release 6.1.7-mine → 6.1.8-mine, image "));
    assert!(refused.stderr.contains("`--out DIR`") && !refused.stderr.contains("`mine`"), "{}", refused.stderr);
    let test = test.file("bzImage", bzimage("6.1.7-mine")).file("new", bzimage("6.1.9-mine"));
    test.run(&ask).status(1).stderr_has("Resuming the study in `n/ext4`");
    test.run(&["kernel", "add", "mine", "--image", "new"]).status(0);
    let of_name = format!("{changed} `mine`: release 6.1.7-mine → 6.1.9-mine, image ");
    test.run(&ask).refused(&of_name);
    // Nor is it the answer after its last boot.
    test.edit_plan("n/ext4", |plan| format!("slots = []\n{}", plan.split_once("[[slots]]").unwrap().0));
    test.run(&ask).refused(&of_name);
}

#[test]
fn a_workload_that_crashes_a_kernel_fails_alone() {
    let panic = "[[incidents]]\nwhat = \"panic\"\narm = \"debian:6.12\"\nworkload = \"dbsim\"\npair = 1\n";
    let test = Test::new().file("s.toml", script(panic));
    let args = ["--out", "n", "--format", "json"];
    let ran =
        night(&test, &["debian:6.1", "debian:6.12"], &args).status(0).stderr_has("running each of these rows alone");
    for row in rows(&ran.stdout) {
        let name = row["row"].as_str().unwrap();
        let ran_with_it = name == "dbsim" || name.ends_with(" together");
        assert_eq!(row["outcome"], if ran_with_it { "Fail B" } else { "Pass" }, "{row}");
        assert_eq!(row["a"].is_null(), name.ends_with(" together"), "{row}");
        assert!(!ran_with_it || row["notes"][0].as_str().unwrap().contains("panicked in 1 of 4 boots"), "{row}");
    }
    let history = fs::read_to_string(test.dir().join("h/history.jsonl")).unwrap();
    let last: Value = serde_json::from_str(history.lines().last().unwrap()).unwrap();
    let dbsim = last["entry"]["rows"].as_array().unwrap().iter().find(|r| r["row"] == "dbsim").unwrap();
    assert_eq!((dbsim["failures"].as_array().unwrap().len(), dbsim["boots"].as_array().unwrap().len()), (1, 3));
}

#[test]
fn the_previous_nights_kernel_is_compared_where_that_can_be() {
    let test = Test::new().file("s.toml", script(""));
    let first = night(&test, &["debian:6.1", "debian:6.12"], &["micro"]).status(0);
    assert!(!first.stdout.contains("previous night"), "{}", first.stdout);
    let second = night(&test, &["debian:6.1", "debian:6.13"], &["micro", "--format", "json"]).status(0);
    let nights = test.entries("bigiron-results");
    let of_two = nights.iter().find(|n| n.display().to_string().contains("6.13")).unwrap().display().to_string();
    fs::rename(test.dir().join("h"), test.dir().join("away")).unwrap();
    assert_eq!(test.run(&["report", &of_two, "--format", "json"]).status(0).stdout, second.stdout, "needs no history");
    fs::rename(test.dir().join("away"), test.dir().join("h")).unwrap();
    let json: Value = serde_json::from_str(&second.stdout).unwrap();
    let previous = &json["previous"][0];
    assert_eq!((&previous["kernel"], &previous["previous"]), (&"debian:6.13".into(), &"debian:6.12".into()));
    assert_eq!(previous["rows"][0]["verdict"], "better", "6.12 was slower: {previous}");
    let other = night(&test, &["debian:6.1", "debian:6.14"], &["micro", "--set", "micro.scale=2"]).status(0);
    other.stdout_has("micro not compared: measured differently then: option.scale");
    let other = night(&test, &["debian:6.1", "debian:6.14"], &["micro", "--seed", "2"]).status(0);
    // The newest night ran another scale.
    other.stdout_has("not compared");
}

#[test]
fn the_history_shows_where_a_metric_changed() {
    let slow = |kernel: &str| format!("[effects.\"{kernel}\"]\n\"micro.fork-exit\" = 1.1\n");
    let script = format!("noise = 0.002\n{}{}{}", slow("debian:6.12"), slow("debian:6.18"), slow("debian:7.2"));
    let test = Test::new().file("s.toml", script);
    test.run(&["history", "--history", "h"]).refused("has no history yet");
    night(&test, &["debian:5.10", "debian:6.12", "debian:7.2", "debian:6.18", "debian:6.1"], &["micro"]).status(0);
    let ran = test.run(&["history", "--history", "h"]).status(0);
    let ran = ran.stdout_has("micro.geomean").stdout_has("Between 6.1 and 6.12").stdout_has("micro.fork-exit");
    assert_eq!(ran.stdout.matches("Between").count(), 1, "{}", ran.stdout);
    test.run(&["history", "micro", "--history", "h"]).status(0).stdout_has("5.10 debian:5.10");
    let json = test.run(&["history", "micro.fork-exit", "--history", "h", "--format", "json"]).status(0).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let series = &json["series"][0];
    let versions: Vec<&str> =
        series["kernels"].as_array().unwrap().iter().map(|k| k["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["5.10", "6.1", "6.12", "6.18", "7.2"]);
    let changes = series["change_points"].as_array().unwrap();
    assert_eq!((changes.len(), &changes[0]["verdict"]), (1, &"worse".into()));
    assert!((changes[0]["log"].as_f64().unwrap() - 1.1f64.ln()).abs() < 0.01);
    let page = test.run(&["history", "micro.fork-exit", "--history", "h", "--format", "html"]).status(0).stdout;
    assert!(page.contains("<svg") && page.contains("class=\"change\"") && page.contains("7.2"));
    test.run(&["history", "micro.frok-exit", "--history", "h"]).refused("did you mean `micro.fork-exit`?");
    test.run(&["history", "--history", "h", "--significance", "2"]).refused("is out of range");
}

#[test]
fn what_no_night_can_be_made_of_is_refused_before_anything_boots() {
    let test = Test::new().file("s.toml", "speed = 3\n");
    night(&test, &["debian:6.1", "debian:6.12"], &[]).refused("s.toml:1: unknown field `speed`");
    let test = test.file("s.toml", "");
    for (words, want) in [
        (&["debian:6.1"][..], "a night needs two or more"),
        (&["debian:6.1", "debian:6.12,boot.nosmt"], "a night compares kernels"),
        (&["debian:6.1", "nosuch"], "`nosuch` is neither a kernel nor a workload"),
        (&["debian:6.1", "debian:6.12", "command"], "`command` has no row in a night"),
        (&["debian:6.1", "debian:6.12", "micro", "--set", "dbsim.io=sync"], "has nothing to act on"),
        (&["debian:6.1", "debian:6.12", "--memory", "200M"], "Row `micro`: 200M of memory is too little"),
        (&["debian:6.1", "debian:6.12", "--pairs", "3"], "3 pairs cannot be balanced"),
        (&["debian:6.1", "debian:6.12", "--pairs", "2"], "too few for any verdict"),
    ] {
        night(&test, words, &[]).refused(want);
    }
    assert!(test.entries("bigiron-results").is_empty() && !test.dir().join("h").exists());
}
