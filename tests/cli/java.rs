//! `java/`: the jar in the repository is what its sources are compiled into, and the tests of the sources.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::builder::skipped;

const JDK: &str = "/usr/lib/jvm/java-17-openjdk-amd64/bin/javac";

/// Runs `scripts/build-java`, if this machine has Debian's JDK.
fn build(argument: &Path) -> Option<String> {
    if !Path::new(JDK).exists() {
        skipped("`scripts/setup java` installs the JDK");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/build-java");
    let output = Command::new(script).arg(argument).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_jar_is_compiled_from_the_sources_byte_by_byte() {
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("new.jar");
    if build(&new).is_some() {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/bigiron-java.jar");
        let (new, kept) = (fs::read(new).unwrap(), fs::read(kept).unwrap());
        assert!(
            new == kept,
            "The sources make {} other bytes than the jar's {}: run `make java`",
            new.len(),
            kept.len()
        );
    }
}

#[test]
fn the_self_check_refuses_wrong_data() {
    if let Some(said) = build(Path::new("test")) {
        assert_eq!(said, "The self-check refuses every change\n");
    }
}
