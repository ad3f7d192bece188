//! Runs every test for real, in a directory beside the test executable (a disk's file system, not a memory file system).

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::*;
use bigiron_model::clock::Clock;
use bigiron_workload::testing;

/// The page of the workload.
const PAGE: &str = include_str!("../../../../docs/workloads/micro.md");

/// A directory on the file system that holds the build.
fn directory() -> tempfile::TempDir {
    let executable = std::env::current_exe().unwrap();
    tempfile::tempdir_in(executable.parent().unwrap()).unwrap()
}

fn with_context<T>(
    settings: &[(&str, &str)],
    dir: &std::path::Path,
    act: impl FnOnce(&Selection, &Context<'_>) -> T,
) -> T {
    let options = testing::options(&Micro, settings.iter().copied()).unwrap();
    let spec = Selection::parse(&options).unwrap();
    act(
        &spec,
        &Context {
            seed: 11,
            cpus: 1,
            // Anything that takes arguments and exits does: bigiron itself is not built when the library's tests run.
            executable: PathBuf::from("/bin/true"),
            ..testing::context(dir)
        },
    )
}

#[test]
fn every_metric_is_measured_and_verified() {
    let dir = directory();
    let steps = std::cell::RefCell::new(Vec::new());
    let start = std::time::Instant::now();
    let (outcome, declared) = with_context(&[("scale", &scale())], dir.path(), |mut spec, cx| {
        let progress = |p: Progress<'_>| steps.borrow_mut().push((p.step.to_owned(), p.done, p.of));
        let cx = Context { progress: &progress, ..cx.clone() };
        spec.prepare(&cx).unwrap();
        let outcome = spec.run(&cx).unwrap();
        Box::new(spec).verify(&cx).unwrap();
        (outcome, spec.metrics())
    });
    eprintln!("all: {:.3} s", start.elapsed().as_secs_f64());

    let names: BTreeSet<_> = declared.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names.len(), declared.len());
    assert_eq!(names, outcome.values.keys().map(String::as_str).collect());
    assert!(outcome.values.values().all(|v| v.is_finite() && *v > 0.0), "{:?}", outcome.values);
    assert_eq!(declared.iter().filter(|m| m.primary).map(|m| m.name.as_str()).collect::<Vec<_>>(), [PRIMARY]);
    assert_eq!(steps.borrow().len(), declared.len() - 1);
    assert!(
        steps
            .borrow()
            .iter()
            .enumerate()
            .all(|(n, (_, done, of))| (*done, *of) == (n as u32, declared.len() as u32 - 1))
    );

    // The geometric mean, worked out again from the values alone.
    let geomean = |of: &[Unit]| {
        let counted: Vec<_> = declared.iter().filter(|m| !m.primary && of.contains(&m.unit)).collect();
        let costs = counted.iter().map(|m| match m.unit {
            Unit::Ns => outcome.values[&m.name],
            Unit::BytesPerSecond => 4096.0 / (outcome.values[&m.name] / 1e9),
            unit => panic!("{unit:?}"),
        });
        costs.map(|c| c.powf(1.0 / counted.len() as f64)).product::<f64>()
    };
    assert_eq!(declared.iter().filter(|m| m.unit == Unit::BytesPerSecond).count(), 4);
    assert!((outcome.values[PRIMARY] / geomean(&[Unit::Ns]) - 1.0).abs() < 1e-9);
    let of = |only: &[(&str, &str)], clock| {
        let options = testing::options(&Micro, only.iter().copied()).unwrap();
        let selection = Selection::parse(&options).unwrap();
        selection.tests.iter().filter(|t| counted(t, &selection, clock)).count()
    };
    assert_eq!((of(&[], Clock::Wall), of(&[], Clock::Exact), of(&[("only", "copy")], Clock::Exact)), (50, 46, 4));
    if std::env::var_os("MICRO_SHOW").is_some() {
        for m in &declared {
            eprintln!("{:20} {:14.1} {:?}", m.name, outcome.values[&m.name], m.unit);
        }
    }
}

fn scale() -> String {
    std::env::var("MICRO_SCALE").unwrap_or_else(|_| "0.01".to_owned())
}

#[test]
fn a_subset_needs_and_delivers_only_itself() {
    let settings = [("only", "copy-memory, null-call,fork-exec"), ("scale", "0.01")];
    with_context(&settings, "/nonexistent".as_ref(), |mut spec, cx| {
        assert_eq!(spec.needs().storage_bytes, None);
        spec.prepare(cx).unwrap();
        let outcome = spec.run(cx).unwrap();
        Box::new(spec).verify(cx).unwrap();
        assert_eq!(outcome.values.keys().collect::<Vec<_>>(), ["copy-memory", "fork-exec", PRIMARY, "null-call"]);
        let count = |name| catalogue::all().iter().find(|t| t.name == name).unwrap().exact.div_ceil(100);
        let counts = ["null-call", "fork-exec", "copy-memory"].map(|name| format!("{name}={}", count(name)));
        assert_eq!(outcome.facts["operations"], counts.join(" "));
        assert_eq!(outcome.facts["durability"], "no file is written");
        assert!(!outcome.facts.contains_key("data-bytes"));
    });
}

#[test]
fn durability_is_that_of_the_operations_selected() {
    let facts = |only: &str| {
        let options = testing::options(&Micro, [("only", only)]).unwrap();
        durability(&Selection::parse(&options).unwrap()).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(facts("create-0k")["durability"], "no write is synced");
    assert!(facts("append-8k-fdatasync,null-call")["durability"].starts_with("fdatasync after every append"));
    assert_eq!(facts("pread-4k-direct")["data-bytes"], DATA_BYTES.to_string());
    assert!(facts("all")["durability"].starts_with("fdatasync after every append"));
}

#[test]
fn storage_grows_with_the_log() {
    let needs = |settings: &[(&str, &str)]| {
        Micro.parse(&testing::options(&Micro, settings.iter().copied()).unwrap()).unwrap().needs().storage_bytes
    };
    assert_eq!(needs(&[("only", "signal,ipc,switch,process")]), None);
    assert_eq!(needs(&[("only", "stat"), ("scale", "100")]), Some(80 << 20));
    assert_eq!(needs(&[("scale", "100")]), Some((80 << 20) + 105_000 * 8192));
}

#[test]
fn bad_options_are_refused_with_what_is_right() {
    let refuse = |name, value| testing::options(&Micro, [(name, value)]).unwrap_err();
    assert_eq!(refuse("scale", "0"), "`micro.scale` cannot be `0`; it can be a number from 0.0001 to 100");
    for scale in ["", "fast", "-1", "NaN", "inf", "101"] {
        refuse("scale", scale);
    }
    let message = refuse("only", "null-call,frok");
    assert!(
        message.starts_with("`micro.only` cannot hold `frok`; it can hold `all`, a group (call, signal,"),
        "{message}"
    );
    assert!(message.contains("fork-exec"), "{message}");
    refuse("only", "");
    refuse("onyl", "all");
}

#[test]
fn a_program_that_fails_is_an_error_that_names_the_metric() {
    with_context(&[("only", "fork-exec")], "/nonexistent".as_ref(), |mut spec, cx| {
        let cx = Context { executable: PathBuf::from("/bin/false"), ..cx.clone() };
        let error = format!("{:#}", spec.run(&cx).unwrap_err());
        assert_eq!(error, "Cannot measure `fork-exec`: `/bin/false worker exit` ended with status 1");
    });
}

/// Runs the writing tests, damages a file and gives verify's message.
fn verify_after(damage: impl FnOnce(&std::path::Path)) -> String {
    let dir = directory();
    with_context(
        &[("only", "pwrite-4k-direct,pwrite-4k-buffered,append-8k-fdatasync"), ("scale", "0.1")],
        dir.path(),
        |mut spec, cx| {
            spec.prepare(cx).unwrap();
            spec.run(cx).unwrap();
            Box::new(spec).verify(cx).unwrap();
            damage(dir.path());
            format!("{:#}", Box::new(spec).verify(cx).unwrap_err())
        },
    )
}

fn edit(path: &std::path::Path, change: impl FnOnce(&std::fs::File)) {
    change(&std::fs::File::options().read(true).write(true).open(path).unwrap());
}

#[test]
fn verify_finds_a_flipped_byte() {
    let message = verify_after(|dir| {
        edit(&dir.join("data"), |f| {
            let (mut byte, at) = ([0], 4096 * 700 + 1999);
            f.read_exact_at(&mut byte, at).unwrap();
            f.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        });
    });
    assert!(message.ends_with("data`: The bytes from 2869192 on are damaged"), "{message}");
}

#[test]
fn verify_finds_a_lost_write() {
    // Every block as it was before the run: as if the device had dropped all writes.
    let message = verify_after(|dir| blocks::lay_out(dir, &Stamp::new(11)).unwrap());
    assert!(message.contains("holds write 0x0, its last write was 0x"), "{message}");
}

#[test]
fn verify_finds_a_shortened_and_a_misplaced_log() {
    let message = verify_after(|dir| edit(&dir.join("log"), |f| f.set_len(8192 * 15).unwrap()));
    assert!(message.contains("log` has 122880 bytes, ") && message.ends_with(" were written"), "{message}");
    let message = verify_after(|dir| {
        edit(&dir.join("log"), |f| {
            let mut record = vec![0; 8192];
            f.read_exact_at(&mut record, 8192).unwrap();
            f.write_all_at(&record, 16384).unwrap();
        });
    });
    assert!(message.ends_with("Byte 16384 holds the block of byte 8192 and seed 11, not of seed 11"), "{message}");
}

#[test]
fn the_page_names_every_metric_group_and_count() {
    for test in catalogue::all() {
        let row = format!("| `{}` | {} | {} | {} | {} |", test.name, test.group, test.exact, test.wall, test.summary);
        assert!(PAGE.contains(&row), "docs/workloads/micro.md lacks the row\n{row}");
    }
    for option in OPTIONS {
        assert!(PAGE.contains(&format!("`micro.{}`", option.name)));
    }
}
