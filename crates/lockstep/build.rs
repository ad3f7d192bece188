//! Tells the build script of bigiron-lab, which compiles this crate for QEMU, where its source is.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo::metadata=source={folder}/src");
}
