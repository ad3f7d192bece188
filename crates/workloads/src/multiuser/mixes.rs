//! The sources of a mix: the name of a shipped one, a file, a list of tests, or a text embedded in a plan.
//!
//! Invariant: the same value gives the same mix on the host and in a guest, which has no files of the host.

use super::config_file::ConfigFile;
use super::work::Test;
use super::workfile::{self, Weight, Workfile};
use bigiron_model::refusal::Refusal;
use bigiron_workload::library;
use bigiron_workload::library::{Library, shipped, stem};

/// Prefix of an embedded text, before its name.
const NAMED: &str = "# mix ";

/// The workfiles that come with bigiron.
pub const LIBRARY: Library = Library {
    what: "mix of multiuser",
    file: "workfile",
    shipped: shipped!("../../jobs/multiuser/", ".workfile":
        "new_dbase",
        "dbase",
        "compute",
        "fserver",
        "new_fserver",
        "shared",
        "short",
        "long",
        "five_sec",
        "all_utime",
        "high_systime",
        "disk",
        "alltests",
        "aim9",
    ),
    besides: "a workfile, or tests separated by commas",
};

/// A mix and its name.
#[derive(Clone, Default)]
pub struct Mix {
    pub name: String,
    pub file: Workfile,
}

impl Mix {
    /// The mix that `called` names or holds.
    ///
    /// # Errors
    /// If there is no such mix, test or file, or the file is not a workfile.
    pub fn of(called: &str) -> Result<Self, Refusal> {
        if let Some(shipped) = LIBRARY.find(called) {
            return Ok(Self { name: called.to_owned(), file: Workfile::parse(called, shipped.text)? });
        }
        if let Some((name, text)) = embedded(called) {
            return Ok(Self { name: name.to_owned(), file: Workfile::parse(name, text)? });
        }
        if let Some(file) = listed(called)? {
            return Ok(Self { name: called.to_owned(), file });
        }
        let text = read(called)?;
        Ok(Self { name: stem(called), file: Workfile::parse(called, &text)? })
    }

    /// Its tests, with the number of runs by a user with about `jobs` to do.
    pub fn calls(&self, jobs: u32) -> Vec<(&'static Test, u32)> {
        let weights: Vec<u32> = self.file.weights.iter().map(|w| w.weight).collect();
        let calls = super::rates::calls(&weights, jobs);
        self.tests().zip(calls).filter(|(_, calls)| *calls > 0).collect()
    }

    /// Its tests in the workfile's order, including those of weight 0.
    pub fn tests(&self) -> impl Iterator<Item = &'static Test> {
        self.file.weights.iter().map(|w| w.test)
    }
}

/// The value of a mix in a plan: a file's text replaces its path.
///
/// # Errors
/// If the file cannot be read, or is not a workfile.
pub fn embed(called: &str) -> Result<String, Refusal> {
    let mix = Mix::of(called)?;
    let is_a_file = LIBRARY.find(called).is_none() && embedded(called).is_none() && listed(called)?.is_none();
    if !is_a_file {
        return Ok(called.to_owned());
    }
    Ok(format!("{NAMED}{}\n{}", mix.name, read(called)?))
}

/// The value of a config file in a plan: its text.
///
/// # Errors
/// If the file cannot be read, or is not a config file.
pub fn embed_config(called: &str) -> Result<String, Refusal> {
    if called == super::keys::NONE || embedded(called).is_some() {
        return Ok(called.to_owned());
    }
    config(called)?;
    let text = library::read("config file", called)?;
    Ok(format!("{NAMED}{}\n{text}", stem(called)))
}

/// The config file that `called` names or holds.
///
/// # Errors
/// If the file cannot be read, or is not a config file.
pub fn config(called: &str) -> Result<ConfigFile, Refusal> {
    match embedded(called) {
        _ if called == super::keys::NONE => Ok(ConfigFile::default()),
        Some((name, text)) => ConfigFile::parse(name, text),
        None => {
            let text = library::read("config file", called)?;
            ConfigFile::parse(called, &text)
        }
    }
}

/// Name and text of an embedded file. The first line stays in the text, so that line numbers are kept; it is a comment.
fn embedded(called: &str) -> Option<(&str, &str)> {
    let (first, rest) = called.split_once('\n')?;
    Some((first.strip_prefix(NAMED).unwrap_or("workfile"), rest))
}

/// A list of tests of equal weight: a value with a comma, or the name of a test.
fn listed(called: &str) -> Result<Option<Workfile>, Refusal> {
    if called.contains('\n') || !(called.contains(',') || super::work::find(called).is_some()) {
        return Ok(None);
    }
    let weight = |name: &str| workfile::find(name.trim()).map(|test| Weight { weight: 1, test });
    let weights: Vec<Weight> = called.split(',').map(weight).collect::<Result<_, _>>().map_err(Refusal::new)?;
    let twice = weights.iter().enumerate().find(|(n, w)| weights[..*n].iter().any(|e| e.test.name == w.test.name));
    match twice {
        Some((_, w)) => Err(Refusal::new(format!("`{}` is in the list twice; name each test once", w.test.name))),
        None => Ok(Some(Workfile { file_kib: None, pool_kib: None, weights })),
    }
}

fn read(called: &str) -> Result<String, Refusal> {
    LIBRARY.read(called, super::work::catalogue().iter().map(|test| test.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_mix_is_one() {
        // Sums of weights, as published.
        let sums = [
            ("new_dbase", 570, 25),
            ("dbase", 550, 23),
            ("compute", 820, 26),
            ("fserver", 595, 31),
            ("new_fserver", 580, 28),
            ("shared", 780, 53),
            ("short", 340, 17),
            ("long", 180, 18),
            ("five_sec", 220, 11),
            ("all_utime", 170, 16),
            ("high_systime", 260, 18),
            ("disk", 400, 20),
            ("alltests", 980, 62),
            ("aim9", 600, 60),
        ];
        assert_eq!(LIBRARY.shipped.len(), sums.len());
        for (name, sum, tests) in sums {
            let mix = Mix::of(name).map_err(|e| e.to_string()).unwrap();
            assert_eq!(mix.file.weights.iter().map(|w| w.weight).sum::<u32>(), sum, "{name}");
            assert_eq!(mix.tests().count(), tests, "{name}");
            assert_eq!(embed(name).unwrap(), name);
        }
    }

    #[test]
    fn a_file_travels_as_its_text_and_keeps_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.workfile");
        std::fs::write(&path, "FILESIZE: 20K\n10 sieve\n").unwrap();
        let value = embed(path.to_str().unwrap()).unwrap();
        assert_eq!(value, "# mix mine\nFILESIZE: 20K\n10 sieve\n");
        let mix = Mix::of(&value).map_err(|e| e.to_string()).unwrap();
        assert_eq!((mix.name.as_str(), mix.file.file_kib), ("mine", Some(20)));
        assert_eq!(embed(&value).unwrap(), value);
        std::fs::write(&path, "10 seive\n").unwrap();
        let refused = embed(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(refused.ends_with("mine.workfile:1: There is no test `seive`; did you mean `sieve`?"), "{refused}");
    }

    #[test]
    fn a_config_file_travels_as_its_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reaim.config");
        std::fs::write(&path, "JOBS 7\n").unwrap();
        let value = embed_config(path.to_str().unwrap()).unwrap();
        assert_eq!(config(&value).unwrap().jobs, Some(7));
        assert_eq!(embed_config(&value).unwrap(), value);
        assert_eq!(config("none").unwrap(), ConfigFile::default());
        assert!(config("/nonexistent/config").unwrap_err().to_string().starts_with("Cannot read"));
    }

    #[test]
    fn tests_can_be_listed() {
        let mix = Mix::of("add_int, add_long").map_err(|e| e.to_string()).unwrap();
        assert_eq!(
            mix.calls(10).iter().map(|(t, n)| (t.name, *n)).collect::<Vec<_>>(),
            [("add_int", 5), ("add_long", 5)]
        );
        let refuse = |called: &str| Mix::of(called).err().unwrap().to_string();
        assert_eq!(refuse("add_int,add_lnog"), "There is no test `add_lnog`; did you mean `add_long`?");
        assert_eq!(refuse("add_int,add_int"), "`add_int` is in the list twice; name each test once");
        assert_eq!(refuse("newdbase"), "`newdbase` is not a mix of multiuser; did you mean `new_dbase`?");
        assert!(refuse("quite-another").contains("`aim9`, a workfile, or tests separated by commas"));
    }
}
