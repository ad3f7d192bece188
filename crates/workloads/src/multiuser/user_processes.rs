//! The users of a load point: one process each, forked by a head process, released together, and reaped one by one.
//!
//! Invariant: in a successful point all users ran from the start to the end, each has done its tests, and their counts add up; no
//! process ever outlives the point.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use anyhow::{Context as _, Result, anyhow, bail};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use rustix::pipe::{PipeFlags, pipe_with};

use super::board::{ComplaintKind, LoadPointBoard};
use super::work::{Scale, Test, TestDirectory, UserContext};
use bigiron_probe::counters::span;
use bigiron_sys::family::{Children, ProcessFamily};
use bigiron_sys::launch::children_usage;
use bigiron_sys::load::now_ns;
use bigiron_sys::process::Exit;
use bigiron_sys::segment::Segment;
use bigiron_workload::WrongData;
use bigiron_workload::footprint::Footprint;
use bigiron_workload::shortage;
use bigiron_workload::shortage::Shortage;

/// Makes the kernel prefer to kill users rather than the measuring process when memory runs out (`oom_score_adj`, up to 1000).
const OFFERED: &str = "500";
const OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

/// The work of a point's users.
pub struct PointWork<'a> {
    pub users: u32,
    pub seed: u64,
    pub executable: &'a Path,
    /// Each user works in one of them.
    pub disks: &'a [TestDirectory],
    /// With the number of runs by each user.
    pub tests: &'a [(&'static Test, u32)],
    pub scale: Scale,
    pub syncs: bool,
    /// How to get more disk space, for messages.
    pub more_space: &'a str,
}

/// The result of a point.
#[derive(Clone, Debug, Default)]
pub struct PointResult {
    /// From the release of all users until the last one has been reaped.
    pub elapsed_ns: u64,
    /// For each user, from the release to the end of its last test.
    pub users_ns: Vec<u64>,
    /// CPU time of all users and their children.
    pub user_ns: u64,
    pub system_ns: u64,
    /// Memory of all users together just before the start.
    pub memory_bytes: u64,
    /// Of each test.
    pub tests: Vec<Times>,
}

/// How long a test took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub calls: u64,
    pub ns: u64,
    pub longest_ns: u64,
}

/// Runs a point.
///
/// # Errors
/// If a user failed, was killed or could not be started, with the resource that was exhausted; a [`WrongData`] for a wrong
/// result.
pub fn run(work: &PointWork<'_>) -> Result<PointResult> {
    let segment =
        Segment::new(LoadPointBoard::bytes(work.users as usize, work.tests.len())).context("Cannot share memory")?;
    let board = LoadPointBoard::new(&segment, work.users as usize, work.tests.len());
    let killed = shortage::killed();
    let family = ProcessFamily::fork_head(|children| head(work, &board, children)).context("Cannot start the users")?;
    let exit = family.wait().context("Cannot wait for the users")?;
    let killed = shortage::killed().saturating_sub(killed);
    if let Some((trouble, text)) = board.complaint() {
        return Err(failure(work, trouble, &text, killed));
    }
    match exit {
        Exit::Status(0) => {}
        Exit::Signal(n) => {
            return Err(failure(
                work,
                ComplaintKind::Killed,
                &format!("The head of the users was ended by signal {n}"),
                killed,
            ));
        }
        Exit::Status(n) => bail!("The head of the users ended with status {n}"),
    }
    board.audit(&work.tests.iter().map(|(_, calls)| *calls).collect::<Vec<_>>())?;
    let common = board.common;
    let started = common.started.load(Acquire);
    let users_ns = board.lanes.iter().map(|lane| lane.ended.load(Acquire).saturating_sub(started)).collect();
    let times = |total: &super::board::Total| Times {
        calls: total.calls.load(Acquire),
        ns: total.ns.load(Acquire),
        longest_ns: total.longest_ns.load(Acquire),
    };
    Ok(PointResult {
        elapsed_ns: common.ended.load(Acquire).saturating_sub(started),
        users_ns,
        user_ns: common.user_ns.load(Acquire),
        system_ns: common.system_ns.load(Acquire),
        memory_bytes: common.memory.load(Acquire),
        tests: board.totals.iter().map(times).collect(),
    })
}

/// `1 user`, `8 users`.
pub fn users(n: u32) -> String {
    if n == 1 { "1 user".to_owned() } else { format!("{n} users") }
}

/// The error for a complaint.
fn failure(work: &PointWork<'_>, trouble: ComplaintKind, text: &str, killed: u64) -> anyhow::Error {
    let users = users(work.users);
    match trouble {
        ComplaintKind::WrongData => anyhow!(WrongData(format!("With {users}: {text}"))),
        // A user that does not report may have been killed at any moment.
        _ if killed > 0 || trouble == ComplaintKind::NoMemory => {
            anyhow!(Shortage::of_memory(&format!(" with {users}"), killed, text, "use fewer users"))
        }
        ComplaintKind::Full => {
            anyhow!(full(work.users, work.disks.first().map_or(0, TestDirectory::file_bytes), work.more_space, text))
        }
        _ => anyhow!("With {users}: {text}"),
    }
}

/// A full disk; `more` says how to get more space.
pub fn full(n: u32, file_bytes: u64, more: &str, text: &str) -> Shortage {
    let (users, kib) = (users(n), file_bytes / 1024);
    Shortage::Space(format!(
        "The disk is full with {users} and files of {kib} KiB: {text}; {more}, or use smaller files with `multiuser.filesize` and `multiuser.poolsize`"
    ))
}

/// The users' head: forks, releases and reaps them. Returns its exit status.
fn head(work: &PointWork<'_>, board: &LoadPointBoard<'_>, children: &mut Children) -> i32 {
    match lead(work, board, children) {
        Ok(()) => 0,
        Err(e) => {
            board.complain(ComplaintKind::Failed, &format!("{e:#}"));
            // Nobody must stay waiting at the gate.
            board.open();
            while let Ok(Some(_)) = children.next_end() {}
            1
        }
    }
}

fn lead(work: &PointWork<'_>, board: &LoadPointBoard<'_>, children: &mut Children) -> Result<()> {
    let before = Footprint::now()?;
    let (ready, ready_in) = pipe_with(PipeFlags::CLOEXEC).context("Cannot create a pipe")?;
    let mut ready_in = Some(ready_in);
    // Every user inherits the score; the head itself restores its own.
    let former = std::fs::read_to_string(OOM_SCORE_ADJ).unwrap_or_else(|_| "0".to_owned());
    let _ = std::fs::write(OOM_SCORE_ADJ, OFFERED);
    for number in 0..work.users {
        let body = || user(work, board, number, ready_in.take());
        if let Err(e) = children.fork(number as usize, body) {
            let who = format!("Cannot start user {number} of {}", work.users);
            board.complain_of(&who, &e.into());
            break;
        }
        if board.is_aborted() {
            break;
        }
    }
    let _ = std::fs::write(OOM_SCORE_ADJ, former.trim());
    drop(ready_in.take());
    // Each user closes its end when it is ready, or dies: the pipe ends when all have.
    let mut signs = Vec::new();
    File::from(ready).read_to_end(&mut signs).context("Cannot wait until the users are ready")?;
    if signs.len() < work.users as usize {
        board.abort();
    }
    let common = board.common;
    common.memory.store(before.grown()?.iter().sum(), Release);
    for _ in 0..3 {
        rustix::fs::sync();
    }
    common.started.store(span::open(now_ns), Release);
    board.open();
    while let Some((number, exit)) = children.next_end().context("Cannot wait for the users")? {
        match exit {
            Exit::Status(0) => {}
            Exit::Status(n) => board.complain(ComplaintKind::Failed, &format!("User {number} ended with status {n}")),
            Exit::Signal(n) => board.complain(ComplaintKind::Killed, &format!("User {number} was ended by signal {n}")),
        }
    }
    common.ended.store(span::close(now_ns), Release);
    span::cut();
    let usage = children_usage();
    common.user_ns.store(usage.user_ns, Release);
    common.system_ns.store(usage.system_ns, Release);
    Ok(())
}

/// A user's process. Returns its exit status.
fn user(work: &PointWork<'_>, board: &LoadPointBoard<'_>, number: u32, ready: Option<OwnedFd>) -> i32 {
    let mut draws = SplitMix64::seed_from_u64(work.seed ^ (u64::from(number) << 32));
    let Some(disk) = work.disks.get(below(&mut draws, work.disks.len())) else { return 1 };
    let mut place = UserContext::new(disk, work.executable, number, work.seed).scaled(work.scale).syncing(work.syncs);
    let order = order(work.tests, &mut draws);
    let mut times = vec![Times::default(); work.tests.len()];
    if ready.is_some_and(|ready| File::from(ready).write_all(b".").is_err()) {
        return 1;
    }
    board.wait_open();
    let mut from = now_ns();
    for &test in &order {
        if board.is_aborted() {
            return 0;
        }
        let (which, test) = (work.tests[usize::from(test)].0, usize::from(test));
        if let Err(e) = (which.run)(&mut place) {
            board.complain_of(&format!("User {number}, test `{}`", which.name), &e);
            return 1;
        }
        let now = now_ns();
        let took = now.saturating_sub(from);
        let times = &mut times[test];
        times.calls += 1;
        times.ns += took;
        times.longest_ns = times.longest_ns.max(took);
        from = now;
    }
    let lane = &board.lanes[number as usize];
    lane.ended.store(from, Release);
    lane.calls.store(times.iter().map(|t| t.calls).sum(), Release);
    for (total, times) in board.totals.iter().zip(&times) {
        total.calls.fetch_add(times.calls, Relaxed);
        total.ns.fetch_add(times.ns, Relaxed);
        total.longest_ns.fetch_max(times.longest_ns, Relaxed);
    }
    0
}

/// The tests' numbers, each as often as a user runs it, shuffled (Fisher–Yates in Durstenfeld's version).
fn order(tests: &[(&'static Test, u32)], draws: &mut SplitMix64) -> Vec<u16> {
    let times = |(test, (_, calls)): (usize, &(&Test, u32))| std::iter::repeat_n(test as u16, *calls as usize);
    let mut order: Vec<u16> = tests.iter().enumerate().flat_map(times).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, below(draws, last + 1));
    }
    order
}

/// A number below `n`, by multiplication; its bias is below n/2^64.
fn below(draws: &mut SplitMix64, n: usize) -> usize {
    ((u128::from(draws.next_u64()) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiuser::work;

    #[test]
    fn users_have_the_same_tests_in_orders_of_their_own() {
        let tests: Vec<_> = work::catalogue().iter().take(3).zip([5, 2, 3]).collect();
        let of = |seed: u64| order(&tests, &mut SplitMix64::seed_from_u64(seed));
        let (one, two) = (of(1), of(2));
        assert_eq!(one, of(1));
        assert_ne!(one, two);
        for order in [one, two] {
            assert_eq!([0, 1, 2].map(|t| order.iter().filter(|o| **o == t).count()), [5, 2, 3]);
        }
        // All positions are equally likely: the last of ten is test 1 in a fifth of the orders.
        let last = (0..2000).filter(|seed| of(*seed)[9] == 1).count();
        assert!((300..500).contains(&last), "{last}");
    }

    fn test(name: &'static str, run: fn(&mut UserContext<'_>) -> Result<()>) -> &'static Test {
        let (credit, group, needs) = (work::Credit::Blocks, work::Group::Cpu, work::Needs::Nothing);
        Box::leak(Box::new(Test { name, credit, unit: "calls", group, run, needs, summary: "" }))
    }

    /// Runs `users` who each call a test that succeeds and one that is `run`.
    fn point(users: u32, run: fn(&mut UserContext<'_>) -> Result<()>) -> Result<PointResult> {
        let dir = tempfile::tempdir().unwrap();
        let tests = [(test("good", |_| Ok(())), 3), (test("other", run), 2)];
        let disks = [TestDirectory::lay_out(dir.path(), 1024, tests.iter().map(|(t, _)| *t)).unwrap()];
        let executable = Path::new("/bin/true");
        let (disks, tests, more_space) = (&disks[..], &tests[..], "buy a larger one");
        super::run(&PointWork {
            users,
            seed: 5,
            executable,
            disks,
            tests,
            scale: Scale::FULL,
            syncs: false,
            more_space,
        })
    }

    #[test]
    fn every_user_does_its_tests() {
        let seen = point(30, |_| Ok(())).unwrap();
        assert_eq!(seen.tests.iter().map(|t| t.calls).collect::<Vec<_>>(), [90, 60]);
        assert!(seen.users_ns.len() == 30 && seen.users_ns.iter().all(|ns| *ns > 0 && *ns <= seen.elapsed_ns));
    }

    #[test]
    fn a_wrong_result_of_one_user_is_wrong_data() {
        let error = point(20, |place| match place.user() {
            7 => Err(WrongData("3 where 4 is right".to_owned()).into()),
            _ => Ok(()),
        })
        .unwrap_err();
        assert!(error.is::<WrongData>());
        assert_eq!(error.to_string(), "With 20 users: User 7, test `other`: 3 where 4 is right");
    }

    #[test]
    fn a_full_disk_and_a_dead_user_are_named() {
        let full =
            |_: &mut UserContext<'_>| Err(std::io::Error::from_raw_os_error(libc::ENOSPC)).context("Cannot write `f`");
        let error = point(1, full).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Shortage::Space(_))));
        let text = error.to_string();
        assert!(
            text.starts_with("The disk is full with 1 user and files of 1 KiB: User 0, test `other`: Cannot write `f`")
                && text.contains("; buy a larger one, or use smaller files"),
            "{text}"
        );
        let text = point(3, |place| {
            if place.user() == 2 {
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            }
            Ok(())
        });
        // A machine short of memory may have killed another process meanwhile.
        let text = text.unwrap_err().to_string();
        assert!(text.contains("User 2 was ended by signal 9"), "{text}");
    }
}
