//! A job file on its way to a [`Job`]: read, overridden key by key, and then built.
//!
//! Invariant: every key is known and every value of the right kind, or the draft is refused with the line; nothing is passed over.

use std::path::PathBuf;

use super::check::check;
use super::class::{self, Surroundings};
use super::take;
use super::units;
use super::words;
use super::{
    CacheSpec, DataSpec, DataSync, EXTENT, Job, JournalSpec, Length, LogSync, Memory, PhaseSpec, Replacement, Run,
    TransactionSpec, Wire,
};
use crate::document::{self, Table, Value};
use crate::refusal::Refusal;
use crate::suggest;

/// The version of the language, the value of the key `dbsim`.
pub const VERSION: u64 = 1;

const ROOT: &[&str] = &["dbsim", "name", "about", "run", "phase", "cache", "data", "journal", "transaction", "process"];
/// Tables with keys of their own, and those keys.
const TABLES: &[(&str, &[&str])] = &[
    ("run", &["transactions", "time", "ramp", "acks", "network"]),
    ("cache", &["size", "memory", "replacement", "dirty"]),
    ("data", &["files", "size", "direct", "sync", "places", "overwrite"]),
    ("journal", &["files", "size", "direct", "sync", "block", "place"]),
];
/// Tables of named tables, and the keys of those.
const NAMED: &[(&str, &[&str])] =
    &[("phase", &["time", "transactions", "pace"]), ("transaction", &["weight", "steps"])];

/// Bytes of a cache, of all data files, of a journal, at most.
const BYTES_MAX: u64 = 1 << 40;
const TRANSACTIONS: std::ops::RangeInclusive<u64> = 1..=1_000_000_000_000;

/// The cache if nothing is said, in a job whose processes do transactions or do none.
pub fn default_cache(transacts: bool) -> CacheSpec {
    let bytes = if transacts { 32 << 20 } else { EXTENT as u64 };
    CacheSpec { bytes, memory: Memory::Mmap, replacement: Replacement::Clock, dirty_percent: 25 }
}

/// The journals if nothing is said but whether they bypass the page cache.
pub fn default_journal(direct: bool) -> JournalSpec {
    // A sector of a disk, or a page where direct I/O may want that.
    let block = if direct { 4096 } else { 512 };
    JournalSpec { files: 2, bytes: 4 << 20, direct, sync: LogSync::Dsync, block, place: None }
}

/// A job file, read but not yet built.
#[derive(Clone, Debug)]
pub struct Draft {
    root: Table,
    file: String,
}

/// Whether some job has a key of that dotted name; the error says what would be right.
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
    let keys = |tables: &[(&str, &'static [&'static str])], name: &str| {
        tables.iter().find(|(table, _)| *table == name).map(|(_, keys)| *keys)
    };
    let parts: Vec<&str> = dotted.split('.').collect();
    if let ([table, key], Some(keys)) = (&parts[..], keys(TABLES, parts[0])) {
        return one_of(key, keys, (*table).to_owned());
    }
    if let [table, name, key] = parts[..] {
        let of_any_kind = class::keys();
        let known = if table == "process" { Some(&of_any_kind[..]) } else { keys(NAMED, table) };
        if let Some(known) = known {
            let home = format!("{table}.{name}");
            return if is_name(name) { one_of(key, known, home) } else { Err(format!("NAME is {A_NAME}")) };
        }
    }
    let tables = &ROOT[3..];
    Err(match suggest::nearest(parts[0], tables.iter().copied()) {
        Some(near) if near != parts[0] => format!("did you mean `{near}`?"),
        Some(near) if keys(TABLES, near).is_some() => format!("write `{near}.KEY`"),
        Some(near) => format!("write `{near}.NAME.KEY`"),
        None => format!("keys of a job begin with {}", suggest::list(tables)),
    })
}

impl Draft {
    /// Reads the text of the job file called `file`.
    pub fn parse(file: &str, text: &str) -> Result<Self, Refusal> {
        let root = document::parse(file, text, "a job")?;
        let Some(version) = root.get("dbsim") else {
            let message = format!("This is no dbsim job: it does not say `dbsim = {VERSION}`");
            return Err(Refusal::new(message).at(Some(format!("{file}:1"))));
        };
        if version.integer::<u64>()? != VERSION {
            return Err(version.cannot_be(format!("{VERSION}, the version of the language that this bigiron reads")));
        }
        root.only(ROOT)?;
        Ok(Draft { root, file: file.to_owned() })
    }

    /// What the job says of itself.
    pub fn about(&self) -> Option<String> {
        self.root.get("about")?.string().ok()
    }

    /// The name that the file's own gives the job, unless the text says one.
    pub fn name_or_stem(&self) -> Result<Option<String>, Refusal> {
        if self.root.get("name").is_some() { Ok(None) } else { self.name().map(Some) }
    }

    /// Lays a value over the key of that dotted name. A complaint calls it `said`.
    pub fn set(&mut self, dotted: &str, value: &str, said: &str) -> Result<(), Refusal> {
        check_key(dotted).map_err(|right| Refusal::new(format!("No job has a key `{dotted}`; {right}")))?;
        let path: Vec<&str> = dotted.split('.').collect();
        // The window is work or time: saying one unsays the other.
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

    /// Takes a class away.
    pub fn remove_process(&mut self, name: &str) {
        if let Some(processes) = self.root.table_mut("process") {
            processes.remove(name);
        }
    }

    /// Takes a key of a class away.
    pub fn remove_process_key(&mut self, name: &str, key: &str) {
        if let Some(table) = self.root.table_mut("process").and_then(|processes| processes.table_mut(name)) {
            table.remove(key);
        }
    }

    /// Names and kinds of the classes that the draft has by now.
    pub fn processes(&self) -> Vec<(String, String)> {
        let Ok(Some(processes)) = self.root.table("process") else { return Vec::new() };
        let kind = |value: &Value| value.table().ok()?.get("kind")?.string().ok();
        processes.items().iter().filter_map(|(key, value)| Some((key.text.clone(), kind(value)?))).collect()
    }

    /// Names and steps of the transactions that the draft has by now.
    pub fn transactions(&self) -> Vec<(String, Vec<String>)> {
        let Ok(Some(transactions)) = self.root.table("transaction") else { return Vec::new() };
        let steps = |value: &Value| value.table().ok()?.get("steps")?.texts().ok();
        let named = |(key, value): &(document::Key, Value)| {
            Some((key.text.clone(), steps(value)?.into_iter().map(|(text, _)| text).collect()))
        };
        transactions.items().iter().filter_map(named).collect()
    }

    /// The job.
    ///
    /// # Errors
    /// If a key is unknown, a value is not what it can be, or the job could not run on any machine.
    pub fn job(&self) -> Result<Job, Refusal> {
        let job = self.unchecked()?;
        check(&job).map_err(|complaint| {
            let place = self.root.place_of(&complaint.at.split('.').collect::<Vec<_>>());
            Refusal::new(complaint.message).at(place.or_else(|| Some(self.file.clone())))
        })?;
        Ok(job)
    }

    /// The job that the values describe, whether or not they go together.
    pub(super) fn unchecked(&self) -> Result<Job, Refusal> {
        let classes = self.classes()?;
        let transacts = classes.iter().any(|c| c.kind.transacts());
        let data = self.data()?;
        let phases = self.phases()?;
        Ok(Job {
            name: self.name()?,
            run: self.run(phases)?,
            cache: self.cache(transacts)?,
            journal: self.journal(data.direct)?,
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

    /// The table `name` with only the keys it can have; an empty one if it is not there.
    fn section(&self, name: &str) -> Result<Table, Refusal> {
        let Some(table) = self.root.table(name)? else { return Ok(Table::empty(name)) };
        if let Some((_, keys)) = TABLES.iter().find(|(table, _)| *table == name) {
            table.only(keys)?;
        }
        Ok(table.clone())
    }

    fn run(&self, phases: Vec<PhaseSpec>) -> Result<Run, Refusal> {
        let table = self.section("run")?;
        let ramp = table.get("ramp").map(|value| {
            let text = value.scalar()?;
            let ramp = match text.parse() {
                Ok(n) if n <= *TRANSACTIONS.end() => Some(Length::Transactions(n)),
                _ => units::duration(&text).map(Length::Time),
            };
            ramp.ok_or_else(|| value.cannot_be(format!("a number of transactions, or {}", units::A_TIME)))
        });
        let length = length(&table)?;
        if let (Some((_, value)), Some(first)) = (&length, phases.first()) {
            let key = format!("phase.{}", first.name);
            return Err(value.refuse(format!(
                "A job with phases is as long as they are together; leave `{}` away and say how long `{key}` is",
                value.key()
            )));
        }
        let length = match phases.first() {
            Some(_) => together(&phases),
            None => length.map_or(Length::Auto, |(length, _)| length),
        };
        let acks = table.get("acks").map(|value| value.string()?.parse().map_err(|right| value.cannot_be(right)));
        let network = take::word(&table, "network", Wire::Loopback)?;
        Ok(Run { length, ramp: ramp.transpose()?, phases, acks: acks.transpose()?, network })
    }

    fn phases(&self) -> Result<Vec<PhaseSpec>, Refusal> {
        let mut phases: Vec<PhaseSpec> = Vec::new();
        for (name, table) in self.named("phase")? {
            table.only(NAMED[0].1)?;
            let Some((length, value)) = length(&table)? else {
                return Err(Refusal::new(format!("Phase `{name}` has no length; give `time` or `transactions`"))
                    .at(self.root.place_of(&["phase", &name])));
            };
            let other = phases
                .first()
                .is_some_and(|first| std::mem::discriminant(&first.length) != std::mem::discriminant(&length));
            if length == Length::Auto || other {
                return Err(value.refuse("All phases are a `time`, or all are a number of `transactions`"));
            }
            let pace = class::pace(&table)?;
            phases.push(PhaseSpec { name, length, pace });
        }
        Ok(phases)
    }

    fn cache(&self, transacts: bool) -> Result<CacheSpec, Refusal> {
        let table = self.section("cache")?;
        let default = default_cache(transacts);
        Ok(CacheSpec {
            bytes: take::bytes(&table, "size", default.bytes, EXTENT as u64..=BYTES_MAX, EXTENT as u64)?,
            memory: match table.get("memory") {
                None => default.memory,
                Some(value) => words::memory(&value.string()?).ok_or_else(|| value.cannot_be(words::A_MEMORY))?,
            },
            replacement: take::word(&table, "replacement", default.replacement)?,
            dirty_percent: take::percent(&table, "dirty", default.dirty_percent, 1..=90)?,
        })
    }

    fn data(&self) -> Result<DataSpec, Refusal> {
        let table = self.section("data")?;
        let files = take::count(&table, "files", 10, 1..=4096)?;
        let unit = files * EXTENT as u64;
        let places = match table.get("places") {
            Some(value) => value.texts()?.into_iter().map(|(text, _)| PathBuf::from(text)).collect::<Vec<_>>(),
            None => Vec::new(),
        };
        let consent = take::switch(&table, "overwrite", false)?;
        if let Some(device) = places.iter().find(|p| p.starts_with("/dev")).filter(|_| !consent) {
            return Err(Refusal::new(format!(
                "Everything on `{}` would be lost; say `overwrite = true` in `[data]` if that is meant",
                device.display()
            ))
            .at(self.root.place_of(&["data", "places"])));
        }
        Ok(DataSpec {
            files: files as usize,
            bytes: take::bytes(&table, "size", (120 << 20) / unit * unit, unit..=BYTES_MAX, unit)?,
            direct: take::switch(&table, "direct", true)?,
            sync: take::word(&table, "sync", DataSync::Dsync)?,
            places,
        })
    }

    fn journal(&self, data_direct: bool) -> Result<JournalSpec, Refusal> {
        let table = self.section("journal")?;
        let direct = take::switch(&table, "direct", data_direct)?;
        let default = default_journal(direct);
        let block = take::bytes(&table, "block", default.block as u64, 512..=64 << 10, 512)?;
        if let Some(value) = table.get("block").filter(|_| !block.is_power_of_two()) {
            return Err(value.cannot_be("a power of 2 from 512 to 64K"));
        }
        Ok(JournalSpec {
            files: take::count(&table, "files", default.files as u64, 2..=64)? as usize,
            bytes: take::bytes(&table, "size", default.bytes, EXTENT as u64..=1 << 36, EXTENT as u64)?,
            direct,
            sync: take::word(&table, "sync", default.sync)?,
            block: block as usize,
            place: table.get("place").map(|value| value.string().map(PathBuf::from)).transpose()?,
        })
    }

    fn transaction_specs(&self) -> Result<Vec<TransactionSpec>, Refusal> {
        let mut all = Vec::new();
        for (name, table) in self.named("transaction")? {
            table.only(NAMED[1].1)?;
            let Some(steps) = table.get("steps") else {
                return Err(Refusal::new(format!("Transaction `{name}` has no `steps`"))
                    .at(self.root.place_of(&["transaction", &name])));
            };
            let steps =
                steps.texts()?.into_iter().map(|(text, value)| text.parse().map_err(|e: String| value.refuse(e)));
            let spec = TransactionSpec {
                weight: take::count(&table, "weight", 1, 0..=1_000_000)? as u32,
                steps: steps.collect::<Result<_, _>>()?,
                name,
            };
            // As with the processes of a class, none of a kind is a way of leaving it out.
            if spec.weight > 0 {
                all.push(spec);
            }
        }
        Ok(all)
    }

    fn classes(&self) -> Result<Vec<super::ClassSpec>, Refusal> {
        let tables = self.named("process")?;
        let kind = |table: &Table| table.get("kind").and_then(|v| v.string().ok());
        let transacts = tables.iter().any(|(_, table)| {
            let some = take::count(table, "count", 1, class::COUNT).is_ok_and(|n| n > 0);
            some && kind(table).is_some_and(|k| k == "foreground" || k == "client")
        });
        let direct = take::switch(&self.section("data")?, "direct", true)?;
        let around = Surroundings { direct, transacts };
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

/// `time` or `transactions` of a table, with the value that says so.
fn length(table: &Table) -> Result<Option<(Length, &Value)>, Refusal> {
    match (table.get("transactions"), table.get("time")) {
        (Some(_), Some(time)) => Err(time.refuse("A window is a `time` or a number of `transactions`, not both")),
        (None, Some(value)) => match units::duration(&value.scalar()?).filter(|t| !t.is_zero()) {
            Some(time) => Ok(Some((Length::Time(time), value))),
            None => Err(value.cannot_be(units::A_TIME)),
        },
        (Some(value), None) => {
            let text = value.scalar()?;
            let length = match text.as_str() {
                "auto" => Some(Length::Auto),
                n => n.parse().ok().filter(|n| TRANSACTIONS.contains(n)).map(Length::Transactions),
            };
            let right = || format!("a number from 1 to {}, or `auto`", TRANSACTIONS.end());
            Ok(Some((length.ok_or_else(|| value.cannot_be(right()))?, value)))
        }
        (None, None) => Ok(None),
    }
}

/// How long phases of one sort are together.
fn together(phases: &[PhaseSpec]) -> Length {
    let time: std::time::Duration =
        phases.iter().filter_map(|p| if let Length::Time(t) = p.length { Some(t) } else { None }).sum();
    if !time.is_zero() {
        return Length::Time(time);
    }
    Length::Transactions(phases.iter().map(|p| if let Length::Transactions(n) = p.length { n } else { 0 }).sum())
}
