//! The work of the trial's own processes, on a machine that also runs others.
//!
//! A process leaves its faults, CPU time and I/O to the parent that waits for it, but not its context switches and its waits for a CPU.
//!
//! Invariant: a count that a process or thread may have taken with it when it ended is unknown, never too small. (A thread that begins and ends
//! between two readings leaves no trace; a process does.)

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// With more tasks nothing is read: it would take longer than the measurement is worth.
const MOST_TASKS: usize = 512;

/// Nanoseconds of a tick, see proc(5).
const TICK_NS: u64 = 10_000_000;

/// All descendants of a process at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnProcesses {
    /// Counts that a parent inherits, by name.
    kept: BTreeMap<&'static str, u64>,
    /// Counts that no parent inherits, by name.
    lost: BTreeMap<&'static str, u64>,
    /// Tasks and their start times, in ticks.
    tasks: BTreeSet<(u32, u64)>,
    /// Minor faults of children that were waited for: every process has some.
    ended: u64,
}

/// A line of /proc/PID/stat.
struct Stat {
    parent: u32,
    fields: Vec<u64>,
}

impl Stat {
    /// The name in parentheses may contain any characters.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let parent = fields.get(1)?.parse().ok()?;
        // None of the fields used here is negative.
        Some(Self { parent, fields: fields.iter().map(|f| f.parse().unwrap_or(0)).collect() })
    }

    /// Counted as in proc(5), where the state is field 3.
    fn field(&self, n: usize) -> u64 {
        self.fields.get(n - 3).copied().unwrap_or(0)
    }
}

/// Reads the counts of `root` and all its descendants except `reader`; empty if there are too many of them.
pub fn read(root: u32, reader: u32) -> OwnProcesses {
    let pids =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let stat = |path: String| Stat::parse(&fs::read_to_string(path).ok()?);
    let all: BTreeMap<u32, Stat> =
        pids.filter_map(|pid: u32| Some((pid, stat(format!("/proc/{pid}/stat"))?))).collect();
    let mut own = OwnProcesses::default();
    let parents = all.iter().filter(|(pid, _)| **pid != reader).map(|(pid, stat)| (*pid, stat.parent)).collect();
    for pid in descendants(root, &parents) {
        let Some(of) = all.get(&pid) else { continue };
        let mut keep = |name, n: u64| *own.kept.entry(name).or_default() += n;
        keep("own.minor-faults", of.field(10) + of.field(11));
        keep("own.major-faults", of.field(12) + of.field(13));
        keep("own.user-ns", (of.field(14) + of.field(16)) * TICK_NS);
        keep("own.system-ns", (of.field(15) + of.field(17)) * TICK_NS);
        own.ended += of.field(11);
        if let Ok(io) = fs::read_to_string(format!("/proc/{pid}/io")) {
            for (name, key) in [
                ("own.read-calls", "syscr"),
                ("own.write-calls", "syscw"),
                ("own.read-bytes", "read_bytes"),
                ("own.written-bytes", "write_bytes"),
            ] {
                keep(name, labelled(&io, key).unwrap_or(0));
            }
        }
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let path = task.path();
            let text = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
            let Some(began) = Stat::parse(&text("stat")) else { continue };
            let tid = task.file_name().to_str().and_then(|n| n.parse().ok()).unwrap_or(0);
            own.tasks.insert((tid, began.field(22)));
            if own.tasks.len() > MOST_TASKS {
                return OwnProcesses::default();
            }
            let mut lose = |name, n: Option<u64>| {
                if let Some(n) = n {
                    *own.lost.entry(name).or_default() += n;
                }
            };
            let status = text("status");
            lose("own.voluntary-switches", labelled(&status, "voluntary_ctxt_switches"));
            lose("own.involuntary-switches", labelled(&status, "nonvoluntary_ctxt_switches"));
            let waits: Vec<u64> = text("schedstat").split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect();
            lose("own.run-ns", waits.first().copied());
            lose("own.run-queue-wait-ns", waits.get(1).copied());
        }
    }
    own
}

/// The growth between two readings; `None` for what is unknown.
pub fn between(before: &OwnProcesses, after: &OwnProcesses) -> BTreeMap<String, Option<u64>> {
    let all_are_left = before.tasks.is_subset(&after.tasks) && before.ended == after.ended;
    let grown =
        |name: &str, from: Option<&u64>, to: u64| (name.to_owned(), from.and_then(|from| to.checked_sub(*from)));
    let kept = after.kept.iter().map(|(name, n)| grown(name, before.kept.get(name), *n));
    let lost = after.lost.iter().map(|(name, n)| grown(name, before.lost.get(name).filter(|_| all_are_left), *n));
    kept.chain(lost).collect()
}

/// `root` and all below it, given each process's parent.
fn descendants(root: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found = vec![root];
    let mut seen = 0;
    while let Some(parent) = found.get(seen).copied() {
        seen += 1;
        found.extend(parents.iter().filter(|(pid, of)| **of == parent && **pid != parent).map(|(pid, _)| *pid));
    }
    found
}

fn labelled(text: &str, label: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(':')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_descendants_are_own() {
        let parents = [(1, 0), (5, 1), (7, 5), (8, 7), (9, 1), (10, 9)].into();
        assert_eq!(descendants(5, &parents), [5, 7, 8]);
        assert_eq!(descendants(99, &parents), [99]);
    }

    #[test]
    fn what_a_process_has_taken_with_it_is_not_known() {
        let own = |faults, switches, tasks: &[(u32, u64)], ended| OwnProcesses {
            kept: [("own.minor-faults", faults)].into(),
            lost: [("own.voluntary-switches", switches)].into(),
            tasks: tasks.iter().copied().collect(),
            ended,
        };
        let before = own(10, 5, &[(1, 0), (2, 9)], 3);
        let known = |after: &OwnProcesses| {
            let counted = between(&before, after);
            (counted["own.minor-faults"], counted["own.voluntary-switches"])
        };
        assert_eq!(known(&own(14, 7, &[(1, 0), (2, 9), (3, 20)], 3)), (Some(4), Some(2)));
        // A task that ended; another task with its number; a task that began and ended in between.
        assert_eq!(known(&own(14, 7, &[(1, 0)], 3)), (Some(4), None));
        assert_eq!(known(&own(14, 7, &[(1, 0), (2, 30)], 3)), (Some(4), None));
        assert_eq!(known(&own(14, 7, &[(1, 0), (2, 9)], 8)), (Some(4), None));
    }

    #[test]
    fn this_process_does_something() {
        let before = read(std::process::id(), 0);
        let page = bigiron_sys::shared_memory::SharedMemory::new(1 << 20).unwrap();
        page.touch();
        let after = read(std::process::id(), 0);
        assert!(between(&before, &after)["own.minor-faults"] >= Some(1));
        assert!(after.tasks.iter().any(|(tid, _)| *tid == std::process::id()));
    }
}
