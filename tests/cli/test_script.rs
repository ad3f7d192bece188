//! `scripts/test`, with a cargo that plays test results: what becomes of a test that fails beside others and passes alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::builder::write_program;

/// Fails every test that it runs beside others, and prints the number of busy loops. It first waits for the number in the file `loops`, because the
/// script has only just started them.
const CARGO: &str = r#"#!/bin/sh
dir=$(dirname "$0")
case "$*" in
*--exact*) cat "$dir/alone" ;;
test*--no-run | *--lib* | *--doc* | *--test-threads=1\ ssh::*) ;;
test*)
	cat "$dir/beside"
	loops() { ps -e -o args= | grep -c '^sh -c while :; do :; done'; }
	found=$(loops)
	left=600
	while [ "$found" -lt "$(cat "$dir/loops")" ] && [ $left -gt 0 ]; do
		sleep 0.1
		found=$(loops)
		left=$((left - 1))
	done
	echo "$found loops"
	exit 101
	;;
esac
"#;

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs `scripts/test` with `arguments`: its status and what it says. `beside` and `alone` are what the tests say all together and one by one.
fn script(arguments: &[&str], beside: &str, alone: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let loops = if arguments == ["beside-load"] { cpus().to_string() } else { "0".to_owned() };
    for (name, text) in [("beside", beside), ("alone", alone), ("loops", loops.as_str())] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    write_program(&dir.path().join("cargo"), CARGO);
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/test");
    let ended = Command::new(script).args(arguments).env("PATH", path).output().unwrap();
    (ended.status.code(), String::from_utf8(ended.stdout).unwrap())
}

#[test]
fn a_test_that_passes_alone_is_named_and_fails_the_run() {
    let beside = "test a::b ... FAILED\ntest c ... ok\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n";
    let (status, said) = script(&[], beside, "test a::b ... ok\ntest result: ok. 1 passed; 0 failed\n");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.ends_with("UNSTEADY, failed beside others and passed alone: a::b\n"), "{said}");
    let (status, said) = script(&[], beside, "test a::b ... FAILED\ntest result: FAILED. 0 passed; 1 failed\n");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.ends_with("FAILED, beside others and alone: a::b\n"), "{said}");
}

#[test]
fn what_failed_tests_said_is_at_the_end() {
    let failed = |line: &str| {
        format!(
            "thread 'a::b' (7) panicked at {line}:\nleft: 1\nstack backtrace:\ntest a::b ... FAILED\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored\n"
        )
    };
    let (_, said) = script(&[], &failed("src/a.rs:1:1"), &failed("src/a.rs:2:2"));
    let end = said.split_once("What they said beside others:\n").expect("a title").1;
    let (beside, alone) = end.split_once("What they said alone:\n").expect("another title");
    assert!(beside.starts_with("thread 'a::b' (7) panicked at src/a.rs:1:1:\nleft: 1\n"), "{said}");
    assert!(alone.starts_with("thread 'a::b' (7) panicked at src/a.rs:2:2:\nleft: 1\n"), "{said}");
    // Too many failures are not repeated.
    let many: String = ('a'..='f').map(|name| format!("test {name} ... FAILED\n")).collect();
    let (_, said) =
        script(&[], &format!("{}{many}test result: FAILED. 0 passed; 6 failed; 0 ignored\n", failed("b.rs:3:3")), "");
    assert!(
        said.split_once("What the failed tests said:\n").is_some_and(|(_, end)| end.contains("b.rs:3:3")),
        "{said}"
    );
}

#[test]
fn tests_run_beside_busy_loops_if_asked_to_and_what_was_skipped_is_repeated() {
    let (status, said) = script(&["beside-load"], "SKIPPED d: no root\ntest d ... ok\n", "");
    assert_eq!(status, Some(1), "{said}");
    let loops = said.lines().find_map(|line| line.strip_suffix(" loops")?.parse::<usize>().ok());
    assert!(loops >= Some(cpus()), "{said}");
    assert!(said.ends_with("loops\nSKIPPED d: no root\n"), "{said}");
    assert_eq!(script(&["besides-load"], "", "").0, Some(2));
}
