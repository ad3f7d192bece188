//! Trials that workers ran side by side, perhaps on many machines: each is delivered as a folder of its own, `slots/SLOT-ATTEMPT`, and the session
//! that holds the folder's lock takes them into the records.
//!
//! Invariant: a delivery appears whole or not at all, the first one of a trial stays, and nothing that was delivered is ever removed. On the exact
//! clock a second delivery of a trial must have the same digits; a study with one that differs cannot be judged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::folder::{Folder, belongs};
use super::line;
use super::writer::{Writer, files_below};
use crate::folder_files::{self, Access};
use crate::plan::Plan;
use crate::record::Record;

/// The folder of all deliveries.
pub(super) const SLOTS: &str = "slots";
const RECORD: &str = "record.jsonl";
const ARTIFACTS: &str = "artifacts";
/// The end of the name of a delivery that differs from the first one of its trial.
const DIFFERS: &str = ".differs";

/// A trial that is about to run, with the place for its artefacts. Dropping it removes both.
#[derive(Debug)]
pub struct Delivery<'f> {
    folder: &'f Folder,
    name: String,
    dir: PathBuf,
}

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivered {
    /// It is the trial's result.
    First,
    /// Another worker was quicker, with the same digits.
    Same,
    /// Another worker was quicker, with other digits; names the first metric or other part that differs.
    Differs(String),
}

impl Folder {
    /// Prepares for a trial of this slot and attempt. `machine` tells machines apart.
    pub fn delivery(&self, slot: u32, attempt: u32, machine: &str) -> Result<Delivery<'_>, StoreError> {
        let name = format!("{slot:04}-{attempt}");
        let temporary = format!("{SLOTS}/.{name}.{machine}.{}", std::process::id());
        let failed = |e| StoreError::io("create", &self.dir().join(&temporary), e);
        // What a killed process of the same number left.
        folder_files::remove_all(self.dir(), &temporary).map_err(failed)?;
        folder_files::make_folders(self.dir(), format!("{temporary}/{ARTIFACTS}")).map_err(failed)?;
        Ok(Delivery { folder: self, name, dir: self.dir().join(temporary) })
    }

    /// Every record that was delivered, by attempt and slot.
    ///
    /// # Errors
    /// A delivery cannot be read, does not belong to the plan, or differs from another one of the same trial.
    pub fn delivered(&self) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        for name in self.delivery_names()? {
            if let Some(trial) = name.split_once(DIFFERS).map(|(trial, _)| trial) {
                let why = fs::read_to_string(self.dir().join(SLOTS).join(&name)).unwrap_or_default();
                return Err(StoreError::Deliveries { dir: self.dir().join(SLOTS), trial: trial.to_owned(), why });
            }
            let path = format!("{SLOTS}/{name}/{RECORD}");
            let bytes = folder_files::read(self.dir(), &path)
                .map_err(|e| StoreError::io("read", &self.dir().join(&path), e))?;
            let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            let record = line::decode::<Record>(line).and_then(|r| belongs(self.plan(), &r).map(|()| r));
            let bad = |why| StoreError::BadDelivery { path: self.dir().join(&path), why };
            records.push(record.map_err(bad)?);
        }
        records.sort_by_key(|r: &Record| (r.attempt, r.slot));
        Ok(records)
    }

    /// The deliveries that `known`, the study's records, lacks.
    ///
    /// # Errors
    /// As [`Folder::delivered`], or a delivery differs from the record of the same trial, which a session ran itself.
    pub fn not_taken(&self, known: &[Record]) -> Result<Vec<Record>, StoreError> {
        let known: BTreeMap<_, _> = known.iter().map(|r| ((r.slot, r.attempt), r)).collect();
        let mut lacking = Vec::new();
        for record in self.delivered()? {
            let Some(ours) = known.get(&(record.slot, record.attempt)) else {
                lacking.push(record);
                continue;
            };
            if let Some(why) = difference(self.plan(), ours, &record).filter(|_| self.plan().clock.is_exact()) {
                let trial = format!("{:04}-{}", record.slot, record.attempt);
                return Err(StoreError::Deliveries { dir: self.dir().join(SLOTS), trial, why });
            }
        }
        Ok(lacking)
    }

    fn delivery_names(&self) -> Result<Vec<String>, StoreError> {
        let dir = self.dir().join(SLOTS);
        let failed = |e| StoreError::io("list", &dir, e);
        let entries = match fs::read_dir(&dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            // Deliveries that are not complete yet, and claims, begin with a dot.
            if name.starts_with(|c: char| c.is_ascii_digit()) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

impl Delivery<'_> {
    /// Where the trial leaves its artefacts.
    pub fn artifacts(&self) -> PathBuf {
        self.dir.join(ARTIFACTS)
    }

    /// Completes the record with the names of its artefacts, and delivers it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn complete(self, record: &mut Record, machine: &str) -> Result<Delivered, StoreError> {
        let to = Folder::artifacts_name(record.slot, &record.arm, record.attempt);
        let files = files_below(&self.artifacts()).map_err(|e| StoreError::io("list", &self.dir, e))?;
        record.artifacts = files.iter().map(|file| format!("{to}/{}", file.to_string_lossy())).collect();
        let line = line::encode(record).map_err(StoreError::Unwritable)?;
        let path = self.dir.join(RECORD);
        let write = || {
            let mut file = folder_files::open(&self.dir, RECORD, Access::New, 0o666)?;
            file.write_all(&line).and_then(|()| file.sync_all())?;
            File::open(&self.dir)?.sync_all()
        };
        write().map_err(|e| StoreError::io("write", &path, e))?;
        let slots = self.folder.dir().join(SLOTS);
        let target = slots.join(&self.name);
        // A folder with something in it is never replaced.
        match fs::rename(&self.dir, &target) {
            Ok(()) => {
                File::open(&slots).and_then(|d| d.sync_all()).map_err(|e| StoreError::io("sync", &slots, e))?;
                Ok(Delivered::First)
            }
            Err(e) if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
                self.beside(&target, record, machine)
            }
            Err(e) => Err(StoreError::io("deliver", &target, e)),
        }
    }

    /// Compares the record with the one that another worker delivered.
    fn beside(&self, target: &Path, record: &Record, machine: &str) -> Result<Delivered, StoreError> {
        let bytes = folder_files::read(target, RECORD).map_err(|e| StoreError::io("read", &target.join(RECORD), e))?;
        let first = line::decode::<Record>(bytes.strip_suffix(b"\n").unwrap_or(&bytes))
            .map_err(|why| StoreError::BadDelivery { path: target.join(RECORD), why })?;
        if !self.folder.plan().clock.is_exact() {
            return Ok(Delivered::Same);
        }
        let Some(what) = difference(self.folder.plan(), &first, record) else { return Ok(Delivered::Same) };
        let slots = self.folder.dir().join(SLOTS);
        folder_files::write_whole(
            &slots,
            &format!("{}{DIFFERS}", self.name),
            format!("{what}, on {machine}").as_bytes(),
            0o666,
        )
        .map_err(|e| StoreError::io("write", &slots, e))?;
        Ok(Delivered::Differs(what))
    }
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        // Nothing is there after a delivery.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Writer {
    /// Takes delivered trials that `known` lacks into the records, and returns them.
    ///
    /// # Errors
    /// As [`Folder::not_taken`], or a record cannot be written.
    pub fn take_deliveries(&mut self, folder: &Folder, known: &[Record]) -> Result<Vec<Record>, StoreError> {
        let mut taken = Vec::new();
        for record in folder.not_taken(known)? {
            let from = folder.dir().join(SLOTS).join(format!("{:04}-{}", record.slot, record.attempt)).join(ARTIFACTS);
            let to = self.artifacts(record.slot, &record.arm, record.attempt)?;
            for name in &record.artifacts {
                let relative =
                    Path::new(name).strip_prefix(Folder::artifacts_name(record.slot, &record.arm, record.attempt));
                let Ok(relative) = relative else { continue };
                let copy = || {
                    let parent = to.join(relative);
                    fs::create_dir_all(parent.parent().unwrap_or(&to))?;
                    fs::copy(from.join(relative), to.join(relative))
                };
                copy().map_err(|e| StoreError::io("copy", &from.join(relative), e))?;
            }
            if record.artifacts.is_empty() {
                self.discard(&to)?;
            }
            self.append(&record)?;
            taken.push(record);
        }
        Ok(taken)
    }
}

/// The first part of what two runs of a trial measured that differs; what they cost may.
fn difference(plan: &Plan, first: &Record, second: &Record) -> Option<String> {
    if first.outcome != second.outcome {
        return Some("the outcomes differ".to_owned());
    }
    for workload in plan.workloads.iter().map(|w| &w.name) {
        let (a, b): (Vec<_>, Vec<_>) = (first.metrics.of(workload).collect(), second.metrics.of(workload).collect());
        if let Some(((metric, a), (_, b))) = a.iter().zip(&b).find(|(a, b)| a != b) {
            return Some(format!("`{workload}.{metric}` is {a} and {b}"));
        }
        if a.len() != b.len() {
            return Some(format!("the metrics of `{workload}` differ"));
        }
    }
    (first.counters != second.counters).then(|| "the kernel's counters differ".to_owned())
}

/// Whether trials of this plan can be delivered by workers.
///
/// # Errors
/// Why not.
pub fn check(plan: &Plan) -> Result<(), String> {
    if !plan.machine.members.is_empty() {
        return Err("each of its pairs belongs to one of several machines".to_owned());
    }
    if plan.clock.is_exact() || plan.machine.host == crate::host::HostKind::Sim {
        return Ok(());
    }
    Err(format!("its clock is `{}`, where a trial depends on the machine; workers need the exact clock", plan.clock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::record::Outcome;
    use crate::store::testing::{plan, record};

    fn folder(clock: Clock) -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(&dir.path().join("study"), &plan(4, 2, clock, 7)).unwrap();
        (dir, folder)
    }

    fn deliver(folder: &Folder, slot: u32, machine: &str, change: impl FnOnce(&mut Record)) -> Delivered {
        let delivery = folder.delivery(slot, 0, machine).unwrap();
        fs::write(delivery.artifacts().join("console.log"), machine).unwrap();
        let mut delivered = record(folder.plan(), slot, 0, Outcome::Completed);
        change(&mut delivered);
        delivery.complete(&mut delivered, machine).unwrap()
    }

    #[test]
    fn the_first_delivery_stays_and_is_taken_once_with_its_artefacts() {
        let (_dir, folder) = folder(Clock::Exact);
        assert_eq!(deliver(&folder, 3, "a", |_| {}), Delivered::First);
        // What it cost may differ.
        assert_eq!(deliver(&folder, 3, "b", |r| r.host.wall_s = 99.0), Delivered::Same);
        assert_eq!(deliver(&folder, 1, "b", |_| {}), Delivered::First);
        // A worker that was killed, and one that is at work.
        folder.delivery(2, 0, "c").unwrap();
        let _working = folder.delivery(4, 0, "c").unwrap();
        let mut writer = folder.writer().unwrap();
        let taken = writer.take_deliveries(&folder, &[]).unwrap();
        assert_eq!(taken.iter().map(|r| r.slot).collect::<Vec<_>>(), [1, 3]);
        assert!(writer.take_deliveries(&folder, &taken).unwrap().is_empty());
        drop(writer);
        assert_eq!(folder.records().unwrap().records, taken);
        assert_eq!(taken[1].artifacts, [format!("{}/console.log", Folder::artifacts_name(3, &taken[1].arm, 0))]);
        assert_eq!(folder.artifact(&taken[1].artifacts[0]).unwrap(), b"a");
    }

    #[test]
    fn two_machines_that_differ_spoil_the_study() {
        let (_dir, folder) = folder(Clock::Exact);
        deliver(&folder, 3, "a", |_| {});
        let other = deliver(&folder, 3, "b", |r| r.metrics.insert("micro", "fork", 1.5));
        let Delivered::Differs(what) = other else { panic!("{other:?}") };
        assert!(what.starts_with("`micro.fork` is 1.3") && what.ends_with(" and 1.5"), "{what}");
        let error = folder.delivered().unwrap_err().to_string();
        assert!(error.starts_with("Two machines ran trial 0003-0 with different results: `micro.fork`"), "{error}");
        assert!(folder.writer().unwrap().take_deliveries(&folder, &[]).is_err());
        assert!(folder.records().unwrap().records.is_empty());
    }

    #[test]
    fn a_delivery_is_compared_with_what_a_session_ran_itself() {
        let (_dir, folder) = folder(Clock::Exact);
        let own = record(folder.plan(), 3, 0, Outcome::Completed);
        deliver(&folder, 3, "a", |r| r.host.wall_s = 99.0);
        deliver(&folder, 1, "a", |_| {});
        let lacking = folder.not_taken(std::slice::from_ref(&own)).unwrap();
        assert_eq!(lacking.iter().map(|r| r.slot).collect::<Vec<_>>(), [1]);
        let mut other = own;
        other.metrics.insert("micro", "fork", 1.5);
        let error = folder.not_taken(&[other]).unwrap_err().to_string();
        assert!(error.starts_with("Two machines ran trial 0003-0 with different results: `micro.fork`"), "{error}");
    }

    #[test]
    fn a_damaged_or_foreign_delivery_is_refused() {
        let (_dir, folder) = folder(Clock::Exact);
        deliver(&folder, 3, "a", |_| {});
        let path = folder.dir().join("slots/0003-0/record.jsonl");
        let line = fs::read_to_string(&path).unwrap();
        fs::write(&path, line.replace("\"slot\":3", "\"slot\":2")).unwrap();
        let error = folder.delivered().unwrap_err().to_string();
        assert!(error.contains("0003-0/record.jsonl` is not what a worker of this study delivered"), "{error}");
    }

    #[test]
    fn only_the_exact_clock_lets_trials_run_anywhere() {
        assert!(
            check(&Plan {
                machine: crate::plan::Machine { host: crate::host::HostKind::Vm, ..plan(4, 2, Clock::Wall, 7).machine },
                ..plan(4, 2, Clock::Wall, 7)
            })
            .is_err()
        );
        assert!(check(&plan(4, 2, Clock::Exact, 7)).is_ok());
    }
}
