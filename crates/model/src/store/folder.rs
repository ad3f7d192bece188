//! A study's folder: created once with its plan, and opened any number of times for reading. Format: docs/reference/folder.md.
//!
//! Invariant: reading takes no lock and changes nothing, so a report can be made while the study is running, and from a folder on read-only media.
//! All records are written by [`Writer`].

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::StoreError;
use super::line::{self, sha256_hex};
use super::writer::{self, LOCK, Writer, lock};
use crate::folder_files;
use crate::plan::{Plan, SCHEMA};
use crate::record::{Outcome, Record};

pub(super) const PLAN: &str = "plan.toml";
pub(super) const RECORDS: &str = "records.jsonl";
pub(super) const ARTIFACTS: &str = "artifacts";

/// First lines of `plan.toml`; the last one ends with the checksum of all following bytes.
pub(super) const PREAMBLE: &str =
    "# A bigiron plan, written before the first boot. The records belong to it as it is: do not edit.\n# sha256 ";

/// A study's folder.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    plan: Plan,
}

/// The content of a folder's `records.jsonl`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// Every readable record, in the order of writing.
    pub records: Vec<Record>,
    /// Unreadable lines, numbered from 1, and why. Their trials count as not run.
    pub unreadable: Vec<(usize, String)>,
}

impl Folder {
    /// Creates a new study's folder: `dir` (and its parents) if necessary, and its plan.
    ///
    /// # Errors
    /// `dir` holds a study or anything else, it cannot be written, or the plan contradicts itself.
    pub fn create(dir: &Path, plan: &Plan) -> Result<Self, StoreError> {
        let path = dir.join(PLAN);
        if path.exists() {
            return Err(StoreError::Exists { dir: dir.to_owned() });
        }
        fs::create_dir_all(dir).map_err(|e| StoreError::io("create the folder", dir, e))?;
        if Self::holds_other_things(dir) {
            return Err(StoreError::NotEmpty { dir: dir.to_owned() });
        }
        let bytes = plan_bytes(plan).map_err(|why| StoreError::BadPlan { path: path.clone(), why })?;
        let lock = writer::lock(dir)?;
        if path.exists() {
            // Another process was quicker.
            return Err(StoreError::Exists { dir: dir.to_owned() });
        }
        write_whole(dir, PLAN, &bytes)?;
        // As in `Writer`'s drop.
        let _ = lock.unlock();
        if let Some(parent) = dir.canonicalize().ok().as_deref().and_then(Path::parent) {
            // The new folder's own name must survive a power loss too; if the parent cannot be opened, continue anyway.
            let _ = File::open(parent).and_then(|d| d.sync_all());
        }
        Self::open(dir)
    }

    /// Whether `dir` holds anything that creating a study never leaves there; a folder that does not exist holds nothing.
    pub fn holds_other_things(dir: &Path) -> bool {
        // Hidden files are ignored; they may include the temporary plan and the lock of a killed start.
        let harmless = |name: &OsStr| name.as_encoded_bytes().starts_with(b".") || name == LOCK;
        let Ok(mut entries) = fs::read_dir(dir) else { return false };
        entries.any(|e| e.map_or(true, |e| !harmless(&e.file_name())))
    }

    /// Opens the folder of a study.
    ///
    /// # Errors
    /// There is no plan, it has another format, it was edited, or it contradicts itself.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(PLAN);
        let bytes = match folder_files::read(dir, PLAN) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(StoreError::NoStudy { dir: dir.to_owned() });
            }
            other => other.map_err(|e| StoreError::io("read", &path, e))?,
        };
        let plan = read_plan(&path, &bytes)?;
        Ok(Folder { dir: dir.to_owned(), plan })
    }

    /// The folder itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The study's plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Reads every record. A line that cannot be read or does not belong to the plan is reported and skipped.
    pub fn records(&self) -> Result<Records, StoreError> {
        let path = self.dir.join(RECORDS);
        match folder_files::read(&self.dir, RECORDS) {
            Ok(bytes) => Ok(read_records(&self.plan, &bytes)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Records::default()),
            Err(e) => Err(StoreError::io("read", &path, e)),
        }
    }

    /// Takes the folder's lock and prepares for appending records.
    pub fn writer(&self) -> Result<Writer, StoreError> {
        Writer::new(&self.dir)
    }

    /// Fails if another bigiron is at work in the folder; changes nothing.
    pub fn check_idle(&self) -> Result<(), StoreError> {
        lock(&self.dir).map(drop)
    }

    /// Directory of one trial's artefacts, relative to the folder.
    pub fn artifacts_name(slot: u32, arm: &str, attempt: u32) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._+=-".contains(c);
        // Long enough for any kernel's name, short enough for any file system; the slot's number alone makes it unique.
        let arm: String = arm.chars().take(80).map(|c| if plain(c) { c } else { '_' }).collect();
        format!("{ARTIFACTS}/{slot:04}-{arm}-{attempt}")
    }

    /// The bytes of one of a trial's artefacts, by its name in the record; nothing outside `artifacts/` is one.
    ///
    /// # Errors
    /// It is no artefact, or cannot be read.
    pub fn artifact(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let read = match Path::new(name).strip_prefix(ARTIFACTS) {
            Ok(_) => folder_files::read(&self.dir, name),
            Err(_) => Err(std::io::Error::new(ErrorKind::InvalidInput, "it is not below `artifacts`")),
        };
        read.map_err(|e| StoreError::io("read", &self.dir.join(name), e))
    }

    /// Writes `report.html`, `report.txt` and the like: readers see the old file or the new one, never a part.
    pub fn write_report(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, StoreError> {
        write_whole(&self.dir, name, bytes)
    }
}

/// Writes a file under a temporary name, syncs it, and gives it its name.
pub fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, StoreError> {
    let path = dir.join(name);
    folder_files::write_whole(dir, name, bytes, 0o666).map_err(|e| StoreError::io("write", &path, e))?;
    Ok(path)
}

pub(super) fn plan_bytes(plan: &Plan) -> Result<Vec<u8>, String> {
    check_plan(plan)?;
    let body = toml::to_string(plan).map_err(|e| e.to_string())?;
    // A plan that does not read back unchanged is refused now, not at the first resume.
    let again: Plan = toml::from_str(&body).map_err(|e| e.to_string())?;
    if again != *plan {
        return Err("it does not read back from TOML as it was written".to_owned());
    }
    Ok(format!("{PREAMBLE}{}\n{body}", sha256_hex(body.as_bytes())).into_bytes())
}

fn read_plan(path: &Path, bytes: &[u8]) -> Result<Plan, StoreError> {
    let bad = |why: String| StoreError::BadPlan { path: path.to_owned(), why };
    let edited = |why: &str| StoreError::Edited { path: path.to_owned(), why: why.to_owned() };
    let text = std::str::from_utf8(bytes).map_err(|e| bad(e.to_string()))?;
    let Some((sum, body)) = text.strip_prefix(PREAMBLE).and_then(|rest| rest.split_once('\n')) else {
        // Another version's plan may begin differently: report the version, not an edit.
        schema_of(path, text)?;
        return Err(edited("its first two lines are not those that bigiron writes"));
    };
    schema_of(path, body)?;
    if sha256_hex(body.as_bytes()) != sum {
        return Err(edited("its checksum does not match"));
    }
    let plan: Plan = toml::from_str(body).map_err(|e| bad(e.to_string()))?;
    check_plan(&plan).map_err(bad)?;
    Ok(plan)
}

/// Refuses another format before the rest of the plan is read.
fn schema_of(path: &Path, body: &str) -> Result<(), StoreError> {
    #[derive(Deserialize)]
    struct Version {
        schema: Option<i64>,
    }
    let version: Version =
        toml::from_str(body).map_err(|e| StoreError::BadPlan { path: path.to_owned(), why: e.to_string() })?;
    match version.schema {
        Some(found) if found == i64::from(SCHEMA) => Ok(()),
        Some(found) => Err(StoreError::Schema { path: path.to_owned(), found, ours: SCHEMA }),
        None => Err(StoreError::BadPlan { path: path.to_owned(), why: "it names no `schema`".to_owned() }),
    }
}

/// Checks what the store, the session and the judge rely on when they use an index.
fn check_plan(plan: &Plan) -> Result<(), String> {
    if plan.schema != SCHEMA {
        return Err(format!("its schema is {}, not {SCHEMA}", plan.schema));
    }
    let names: BTreeSet<_> = plan.arms.iter().map(|a| &a.name).collect();
    if names.len() != plan.arms.len() {
        return Err("two arms have the same name".to_owned());
    }
    let builds = plan.design.rebuilds.unwrap_or(0) as usize;
    if plan.design.rebuilds == Some(0) || plan.arms.iter().any(|arm| arm.builds.len() != builds) {
        return Err(format!("its design has {builds} builds of each arm, and not every arm has that many"));
    }
    // Readers go through all pairs of the design.
    if plan.design.pairs as usize > plan.slots.len() {
        return Err(format!("its design has {} pairs, and its schedule {} slots", plan.design.pairs, plan.slots.len()));
    }
    let mut machines = vec![None; plan.design.pairs as usize];
    for (index, slot) in plan.slots.iter().enumerate() {
        if slot.slot as usize != index {
            return Err(format!("slot {index} is numbered {}", slot.slot));
        }
        if slot.arm >= plan.arms.len() {
            return Err(format!("slot {index} names arm {} of {}", slot.arm, plan.arms.len()));
        }
        if slot.pair >= plan.design.pairs {
            return Err(format!("slot {index} names pair {} of {}", slot.pair, plan.design.pairs));
        }
        if *machines[slot.pair as usize].get_or_insert(slot.machine) != slot.machine {
            return Err(format!("pair {} runs on two machines", slot.pair));
        }
        if slot.machine as usize >= plan.machine.members.len().max(1) {
            return Err(format!("slot {index} names machine {} of {}", slot.machine, plan.machine.members.len()));
        }
        if slot.order.iter().any(|&w| w >= plan.workloads.len()) {
            return Err(format!("slot {index} names a workload that is not in the plan"));
        }
    }
    Ok(())
}

/// Length of `bytes` up to and including the last newline: what follows was not fully written.
pub(super) fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1)
}

fn read_records(plan: &Plan, bytes: &[u8]) -> Records {
    let mut read = Records::default();
    let mut finished = BTreeSet::new();
    let (lines, torn) = bytes.split_at(whole(bytes));
    let mut number = 0;
    for line in lines.split_inclusive(|&b| b == b'\n') {
        number += 1;
        match line::decode::<Record>(&line[..line.len() - 1]).and_then(|r| belongs(plan, &r).map(|()| r)) {
            // A trial has one outcome; a second one means that files were joined.
            Ok(r) if !matches!(r.outcome, Outcome::Void { .. }) && !finished.insert((r.slot, r.attempt)) => {
                read.unreadable.push((number, format!("slot {} attempt {} has a record already", r.slot, r.attempt)));
            }
            Ok(r) => read.records.push(r),
            Err(why) => read.unreadable.push((number, why)),
        }
    }
    if !torn.is_empty() {
        let why = format!("torn: {} bytes without an end, as a kill or a power loss leaves them", torn.len());
        read.unreadable.push((number + 1, why));
    }
    read
}

/// Whether the record belongs to one of the plan's slots.
pub(super) fn belongs(plan: &Plan, r: &Record) -> Result<(), String> {
    let Some(slot) = plan.slots.get(r.slot as usize) else {
        return Err(format!("the plan has no slot {}", r.slot));
    };
    let arm = &plan.arms[slot.arm];
    if (r.pair, r.position, &r.arm) != (slot.pair, slot.position, &arm.name) {
        return Err(format!(
            "slot {} of the plan is pair {}, position {}, arm `{}`; the record says pair {}, position {}, arm `{}`",
            r.slot, slot.pair, slot.position, arm.name, r.pair, r.position, r.arm
        ));
    }
    let machine = plan.machine_of(slot).map(|member| member.name.as_str());
    if r.machine.as_deref() != machine {
        let said = |name: Option<&str>| name.map_or_else(|| "no machine".to_owned(), |name| format!("`{name}`"));
        return Err(format!(
            "slot {} of the plan runs on {}; the record says {}",
            r.slot,
            said(machine),
            said(r.machine.as_deref())
        ));
    }
    if r.image_sha256 != plan.image_of(slot) {
        return Err(format!("it booted a kernel image other than that of the plan's arm `{}`", arm.name));
    }
    Ok(())
}
