//! A job file before it becomes a [`Job`]: parsed, overridden key by key, and then built.
//!
//! Invariant: every key is known and every value has the right kind, or the draft is refused with the line; nothing is ignored.

use super::check::check;
use super::class::{self, ClassContext};
use super::keys::{CACHE, COUNT, DATA, JOURNAL, PHASE, RUN, TRANSACTION};
use super::{
    CacheSpec, DataSpec, DataSync, EXTENT, Job, JournalSpec, Length, LogSync, Memory, PhaseSpec, Replacement, RunSpec,
    TransactionSpec, Wire,
};
use bigiron_model::document;
use bigiron_model::document::{Table, Value};
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;
use bigiron_workload::keys;
use bigiron_workload::keys::form::count;

/// The version of the language, the value of the key `dbsim`.
pub const VERSION: u64 = 1;

const ROOT: &[&str] = &["dbsim", "name", "about", "run", "phase", "cache", "data", "journal", "transaction", "process"];

/// Tables with fixed keys, and those keys.
fn tables() -> [(&'static str, Vec<&'static str>); 4] {
    [
        ("run", keys::names(RUN)),
        ("cache", keys::names(CACHE)),
        ("data", keys::names(DATA)),
        ("journal", keys::names(JOURNAL)),
    ]
}

/// Tables of named tables, and the keys of those.
fn named() -> [(&'static str, Vec<&'static str>); 3] {
    [("phase", keys::names(PHASE)), ("transaction", keys::names(TRANSACTION)), ("process", class::keys())]
}

/// The dotted names of all keys that are not of a process, a transaction or a phase, whose names the user chooses.
pub fn dotted() -> Vec<String> {
    tables().iter().flat_map(|(table, keys)| keys.iter().map(move |key| format!("{table}.{key}"))).collect()
}

/// The default cache, for a job with or without transactions.
pub fn default_cache(transacts: bool) -> CacheSpec {
    read_cache(&Table::empty("cache"), transacts).expect("every key has a default")
}

fn read_cache(table: &Table, transacts: bool) -> Result<CacheSpec, Refusal> {
    let bytes = if transacts { 32 << 20 } else { EXTENT as u64 };
    let (memory, replacement) = (Memory::Mmap, Replacement::Clock);
    let mut cache = CacheSpec { bytes, memory, replacement, dirty_percent: 0, prefault: false };
    keys::read_table(CACHE, table, &mut cache)?;
    Ok(cache)
}

/// The default journals, which depend on whether data files bypass the page cache.
pub fn default_journal(data_direct: bool) -> JournalSpec {
    read_journal(&Table::empty("journal"), data_direct).expect("every key has a default")
}

fn read_journal(table: &Table, direct: bool) -> Result<JournalSpec, Refusal> {
    let mut journal = JournalSpec { files: 0, bytes: 0, direct, sync: LogSync::Dsync, block: 0, place: None };
    keys::read_table(JOURNAL, table, &mut journal)?;
    Ok(journal)
}

/// A job file, parsed but not yet built.
#[derive(Clone, Debug)]
pub struct Draft {
    root: Table,
    file: String,
}

/// Whether jobs have a key of that dotted name; the error says what would be right.
pub fn check_key(dotted: &str) -> Result<(), String> {
    let one_of = |key: &str, keys: &[&str], home: String| {
        if keys.contains(&key) {
            return Ok(());
        }
        Err(match suggest::nearest(key, keys.iter().copied()) {
            Some(near) => format!("did you mean `{home}.{near}`?"),
            None => format!("`{home}` has {}", suggest::list(keys)),
        })
    };
    let (tables, named) = (tables(), named());
    let parts: Vec<&str> = dotted.split('.').collect();
    if let [table, key] = parts[..]
        && let Some((_, keys)) = tables.iter().find(|(name, _)| *name == table)
    {
        return one_of(key, keys, table.to_owned());
    }
    if let [table, name, key] = parts[..]
        && let Some((_, keys)) = named.iter().find(|(name, _)| *name == table)
    {
        return if is_name(name) {
            one_of(key, keys, format!("{table}.{name}"))
        } else {
            Err(format!("NAME must be {A_NAME}"))
        };
    }
    let all = &ROOT[3..];
    Err(match suggest::nearest(parts[0], all.iter().copied()) {
        Some(near) if near != parts[0] => format!("did you mean `{near}`?"),
        Some(near) if tables.iter().any(|(name, _)| *name == near) => format!("write `{near}.KEY`"),
        Some(near) => format!("write `{near}.NAME.KEY`"),
        None => format!("keys of a job begin with {}", suggest::list(all)),
    })
}

impl Draft {
    /// Parses the text of the job file called `file`.
    pub fn parse(file: &str, text: &str) -> Result<Self, Refusal> {
        let root = document::parse(file, text, "a job")?;
        let Some(version) = root.get("dbsim") else {
            let message = format!("This is not a dbsim job: it lacks the line `dbsim = {VERSION}`");
            return Err(Refusal::new(message).at(Some(format!("{file}:1"))));
        };
        if version.integer::<u64>()? != VERSION {
            return Err(version.cannot_be(format!("{VERSION}, the version of the language that this bigiron supports")));
        }
        root.only(ROOT)?;
        Ok(Draft { root, file: file.to_owned() })
    }

    /// The job's description of itself.
    pub fn about(&self) -> Option<String> {
        self.root.get("about")?.string().ok()
    }

    /// The job's name from the file's name, unless the text gives one.
    pub fn name_or_stem(&self) -> Result<Option<String>, Refusal> {
        if self.root.get("name").is_some() { Ok(None) } else { self.name().map(Some) }
    }

    /// Overrides the key of that dotted name. Errors call it `said`.
    pub fn set(&mut self, dotted: &str, value: &str, said: &str) -> Result<(), Refusal> {
        check_key(dotted).map_err(|right| Refusal::new(format!("No job has a key `{dotted}`; {right}")))?;
        let path: Vec<&str> = dotted.split('.').collect();
        // The window is work or time: setting one removes the other.
        if let [.., "time" | "transactions"] = path[..] {
            let home = match path[..] {
                ["run", _] => self.root.table_mut("run"),
                ["phase", name, _] => self.root.table_mut("phase").and_then(|phases| phases.table_mut(name)),
                _ => None,
            };
            if let Some(table) = home {
                table.remove("time");
                table.remove("transactions");
            }
        }
        self.root.lay(&path, value, said)
    }

    /// Removes a class.
    pub fn remove_process(&mut self, name: &str) {
        if let Some(processes) = self.root.table_mut("process") {
            processes.remove(name);
        }
    }

    /// Removes a key of a class.
    pub fn remove_process_key(&mut self, name: &str, key: &str) {
        if let Some(table) = self.root.table_mut("process").and_then(|processes| processes.table_mut(name)) {
            table.remove(key);
        }
    }

    /// Names and kinds of the draft's present classes.
    pub fn processes(&self) -> Vec<(String, String)> {
        let Ok(Some(processes)) = self.root.table("process") else { return Vec::new() };
        let kind = |value: &Value| value.table().ok()?.get("kind")?.string().ok();
        processes.items().iter().filter_map(|(key, value)| Some((key.text.clone(), kind(value)?))).collect()
    }

    /// Names and steps of the draft's present transactions.
    pub fn transactions(&self) -> Vec<(String, Vec<String>)> {
        let Ok(Some(transactions)) = self.root.table("transaction") else { return Vec::new() };
        let steps = |value: &Value| value.table().ok()?.get("steps")?.texts().ok();
        let named = |(key, value): &(document::Key, Value)| {
            Some((key.text.clone(), steps(value)?.into_iter().map(|(text, _)| text).collect()))
        };
        transactions.items().iter().filter_map(named).collect()
    }

    /// Builds the job.
    ///
    /// # Errors
    /// If a key is unknown, a value is not allowed, or the job could not run on any machine.
    pub fn job(&self) -> Result<Job, Refusal> {
        let job = self.unchecked()?;
        check(&job).map_err(|complaint| {
            let place = self.root.place_of(&complaint.at.split('.').collect::<Vec<_>>());
            Refusal::new(complaint.message).at(place.or_else(|| Some(self.file.clone())))
        })?;
        Ok(job)
    }

    /// The job that the values describe, without checking their combination.
    pub(super) fn unchecked(&self) -> Result<Job, Refusal> {
        let classes = self.classes()?;
        let transacts = classes.iter().any(|c| c.kind.transacts());
        let data = self.data()?;
        let phases = self.phases()?;
        Ok(Job {
            name: self.name()?,
            run: self.run(phases)?,
            cache: read_cache(&self.table("cache")?, transacts)?,
            journal: read_journal(&self.table("journal")?, data.direct)?,
            data,
            transactions: self.transaction_specs()?,
            classes,
        })
    }

    fn name(&self) -> Result<String, Refusal> {
        if let Some(value) = self.root.get("name") {
            let name = value.string()?;
            return if is_name(&name) { Ok(name) } else { Err(value.cannot_be(A_NAME)) };
        }
        let stem = std::path::Path::new(&self.file).file_stem().and_then(|s| s.to_str()).unwrap_or("");
        let name: String =
            stem.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
        let name = name.trim_matches('-');
        Ok(if is_name(name) { name.to_owned() } else { "job".to_owned() })
    }

    /// The table `name`; an empty one if it does not exist.
    fn table(&self, name: &str) -> Result<Table, Refusal> {
        Ok(self.root.table(name)?.cloned().unwrap_or_else(|| Table::empty(name)))
    }

    fn run(&self, phases: Vec<PhaseSpec>) -> Result<RunSpec, Refusal> {
        let table = self.table("run")?;
        let mut run = RunSpec { length: Length::Auto, ramp: None, phases, acks: None, network: Wire::Loopback };
        keys::read_table(RUN, &table, &mut run)?;
        if let (Some(value), Some(first)) = (length(&table)?, run.phases.first()) {
            return Err(value.refuse(format!(
                "The length of a job with phases is the sum of theirs; omit `{}` and set the length of `phase.{}`",
                value.key(),
                first.name
            )));
        }
        if !run.phases.is_empty() {
            run.length = together(&run.phases);
        }
        Ok(run)
    }

    fn phases(&self) -> Result<Vec<PhaseSpec>, Refusal> {
        let mut phases: Vec<PhaseSpec> = Vec::new();
        for (name, table) in self.named("phase")? {
            let place = self.root.place_of(&["phase", &name]);
            let mut phase = PhaseSpec { name, length: Length::Auto, pace: None };
            keys::read_table(PHASE, &table, &mut phase)?;
            let Some(value) = length(&table)? else {
                let message = format!("Phase `{}` has no length; give `time` or `transactions`", phase.name);
                return Err(Refusal::new(message).at(place));
            };
            let sort = |phase: &PhaseSpec| std::mem::discriminant(&phase.length);
            if phase.length == Length::Auto || phases.first().is_some_and(|first| sort(first) != sort(&phase)) {
                return Err(value.refuse("Either all phases have a `time`, or all have a number of `transactions`"));
            }
            phases.push(phase);
        }
        Ok(phases)
    }

    fn data(&self) -> Result<DataSpec, Refusal> {
        let table = self.table("data")?;
        let mut data =
            DataSpec { files: 0, bytes: 0, direct: true, dontcache: false, sync: DataSync::Dsync, places: Vec::new() };
        keys::read_table(DATA, &table, &mut data)?;
        let consent = table.get("overwrite").map_or(Ok(false), Value::switch)?;
        if let Some(device) = data.places.iter().find(|p| p.starts_with("/dev")).filter(|_| !consent) {
            return Err(Refusal::new(format!(
                "Everything on `{}` would be lost; set `overwrite = true` in `[data]` to allow that",
                device.display()
            ))
            .at(self.root.place_of(&["data", "places"])));
        }
        Ok(data)
    }

    fn transaction_specs(&self) -> Result<Vec<TransactionSpec>, Refusal> {
        let mut all = Vec::new();
        for (name, table) in self.named("transaction")? {
            let place = self.root.place_of(&["transaction", &name]);
            let mut transaction = TransactionSpec { name, weight: 0, steps: Vec::new() };
            keys::read_table(TRANSACTION, &table, &mut transaction)?;
            if table.get("steps").is_none() {
                let message = format!("Transaction `{}` has no `steps`", transaction.name);
                return Err(Refusal::new(message).at(place));
            }
            all.push(transaction);
        }
        // As with the processes of a class, a weight of 0 leaves a transaction out.
        all.retain(|transaction| transaction.weight > 0);
        Ok(all)
    }

    fn classes(&self) -> Result<Vec<super::ClassSpec>, Refusal> {
        let tables = self.named("process")?;
        let kind = |table: &Table| table.get("kind").and_then(|v| v.string().ok());
        let transacts = tables.iter().any(|(_, table)| {
            let some = table.get("count").is_none_or(|value| (count::<u64>(COUNT).read)(value).is_ok_and(|n| n > 0));
            some && kind(table).is_some_and(|k| k == "foreground" || k == "client")
        });
        let direct = self.table("data")?.get("direct").map_or(Ok(true), Value::switch)?;
        let around = ClassContext { direct, transacts };
        let mut classes = Vec::new();
        for (name, table) in &tables {
            let others = tables.iter().filter(|(_, t)| t.get("kind").is_some()).map(|(name, _)| name.as_str());
            if let Some(near) = kind(table).is_none().then(|| suggest::nearest(name, others)).flatten() {
                let message = format!("There is no process `{name}`; did you mean `{near}`?");
                return Err(Refusal::new(message).at(self.root.place_of(&["process", name])));
            }
            let class = class::read(name, table, &around);
            classes.extend(class.map_err(|r| r.at(self.root.place_of(&["process", name])))?);
        }
        Ok(classes)
    }

    /// The tables below `[kind]`, by name, in the order of the file.
    fn named(&self, kind: &str) -> Result<Vec<(String, Table)>, Refusal> {
        let Some(table) = self.root.table(kind)? else { return Ok(Vec::new()) };
        let mut named = Vec::new();
        for (key, value) in table.items() {
            if !is_name(&key.text) {
                let message = format!("`{}` cannot be the name of a {kind}; it can be {A_NAME}", key.text);
                return Err(Refusal::new(message).at(key.place()));
            }
            named.push((key.text.clone(), value.table()?.clone()));
        }
        Ok(named)
    }
}

const A_NAME: &str = "up to 32 lower-case letters, digits and `-`";

fn is_name(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
}

/// The value of `time` or `transactions` of a table.
fn length(table: &Table) -> Result<Option<&Value>, Refusal> {
    match (table.get("transactions"), table.get("time")) {
        (Some(_), Some(time)) => Err(time.refuse("A window has a `time` or a number of `transactions`, not both")),
        (work, time) => Ok(work.or(time)),
    }
}

/// The total length of phases of one sort.
fn together(phases: &[PhaseSpec]) -> Length {
    let time: std::time::Duration =
        phases.iter().filter_map(|p| if let Length::Time(t) = p.length { Some(t) } else { None }).sum();
    if !time.is_zero() {
        return Length::Time(time);
    }
    Length::Transactions(phases.iter().map(|p| if let Length::Transactions(n) = p.length { n } else { 0 }).sum())
}
