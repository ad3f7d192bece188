//! What others may have written, against a user who only reads or resumes it.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use crate::builder::{Test, executable};

const STUDY: &str = "arms = [\"debian:6.1\", \"debian:6.12\"]\nworkloads = [\"micro\"]\n\n[design]\npairs = 8\nseed = 7\n\
     clock = \"exact\"\n\n[machine]\nhost = \"sim\"\n\n[sim]\nnoise = 0.002\n";

/// A finished study in the folder `out`.
fn study() -> Test {
    let test = Test::new().file("s.toml", STUDY);
    test.run(&["run", "s.toml", "--out", "out"]).status(0);
    test
}

#[test]
fn a_terminal_obeys_nothing_that_a_study_says() {
    let console = "[[sim.incidents]]\nwhat = \"panic\"\nslot = 3\n";
    let test = Test::new().file("s.toml", format!("{STUDY}{console}"));
    test.run(&["run", "s.toml", "--out", "out"]).status(0);
    test.edit_plan("out", |plan| format!("question = \"\\u001b]52;c;ZXZpbA==\\u0007 \\u009b2J \\u202eevil\"\n{plan}"));
    let artifacts = test.entries("out/artifacts");
    for folder in &artifacts {
        fs::write(folder.join("console.log"), "Linux version\n\x1b[2J\u{9b}31m\u{202e}evil\r\n").unwrap();
    }
    for args in [&["report", "out"][..], &["show", "out", "3"], &["show", "out"], &["report", "out", "--format", "csv"]]
    {
        let ran = test.run(args).status(0);
        let obeyed = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
        assert!(!ran.stdout.contains(obeyed) && !ran.stderr.contains(obeyed), "{args:?}: {:?}", ran.stdout);
    }
    test.run(&["report", "out"]).status(0).stdout_has("␛]52;c;ZXZpbA==␇");
    test.run(&["show", "out", "3"]).status(0).stdout_has("␛[2J");
    // In an error too.
    test.run(&["report", "\x1b[2Jx"]).refused("␛[2Jx");
}

/// Folders of schema 1 are from before such URLs were refused, too.
#[test]
fn an_old_studys_password_is_shown_nowhere() {
    const URL: &str = "postgresql://bench@db.example/shop";
    let text = STUDY.replace("\"debian:6.12\"", &format!("\"debian:6.12,oltp.url={URL}\"")).replace("micro", "oltp");
    let text = text.replace("exact", "wall").replace("[sim]", &format!("[set]\n\"oltp.url\" = \"{URL}\"\n\n[sim]"));
    let test = Test::new().file("s.toml", text);
    test.run(&["run", "s.toml", "--out", "out"]).status(0);
    let mut places = 0;
    test.edit_plan("out", |plan| {
        let secret =
            URL.replace("bench@", "bench:SECRET@").replace("/shop", "/shop?application_name=a&password=SECRET");
        let plan = format!("question = \"Of {URL}?\"\n{plan}").replace("repeat = \"", &format!("repeat = \"{URL} "));
        // The records name arms, whose names stay.
        let lines = plan.lines().map(|line| {
            let edited = if line.starts_with("name = ") { line.to_owned() } else { line.replace(URL, &secret) };
            places += usize::from(edited != line);
            edited + "\n"
        });
        lines.collect()
    });
    assert_eq!(places, 4, "question, repeat, the arm's setting and the workload's option");
    fs::write(
        test.entries("out/artifacts")[3].join("console.log"),
        format!("{URL}\n").replace("bench@", "bench:SECRET@"),
    )
    .unwrap();
    let mut shown = String::new();
    for args in [
        &["report", "out"][..],
        &["report", "out", "--format", "json"],
        &["report", "out", "--format", "csv"],
        &["report", "out", "--format", "html"],
        &["show", "out"],
        &["show", "out", "3"],
        &["show", "out", "--format", "json"],
        &["run", "s.toml", "--out", "out"],
    ] {
        let ran = test.run(args);
        assert!(
            !ran.stdout.contains("SECRET") && !ran.stderr.contains("SECRET"),
            "{args:?}: {}{}",
            ran.stdout,
            ran.stderr
        );
        shown += &ran.stdout;
    }
    assert!(shown.contains("bench:…@db.example"), "the rest of the URL is shown");
}

#[test]
fn nothing_outside_a_received_study_is_shown_or_changed() {
    let test = study().file("secret", "secret\n");
    let console = test.entries("out/artifacts")[3].join("console.log");
    fs::remove_file(&console).unwrap();
    symlink(test.dir().join("secret"), &console).unwrap();
    let shown = test.run(&["show", "out", "3"]).status(0);
    assert!(!shown.stdout.contains("secret"), "{}", shown.stdout);
    fs::remove_file(&console).unwrap();
    assert!(Command::new("mkfifo").arg(&console).status().unwrap().success());
    test.run(&["show", "out", "3"]).status(0);
    // Resumed.
    let records = test.dir().join("out/records.jsonl");
    let bytes = fs::read(&records).unwrap();
    fs::write(&records, &bytes[..bytes.len() - 10]).unwrap();
    symlink(test.dir().join("secret"), test.dir().join("out/records.torn")).unwrap();
    test.run(&["run", "s.toml", "--out", "out"]).status(1).stderr_has("is a symbolic link");
    assert_eq!(fs::read(test.dir().join("secret")).unwrap(), b"secret\n");
}

#[test]
fn a_plan_without_slots_is_shown_and_reported() {
    let test = study();
    test.edit_plan("out", |plan| {
        let body = plan.split_once("[[slots]]").unwrap().0;
        format!("slots = []\n{}", body.replacen("pairs = 8", "pairs = 0", 1))
    });
    test.run(&["show", "out", "0"]).refused("its plan has none");
    test.run(&["show", "out"]).status(0);
    assert_ne!(test.run(&["report", "out"]).status, 101, "no panic");
}

#[test]
fn a_nights_folders_are_names() {
    let test = Test::new().file("s.toml", "noise = 0.002\n");
    let args = ["nightly", "--quick", "--sim", "s.toml", "--history", "h", "debian:6.1", "debian:6.12", "--out", "n"];
    test.run(&args).status(0);
    let night = test.dir().join("n/night.toml");
    let text = fs::read_to_string(&night).unwrap();
    for evil in ["javascript:alert(1)", "/tmp/evil", "../evil", "a/b", ""] {
        let planted = text.replacen("folder = \"ext4\"", &format!("folder = \"{evil}\""), 1);
        assert_ne!(planted, text);
        fs::write(&night, planted).unwrap();
        test.run(&["report", "n"]).status(1).stderr_has("is not a night that this bigiron can read");
    }
    fs::write(&night, text).unwrap();
    test.run(&["report", "n"]).status(0);
    fs::rename(test.dir().join("n/ext4"), test.dir().join("elsewhere")).unwrap();
    symlink(test.dir().join("elsewhere"), test.dir().join("n/ext4")).unwrap();
    test.run(&["report", "n"]).status(1).stderr_has("is a symbolic link");
}

#[test]
fn a_limit_on_file_sizes_is_an_error_and_kills_nothing() {
    let test = Test::new().file("s.toml", STUDY);
    // In blocks of 512 bytes: room for the plan, not for all records.
    let script = format!("ulimit -f 40; exec {} run s.toml --out out --jobs 1", executable().display());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(test.dir()).env("BIGIRON_CACHE", test.dir().join("cache"));
    let ran = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{:?}: {said}", ran.status);
    assert!(said.contains("Every record so far is intact"), "{said}");
    test.run(&["run", "s.toml", "--out", "out"]).status(0).stderr_has("Resuming");
}
