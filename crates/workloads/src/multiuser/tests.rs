//! Runs the workload in a directory beside the test executable.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;
use bigiron_workload::{Progress, WrongData, testing};

/// The page of the workload.
const PAGE: &str = include_str!("../../../../docs/workloads/multiuser.md");

/// A directory on the file system that holds the build.
fn directory() -> tempfile::TempDir {
    let executable = std::env::current_exe().unwrap();
    tempfile::tempdir_in(executable.parent().unwrap()).unwrap()
}

fn with_context<T>(settings: &[(&str, &str)], dir: &Path, act: impl FnOnce(&Settings, &Context<'_>) -> T) -> T {
    let options = testing::options(&Multiuser, settings.iter().copied()).unwrap();
    let spec = Settings::parse(&options).unwrap();
    act(
        &spec,
        &Context {
            seed: 11,
            cpus: 1,
            // Any program that accepts arguments and exits will do: bigiron itself is not built when the library's tests run.
            executable: PathBuf::from("/bin/true"),
            ..testing::context(dir)
        },
    )
}

/// Prepares, runs and verifies.
fn run(settings: &[(&str, &str)]) -> Result<WorkloadResult> {
    let dir = directory();
    with_context(settings, dir.path(), |mut spec, cx| {
        spec.prepare(cx)?;
        let outcome = spec.run(cx)?;
        Box::new(spec).verify(cx)?;
        let declared = spec.metrics();
        let names: BTreeSet<_> = declared.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names.len(), declared.len());
        assert_eq!(names, outcome.values.keys().map(String::as_str).collect());
        assert_eq!(declared.iter().filter(|m| m.primary).count(), 1);
        for metric in &declared {
            assert!(metric.kind.takes(outcome.values[&metric.name]), "{}: {:?}", metric.name, outcome.values);
        }
        assert!(trial::is_empty(&cx.dir));
        Ok(outcome)
    })
}

const SMALL: [(&str, &str); 3] = [("mix", "add_int,add_long,mul_int"), ("jobs", "6"), ("scale", "10000")];

#[test]
fn a_list_of_users_is_run_and_adds_up() {
    let users = [("users", "1,2,3,4,5,40")];
    let outcome = run(&[&SMALL[..], &users].concat()).unwrap();
    let rate = |n: u32| outcome.values[&format!("rate-{n}")];
    let best = [1, 2, 3, 4, 5, 40].map(rate).into_iter().fold(0.0, f64::max);
    assert_eq!(outcome.values[metrics::PEAK], best);
    assert!(outcome.values.contains_key("usl-lambda"));
    assert_eq!(trial::tests_of(&outcome.facts), ["add_int", "add_long", "mul_int"]);
    // 1 + 2 + 3 + 4 + 5 + 40 users, twice each.
    assert!(outcome.facts["test.add_int"].starts_with("2 of each user; 110 in all;"), "{:?}", outcome.facts);
    assert!(outcome.facts["users.0000040"].contains("jobs/min"), "{:?}", outcome.facts);
}

#[test]
fn a_ramp_ends_and_says_why() {
    let ramp = [("users", "auto"), ("start", "1"), ("increment", "2"), ("end", "5"), ("adaptive", "off")];
    let outcome = run(&[&SMALL[..], &ramp].concat()).unwrap();
    assert_eq!(outcome.facts["ramp-ended"], "end");
    let points: Vec<_> = outcome.facts.keys().filter(|name| name.starts_with("users.")).collect();
    assert_eq!(points, ["users.0000001", "users.0000003", "users.0000005"]);
}

#[test]
fn single_mode_has_a_metric_of_each_test() {
    let single = [("mode", "single"), ("period", "1ms")];
    let outcome = run(&[&SMALL[..], &single].concat()).unwrap();
    let tests = ["add_int", "add_long", "mul_int"];
    let geomean = tests.iter().map(|t| outcome.values[*t].ln()).sum::<f64>() / 3.0;
    assert!((outcome.values[metrics::GEOMEAN].ln() - geomean).abs() < 1e-9);
    assert!(outcome.facts["test.01.add_int"].contains("calls/s"), "{:?}", outcome.facts);
}

#[test]
fn what_is_left_behind_is_wrong_data() {
    let dir = directory();
    with_context(&SMALL, dir.path(), |mut spec, cx| {
        spec.prepare(cx).unwrap();
        spec.run(cx).unwrap();
        std::fs::write(dir.path().join("multiuser/stray"), "x").unwrap();
        let error = Box::new(spec).verify(cx).unwrap_err();
        assert!(error.is::<WrongData>() && error.to_string().starts_with("`stray` was left in"), "{error}");
    });
}

#[test]
fn more_users_than_the_machine_has_numbers_for_are_refused_before_anything_starts() {
    let settings = [&SMALL[..], &[("users", "4000000")]].concat();
    let said = std::cell::RefCell::new(0);
    let dir = directory();
    let message = with_context(&settings, dir.path(), |spec, cx| {
        let progress = |_: Progress<'_>| *said.borrow_mut() += 1;
        let cx = Context { progress: &progress, ..cx.clone() };
        spec.prepare(&cx).err().unwrap().to_string()
    });
    assert!(
        message.starts_with("4000002 more processes do not fit: ") && message.contains("it must be at least"),
        "{message}"
    );
    assert_eq!(*said.borrow(), 0);
}

#[test]
fn needs_grow_with_users_and_files() {
    let needs = |settings: &[(&str, &str)]| {
        Multiuser.parse(&testing::options(&Multiuser, settings.iter().copied()).unwrap()).unwrap().needs()
    };
    let small = needs(&[("mix", "sieve"), ("users", "1")]);
    assert_eq!(small.storage_bytes, Some(USER_STORAGE + STORAGE));
    assert_eq!(needs(&[("mix", "sieve"), ("users", "1,10000")]).memory_bytes - small.memory_bytes, 9999 * USER_MEMORY);
    // dbase on the wall clock: 26 MiB for one user, 1 MiB and a share of 25 for each of 8; each has a copy, and there is one
    // shared file.
    let storage = |users: &str| needs(&[("mix", "dbase"), ("users", users), ("scale", "1")]).storage_bytes.unwrap();
    assert_eq!(storage("1"), 3 * (26 << 20) + USER_STORAGE + STORAGE);
    assert!(storage("1,100") > 200 << 20);
}

#[test]
fn the_page_names_every_option_mix_and_metric() {
    for option in keys::OPTIONS.iter() {
        assert!(PAGE.contains(&format!("| `multiuser.{}` | `{}` |", option.name, option.default)), "{}", option.name);
    }
    for mix in mixes::LIBRARY.shipped {
        assert!(PAGE.contains(&format!("| `{}` |", mix.name)), "{}", mix.name);
    }
    for test in work::catalogue() {
        assert!(PAGE.contains(&format!("`{}`", test.name)), "{}", test.name);
    }
    let options = testing::options(&Multiuser, [("users", "1,2,3,4,5,6")]).unwrap();
    for metric in Multiuser.parse(&options).unwrap().metrics() {
        let name = metric.name.trim_end_matches(|c: char| c.is_ascii_digit());
        assert!(PAGE.contains(&format!("`{name}")), "{name}");
    }
}

#[test]
fn a_large_point_is_no_hang() {
    let silences = |settings: &[(&str, &str)]| {
        let period = ("period", "10s");
        let options = testing::options(&Multiuser, settings.iter().copied().chain([period])).unwrap();
        let spec = Settings::parse(&options).unwrap();
        [spec.silence(), spec.guest_silence()].map(|time| time.as_secs())
    };
    // 100 jobs of a tenth of a second each; loops in a guest are divided by 50.
    assert_eq!(silences(&[("users", "1,500")]), [600 + 5000 + 10, 20 * (100 + 10)]);
    assert_eq!(silences(&[("users", "1,500"), ("scale", "1"), ("jobs", "10")]), [600 + 500 + 10, 20 * (500 + 10)]);
}
