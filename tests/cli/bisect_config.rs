//! Searches among the configurations of a small tree whose Makefile stands for Kconfig: on the scripted host, where nothing is built, and what is refused
//! before anything is.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::builder::{Ran, Test};

/// Stands for Kconfig: an option that depends on another (`needs`: `CHILD PARENT`) is left out where that is not set.
const MAKEFILE: &str = "\
tinyconfig:\n\tprintf 'CONFIG_TINY=y\\n' > $(O)/.config\n\
brokenconfig:\n\t@echo '*** no such thing' >&2; exit 1\n\
olddefconfig:\n\
\t@awk -f order.awk $(O)/.config > $(O)/.new && mv $(O)/.new $(O)/.config\n\
bzImage:\n\t@echo '*** nothing is built here' >&2; exit 1\n";

/// The last value of each option, in the order of the names in `Kconfig`; what is not named there comes last.
const ORDER: &str = r##"
/^CONFIG_/ { split($0, part, "="); name = substr(part[1], 8); value[name] = substr($0, length(part[1]) + 2); note(name) }
/^# CONFIG_.* is not set$/ { name = substr($2, 8); value[name] = "n"; note(name) }
function note(name) { if (!(name in seen)) { seen[name] = 1; order[++count] = name } }
function show(name) {
    if (!(name in value) || name in shown) return
    shown[name] = 1
    if (name in parent && value[parent[name]] != "y") return
    if (value[name] == "n") print "# CONFIG_" name " is not set"; else print "CONFIG_" name "=" value[name]
}
END {
    while ((getline line < "Kconfig") > 0) {
        split(line, word, " ")
        if (word[1] == "config") { last = word[2]; known[++all] = last }
        if (word[1] == "depends") parent[last] = word[3]
    }
    for (i = 1; i <= all; i++) show(known[i])
    for (i = 1; i <= count; i++) show(order[i])
}
"##;

const KCONFIG: &str = "\
config TINY
\tbool \"Tiny\"
config OLD
\tbool \"Old\"
config DEBUG
\tbool \"Look for mistakes\"
config DEBUG_LISTS
\tbool \"Look for mistakes in lists\"
\tdepends on DEBUG
config DEBUG_SIZE
\tint \"How closely\"
\tdepends on DEBUG
config FAST
\tbool \"Fast\"
config CLEAR
\tbool \"Clear memory as it is freed\"
config SHIFT
\tint \"Size\"
";

const GOOD: &str =
    "CONFIG_TINY=y\nCONFIG_OLD=y\n# CONFIG_DEBUG is not set\n# CONFIG_CLEAR is not set\nCONFIG_SHIFT=14\n";
const BAD: &str = "# comment\nCONFIG_TINY=y\n# CONFIG_OLD is not set\nCONFIG_DEBUG=y\nCONFIG_DEBUG_LISTS=y\nCONFIG_DEBUG_SIZE=3\n\
    CONFIG_FAST=y\nCONFIG_CLEAR=y\nCONFIG_SHIFT=17\n";

/// In the chain: OLD, DEBUG (with DEBUG_SIZE), DEBUG_LISTS, FAST, CLEAR, SHIFT.
const LINKS: [&str; 7] = ["good", "good+1", "good+2", "good+3", "good+4", "good+5", "bad"];

fn git(test: &Test, args: &[&str]) -> String {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GIT_")) {
        command.env_remove(name);
    }
    let fixed = ["-C", "linux", "-c", "user.name=Ada", "-c", "user.email=ada@b.test", "-c", "commit.gpgsign=false"];
    let output = command.args(fixed).args(args).current_dir(test.dir()).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A run's folder with the repository `linux`, `good.config`, `bad.config` and this script.
fn place(script: &str) -> Test {
    let test = Test::new()
        .file("linux/Makefile", MAKEFILE)
        .file("linux/order.awk", ORDER)
        .file("linux/Kconfig", KCONFIG)
        .file("linux/arch/x86/Makefile", "")
        .file("good.config", GOOD)
        .file("bad.config", BAD)
        .file("s.toml", script);
    git(&test, &["init", "-q", "-b", "main", "."]);
    git(&test, &["add", "-A"]);
    git(&test, &["commit", "-q", "-m", "the tree"]);
    test
}

/// A script with these factors on `micro.fork-exit`.
fn script(more: &str, factors: &[(&str, f64)]) -> String {
    let mut text = format!("noise = 0.002\n{more}\n");
    for (name, factor) in factors {
        let _ = writeln!(text, "[effects.\"{name}\"]\n\"micro.fork-exit\" = {factor}");
    }
    text
}

/// The same, 5 % from the link `first` on.
fn from(first: usize) -> String {
    script("", &LINKS[first..].iter().map(|name| (*name, 1.05)).collect::<Vec<_>>())
}

fn bisect(test: &Test, more: &[&str]) -> Ran {
    let what =
        ["bisect", "config", "--git", "linux", "--good", "good.config", "--bad", "bad.config", "micro:fork-exit"];
    let how = ["--sim", "s.toml", "--clock", "exact", "--seed", "7"];
    test.run(&[&what[..], &how, more].concat())
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout))
}

#[test]
fn the_option_is_named_with_where_it_is_defined() {
    let test = place(&from(5));
    let head = git(&test, &["rev-parse", "HEAD"]);
    let ran = bisect(&test, &["--out", "b"]).status(0);
    let ran = ran
        .stdout_has("is caused by `CONFIG_CLEAR=y`")
        .stdout_has("value    y, was not set")
        .stdout_has("asks     Clear memory as it is freed")
        .stdout_has("defined  Kconfig:15")
        .stdout_has("diff b/builds/good+4.config b/builds/good+5.config")
        .stdout_has("from `good.config` to `bad.config`");
    assert!(ran.stdout.lines().all(|l| l.chars().count() <= 130), "{}", ran.stdout);
    assert_eq!(test.run(&["report", "b"]).status(0).stdout, ran.stdout);
    let found = json(&test.run(&["report", "b", "--format", "json"]).status(0));
    assert_eq!((&found["what"], &found["source"]["commit"]), (&"configs".into(), &head.as_str().into()));
    let option = &found["switched"]["options"][0];
    assert_eq!((&option["option"], &option["from"], &option["to"]), (&"CLEAR".into(), &"n".into(), &"y".into()));
    let names: Vec<&str> = found["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, LINKS);
    bisect(&test, &["--out", "b"]).status(0).stderr_has("nothing to boot");
    // The tree is as it was, and nothing was left in the cache.
    assert_eq!(git(&test, &["status", "--porcelain"]), "");
    assert!(test.entries("cache/git").is_empty());
    // Other configurations are another question.
    fs::write(test.dir().join("good.config"), "CONFIG_TINY=y\n").unwrap();
    bisect(&test, &["--out", "b"]).refused("`b` holds another bisection");
}

#[test]
fn an_option_comes_before_what_depends_on_it_and_takes_along_what_cannot_be_switched() {
    let test = place(&from(2));
    let found = json(&bisect(&test, &["--format", "json", "--out", "b"]).status(0));
    assert!(found["text"][0].as_str().unwrap().contains("`CONFIG_DEBUG=y`"), "{found}");
    let options = found["switched"]["options"].as_array().unwrap();
    let seen: Vec<_> =
        options.iter().map(|o| (o["option"].as_str().unwrap(), o["switched"].as_bool().unwrap())).collect();
    assert_eq!(seen, [("DEBUG", true), ("DEBUG_SIZE", false)]);
    test.run(&["report", "b"]).status(0).stdout_has("with it  CONFIG_DEBUG_SIZE=3 (was not set)");
    let text = fs::read_to_string(test.dir().join("b/builds/good+2.config")).unwrap();
    assert!(text.contains("CONFIG_DEBUG=y\n# CONFIG_DEBUG_LISTS is not set\nCONFIG_DEBUG_SIZE=3\n"), "{text}");
    // A target of the tree is an end as well.
    let ends = ["bisect", "config", "--git", "linux", "--good", "tinyconfig", "--bad", "bad.config", "micro:fork-exit"];
    let ran = test.run(&[&ends[..], &["--sim", "s.toml", "--clock", "exact", "--at", "main"]].concat()).status(0);
    ran.stdout_has("from `make tinyconfig` to `bad.config`").stdout_has("--at main");
}

#[test]
fn several_changes_a_failing_link_and_exit_codes() {
    let parts = [("good+2", 1.05), ("good+3", 1.05), ("good+4", 1.05), ("good+5", 1.1), ("bad", 1.1)];
    let test = place(&script("", &parts));
    let ran = bisect(&test, &["--out", "b"]).status(0).stdout_has("More than one change");
    let text = ran.stdout.replace(" \\\n    ", " ");
    let next = text.lines().find(|l| l.contains("bisect config --git linux --at")).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = next.split_whitespace().skip(1).collect();
    assert!(next.contains("--good b/builds/good.config --bad b/builds/good+"), "{next}");
    // What it prints is a search of that part.
    let part = [&words[..], &["--sim", "s.toml"]].concat();
    test.run(&part).status(0).stderr_has("differences one by one");
    let again = |more: &[&str]| test.run(&[&["report", "b"], more].concat());
    again(&["--fail-on", "worse"]).status(3);

    let panic = "[[incidents]]\nwhat = \"panic\"\narm = \"good+5\"\n";
    let test = test.file("s.toml", script(panic, &[("good+5", 1.05), ("bad", 1.05)]));
    let ran = bisect(&test, &["--out", "p"]).status(0).stdout_has("It is one of 2 places");
    ran.stdout_has("panicked in 2 of 2 boots").stdout_has("lies between `good+4` and `bad`");
    let test = test.file("s.toml", script("", &[]));
    bisect(&test, &["--out", "n", "--fail-on", "worse", "--fail-on", "inconclusive"])
        .status(0)
        .stdout_has("Nothing to bisect");
}

#[test]
fn one_that_was_killed_goes_on() {
    let test = place(&from(4));
    let whole = bisect(&test, &["--out", "whole"]).status(0).stdout;
    // One of its trials lasts for ever, so that it does not end by itself.
    let endless = format!("{}[[incidents]]\nwhat = \"stall\"\nslot = 9\n", from(4));
    let test = test.file("s.toml", endless);
    let what =
        ["bisect", "config", "--git", "linux", "--good", "good.config", "--bad", "bad.config", "micro:fork-exit"];
    let how = ["--sim", "s.toml", "--clock", "exact", "--seed", "7", "--out", "b"];
    let mut child = test.start(&[&what[..], &how].concat());
    while !test.dir().join("b/ends/records.jsonl").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let test = test.file("s.toml", from(4));
    let ran = bisect(&test, &["--out", "b"]).status(0);
    // The same kernels were tested, and the same is said of them.
    let told = |text: &str| -> Vec<String> {
        text.lines().filter(|l| l.contains(" good") || l.contains("is caused by")).map(str::to_owned).collect()
    };
    assert_eq!(told(&ran.stdout.replace("b/builds", "whole/builds")), told(&whole));
    assert!(test.entries("cache/git").is_empty());
}

#[test]
fn many_differences_are_laid_out_when_their_turn_comes() {
    let config = |value: &str| (0..70).map(|n| format!("CONFIG_X{n:02}={value}\n")).collect::<String>();
    let slow: Vec<String> = (40..70).map(|n| format!("good+{n}")).chain(["bad".to_owned()]).collect();
    let factors: Vec<(&str, f64)> = slow.iter().map(|name| (name.as_str(), 1.05)).collect();
    let test = place(&script("", &factors)).file("good.config", config("n")).file("bad.config", config("y"));
    let ran = bisect(&test, &["--out", "b"]).status(0).stdout_has("is caused by `CONFIG_X39=y`");
    assert!(!ran.stderr.contains("one by one"), "{}", ran.stderr);
    let ran = ran.stdout_has("more that were not tested").stdout_has("value    y, was not set");
    assert!(ran.stdout.lines().all(|l| l.chars().count() <= 130), "{}", ran.stdout);
    // The ends and the neighbours of the answer.
    let names: Vec<_> = test.entries("b/builds").iter().map(|p| p.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["bad.config", "good+39.config", "good+40.config", "good.config"]);
}

#[test]
fn one_difference_needs_no_search() {
    let one = GOOD.replace("# CONFIG_CLEAR is not set", "CONFIG_CLEAR=y");
    let test = place(&script("", &[("bad", 1.05)])).file("bad.config", one);
    let found = json(&bisect(&test, &["--out", "b", "--format", "json"]).status(0));
    assert!(found["text"][0].as_str().unwrap().contains("is caused by `CONFIG_CLEAR=y`"), "{found}");
    assert_eq!((&found["tests"], found["rows"].as_array().unwrap().len()), (&0.into(), 2));
}

#[test]
fn what_cannot_be_bisected_is_refused_before_anything_is_built() {
    let test = place(&from(3))
        .file("text", "hello\n")
        .file("wrong.config", "CONFIG_TINY=y\n\nCONFIG_OLD y\n")
        .file("same.config", GOOD.replace("# CONFIG_CLEAR is not set\n", "CONFIG_DEBUG_LISTS=y\n"))
        .file("empty/x", "");
    let of = |tree: &str, good: &str, bad: &str, more: &[&str]| {
        let args = ["bisect", "config", "--git", tree, "--good", good, "--bad", bad, "--sim", "s.toml"];
        test.run(&[&args[..], more].concat())
    };
    let micro = ["micro:fork-exit"];
    of("none", "good.config", "bad.config", &micro).refused("`none` is not a folder");
    of("empty", "good.config", "bad.config", &micro).refused("`empty` is not a git repository");
    of("linux", "good.config", "bad.config", &["micro:fork-exit", "--at", "v9"]).refused("--at: `v9` is not a commit");
    of("linux", "good.config", "bad.config", &["micro:forks"]).refused("`micro` has no metric `forks`");
    of("linux", "none.config", "bad.config", &micro).refused("--good: `none.config` cannot be read");
    of("linux", "good.config", "text", &micro).refused("--bad: `text` is not a kernel's configuration");
    of("linux", "good.config", "wrong.config", &micro)
        .refused("--bad: `wrong.config` is wrong in line 3, `CONFIG_OLD y`");
    // DEBUG_LISTS has no effect without DEBUG.
    of("linux", "good.config", "same.config", &micro).refused("are the same configuration");
    of("linux", "brokenconfig", "bad.config", &micro).refused("--good: `make brokenconfig` cannot be configured");
    of("linux", "good.config", "bad.config", &["micro:fork-exit", "--make-arg=O=/x"])
        .refused("bigiron sets `O` itself");
    of("linux", "good.config", "bad.config", &["micro:fork-exit", "--error", "0.7"]).refused("--error");
    assert!(test.entries("bigiron-results").is_empty());
    git(&test, &["rm", "-q", "Kconfig"]);
    git(&test, &["commit", "-q", "-m", "no kernel any more"]);
    of("linux", "good.config", "bad.config", &micro).refused("it has no Kconfig");
}
