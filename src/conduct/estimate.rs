//! How long a study will take, from what this machine has shown.
//!
//! The cache keeps the time and the disk space of a trial of each finished study. Without a study of the same work, those of the same workloads count,
//! and without these the times that the exact clock took on two cores of a server processor of 2023 under emulation.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use indicatif::HumanDuration;
use serde::{Deserialize, Serialize};

use bigiron_model::clock::Clock;
use bigiron_model::host::HostKind;
use bigiron_model::plan::Plan;
use bigiron_model::record::{Outcome, Record};
use bigiron_model::store::line::sha256_hex;

/// Maximum number of studies in the file.
const MAX_STUDIES: usize = 200;
/// Number of studies of the same work that count.
const MAX_SIMILAR: usize = 3;
/// Boot and settling of a guest under emulation, in CPU seconds.
const BOOT_SECONDS: f64 = 3.0;
/// CPU seconds of a workload's default options on the exact clock under emulation.
const DEFAULT_SECONDS: [(&str, f64); 4] = [("micro", 8.0), ("dbsim", 11.0), ("oltp", 38.0), ("multiuser", 20.0)];
/// Bytes of a trial's record and artefacts where nothing is known.
const DEFAULT_BYTES: u64 = 160 << 10;

/// A finished study.
#[derive(Debug, Serialize, Deserialize)]
struct FinishedStudy {
    /// Hash of the workloads with their options.
    work: String,
    workloads: Vec<String>,
    host: HostKind,
    clock: Clock,
    cpus: u32,
    /// Mean real time of a trial, in seconds.
    seconds: f64,
    /// Bytes of the study's folder for each trial.
    bytes: u64,
}

/// What is expected of a study.
#[derive(Debug, PartialEq)]
pub struct Estimate {
    /// Real time of one trial, in seconds.
    seconds: f64,
    bytes: u64,
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    SameWork,
    SameWorkloads,
    Defaults,
}

/// The estimate for a plan; `None` if nothing is known.
pub fn estimate(cache: &Path, plan: &Plan) -> Option<Estimate> {
    let all = read(&path(cache));
    let mine = |s: &&FinishedStudy| (s.host, s.clock, s.cpus) == (plan.machine.host, plan.clock, plan.machine.cpus);
    let work = work(plan);
    let same: Vec<&FinishedStudy> =
        all.iter().rev().filter(mine).filter(|s| s.work == work).take(MAX_SIMILAR).collect();
    let names = names(plan);
    let alike: Vec<&FinishedStudy> =
        all.iter().rev().filter(mine).filter(|s| s.workloads == names).take(MAX_SIMILAR).collect();
    for (found, source) in [(same, Source::SameWork), (alike, Source::SameWorkloads)] {
        if let Some(last) = found.first() {
            let seconds = found.iter().map(|s| s.seconds).sum::<f64>() / found.len() as f64;
            return Some(Estimate { seconds, bytes: last.bytes, source });
        }
    }
    if plan.machine.host != HostKind::Vm || !plan.clock.is_exact() {
        return None;
    }
    let usual = |name: &String| DEFAULT_SECONDS.iter().find(|(of, _)| of == name).map(|(_, seconds)| *seconds);
    let sum: Option<f64> = names.iter().map(usual).sum();
    Some(Estimate { seconds: BOOT_SECONDS + sum?, bytes: DEFAULT_BYTES, source: Source::Defaults })
}

impl Estimate {
    /// `about 4 minutes and 3 MiB of disk space (from earlier studies of the same work here)`.
    pub fn text(&self, trials: u32, width: usize) -> String {
        let width = u32::try_from(width).unwrap_or(1).max(1);
        let seconds = f64::from(trials.div_ceil(width)) * self.seconds;
        let time = HumanDuration(std::time::Duration::from_secs_f64(seconds.clamp(1.0, 1e9)));
        let mib = (u64::from(trials) * self.bytes).div_ceil(1 << 20);
        let (about, why) = match self.source {
            Source::SameWork => ("about", "from earlier studies of the same work here"),
            Source::SameWorkloads => ("roughly", "from studies of these workloads with other options here"),
            Source::Defaults => ("roughly", "from another machine; the first boots give a better estimate"),
        };
        format!("{about} {time} and {mib} MiB of disk space ({why})")
    }
}

/// Keeps the times of a finished study. A cache that cannot be written costs only the next estimate.
pub fn keep(cache: &Path, plan: &Plan, records: &[Record], folder: &Path) {
    let times: Vec<f64> = records.iter().filter(|r| r.outcome == Outcome::Completed).map(|r| r.host.wall_s).collect();
    if times.is_empty() || plan.machine.host == HostKind::Sim {
        return;
    }
    let path = path(cache);
    let mut all = read(&path);
    all.push(FinishedStudy {
        work: work(plan),
        workloads: names(plan),
        host: plan.machine.host,
        clock: plan.clock,
        cpus: plan.machine.cpus,
        seconds: times.iter().sum::<f64>() / times.len() as f64,
        bytes: size_of(folder) / records.len() as u64,
    });
    let from = all.len().saturating_sub(MAX_STUDIES);
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(cache)?;
        for shown in &all[from..] {
            writeln!(file, "{}", serde_json::to_string(shown)?)?;
        }
        file.persist(&path)?;
        Ok(())
    };
    let _ = write();
}

fn path(cache: &Path) -> PathBuf {
    cache.join("times.jsonl")
}

/// Lines that cannot be read are of another version.
fn read(path: &Path) -> Vec<FinishedStudy> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn names(plan: &Plan) -> Vec<String> {
    let mut names: Vec<String> = plan.workloads.iter().map(|w| w.name.clone()).collect();
    names.sort();
    names
}

fn work(plan: &Plan) -> String {
    let all: Vec<_> = plan.workloads.iter().map(|w| (&w.name, &w.options)).collect();
    sha256_hex(format!("{all:?}").as_bytes())
}

/// Bytes of the files below a folder.
fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => size_of(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_judge::fixture::{micro, plan, records};

    #[test]
    fn the_same_work_is_believed_before_other_options() {
        let cache = tempfile::tempdir().unwrap();
        let mut asked = plan(&["a", "b"], 10, vec![micro()]);
        (asked.machine.host, asked.clock) = (HostKind::Vm, Clock::Exact);
        let usual = estimate(cache.path(), &asked).unwrap();
        assert_eq!((usual.seconds, usual.source), (11.0, Source::Defaults));
        let mut other = asked.clone();
        other.workloads[0].options.insert("operations".to_owned(), "7".to_owned());
        let taking = |seconds: f64, of: &Plan| {
            let mut records = records(of, 0.0, |_, _, _| 1.0);
            records.iter_mut().for_each(|r| r.host.wall_s = seconds);
            keep(cache.path(), of, &records, cache.path());
        };
        taking(40.0, &other);
        assert_eq!(estimate(cache.path(), &asked).unwrap().source, Source::SameWorkloads);
        taking(20.0, &asked);
        let same = estimate(cache.path(), &asked).unwrap();
        assert_eq!((same.seconds, same.source), (20.0, Source::SameWork));
        assert!(same.text(20, 2).starts_with("about 3 minutes and "), "{}", same.text(20, 2));
        asked.machine.cpus += 1;
        assert_eq!(estimate(cache.path(), &asked).unwrap().source, Source::Defaults);
    }
}
