//! `bigiron bisect`.

mod ask;
mod configs;
mod git;
mod kernels;
mod levers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::output;
use crate::bisect::config::Switched;
use crate::bisect::folder;
use crate::bisect::git::{Built, Touched};
use crate::bisect::levers::LeverSearch;
use crate::bisect::report::{BisectOutcome, BisectReport, FolderExtras, json, text};
use crate::bisect::{Bisection, Search, SearchKind, StudyResult};
use crate::cli::{Bisect, BisectAction, BisectCommon, BisectFormat, FailOn};
use crate::commands::output::Terminal;
use crate::conduct::environment::Environment;
use crate::conduct::inputs;
use crate::conduct::signals;
use crate::conduct::study_folder::RESULTS;
use crate::conduct::{self, SearchContext, StudyRequest, TrialsBy};
use crate::study::question::Question;
use bigiron_lab::host::sim::Script;
use bigiron_model::identity::Identity;
use bigiron_model::printable::{printable, without_passwords};
use bigiron_model::provenance::Provenance;
use bigiron_model::refusal::Refusal;
use bigiron_model::shell::quote;
use bigiron_model::store::Folder;

pub(super) fn run(args: &Bisect) -> anyhow::Result<u8> {
    match &args.action {
        Some(BisectAction::Levers(args)) => levers::run(args),
        Some(BisectAction::Config(args)) => configs::run(args),
        None if args.git.is_some() => git::run(args),
        None => kernels::run(args),
    }
}

/// A bisection in progress.
struct BisectionRun<'a> {
    common: &'a BisectCommon,
    dir: PathBuf,
    bisection: Bisection,
    /// The question of all studies, without arms.
    base: Question,
    script: Option<Script>,
    cancel: Arc<AtomicBool>,
    /// The programs that run trials on this machine.
    here: Provenance,
    /// Builds candidates that are commits or configurations; `None` if they are simulated.
    builder: Option<git::Builder>,
}

impl<'a> BisectionRun<'a> {
    /// Prints a note if no boot was needed for the answer.
    fn ended(&self, booted: bool) {
        if !booted {
            output::note(&format!("`{}` already answers this question; nothing to boot", self.dir.display()));
        }
    }

    fn new(
        common: &'a BisectCommon,
        dir: PathBuf,
        bisection: Bisection,
        asked: ask::BisectQuestion,
    ) -> anyhow::Result<BisectionRun<'a>> {
        Ok(BisectionRun::with(common, dir, bisection, asked, signals::cancelled_by_signals()?))
    }

    /// The same, with signals already caught.
    fn with(
        common: &'a BisectCommon,
        dir: PathBuf,
        bisection: Bisection,
        asked: ask::BisectQuestion,
        cancel: Arc<AtomicBool>,
    ) -> BisectionRun<'a> {
        BisectionRun {
            common,
            dir,
            bisection,
            base: asked.base,
            script: asked.script,
            cancel,
            here: asked.here,
            builder: None,
        }
    }

    /// Runs a study, or resumes it.
    fn study(&self, folder: &str, question: Question, kernels: &[Identity]) -> anyhow::Result<()> {
        self.look(folder, question, kernels, 0).map(drop)
    }

    /// The same; also reruns `why` pairs with profiling where the arms differ.
    fn look(
        &self,
        folder: &str,
        question: Question,
        kernels: &[Identity],
        why: u32,
    ) -> anyhow::Result<conduct::Conducted> {
        self.here.check("bisection", &self.dir, Some(&self.bisection.provenance()))?;
        let out = self.dir.join(folder);
        let request = StudyRequest {
            question,
            file: None,
            script: self.script.clone(),
            out: Some(&out),
            fresh: false,
            jobs: self.common.jobs,
            why: Some(why),
            model: false,
            locks: Some(0),
            trials: TrialsBy::This,
            part: Some(SearchContext { kernels, repeat: &self.bisection.repeat, cancel: &self.cancel }),
            observer: &Terminal,
        };
        conduct::conduct(&request)
    }

    /// Writes the report to the folder, and prints it.
    fn finish(&self) -> anyhow::Result<u8> {
        let report = |format| rendered(&self.dir, &self.bisection, format, &self.cancel);
        for (name, format) in [("report.json", BisectFormat::Json), ("report.txt", BisectFormat::Text)] {
            match Bisection::write_report(&self.dir, name, without_passwords(&printable(&report(format)?)).as_bytes()) {
                Ok(path) => output::note(&format!("Report: {}", path.display())),
                Err(e) => output::warn(&e.to_string()),
            }
        }
        output::data(&report(self.common.format)?)?;
        let studies = studies(&self.dir, &self.bisection, &self.cancel)?;
        let found = outcome(&self.dir, &self.bisection, &studies)?;
        Ok(status(&studies, found, &self.common.fail_on))
    }
}

/// Regenerates the report of the bisection in `dir`; boots nothing.
pub(super) fn again(dir: &Path, bisection: &Bisection, format: BisectFormat, fail_on: &[FailOn]) -> anyhow::Result<u8> {
    let never = AtomicBool::new(false);
    output::data(&rendered(dir, bisection, format, &never)?)?;
    let studies = studies(dir, bisection, &never)?;
    let found = outcome(dir, bisection, &studies)?;
    Ok(status(&studies, found, fail_on))
}

/// Exit status under `--fail-on`: the verdict on the ends, and whether the search found the cause.
fn status(studies: &[StudyResult], found: BisectOutcome, fail_on: &[FailOn]) -> u8 {
    use bigiron_stats::Verdict;
    let verdict = studies.first().and_then(|ends| ends.arms.first()).map(|arm| arm.verdict);
    let verdict = match (verdict, found) {
        (Some(Verdict::Worse), _) => Some(Verdict::Worse),
        (_, BisectOutcome::Unfinished) => None,
        (_, BisectOutcome::Found | BisectOutcome::FoundWithOthers | BisectOutcome::NoDifference) => Some(Verdict::Same),
        _ => Some(Verdict::Inconclusive),
    };
    super::status(verdict, fail_on)
}

/// The state of a search among kernels, commits or configurations, read from its folder.
fn search<'b>(dir: &Path, bisection: &'b Bisection, tests: Vec<StudyResult>) -> anyhow::Result<Search<'b>> {
    let mut builds = BTreeMap::new();
    for (index, candidate) in bisection.candidates.iter().enumerate() {
        if let Some(key) = candidate.build()
            && let Some(built) = Built::read(dir, key)?
        {
            builds.insert(index, built);
        }
    }
    Ok(Search { bisection, tests, builds })
}

fn rendered(dir: &Path, bisection: &Bisection, format: BisectFormat, stop: &AtomicBool) -> anyhow::Result<String> {
    let studies = studies(dir, bisection, stop)?;
    Ok(match bisection.what {
        SearchKind::Kernels | SearchKind::Commits | SearchKind::Configs => {
            let search = search(dir, bisection, studies)?;
            let more = FolderExtras { dir, touched: Touched::read(dir)?, switched: Switched::read(dir)? };
            laid_out(&BisectReport::kernels(&search, &more), format)
        }
        SearchKind::Levers => laid_out(&BisectReport::levers(&LeverSearch { bisection, studies }), format),
    })
}

fn laid_out(report: &BisectReport<'_>, format: BisectFormat) -> String {
    match format {
        BisectFormat::Text => text(report),
        BisectFormat::Json => json(report),
    }
}

/// The outcome, if the bisection has ended.
fn outcome(dir: &Path, bisection: &Bisection, studies: &[StudyResult]) -> anyhow::Result<BisectOutcome> {
    let studies = studies.to_vec();
    Ok(match bisection.what {
        SearchKind::Kernels | SearchKind::Commits | SearchKind::Configs => {
            let more = FolderExtras { dir, touched: None, switched: None };
            BisectReport::kernels(&search(dir, bisection, studies)?, &more).outcome
        }
        SearchKind::Levers => BisectReport::levers(&LeverSearch { bisection, studies }).outcome,
    })
}

/// The finished studies of a bisection, in order.
fn studies(dir: &Path, bisection: &Bisection, stop: &AtomicBool) -> anyhow::Result<Vec<StudyResult>> {
    let mut results = Vec::new();
    let next = |results: &[StudyResult]| match (results.len(), bisection.what) {
        (0, _) => Some(folder::ENDS.to_owned()),
        (number, SearchKind::Kernels | SearchKind::Commits | SearchKind::Configs) => Some(Bisection::step(number)),
        (_, SearchKind::Levers) => {
            let search = LeverSearch { bisection, studies: results.to_vec() };
            match search.state() {
                crate::bisect::levers::LeverSearchState::Study { folder, .. } => Some(folder),
                _ => None,
            }
        }
    };
    while let Some(name) = next(&results) {
        let Some(study) = folder::finished(dir, &name)? else { break };
        let (_, judgement) = conduct::judged(&study, stop, &Terminal)?;
        results.push(StudyResult::of(&name, study.plan(), &judgement, &bisection.workload, &bisection.metric.name));
    }
    Ok(results)
}

/// Whether nothing is left to boot.
fn is_finished(dir: &Path, bisection: &Bisection, stop: &AtomicBool) -> anyhow::Result<bool> {
    Ok(outcome(dir, bisection, &studies(dir, bisection, stop)?)? != BisectOutcome::Unfinished)
}

/// The bisection's folder, and the bisection of this question that it already holds.
///
/// # Errors
/// Another build of bigiron or QEMU began that bisection, or its kernels have changed, whether it is to be resumed or has its answer.
fn place(
    out: Option<&Path>,
    name: &str,
    question: &str,
    asked: &ask::BisectQuestion,
    environment: &Environment<'_>,
) -> anyhow::Result<(PathBuf, Option<Bisection>)> {
    let (dir, found) = find(out, name, question)?;
    if let Some(found) = &found {
        asked.here.check("bisection", &dir, Some(&found.provenance()))?;
        // Kernels that it builds, or fetches as they are needed, have no identity here: their names are exact.
        let kernels = found.candidates.iter().filter_map(|candidate| candidate.identity.as_ref());
        inputs::check_kernels("bisection", &dir, &asked.resolved, kernels, environment)?;
    }
    Ok((dir, found))
}

/// The folder given, or the first default folder whose bisection is unfinished; and the bisection of this question in it.
fn find(out: Option<&Path>, name: &str, question: &str) -> anyhow::Result<(PathBuf, Option<Bisection>)> {
    if let Some(dir) = out {
        return match Bisection::open(dir)? {
            Some(found) if found.question_sha256 == question => Ok((dir.to_owned(), Some(found))),
            Some(found) => Err(Refusal::new(format!("`{}` holds another bisection", dir.display()))
                .hint(format!(
                    "Name another folder; that bisection resumes with `{} --out {}`",
                    found.repeat,
                    quote(&dir.display().to_string())
                ))
                .into()),
            None if Folder::holds_other_things(dir) => {
                Err(Refusal::new(format!("`{}` is not empty and is not a bisection", dir.display()))
                    .hint("Name a new or empty folder with `--out DIR`")
                    .into())
            }
            None => Ok((dir.to_owned(), None)),
        };
    }
    for number in 1.. {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let dir = Path::new(RESULTS).join(format!("{name}-{}{suffix}", &question[..8]));
        match Bisection::open(&dir)? {
            Some(found)
                if found.question_sha256 == question && !is_finished(&dir, &found, &AtomicBool::new(false))? =>
            {
                return Ok((dir, Some(found)));
            }
            Some(_) => {}
            None if Folder::holds_other_things(&dir) => {}
            None => return Ok((dir, None)),
        }
    }
    unreachable!("the numbers are unbounded")
}
