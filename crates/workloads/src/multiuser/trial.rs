//! A trial: the directories, the load points one after the other, the checks of what is left.
//!
//! Invariant: between two points the directories hold exactly the prepared files; when the run has ended they are empty.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use rustix::process::Resource;

use super::board::{self, ComplaintKind};
use super::curve::{Curve, LoadPoint};
use super::metrics;
use super::options::{Load, Mode, Settings};
use super::ramp::Ramp;
use super::rates::Spread;
use super::single;
use super::user_processes::{self, PointResult, PointWork, Times};
use super::work::{Group, Needs, Test, TestDirectory};
use bigiron_workload::limits;
use bigiron_workload::{Context, Progress, WorkloadResult, WrongData};

/// The name of a trial's own directory, in the trial's folder and in each that an option names.
const OWN: &str = "multiuser";
/// Processes besides the users: their head, and those needed to report a failure.
const OTHERS: u32 = 2;

/// The users' directories: created by [`prepare`], removed after [`verify`].
pub fn directories(settings: &Settings, cx: &Context<'_>) -> Vec<PathBuf> {
    match &settings.directories[..] {
        [] => vec![cx.dir.join(OWN)],
        // A relative path is below the trial's folder.
        some => some.iter().map(|dir| cx.dir.join(dir).join(OWN)).collect(),
    }
}

/// Creates the directories; refuses more users than the machine allows processes.
///
/// # Errors
/// The limit that is too low, by its name; or a directory that cannot be created.
pub fn prepare(settings: &Settings, cx: &Context<'_>) -> Result<()> {
    let users = match (&settings.load, settings.mode) {
        (Load::Ramp(climb), Mode::Multi) => climb.spec(cx.cpus).start.max(climb.end.unwrap_or(1)),
        _ => settings.most_users().0,
    };
    allow_processes();
    limits::check(processes(settings, users))?;
    for dir in directories(settings, cx) {
        // Left by a killed trial.
        let made = match fs::remove_dir_all(&dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => fs::create_dir_all(&dir),
        };
        made.with_context(|| format!("Cannot create the directory `{}`", dir.display()))?;
    }
    if settings.mix.tests().any(|t| t.needs == Needs::Loopback) {
        crate::micro::loopback_up()?;
    }
    Ok(())
}

/// Runs the trial.
///
/// # Errors
/// The failure of a load point, or of a test in single mode.
pub fn run(settings: &Settings, cx: &Context<'_>) -> Result<WorkloadResult> {
    let dirs = directories(settings, cx);
    let mut outcome = match settings.mode {
        Mode::Single => {
            let file_bytes = settings.file_bytes(1, cx.clock);
            let disk = TestDirectory::lay_out(&dirs[0], file_bytes, settings.mix.tests()).context("Laying out")?;
            let before = names(&dirs[0])?;
            let outcome = single::run(settings, cx, &disk)?;
            nothing_else(&dirs[0], &before)?;
            disk.clear()?;
            outcome
        }
        Mode::Multi => many(settings, cx, &dirs)?,
    };
    let fact = |name: &str, value: String| (name.to_owned(), value);
    outcome.facts.extend([
        fact("mix", settings.mix.name.clone()),
        fact("loops-divided-by", settings.divisor(cx.clock).to_string()),
        fact("directories", dirs.len().to_string()),
        fact("durability", durability(settings).to_owned()),
    ]);
    if settings.mix.tests().any(|t| t.needs == Needs::File) {
        outcome.facts.insert("file-system".to_owned(), crate::micro::file_system(&dirs[0]));
    }
    if settings.mix.tests().any(|t| t.runs_scripts()) {
        outcome.facts.insert("scripts-run-by".to_owned(), super::work::shell::interpreter().to_owned());
    }
    Ok(outcome)
}

fn many(settings: &Settings, cx: &Context<'_>, dirs: &[PathBuf]) -> Result<WorkloadResult> {
    let tests = settings.mix.calls(settings.jobs());
    let jobs = tests.iter().map(|(_, calls)| *calls).sum();
    let mut curve = Curve::default();
    let mut times = vec![Times::default(); tests.len()];
    let mut disks: Vec<TestDirectory> = Vec::new();
    let mut before = Vec::new();
    let more_space = match settings.most_users() {
        (_, true) => "limit the number of users with `multiuser.end`",
        (_, false) => "make room on it",
    };
    let mut point = |users: u32, done: u32, of: u32| -> Result<u64> {
        let step = user_processes::users(users);
        (cx.progress)(Progress { step: &step, done, of });
        limits::check(processes(settings, users))?;
        let file_bytes = settings.file_bytes(users, cx.clock);
        if disks.is_empty() || settings.has_pool() {
            let lay = |dir: &PathBuf| TestDirectory::lay_out(dir, file_bytes, tests.iter().map(|(t, _)| *t));
            disks = dirs.iter().map(lay).collect::<Result<_>>().map_err(|e| match board::trouble(&e) {
                ComplaintKind::Full => user_processes::full(users, file_bytes, more_space, &format!("{e:#}")).into(),
                _ => e.context(format!("Preparing {step}")),
            })?;
            before = dirs.iter().map(|dir| names(dir)).collect::<Result<_>>()?;
        }
        let work = PointWork {
            users,
            seed: cx.seed,
            executable: &cx.executable,
            disks: &disks,
            tests: &tests,
            scale: settings.scale(cx.clock),
            syncs: settings.syncs,
            more_space,
        };
        let seen = user_processes::run(&work)?;
        for (dir, before) in dirs.iter().zip(&before) {
            nothing_else(dir, before)?;
        }
        times.iter_mut().zip(&seen.tests).for_each(|(sum, one)| add(sum, one));
        let elapsed_ns = seen.elapsed_ns;
        curve.points.push(of_point(users, jobs, file_bytes, &seen));
        Ok(elapsed_ns)
    };
    let end = match &settings.load {
        Load::List(users) => {
            for (done, n) in (0..).zip(users) {
                point(*n, done, users.len() as u32)?;
            }
            None
        }
        Load::Ramp(climb) => {
            let mut ramp = Ramp::new(climb.spec(cx.cpus));
            let mut done = 0;
            loop {
                let elapsed = point(ramp.users(), done, 0)?;
                done += 1;
                if let Err(end) = ramp.step(jobs, elapsed) {
                    break Some(end);
                }
            }
        }
    };
    for disk in disks {
        disk.clear()?;
    }
    let mut facts = curve.facts();
    facts.extend(end.map(|end| ("ramp-ended".to_owned(), end.name().to_owned())));
    facts.extend(tests.iter().zip(&times).map(|((test, calls), times)| of_test(test, *calls, times)));
    let values = metrics::values(settings, &curve);
    let windows = metrics::windows(settings, &curve);
    Ok(WorkloadResult { values, facts, windows, ..WorkloadResult::default() })
}

fn of_point(users: u32, jobs: u32, file_bytes: u64, seen: &PointResult) -> LoadPoint {
    LoadPoint {
        users,
        jobs,
        elapsed_ns: seen.elapsed_ns,
        spread: Spread::of(&seen.users_ns),
        user_ns: seen.user_ns,
        system_ns: seen.system_ns,
        memory_bytes: seen.memory_bytes,
        file_bytes,
    }
}

fn add(sum: &mut Times, one: &Times) {
    sum.calls += one.calls;
    sum.ns += one.ns;
    sum.longest_ns = sum.longest_ns.max(one.longest_ns);
}

/// The cost of a test, all users of all points together.
fn of_test(test: &Test, calls: u32, times: &Times) -> (String, String) {
    let mean = times.ns as f64 / times.calls.max(1) as f64;
    let line = format!(
        "{calls} of each user; {} in all; mean {:.4} ms, longest {:.4} ms",
        times.calls,
        mean / 1e6,
        times.longest_ns as f64 / 1e6
    );
    (format!("test.{}", test.name), line)
}

/// How the mix makes its writes durable.
fn durability(settings: &Settings) -> &'static str {
    let groups: BTreeSet<Group> = settings.mix.tests().map(|t| t.group).collect();
    match (groups.contains(&Group::SyncDisk), settings.syncs && groups.contains(&Group::Disk)) {
        (true, true) => "O_SYNC in the tests sync_disk_*, `sync` around other disk tests",
        (true, false) => "O_SYNC in the tests sync_disk_*, no other write is synced",
        (false, true) => "`sync` around disk tests",
        (false, false) => "no write is synced",
    }
}

/// Checks that nothing of the trial is left.
///
/// # Errors
/// A [`WrongData`] with the name of what is left.
pub fn verify(settings: &Settings, cx: &Context<'_>) -> Result<()> {
    for dir in directories(settings, cx) {
        nothing_else(&dir, &BTreeSet::new())?;
        fs::remove_dir(&dir).with_context(|| format!("Cannot remove `{}`", dir.display()))?;
    }
    Ok(())
}

fn names(dir: &Path) -> Result<BTreeSet<OsString>> {
    let entries = fs::read_dir(dir).with_context(|| format!("Cannot read `{}`", dir.display()))?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

/// Checks that the directory has the same entries as `before`.
fn nothing_else(dir: &Path, before: &BTreeSet<OsString>) -> Result<()> {
    let now = names(dir)?;
    let wrong = |name: &OsString, what: &str| {
        anyhow!(WrongData(format!("`{}` {what} `{}`", name.to_string_lossy(), dir.display())))
    };
    match (now.difference(before).next(), before.difference(&now).next()) {
        (Some(name), _) => Err(wrong(name, "was left in")),
        (_, Some(name)) => Err(wrong(name, "is missing in")),
        _ => Ok(()),
    }
}

/// Maximum number of processes of `users`: tests that fork have one child at a time, a shell two.
fn processes(settings: &Settings, users: u32) -> usize {
    let forks = settings.mix.tests().any(|t| t.group == Group::Process);
    users as usize * if forks { 3 } else { 1 } + OTHERS as usize
}

/// Raises the soft limit of processes to the hard limit.
fn allow_processes() {
    let mut limit = rustix::process::getrlimit(Resource::Nproc);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // If that fails, the check of limits names the limit that is too low.
        let _ = rustix::process::setrlimit(Resource::Nproc, limit);
    }
}

/// Whether a directory is in its initial state.
#[cfg(test)]
pub fn is_empty(dir: &Path) -> bool {
    names(dir).is_ok_and(|names| names.is_empty())
}

/// Facts of tests, by name.
#[cfg(test)]
pub fn tests_of(facts: &std::collections::BTreeMap<String, String>) -> Vec<&str> {
    facts.keys().filter_map(|name| name.strip_prefix("test.")).collect()
}
