//! Links the agent without unwind tables (`src/bin/bigiron-agent.ld`).

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=src/bin/bigiron-agent.ld");
    // Tests unwind.
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo::rustc-link-arg-bin=bigiron-agent=-Wl,-T,{root}/src/bin/bigiron-agent.ld");
    }
}
