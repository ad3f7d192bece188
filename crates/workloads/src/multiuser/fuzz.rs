//! Workfiles and config files that others have made.

use bigiron_model::fuzz_target;

use super::config_file::ConfigFile;
use super::mixes::LIBRARY;
use super::rates;
use super::workfile::Workfile;

const WORDS: &[&str] = &[
    "FILESIZE:",
    "POOLSIZE:",
    "filesize",
    "10K",
    "25M",
    "4194304M",
    "4294967296K",
    "4294967297K",
    "18446744073709551615M",
    "disk_rd",
    "add_short",
    "sieve",
    "STARTUSERS",
    "ENDUSERS",
    "INCREMENT",
    "JOBS",
    "CROSSOVER",
    "VERBOSE",
    "BRIEF",
    "DISKDIR",
    "OFF",
    "/tmp",
    "#",
    "\u{a0}",
    "\r",
    "4294967295",
    "-1",
    "+1",
];

const CONFIG: &str =
    "FILESIZE 10K\nPOOLSIZE 1M\nDISKDIR /tmp\nSTARTUSERS 1\nENDUSERS 20\nINCREMENT 2\nJOBS 50\nCROSSOVER\n";

#[test]
fn workfiles() {
    let shipped = LIBRARY.shipped.iter().map(|file| file.text.as_bytes().to_vec());
    fuzz_target!(workfiles, shipped.chain([CONFIG.as_bytes().to_vec()]).collect(), WORDS).run(|input| {
        let text = String::from_utf8_lossy(input);
        let config = ConfigFile::parse("config", &text);
        let read = Workfile::parse("mix", &text);
        let file = match (read, config) {
            (Ok(file), _) => file,
            (Err(_), Ok(config)) => return Ok(format!("config {}", config.directories.len().min(3))),
            (Err(why), Err(other)) => return Err(format!("{why} {other}")),
        };
        let again = Workfile::parse("mix", &file.to_string()).expect("the printed form is a workfile");
        assert_eq!(again.to_string(), file.to_string());
        // A user's calls, as a run shares them out.
        let weights: Vec<u32> = file.weights.iter().map(|w| w.weight).collect();
        for jobs in [1, 100, 1_000_000] {
            let calls = rates::calls(&weights, jobs);
            assert!(calls.len() == weights.len() && calls.iter().any(|n| *n > 0));
        }
        Ok(format!("mix {:?} {}", file.file_kib.is_some(), file.weights.len()))
    });
}
