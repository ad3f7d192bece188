//! Which sources read the clock that can be set (`CLOCK_REALTIME`): none that measures a duration or decides a limit. Durations are of
//! `Instant` and of `CLOCK_MONOTONIC`, which nobody can set.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What reads the time of day, directly or as a file's times.
const READERS: [&str; 13] = [
    "SystemTime::now",
    "UNIX_EPOCH",
    "UnixTime::now",
    "Realtime",
    "CLOCK_REALTIME",
    "CLOCK_TAI",
    "gettimeofday",
    "libc::time(",
    ".modified()",
    ".accessed()",
    ".created()",
    "date::now",
    "TIMER_ABSTIME",
];

/// The files that may, with the number of their lines and why.
const ALLOWED: &[(&str, usize, &str)] = &[
    (
        "crates/archive/src/apt.rs",
        1,
        "when the archive was asked: lists from the future count as old, and are read again",
    ),
    ("crates/archive/src/deb.rs", 1, "the times of a package's files, written and never read"),
    (
        "crates/archive/src/store.rs",
        1,
        "when a kernel was stored: of several with the same bytes the last one is named",
    ),
    ("crates/lab/src/host/ssh/quarantine.rs", 1, "the date of a quarantine, for people"),
    (
        "crates/lab/src/target/boot.rs",
        1,
        "whether a boot was asked for moments ago: a wrong answer asks once more, or waits",
    ),
    (
        "crates/lab/src/target/folder.rs",
        2,
        "the log of a target: when a command was run, and how many reboots the last day has seen",
    ),
    ("crates/lab/src/target/look.rs", 1, "the hours in which a target's administrator allows work"),
    (
        "crates/lab/src/target/mod.rs",
        2,
        "whether a kernel's last words are newer than the trial that it ended, by the times of their files",
    ),
    ("crates/model/src/fuzz/worker.rs", 1, "a seed for tests, each time another"),
    ("crates/model/src/date.rs", 1, "dates in records, which only say when something happened"),
    (
        "crates/service/src/program/root/mod.rs",
        3,
        "the last use of an image: the oldest go, and are made anew if needed",
    ),
    ("crates/service/src/root.rs", 1, "when the archive was asked, as in apt.rs"),
    ("crates/service/src/tree.rs", 1, "the times of a tree's files, written so that an archive of classes stays valid"),
    ("crates/web/src/web99/post_log.rs", 1, "the date in the record of a form, which is written and never read"),
    ("src/commands/bisect/ask.rs", 1, "the date of a bisection"),
    ("src/commands/nightly.rs", 1, "the date of a night"),
    ("src/conduct/mod.rs", 1, "the date of a study"),
    ("src/conduct/noise_card.rs", 1, "which of a machine's checks is the last"),
    ("src/conduct/slurm.rs", 1, "which output of a task is the last, for a message"),
    ("src/rebuild/folder.rs", 1, "a copy has the time of its original, by which make judges"),
    ("src/rebuild/tree.rs", 1, "what make would compile again: make compares the same times"),
    (
        "src/session/worker.rs",
        2,
        "the age of a claim by another machine, from two times of one file system; a wrong one costs a trial that runs twice",
    ),
];

/// The lines of each file below `dir` that read the time of day.
fn readers(root: &Path, dir: &Path, found: &mut BTreeMap<String, Vec<String>>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            readers(root, &path, found);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "c") {
            let text = fs::read_to_string(&path).unwrap();
            // Tests are at the end.
            let text = text.split("mod tests {").next().unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//") && !line.starts_with("use "));
            let lines: Vec<String> =
                code.filter(|line| READERS.iter().any(|word| line.contains(word))).map(str::to_owned).collect();
            if !lines.is_empty() {
                found.insert(path.strip_prefix(root).unwrap().display().to_string(), lines);
            }
        }
    }
}

#[test]
fn no_duration_or_limit_depends_on_the_time_of_day() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeMap::new();
    for dir in ["crates", "src"] {
        readers(root, &root.join(dir), &mut found);
    }
    let counted: BTreeMap<&str, usize> = found.iter().map(|(file, lines)| (file.as_str(), lines.len())).collect();
    let allowed: BTreeMap<&str, usize> = ALLOWED.iter().map(|(file, lines, _)| (*file, *lines)).collect();
    assert_eq!(
        counted, allowed,
        "read a monotonic clock, or say in this test why the time of day is right: {found:#?}"
    );
}
