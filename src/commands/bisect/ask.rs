//! The question of a bisection: the workload and the metric, the design, and the options that repeat the question.

use crate::registry;
use bigiron_model::host::HostKind;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::bisect::folder::SCHEMA;
use crate::bisect::{Bisection, Candidate, SearchKind, Source};
use crate::cli::{BisectCommon, Design};
use crate::commands::compare;
use crate::commands::nightly;
use crate::conduct::environment::Environment;
use crate::study::arm::ArmText;
use crate::study::question::Question;
use crate::study::resolved::{self, ResolvedQuestion};
use crate::study::schedule;
use crate::study::schedule::SEED_LIMIT;
use bigiron_lab::host::sim::Script;
use bigiron_model::clock::Clock;
use bigiron_model::date;
use bigiron_model::metric::MetricDef;
use bigiron_model::provenance::Provenance;
use bigiron_model::refusal::Refusal;
use bigiron_model::setting::Setting;
use bigiron_model::shell::quote;
use bigiron_model::suggest;

/// A question after parsing and checking.
pub(super) struct BisectQuestion {
    /// The question of all studies, without arms and seed.
    pub base: Question,
    pub script: Option<Script>,
    /// The resolved question of all arms, which has been checked for errors.
    pub resolved: ResolvedQuestion,
    pub workload: String,
    pub metric: MetricDef,
    /// The programs that run trials on this machine.
    pub here: Provenance,
    /// The setting that makes the workload measure this metric alone.
    alone: Option<Setting>,
}

/// Parses and checks the question of `arms`.
pub(super) fn ask(
    common: &BisectCommon,
    what: &str,
    arms: &[ArmText],
    environment: &Environment<'_>,
) -> anyhow::Result<BisectQuestion> {
    let script = common.sim.as_deref().map(nightly::script).transpose()?;
    let (name, metric) = what.split_once(':').map_or((what, None), |(name, metric)| (name, Some(metric)));
    let Some(workload) = registry::find(name) else {
        let names = registry::all().iter().map(|w| w.name());
        let right = match suggest::nearest(name, names.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("it can be {}", suggest::list(names)),
        };
        return Err(Refusal::new(format!("`{name}` is not a workload; {right}"))
            .hint("Name the metric to bisect as WORKLOAD:METRIC, such as `micro:fork-exit`")
            .into());
    };
    let mut base = compare::question(&[], &common.design)?;
    base.workloads = vec![name.to_owned()];
    if common.sim.is_some() {
        base.host = Some(HostKind::Sim);
    }
    let all = |base: &Question| {
        let q = Question { arms: arms.to_vec(), pairs: None, ..base.clone() };
        resolved::resolve(&q, environment)
    };
    let resolved = all(&base)?;
    let metric = find(&resolved.workloads[0].metrics, name, metric)?;
    if resolved.clock == Clock::None {
        return Err(Refusal::new("The clock `none` measures nothing to bisect")
            .hint("`--clock exact` works without KVM, on any machine")
            .into());
    }
    let alone = workload.alone(&metric.name).map(|(option, value)| (format!("{name}.{option}"), value));
    let is_set =
        |lever: &str| base.settings.iter().chain(arms.iter().flat_map(|a| &a.settings)).any(|(l, _)| l == lever);
    let alone = alone.filter(|(lever, _)| !is_set(lever));
    base.settings.extend(alone.clone());
    let resolved = all(&base)?;
    let here = environment.provenance(resolved.machine.host)?;
    Ok(BisectQuestion { base, script, resolved, workload: name.to_owned(), metric, here, alone })
}

/// The question of one test, whose pairs are combined with other evidence.
pub(super) fn step(base: &Question, arms: Vec<ArmText>, pairs: u32, seed: u64) -> Question {
    Question { arms, pairs: Some(pairs), step: true, seed: Some(seed), ..base.clone() }
}

/// The question of the ends.
pub(super) fn ends(base: &Question, arms: Vec<ArmText>, seed: u64) -> Question {
    Question { arms, seed: Some(seed), ..base.clone() }
}

/// The metric of that name, or the primary.
fn find(metrics: &[MetricDef], workload: &str, name: Option<&str>) -> Result<MetricDef, Refusal> {
    let Some(name) = name else {
        let primary = metrics.iter().find(|m| m.primary);
        return primary.cloned().ok_or_else(|| Refusal::new(format!("`{workload}` has no primary metric")));
    };
    metrics.iter().find(|m| m.name == name).cloned().ok_or_else(|| {
        let names = || metrics.iter().map(|m| m.name.as_str());
        let right = match suggest::nearest(name, names()) {
            Some(near) => format!("did you mean `{workload}:{near}`?"),
            None => format!("it has {}", suggest::list(names())),
        };
        Refusal::new(format!("`{workload}` has no metric `{name}`; {right}"))
    })
}

impl BisectQuestion {
    /// Hash of the question.
    pub fn sha256(&self, what: SearchKind, error: f64, pairs_per_step: u32) -> String {
        let asked = format!(
            "{} {what:?} {error} {:?} {pairs_per_step} {}",
            self.resolved.sha256(),
            self.base.pairs,
            self.metric.name
        );
        Sha256::digest(asked).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The description of a new bisection; `repeat` builds the command line from the options that all kinds share.
    pub fn describe(
        &self,
        common: &BisectCommon,
        what: SearchKind,
        rest: DescriptionParts,
        candidates: Vec<Candidate>,
        repeat: impl FnOnce(&str) -> String,
    ) -> anyhow::Result<Bisection> {
        let seed = self.base.seed.map_or_else(schedule::draw_seed, Ok)?;
        let mut again = options(&common.design, self.resolved.clock, seed);
        let mut options = again.clone();
        if let Some((lever, value)) = &self.alone {
            options.extend(["--set".to_owned(), format!("{lever}={value}")]);
        }
        let own = |name: &str, value: Option<String>| value.map(|v| vec![format!("--{name}"), v]).unwrap_or_default();
        again.extend(own("pairs-per-step", common.pairs_per_step.map(|n| n.to_string())));
        again.extend(own("sim", common.sim.as_deref().map(|p: &Path| p.display().to_string())));
        let joined = |words: &[String]| words.iter().map(|w| quote(w)).collect::<Vec<_>>().join(" ");
        Ok(Bisection {
            schema: SCHEMA,
            bigiron: env!("CARGO_PKG_VERSION").to_owned(),
            executable: self.here.executable.clone(),
            qemu: self.here.qemu.clone(),
            qemu_build: self.here.qemu_build.clone(),
            question_sha256: rest.question_sha256,
            begun: date::now(),
            repeat: repeat(&joined(&again)),
            options: joined(&options),
            clock: self.resolved.clock,
            seed,
            what,
            error: rest.error,
            pairs_per_step: rest.pairs_per_step,
            steps: rest.steps,
            workload: self.workload.clone(),
            metric: self.metric.clone(),
            source: rest.source,
            candidates,
        })
    }
}

/// The parts of a description besides the question.
pub(super) struct DescriptionParts {
    pub question_sha256: String,
    pub error: f64,
    pub pairs_per_step: u32,
    pub steps: u32,
    /// The source of the commits to build.
    pub source: Option<Source>,
}

/// The options that express a design on the command line.
fn options(design: &Design, clock: Clock, seed: u64) -> Vec<String> {
    let mut words = Vec::new();
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.extend([format!("--{name}"), value]);
        }
    };
    option("on", design.on.as_ref().map(ToString::to_string));
    option("clock", Some(clock.to_string()));
    option("pairs", design.pairs.map(|n| n.to_string()));
    option("cpus", design.cpus.map(|n| n.to_string()));
    option("memory", design.memory.clone());
    option("storage", design.storage.clone());
    option("filesystem", design.filesystem.clone());
    option("qemu", design.qemu.map(|source| source.to_string()));
    for set in &design.set {
        option("set", Some(set.clone()));
    }
    for margin in &design.margin {
        option("margin", Some(margin.clone()));
    }
    option("hang-limit", design.hang_limit.map(|n| n.to_string()));
    option("idle-gap", design.idle_gap.map(|n| n.to_string()));
    option("seed", Some(seed.to_string()));
    if design.quiet_machine {
        words.push("--quiet-machine".to_owned());
    }
    words
}

/// The seed of one study of a bisection: different for each, so that no two boots of the baseline are the same.
pub(super) fn seed_of(seed: u64, part: &str) -> u64 {
    let digest = Sha256::digest(format!("{seed} {part}"));
    digest.iter().take(8).fold(0, |word, byte| word << 8 | u64::from(*byte)) % SEED_LIMIT
}

/// A name for the folder, before the hash.
pub(super) fn slug(words: &[&str]) -> String {
    let plain = |word: &&str| {
        let words = word.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').filter(|w| !w.is_empty());
        words.collect::<Vec<_>>().join("-").chars().take(40).collect::<String>()
    };
    words.iter().map(plain).collect::<Vec<_>>().join("-")
}
