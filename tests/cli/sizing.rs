//! `--budget` and `--precision`: how many pairs are chosen, from what, and what is refused; and the noise card that a machine is offered.

use crate::builder::Test;

/// A study of two simulated kernels on the wall clock, whose trials take 100 ms; `design` is more of its table.
fn study(design: &str) -> String {
    format!(
        "arms = [\"debian:6.1\", \"debian:6.12\"]\nworkloads = [\"micro\"]\n\n[design]\nseed = 7\nclock = \"wall\"\nidle-gap = 0\n{design}\n\n\
         [machine]\nhost = \"sim\"\n\n[sim]\nnoise = 0.005\ndelay-ms = 100\n"
    )
}

#[test]
fn a_budget_chooses_as_many_pairs_as_fit() {
    let test = Test::new().file("first.toml", study("pairs = 8")).file("s.toml", study("budget = \"3190ms\""));
    test.run(&["run", "s.toml"])
        .refused("How long a trial of this work takes here is not known")
        .stderr_has("`--pairs N`");
    test.run(&["run", "first.toml", "--out", "first"]).status(0);
    test.run(&["run", "s.toml", "--budget", "1s"])
        .refused(
            "A budget of 1 second is too small: 8 pairs are the fewest that allow a verdict, and take about 2 seconds",
        )
        .stderr_has("Use `--budget 1m` or more");
    let ran = test.run(&["run", "s.toml", "--out", "out", "--full"]).status(0);
    let ran = ran.stderr_has("A budget of 3 seconds: 14 pairs, 28 trials in about 3 seconds; smallest detectable effect expected micro geomean 0.");
    let ran = ran
        .stderr_has("from earlier studies of the same work here")
        .stdout_has("bigiron run s.toml --seed 7 --pairs 14");
    assert_eq!(test.records("out").len(), 28);
    // What the study itself has shown does not change its pairs.
    let again = test.run(&["run", "s.toml", "--out", "out", "--full"]).status(0);
    let again = again.stderr_has("A study of this question has 14 pairs already").stderr_has("nothing to boot");
    assert_eq!(again.stdout, ran.stdout);
    test.run(&["run", "s.toml", "--seed", "7", "--pairs", "14", "--out", "out"])
        .status(0)
        .stderr_has("nothing to boot");
}

#[test]
fn a_budget_counts_that_machines_work_side_by_side() {
    let on_three = |design| study(design).replace("[sim]", "[sim]\nmachines = 3");
    let test = Test::new().file("first.toml", on_three("pairs = 12")).file("s.toml", on_three("budget = \"1500ms\""));
    test.run(&["run", "first.toml", "--out", "first"]).status(0);
    // Three times 12 trials of 100 ms; the next balanced number is three times 16.
    test.run(&["run", "s.toml", "--out", "out"]).status(0).stderr_has(": 18 pairs, 36 trials in about ");
    assert_eq!(test.records("out").len(), 36);
}

#[test]
fn a_precision_chooses_as_many_pairs_as_it_needs() {
    let test = Test::new().file("first.toml", study("pairs = 8")).file("s.toml", study("precision = 0.4"));
    test.run(&["run", "s.toml"]).refused("How far pairs of this work vary here is not known");
    test.run(&["run", "first.toml", "--out", "first"]).status(0);
    test.run(&["run", "s.toml", "--precision", "0.001%"])
        .refused("A precision of 0.00 % would need more than 1000 pairs: pairs of micro geomean vary by 0.")
        .stderr_has("1000 pairs reach about 0.0");
    let ran = test.run(&["run", "s.toml", "--out", "out"]).status(0);
    let said =
        ran.stderr_has("A precision of 0.40 %: ").stderr_has(" pairs, whose intervals are expected within ±0.").stderr;
    let pairs: usize =
        said.split("A precision of 0.40 %: ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((8..=40).contains(&pairs), "{said}");
    assert_eq!(test.records("out").len(), 2 * pairs);
}

#[test]
fn a_study_is_sized_in_one_way() {
    let both = "pairs = 8\nbudget = \"2h\"";
    let test = Test::new()
        .file("both.toml", study(both))
        .file("two.toml", study("budget = \"2h\"\nprecision = 1"))
        .file("odd.toml", study("budget = 2"));
    test.run(&["run", "both.toml"])
        .refused("both.toml:9: A budget chooses the number of pairs, and a number of pairs is given too")
        .stderr_has("Leave one of them out");
    test.run(&["run", "two.toml"]).refused("two.toml:8: A budget and a precision both choose the number of pairs");
    test.run(&["run", "odd.toml"]).refused("odd.toml:8: `budget` must be a string");
    let compare = |more: &[&str]| {
        let words: Vec<&str> =
            ["compare", "--on", "local", "running", "running", "micro"].iter().chain(more).copied().collect();
        test.run(&words)
    };
    compare(&["--quick", "--precision", "1%"])
        .refused("A screening has four pairs; a precision chooses another number");
    compare(&["--rebuilds", "8", "--budget", "2h"]).refused("rebuil");
    compare(&["--budget", "soon"]).refused("`soon` is no budget; write a time such as `45m` or `2h`");
    compare(&["--precision", "99"]).refused("`99` is no precision; write a number of per cent such as `1%`");
    compare(&["--budget", "2h"])
        .refused("How long a trial of this work takes here is not known")
        .stderr_has("`bigiron selftest --aa running micro --pairs 8 --on local` measures it");
}

#[test]
fn the_noise_card_stands_in_the_report() {
    let card = "bigiron = \"0.1.0\"\nkernel = \"6.12.1\"\nclock = \"wall\"\npairs = 12\nseed = 1\nrepeated = false\n\n\
         [machine]\nhost = \"sim\"\ncpus = 1\nmemory_bytes = 1073741824\nstorage = \"host-file\"\nfilesystem = \"ext4\"\n\n\
         [gate]\npassed = true\nreasons = []\n\n\
         [[gate.noise]]\nworkload = \"micro\"\nmetric = \"geomean\"\nprimary = true\nchange-percent = 0.1\nsd-percent = 2.0\n";
    let test = Test::new().file("s.toml", study("pairs = 12")).file("cache/noise/card.toml", card);
    let ran = test.run(&["run", "s.toml", "--out", "out", "--full"]).status(0);
    // 0.90 times the spread in 12 pairs.
    ran.stdout_has("By its noise card (Linux 6.12.1 against itself, 12 pairs), this machine cannot show less than 1.8 % in micro geomean in 12 pairs");
    test.run(&["run", "s.toml", "--precision", "1.2%", "--out", "by-card"])
        .status(0)
        .stderr_has("from earlier studies of the same work here");
    // Without an earlier study, the card tells.
    let test = Test::new().file("s.toml", study("pairs = 12")).file("cache/noise/card.toml", card);
    let ran = test.run(&["run", "s.toml", "--precision", "1.2%", "--out", "by-card"]).status(0);
    ran.stderr_has("A precision of 1.20 %: 14 pairs").stderr_has("(from the noise card)");
}

#[test]
fn a_machine_without_a_noise_card_is_offered_one() {
    let test = Test::new();
    let small = ["--set", "micro.only=null-call", "--set", "micro.scale=0.01", "--idle-gap", "0"];
    let here = [
        &["compare", "--on", "local", "running", "running,micro.scale=0.02", "micro", "--pairs", "8", "--why", "0"][..],
        &small,
    ]
    .concat();
    test.run(&here).status(0).stderr_has(
        "This machine has no noise card, so what it cannot show is not known; `bigiron selftest --aa running micro --set micro.only=null-call \
         --set micro.scale=0.01 --pairs 8 --on local` makes one with 16 trials",
    );
    // Its check may fail on a busy machine: it is a card all the same.
    test.run(&[&["selftest", "--aa", "--on", "local", "micro", "--pairs", "8"][..], &small].concat())
        .stderr_has("Noise card: ");
    let ran = test.run(&[&here[..], &["--fresh", "--full"]].concat()).status(0);
    assert!(!ran.stderr.contains("no noise card"), "{}", ran.stderr);
    ran.stdout_has("this machine cannot show less than ");
}
