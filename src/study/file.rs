//! The study file: a [`Question`] in TOML.
//!
//! Invariant: every key is known and every value has the right type, or the file is refused with the line; nothing is ignored.

use crate::study::setting;
use std::path::Path;

use super::arm::ArmText;
use super::command;
use super::question::{Question, QuestionPlaces};
use super::{ready_made, sizing};
use bigiron_lab::lever;
use bigiron_model::document;
use bigiron_model::document::{Table, Value};
use bigiron_model::host::HostName;
use bigiron_model::margins;
use bigiron_model::refusal::Refusal;
use bigiron_model::setting::Setting;
use bigiron_model::size;
use bigiron_model::suggest;

/// A parsed study file: the question, and the text it was parsed from (for a host's own table, such as `[sim]`).
#[derive(Clone, Debug)]
pub struct StudyFile {
    pub question: Question,
    pub text: String,
}

/// Reads a study file.
///
/// # Errors
/// If the file cannot be read or is refused.
pub fn read(path: &Path) -> Result<StudyFile, Refusal> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => Refusal::new(format!("The study file `{name}` is not text in UTF-8")),
        _ => Refusal::new(format!("Cannot read the study file `{name}`: {e}")),
    })?;
    Ok(StudyFile { question: parse(&name, &text)?, text })
}

/// Reads the study file at `path`, or the ready-made study of that name.
///
/// # Errors
/// If there is neither, or the file is refused.
pub fn find(path: &Path) -> Result<StudyFile, Refusal> {
    let name = path.to_str().filter(|name| !name.contains('/') && !name.contains('.') && !path.is_file());
    if path.is_dir() {
        let shown = path.display();
        return Err(Refusal::new(format!("`{shown}` is a folder; name a study file, or a ready-made study"))
            .hint(format!("`bigiron report {shown}` prints the report of a study's folder, `bigiron studies` lists ready-made studies")));
    }
    let Some(name) = name else { return read(path) };
    let text = ready_made::find(name)?.text.to_owned();
    Ok(StudyFile { question: parse(name, &text)?, text })
}

/// Parses the text of a study file called `name`.
pub fn parse(name: &str, text: &str) -> Result<Question, Refusal> {
    let root = document::parse(name, text, "a study")?;
    root.only(&["question", "arms", "arm", "workloads", "design", "machine", "margins", "set", "command", "sim"])?;
    let mut q = Question {
        places: QuestionPlaces { file: name.to_owned(), ..QuestionPlaces::default() },
        ..Question::default()
    };
    q.text = root.get("question").map(|v| v.string()).transpose()?;
    arms(&root, &mut q)?;
    if let Some(workloads) = root.get("workloads") {
        q.places.lines.insert("workloads".into(), workloads.line());
        for item in workloads.array()? {
            q.places.lines.insert(format!("workloads.{}", q.workloads.len()), item.line());
            q.workloads.push(item.string()?);
        }
    }
    if let Some(set) = root.get("set") {
        q.places.lines.insert("set".into(), set.line());
        q.settings = settings(set)?;
    }
    if let Some(table) = root.table("command")? {
        command::read(table, &mut q)?;
    }
    if let Some(design) = root.table("design")? {
        design.only(&["pairs", "budget", "precision", "rebuilds", "seed", "clock", "hang-limit", "idle-gap"])?;
        q.pairs = noted(design, "pairs", &mut q.places, |v| v.integer())?;
        q.budget = noted(design, "budget", &mut q.places, |v| sizing::budget(&v.string()?).map_err(|e| v.refuse(e)))?;
        q.precision =
            noted(design, "precision", &mut q.places, |v| sizing::precision(&v.scalar()?).map_err(|e| v.refuse(e)))?;
        q.rebuilds = noted(design, "rebuilds", &mut q.places, |v| v.integer())?;
        q.seed = noted(design, "seed", &mut q.places, |v| v.integer())?;
        q.hang_limit = noted(design, "hang-limit", &mut q.places, |v| v.integer())?;
        q.idle_gap = noted(design, "idle-gap", &mut q.places, |v| v.integer())?;
        q.clock = noted(design, "clock", &mut q.places, |v| v.string()?.parse().map_err(|e: String| v.refuse(e)))?;
    }
    if let Some(machine) = root.table("machine")? {
        machine.only(&["cpus", "memory", "storage", "filesystem", "host", "qemu"])?;
        q.cpus = noted(machine, "cpus", &mut q.places, |v| v.integer())?;
        q.memory_bytes =
            noted(machine, "memory", &mut q.places, |v| size::parse_bytes(&v.string()?).map_err(|e| v.refuse(e)))?;
        q.storage = noted(machine, "storage", &mut q.places, |v| v.string())?;
        q.filesystem = noted(machine, "filesystem", &mut q.places, |v| v.string())?;
        let host: Option<HostName> =
            noted(machine, "host", &mut q.places, |v| v.string()?.parse().map_err(|r: Refusal| v.refuse(r.message)))?;
        (q.host, q.targets) = host.map_or((None, Vec::new()), |host| (Some(host.kind), host.targets));
        q.qemu =
            noted(machine, "qemu", &mut q.places, |v| v.string()?.parse().map_err(|r: Refusal| v.refuse(r.message)))?;
    }
    if let Some(table) = root.table("margins")? {
        for (key, value) in table.items() {
            let kind = margins::kind(&key.text).map_err(|r| r.at(key.place()))?;
            let margin = margins::from_percent(value.number()?).map_err(|r| r.at(value.place()))?;
            q.margins.insert(kind, margin);
        }
    }
    Ok(q)
}

/// The value of `table.key`; its line is recorded.
fn noted<T>(
    table: &Table,
    key: &str,
    places: &mut QuestionPlaces,
    read: impl Fn(&Value) -> Result<T, Refusal>,
) -> Result<Option<T>, Refusal> {
    let Some(value) = table.get(key) else { return Ok(None) };
    places.lines.insert(format!("{}.{key}", table.name), value.line());
    read(value).map(Some)
}

fn arms(root: &Table, q: &mut Question) -> Result<(), Refusal> {
    if let (Some(_), Some(long)) = (root.get("arms"), root.get("arm")) {
        return Err(long.refuse("A study has either `arms = […]` or `[[arm]]` tables, not both"));
    }
    if let Some(arms) = root.get("arms") {
        q.places.lines.insert("arms".into(), arms.line());
        for item in arms.array()? {
            q.places.lines.insert(format!("arms.{}", q.arms.len()), item.line());
            q.arms.push(ArmText::parse(&item.string()?).map_err(|r| r.at(item.place()))?);
        }
    }
    if let Some(tables) = root.get("arm") {
        q.places.lines.insert("arms".into(), tables.line());
        for item in tables.array()? {
            let table = item.table()?;
            table.only(&["kernel", "name", "set", "command"])?;
            let Some(kernel) = table.get("kernel") else {
                return Err(item.refuse("This arm has no `kernel`"));
            };
            q.places.lines.insert(format!("arms.{}", q.arms.len()), kernel.line());
            let mut arm = ArmText {
                name: table.get("name").map(|v| v.string()).transpose()?,
                kernel: kernel.string()?,
                settings: table.get("set").map_or(Ok(Vec::new()), settings)?,
            };
            if let Some(command) = table.get("command") {
                arm.settings.push((command::RUN.to_owned(), command::run(command)?));
            }
            arm.check().map_err(|r| r.at(item.place()))?;
            q.arms.push(arm);
        }
    }
    Ok(())
}

/// A table of settings. `boot.nosmt = true` is a lever without a value; dotted and quoted keys mean the same.
fn settings(set: &Value) -> Result<Vec<Setting>, Refusal> {
    let mut found = Vec::new();
    leaves(set, "", &mut found)?;
    // In the order of the file, which is the order on the command line.
    found.sort_by_key(|(offset, ..)| *offset);
    let mut settings: Vec<Setting> = Vec::new();
    for (_, lever, value) in found {
        let text = match value.bool() {
            Some(true) if lever.starts_with("boot.") => lever.clone(),
            Some(_) => {
                let right = suggest::list([format!("{lever} = \"VALUE\"")]);
                return Err(value.refuse(format!("`{lever}` cannot be a truth value; write {right}")));
            }
            None => format!("{lever}={}", value.scalar()?),
        };
        settings.push(setting::parse(&text).map_err(|e| value.refuse(e.to_string()))?);
        lever::check_duplicates(&settings).map_err(|e| value.refuse(e.to_string()))?;
    }
    Ok(settings)
}

fn leaves<'v>(value: &'v Value, prefix: &str, found: &mut Vec<(usize, String, &'v Value)>) -> Result<(), Refusal> {
    for (key, value) in value.table()?.items() {
        let lever = if prefix.is_empty() { key.text.clone() } else { format!("{prefix}.{}", key.text) };
        if value.is_table() {
            leaves(value, &lever, found)?;
        } else {
            found.push((key.offset(), lever, value));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_model::clock::Clock;
    use bigiron_model::metric::Kind;
    use bigiron_model::qemu::QemuSource;

    #[test]
    fn a_study_says_everything_that_arguments_can() {
        let q = parse(
            "study.toml",
            r#"
question = "Do the mitigations cost us anything?"
workloads = ["micro"]

[[arm]]
kernel = "debian:6.12"
name = "safe"

[[arm]]
kernel = "debian:6.12"
set = { boot.mitigations = "off", "boot.nosmt" = true }

[design]
pairs = 8
budget = "2h"
precision = 1.5
rebuilds = 8
seed = 7
clock = "exact"
hang-limit = 90
idle-gap = 0

[machine]
cpus = 1
memory = "2G"
storage = "ssd"
filesystem = "xfs"
qemu = "system"

[margins]
throughput = 1
p999 = 12.5

[set]
boot.hugepages = 64
"#,
        )
        .unwrap();
        assert_eq!(q.arms.len(), 2);
        assert_eq!(q.arms[0].name.as_deref(), Some("safe"));
        assert_eq!(q.arms[1].to_string(), "debian:6.12,boot.mitigations=off,boot.nosmt");
        assert_eq!(q.settings, [("boot.hugepages".to_owned(), "64".to_owned())]);
        assert_eq!((q.pairs, q.seed, q.clock, q.hang_limit), (Some(8), Some(7), Some(Clock::Exact), Some(90)));
        assert_eq!(q.rebuilds, Some(8));
        // That they contradict each other is refused later.
        assert_eq!((q.budget.map(|time| time.as_secs()), q.precision), (Some(7200), Some(0.015)));
        assert_eq!((q.cpus, q.memory_bytes, q.idle_gap), (Some(1), Some(2 << 30), Some(0)));
        assert_eq!(q.qemu, Some(QemuSource::System));
        assert_eq!(q.text.as_deref(), Some("Do the mitigations cost us anything?"));
        assert_eq!(q.margins[&Kind::P999], 0.125);
        assert_eq!(q.places.of("design.pairs").as_deref(), Some("study.toml:14"));
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line() {
        for (text, want) in [
            ("arms = []\n\n[design]\npars = 8", "s.toml:4: Unknown key `pars`; did you mean `pairs`?"),
            (
                "[design]\nzzzzzz = 8",
                "s.toml:2: Unknown key `zzzzzz`; `[design]` has `pairs`, `budget`, `precision`, `rebuilds`, `seed`, `clock`, `hang-limit` or `idle-gap`",
            ),
            ("[design]\npairs = \"8\"", "s.toml:2: `pairs` must be a whole number of 0 or more, not a string"),
            ("[design]\npairs = -8", "s.toml:2: `pairs` cannot be -8; it must be a whole number of 0 or more"),
            ("arms = [\n \"debian:6.1\",\n 7,\n]", "s.toml:3: `arms[1]` must be a string, not an integer"),
            ("arms = [\n \"debian:6.1,boot.root=x\"]", "s.toml:2: Lever `boot.root` cannot be set"),
            ("\n[machine]\nmemory = \"lots\"", "s.toml:3: `lots` is not an amount of memory"),
            ("[machine]\nqemu = \"newest\"", "s.toml:2: Unknown QEMU `newest`; it can be `pinned` or `system`"),
            ("[margins]\nspeed = 1", "s.toml:2: `speed` is not a kind of metric"),
            ("[margins]\np99 = 80", "s.toml:2: A margin of 80 % cannot be used"),
            ("[set]\nbot.mitigations = \"off\"", "s.toml:2: Unknown lever `bot.mitigations`"),
            ("[set]\nboot.mitigations = false", "s.toml:2: `boot.mitigations` cannot be a truth value"),
            ("[[arm]]\nname = \"x\"", "s.toml:1: This arm has no `kernel`"),
            ("arms = []\n[[arm]]\nkernel = \"x\"", "s.toml:2: A study has either"),
            ("arms = [\n", "s.toml:"),
            ("design = 3", "s.toml:1: `design` must be a table"),
        ] {
            let error = parse("s.toml", text).unwrap_err().to_string();
            assert!(error.starts_with(want), "{text:?}: {error}");
        }
    }
}
