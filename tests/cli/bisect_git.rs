//! Searches among the commits of small repositories: on the scripted host, where nothing is built, and what is refused before anything is.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::builder::{Ran, Test};

/// A run's folder with a repository `linux` in it, whose sources are a kernel's by their names alone.
struct Place {
    test: Test,
    /// From the first, which is the good one, to the last.
    commits: Vec<String>,
}

fn git(test: &Test, args: &[&str]) -> String {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GIT_")) {
        command.env_remove(name);
    }
    let output = command
        .args(["-C", "linux", "-c", "user.name=Ada", "-c", "user.email=ada@b.test", "-c", "commit.gpgsign=false"])
        .args(args)
        .current_dir(test.dir())
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn commit(test: &Test, file: &str, text: &str, subject: &str) -> String {
    let path = test.dir().join("linux").join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    git(test, &["add", "-A"]);
    git(test, &["commit", "-q", "-m", subject]);
    git(test, &["rev-parse", "HEAD"])
}

/// A good commit and eleven after it: of files of mm/ every third.
fn place() -> Place {
    let test = Test::new().file("linux/Makefile", "").file("linux/Kconfig", "").file("linux/arch/x86/Makefile", "");
    git(&test, &["init", "-q", "-b", "main", "."]);
    let mut commits = vec![commit(&test, "README", "", "the first")];
    for n in 1..12 {
        let file = if n % 3 == 0 { "mm/page.c" } else { "fs/file.c" };
        commits.push(commit(&test, file, &format!("int x{n};\n"), &format!("{file}: change {n}")));
    }
    git(&test, &["tag", "last"]);
    Place { test, commits }
}

impl Place {
    /// A script in which a commit's factor on `micro.fork-exit` is 1.05 from the `change`th on; `more` comes before.
    fn script(self, more: &str, change: usize) -> Place {
        let mut text = format!("noise = 0.002\n{more}\n");
        for commit in &self.commits[change..] {
            let _ = writeln!(text, "[effects.\"{}\"]\n\"micro.fork-exit\" = 1.05", &commit[..12]);
        }
        Place { test: self.test.file("s.toml", text), ..self }
    }

    fn bisect(&self, more: &[&str]) -> Ran {
        let ends = ["bisect", "--git", "linux", "--good", &self.commits[0], "--bad", "last", "micro:fork-exit"];
        let how = ["--sim", "s.toml", "--clock", "exact", "--seed", "7"];
        self.test.run(&[&ends[..], &how, more].concat())
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout))
}

#[test]
fn the_commit_is_named_with_what_it_touches() {
    let place = place().script("", 6);
    let before = git(&place.test, &["for-each-ref"]);
    let ran = place.bisect(&["--out", "b", "--config", "tinyconfig"]).status(0);
    let bad = &place.commits[6];
    let ran = ran
        .stdout_has(&format!("is caused by the commit `{}`", &bad[..12]))
        .stdout_has(bad)
        .stdout_has("Ada <ada@b.test>")
        .stdout_has("files    mm/page.c")
        .stdout_has("mm/page.c: change 6")
        .stdout_has(&format!("git -C linux show {}", &bad[..12]))
        .stdout_has("the 12 first-parent commits");
    assert!(ran.stdout.lines().all(|l| l.chars().count() <= 130), "{}", ran.stdout);
    assert_eq!(place.test.run(&["report", "b"]).status(0).stdout, ran.stdout);
    let found = json(&place.test.run(&["report", "b", "--format", "json"]).status(0));
    assert_eq!((&found["commits"][0]["hash"], &found["what"]), (&Value::from(bad.as_str()), &"commits".into()));
    assert_eq!(found["commits"][0]["files"][0], "mm/page.c");
    assert_eq!((&found["source"]["config"], found["rows"].as_array().unwrap().len()), (&"make tinyconfig".into(), 12));
    place.bisect(&["--out", "b", "--config", "tinyconfig"]).status(0).stderr_has("nothing to boot");
    // The repository is as it was, and nothing was left in the cache.
    assert_eq!(git(&place.test, &["for-each-ref"]), before);
    assert_eq!(git(&place.test, &["status", "--porcelain"]), "");
    assert!(place.test.entries("cache/git").is_empty() && place.test.entries("linux/.git/worktrees").is_empty());
    // A commit more is another question.
    commit(&place.test, "fs/file.c", "int y;\n", "one more");
    let text = place.test.run(&[
        "bisect",
        "--git",
        "linux",
        "--good",
        &place.commits[0],
        "--bad",
        "main",
        "micro:fork-exit",
        "--sim",
        "s.toml",
        "--clock",
        "exact",
        "--config",
        "tinyconfig",
        "--out",
        "b",
    ]);
    text.refused("`b` holds another bisection");
}

#[test]
fn paths_a_failing_commit_and_exit_codes() {
    let place = place().script("", 6);
    // Of what touches mm/: 3, 6, 9, and the bad end.
    let found = json(&place.bisect(&["--format", "json", "--", "mm"]).status(0));
    assert_eq!(found["rows"].as_array().unwrap().len(), 5);
    assert_eq!(found["place"]["bad"], place.commits[6][..12]);
    // Three commits were joined to the line there, two of which touch other paths.
    assert!(found["text"][0].as_str().unwrap().contains("lies between"), "{found}");
    assert!(found["commands"].to_string().contains("bigiron bisect --git linux"), "{found}");
    assert!(found["repeat"].as_str().unwrap().ends_with("-- mm"), "{found}");

    let panic = format!("[[incidents]]\nwhat = \"panic\"\narm = \"{}\"\n", &place.commits[6][..12]);
    let place = place.script(&panic, 6);
    let ran = place.bisect(&["--out", "p"]).status(0).stdout_has("It is one of 2 places");
    ran.stdout_has("untested no boot of it gave the metric").stdout_has("panicked in 2 of 2 boots");

    let again = |more: &[&str]| place.test.run(&[&["report", "p"], more].concat());
    again(&["--fail-on", "worse"]).status(3);
    again(&["--fail-on", "inconclusive"]).status(3);
    let none = place.script("", 12);
    none.bisect(&["--out", "n", "--fail-on", "worse", "--fail-on", "inconclusive"]).status(0);
}

#[test]
fn a_merge_is_found_as_one_and_searched_next() {
    let place = place();
    git(&place.test, &["checkout", "-q", "-b", "side", &place.commits[2]]);
    commit(&place.test, "net/a.c", "int a;\n", "side one");
    let tip = commit(&place.test, "net/b.c", "int b;\n", "side two");
    git(&place.test, &["checkout", "-q", "main"]);
    git(&place.test, &["merge", "-q", "--no-ff", "-m", "Merge side", "side"]);
    let mut commits = place.commits.clone();
    commits.push(git(&place.test, &["rev-parse", "HEAD"]));
    commits.push(commit(&place.test, "fs/file.c", "int z;\n", "after it"));
    git(&place.test, &["tag", "-f", "last"]);
    let place = Place { commits, ..place }.script("", 12);
    let ran = place.bisect(&[]).status(0).stdout_has("Merge side").stdout_has("joins    3 commits");
    let next = format!("--good {} --bad {}", &place.commits[2][..12], &tip[..12]);
    assert!(ran.stdout.replace("\\\n    ", "").contains(&next), "{}", ran.stdout);
}

#[test]
fn what_cannot_be_bisected_is_refused_before_anything_is_built() {
    let place = place().script("", 6);
    let (good, bad) = (place.commits[0].as_str(), place.commits[11].as_str());
    let test = place.test.file("text", "hello\n").file("empty/x", "");
    let of = |args: &[&str]| test.run(&[&["bisect"], args, &["micro:fork-exit", "--sim", "s.toml"]].concat());
    of(&["--git", "none", "--good", good, "--bad", bad]).refused("`none` is not a folder");
    of(&["--git", "empty", "--good", good, "--bad", bad]).refused("`empty` is not a git repository");
    of(&["--git", "linux", "--good", "v9", "--bad", bad]).refused("--good: `v9` is not a commit");
    of(&["--git", "linux", "--good", bad, "--bad", good]).refused("is not an ancestor of bad");
    of(&["--git", "linux", "--good", good, "--bad", good]).refused("the same commit");
    of(&["--git", "linux", "--good", good]).refused("--bad");
    of(&["--git", "linux", "--good", good, "--bad", bad, "--config", "text"]).refused("sets no option");
    of(&["--git", "linux", "--good", good, "--bad", bad, "--make-arg=O=/x"]).refused("bigiron sets `O` itself");
    of(&["--git", "linux", "--good", good, "--bad", bad, "--kernels", "running"]).refused("--kernels");
    of(&["--good", good, "--bad", bad, "--config", "text"]).refused("--git");
    let narrow =
        ["bisect", "--git", "linux", "--good", good, "--bad", bad, "micro:fork-exit", "--sim", "s.toml", "--", "net"];
    test.run(&narrow).refused("touches net");
    assert!(test.entries("bigiron-results").is_empty());
    // Tools are looked for before anything else is done; git is not among what is missing here.
    let programs = test.dir().join("bin");
    fs::create_dir(&programs).unwrap();
    let real =
        std::env::split_paths(&std::env::var_os("PATH").unwrap()).map(|dir| dir.join("git")).find(|p| p.is_file());
    std::os::unix::fs::symlink(real.unwrap(), programs.join("git")).unwrap();
    let test = test.path(programs.to_str().unwrap());
    let build = [
        "bisect",
        "--git",
        "linux",
        "--good",
        good,
        "--bad",
        bad,
        "--config",
        "tinyconfig",
        "--clock",
        "exact",
        "micro",
    ];
    let ran = test.run(&build).refused("A kernel cannot be built here: `make`, `flex`, `bison`, `bc`, `gcc`");
    ran.stderr_has("apt-get install make flex bison bc gcc libelf-dev libssl-dev");
    assert!(test.entries("bigiron-results").is_empty() && test.entries("cache/git").is_empty());
    git(&test, &["rm", "-q", "Kconfig"]);
    let bare = commit(&test, "README", "x", "no kernel any more");
    let ran = test.run(&["bisect", "--git", "linux", "--good", good, "--bad", &bare, "micro", "--sim", "s.toml"]);
    ran.refused("it has no Kconfig");
}
