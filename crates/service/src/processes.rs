//! The processes of a server, from /proc.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, test_kill_process, waitpid};

use bigiron_sys::cpu_clock::cpu_time;

/// How long killed processes may take to disappear.
const GRACE: Duration = Duration::from_secs(30);

/// The resources that processes have used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in nanoseconds, user and system.
    pub cpu_ns: u64,
    /// Bytes of memory: each process's own, and its part of shared memory.
    pub memory_bytes: u64,
}

/// The fields of /proc/PID/stat after the name: state, parent, ….
fn stat(pid: i32) -> Option<String> {
    // The name in parentheses may contain any characters.
    Some(fs::read_to_string(format!("/proc/{pid}/stat")).ok()?.rsplit_once(") ")?.1.to_owned())
}

fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The children of a process.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().get().to_string();
    all()
        .filter(|pid| stat(*pid).is_some_and(|s| s.split(' ').nth(1) == Some(&parent)))
        .filter_map(Pid::from_raw)
        .collect()
}

/// The processes of a group.
pub(crate) fn of_group(group: Pid) -> Vec<Pid> {
    let group = group.as_raw_nonzero().get().to_string();
    // proc(5) numbers the state, the first field that `stat` returns, as 3, and the process group as 5.
    let is_in = |pid: &i32| stat(*pid).is_some_and(|s| s.split(' ').nth(5 - 3) == Some(&group));
    all().filter(is_in).filter_map(Pid::from_raw).collect()
}

/// Processes with this working folder, in any namespace.
pub(crate) fn inhabitants(folder: &Path) -> Vec<Pid> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    let Some(here) = identity(folder) else { return Vec::new() };
    let inside = |pid: &i32| identity(Path::new(&format!("/proc/{pid}/cwd"))) == Some(here);
    all().filter(inside).filter_map(Pid::from_raw).collect()
}

/// Waits until these dying processes are gone, and reaps those that have become children of this process.
pub(crate) fn await_ends(pids: &[Pid]) {
    let deadline = Instant::now() + GRACE;
    for pid in pids {
        while Instant::now() < deadline {
            let ours = waitpid(Some(*pid), WaitOptions::NOHANG);
            if matches!(ours, Ok(Some(_))) || test_kill_process(*pid) == Err(rustix::io::Errno::SRCH) || is_dead(*pid) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether a process that is still listed only waits to be reaped.
fn is_dead(pid: Pid) -> bool {
    stat(pid.as_raw_nonzero().get()).is_none_or(|s| has_ended(&s))
}

/// Whether the process of this [`stat`] has ended with all its threads. Its first thread may end before others, which keep its files and sockets open.
fn has_ended(stat: &str) -> bool {
    // proc(5): the state, the first here, is field 3; the number of threads is field 20, in which the first thread counts until it is reaped.
    let threads = || stat.split(' ').nth(20 - 3).and_then(|n| n.parse::<u32>().ok());
    stat.starts_with(['Z', 'X']) && threads().is_none_or(|n| n <= 1)
}

/// A clock tick of /proc, in nanoseconds: the kernel's `USER_HZ` is 100 on every architecture that bigiron knows.
const TICK_NS: u64 = 10_000_000;

/// The CPU time of a process and its children, read repeatedly.
///
/// Invariant: a total is never below an earlier one. The kernel adds the time of a child that has ended to its parent's in whole clock ticks, so a meter
/// adds at least the time with which it has seen the child last.
#[derive(Debug, Default)]
pub struct CpuMeter(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Of the processes at the last reading.
    living: HashMap<Pid, u64>,
    /// What the kernel then said of those that had ended.
    waited_for: u64,
    /// Of all that have ended.
    ended: u64,
}

impl CpuMeter {
    /// The total so far of `parent` and its children, in nanoseconds.
    pub fn total_ns(&self, parent: Pid) -> u64 {
        let mut pids = children(parent);
        pids.push(parent);
        let living: HashMap<Pid, u64> =
            pids.iter().filter_map(|pid| Some((*pid, cpu_time(*pid).ok()?.as_nanos() as u64))).collect();
        // Fields 16 and 17 of proc(5); the state, the first of `stat`, is field 3. Children have some too: what ran programs for a web server.
        let ended = living.keys().filter_map(|pid| {
            let stat = stat(pid.as_raw_nonzero().get())?;
            let mut fields = stat.split(' ').skip(16 - 3);
            Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
        });
        let waited_for = ended.sum::<u64>() * TICK_NS;
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: u64 = seen.living.iter().filter(|(pid, _)| !living.contains_key(pid)).map(|(_, time)| time).sum();
        seen.ended += waited_for.saturating_sub(seen.waited_for).max(gone);
        seen.waited_for = waited_for;
        let total = living.values().sum::<u64>() + seen.ended;
        seen.living = living;
        total
    }
}

/// The parent of the kernel's own threads.
const KTHREADD: Option<Pid> = Pid::from_raw(2);

/// CPU time of the kernel's own threads so far, in nanoseconds; 0 where they are not visible.
pub fn kernel_cpu_ns() -> u64 {
    let is_kthreadd = |pid: &Pid| stat(pid.as_raw_nonzero().get()).is_some_and(|s| s.split(' ').nth(1) == Some("0"));
    KTHREADD.filter(is_kthreadd).map_or(0, |parent| CpuMeter::default().total_ns(parent))
}

/// The resources used by these processes; those that are gone count as zero.
pub(crate) fn usage(pids: &[Pid]) -> Usage {
    let memory = |pid: &Pid| {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero())).ok()?;
        let kib = rollup
            .lines()
            .find_map(|line| line.strip_prefix("Pss:"))?
            .trim()
            .strip_suffix(" kB")?
            .trim()
            .parse::<u64>();
        Some(kib.ok()? << 10)
    };
    Usage {
        cpu_ns: pids.iter().filter_map(|pid| cpu_time(*pid).ok()).map(|time| time.as_nanos() as u64).sum(),
        memory_bytes: pids.iter().filter_map(memory).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_ends_takes_no_time_away() {
        // Children work, wait to be seen, and end one after the other; most have a part of a tick.
        let work = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; sleep 0.1";
        let script = format!("for n in 1 2 3 4 5 6; do sh -c '{work}'; done; sleep 9");
        let mut parent = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let (meter, pid) = (CpuMeter::default(), Pid::from_child(&parent));
        let mut last = 0;
        for _ in 0..150 {
            let total = meter.total_ns(pid);
            assert!(total >= last, "{total} after {last}");
            last = total;
            std::thread::sleep(Duration::from_millis(10));
        }
        parent.kill().unwrap();
        parent.wait().unwrap();
        assert!(last > 0);
    }

    #[test]
    fn a_group_has_its_processes_and_no_others() {
        use std::os::unix::process::CommandExt as _;
        let mut first =
            std::process::Command::new("sh").args(["-c", "sleep 600 & wait"]).process_group(0).spawn().unwrap();
        let group = Pid::from_child(&first);
        while children(group).is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut both = [vec![group], children(group)].concat();
        let mut found = of_group(group);
        both.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        found.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        assert_eq!(found, both);
        first.kill().unwrap();
        first.wait().unwrap();
        let left = of_group(group);
        assert_eq!(left.len(), 1);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        await_ends(&left);
        assert!(of_group(group).iter().all(|pid| is_dead(*pid)));
    }

    #[test]
    fn a_process_has_ended_when_its_last_thread_has() {
        let stat = |state, threads| {
            format!("{state} 1 4242 4242 0 -1 4228420 9 0 0 0 0 1 0 0 20 0 {threads} 0 815 0 0 18446744073709551615")
        };
        assert!(has_ended(&stat("Z", 1)) && has_ended(&stat("X", 0)));
        assert!(!has_ended(&stat("Z", 25)) && !has_ended(&stat("S", 1)));
        // The position of the field, from a process that has not one thread by chance.
        let others = 3;
        let counted = std::sync::Barrier::new(others + 1);
        let own = std::thread::scope(|threads| {
            for _ in 0..others {
                threads.spawn(|| counted.wait());
            }
            let own = self::stat(std::process::id() as i32);
            // They live until then.
            counted.wait();
            own.unwrap()
        });
        assert!(own.split(' ').nth(20 - 3).unwrap().parse::<usize>().unwrap() > others);
    }
}
