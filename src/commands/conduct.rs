//! Conducting a study: from a question to its report, whatever part of it is done already.

use bigiron_model::host::HostKind;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use sha2::{Digest, Sha256};

use super::environment::Environment;
use super::folder::{self, Place};
use super::noise_card;
use super::output;
use crate::cli::{self, FailOn, Format};
use crate::registry::WORKLOADS;
use crate::session::progress::Progress;
use crate::session::{SessionError, What};
use crate::study::question::Question;
use crate::study::repeat;
use crate::study::schedule::SEED_LIMIT;
use crate::study::settled::{self, Settled, Surroundings};
use bigiron_archive::Kernel;
use bigiron_judge as judge;
use bigiron_judge::causes::Causes;
use bigiron_judge::counters::Counts;
use bigiron_judge::{Judgement, calls, causes, counters, locks, stacks};
use bigiron_lab::host::Host;
use bigiron_lab::host::foundation;
use bigiron_lab::host::local;
use bigiron_lab::host::local::LocalHost;
use bigiron_lab::host::sim::{Script, SimHost};
use bigiron_lab::host::vm::VmHost;
use bigiron_lab::vm::qemu::Accelerator;
use bigiron_model::clock::Clock;
use bigiron_model::identity::Identity;
use bigiron_model::plan::Plan;
use bigiron_model::record::Record;
use bigiron_model::refusal::Refusal;
use bigiron_model::size;
use bigiron_model::store::Folder;
use bigiron_report as report;
use bigiron_report::why::Why;
use bigiron_report::{Extras, Report};

/// Share of the machine's memory that guests may take together, unless `--jobs` says otherwise.
const MEMORY_SHARE: f64 = 0.8;

/// A study to be conducted.
pub(super) struct Request<'a> {
    pub question: Question,
    /// The study file, if the question came from one.
    pub file: Option<&'a Path>,
    /// What the host `sim` plays.
    pub script: Option<Script>,
    pub out: Option<&'a Path>,
    pub jobs: Option<usize>,
    /// Pairs to be looked into where lines differ; `None`: what is usual.
    pub why: Option<u32>,
    /// Pairs whose locks are looked at; `None`: as many as are looked into, where locks can be contended.
    pub locks: Option<u32>,
    /// What it is a part of, if it is a part of something larger.
    pub part: Option<Part<'a>>,
}

/// What a study is told by the larger thing that it is a part of.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// The arms' kernels: already chosen, and in the cache.
    pub kernels: &'a [Identity],
    /// The command that asks the whole again.
    pub repeat: &'a str,
    pub cancel: &'a Arc<AtomicBool>,
}

/// A study that is finished.
pub(super) struct Conducted {
    pub folder: Folder,
    pub records: Vec<Record>,
    pub judgement: Judgement,
    pub why: Why,
    /// By comparison; empty where nothing was counted.
    pub counters: Vec<Counts>,
}

/// Works through a study: everything is checked before the first boot, and what was done before is not done again.
pub(super) fn conduct(request: &Request<'_>) -> anyhow::Result<Conducted> {
    let q = &request.question;
    let environment = Environment::new(q.arms.first().map(|arm| arm.kernel.clone()))?.at(request.out);
    let settled = settled::settle(q, &environment)?;
    if let Some(warning) = &settled.warning {
        output::line(format_args!("warning: {warning}"));
    }
    if let Some(text) = &q.text {
        output::note(text);
    }
    if q.clock.is_none() && settled.clock == Clock::Exact && settled.machine.host == HostKind::Vm {
        let why = environment.kvm_report().as_ref().err().map_or("", String::as_str);
        output::note(&format!("Clock exact, since guests do not run under KVM here: {why}"));
    }
    let jobs = jobs(&settled, request.jobs, &environment)?;
    let (folder, kernels) = match folder::find(&settled, request.out)? {
        Place::Finished(folder) => {
            // Alone it has begun nothing yet that a signal would have to leave in order: a signal ends the process.
            let never = Arc::default();
            let stop = request.part.map_or(&never, |part| part.cancel);
            let judged = judged(&folder, stop)?;
            let wanted = wanted(&folder, &judged.1, request);
            let here = folder.dir().display();
            if wanted.is_empty() {
                output::note(&format!("`{here}` answers this question already; nothing is booted"));
                return finish(folder, judged, Vec::new(), stop);
            }
            output::note(&format!("`{here}` answers this question already; what differs is looked into"));
            let looked = same_programs(&folder, &environment)
                .and_then(|()| kept(&settled, &identities(folder.plan()), &environment))
                .and_then(|kernels| host(folder.plan(), &kernels, &environment, request.script.as_ref()))
                .and_then(|host| look(&folder, host.as_ref(), &wanted, jobs, cancelled_by_signals()?.as_ref()));
            return finish(folder, judged, unless_interrupted(looked)?, stop);
        }
        Place::Unfinished(folder) => {
            same_programs(&folder, &environment)?;
            output::note(&format!("Resuming the study in `{}`", folder.dir().display()));
            let kernels = kept(&settled, &identities(folder.plan()), &environment)?;
            (folder, kernels)
        }
        Place::New(prepared) => {
            let (identities, kernels) = match request.part {
                Some(part) => (part.kernels.to_vec(), kept(&settled, part.kernels, &environment)?),
                None => kernels(&settled, &environment)?,
            };
            let seed = settled.seed.map_or_else(draw_seed, Ok)?;
            let again = match (request.part, request.file) {
                (Some(part), _) => part.repeat.to_owned(),
                (None, Some(path)) => repeat::study(&path.display().to_string(), seed),
                (None, None) => repeat::command(q, &settled, seed),
            };
            let qemu =
                if settled.machine.host == HostKind::Vm { Some(Surroundings::qemu(&environment)?) } else { None };
            let mut plan = settled.plan(identities, seed, again, qemu)?;
            plan.provenance = Some(environment.provenance(plan.machine.host)?);
            if plan.machine.host != HostKind::Sim {
                for i in 0..plan.arms.len() {
                    plan.arms[i].foundation = foundation::find(WORKLOADS, &plan, &plan.arms[i])?;
                }
            }
            plan.failed_check = noise_card::failed(&plan)?;
            if let Some(check) = &plan.failed_check {
                output::line(format_args!(
                    "warning: Every verdict of this study will be `invalid`: this machine failed its last A/A check ({}: {}). Once `bigiron selftest` \
                     with the same clock and machine passes, a new study is valid",
                    check.kernel,
                    check.reasons.join("; ")
                ));
            }
            (prepared.create(&plan)?, kernels)
        }
    };
    let host = host(folder.plan(), &kernels, &environment, request.script.as_ref())?;
    output::note(&format!("Study in `{}`, clock {}", folder.dir().display(), folder.plan().clock));
    let progress = Progress::stderr();
    let cancel = match request.part {
        Some(part) => Arc::clone(part.cancel),
        None => cancelled_by_signals()?,
    };
    crate::session::run(folder.plan(), &folder, host.as_ref(), jobs, &cancel, &|event| progress.show(&event))?;
    let judged = judged(&folder, &cancel)?;
    let wanted = wanted(&folder, &judged.1, request);
    let mut missing = unless_interrupted(look(&folder, host.as_ref(), &wanted, jobs, &cancel))?;
    // Who asked for what cannot be had here is told, whether or not anything differs.
    let asked = request.why.is_some_and(|pairs| pairs > 0) && wanted.iter().all(|(_, what)| *what != What::Functions);
    if let (Err(why), true) = (host.looks(), asked) {
        missing.insert(0, format!("No causes: {why}"));
    }
    finish(folder, judged, missing, &cancel)
}

/// Pairs that are looked into, unless `--why` says otherwise: under the exact clock one differs little from another.
const LOOKED_INTO: u32 = 1;

/// The same where functions are sampled: twice the samples, which take a sixth of the trials of a study of twelve pairs.
const SAMPLED: u32 = 2;

/// The same of locks in guests on the wall clock.
const TRACED: u32 = 2;

/// Pairs of a plan whose locks are looked at and that are looked into, unless options say otherwise.
fn usual(plan: &Plan) -> (u32, u32) {
    // With one CPU whoever waits does so for a process that sleeps; spinlocks are never contended.
    let contended = plan.machine.cpus > 1;
    match (plan.machine.host, plan.clock) {
        (HostKind::Vm, Clock::Exact) => (if contended { LOOKED_INTO } else { 0 }, LOOKED_INTO),
        (HostKind::Vm, Clock::Wall) => (if contended { TRACED } else { 0 }, 0),
        (HostKind::Local, Clock::Wall) => (SAMPLED, SAMPLED),
        _ => (0, 0),
    }
}

/// The slots to be looked into for which there is no evidence yet, and for what.
fn wanted(folder: &Folder, judgement: &Judgement, request: &Request<'_>) -> Vec<(u32, What)> {
    let plan = folder.plan();
    if plan.machine.host == HostKind::Sim || plan.clock == Clock::None {
        return Vec::new();
    }
    let (locks, functions) = usual(plan);
    let into = if functions == 0 { 0 } else { request.why.unwrap_or(functions) };
    // Who wants no pair looked into, or more of them, means locks as well.
    let at = request.locks.unwrap_or(if locks == 0 { 0 } else { request.why.unwrap_or(locks) });
    let slots = |pairs| causes::slots(plan, judgement, pairs).into_iter();
    let functions = slots(into).filter(|slot| folder.evidence_of(*slot).is_none()).map(|slot| (slot, What::Functions));
    let locks = slots(at).filter(|slot| folder.waiting_of(*slot).is_none()).map(|slot| (slot, What::Locks));
    functions.chain(locks).collect()
}

/// Looks into slots; what came to nothing, in words.
fn look(
    folder: &Folder,
    host: &dyn Host,
    slots: &[(u32, What)],
    jobs: usize,
    cancel: &AtomicBool,
) -> anyhow::Result<Vec<String>> {
    let mut missing = Vec::new();
    let mut slots = slots.to_vec();
    for (of, what, can) in [(What::Functions, "causes", host.looks()), (What::Locks, "locks", host.looks_at_locks())] {
        if let (Err(why), true) = (can, slots.iter().any(|(_, what)| *what == of)) {
            missing.push(format!("No {what}: {why}"));
            slots.retain(|(_, what)| *what != of);
        }
    }
    let failed = crate::session::look(folder, host, &slots, jobs.min(host.parallel()), cancel, &output::note)?;
    let name = |slot: u32| &folder.plan().arms[folder.plan().slots[slot as usize].arm].name;
    missing.extend(failed.into_iter().map(|(slot, what, why)| {
        let locks = if what == What::Locks { "The locks of trial" } else { "Trial" };
        format!("{locks} {slot} ({}) came to nothing: {why}", name(slot))
    }));
    Ok(missing)
}

/// The study is finished and its verdict stands, whatever becomes of the search for causes; only an interruption ends the program.
fn unless_interrupted(looked: anyhow::Result<Vec<String>>) -> anyhow::Result<Vec<String>> {
    match looked {
        Err(e) if matches!(e.downcast_ref(), Some(SessionError::LookInterrupted { .. })) => Err(e),
        Err(e) => Ok(vec![format!("{e:#}")]),
        looked => looked,
    }
}

/// Leaves a judged study's page in its folder; `missing` is what was not found of its causes.
fn finish(
    folder: Folder,
    judged: (Vec<Record>, Judgement),
    missing: Vec<String>,
    stop: &AtomicBool,
) -> anyhow::Result<Conducted> {
    let conducted = Conducted::new(folder, judged, missing, stop)?;
    let page = conducted.rendered(Format::Html, false);
    // A finished study may lie on read-only media; its report is on standard output all the same.
    match conducted.folder.write_report("report.html", page.as_bytes()) {
        Ok(path) => output::note(&format!("Report: {}", path.display())),
        Err(e) => output::line(format_args!("warning: {e}")),
    }
    Ok(conducted)
}

/// The records of a study, and what they say. Lines that cannot be read are reported.
///
/// # Errors
/// The records cannot be read, or `stop` is set before they are judged.
pub(super) fn judged(folder: &Folder, stop: &AtomicBool) -> anyhow::Result<(Vec<Record>, Judgement)> {
    let read = folder.records()?;
    for (number, why) in &read.unreadable {
        output::line(format_args!("warning: records.jsonl:{number}: {why}; the line is passed over"));
    }
    let judgement = judge::judge_until(folder.plan(), &read.records, stop)?;
    Ok((read.records, judgement))
}

impl Conducted {
    /// A study with all that its folder says; `missing` is what was not found of its causes.
    ///
    /// # Errors
    /// `stop` is set before its counters are compared.
    pub(super) fn new(
        folder: Folder,
        (records, judgement): (Vec<Record>, Judgement),
        missing: Vec<String>,
        stop: &AtomicBool,
    ) -> anyhow::Result<Conducted> {
        let why = Why { missing, ..why(&folder, &records, &judgement) };
        let counters = counters::counters(folder.plan(), &records, &judgement, stop)?;
        Ok(Conducted { folder, records, judgement, why, counters })
    }

    /// The report in one of its formats; text has `all_counters` or those that differ.
    pub(super) fn rendered(&self, format: Format, all_counters: bool) -> String {
        let plan = self.folder.plan();
        let (why, counters) = (self.why.clone(), self.counters.clone());
        let extras = Extras { configs: configs(plan), why, counters, all_counters };
        let report = Report::new(plan, &self.records, &self.judgement, &extras);
        match format {
            Format::Text => report::text(&report),
            Format::Json => report::json(&report),
            Format::Html => report::html(&report),
            Format::Csv => report::csv(&report),
        }
    }
}

/// What the evidence in a study's folder says.
fn why(folder: &Folder, records: &[Record], judgement: &Judgement) -> Why {
    let (plan, evidence) = (folder.plan(), folder.evidence());
    let causes = causes::causes(plan, judgement, &evidence);
    let of = |c: &Causes| stacks::of_line(plan, judgement, c, &evidence, &|slot| folder.stacks_of(slot));
    Why {
        looking: (!evidence.is_empty()).then(|| causes::looking(plan, records, &evidence)),
        calls: calls::calls(plan, judgement, &evidence),
        stacks: causes.iter().filter(|c| c.sampled.is_some()).filter_map(of).collect(),
        locks: locks::Locks::new(plan, records, judgement, &folder.waiting()),
        causes,
        missing: Vec::new(),
    }
}

/// Configurations of the arms' kernels, as far as they are still in the cache.
fn configs(plan: &Plan) -> BTreeMap<String, String> {
    let Ok(store) = bigiron_archive::store::Store::open() else { return BTreeMap::new() };
    plan.arms
        .iter()
        .filter(|arm| arm.kernel.config_sha256.is_some())
        .filter_map(|arm| Some((arm.name.clone(), fs::read_to_string(store.get(&arm.kernel).ok()?.config?).ok()?)))
        .collect()
}

/// Exit status of a study under `--fail-on`.
pub(super) fn status(judgement: &Judgement, fail_on: &[FailOn]) -> u8 {
    use bigiron_stats::Verdict;
    match judgement.verdict {
        Some(Verdict::Worse) if !fail_on.is_empty() => super::WORSE,
        None | Some(Verdict::Inconclusive | Verdict::Invalid) if fail_on.contains(&FailOn::Inconclusive) => {
            super::INCONCLUSIVE
        }
        _ => 0,
    }
}

/// How many trials may run side by side.
fn jobs(settled: &Settled, asked: Option<usize>, here: &Environment) -> anyhow::Result<usize> {
    let (memory, host) = (settled.machine.memory_bytes, here.memory_bytes());
    let Some(jobs) = asked else {
        let fit = (host as f64 * MEMORY_SHARE / memory as f64) as usize;
        return Ok(fit.min((here.cpus() / settled.machine.cpus) as usize).max(1));
    };
    if jobs == 0 {
        return Err(Refusal::new("0 trials side by side would never end; `--jobs` is 1 or more").into());
    }
    if jobs > 1 && settled.clock != Clock::Exact {
        return Err(Refusal::new(format!(
            "{jobs} trials side by side would time each other on the clock {}",
            settled.clock
        ))
        .hint("Only the clock `exact` is blind to what runs beside it: `--clock exact`")
        .into());
    }
    if settled.machine.host == HostKind::Vm && (jobs as u64).saturating_mul(memory) > host {
        let (each, most) = (size::print_bytes(memory), host / memory);
        return Err(Refusal::new(format!("{jobs} guests of {each} do not fit into this machine; {most} do")).into());
    }
    Ok(jobs)
}

/// Refuses to run more trials of a study that other programs began.
fn same_programs(folder: &Folder, environment: &Environment) -> anyhow::Result<()> {
    let plan = folder.plan();
    environment
        .provenance(plan.machine.host)?
        .check("study", folder.dir(), plan.provenance.as_ref())
        .map_err(Into::into)
}

/// The kernels of a plan.
fn identities(plan: &Plan) -> Vec<Identity> {
    plan.arms.iter().map(|arm| arm.kernel.clone()).collect()
}

/// Kernels that were chosen before, from the cache.
fn kept(settled: &Settled, identities: &[Identity], environment: &Environment) -> anyhow::Result<Vec<Kernel>> {
    match settled.machine.host {
        HostKind::Vm => identities.iter().map(|identity| environment.kept_kernel(identity)).collect(),
        _ => Ok(Vec::new()),
    }
}

/// The arms' kernels; simulated ones are nothing but a name.
pub(super) fn kernels(settled: &Settled, environment: &Environment) -> anyhow::Result<(Vec<Identity>, Vec<Kernel>)> {
    match settled.machine.host {
        HostKind::Sim => return Ok((settled.arms.iter().map(|arm| simulated(&arm.kernel)).collect(), Vec::new())),
        HostKind::Local => return Ok((settled.arms.iter().map(|_| local::identity()).collect(), Vec::new())),
        _ => {}
    }
    let mut kernels: Vec<Kernel> = Vec::new();
    for (i, arm) in settled.arms.iter().enumerate() {
        let same = settled.arms[..i].iter().position(|other| other.kernel == arm.kernel);
        kernels.push(match same {
            Some(other) => kernels[other].clone(),
            None => environment.kernel(&arm.kernel).map_err(|e| match e.downcast::<Refusal>() {
                Ok(refusal) => refusal.at(settled.places.of(&format!("arms.{i}"))).into(),
                Err(other) => other,
            })?,
        });
    }
    Ok((kernels.iter().map(|k| k.identity.clone()).collect(), kernels))
}

fn simulated(text: &str) -> Identity {
    Identity {
        spec: text.to_owned(),
        release: format!("{}-simulated", text.rsplit(':').next().unwrap_or(text)),
        package: None,
        image_sha256: Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect(),
        config_sha256: None,
    }
}

fn host(
    plan: &Plan,
    kernels: &[Kernel],
    environment: &Environment,
    script: Option<&Script>,
) -> anyhow::Result<Box<dyn Host>> {
    if plan.machine.host == HostKind::Sim {
        return Ok(Box::new(SimHost::new(script.cloned().unwrap_or_default())));
    }
    if plan.machine.host == HostKind::Local {
        return Ok(Box::new(LocalHost::new(WORKLOADS, plan)?));
    }
    let host = vm_host(plan, kernels, environment)?;
    if let Some(why) = host.out_of_step() {
        output::line(format_args!(
            "warning: QEMU's threads cannot run in lockstep: {why}; numbers may differ by some nanoseconds when repeated"
        ));
    }
    Ok(Box::new(host))
}

/// The host `vm` for a plan.
pub(super) fn vm_host(plan: &Plan, kernels: &[Kernel], environment: &Environment) -> anyhow::Result<VmHost> {
    let qemu = environment.qemu()?.clone();
    let accelerator = match plan.clock {
        Clock::Wall => match environment.kvm_report() {
            Ok(kvm) => kvm.accelerator(),
            Err(why) => bail!("This study was begun on the clock `wall`, and KVM no longer works here: {why}"),
        },
        Clock::Exact => Accelerator::Tcg,
        // The CPU is the emulated one there.
        Clock::None if environment.kvm_report().is_ok() => Accelerator::Kvm,
        Clock::None => Accelerator::Tcg,
    };
    // Not current_exe(): its file may have been replaced meanwhile, and the running executable is what must go into the guests.
    let agent = Path::new("/proc/self/exe");
    VmHost::new(WORKLOADS, plan, kernels, environment.cache(), qemu, accelerator, agent)
}

/// A seed from the system's randomness.
pub(super) fn draw_seed() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).context("No randomness for a seed")?;
    Ok(u64::from_le_bytes(bytes) % SEED_LIMIT)
}

/// A flag that SIGINT, SIGTERM or the end of the terminal sets; the second signal ends the process at once.
pub(super) fn cancelled_by_signals() -> anyhow::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let flag = Arc::new(AtomicBool::new(false));
    // Under nohup a terminal's end is nothing.
    let ignored = is_ignored(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain((!ignored).then_some(SIGHUP)) {
        signal_hook::flag::register_conditional_shutdown(signal, i32::from(super::FAILED), Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Whether this process was started to ignore `signal`.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Conducts a study, prints its report and says what the exit status is.
pub(super) fn report(request: &Request<'_>, outcome: &cli::Outcome) -> anyhow::Result<u8> {
    let conducted = conduct(request)?;
    output::data(&conducted.rendered(outcome.format, false))?;
    Ok(status(&conducted.judgement, &outcome.fail_on))
}
