//! Tests that really boot Debian kernels in QEMU. Kernels are fetched once and kept below `target/`.

mod command;
mod crash;
mod interrupted;
mod levers;
mod loads;
mod machine;
mod multiuser;
mod oltp;
mod studies;
mod survival;

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::builder::Test;

/// The cache that all boot tests share.
fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("boot-cache")
}

/// A run with the shared cache.
fn test() -> Test {
    Test::new().cache(cache())
}

/// Starts a study and lets it get as far as `records` boots.
fn underway(test: &Test, args: &[&str], records: usize) -> Child {
    let mut child = test.start(args);
    let begun = Instant::now();
    while boots(test, args.last().unwrap()) < records {
        assert!(child.try_wait().unwrap().is_none(), "ended before it was stopped");
        assert!(begun.elapsed() < Duration::from_secs(600), "no records");
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

/// Boots that are on record, whatever came of them.
fn boots(test: &Test, study: &str) -> usize {
    let log = std::fs::read_to_string(test.dir().join(study).join("records.jsonl")).unwrap_or_default();
    log.lines().count()
}
