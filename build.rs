//! Links the agent without the index of its unwind tables: with `panic = "abort"` nothing unwinds, and every guest would carry it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Tests unwind.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-bin=bigiron-agent=-Wl,--no-eh-frame-hdr");
    }
}
