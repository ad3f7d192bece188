//! A process and all its descendants, as shown by /proc.
//!
//! Invariant: a process is identified by its number and its start time, so that a reused number is never killed.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::vm::process::held;

/// A process of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    pid: i32,
    /// In clock ticks since the machine's boot.
    started: u64,
}

/// A process with its descendants, at one moment.
#[derive(Clone, Debug)]
pub(super) struct Descendants {
    members: Vec<Member>,
    cpu_ticks: u64,
}

/// Fields of /proc/PID/stat.
struct Stat {
    member: Member,
    parent: i32,
    is_zombie: bool,
    /// Its own CPU time and that of its reaped children.
    cpu_ticks: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: i32, stat: &str) -> Option<Self> {
        // The name, in parentheses, may hold anything; state is field 3 of proc(5).
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            member: Member { pid, started: number(22)? },
            parent: fields.get(1)?.parse().ok()?,
            is_zombie: fields.first() == Some(&"Z"),
            cpu_ticks: (14..=17).map(number).sum::<Option<u64>>()?,
        })
    }
}

impl Descendants {
    /// The descendants of `root`, including itself.
    pub(super) fn of(root: Pid) -> Self {
        let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
        let pids = names.filter_map(|name| name.to_str()?.parse().ok());
        let mut by_parent: BTreeMap<i32, Vec<Stat>> = BTreeMap::new();
        let mut found: Vec<Stat> = Vec::new();
        for stat in pids.filter_map(Stat::read) {
            match stat.member.pid == root.as_raw_nonzero().get() {
                true => found.push(stat),
                false => by_parent.entry(stat.parent).or_default().push(stat),
            }
        }
        let mut next = 0;
        while let Some(stat) = found.get(next) {
            found.extend(by_parent.remove(&stat.member.pid).unwrap_or_default());
            next += 1;
        }
        Self {
            cpu_ticks: found.iter().map(|stat| stat.cpu_ticks).sum(),
            members: found.iter().map(|stat| stat.member).collect(),
        }
    }

    /// CPU seconds that they have used.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.cpu_ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    /// Why one of them does not run for the machine's sake, as [`held`].
    pub(super) fn held(&self) -> Option<&'static str> {
        self.still().find_map(|member| held(member.pid.unsigned_abs()))
    }

    /// How many of them still run.
    pub(super) fn running(&self) -> usize {
        self.still().count()
    }

    /// Kills all that are still running.
    pub(super) fn kill(&self) {
        for pid in self.still().filter_map(|member| Pid::from_raw(member.pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    fn still(&self) -> impl Iterator<Item = &Member> {
        let runs =
            |member: &&Member| Stat::read(member.pid).is_some_and(|stat| stat.member == **member && !stat.is_zombie);
        self.members.iter().filter(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn a_name_may_hold_anything() {
        let rest = "S 7 8 8 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 12345 6 7";
        let stat = Stat::parse(9, &format!("9 (a) R (b) {rest}")).unwrap();
        assert_eq!((stat.member, stat.parent), (Member { pid: 9, started: 12345 }, 7));
        assert_eq!((stat.cpu_ticks, stat.is_zombie), (100, false));
    }

    #[test]
    fn descendants_in_groups_of_their_own_are_found_and_killed() {
        // A child and, in its own session, a grandchild that has used CPU time.
        let script =
            "setsid sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done; exec sleep 600' & wait";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let root = Pid::from_child(&shell);
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let family = Descendants::of(root);
        assert!(family.members.len() >= 2, "{family:?}");
        assert!(family.cpu_seconds() > 0.0, "{family:?}");
        assert!(family.running() >= 2, "{family:?}");
        family.kill();
        shell.wait().unwrap();
        let began = Instant::now();
        while family.running() > 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "{family:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
