//! Conducting a study: from a question to its report. Finished work of an earlier run is not repeated.

mod builds;
pub mod environment;
mod estimate;
mod foundations;
pub mod hosts;
pub mod inputs;
mod modelled;
pub mod noise_card;
mod other_question;
mod reruns;
mod setting_check;
pub mod signals;
mod sizing;
mod slurm;
pub mod study_folder;
mod trials_by;
pub mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bigiron_archive::spec::KernelSpec;
use bigiron_judge as judge;
use bigiron_judge::causes::Causes;
use bigiron_judge::counters::ComparedCounters;
use bigiron_judge::{Judgement, calls, causes, counters, locks, modelled as cycles, stacks};
use bigiron_lab::host::Host;
use bigiron_lab::host::sim::Script;
use bigiron_lab::host::ssh::way_back;
use bigiron_model::date;
use bigiron_model::host::HostKind;
use bigiron_model::identity::Identity;
use bigiron_model::plan::Plan;
use bigiron_model::printable::without_passwords;
use bigiron_model::purpose::Purpose;
use bigiron_model::record::Record;
use bigiron_model::refusal::Refusal;
use bigiron_model::setting::Setting;
use bigiron_model::shell::quote;
use bigiron_model::store::{Folder, SlotTally};
use bigiron_report as report;
use bigiron_report::sentence::{self, About};
use bigiron_report::why::Why;
use bigiron_report::{Extras, Report};

use self::environment::Environment;
use self::estimate::Work;
use self::slurm::SlurmJob;
use self::study_folder::StudyFolder;
pub use self::trials_by::TrialsBy;
use crate::session::{self, SessionEvent};
use crate::study::question::Question;
use crate::study::resolved::{self, Capabilities, ResolvedArm, ResolvedQuestion};
use crate::study::{repeat, schedule};

/// Receives reports of a study's progress.
pub trait Observer: Sync {
    /// Something the user should know.
    fn note(&self, text: &str);
    /// Something that may spoil the result.
    fn warn(&self, text: &str);
    /// Returns the receiver of one session's events; several threads call it.
    fn session(&self) -> Box<dyn Fn(SessionEvent) + Sync>;
}

/// A study to conduct.
pub struct StudyRequest<'a> {
    pub question: Question,
    /// The study file, if the question came from one.
    pub file: Option<&'a Path>,
    /// What the host `sim` plays.
    pub script: Option<Script>,
    pub out: Option<&'a Path>,
    /// Begin a new study, although one of the question exists.
    pub fresh: bool,
    pub jobs: Option<usize>,
    /// Pairs to rerun with profiling where lines differ; `None`: the default.
    pub why: Option<u32>,
    /// Whether every judged trial is modelled (`--model`).
    pub model: bool,
    /// Pairs to rerun with lock tracing; `None`: as many as are profiled, if locks can be contended.
    pub locks: Option<u32>,
    pub trials: TrialsBy,
    /// The larger search that the study belongs to, if any.
    pub part: Option<SearchContext<'a>>,
    pub observer: &'a dyn Observer,
}

/// The context that a larger search gives its studies.
#[derive(Clone, Copy)]
pub struct SearchContext<'a> {
    /// The arms' kernels: already chosen, and in the cache.
    pub kernels: &'a [Identity],
    /// The command that repeats the whole search.
    pub repeat: &'a str,
    pub cancel: &'a Arc<AtomicBool>,
}

/// A finished study.
pub struct Conducted {
    pub folder: Folder,
    pub records: Vec<Record>,
    pub judgement: Judgement,
    pub why: Why,
    /// By comparison; empty if nothing was counted.
    pub counters: Vec<ComparedCounters>,
    /// The HTML page in the folder, if it could be written.
    pub page: Option<PathBuf>,
}

/// Works through a study: everything is checked before the first boot, and finished trials are not repeated.
pub fn conduct(request: &StudyRequest<'_>) -> anyhow::Result<Conducted> {
    let q = &request.question;
    let observer = request.observer;
    check_paths(q)?;
    let environment = Environment::new(q.arms.iter().map(|arm| arm.kernel.clone()).collect(), observer)?
        .at(request.out, q.qemu)
        .on(if q.host == Some(HostKind::Ssh) { &q.targets } else { &[] }, q.no_way_back, q.no_vm_gate)?;
    let mut resolved = resolved::resolve(q, &environment)?;
    if let Some(warning) = &resolved.warning {
        observer.warn(warning);
    }
    // A target has its own.
    let sysctls = Path::new(if q.host == Some(HostKind::Ssh) { "/dev/null" } else { "/proc/sys" });
    for warning in setting_check::check(&resolved, sysctls)? {
        observer.warn(&warning);
    }
    if resolved.machine.host.is_machine() {
        warn_of_equal_arms(&resolved, &environment);
    }
    if resolved.machine.host == HostKind::Ssh {
        hosts::check_distinct(&resolved, &environment)?;
    }
    if let Some(text) = &q.text {
        observer.note(text);
    }
    if q.clock.is_none() && resolved.clock.is_exact() && resolved.machine.host == HostKind::Vm {
        let why = environment.kvm_report().as_ref().err().map_or("", String::as_str);
        observer.note(&format!("Using the exact clock, because guests do not run under KVM here: {why}"));
    }
    let jobs = hosts::jobs(&resolved, request.jobs, &environment)?;
    sizing::choose(&mut resolved, request, &environment, jobs)?;
    // Until something needs an orderly end, a signal simply ends the process.
    let orderly = || match request.part {
        Some(part) => Ok(Arc::clone(part.cancel)),
        None => signals::cancelled_by_signals(),
    };
    let mut cancel = if resolved.rebuilds.is_some() { Some(orderly()?) } else { None };
    if request.trials != TrialsBy::This && resolved.machine.host != HostKind::Sim && !resolved.clock.is_exact() {
        let hint = match resolved.machine.host {
            HostKind::Vm => "`--clock exact`, or `clock = \"exact\"` in a study file, selects the exact clock",
            _ => "The exact clock needs guests: omit `--on`, or `host` in a study file",
        };
        return Err(Refusal::new(format!(
            "Workers run trials on the exact clock only; on the clock `{}` a trial depends on the machine",
            resolved.clock
        ))
        .hint(hint)
        .into());
    }
    if request.trials != TrialsBy::This && !resolved.machine.members.is_empty() {
        return Err(Refusal::new("Workers run the trials of a study on one kind of machine; name one machine").into());
    }
    if request.trials != TrialsBy::This && request.model {
        return Err(Refusal::new(
            "Workers do not model trials; omit `--model`. bigiron models the trials that it reruns to find causes",
        )
        .into());
    }
    if request.model {
        modelled::check(resolved.machine.host, resolved.clock)?;
    }
    let (folder, kernels) = match study_folder::find(&resolved, request.out, request.fresh, &|text| {
        observer.note(text);
    })? {
        StudyFolder::Finished(folder) => {
            inputs::check(&folder, &resolved, &environment, request.part.as_ref())?;
            let stop = &request.part.map_or_else(|| cancel.clone().unwrap_or_default(), |part| Arc::clone(part.cancel));
            let judged = judged(&folder, stop, observer)?;
            let wanted = reruns::wanted(&folder, &judged.1, request);
            let here = folder.dir().display();
            if wanted.is_empty() {
                observer.note(&format!("`{here}` already answers this question; nothing to boot"));
                restore_targets(folder.plan(), &environment, observer)?;
                return finish(folder, judged, Vec::new(), stop, observer);
            }
            observer.note(&format!("`{here}` already answers this question; rerunning pairs in which the arms differ"));
            let looked = builds::kept(&resolved, folder.plan(), &environment, stop)
                .and_then(|kernels| hosts::host(&folder, &kernels, &environment, request.script.as_ref()))
                .and_then(|host| {
                    let cancel = cancel.take().map_or_else(signals::cancelled_by_signals, Ok)?;
                    closed(
                        host.as_ref(),
                        reruns::run(&folder, host.as_ref(), &wanted, jobs, &cancel, observer),
                        observer,
                    )
                });
            return finish(folder, judged, reruns::unless_interrupted(looked)?, stop, observer);
        }
        StudyFolder::Unfinished(folder) => {
            inputs::check(&folder, &resolved, &environment, request.part.as_ref())?;
            // Another bigiron may be at work in it: said before anything else.
            folder.check_idle()?;
            observer.note(&format!("Resuming the study in `{}`", folder.dir().display()));
            let stop = cancel.clone().unwrap_or_default();
            let kernels = builds::kept(&resolved, folder.plan(), &environment, &stop)?;
            (folder, kernels)
        }
        StudyFolder::New(prepared) => {
            builds::check(&resolved)?;
            let (identities, kernels) = match request.part {
                Some(part) => (part.kernels.to_vec(), hosts::kept(&resolved, part.kernels, &environment)?),
                None => hosts::kernels(&resolved, &environment)?,
            };
            let seed = resolved.seed.map_or_else(schedule::draw_seed, Ok)?;
            let again = match (request.part, request.file) {
                (Some(part), _) => part.repeat.to_owned(),
                (None, Some(path)) => repeat::study(&path.display().to_string(), q, &resolved, seed),
                (None, None) => repeat::command(q, &resolved, seed),
            };
            let qemu =
                if resolved.machine.host == HostKind::Vm { Some(Capabilities::qemu(&environment)?) } else { None };
            let mut plan = resolved.plan(identities, seed, again, qemu)?;
            let kernels = match plan.design.rebuilds {
                Some(_) => {
                    builds::link(&resolved, &mut plan, &kernels, &environment, &cancel.clone().unwrap_or_default())?
                }
                None => kernels,
            };
            plan.provenance = Some(environment.provenance(plan.machine.host)?);
            plan.begun = Some(date::now());
            let stop = request.part.map(|part| &**part.cancel).or(cancel.as_deref());
            foundations::find(&resolved, &mut plan, &kernels, &environment, stop)?;
            plan.failed_check = noise_card::failed(&plan)?;
            plan.wider_margins = noise_card::wider_margins(&plan, &q.margins)?;
            plan.noise_floor = noise_card::floor(&plan)?;
            if request.part.is_none() {
                sizing::offer(q, &resolved, &plan, &environment);
            }
            if let Some(check) = &plan.failed_check {
                observer.warn(&format!(
                    "Every verdict of this study will be `invalid`: this machine failed its last A/A check ({}: {}). A new study is valid once \
                     `bigiron selftest` passes with the same clock and machine",
                    check.kernel,
                    check.reasons.join("; ")
                ));
            }
            (prepared.create(&plan)?, kernels)
        }
    };
    if request.trials == TrialsBy::Workers {
        let judged = judged(&folder, &cancel.unwrap_or_default(), observer)?;
        let dir = quote(&folder.dir().display().to_string());
        observer.note(&format!(
            "To run the trials, start `bigiron worker {dir} --claim` on any number of machines. To print the report, repeat this command without \
             `--prepare`"
        ));
        return finish(folder, judged, Vec::new(), &AtomicBool::new(false), observer);
    }
    let host = hosts::host(&folder, &kernels, &environment, request.script.as_ref())?;
    let cancel = cancel.map_or_else(orderly, Ok)?;
    let worked = work(request, &folder, host.as_ref(), jobs, &environment, &cancel);
    let (judged, missing) = closed(host.as_ref(), worked, observer)?;
    finish(folder, judged, missing, &cancel, observer)
}

/// The records of a study, and what they say.
type Judged = (Vec<Record>, Judgement);

/// Runs the missing trials and what is wanted beside them; the judgement, and the causes that could not be found.
fn work(
    request: &StudyRequest<'_>,
    folder: &Folder,
    host: &dyn Host,
    jobs: usize,
    environment: &Environment<'_>,
    cancel: &AtomicBool,
) -> anyhow::Result<(Judged, Vec<String>)> {
    let observer = request.observer;
    observer.note(&format!("Study in `{}`, clock {}", folder.dir().display(), folder.plan().clock));
    if folder.plan().machine.host != HostKind::Sim && request.part.is_none() {
        announce(folder, session::width(folder.plan(), host, jobs), environment)?;
    }
    let modelled = modelled::ModelledHost { host, folder };
    let judging: &dyn Host = if request.model { &modelled } else { host };
    if let TrialsBy::Slurm(slurm) = &request.trials {
        let script = request.file.filter(|_| folder.plan().machine.host == HostKind::Sim);
        SlurmJob { folder, slurm, script, qemu: environment.qemu_source(), observer }.run(cancel)?;
    }
    session::run(folder.plan(), folder, judging, jobs, cancel, &*observer.session())?;
    let judged = judged(folder, cancel, observer)?;
    estimate::keep(environment.cache(), folder.plan(), &judged.0, &judged.1, folder.dir());
    let wanted = reruns::wanted(folder, &judged.1, request);
    if !wanted.is_empty() {
        observer.note(&verdict_so_far(folder.plan(), &judged, wanted.len()));
    }
    let mut missing = reruns::unless_interrupted(reruns::run(folder, host, &wanted, jobs, cancel, observer))?;
    // If the user asked for causes that this host cannot find, say so whether or not anything differs.
    let asked = request.why.is_some_and(|pairs| pairs > 0) && wanted.iter().all(|(_, what)| *what != Purpose::Profile);
    if let (Err(why), true) = (host.supports(Purpose::Profile), asked) {
        missing.insert(0, format!("No causes: {why}"));
    }
    Ok((judged, missing))
}

/// Closes the host after its work, whatever came of that.
fn closed<T>(host: &dyn Host, worked: anyhow::Result<T>, observer: &dyn Observer) -> anyhow::Result<T> {
    match (host.close(worked.is_ok()), worked) {
        (Ok(()), worked) => worked,
        (Err(error), Err(first)) => {
            observer.warn(&format!("{error:#}"));
            Err(first)
        }
        // The records are kept, and the same command prints the report.
        (Err(error), Ok(_)) => Err(error),
    }
}

/// Restores the machines of a finished study that its last command, killed or cut off, has not.
fn restore_targets(plan: &Plan, environment: &Environment<'_>, observer: &dyn Observer) -> anyhow::Result<()> {
    let targets = if plan.machine.host == HostKind::Ssh { environment.targets()? } else { &[] };
    for target in targets {
        let Err(error) = way_back::complete(target, plan, &|text| observer.note(text)) else { continue };
        // Another study uses it, or it is in quarantine. The report needs no machine.
        let Refusal { message, hint, .. } = error.downcast()?;
        observer.warn(&format!("{message}; {}", hint.unwrap_or_default()));
    }
    Ok(())
}

/// Refuses kernels whose files do not exist, before anything is tried with them.
fn check_paths(q: &Question) -> Result<(), Refusal> {
    if q.host.is_some_and(|host| matches!(host, HostKind::Local | HostKind::Sim)) {
        return Ok(());
    }
    for (i, arm) in q.arms.iter().enumerate() {
        let paths = match KernelSpec::parse(&arm.kernel) {
            Ok(KernelSpec::Deb(paths)) => paths,
            Ok(KernelSpec::Image { image, modules }) => [image].into_iter().chain(modules).collect(),
            _ => Vec::new(),
        };
        for path in paths {
            if let Err(error) = path.metadata() {
                let message = format!("Cannot read the kernel `{}`: {error}", path.display());
                return Err(q.places.refuse(&format!("arms.{i}"), message));
            }
        }
    }
    Ok(())
}

/// Says what will be run, and how long it will take.
fn announce(folder: &Folder, width: usize, environment: &Environment<'_>) -> anyhow::Result<()> {
    let plan = folder.plan();
    let left = SlotTally::of(plan, &folder.records()?.records).missing().len() as u32;
    let arms: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
    let workloads: Vec<&str> = plan.workloads.iter().map(|w| w.name.as_str()).collect();
    let side = if width > 1 { format!(", {width} at a time") } else { String::new() };
    let work = Work::of_plan(plan);
    let takes = estimate::estimate(environment.cache(), &work, plan.design.idle_gap_seconds).map_or_else(
        || format!("the first {} will show how long it takes", plan.trials().trim_end_matches('s')),
        |estimate| estimate.text(left, width),
    );
    environment.observer().note(&format!(
        "To run: {} with {}, {left} {}{side}; {takes}",
        sentence::join(&arms),
        sentence::join(&workloads),
        plan.trials()
    ));
    Ok(())
}

/// Warns of arms that differ only in settings that this machine already has.
fn warn_of_equal_arms(resolved: &ResolvedQuestion, environment: &Environment<'_>) {
    let changes = |arm: &ResolvedArm| -> Vec<Setting> {
        arm.settings.iter().filter(|setting| !environment.is_set(setting)).cloned().collect()
    };
    let Some((baseline, others)) = resolved.arms.split_first() else { return };
    for arm in others.iter().filter(|arm| arm.settings != baseline.settings && changes(arm) == changes(baseline)) {
        environment.observer().warn(&format!(
            "`{}` and `{}` are the same: this machine already has these values",
            baseline.name, arm.name
        ));
    }
}

/// The verdict before the reruns: a user need not wait for its causes.
fn verdict_so_far(plan: &Plan, (records, judgement): &(Vec<Record>, Judgement), reruns: usize) -> String {
    let report = Report::new(plan, records, judgement, &Extras::default());
    let survival = report.sentences.iter().filter(|sentence| sentence.about == About::Survival);
    let answer: Vec<&str> = survival.chain(report.lead()).map(|sentence| sentence.text.as_str()).collect();
    let trials = if reruns == 1 { "1 trial" } else { &format!("{reruns} trials") };
    format!("Verdict: {}. Rerunning {trials} with profiling; the verdict will not change", answer.join(". "))
}

/// Writes a judged study's HTML page to its folder; `missing` lists the causes that could not be found.
fn finish(
    folder: Folder,
    judged: (Vec<Record>, Judgement),
    missing: Vec<String>,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> anyhow::Result<Conducted> {
    let mut conducted = Conducted::new(folder, judged, missing, stop)?;
    let page = report::html(&conducted.report(false));
    // A finished study may be on read-only media; its report still goes to standard output.
    match conducted.folder.write_report("report.html", without_passwords(&page).as_bytes()) {
        Ok(path) => conducted.page = Some(path),
        Err(e) => observer.warn(&e.to_string()),
    }
    Ok(conducted)
}

/// The records of a study, and the judgement. Unreadable lines are reported.
///
/// # Errors
/// The records cannot be read, or `stop` is set before they are judged.
pub fn judged(folder: &Folder, stop: &AtomicBool, observer: &dyn Observer) -> anyhow::Result<(Vec<Record>, Judgement)> {
    let read = folder.records()?;
    for (number, why) in &read.unreadable {
        observer.warn(&format!("records.jsonl:{number}: {why}; the line is skipped"));
    }
    let waiting = folder.not_taken(&read.records)?.len();
    if waiting > 0 {
        let trials = if waiting == 1 { "1 more trial" } else { &format!("{waiting} more trials") };
        observer.note(&format!(
            "Workers have delivered {trials}; the report does not count them before the study's own command takes them in: {}",
            folder.plan().repeat
        ));
    }
    let judgement = judge::judge_until(folder.plan(), &read.records, stop)?;
    Ok((read.records, judgement))
}

impl Conducted {
    /// A study with all results in its folder; `missing` lists the causes that could not be found.
    ///
    /// # Errors
    /// `stop` is set before its counters are compared.
    pub fn new(
        folder: Folder,
        (records, judgement): (Vec<Record>, Judgement),
        missing: Vec<String>,
        stop: &AtomicBool,
    ) -> anyhow::Result<Conducted> {
        let why = Why { missing, ..why(&folder, &records, &judgement) };
        let counters = counters::counters(folder.plan(), &records, &judgement, stop)?;
        Ok(Conducted { folder, records, judgement, why, counters, page: None })
    }

    /// The study's report. The text shows all counters with `all_counters`, else those that differ.
    pub fn report(&self, all_counters: bool) -> Report<'_> {
        let (plan, why, counters) = (self.folder.plan(), self.why.clone(), self.counters.clone());
        let extras = Extras { configs: configs(plan), why, counters, all_counters };
        Report::new(plan, &self.records, &self.judgement, &extras)
    }
}

/// The causes found in the evidence of a study's folder.
fn why(folder: &Folder, records: &[Record], judgement: &Judgement) -> Why {
    let (plan, evidence) = (folder.plan(), folder.evidence());
    let causes = causes::causes(plan, judgement, &evidence);
    let of = |c: &Causes| stacks::of_line(plan, judgement, c, &evidence, &|slot| folder.stacks_of(slot));
    Why {
        looking: (!evidence.is_empty()).then(|| causes::looking(plan, records, &evidence)),
        calls: calls::calls(plan, judgement, &evidence),
        stacks: causes.iter().filter(|c| c.sampled.is_some()).filter_map(of).collect(),
        locks: locks::Locks::new(plan, records, judgement, &folder.waiting()),
        modelled: cycles::windows(plan, judgement, &evidence),
        causes,
        missing: Vec::new(),
    }
}

/// Configurations of the arms' kernels that are still in the cache.
fn configs(plan: &Plan) -> BTreeMap<String, String> {
    let Ok(store) = bigiron_archive::store::Store::open() else { return BTreeMap::new() };
    plan.arms
        .iter()
        .filter(|arm| arm.kernel.config_sha256.is_some())
        .filter_map(|arm| Some((arm.name.clone(), fs::read_to_string(store.get(&arm.kernel).ok()?.config?).ok()?)))
        .collect()
}
