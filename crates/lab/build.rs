//! Compiles the two libraries that bigiron embeds and QEMU loads under the exact clock: crates/lockstep and crates/profile.
//!
//! QEMU is a program of the host, linked with the host's libc, while bigiron is static. The libraries are therefore compiled for
//! another target than bigiron, by a separate `rustc`. They need only `core`, which every toolchain has for its own host, and
//! link to nothing.

use std::path::PathBuf;
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    compile("lockstep", "preload");
    compile("profile", "plugin");
}

/// Compiles the crate bigiron-NAME to `NAME.so`; its build script says where its source is. The `cfg` tells the crate that it is built as the library and not as a member of the
/// workspace.
fn compile(name: &str, cfg: &str) {
    let variable = format!("DEP_BIGIRON_{}_SOURCE", name.to_uppercase());
    let source = PathBuf::from(std::env::var_os(&variable).expect("the crate's build script gives it"));
    println!("cargo::rerun-if-changed={}", source.display());
    let library = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(format!("{name}.so"));
    let mut rustc = Command::new(std::env::var_os("RUSTC").expect("cargo sets RUSTC"));
    rustc.arg(source.join("lib.rs"));
    rustc.args(["--crate-name", name, "--crate-type", "cdylib", "--edition", "2024", "--target", TARGET, "--cfg", cfg]);
    rustc.args(["-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=symbols"]);
    // No libc is named, so that the library cannot require one newer than QEMU's.
    rustc.args(["-C", "force-unwind-tables=no", "-C", "link-args=-nostdlib -nostartfiles"]);
    let status = rustc.arg("-o").arg(&library).status().expect("rustc runs, as cargo does");
    assert!(
        status.success(),
        "crates/{name} does not compile for {TARGET}; with another host's toolchain `rustup target add {TARGET}` is needed"
    );
}
