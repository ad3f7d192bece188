//! Compiles the library that QEMU is started with under the exact clock (crates/lockstep) and that bigiron carries in itself.
//!
//! QEMU is a program of the host, linked against its libc, while bigiron is static: so it is compiled for another target than bigiron, by a
//! `rustc` of its own. It needs no target library but `core`, which comes with every toolchain for its own host, and links to nothing.

use std::path::PathBuf;
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=crates/lockstep/src");
    let library = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("lockstep.so");
    let mut rustc = Command::new(std::env::var_os("RUSTC").expect("cargo sets RUSTC"));
    rustc.args([
        "crates/lockstep/src/lib.rs",
        "--crate-name",
        "lockstep",
        "--crate-type",
        "cdylib",
        "--edition",
        "2024",
    ]);
    rustc.args([
        "--target",
        TARGET,
        "--cfg",
        "preload",
        "-C",
        "opt-level=2",
        "-C",
        "panic=abort",
        "-C",
        "strip=symbols",
    ]);
    // No libc is named, so that none newer than QEMU's can be asked for.
    rustc.args(["-C", "force-unwind-tables=no", "-C", "link-args=-nostdlib -nostartfiles"]);
    let status = rustc.arg("-o").arg(&library).status().expect("rustc runs, as cargo does");
    assert!(
        status.success(),
        "crates/lockstep does not compile for {TARGET}; with another host's toolchain `rustup target add {TARGET}` is needed"
    );
}
