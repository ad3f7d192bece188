//! Noise cards: the results of this machine's A/A checks, kept in the cache.
//!
//! Invariant: a check applies to one clock and one description of a machine; the latest counts, whichever kernel it booted.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use bigiron_archive::store::Store;
use bigiron_judge::aa::Gate;
use bigiron_model::clock::Clock;
use bigiron_model::metric::Kind;
use bigiron_model::plan::{FailedCheck, Machine, NoiseFloor, Plan};
use bigiron_model::{size, slug};
use bigiron_stats::power;

use super::estimate::Spreads;
use crate::study::resolved::ResolvedQuestion;

/// The stored result of an A/A check: how noisy this machine is.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NoiseCard {
    pub bigiron: String,
    pub kernel: String,
    pub clock: Clock,
    pub pairs: u32,
    pub seed: u64,
    /// Whether this was the second try.
    pub repeated: bool,
    pub machine: Machine,
    pub gate: Gate,
}

impl NoiseCard {
    pub fn new(plan: &Plan, gate: Gate, repeated: bool) -> NoiseCard {
        NoiseCard {
            bigiron: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: plan.arms[0].kernel.release.clone(),
            clock: plan.clock,
            pairs: plan.design.pairs,
            seed: plan.design.seed,
            repeated,
            machine: plan.machine.clone(),
            gate,
        }
    }

    /// Writes the card to the cache: one for each kernel, clock and machine.
    pub fn keep(&self) -> anyhow::Result<PathBuf> {
        let dir = folder()?;
        let machine = &self.machine;
        let memory = size::print_bytes(machine.memory_bytes);
        let names: Vec<String> =
            machine.each().into_iter().filter_map(|one| one.target.map(|name| slug::words(&name))).collect();
        let host = [machine.host.name().to_owned()].into_iter().chain(names).collect::<Vec<_>>().join("-");
        let path = dir.join(format!(
            "{}-{host}-{}-{}cpu-{memory}-{}-{}.toml",
            self.kernel, self.clock, machine.cpus, machine.storage, machine.filesystem
        ));
        let write = || -> anyhow::Result<()> {
            fs::create_dir_all(&dir)?;
            let mut file = tempfile::NamedTempFile::new_in(&dir)?;
            file.write_all(toml::to_string(self)?.as_bytes())?;
            file.persist(&path)?;
            Ok(())
        };
        write().with_context(|| format!("Cannot write the noise card `{}`", path.display()))?;
        Ok(path)
    }
}

fn folder() -> anyhow::Result<PathBuf> {
    Ok(Store::open()?.dir().join("noise"))
}

/// The last check of the machine that `plan` is for, if the machine failed it. A study that compares a kernel with itself is such
/// a check and is not blocked by another.
pub fn failed(plan: &Plan) -> anyhow::Result<Option<FailedCheck>> {
    if plan.clock == Clock::None || plan.is_aa() {
        return Ok(None);
    }
    let failed = last_of_each(plan)?.into_iter().find(|card| !card.gate.passed);
    Ok(failed.map(|card| FailedCheck { kernel: card.kernel, reasons: card.gate.reasons }))
}

/// Whether the machine that `plan` is for has had a check on this clock.
pub fn has(plan: &Plan) -> bool {
    folder().is_ok_and(|dir| last_of(&dir, plan.clock, &plan.machine).is_some())
}

/// How far pairs of these workloads vary by the machine's last check, if it ran all of them.
pub fn spreads(resolved: &ResolvedQuestion) -> Option<Spreads> {
    let card = last_of(&folder().ok()?, resolved.clock, &resolved.machine)?;
    Spreads::complete(&resolved.workloads, |workload, metric| card.spread(workload, metric), "from the noise card")
}

/// What the machine's last check says that `plan` cannot show; only on the wall clock, where it depends on the machine.
pub fn floor(plan: &Plan) -> anyhow::Result<Option<NoiseFloor>> {
    if plan.clock != Clock::Wall || plan.is_aa() || plan.is_screening() {
        return Ok(None);
    }
    Ok(last_of(&folder()?, plan.clock, &plan.machine).and_then(|card| card.floor(plan)))
}

/// The margins to which a metric's may be widened.
const STEPS: [f64; 8] = [0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5];

/// Wider margins for exploratory metrics whose kind's margin is out of reach here: by the noise of the machine's last A/A check, the plan's pairs would
/// not show `same` with 80 % probability if nothing changed. By `WORKLOAD.METRIC`. Primaries keep their margins, as do kinds whose margins were `asked`
/// for.
pub fn wider_margins(plan: &Plan, asked: &BTreeMap<Kind, f64>) -> anyhow::Result<BTreeMap<String, f64>> {
    if plan.clock == Clock::None || plan.is_aa() || plan.is_screening() {
        return Ok(BTreeMap::new());
    }
    let mut widest: BTreeMap<String, f64> = BTreeMap::new();
    for card in last_of_each(plan)?.iter().filter(|card| card.gate.passed) {
        for (metric, margin) in card.wider_margins(plan, asked) {
            let widest = widest.entry(metric).or_insert(margin);
            *widest = margin.max(*widest);
        }
    }
    Ok(widest)
}

/// The last check of each machine of a plan.
fn last_of_each(plan: &Plan) -> anyhow::Result<Vec<NoiseCard>> {
    let folder = folder()?;
    Ok(plan.machine.each().iter().filter_map(|machine| last_of(&folder, plan.clock, machine)).collect())
}

impl NoiseCard {
    /// Standard deviation of one pair on the log scale.
    fn spread(&self, workload: &str, metric: &str) -> Option<f64> {
        let noise = self.gate.noise.iter().find(|noise| noise.workload == workload && noise.metric == metric)?;
        Some((noise.sd_percent / 100.0).ln_1p())
    }

    /// The primaries of the plan that the check had too.
    fn floor(&self, plan: &Plan) -> Option<NoiseFloor> {
        let pairs = plan.design.pairs;
        let primaries = plan.workloads.iter().flat_map(|w| w.metrics.iter().filter(|m| m.primary).map(move |m| (w, m)));
        let effects = primaries.filter_map(|(w, m)| {
            let effect = power::mde(plan.flips(), pairs as usize, self.spread(&w.name, &m.name)?).exp_m1();
            Some((format!("{} {}", w.name, m.name), effect))
        });
        let effects: BTreeMap<String, f64> = effects.collect();
        (!effects.is_empty()).then(|| NoiseFloor { kernel: self.kernel.clone(), pairs: self.pairs, effects })
    }

    fn wider_margins(&self, plan: &Plan, asked: &BTreeMap<Kind, f64>) -> BTreeMap<String, f64> {
        let mut wider = BTreeMap::new();
        for workload in &plan.workloads {
            let metrics = workload.metrics.iter().filter(|m| !m.primary && !asked.contains_key(&m.kind));
            for (metric, usual) in metrics.filter_map(|m| Some((m, *plan.margins.get(&m.kind)?))) {
                let Some(sd) = self.spread(&workload.name, &metric.name) else { continue };
                let needed = power::margin_for_same(plan.flips(), plan.design.pairs, sd).exp_m1();
                if needed > usual {
                    let step = STEPS.iter().copied().find(|step| *step >= needed).unwrap_or(STEPS[STEPS.len() - 1]);
                    wider.insert(format!("{}.{}", workload.name, metric.name), step.max(usual));
                }
            }
        }
        wider
    }
}

/// Ignores a card of another version and a file that is not a card.
fn last_of(dir: &Path, clock: Clock, machine: &Machine) -> Option<NoiseCard> {
    let cards = fs::read_dir(dir).ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let card: NoiseCard = toml::from_str(&fs::read_to_string(&path).ok()?).ok()?;
        let written = path.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        (card.clock == clock && card.machine == *machine).then_some((written, path, card))
    });
    let last = cards.max_by(|(x, path_x, _), (y, path_y, _)| x.cmp(y).then_with(|| path_x.cmp(path_y)));
    last.map(|(.., card)| card)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use bigiron_judge::aa::MetricNoise;
    use bigiron_judge::fixture;

    #[test]
    fn a_margin_out_of_reach_is_widened_before_the_first_boot() {
        let plan = fixture::plan(&["debian:6.1", "debian:6.12"], 10, vec![fixture::dbsim()]);
        let noise = |metric: &str, sd_percent| MetricNoise {
            workload: "dbsim".to_owned(),
            metric: metric.to_owned(),
            primary: metric == "throughput",
            change_percent: 0.0,
            sd_percent,
            mde_percent: None,
        };
        let noise = vec![
            noise("throughput", 20.0),
            noise("commit-p50", 1.0),
            noise("commit-p99", 13.0),
            noise("page-tables", 90.0),
        ];
        let card = NoiseCard::new(&plan, Gate { passed: true, reasons: Vec::new(), noise }, false);
        let wider = |asked: &[(Kind, f64)]| card.wider_margins(&plan, &asked.iter().copied().collect());
        // 10 pairs show `same` at about one standard deviation.
        let expected = [("dbsim.commit-p99", 0.15), ("dbsim.page-tables", 0.5)];
        assert_eq!(wider(&[]), expected.map(|(name, margin)| (name.to_owned(), margin)).into());
        assert_eq!(wider(&[(Kind::P99, 0.05)]).len(), 1, "a margin that was asked for stays");
        let mut plan = plan.clone();
        plan.wider_margins = wider(&[]);
        let metrics = &plan.workloads[0].metrics;
        assert_eq!(metrics.iter().map(|m| plan.margin("dbsim", m)).collect::<Vec<_>>(), [0.02, 0.03, 0.15, 0.5]);
        // They are part of the plan's file.
        let dir = tempfile::tempdir().unwrap();
        let folder = bigiron_model::store::Folder::create(&dir.path().join("study"), &plan).unwrap();
        assert_eq!(bigiron_model::store::Folder::open(folder.dir()).unwrap().plan(), &plan);
    }

    #[test]
    fn the_last_check_of_this_clock_and_machine_counts() {
        let dir = tempfile::tempdir().unwrap();
        let plan = fixture::plan(&["debian:6.12", "debian:6.12 (again)"], 8, vec![fixture::micro()]);
        let write = |name: &str, passed: bool, seconds: u64, change: &dyn Fn(&mut NoiseCard)| {
            let mut card =
                NoiseCard::new(&plan, Gate { passed, reasons: vec![name.to_owned()], noise: Vec::new() }, false);
            change(&mut card);
            let path = dir.path().join(name);
            fs::write(&path, toml::to_string(&card).unwrap()).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        };
        let last = || last_of(dir.path(), plan.clock, &plan.machine).map(|card| card.gate.reasons[0].clone());
        assert_eq!(last(), None);
        write("older", false, 100, &|_| {});
        write("newer", true, 200, &|card| card.kernel = "6.1".to_owned());
        write("wall", false, 300, &|card| card.clock = Clock::Wall);
        write("larger", false, 300, &|card| card.machine.cpus += 1);
        fs::write(dir.path().join("other"), "no card").unwrap();
        assert_eq!(last().as_deref(), Some("newer"));
        write("newest", false, 400, &|_| {});
        assert_eq!(last().as_deref(), Some("newest"));
    }
}
