//! Bisections on the scripted host: a planted change, none, several; a kernel that fails, a kill and what follows it; what is refused.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::builder::{Ran, Test};
use crate::kernels::bzimage;
use crate::refusals::machine;

const KERNELS: [&str; 9] = [
    "debian:6.1",
    "debian:6.2",
    "debian:6.3",
    "debian:6.4",
    "debian:6.5",
    "debian:6.6",
    "debian:6.7",
    "debian:6.8",
    "debian:6.9",
];

/// Every kernel's factor on `micro.fork-exit`; `more` comes before.
fn script(more: &str, noise: f64, factor: impl Fn(usize) -> f64) -> String {
    let mut text = format!("noise = {noise}\n{more}\n");
    for (index, kernel) in KERNELS.iter().enumerate() {
        let _ = writeln!(text, "[effects.\"{kernel}\"]\n\"micro.fork-exit\" = {}", factor(index));
    }
    text
}

fn step_at(change: usize) -> impl Fn(usize) -> f64 {
    move |kernel| if kernel < change { 1.0 } else { 1.05 }
}

fn bisect(test: &Test, more: &[&str]) -> Ran {
    let list = KERNELS.join(",");
    let args = ["bisect", "--kernels", &list, "micro:fork-exit", "--sim", "s.toml", "--clock", "exact"];
    test.run(&args.iter().chain(more).copied().collect::<Vec<_>>())
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout))
}

/// What the table says, without the day.
fn body(ran: &Ran) -> String {
    ran.stdout.split_once('\n').unwrap().1.replace(" --out b", "")
}

#[test]
fn a_planted_change_is_found_and_the_error_kept() {
    let (mut wrong, mut boots) = (0, 0);
    for seed in 0..20 {
        let change = 1 + seed % 8;
        let test = Test::new().file("s.toml", script("", 0.01, step_at(change)));
        let found = json(&bisect(&test, &["--seed", &seed.to_string(), "--format", "json"]).status(0));
        assert!(found["outcome"].as_str().unwrap().starts_with("found"), "seed {seed}: {found}");
        assert!(found["place"]["probability"].as_f64().unwrap() >= 0.95, "{found}");
        wrong += usize::from(found["place"]["bad"] != KERNELS[change]);
        boots += found["boots"].as_u64().unwrap();
    }
    // One in twenty is what was put up with.
    assert!(wrong <= 2, "{wrong} of 20 are wrong");
    assert!(boots / 20 < 60, "{boots} boots");
}

#[test]
fn the_report_says_where_and_what_next_and_is_made_again() {
    let test = Test::new().file("s.toml", script("", 0.002, step_at(6)));
    let ran = bisect(&test, &["--seed", "7", "--out", "b"]).status(0);
    let ran = ran
        .stdout_has("lies between `debian:6.6` and `debian:6.7`")
        .stdout_has("► debian:6.7")
        .stdout_has("bigiron compare debian:6.6 debian:6.7 micro --clock exact/2 --seed 7")
        .stderr_has("Test 1: `debian:6.5`")
        .stderr_has("Test 3: ");
    assert!(ran.stdout.lines().all(|l| l.chars().count() <= 130), "{}", ran.stdout);
    assert_eq!(test.run(&["report", "b"]).status(0).stdout, ran.stdout);
    assert_eq!(fs::read_to_string(test.dir().join("b/report.txt")).unwrap(), ran.stdout);
    let again = bisect(&test, &["--seed", "7", "--out", "b"]).status(0).stderr_has("nothing to boot");
    assert_eq!(again.stdout, ran.stdout);
    // Only what is asked for is measured.
    let plan = fs::read_to_string(test.dir().join("b/ends/plan.toml")).unwrap();
    assert!(plan.contains("only = \"fork-exit\""), "{plan}");
    bisect(&test, &["--seed", "8", "--out", "b"]).refused("`b` holds another bisection");
    test.run(&["report", "b", "--format", "csv"]).refused("text or JSON");
    test.run(&["report", "b/step-01", "--format", "csv"]).status(0);
    // A change to the better is found as well.
    let test = Test::new().file("s.toml", script("", 0.002, |kernel| if kernel < 2 { 1.0 } else { 0.9 }));
    bisect(&test, &["--seed", "7"]).status(0).stdout_has("lies between `debian:6.2` and `debian:6.3`");
}

#[test]
fn a_bisection_that_had_to_stop_goes_on_where_it_was() {
    let undisturbed = Test::new().file("s.toml", script("", 0.004, step_at(3)));
    let whole = bisect(&undisturbed, &["--seed", "5", "--out", "b"]).status(0);
    // The host fails for good in the ends.
    let fatal = "[[incidents]]\nwhat = \"fatal\"\nslot = 9\n";
    let test = Test::new().file("s.toml", script(fatal, 0.004, step_at(3)));
    bisect(&test, &["--seed", "5", "--out", "b", "--jobs", "1"]).status(1);
    let kept = test.records("b/ends");
    assert_eq!(kept.len(), 9);
    test.run(&["report", "b"]).status(0).stdout_has("Unfinished");
    // Then the first test never ends, and the whole is killed in it.
    let stall = "[[incidents]]\nwhat = \"stall\"\narm = \"debian:6.5\"\n";
    let test = test.file("s.toml", script(stall, 0.004, step_at(3)));
    let list = KERNELS.join(",");
    let args = ["bisect", "--kernels", &list, "micro:fork-exit", "--sim", "s.toml", "--clock", "exact", "--seed", "5"];
    let mut child = test.start(&args.iter().chain(&["--out", "b"]).copied().collect::<Vec<_>>());
    while !test.dir().join("b/step-01/plan.toml").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let test = test.file("s.toml", script("", 0.004, step_at(3)));
    let resumed = bisect(&test, &["--seed", "5", "--out", "b"]).status(0).stderr_has("Resuming");
    assert_eq!(body(&resumed), body(&whole));
    assert!(kept.iter().all(|(slot, values)| test.records("b/ends")[slot] == *values));
    assert_eq!(test.records("b/step-02"), undisturbed.records("b/step-02"));
}

#[test]
fn a_finished_bisection_is_the_answer_of_its_own_build_only() {
    let test = Test::new().file("s.toml", script("", 0.002, |_| 1.0));
    bisect(&test, &["--seed", "7", "--out", "b"]).status(0);
    let path = test.dir().join("b/bisect.toml");
    let text = fs::read_to_string(&path).unwrap();
    let of_another = text.replacen("executable = \"", "executable = \"0", 1);
    assert_ne!(of_another, text);
    fs::write(&path, of_another).unwrap();
    bisect(&test, &["--seed", "7", "--out", "b"]).refused("The bisection in `b` was begun by another build of bigiron");
    test.run(&["report", "b"]).status(0);
}

#[test]
fn a_bisection_whose_kernels_were_replaced_is_not_resumed() {
    let test = machine("7.2.22").file("new", bzimage("6.1.8-mine"));
    let what = ["bisect", "--kernels", "./bzImage,mine", "micro:fork-exit", "--clock", "exact"];
    let ask = [&what[..], &["--seed", "7", "--out", "b"]].concat();
    // This QEMU boots nothing, so the search begins and stays unfinished.
    assert_ne!(test.run(&ask).status, 0);
    test.run(&ask).stderr_has("Resuming the study in `b/ends`");
    test.run(&["kernel", "add", "mine", "--image", "new"]).status(0);
    test.run(&ask).refused(
        "The kernels of the bisection in `b` have changed since it began: `mine`: release 6.1.7-mine → 6.1.8-mine, image ",
    );
}

#[test]
fn no_difference_is_nothing_to_bisect() {
    let test = Test::new().file("s.toml", script("", 0.002, |_| 1.0));
    let ran = bisect(&test, &["--seed", "7", "--out", "b"]).status(0).stdout_has("Nothing to bisect");
    assert!(ran.stdout.contains("same") && !test.dir().join("b/step-01").exists(), "{}", ran.stdout);
    let found = json(&test.run(&["report", "b", "--format", "json"]).status(0));
    assert_eq!((&found["outcome"], found["place"].is_null()), (&"no-difference".into(), true));
    let test = test.file("s.toml", script("", 0.05, step_at(4)));
    let unsure = bisect(&test, &["--seed", "7", "--out", "d"]).status(0).stdout_has("not settled");
    assert!(unsure.stdout.contains("inconclusive") && unsure.stdout.contains("--pairs N"), "{}", unsure.stdout);
    let panic = "[[incidents]]\nwhat = \"panic\"\narm = \"debian:6.9\"\n";
    let test = test.file("s.toml", script(panic, 0.002, step_at(4)));
    bisect(&test, &["--seed", "7", "--out", "c"])
        .status(0)
        .stdout_has("was not measured on both ends: `debian:6.9` panicked");
}

#[test]
fn a_kernel_that_fails_is_skipped_and_the_place_a_range() {
    let panic = "[[incidents]]\nwhat = \"panic\"\narm = \"debian:6.5\"\n";
    let test = Test::new().file("s.toml", script(panic, 0.002, step_at(4)));
    let ran = bisect(&test, &["--seed", "7"]).status(0);
    let ran = ran
        .stdout_has("lies between `debian:6.4` and `debian:6.6`")
        .stdout_has("one of 2 places: `debian:6.5` could not");
    ran.stdout_has("`debian:6.5` panicked in 2 of 2 boots");
}

#[test]
fn two_changes_are_said_to_be_two() {
    let levels = |kernel: usize| [1.0, 1.0, 1.0, 1.05, 1.05, 1.05, 1.1025, 1.1025, 1.1025][kernel];
    let test = Test::new().file("s.toml", script("", 0.001, levels));
    let ran = bisect(&test, &["--seed", "7"])
        .status(0)
        .stdout_has("More than one change")
        .stdout_has("`debian:6.5` at +4.97 %");
    ran.stdout_has("bigiron bisect --kernels debian:6.1,debian:6.2,debian:6.3,debian:6.4,debian:6.5");
    // A small one beside a large one does not hide it.
    let levels = |kernel: usize| [1.0, 1.0, 1.0, 1.0, 1.01, 1.01, 1.1, 1.1, 1.1][kernel];
    let test = Test::new().file("s.toml", script("", 0.001, levels));
    bisect(&test, &["--seed", "7"]).status(0).stdout_has("lies between `debian:6.6` and `debian:6.7`");
}

#[test]
fn the_lever_that_makes_it_is_found() {
    let arm = "debian:6.12,boot.mitigations=off,boot.nosmt,boot.preempt=full";
    let faster = |name: &str| format!("[effects.\"{name}\"]\n\"micro.*\" = 0.8\n");
    let levers = |script: String| {
        let test = Test::new().file("s.toml", format!("noise = 0.002\n{}{script}", faster(arm)));
        let args = ["bisect", "levers", "debian:6.12", arm, "micro:null-call", "--sim", "s.toml", "--seed", "7"];
        test.run(&args).status(0)
    };
    let one = levers(faster("boot.preempt=full"));
    one.stdout_has("`boot.preempt=full` (100 % of it) causes the difference")
        .stdout_has("bigiron compare debian:6.12 debian:6.12,boot.preempt=full");
    let two = levers(faster("boot.mitigations=off + boot.preempt=full"));
    two.stdout_has("`boot.mitigations=off` and `boot.preempt=full` together cause the difference");
    levers(String::new()).stdout_has("several act together");
}

#[test]
fn what_cannot_be_bisected_is_refused_before_anything_boots() {
    let test = Test::new().file("s.toml", "");
    let list = KERNELS.join(",");
    let of = |args: &[&str]| test.run(&[&["bisect"], args, &["--sim", "s.toml"]].concat());
    of(&["--kernels", &list, "micro:frok-exit"]).refused("did you mean `micro:fork-exit`?");
    of(&["--kernels", &list, "micro:tps"]).refused("`micro` has no metric `tps`; it has `geomean`");
    of(&["--kernels", &list, "mirco:fork"]).refused("`mirco` is not a workload; did you mean `micro`?");
    of(&["--kernels", &list, "micro", "--clock", "none"]).refused("measures nothing");
    of(&["--kernels", &list, "micro", "--error", "0.7"]).refused("--error: 0.7 is out of range");
    of(&["--kernels", &list, "micro", "--pairs-per-step", "3"]).refused("--pairs-per-step: 3 pairs cannot be balanced");
    of(&["--kernels", &list, "micro", "--pairs", "6"]).refused("6 pairs are too few for any verdict");
    of(&["--kernels", "debian:6.1", "micro"]).refused("Fewer than two kernels");
    of(&["--kernels", "boot.nosmt,debian:6.1", "micro"]).refused("`--kernels` begins with `boot.nosmt`");
    of(&["--kernels", "debian:6.1,debian:6.2,bot.nosmt", "micro"]).refused("Unknown lever `bot.nosmt`");
    of(&["--good", "debian:6.1", "--bad", "debian:6.1", "micro"]).refused("Good and bad are the same");
    of(&["--good", "running", "--bad", "debian:6.1", "micro"]).refused("`running` is not in an archive");
    of(&["--good", "6.1", "--bad", "debian:6.1", "micro"]).refused("`6.1` is not a kernel");
    of(&["--good", "debian:6.1", "micro"]).refused("--bad");
    of(&["--good", "debian:6.1/amd64", "--bad", "debian:6.12", "micro"]).refused("Good is of flavour `amd64`");
    of(&["--good", "debian:6.1,boot.nosmt", "--bad", "debian:6.12", "micro"]).refused("different levers");
    of(&["levers", "debian:6.1", "debian:6.1", "micro"]).refused("the same levers");
    of(&["levers", "debian:6.1", "debian:6.1,boot.nosmt", "micro"]).refused("in only one lever");
    of(&["levers", "debian:6.1", "debian:6.12,boot.nosmt", "micro"]).refused("Two kernels");
    assert!(test.entries("bigiron-results").is_empty());
}
