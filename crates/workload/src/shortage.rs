//! What a machine ran out of while a workload ran: memory, space on a file system, processes of the user, or another machine.
//!
//! Invariant: the kernel's own information decides (its count of killed processes, its error number, or the free space of a file system), never a
//! guess from a signal.

use std::fs;
use std::io;
use std::path::Path;

use thiserror::Error;

use crate::WrongData;
use crate::limits::{self, TooManyProcesses};
use bigiron_model::record::Failure;

/// A resource ran out; the message says which one, who needed it, and what would be right.
#[derive(Debug, Error)]
pub enum Shortage {
    #[error("{0}")]
    Memory(String),
    #[error("{0}")]
    Space(String),
    /// By a limit that somebody has set: no kernel is to blame.
    #[error("{0}")]
    Processes(String),
    /// Another machine, without which no trial can begin: the machine under test is not to blame.
    #[error("{0}")]
    Machine(String),
}

/// A file system with fewer free bytes counts as full: the next block of a file and its metadata do not fit.
const FULL: u64 = 64 << 10;

/// Processes that the kernel has killed since boot because memory ran out; 0 if it does not count them.
pub fn killed() -> u64 {
    fs::read_to_string("/proc/vmstat").map_or(0, |text| labelled(&text, "oom_kill"))
}

impl Shortage {
    /// Memory was too little for `whom` (` with 8 users`, or empty): the kernel has killed this many processes, `seen` is the observed effect, and
    /// `less` is the alternative to more memory.
    pub fn of_memory(whom: &str, killed: u64, seen: &str, less: &str) -> Self {
        let memory = fs::read_to_string("/proc/meminfo").map_or(0, |text| labelled(&text, "MemTotal:")) >> 10;
        let seen = match killed {
            0 => seen.to_owned(),
            1 => format!("the kernel killed a process ({seen})"),
            n => format!("the kernel killed {n} processes ({seen})"),
        };
        let limit = limit().map(|bytes| bytes >> 20).filter(|limit| *limit < memory);
        let limit =
            limit.map_or(String::new(), |limit| format!(", and a limit leaves {limit} MiB of it to this process"));
        Self::Memory(format!(
            "Out of memory{whom}: {seen}; the machine has {memory} MiB{limit}; give a guest more (`--memory`) or {less}"
        ))
    }
}

/// The least of this process's own limits: its address space, and its cgroup's memory.
fn limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let cgroup = groups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let file = match controllers {
            "" => format!("/sys/fs/cgroup{group}/memory.max"),
            "memory" => format!("/sys/fs/cgroup/memory{group}/memory.limit_in_bytes"),
            _ => return None,
        };
        fs::read_to_string(file).ok()?.trim().parse().ok()
    });
    let space = rustix::process::getrlimit(rustix::process::Resource::As).current;
    [cgroup, space].into_iter().flatten().min()
}

/// The kind of a workload's failure: `error`, with the number of processes that the kernel had killed before the workload began, and its working
/// folder; `more` is the lever that gives it more space there, if there is one.
pub fn failure(error: anyhow::Error, killed_before: u64, dir: &Path, more: Option<&str>) -> (Failure, anyhow::Error) {
    if error.is::<WrongData>() {
        return (Failure::VerifyFailed, error);
    }
    match error.downcast_ref::<Shortage>() {
        Some(Shortage::Memory(_)) => return (Failure::OutOfMemory, error),
        Some(Shortage::Space(_)) => return (Failure::NoSpace, error),
        Some(Shortage::Processes(_) | Shortage::Machine(_)) => return (Failure::WorkloadError, error),
        None => {}
    }
    if error.is::<TooManyProcesses>() {
        return (Failure::WorkloadError, Shortage::Processes(format!("{error:#}")).into());
    }
    let killed = killed().saturating_sub(killed_before);
    if killed > 0 {
        let shortage = Shortage::of_memory("", killed, &format!("{error:#}"), "let the workload do less");
        return (Failure::OutOfMemory, shortage.into());
    }
    if is_numbered(&error, libc::ENOMEM) {
        let shortage = Shortage::of_memory("", 0, &format!("{error:#}"), "let the workload do less");
        return (Failure::OutOfMemory, shortage.into());
    }
    if is_numbered(&error, libc::EAGAIN)
        && let Some(limit) = limits::reached()
    {
        return (Failure::WorkloadError, Shortage::Processes(format!("{error:#}; {limit}")).into());
    }
    match no_space(&error, space(dir), more) {
        Some(message) => (Failure::NoSpace, Shortage::Space(message).into()),
        None => (Failure::WorkloadError, error),
    }
}

/// Why a process or thread could not be started, and what would be right.
pub fn no_process(error: &io::Error) -> String {
    let limit = limits::reached().filter(|_| error.raw_os_error() == Some(libc::EAGAIN));
    limit.map_or_else(|| error.to_string(), |limit| format!("{error}; {limit}"))
}

/// The message for a full file system, if `error` comes from one: by the error number, or because it is full. A program's own message need not exist:
/// its standard error may be a file there.
fn no_space(error: &anyhow::Error, (total, free): (u64, u64), more: Option<&str>) -> Option<String> {
    let text = format!("{error:#}");
    let numbered = is_numbered(error, libc::ENOSPC);
    // A file system without a size, such as a ramfs, is never full.
    (numbered || total > 0 && free < FULL).then(|| {
        let (total, free) = (total >> 20, free >> 20);
        let more = more.map_or(String::new(), |lever| format!("; `{lever}` gives it more"));
        // Before the original message, whose end may be many lines from a program.
        format!("No space left on the workload's file system, {total} MiB with {free} free now{more}: {text}")
    })
}

/// Whether `error` comes from the kernel's error of this number.
fn is_numbered(error: &anyhow::Error, number: i32) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        io.or_else(|| cause.downcast_ref::<rustix::io::Errno>().map(|e| e.raw_os_error())) == Some(number)
    })
}

/// Bytes of the file system of `dir`, and the available bytes: ext4 reserves some, even from root.
fn space(dir: &Path) -> (u64, u64) {
    let bytes = |stat: rustix::fs::StatVfs| (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize);
    rustix::fs::statvfs(dir).map_or((0, u64::MAX), bytes)
}

/// The number after `label` on its line.
fn labelled(text: &str, label: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(label)?.split_whitespace().next()?.parse().ok());
    line.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::*;

    #[test]
    fn the_kernels_count_is_read() {
        assert_eq!(labelled("nr_dirty 3\noom_kill 12\noom_killer 4\n", "oom_kill"), 12);
        assert_eq!(labelled("nr_dirty 3\n", "oom_kill"), 0);
        let seen = "User 3 was ended by signal 9";
        let text = Shortage::of_memory(" with 8 users", 1, seen, "ask for fewer users").to_string();
        assert!(text.starts_with("Out of memory with 8 users: the kernel killed a process (User 3 was"), "{text}");
        assert!(!text.contains("has 0 MiB") && text.ends_with("or ask for fewer users"), "{text}");
    }

    #[test]
    fn a_failure_is_known_for_what_was_too_little() {
        let dir = tempfile::tempdir().unwrap();
        // No process can have been killed since a count that is never reached.
        let of = |error: anyhow::Error| failure(error, u64::MAX, dir.path(), None);
        let full = || Err::<(), _>(io::Error::from_raw_os_error(libc::ENOSPC)).context("Cannot write `f`").unwrap_err();
        let (kind, error) = of(full());
        assert_eq!(kind, Failure::NoSpace);
        let text = error.to_string();
        assert!(text.starts_with("No space left on the workload's file system, "), "{text}");
        assert!(text.ends_with(": Cannot write `f`: No space left on device (os error 28)"), "{text}");
        let refused =
            || Err::<(), _>(io::Error::from_raw_os_error(libc::ENOMEM)).context("Cannot map `f`").unwrap_err();
        let (kind, error) = of(refused());
        assert_eq!(kind, Failure::OutOfMemory);
        assert!(error.to_string().starts_with("Out of memory: Cannot map `f`: "), "{error}");
        assert_eq!(of(anyhow!("x")).0, Failure::WorkloadError);
        assert_eq!(of(anyhow!(WrongData("x".to_owned()))).0, Failure::VerifyFailed);
        let said = anyhow!(Shortage::Memory("Out of memory".to_owned())).context("Preparing");
        let (kind, error) = of(said);
        assert_eq!((kind, format!("{error:#}")), (Failure::OutOfMemory, "Preparing: Out of memory".to_owned()));
        assert_eq!(of(anyhow!(Shortage::Space("x".to_owned()))).0, Failure::NoSpace);
        // Many things are not available now; tests are far from a limit of processes.
        let again = io::Error::from_raw_os_error(libc::EAGAIN);
        assert_eq!(no_process(&again), again.to_string());
        assert!(!of(anyhow!(again)).1.is::<Shortage>());
    }

    #[test]
    fn a_full_file_system_is_told_whatever_the_program_could_say() {
        let failed = || anyhow!("run-1 of `dd` ended with status 1; standard error is empty");
        let text = no_space(&failed(), (256 << 20, 4096), Some("command.disk")).unwrap();
        assert!(
            text.contains(" file system, 256 MiB with 0 free now; `command.disk` gives it more: run-1 of `dd`"),
            "{text}"
        );
        assert_eq!(no_space(&failed(), (256 << 20, 100 << 20), None), None);
        assert_eq!(no_space(&failed(), (0, 0), None), None);
    }
}
