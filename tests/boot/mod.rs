//! Tests that really boot Debian kernels in QEMU. Kernels are fetched once and kept below `target/`.

mod command;
mod crash;
mod interrupted;
mod levers;
mod machine;
mod oltp;
mod studies;
mod survival;

use std::path::PathBuf;

use crate::builder::Test;

/// The cache that all boot tests share.
fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("boot-cache")
}

/// A run with the shared cache.
fn test() -> Test {
    Test::new().cache(cache())
}
