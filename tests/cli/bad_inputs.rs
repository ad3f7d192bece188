//! Bad input of every kind is refused in words, before anything boots and without a trace.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

use crate::builder::Test;
use crate::kernels::bzimage;
use bigiron_lab::vm::pinned::BUILD;

const STUDY: &str =
    "arms = [\"a\", \"b\"]\nworkloads = [\"micro\"]\n[design]\npairs = 8\n[machine]\nhost = \"sim\"\n[sim]\n";

/// What no answer contains: words of the programming language, and numbers of errors.
const SPEECH: [&str; 8] =
    ["os error", "invalid digit", "target type", "panicked", "RUST_BACKTRACE", "Some(", "unwrap", "0..="];

fn word(text: &str) -> OsString {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (byte, length): (&[u8], usize) = match rest {
            r if r.starts_with("\\s") => (b" ", 2),
            r if r.starts_with("\\n") => (b"\n", 2),
            r if r.starts_with("\\e") => (b"", 2),
            r if r.starts_with("\\xff") => (b"\xff", 4),
            r if r.starts_with("\\xfe") => (b"\xfe", 4),
            r => (&r.as_bytes()[..c.len_utf8()], c.len_utf8()),
        };
        bytes.extend_from_slice(byte);
        rest = &rest[length..];
    }
    OsString::from_vec(bytes)
}

#[test]
fn every_bad_input_is_answered_in_words() {
    let test = Test::new()
        .file("file", "hello\n")
        .file("full-of-things/x", "x")
        .file("empty/.keep", "")
        .file("text.deb", "no package")
        .file("short.bzImage", [b"MZ".as_slice(), &[0; 100]].concat())
        .file("bzImage", bzimage("6.1.7-mine"))
        .program("prog.sh", "#!/bin/sh\necho 1\n")
        .file("ok.toml", STUDY)
        .program(
            "bin/qemu-system-x86_64",
            &format!("#!/bin/sh\necho 'QEMU emulator version 7.2.22 (Debian {BUILD})'\n"),
        );
    let path = format!("{}:/usr/bin:/bin", test.dir().join("bin").display());
    let test = test.path(&path);
    test.run(&["kernel", "add", "mine", "--image", "bzImage"]).status(0);
    test.run(&["run", "ok.toml", "--out", "other"]).status(0);
    let before = test.entries(".");
    let mut count = 0;
    let mut poor = Vec::new();
    for line in include_str!("bad_inputs.txt").lines().filter(|line| !line.starts_with('#')) {
        let (call, want) = line.split_once("  =>  ").expect("a call and its answer");
        let words: Vec<OsString> = match call.strip_prefix("@toml ") {
            Some(text) => {
                fs::write(test.dir().join("s.toml"), word(text).into_vec()).unwrap();
                vec!["run".into(), "s.toml".into()]
            }
            None => call.split(' ').map(word).collect(),
        };
        let ran = test.run_words(&words);
        count += 1;
        let spoken = SPEECH.iter().find(|words| ran.stderr.contains(*words));
        if ran.status != 2 || spoken.is_some() || !ran.stderr.contains(want) {
            poor.push(format!(
                "{call}\n  status {}, wanted `{want}`\n  {}",
                ran.status,
                ran.stderr.replace('\n', "\n  ")
            ));
        }
    }
    assert!(poor.is_empty(), "{} of {count} answers are poor:\n{}", poor.len(), poor.join("\n"));
    assert!(count >= 300, "{count}");
    fs::remove_file(test.dir().join("s.toml")).unwrap();
    assert_eq!(test.entries("."), before, "nothing is left of any of them");
}
