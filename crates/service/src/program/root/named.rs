//! The files that a command names, by their content: a study of a program ends with the program.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bigiron_archive::hash;

use super::ProgramNeeds;

/// Digits of a hash.
const DIGITS: usize = 16;
/// The command's first words: a program, and what an interpreter runs.
const FIRST: usize = 2;

/// A hash for each file that runs, as `file WORD`: the first two words, and all others that are executables or scripts. Other files may be what the
/// command writes.
///
/// # Errors
/// Those of reading the files.
pub fn hashes(wanted: &ProgramNeeds<'_>) -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for (i, word) in wanted.words.iter().enumerate() {
        let Some(path) = file(wanted, word) else { continue };
        if i < FIRST || runs(&path)? {
            found.insert(format!("file {word}"), hash::of_file(&path)?[..DIGITS].to_owned());
        }
    }
    Ok(found)
}

fn file(wanted: &ProgramNeeds<'_>, word: &str) -> Option<PathBuf> {
    let beside = || wanted.dir.map(|dir| dir.join(word));
    let path = (wanted.find)(word).ok().or_else(beside)?;
    path.is_file().then_some(path)
}

fn runs(path: &Path) -> io::Result<bool> {
    let mut start = [0; 2];
    let script = File::open(path)?.read_exact(&mut start).is_ok() && start == *b"#!";
    Ok(script || fs::metadata(path)?.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_counts_and_what_is_written_does_not() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("plain", "true\n"), ("script", "#!/bin/sh\n"), ("result.json", "{}"), ("tool", "ELF")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        fs::set_permissions(dir.path().join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        let sh = dir.path().join("tool");
        let names = |words: &[&str]| {
            let wanted = ProgramNeeds {
                whose: "the command",
                words: words.iter().map(|&w| w.to_owned()).collect(),
                dir: Some(dir.path()),
                find: &|word| if word == "sh" { Ok(sh.clone()) } else { Err(String::new()) },
                roots: &[],
                less: "",
            };
            hashes(&wanted).unwrap()
        };
        let found = names(&["sh", "plain", "script", "result.json", "tool", "nothing"]);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["file plain", "file script", "file sh", "file tool"]);
        fs::write(dir.path().join("plain"), "false\n").unwrap();
        assert_ne!(names(&["sh", "plain"])["file plain"], found["file plain"]);
    }
}
