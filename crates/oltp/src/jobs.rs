//! The sources of a job: the name of a shipped one, a file, or a text embedded in a plan; and the values that override its keys.
//!
//! Invariant: the same options give the same values on the host and in a guest, which has no files of the host.

use std::iter;

use super::options::{AS_JOB, KEYS};
use bigiron_model::document;
use bigiron_model::document::{Table, Value};
use bigiron_model::refusal::Refusal;
use bigiron_model::workload::Options;
use bigiron_sql::catalogue::{self, Catalogue, setting};
use bigiron_workload::keys;
use bigiron_workload::library::{Library, Shipped, shipped, stem};

/// The version of the language, the value of the key `oltp`.
const VERSION: u64 = 1;

/// The jobs that come with bigiron; every other job takes missing values from the first.
pub const LIBRARY: Library = Library {
    what: "job of oltp",
    file: "job file",
    shipped: shipped!("../jobs/", ".toml": "default", "cached", "uncached", "oast"),
    besides: "or a file",
};

/// All values given for a run, by job and options.
pub struct Draft {
    pub name: String,
    said: Table,
    job: Table,
    default: Table,
}

fn parse(name: &str, text: &str) -> Result<Table, Refusal> {
    let table = document::parse(name, text, "a job")?;
    table.only(&[&["oltp", "name", "about", "claim", "postgres", "mariadb"], &keys::names(KEYS)[..]].concat())?;
    match table.get("oltp") {
        None => return Err(Refusal::new("An oltp job must begin with `oltp = 1`").at(Some(name.to_owned()))),
        Some(v) if v.integer::<u64>()? != VERSION => return Err(v.cannot_be(VERSION)),
        Some(_) => {}
    }
    for catalogue in catalogue::ALL {
        for (key, _) in table.table(catalogue.server)?.into_iter().flat_map(Table::items) {
            catalogue.check_name("oltp", &key.text).map_err(|e| Refusal::new(e).at(key.place()))?;
        }
    }
    Ok(table)
}

/// The value of a job in a plan: a file's text replaces its path; its name is added in the first line unless the text gives one.
///
/// # Errors
/// If the file cannot be read, or is not a job.
pub fn embed(called: &str) -> Result<String, Refusal> {
    if called.contains('\n') || LIBRARY.find(called).is_some() {
        return Ok(called.to_owned());
    }
    let text = LIBRARY.read(called, iter::empty())?;
    if parse(called, &text)?.get("name").is_some() {
        return Ok(format!("{text}\n"));
    }
    Ok(format!("name = {:?}\n{text}\n", stem(called)))
}

/// The purpose of a shipped job, in one line.
pub fn about(job: &Shipped) -> String {
    let job = parse(job.name, job.text).ok();
    job.and_then(|job| job.get("about")?.string().ok()).unwrap_or_default()
}

impl Draft {
    /// The job named by the complete `options`, with their other values.
    ///
    /// # Errors
    /// If there is no such job, or its text is not a job.
    pub fn new(options: &Options) -> Result<Self, Refusal> {
        let default = &LIBRARY.shipped[0];
        let called = options.get("job").map_or(default.name, String::as_str);
        let (name, job) = match LIBRARY.find(called) {
            Some(shipped) => (shipped.name.to_owned(), parse(shipped.name, shipped.text)?),
            None if called.contains('\n') => ("job".to_owned(), parse("job", called)?),
            None => (stem(called), parse(called, &LIBRARY.read(called, iter::empty())?)?),
        };
        let name = job.get("name").map_or(Ok(name), Value::string)?;
        let mut said = Table::empty("");
        for (key, value) in options.iter().filter(|(key, value)| *key != "job" && *value != AS_JOB) {
            let path: Vec<&str> = match setting(key) {
                // A setting's name may itself contain a dot.
                Some((catalogue, setting)) => vec![catalogue.server, setting],
                None => vec![key],
            };
            said.lay(&path, value, &format!("oltp.{key}"))?;
        }
        Ok(Self { name, said, job, default: parse(default.name, default.text)? })
    }

    /// The effective value of `key`.
    pub fn get(&self, key: &str) -> &Value {
        let said = [&self.said, &self.job, &self.default].into_iter().find_map(|table| table.get(key));
        said.expect("the job `default` says everything")
    }

    /// The value of `key` if an option gives another one than the job `default` has.
    pub fn set(&self, key: &str) -> Option<&Value> {
        let of = |table: &Table| table.get(key).and_then(|value| value.scalar().ok());
        self.said.get(key).filter(|_| of(&self.said) != of(&self.default))
    }

    /// The job's claim about its run, if any.
    pub fn claim(&self) -> Option<&Value> {
        self.job.get("claim")
    }

    /// The settings of a kind of server in the order in which they take effect: the job's, then those of options.
    ///
    /// # Errors
    /// If one is not a string, a number or a truth value, or has a line break.
    pub fn settings(&self, of: &Catalogue) -> Result<Vec<(String, String)>, Refusal> {
        let mut settings: Vec<(String, String)> = Vec::new();
        for table in [&self.default, &self.job, &self.said] {
            for (key, value) in table.table(of.server)?.into_iter().flat_map(Table::items) {
                let text = match value.bool() {
                    Some(on) => if on { "on" } else { "off" }.to_owned(),
                    None => value.scalar()?,
                };
                if text.chars().any(char::is_control) {
                    return Err(value.refuse(format!("The value of `{}` has a control character", value.key())));
                }
                match settings.iter_mut().find(|(name, _)| *name == key.text) {
                    Some(earlier) => earlier.1 = text,
                    None => settings.push((key.text.clone(), text)),
                }
            }
        }
        Ok(settings)
    }

    /// A setting that an option gives for another kind of server than `of`.
    pub fn foreign_setting(&self, of: Option<&Catalogue>) -> Result<Option<String>, Refusal> {
        for other in catalogue::ALL.into_iter().filter(|other| of.is_none_or(|of| of.server != other.server)) {
            if let Some((key, _)) = self.said.table(other.server)?.and_then(|table| table.items().first()) {
                return Ok(Some(format!("oltp.{}.{}", other.server, key.text)));
            }
        }
        Ok(None)
    }
}
