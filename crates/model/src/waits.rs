//! Evidence of waiting: what a trial of the plan waited for when it was rerun with traced locks. One file for each slot, `evidence/0007.locks.json`.
//!
//! Invariant: like all evidence, it does not affect the judgement.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::evidence::EVIDENCE;
use crate::folder_files;
use crate::store::error::StoreError;
use crate::store::folder::{Folder, write_whole};
use crate::values::Values;

/// Version of the format; it differs from format 1 as in [`crate::record::SCHEMA`].
pub const SCHEMA: u32 = 2;
/// The oldest format that can be read.
const OLDEST: u32 = 1;

/// The waits of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialWaits {
    pub schema: u32,
    pub slot: u32,
    /// SHA-256 of the kernel's image, so that evidence of another kernel is not used.
    pub image_sha256: String,
    /// The values that the trial measured while traced.
    pub metrics: Values,
    pub cpus: u32,
    pub traced: Traced,
    /// By metric.
    pub windows: Vec<WindowWaits>,
    /// By workload, if the kernel keeps lock statistics (CONFIG_LOCK_STAT).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stat: Vec<LockStat>,
}

/// How a trial was traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Why there are no waits for kernel locks, if the kernel does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untold: Option<String>,
    /// Events of the whole trial.
    pub events: u64,
    /// Events for which there was no room, or waits beyond the number that is kept.
    pub lost: u64,
    /// Waits whose begin or end was not seen.
    pub unpaired: u64,
    /// Waits of processes outside the trial.
    pub others: u64,
}

/// The waits in one window, or in all windows of a metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowWaits {
    pub workload: String,
    pub metric: String,
    pub operations: u64,
    /// Nanoseconds of the windows.
    pub ns: u64,
    /// Longest first.
    pub locks: Vec<LockWait>,
    /// Longest first.
    pub futexes: Vec<FutexWait>,
}

/// Waits of one caller for locks of one class and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWait {
    /// `spinlock`, `rwlock:R`, `mutex`, `rwsem:W` ….
    pub class: String,
    /// Its own name if it is a kernel variable, otherwise the lock that the caller is known to take; `None` if both are unknown.
    pub lock: Option<String>,
    /// The function that wanted it.
    pub caller: String,
    #[serde(flatten)]
    pub tally: WaitTally,
}

/// Waits for futexes in one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FutexWait {
    pub program: String,
    #[serde(flatten)]
    pub tally: WaitTally,
}

/// The sum of several waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitTally {
    pub waits: u64,
    /// Number of these waits that never slept.
    pub spun: u64,
    /// Nanoseconds of all waits, and of those that never slept.
    pub total_ns: u64,
    #[serde(default)]
    pub spun_ns: u64,
    pub max_ns: u64,
}

impl WaitTally {
    pub fn add(&mut self, other: &Self) {
        // A guest may say any number.
        let sums = [
            (&mut self.waits, other.waits),
            (&mut self.spun, other.spun),
            (&mut self.total_ns, other.total_ns),
            (&mut self.spun_ns, other.spun_ns),
        ];
        sums.into_iter().for_each(|(sum, n)| *sum = sum.saturating_add(n));
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// The kernel's lock statistics while a workload ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockStat {
    pub workload: String,
    /// Nanoseconds of the workload's whole run, inside and outside windows.
    pub ns: u64,
    /// Locks waited for, longest first; then locks held, longest first.
    pub locks: Vec<StatLock>,
    /// All locks together.
    pub total: StatLock,
}

/// The statistics of one lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatLock {
    pub lock: String,
    pub contentions: u64,
    pub acquisitions: u64,
    pub wait_ns: f64,
    pub wait_max_ns: f64,
    pub hold_ns: f64,
    pub hold_max_ns: f64,
    /// Callers that had to wait, and how often: four at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<(String, u64)>,
}

impl Folder {
    /// The existing evidence of waiting for the plan's slots, in order. Evidence that cannot be read, or is of another format or kernel, is left out.
    pub fn waiting(&self) -> Vec<TrialWaits> {
        self.plan().slots.iter().filter_map(|slot| self.waiting_of(slot.slot)).collect()
    }

    /// The evidence of waiting for one slot.
    pub fn waiting_of(&self, slot: u32) -> Option<TrialWaits> {
        let bytes = folder_files::read(self.dir(), Path::new(EVIDENCE).join(name(slot))).ok()?;
        let waiting: TrialWaits = serde_json::from_slice(&bytes).ok()?;
        let planned = self.plan().slots.get(slot as usize)?;
        let image = self.plan().image_of(planned);
        ((OLDEST..=SCHEMA).contains(&waiting.schema) && waiting.slot == slot && waiting.image_sha256 == image)
            .then_some(waiting)
    }

    /// Stores it: readers see all of it or nothing. Output that programs printed meanwhile is in `printed`, as files `*.stdout`, and is stored beside
    /// it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_waiting(&self, waiting: &TrialWaits, printed: &Path) -> Result<PathBuf, StoreError> {
        let dir = self.evidence_dir()?;
        for file in fs::read_dir(printed).into_iter().flatten().flatten() {
            let path = file.path();
            if let (Some("stdout"), Ok(bytes)) = (path.extension().and_then(|e| e.to_str()), fs::read(&path)) {
                let name = format!("{:04}.locks.{}", waiting.slot, file.file_name().to_string_lossy());
                write_whole(&dir, &name, &bytes)?;
            }
        }
        let bytes = serde_json::to_vec(waiting).map_err(|e| StoreError::Unwritable(e.to_string()))?;
        write_whole(&dir, &name(waiting.slot), &bytes)
    }
}

fn name(slot: u32) -> String {
    format!("{slot:04}.locks.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::store::testing;

    #[test]
    fn waits_come_back_and_those_of_another_kernel_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(&dir.path().join("study"), &testing::plan(2, 2, Clock::Exact, 7)).unwrap();
        assert_eq!(folder.waiting(), []);
        let image_sha256 = folder.plan().arms[folder.plan().slots[1].arm].kernel.image_sha256.clone();
        let tally = WaitTally { waits: 3, spun: 1, total_ns: 900, spun_ns: 200, max_ns: 500 };
        let lock = LockWait { class: "mutex".to_owned(), lock: None, caller: "pipe_write".to_owned(), tally };
        let window = WindowWaits {
            workload: "micro".to_owned(),
            metric: "pipe".to_owned(),
            operations: 10,
            ns: 1000,
            locks: vec![lock],
            futexes: vec![FutexWait { program: "init".to_owned(), tally }],
        };
        let waiting = TrialWaits {
            schema: SCHEMA,
            slot: 1,
            image_sha256,
            metrics: Values::default(),
            cpus: 2,
            traced: Traced { events: 6, lost: 1, ..Traced::default() },
            windows: vec![window],
            stat: Vec::new(),
        };
        let scratch = folder.waiting_scratch(1).unwrap();
        fs::write(scratch.dir().join("command.run-1.stdout"), b"said").unwrap();
        fs::write(scratch.dir().join("console.log"), b"not kept").unwrap();
        folder.keep_waiting(&waiting, scratch.dir()).unwrap();
        drop(scratch);
        let mut kept: Vec<_> =
            fs::read_dir(dir.path().join("study/evidence")).unwrap().map(|e| e.unwrap().file_name()).collect();
        kept.sort();
        assert_eq!(kept, ["0001.locks.command.run-1.stdout", "0001.locks.json"]);
        assert_eq!(folder.waiting(), std::slice::from_ref(&waiting));
        // Stored beside the other evidence and not part of it.
        assert_eq!(folder.evidence(), []);
        folder.keep_waiting(&TrialWaits { image_sha256: "0".repeat(64), ..waiting }, dir.path()).unwrap();
        assert_eq!(folder.waiting(), []);
    }
}
