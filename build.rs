//! Links the agent without unwind tables (`src/bin/bigiron-agent.ld`), and with equal functions merged into one.

use std::path::PathBuf;
use std::process::Command;
use std::{env, str};

fn main() {
    println!("cargo::rerun-if-changed=src/bin/bigiron-agent.ld");
    // Tests unwind.
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        let agent = |argument: &str| println!("cargo::rustc-link-arg-bin=bigiron-agent={argument}");
        agent(&format!("-Wl,-T,{root}/src/bin/bigiron-agent.ld"));
        // Only if the compiler brings its linker. Merged functions have one address. Rust code compares none; the few that SQLite compares equal no other.
        if let Some(folder) = linkers_of_compiler() {
            agent("-fuse-ld=lld");
            agent(&format!("-B{}", folder.display()));
            agent("-Wl,--icf=all");
        }
    }
}

/// The folder of the compiler's own lld under the name that the C compiler looks for. A compiler from a distribution may have none.
fn linkers_of_compiler() -> Option<PathBuf> {
    let output = Command::new(env::var_os("RUSTC")?).args(["--print", "sysroot"]).output().ok()?;
    let folder = PathBuf::from(str::from_utf8(&output.stdout).ok()?.trim())
        .join("lib/rustlib")
        .join(env::var("HOST").ok()?)
        .join("bin/gcc-ld");
    folder.join("ld.lld").is_file().then_some(folder)
}
