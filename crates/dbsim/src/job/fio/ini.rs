//! fio's job file: sections of options, each with its line.
//!
//! Invariant: every line is a comment, a section or an option, or the file is refused with the line.

use bigiron_model::refusal::Refusal;

/// An option in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: String,
    /// `None` for an option without `=`.
    pub value: Option<String>,
    /// `file:line`.
    pub place: String,
}

/// A job of the file, including the options of `[global]` sections before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    pub name: String,
    pub place: String,
    /// The last of each name.
    pub settings: Vec<Setting>,
}

impl Setting {
    pub fn refuse(&self, why: impl std::fmt::Display) -> Refusal {
        Refusal::new(format!("`{}`: {why}", self.name)).at(Some(self.place.clone()))
    }
}

/// The jobs of the fio job file called `file`.
pub fn parse(file: &str, text: &str) -> Result<Vec<Section>, Refusal> {
    let mut global: Vec<Setting> = Vec::new();
    let mut jobs: Vec<Section> = Vec::new();
    // Whether options belong to a job or to all following jobs.
    let mut in_job = None;
    for (i, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", i + 1);
        let refuse = |message: String| Err(Refusal::new(message).at(Some(place.clone())));
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if line.contains("${") || line.starts_with("include ") {
            return refuse("Variables and `include` are not supported; write out their values".to_owned());
        }
        if let Some(name) = line.strip_prefix('[') {
            let Some(name) = name.strip_suffix(']').map(str::trim).filter(|n| !n.is_empty()) else {
                return refuse(format!("`{line}` is not a section; write `[NAME]`"));
            };
            in_job = Some(name != "global");
            if name != "global" {
                jobs.push(Section { name: name.to_owned(), place, settings: global.clone() });
            }
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim().to_owned())),
            None => (line, None),
        };
        let setting = Setting { name: name.to_owned(), value, place: place.clone() };
        let settings = match (in_job, jobs.last_mut()) {
            (Some(true), Some(job)) => &mut job.settings,
            (Some(false), _) => &mut global,
            _ => {
                return refuse(format!("`{line}` is before the first section; write `[global]` or `[NAME]` above it"));
            }
        };
        settings.retain(|s| s.name != setting.name);
        settings.push(setting);
    }
    if jobs.is_empty() {
        return Err(
            Refusal::new("The file has no job; a job is a section other than `[global]`").at(Some(file.to_owned()))
        );
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_global_reaches_the_jobs_that_follow() {
        let jobs =
            parse("f.fio", "; c\n[global]\nbs=4k\ndirect=1\n\n[a]\nbs=8k\n[global]\nsize=1g\n[b]\nthread\n").unwrap();
        let names = |job: &Section| -> Vec<String> {
            job.settings.iter().map(|s| format!("{}={}", s.name, s.value.as_deref().unwrap_or("-"))).collect()
        };
        assert_eq!(names(&jobs[0]), ["direct=1", "bs=8k"]);
        assert_eq!(names(&jobs[1]), ["bs=4k", "direct=1", "size=1g", "thread=-"]);
        assert_eq!(jobs[0].settings[1].place, "f.fio:7");
    }

    #[test]
    fn what_is_no_job_file_is_refused_with_its_line() {
        for (text, want) in [
            ("bs=4k\n", "f.fio:1: `bs=4k` is before the first section"),
            ("[a\n", "f.fio:1: `[a` is not a section"),
            ("[a]\nsize=${SIZE}\n", "f.fio:2: Variables"),
            ("[global]\nbs=4k\n", "f.fio: The file has no job"),
        ] {
            let error = parse("f.fio", text).unwrap_err().to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
