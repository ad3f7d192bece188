//! How long a study will take and how far its pairs will vary, from what this machine has shown.
//!
//! The cache keeps the time and the disk space of a trial of each finished study, and the spreads of its primaries. Without a study of the same work, those of the same workloads count,
//! and without these the times that the exact clock took on two cores of a server processor of 2023 under emulation.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::HumanDuration;
use serde::{Deserialize, Serialize};

use bigiron_judge::{Comparison, Judgement};
use bigiron_model::clock::Clock;
use bigiron_model::host::HostKind;
use bigiron_model::plan::{Machine, Plan, PlannedWorkload};
use bigiron_model::record::{Outcome, Record};
use bigiron_model::store::line::sha256_hex;

use crate::study::resolved::ResolvedQuestion;

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
    /// Absent from lines of older builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    clock: Clock,
    cpus: u32,
    /// Mean real time of a trial, in seconds.
    seconds: f64,
    /// Bytes of the study's folder for each trial.
    bytes: u64,
    /// Standard deviations of one pair on the log scale, by `WORKLOAD METRIC`: the largest of the arms.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    spreads: BTreeMap<String, f64>,
}

/// The work of a study, and where it runs.
pub struct Work<'a> {
    machine: &'a Machine,
    clock: Clock,
    workloads: &'a [PlannedWorkload],
}

impl<'a> Work<'a> {
    pub fn of(resolved: &'a ResolvedQuestion) -> Self {
        Work { machine: &resolved.machine, clock: resolved.clock, workloads: &resolved.workloads }
    }

    pub fn of_plan(plan: &'a Plan) -> Self {
        Work { machine: &plan.machine, clock: plan.clock, workloads: &plan.workloads }
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.workloads.iter().map(|w| w.name.clone()).collect();
        names.sort();
        names
    }

    /// Hash of the workloads with their options.
    fn hash(&self) -> String {
        let all: Vec<_> = self.workloads.iter().map(|w| (&w.name, &w.options)).collect();
        sha256_hex(format!("{all:?}").as_bytes())
    }

    /// The last finished studies here, of the same work or else of the same workloads.
    fn earlier<'s>(&self, all: &'s [FinishedStudy]) -> Option<(Vec<&'s FinishedStudy>, Source)> {
        let (hash, names) = (self.hash(), self.names());
        let mine = |s: &&FinishedStudy| {
            (s.host, s.clock, s.cpus) == (self.machine.host, self.clock, self.machine.cpus)
                && s.target == self.machine.target
        };
        let last = |is_it: &dyn Fn(&&FinishedStudy) -> bool| -> Vec<&'s FinishedStudy> {
            all.iter().rev().filter(mine).filter(|s| is_it(s)).take(MAX_SIMILAR).collect()
        };
        let same = last(&|s| s.work == hash);
        if !same.is_empty() {
            return Some((same, Source::SameWork));
        }
        let alike = last(&|s| s.workloads == names);
        (!alike.is_empty()).then_some((alike, Source::SameWorkloads))
    }
}

/// How far pairs vary.
#[derive(Clone, Debug, PartialEq)]
pub struct Spreads {
    /// Standard deviations of one pair on the log scale, by `WORKLOAD METRIC`; not empty.
    pub by_metric: BTreeMap<String, f64>,
    /// From what this is known, in words.
    pub source: &'static str,
}

impl Spreads {
    /// `None` unless all primaries of `workloads` have one.
    pub fn complete(
        workloads: &[PlannedWorkload],
        of: impl Fn(&str, &str) -> Option<f64>,
        source: &'static str,
    ) -> Option<Self> {
        let primaries = workloads.iter().flat_map(|w| w.metrics.iter().filter(|m| m.primary).map(move |m| (w, m)));
        let by_metric: Option<BTreeMap<String, f64>> =
            primaries.map(|(w, m)| Some((format!("{} {}", w.name, m.name), of(&w.name, &m.name)?))).collect();
        by_metric.filter(|all| !all.is_empty()).map(|by_metric| Spreads { by_metric, source })
    }

    /// The metric that varies most.
    pub fn widest(&self) -> (&str, f64) {
        let widest = self.by_metric.iter().max_by(|x, y| x.1.total_cmp(y.1));
        widest.map_or(("", 0.0), |(name, sd)| (name, *sd))
    }
}

/// How far pairs of this work varied here in earlier studies.
pub fn spreads(cache: &Path, work: &Work<'_>) -> Option<Spreads> {
    let all = read(&path(cache));
    let (found, source) = work.earlier(&all)?;
    let source = match source {
        Source::SameWork => "from earlier studies of the same work here",
        Source::SameWorkloads | Source::Defaults => "from studies of these workloads with other options here",
    };
    let of = |workload: &str, metric: &str| {
        let name = format!("{workload} {metric}");
        let squares: Vec<f64> = found.iter().filter_map(|s| s.spreads.get(&name)).map(|sd| sd * sd).collect();
        (!squares.is_empty()).then(|| (squares.iter().sum::<f64>() / squares.len() as f64).sqrt())
    };
    Spreads::complete(work.workloads, of, source)
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

/// The estimate for a study; `None` if nothing is known. On the wall clock an idle gap precedes each trial.
pub fn estimate(cache: &Path, work: &Work<'_>, idle_gap: u32) -> Option<Estimate> {
    let gap = f64::from(idle_gap);
    let all = read(&path(cache));
    if let Some((found, source)) = work.earlier(&all) {
        let seconds = found.iter().map(|s| s.seconds).sum::<f64>() / found.len() as f64;
        return Some(Estimate { seconds: seconds + gap, bytes: found[0].bytes, source });
    }
    if work.machine.host != HostKind::Vm || !work.clock.is_exact() {
        return None;
    }
    let usual = |name: &String| DEFAULT_SECONDS.iter().find(|(of, _)| of == name).map(|(_, seconds)| *seconds);
    let sum: Option<f64> = work.names().iter().map(usual).sum();
    Some(Estimate { seconds: BOOT_SECONDS + sum?, bytes: DEFAULT_BYTES, source: Source::Defaults })
}

impl Estimate {
    /// The time of some trials, `width` at a time.
    pub fn time(&self, trials: u32, width: usize) -> Duration {
        let width = u32::try_from(width).unwrap_or(1).max(1);
        let seconds = f64::from(trials.div_ceil(width)) * self.seconds;
        Duration::from_secs_f64(seconds.clamp(1.0, 1e9))
    }

    /// `about 4 minutes and 3 MiB of disk space (from earlier studies of the same work here)`.
    pub fn text(&self, trials: u32, width: usize) -> String {
        let time = HumanDuration(self.time(trials, width));
        let mib = (u64::from(trials) * self.bytes).div_ceil(1 << 20);
        let (about, why) = match self.source {
            Source::SameWork => ("about", "from earlier studies of the same work here"),
            Source::SameWorkloads => ("roughly", "from studies of these workloads with other options here"),
            Source::Defaults => ("roughly", "from another machine; the first boots give a better estimate"),
        };
        format!("{about} {time} and {mib} MiB of disk space ({why})")
    }
}

/// Keeps the times and spreads of a finished study. A cache that cannot be written costs only the next estimate.
pub fn keep(cache: &Path, plan: &Plan, records: &[Record], judgement: &Judgement, folder: &Path) {
    let times: Vec<f64> = records.iter().filter(|r| r.outcome == Outcome::Completed).map(|r| r.host.wall_s).collect();
    if times.is_empty() {
        return;
    }
    let mut spreads: BTreeMap<String, f64> = BTreeMap::new();
    for line in judgement.comparisons.iter().flat_map(Comparison::primaries) {
        let Some(estimate) = &line.estimate else { continue };
        let widest = spreads.entry(format!("{} {}", line.workload, line.metric.name)).or_default();
        *widest = widest.max(estimate.sd);
    }
    let work = Work::of_plan(plan);
    let path = path(cache);
    let mut all = read(&path);
    all.push(FinishedStudy {
        work: work.hash(),
        workloads: work.names(),
        host: plan.machine.host,
        target: plan.machine.target.clone(),
        clock: plan.clock,
        cpus: plan.machine.cpus,
        seconds: times.iter().sum::<f64>() / times.len() as f64,
        bytes: size_of(folder) / records.len() as u64,
        spreads,
    });
    let from = all.len().saturating_sub(MAX_STUDIES);
    let write = || -> std::io::Result<()> {
        // A study of this machine itself fetches nothing, so the cache need not exist.
        fs::create_dir_all(cache)?;
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

    /// Keeps a study of `of` whose trials took `seconds`.
    fn taken(cache: &Path, seconds: f64, of: &Plan) {
        let mut records = records(of, 0.01, |_, _, _| 1.0);
        records.iter_mut().for_each(|r| r.host.wall_s = seconds);
        keep(cache, of, &records, &bigiron_judge::judge(of, &records), cache);
    }

    #[test]
    fn the_same_work_is_believed_before_other_options() {
        let cache = tempfile::tempdir().unwrap();
        let of = |plan: &Plan| estimate(cache.path(), &Work::of_plan(plan), 0);
        let mut asked = plan(&["a", "b"], 10, vec![micro()]);
        (asked.machine.host, asked.clock) = (HostKind::Vm, Clock::Exact);
        let usual = of(&asked).unwrap();
        assert_eq!((usual.seconds, usual.source), (11.0, Source::Defaults));
        let mut other = asked.clone();
        other.workloads[0].options.insert("operations".to_owned(), "7".to_owned());
        taken(cache.path(), 40.0, &other);
        assert_eq!(of(&asked).unwrap().source, Source::SameWorkloads);
        taken(cache.path(), 20.0, &asked);
        let same = of(&asked).unwrap();
        assert_eq!((same.seconds, same.source), (20.0, Source::SameWork));
        assert!(same.text(20, 2).starts_with("about 3 minutes and "), "{}", same.text(20, 2));
        assert_eq!(estimate(cache.path(), &Work::of_plan(&asked), 2).unwrap().time(10, 1), Duration::from_secs(220));
        asked.machine.cpus += 1;
        assert_eq!(of(&asked).unwrap().source, Source::Defaults);
    }

    #[test]
    fn pairs_vary_as_they_did_before() {
        let cache = tempfile::tempdir().unwrap();
        let asked = plan(&["a", "b"], 10, vec![micro()]);
        let of = |plan: &Plan| spreads(cache.path(), &Work::of_plan(plan));
        assert_eq!(of(&asked), None);
        taken(cache.path(), 1.0, &asked);
        let found = of(&asked).unwrap();
        let (name, sd) = found.widest();
        assert!(name == "micro geomean" && sd > 0.001 && sd < 0.03, "{found:?}");
        // Another machine, and a workload of which nothing is known.
        let mut other = asked;
        other.machine.target = Some("db-test-3".to_owned());
        assert_eq!(of(&other), None);
        assert_eq!(of(&plan(&["a", "b"], 10, vec![micro(), bigiron_judge::fixture::dbsim()])), None);
    }
}
