//! How many processes this machine allows, checked before the first fork.
//!
//! Invariant: a refusal names the limit and the value that would be enough.

use std::path::Path;

use anyhow::Result;
use thiserror::Error;

use rustix::process::Resource;

/// The kernel does not reuse process numbers below this after they have wrapped (`RESERVED_PIDS`).
const RESERVED_PIDS: u64 = 300;

/// There is no room for the job's processes.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{wanted} more processes do not fit: {limit} is {is}; it must be at least {right}")]
pub struct TooManyProcesses {
    wanted: u64,
    limit: String,
    is: u64,
    right: u64,
}

/// A limit on the number of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Limit {
    name: String,
    value: u64,
    /// How much of it is in use.
    taken: u64,
}

impl Limit {
    fn check(&self, wanted: u64) -> Result<(), TooManyProcesses> {
        let right = self.taken + wanted;
        if right <= self.value {
            return Ok(());
        }
        Err(TooManyProcesses { wanted, limit: self.name.clone(), is: self.value, right })
    }
}

/// Refuses `wanted` more processes if one of the machine's limits has no room for them. A limit that this kernel does not show is ignored.
pub fn check(wanted: usize) -> Result<(), TooManyProcesses> {
    limits(Path::new("/")).into_iter().try_for_each(|l| l.check(wanted as u64))
}

/// Processes and threads that may have ended between an error and the look at their number.
const ENDED: u64 = 64;

/// The limit that stops this process from starting another one or a thread, with what would be right; `None` if none is near.
pub fn reached() -> Option<String> {
    let near = limits(Path::new("/")).into_iter().find(|l| l.taken + ENDED >= l.value)?;
    let Limit { name, value, taken } = near;
    Some(format!("{name} is {value}, and there are {taken} processes and threads: raise it, or end some"))
}

/// Raises this process's limit of open files to `wanted`, if permitted, for itself and its later children.
///
/// # Errors
/// The hard limit is lower; the message says what would be enough.
pub fn allow_files(wanted: u64) -> Result<()> {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|n| n >= wanted) {
        return Ok(());
    }
    // Root may raise the hard limit as well.
    if limit.maximum.is_some_and(|n| n < wanted) {
        limit.maximum = Some(wanted);
    }
    limit.current = Some(wanted);
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    rustix::process::setrlimit(Resource::Nofile, limit).map_err(|_| {
        anyhow::anyhow!(
            "A process of the job opens up to {wanted} files; `ulimit -Hn` is {hard} and must be at least that"
        )
    })
}

fn limits(root: &Path) -> Vec<Limit> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let number = |path: &str| read(path).and_then(|t| t.trim().parse::<u64>().ok());
    // "0.53 0.40 0.31 2/311 4242": of 311 tasks 2 are running.
    let tasks = read("proc/loadavg").and_then(|t| t.split('/').nth(1)?.split(' ').next()?.parse().ok()).unwrap_or(0);
    let limit = |name: &str, value, taken| Limit { name: name.to_owned(), value, taken };
    let mut limits = Vec::new();
    limits.extend(
        number("proc/sys/kernel/pid_max").map(|n| limit("the sysctl `kernel.pid_max`", n, tasks + RESERVED_PIDS)),
    );
    limits.extend(number("proc/sys/kernel/threads-max").map(|n| limit("the sysctl `kernel.threads-max`", n, tasks)));
    let user = rustix::process::geteuid();
    // Root is exempt (CAP_SYS_RESOURCE).
    if !user.is_root()
        && let Some(n) = rustix::process::getrlimit(Resource::Nproc).current
    {
        limits.push(limit("`ulimit -u`", n, tasks_of(user.as_raw())));
    }
    limits.extend(cgroups(&read("proc/self/cgroup").unwrap_or_default()).into_iter().filter_map(|dir| {
        let value = number(&format!("{dir}/pids.max"))?;
        Some(limit(&format!("`/{dir}/pids.max`"), value, number(&format!("{dir}/pids.current"))?))
    }));
    limits
}

/// Processes of a user with their threads: the kernel counts both.
fn tasks_of(user: u32) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter(|e| e.file_name().to_str().is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())));
    let own = processes.filter(|e| e.metadata().is_ok_and(|m| m.uid() == user));
    own.map(|e| std::fs::read_dir(e.path().join("task")).map_or(0, |tasks| tasks.count() as u64)).sum()
}

/// The folders, innermost first, whose `pids.max` applies to a process with `text` in its /proc/PID/cgroup.
fn cgroups(text: &str) -> Vec<String> {
    let mut dirs = Vec::new();
    for line in text.lines() {
        // "0::/user.slice" is the unified hierarchy, "8:pids:/user.slice" one of its own.
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let mount = match controllers {
            "" => "sys/fs/cgroup",
            c if c.split(',').any(|c| c == "pids") => "sys/fs/cgroup/pids",
            _ => continue,
        };
        let mut path = path.trim_matches('/');
        while !path.is_empty() {
            dirs.push(format!("{mount}/{path}"));
            path = path.rsplit_once('/').map_or("", |(outer, _)| outer);
        }
    }
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_in_the_way_is_named_with_what_would_do() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/loadavg", "0.53 0.40 0.31 2/311 4242\n");
        write("proc/sys/kernel/pid_max", "4096\n");
        write("proc/sys/kernel/threads-max", "20000\n");
        write("proc/self/cgroup", "8:pids:/\n0::/user.slice/session\n");
        write("sys/fs/cgroup/user.slice/session/pids.max", "max\n");
        write("sys/fs/cgroup/user.slice/pids.max", "1000\n");
        write("sys/fs/cgroup/user.slice/pids.current", "20\n");
        let check =
            |n| limits(root.path()).into_iter().filter(|l| l.name != "`ulimit -u`").try_for_each(|l| l.check(n));
        assert_eq!(check(980), Ok(()));
        assert_eq!(
            check(981).unwrap_err().to_string(),
            "981 more processes do not fit: `/sys/fs/cgroup/user.slice/pids.max` is 1000; it must be at least 1001"
        );
        assert_eq!(
            check(10_000).unwrap_err().to_string(),
            "10000 more processes do not fit: the sysctl `kernel.pid_max` is 4096; it must be at least 10611"
        );
        write("proc/sys/kernel/pid_max", "4194304\n");
        write("sys/fs/cgroup/user.slice/pids.max", "max\n");
        assert_eq!(check(19_689), Ok(()));
        assert_eq!(
            check(19_690).unwrap_err().to_string(),
            "19690 more processes do not fit: the sysctl `kernel.threads-max` is 20000; it must be at least 20001"
        );
    }

    #[test]
    fn this_machine_has_room_for_one_more_and_not_for_everything() {
        assert_eq!(check(1), Ok(()));
        assert!(check(1 << 30).is_err());
    }
}
