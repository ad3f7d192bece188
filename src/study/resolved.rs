//! A question with its defaults filled in and everything checked that can be checked before a kernel is fetched.
//!
//! Invariant: every [`Plan`] is made from one; two equivalent questions have the same hash.

mod capacity;
mod local;
mod machines;
mod parsed;
mod rebuilds;
mod shape;
mod size;

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

use bigiron_lab::lever;
use bigiron_lab::lever::LeverError;
use bigiron_model::clock::Clock;
use bigiron_model::host::HostKind;
use bigiron_model::identity::Identity;
use bigiron_model::margins;
use bigiron_model::metric::Kind;
use bigiron_model::plan;
use bigiron_model::plan::{Design, Machine, Member, Plan, PlannedWorkload};
use bigiron_model::qemu::QemuSource;
use bigiron_model::refusal::Refusal;
use bigiron_model::rule::Rule;
use bigiron_model::setting::Setting;
use bigiron_model::slug;
use bigiron_model::storage;
use bigiron_model::storage::StorageProfile;
use bigiron_model::suggest;
use bigiron_stats::{Flips, power};

pub use self::parsed::ParsedSettings;
use super::question::{Question, QuestionPlaces};
use super::schedule::{self, Rounds};
use super::setting;

/// The default workloads: those that take seconds.
pub const QUICK: &[&str] = &["micro", "dbsim"];

/// The default number of pairs, if it suffices for the number of primary metrics.
/// Twelve meet a mode of 22 % of boots with 95 % probability, ten one of 26 %.
const PAIRS_GATE: u32 = 12;
const PAIRS_EXACT: u32 = 10;

/// More pairs than any study needs: 1,000 pairs detect a tenth of one pair's spread.
pub const PAIRS_LIMIT: u32 = 1000;

/// Fewest pairs of a screening: Student's interval has three degrees of freedom, and change points between two kernels can be
/// detected.
pub const SCREENING_PAIRS: u32 = 4;

/// Fewest pairs of a step of a larger search: one in each order.
pub const STEP_PAIRS: u32 = 2;

/// Refusal of `--qemu` and `machine.qemu` for this machine's own kernel.
pub const NO_CHOICE: &str = "With `--on local` there is no QEMU to choose; leave this out";

const CPUS_LIMIT: u32 = 255;
const MEMORY: u64 = 1 << 30;

/// CPU seconds for each CPU of the guest, all of which may spin while only one makes progress. A boot under emulation takes 3 to
/// 8 of them, the longest step of a workload about 20.
const HANG_LIMIT: u32 = 120;
const HANG_LIMITS: std::ops::RangeInclusive<u32> = 5..=86_400;

/// Idle seconds before each boot on the wall clock: the remains of the previous guest (its write-back, its heat, its freed
/// memory) get the same time to disappear before either arm.
const IDLE_GAP_WALL: u32 = 2;
const IDLE_GAP_LIMIT: u32 = 3600;

/// The capabilities of this machine, queried only when a question depends on them (the answer may take a boot).
pub trait Capabilities {
    /// QEMU's major and minor version; refused if there is no usable QEMU.
    fn qemu(&self) -> Result<(u32, u32), Refusal>;
    /// Whether a guest runs under KVM; if not, why not.
    fn kvm(&self) -> Result<(), String>;
    /// Whether one may run under KVM, as far as that is known without QEMU; if not, why not.
    fn may_have_kvm(&self) -> Result<(), String>;
    fn cpus(&self) -> u32;
    /// The machines, if they are several.
    fn members(&self) -> Vec<Member> {
        Vec::new()
    }
    fn memory_bytes(&self) -> u64;
    /// The type of the file system that holds the studies, as the kernel calls it.
    fn filesystem(&self) -> String;
    /// Whether a lever of the running kernel can be set on this machine; if not, why not. Options of workloads can always be set.
    fn can_set(&self, setting: &Setting) -> Result<(), String>;
}

/// A question with everything decided except the seed and the kernels.
#[derive(Clone, Debug, Serialize)]
pub struct ResolvedQuestion {
    pub arms: Vec<ResolvedArm>,
    pub workloads: Vec<PlannedWorkload>,
    pub clock: Clock,
    pub pairs: u32,
    /// Images of each source; absent from the hash if kernels are not rebuilt, so that such folders keep theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuilds: Option<u32>,
    /// Only if given.
    pub seed: Option<u64>,
    pub hang_limit: u32,
    /// Seconds.
    pub idle_gap: u32,
    pub machine: Machine,
    /// Part of the hash only if it is not the default, so that folders from before there was a choice keep theirs.
    #[serde(skip_serializing_if = "QemuSource::is_pinned")]
    pub qemu: QemuSource,
    pub margins: BTreeMap<Kind, f64>,
    /// The question in words; it has no effect.
    #[serde(skip)]
    pub text: Option<String>,
    /// A warning for a study that can run but will probably disappoint.
    #[serde(skip)]
    pub warning: Option<String>,
    #[serde(skip)]
    pub places: QuestionPlaces,
}

/// An arm whose kernel is not known yet.
#[derive(Clone, Debug, Serialize)]
pub struct ResolvedArm {
    pub name: String,
    /// As typed.
    pub kernel: String,
    /// Its own settings, applied over those of all arms.
    pub settings: Vec<Setting>,
    /// The parsed settings.
    #[serde(skip)]
    pub parsed: ParsedSettings,
}

/// Fills in defaults and refuses questions that cannot run. QEMU, which may have to be fetched, is looked for only if nothing else is wrong.
pub fn resolve(q: &Question, here: &impl Capabilities) -> Result<ResolvedQuestion, Refusal> {
    check_arms(q)?;
    let possible = possible_clocks(q, here)?;
    let mut answers: Vec<_> = possible.iter().map(|clock| with_clock(q, here, *clock)).collect();
    let host = q.host.unwrap_or_default();
    // A question that is wrong under every clock is refused as under the likeliest one.
    let at = match answers.iter().any(Result::is_ok) && host == HostKind::Vm {
        true => {
            let clock = clock(q, here)?;
            possible.iter().position(|c| *c == clock).expect("it is one of the possible clocks")
        }
        false => possible.len() - 1,
    };
    answers.swap_remove(at)
}

/// The question under this clock, or what is wrong with it; does not need QEMU.
fn with_clock(q: &Question, here: &impl Capabilities, clock: Clock) -> Result<ResolvedQuestion, Refusal> {
    let places = q.places.clone();
    let (planned, arms) = parsed::read(q)?;
    let host = q.host.unwrap_or_default();
    if host.is_machine() {
        local::check(q, host, here)?;
    }
    let cpus = q.cpus.unwrap_or(if host.is_machine() { here.cpus() } else { 1 });
    if !host.is_machine() && !(1..=CPUS_LIMIT).contains(&cpus) {
        return Err(places.refuse("machine.cpus", format!("A guest has from 1 to {CPUS_LIMIT} CPUs, not {cpus}")));
    }
    let clock = if host == HostKind::Vm { clock.with_cpus(cpus) } else { clock };
    check_storage_name(q)?;
    let filesystem = filesystem(q)?;
    if let Some(seed) = q.seed.filter(|s| *s >= schedule::SEED_LIMIT) {
        let most = schedule::SEED_LIMIT - 1;
        return Err(places.refuse("design.seed", format!("The seed {seed} is too large; the largest is {most}")));
    }
    let silence = arms.iter().map(|arm| arm.parsed.silence(host).as_secs()).max();
    let seconds = u32::try_from(silence.unwrap_or(0)).unwrap_or(u32::MAX).saturating_add(HANG_LIMIT);
    let hang_limit = q.hang_limit.unwrap_or(seconds.saturating_mul(cpus));
    if q.hang_limit.is_some_and(|limit| !HANG_LIMITS.contains(&limit)) {
        let (least, most) = (HANG_LIMITS.start(), HANG_LIMITS.end());
        let message = format!("A hang limit is from {least} to {most} CPU seconds, not {hang_limit}");
        return Err(places.refuse("design.hang-limit", message));
    }
    let primaries = planned.len() * (arms.len() - 1);
    let members = machines::members(q, host, clock, here)?;
    let flips = Rule::LATEST.flips_on(clock, members.len());
    rebuilds::check(q, host)?;
    size::check(q, clock)?;
    let usual = if clock == Clock::Wall || q.gates { PAIRS_GATE } else { PAIRS_EXACT };
    let enough = power::balanced(flips, usual.max(power::smallest_pairs(flips, primaries)));
    let pairs = |given: Option<u32>| given.unwrap_or(enough);
    let warning = check_pairs(q, flips, primaries)?;
    let (pairs, warning) = match q.rebuilds {
        Some(builds) => rebuilds::pairs(q, builds, usual, clock, primaries)?,
        None => (pairs(q.pairs), warning),
    };
    let storage = if host.is_machine() { storage::LOCAL } else { storage(q, clock)?.name };
    let filesystem = if host.is_machine() { here.filesystem() } else { filesystem.to_owned() };
    let idle_gap = idle_gap(q, host, clock)?;
    let memory_bytes =
        if host.is_machine() { here.memory_bytes() >> 20 << 20 } else { q.memory_bytes.unwrap_or(MEMORY) };
    let mut resolved = ResolvedQuestion {
        pairs,
        rebuilds: q.rebuilds,
        machine: Machine {
            host,
            target: if members.is_empty() { q.targets.first().cloned() } else { None },
            cpus,
            memory_bytes,
            storage: storage.to_owned(),
            filesystem,
            members,
        },
        qemu: q.qemu.unwrap_or_default(),
        workloads: planned,
        seed: q.seed,
        margins: margins::complete(&q.margins),
        arms,
        clock,
        hang_limit,
        idle_gap,
        text: q.text.clone(),
        warning,
        places,
    };
    for (i, arm) in resolved.arms.iter().enumerate() {
        lever::check_together(&arm.settings)
            .map_err(|e| resolved.places.refuse(&format!("arms.{i}"), e.to_string()))?;
    }
    if !host.is_machine() && q.memory_bytes.is_none() {
        resolved.widen_memory();
    }
    resolved.check_shapes()?;
    resolved.check_memory()?;
    resolved.check_host_memory(here)?;
    resolved.check_cpus(here)?;
    Ok(resolved)
}

fn choice<'c>(what: &str, word: &str, choices: &[&'c str]) -> Result<&'c str, Refusal> {
    choices
        .iter()
        .find(|c| **c == word)
        .copied()
        .ok_or_else(|| Refusal::new(format!("Unknown {what} `{word}`; it can be {}", suggest::list(choices))))
}

/// Refuses an unknown storage name, before the machine is queried.
fn check_storage_name(q: &Question) -> Result<(), Refusal> {
    let Some(name) = &q.storage else { return Ok(()) };
    let names: Vec<&str> = storage::PROFILES.iter().map(|p| p.name).filter(|n| *n != storage::LOCAL).collect();
    choice("storage", name, &names).map(|_| ()).map_err(|r| r.at(q.places.of("machine.storage")))
}

fn filesystem(q: &Question) -> Result<&str, Refusal> {
    let Some(name) = &q.filesystem else { return Ok("ext4") };
    setting::check("fs.type", name).map(|_| name.as_str()).map_err(|e| match e {
        LeverError::Value { right, .. } => {
            q.places.refuse("machine.filesystem", format!("Unknown file system `{name}`; {right}"))
        }
        other => other.into(),
    })
}

fn storage(q: &Question, clock: Clock) -> Result<&'static StorageProfile, Refusal> {
    let asked = q.storage.as_deref().and_then(storage::find);
    let profile = asked.unwrap_or_else(|| storage::default(clock));
    profile.goes_with(clock).map_err(|why| {
        let right = suggest::list(storage::names(clock));
        q.places.refuse("machine.storage", why).hint(match q.clock {
            Some(_) => format!("With the clock `{clock}` storage is {right}"),
            None => format!("This machine's default clock is `{clock}`, and with it storage is {right}"),
        })
    })?;
    Ok(profile)
}

fn idle_gap(q: &Question, host: HostKind, clock: Clock) -> Result<u32, Refusal> {
    let refuse = |message| Err(q.places.refuse("design.idle-gap", message));
    match q.idle_gap {
        Some(gap) if gap > IDLE_GAP_LIMIT => {
            refuse(format!("An idle gap is at most {IDLE_GAP_LIMIT} seconds, not {gap}"))
        }
        Some(gap) if gap > 0 && clock != Clock::Wall => refuse(format!(
            "An idle gap lets a machine settle, which does not affect the clock `{clock}`; leave it out"
        )),
        Some(gap) => Ok(gap),
        None if host != HostKind::Sim && clock == Clock::Wall => Ok(IDLE_GAP_WALL),
        None => Ok(0),
    }
}

fn check_arms(q: &Question) -> Result<(), Refusal> {
    if q.arms.len() < 2 {
        let message = match q.arms.len() {
            0 => "No kernels to compare; a comparison needs two arms or more".to_owned(),
            _ => format!("Only one arm, `{}`; a comparison needs two or more", q.arms[0]),
        };
        return Err(q
            .places
            .refuse("arms", message)
            .hint("The same kernel twice is a comparison too: it measures this machine's noise floor"));
    }
    for (i, arm) in q.arms.iter().enumerate() {
        let named = arm.name.as_ref().is_some_and(|name| q.arms[..i].iter().any(|a| a.name.as_ref() == Some(name)));
        if named {
            let message = format!("Two arms are named `{}`", arm.short_name());
            return Err(q.places.refuse(&format!("arms.{i}"), message));
        }
    }
    lever::check_duplicates(&q.settings).map_err(|e| q.places.refuse("set", e.to_string()))
}

/// Refuses a number of pairs that allows no verdict; warns of one that does not allow all.
fn check_pairs(q: &Question, flips: Flips, primaries: usize) -> Result<Option<String>, Refusal> {
    let Some(pairs) = q.pairs else { return Ok(None) };
    let refuse = |message| Err(q.places.refuse("design.pairs", message));
    // Builds are counted instead.
    if q.rebuilds.is_some() && pairs <= PAIRS_LIMIT {
        return Ok(None);
    }
    let (least, enough) = match (q.step, q.screening) {
        (true, _) => (STEP_PAIRS, STEP_PAIRS),
        (false, true) => (power::balanced(flips, SCREENING_PAIRS), SCREENING_PAIRS),
        (false, false) => (power::smallest_pairs(flips, 1), power::smallest_pairs(flips, primaries)),
    };
    // Enough for the verdicts, and for modes of boots that are not too rare.
    let advised = if q.step || q.screening { enough } else { enough.max(PAIRS_EXACT) };
    if pairs > PAIRS_LIMIT {
        return refuse(format!("{pairs} pairs are too many; the maximum is {PAIRS_LIMIT}"));
    }
    let advised = power::balanced(flips, advised);
    let step = power::step(flips);
    if !pairs.is_multiple_of(step) {
        let right = match pairs > least {
            true => format!("{} or {}", pairs / step * step, pairs.next_multiple_of(step)),
            false => format!("{advised} or more"),
        };
        let on_each = if let Flips::Blocks(machines) = flips {
            format!(" on each of {machines} machines")
        } else {
            String::new()
        };
        return refuse(format!(
            "{pairs} pairs cannot be balanced, with each arm first as often as last{on_each}; use {right}"
        ));
    }
    if pairs < least {
        return refuse(format!("{pairs} pairs are too few for any verdict; use {advised} or more"));
    }
    Ok((pairs < enough).then(|| {
        format!(
            "{pairs} pairs cannot carry {primaries} verdicts at once: every change would be `inconclusive`, however clear; \
             {enough} pairs can"
        )
    }))
}

/// The clocks that the question may have here, as far as that is known without QEMU; the likeliest last.
fn possible_clocks(q: &Question, here: &impl Capabilities) -> Result<Vec<Clock>, Refusal> {
    match (q.host.unwrap_or_default(), q.clock) {
        (host, Some(clock)) if host.is_machine() && clock != Clock::Wall => {
            let message = format!("With `--on {host}` the only clock is `wall`; `{clock}` needs guests");
            Err(q.places.refuse("design.clock", message))
        }
        (_, Some(clock)) => Ok(vec![clock]),
        (HostKind::Sim | HostKind::Local | HostKind::Ssh, None) => Ok(vec![Clock::Wall]),
        (HostKind::Vm, None) if here.may_have_kvm().is_ok() => Ok(vec![Clock::Exact, Clock::Wall]),
        (HostKind::Vm, None) => Ok(vec![Clock::Exact]),
    }
}

/// The clock of guests on this machine.
fn clock(q: &Question, here: &impl Capabilities) -> Result<Clock, Refusal> {
    let no_kvm = |why: String| {
        q.places
            .refuse("design.clock", format!("The clock `wall` needs a guest that runs under KVM: {why}"))
            .hint("The clock `exact` works without KVM, on any machine: `--clock exact`")
    };
    if q.clock == Some(Clock::Wall) {
        here.may_have_kvm().map_err(no_kvm)?;
    }
    here.qemu()?;
    match q.clock {
        Some(Clock::Wall) => here.kvm().map(|()| Clock::Wall).map_err(no_kvm),
        Some(clock) => Ok(clock),
        None if here.kvm().is_ok() => Ok(Clock::Wall),
        None => Ok(Clock::Exact),
    }
}

impl ResolvedQuestion {
    /// Hash of the question, including the seed only if it was given. Lower-case hexadecimal.
    pub fn sha256(&self) -> String {
        let asked = serde_json::to_vec(self).expect("a resolved question is plain data");
        Sha256::digest(asked).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether another machine must boot before each trial; see [`Plan::boots`].
    pub fn boots(&self) -> bool {
        let is_other = |arm: &ResolvedArm| {
            arm.kernel != plan::RUNNING || arm.settings.iter().any(|(lever, _)| lever.starts_with("boot."))
        };
        self.machine.host == HostKind::Ssh && self.arms.iter().any(is_other)
    }

    /// The default name of the study's folder: short names of the arms and the beginning of the hash.
    pub fn folder_name(&self) -> String {
        let arms: Vec<&str> = self.arms.iter().map(|a| a.name.as_str()).collect();
        slug::of_question(&arms, &self.sha256())
    }

    /// The re-randomisations of a study without rebuilt kernels.
    pub fn flips(&self) -> Flips {
        Rule::LATEST.flips_on(self.clock, self.machine.members.len())
    }

    /// What its pairs go round.
    fn rounds(&self) -> Rounds {
        match self.rebuilds {
            Some(builds) => Rounds::Builds(builds),
            None => Rounds::Machines(self.machine.members.len().max(1) as u32),
        }
    }

    /// Draws the plan. `kernels` are those of the arms, in order; `qemu` is the version that will boot them. The arms have no builds yet.
    ///
    /// # Errors
    /// If a kernel cannot run on the requested machine.
    pub fn plan(
        &self,
        kernels: Vec<Identity>,
        seed: u64,
        repeat: String,
        qemu: Option<(u32, u32)>,
    ) -> Result<Plan, Refusal> {
        assert_eq!(kernels.len(), self.arms.len(), "one kernel for each arm");
        for (i, kernel) in kernels.iter().enumerate() {
            self.check_live_lock(i, kernel, qemu)?;
        }
        let arms = self.arms.iter().zip(kernels).map(|(arm, kernel)| plan::Arm {
            name: arm.name.clone(),
            kernel,
            settings: arm.settings.clone(),
            foundation: BTreeMap::new(),
            builds: Vec::new(),
        });
        Ok(Plan {
            schema: plan::SCHEMA,
            bigiron: env!("CARGO_PKG_VERSION").to_owned(),
            question_sha256: self.sha256(),
            question: self.text.clone(),
            repeat,
            clock: self.clock,
            rule: Rule::LATEST,
            provenance: None,
            begun: None,
            design: Design {
                pairs: self.pairs,
                seed,
                hang_cpu_seconds: self.hang_limit,
                idle_gap_seconds: self.idle_gap,
                rebuilds: self.rebuilds,
            },
            machine: self.machine.clone(),
            arms: arms.collect(),
            workloads: self.workloads.clone(),
            margins: self.margins.clone(),
            wider_margins: BTreeMap::new(),
            failed_check: None,
            noise_floor: None,
            slots: schedule::draw(seed, self.pairs, self.rounds(), self.arms.len(), self.workloads.len()),
        })
    }
}

#[cfg(test)]
mod tests;
