//! ReAIM's config file: the number of users, the amount of data for each, the directories of the disk tests. The format is
//! ReAIM's own.
//!
//! Invariant: a line that ReAIM would ignore is refused, and the error names it.

use std::path::PathBuf;

use super::workfile::{lines, size, size_key, words};
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;

/// The maximum in ReAIM.
pub const MOST_DIRECTORIES: usize = 255;

const KEYS: [&str; 10] =
    ["FILESIZE", "POOLSIZE", "DISKDIR", "STARTUSERS", "ENDUSERS", "INCREMENT", "JOBS", "VERBOSE", "CROSSOVER", "BRIEF"];

/// The contents of a config file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// In KiB.
    pub file_kib: Option<u64>,
    pub pool_kib: Option<u64>,
    pub directories: Vec<PathBuf>,
    pub start: Option<u32>,
    pub end: Option<u32>,
    pub increment: Option<u32>,
    pub jobs: Option<u32>,
    pub crossover: Option<bool>,
}

impl ConfigFile {
    /// Parses `text`; `name` is its name in errors. `VERBOSE` and `BRIEF`, which only change ReAIM's output, are accepted and
    /// ignored.
    ///
    /// # Errors
    /// If a line is not a key and value, a key is unknown, or a value is not allowed.
    pub fn parse(name: &str, text: &str) -> Result<Self, Refusal> {
        let mut file = Self::default();
        for (number, line) in lines(text) {
            file.take(line).map_err(|e| Refusal::new(e).at(Some(format!("{name}:{number}"))))?;
        }
        if let (Some(start), Some(end)) = (file.start, file.end)
            && start > end
        {
            let message = format!("`STARTUSERS` ({start}) is larger than `ENDUSERS` ({end})");
            return Err(Refusal::new(message).at(Some(name.to_owned())));
        }
        // `OFF` instead of the first directory switches all of them off.
        if file.directories.first().is_some_and(|d| d.as_os_str().eq_ignore_ascii_case("off")) {
            file.directories.clear();
        }
        Ok(file)
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let (first, rest) = words(line);
        let key = first.strip_suffix(':').unwrap_or(first).to_ascii_uppercase();
        let count = || match rest.parse::<u32>() {
            Ok(n) if n > 0 => Ok(Some(n)),
            _ => Err(format!("`{key}` cannot be `{rest}`; it can be a whole number from 1")),
        };
        match key.as_str() {
            "FILESIZE" | "POOLSIZE" => {
                let kib = size(rest).map_err(|e| format!("`{key}` {e}"))?;
                let pool = size_key(&key) == Some(super::workfile::POOL);
                *(if pool { &mut self.pool_kib } else { &mut self.file_kib }) = Some(kib);
            }
            "DISKDIR" if rest.is_empty() => return Err("`DISKDIR` is followed by a directory".to_owned()),
            "DISKDIR" if self.directories.len() == MOST_DIRECTORIES => {
                return Err(format!("There are more than {MOST_DIRECTORIES} directories; leave some out"));
            }
            "DISKDIR" => self.directories.push(PathBuf::from(rest)),
            "STARTUSERS" => self.start = count()?,
            "ENDUSERS" => self.end = count()?,
            "INCREMENT" => self.increment = count()?,
            "JOBS" => self.jobs = count()?,
            "VERBOSE" | "CROSSOVER" | "BRIEF" => match rest.parse::<u32>() {
                // ReAIM's rule: 1 is on, any other number is off.
                Ok(n) if key == "CROSSOVER" => self.crossover = Some(n == 1),
                Ok(_) => {}
                Err(_) => return Err(format!("`{key}` cannot be `{rest}`; it can be 0 or 1")),
            },
            _ => {
                return Err(match suggest::nearest(&key, KEYS) {
                    Some(near) => format!("There is no key `{first}`; did you mean `{near}`?"),
                    None => format!("There is no key `{first}`; it can be {}", suggest::list(KEYS)),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ancestors_config_is_read() {
        let text = "# Sample\nFILESIZE 10k\nPOOLSIZE 1m\nDISKDIR /mnt/a\ndiskdir /mnt/b\nSTARTUSERS 2\nENDUSERS 30\nINCREMENT 2\n\
                    JOBS 20\nVERBOSE 1\nCROSSOVER 1\nBRIEF 0\n";
        let config = ConfigFile::parse("c", text).unwrap();
        let expected = ConfigFile {
            file_kib: Some(10),
            pool_kib: Some(1024),
            directories: vec!["/mnt/a".into(), "/mnt/b".into()],
            start: Some(2),
            end: Some(30),
            increment: Some(2),
            jobs: Some(20),
            crossover: Some(true),
        };
        assert_eq!(config, expected);
        assert_eq!(ConfigFile::parse("c", "DISKDIR OFF\nDISKDIR /mnt/a\n").unwrap().directories, Vec::<PathBuf>::new());
    }

    #[test]
    fn a_bad_line_is_named_with_what_would_be_right() {
        let refuse = |text: &str| ConfigFile::parse("reaim.config", text).unwrap_err().to_string();
        assert_eq!(
            refuse("JOBS 20\n\nENDUSER 3\n"),
            "reaim.config:3: There is no key `ENDUSER`; did you mean `ENDUSERS`?"
        );
        assert_eq!(refuse("JOBS 0"), "reaim.config:1: `JOBS` cannot be `0`; it can be a whole number from 1");
        assert_eq!(refuse("CROSSOVER yes"), "reaim.config:1: `CROSSOVER` cannot be `yes`; it can be 0 or 1");
        assert_eq!(refuse("DISKDIR"), "reaim.config:1: `DISKDIR` is followed by a directory");
        assert!(refuse("FILESIZE 10").ends_with("such as `10K` or `25M`"));
        assert_eq!(refuse("STARTUSERS 5\nENDUSERS 4"), "reaim.config: `STARTUSERS` (5) is larger than `ENDUSERS` (4)");
        assert!(refuse(&"DISKDIR /d\n".repeat(256)).starts_with("reaim.config:256: There are more than 255"));
    }
}
