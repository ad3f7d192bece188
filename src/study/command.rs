//! A user's program as the workload of a question: the words after `--`, and the table `[command]` of a study file.
//!
//! Invariant: both become options of the workload `command`, so that no code below depends on how they were given.

use super::question::Question;
use crate::study::setting;
use bigiron_lab::lever;
use bigiron_model::document::{Key, Table, Value};
use bigiron_model::refusal::Refusal;
use bigiron_model::setting::Setting;
use bigiron_workloads::command::NAME;
use bigiron_workloads::command::declared::Declared;
use bigiron_workloads::command::spec::{ENVIRONMENT, ProgramSource};

/// The option that holds the program.
pub const RUN: &str = "command.run";
/// The option that holds the declared metrics.
pub const METRICS: &str = "command.metrics";

/// Adds the program after `--` and the metrics declared for it, if any.
///
/// # Errors
/// If a metric is malformed, or a program is set twice.
pub fn ask(q: &mut Question, program: &[String], metrics: &[String]) -> Result<(), Refusal> {
    if !program.is_empty() {
        q.settings.push((RUN.to_owned(), ProgramSource::option(program)));
    }
    for metric in metrics {
        Declared::parse(metric).map_err(|e| Refusal::new(format!("--metric: {e}")))?;
    }
    if !metrics.is_empty() {
        q.settings.push((METRICS.to_owned(), metrics.join("\n")));
    }
    lever::check_duplicates(&q.settings)?;
    imply(q, !program.is_empty());
    Ok(())
}

/// A program without any other workload implies the workload `command`.
fn imply(q: &mut Question, named: bool) {
    let is_run = |(lever, _): &Setting| lever == RUN;
    let of_arms = q.arms.iter().any(|arm| arm.settings.iter().any(is_run));
    let wanted = named || (q.workloads.is_empty() && (of_arms || q.settings.iter().any(is_run)));
    if wanted && !q.workloads.iter().any(|w| w == NAME) {
        q.workloads.push(NAME.to_owned());
    }
}

/// The equivalent arguments: `--metric`s, and the words after `--`.
pub fn arguments(settings: &[Setting]) -> (Vec<String>, Vec<String>) {
    let value = |name: &str| settings.iter().find(|(lever, _)| lever == name).map(|(_, value)| value.as_str());
    let metrics = value(METRICS).unwrap_or("").lines().flat_map(|line| ["--metric".to_owned(), line.to_owned()]);
    let program = value(RUN).and_then(|run| match ProgramSource::parse(run) {
        Ok(ProgramSource::Words(words)) => Some([vec!["--".to_owned()], words].concat()),
        _ => None,
    });
    (metrics.collect(), program.unwrap_or_default())
}

/// Whether [`arguments`] covers this setting.
pub fn is_argument((lever, value): &Setting) -> bool {
    lever == METRICS || (lever == RUN && matches!(ProgramSource::parse(value), Ok(ProgramSource::Words(_))))
}

/// Parses the table `[command]` of a study file.
///
/// # Errors
/// If a key is unknown or a value is not allowed; the message has the line.
pub fn read(table: &Table, q: &mut Question) -> Result<(), Refusal> {
    const KEYS: [&str; 12] =
        ["run", "prepare", "dir", "repeats", "warmup", "limit", "reduce", "stdout", "disk", "roots", "env", "metric"];
    table.only(&KEYS)?;
    for (key, value) in table.items() {
        match key.text.as_str() {
            "run" => add(q, RUN, run(value)?, value)?,
            "prepare" => add(q, "command.prepare", run(value)?, value)?,
            "roots" => add(q, "command.roots", list(value)?.join("\n"), value)?,
            "env" => {
                for (name, value) in value.table()?.items() {
                    add(q, &format!("{NAME}.{ENVIRONMENT}{}", name.text), value.string()?, value)?;
                }
            }
            "metric" => {
                let lines = value.array()?.iter().map(metric).collect::<Result<Vec<_>, _>>()?;
                add(q, METRICS, lines.join("\n"), value)?;
            }
            name => add(q, &format!("{NAME}.{name}"), value.scalar()?, value)?,
        }
    }
    imply(q, false);
    Ok(())
}

/// A program in a study file: a line for the shell, or a list of words.
///
/// # Errors
/// If it is anything else.
pub fn run(value: &Value) -> Result<String, Refusal> {
    match value.array() {
        Ok(_) => Ok(ProgramSource::option(&list(value)?)),
        Err(_) => value.string().map_err(|_| value.refuse("A command is a string or a list of strings")),
    }
}

fn list(value: &Value) -> Result<Vec<String>, Refusal> {
    value.array()?.iter().map(Value::string).collect()
}

fn add(q: &mut Question, lever: &str, value: String, place: &Value) -> Result<(), Refusal> {
    setting::check(lever, &value).map_err(|e| place.refuse(e.to_string()))?;
    q.settings.push((lever.to_owned(), value));
    lever::check_duplicates(&q.settings).map_err(|e| place.refuse(e.to_string()))
}

/// A `[[command.metric]]` as its declaration in one line.
fn metric(value: &Value) -> Result<String, Refusal> {
    let table = value.table()?;
    table.only(&["name", "unit", "better", "of", "kind", "from", "json", "regex"])?;
    let text = |name: &str| table.get(name).map(Value::scalar).transpose();
    let mut line = text("name")?.ok_or_else(|| value.refuse("This metric has no `name`"))?;
    let of = |key: &Key| ["json", "regex"].contains(&key.text.as_str());
    for (key, value) in table.items().iter().filter(|(key, _)| key.text != "name" && !of(key)) {
        let text = value.scalar()?;
        if text.contains([',', '\n']) {
            return Err(value.refuse(format!("`{}` of a metric cannot have a comma", key.text)));
        }
        line.push_str(&format!(",{}={text}", key.text));
    }
    let found: Vec<_> = table.items().iter().filter(|(key, _)| of(key)).collect();
    let place = match found[..] {
        [(key, found)] => {
            let text = found.string()?;
            if text.contains('\n') {
                return Err(found.refuse("A metric is matched within one line; write `\\n` in a regular expression"));
            }
            line.push_str(&format!(",{}={text}", key.text));
            found
        }
        _ => return Err(value.refuse("A metric has either `json` or `regex`")),
    };
    Declared::parse(&line).map_err(|e| place.refuse(e))?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::file;

    #[test]
    fn a_study_file_says_all_that_arguments_can() {
        let text = r#"
arms = ["running", "running,command.env.FAST=1"]
[command]
run = ["./bench", "--json"]
repeats = 5
limit = "30s"
env = { THREADS = "4" }
[[command.metric]]
name = "rate"
unit = "op/s"
better = "higher"
regex = 'rate ([0-9]+), '
"#;
        let q = file::parse("s.toml", text).unwrap();
        assert_eq!(q.workloads, [NAME]);
        let get = |lever: &str| q.settings.iter().find(|(l, _)| l == lever).map(|(_, v)| v.as_str());
        assert_eq!(get(RUN), Some(r#"["./bench","--json"]"#));
        assert_eq!((get("command.repeats"), get("command.env.THREADS")), (Some("5"), Some("4")));
        assert_eq!(get(METRICS), Some("rate,unit=op/s,better=higher,regex=rate ([0-9]+), "));
        let (metrics, program) = arguments(&q.settings);
        assert_eq!(program, ["--", "./bench", "--json"]);
        assert_eq!(metrics, ["--metric", "rate,unit=op/s,better=higher,regex=rate ([0-9]+), "]);
        let mut same = Question::default();
        ask(&mut same, &program[1..], &metrics[1..]).unwrap();
        assert_eq!((same.settings.len(), same.workloads.len()), (2, 1));
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line() {
        for (text, want) in [
            ("[command]\nrun = 7", "s.toml:2: A command is a string or a list of strings"),
            ("[command]\nrun = [\"a\", 7]", "s.toml:2: `run[1]` must be a string"),
            ("[command]\nrpeats = 7", "s.toml:2: Unknown key `rpeats`; did you mean `repeats`?"),
            ("[command]\nenv = { \"a b\" = \"1\" }", "s.toml:2: Unknown lever `command.env.a b`"),
            ("[[command.metric]]\nunit = \"s\"", "s.toml:1: This metric has no `name`"),
            ("[[command.metric]]\nname = \"t\"\nunit = \"s\"", "s.toml:1: A metric has either `json` or `regex`"),
            (
                "[[command.metric]]\nname = \"t\"\nunit = \"s\"\nbetter = \"lower\"\nregex = \"took (\"",
                "s.toml:5: Metric `t`: `took (` is not a regular expression",
            ),
            ("[command]\nrun = \"x\"\n[set]\ncommand.run = \"y\"", "s.toml:2: Lever `command.run` is set twice"),
        ] {
            let error = file::parse("s.toml", text).unwrap_err().to_string();
            assert!(error.starts_with(want), "{text:?}: {error}");
        }
    }
}
