//! Evidence: what a trial of the plan executed when it was rerun for evidence. One file for each slot, `evidence/0007.json`.
//!
//! Invariant: evidence never changes the judgement; it is not a record, and a folder without evidence is as complete as one with it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::folder_files;
use crate::modelled::Counts;
use crate::store::error::StoreError;
use crate::store::folder::{Folder, write_whole};
use crate::values::Values;

/// Version of the format; it differs from format 1 as in [`crate::record::SCHEMA`].
pub const SCHEMA: u32 = 2;
/// The oldest format that can be read.
const OLDEST: u32 = 1;

pub(crate) const EVIDENCE: &str = "evidence";

/// What one trial executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    pub schema: u32,
    pub slot: u32,
    /// SHA-256 of the kernel's image, so that evidence of another kernel is not used.
    pub image_sha256: String,
    /// The values that the rerun measured: those of the judged trial of the slot, unless profiling changed something.
    pub metrics: Values,
    /// CPU seconds of QEMU.
    pub cpu_s: f64,
    pub windows: Vec<Executed>,
    /// How samples were taken, if code was sampled rather than counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<Sampled>,
    /// Samples by stack, one line each: `WORKLOAD METRIC;PROGRAM;outermost;…;innermost COUNT`. They are stored beside the evidence, in
    /// `evidence/0007.folded`.
    #[serde(skip)]
    pub stacks: String,
    /// What the places in [`Executed::modelled`] count ([`crate::modelled::places`]); empty if nothing was modelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<String>,
}

/// How a trial was sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// The event that takes samples: `cycles` or `cpu-clock`.
    pub event: String,
    /// Nanoseconds of CPU time that one sample stands for.
    pub period_ns: u64,
    pub cpus: u32,
    /// Samples of the whole trial, including idle CPUs.
    pub samples: u64,
    pub lost: u64,
    /// Samples of processes that belong neither to the trial nor to bigiron.
    #[serde(default)]
    pub others: u64,
}

/// What one window executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Executed {
    pub workload: String,
    pub metric: String,
    pub operations: u64,
    /// Nanoseconds of the guest's clock.
    pub ns: u64,
    /// Instructions by function, most first; each program counts as one function. If the evidence is sampled: samples.
    pub functions: Vec<(String, u64)>,
    /// System calls by name, most first; empty if they were not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<(String, u64)>,
    /// The model's counts by function; empty if nothing was modelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modelled: Vec<(String, Counts)>,
}

impl Folder {
    /// The existing evidence for the plan's slots, in order. Evidence that cannot be read, or is of another format or kernel, is left out.
    pub fn evidence(&self) -> Vec<Evidence> {
        let slots = self.plan().slots.iter();
        slots.filter_map(|slot| self.evidence_of(slot.slot)).collect()
    }

    /// The evidence for one slot.
    pub fn evidence_of(&self, slot: u32) -> Option<Evidence> {
        let bytes = folder_files::read(self.dir(), Path::new(EVIDENCE).join(name(slot))).ok()?;
        let evidence: Evidence = serde_json::from_slice(&bytes).ok()?;
        let planned = self.plan().slots.get(slot as usize)?;
        let image = self.plan().image_of(planned);
        ((OLDEST..=SCHEMA).contains(&evidence.schema) && evidence.slot == slot && evidence.image_sha256 == image)
            .then_some(evidence)
    }

    /// The stacks sampled in a slot's trial, as [`Evidence::stacks`].
    pub fn stacks_of(&self, slot: u32) -> Option<String> {
        let bytes = folder_files::read(self.dir(), Path::new(EVIDENCE).join(stacks_name(slot))).ok()?;
        String::from_utf8(bytes).ok()
    }

    /// Stores the evidence for a slot: readers see all of it or nothing.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_evidence(&self, evidence: &Evidence) -> Result<PathBuf, StoreError> {
        let bytes = serde_json::to_vec(evidence).map_err(|e| StoreError::Unwritable(e.to_string()))?;
        let dir = self.evidence_dir()?;
        if !evidence.stacks.is_empty() {
            write_whole(&dir, &stacks_name(evidence.slot), evidence.stacks.as_bytes())?;
        }
        write_whole(&dir, &name(evidence.slot), &bytes)
    }

    /// An empty directory for a rerun for evidence; dropping it removes it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn evidence_scratch(&self, slot: u32) -> Result<Scratch, StoreError> {
        self.scratch(&format!("{slot:04}.running"))
    }

    /// An empty directory for a rerun with traced locks.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn waiting_scratch(&self, slot: u32) -> Result<Scratch, StoreError> {
        self.scratch(&format!("{slot:04}.locks.running"))
    }

    fn scratch(&self, name: &str) -> Result<Scratch, StoreError> {
        let dir = self.evidence_dir()?;
        // What a killed run has left.
        let _ = folder_files::remove_all(&dir, name);
        folder_files::make_folders(&dir, name).map(Scratch).map_err(|e| StoreError::io("create", &dir.join(name), e))
    }

    pub(super) fn evidence_dir(&self) -> Result<PathBuf, StoreError> {
        folder_files::make_folders(self.dir(), EVIDENCE)
            .map_err(|e| StoreError::io("create", &self.dir().join(EVIDENCE), e))
    }
}

/// A directory that is removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn dir(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn name(slot: u32) -> String {
    format!("{slot:04}.json")
}

fn stacks_name(slot: u32) -> String {
    format!("{slot:04}.folded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::modelled;
    use crate::store::testing;

    #[test]
    fn evidence_comes_back_and_that_of_another_kernel_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(&dir.path().join("study"), &testing::plan(2, 2, Clock::Exact, 7)).unwrap();
        assert_eq!(folder.evidence(), []);
        let image_sha256 = folder.plan().arms[folder.plan().slots[1].arm].kernel.image_sha256.clone();
        let executed = Executed {
            workload: "micro".to_owned(),
            metric: "getpid".to_owned(),
            operations: 10,
            ns: 1000,
            functions: vec![("do_syscall_64".to_owned(), 400)],
            calls: vec![("getpid".to_owned(), 10)],
            modelled: vec![("do_syscall_64".to_owned(), vec![(2, 10), (30, 4)])],
        };
        let evidence = Evidence {
            schema: SCHEMA,
            slot: 1,
            image_sha256,
            metrics: Values::default(),
            cpu_s: 1.5,
            windows: vec![executed],
            sampled: None,
            stacks: String::new(),
            places: modelled::places(),
        };
        folder.keep_evidence(&evidence).unwrap();
        assert_eq!(folder.evidence(), std::slice::from_ref(&evidence));
        let other = Evidence { image_sha256: "0".repeat(64), ..evidence };
        folder.keep_evidence(&other).unwrap();
        assert_eq!(folder.evidence(), []);
        fs::write(dir.path().join("study/evidence/0001.json"), b"{").unwrap();
        assert_eq!(folder.evidence(), []);
    }

    #[test]
    fn stacks_lie_beside_what_was_sampled() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(&dir.path().join("study"), &testing::plan(2, 2, Clock::Wall, 7)).unwrap();
        let image_sha256 = folder.plan().arms[folder.plan().slots[0].arm].kernel.image_sha256.clone();
        let sampled =
            Sampled { event: "cpu-clock".to_owned(), period_ns: 1_001_001, cpus: 2, samples: 9, lost: 1, others: 2 };
        let stacks = "micro getpid;bigiron;entry_SYSCALL_64 9\n".to_owned();
        let (metrics, windows) = (Values::default(), Vec::new());
        let evidence = Evidence {
            schema: SCHEMA,
            slot: 0,
            image_sha256,
            metrics,
            cpu_s: 0.0,
            windows,
            sampled: Some(sampled),
            stacks: stacks.clone(),
            places: Vec::new(),
        };
        assert_eq!(folder.stacks_of(0), None);
        folder.keep_evidence(&evidence).unwrap();
        assert_eq!(folder.evidence(), [Evidence { stacks: String::new(), ..evidence }]);
        assert_eq!(folder.stacks_of(0), Some(stacks));
    }

    #[test]
    fn scratch_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(&dir.path().join("study"), &testing::plan(2, 2, Clock::Exact, 7)).unwrap();
        let scratch = folder.evidence_scratch(0).unwrap();
        fs::write(scratch.dir().join("profile"), b"x").unwrap();
        let path = scratch.dir().to_owned();
        drop(scratch);
        assert!(!path.exists());
    }
}
