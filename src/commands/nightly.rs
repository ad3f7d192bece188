//! `bigiron nightly`.

use crate::commands::output::Terminal;
use crate::conduct::hosts;
use crate::conduct::inputs;
use crate::conduct::signals;
use crate::conduct::study_folder::RESULTS;
use crate::study::setting;
use bigiron_model::host::HostKind;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::ensure;
use sha2::{Digest, Sha256};

use super::output;
use crate::cli::{FailOn, HistoryFormat, Nightly};
use crate::conduct::environment::{Environment, refuse};
use crate::conduct::{self, SearchContext, StudyRequest, TrialsBy};
use crate::night::collect;
use crate::night::folder::{Group, Night, NightArm};
use crate::night::grid::{Grid, Studied};
use crate::night::previous::{last, previous};
use crate::night::report as print;
use crate::night::report::NightReport;
use crate::night::rows::{self, Budget, Row};
use crate::study::arguments;
use crate::study::question::Question;
use crate::study::resolved::{self, ResolvedQuestion, SCREENING_PAIRS};
use bigiron_archive::store::Store;
use bigiron_judge::State;
use bigiron_judge::history;
use bigiron_judge::history::{History, HistoryEntry};
use bigiron_lab::host::sim::Script;
use bigiron_model::clock::Clock;
use bigiron_model::date;
use bigiron_model::printable::without_passwords;
use bigiron_model::refusal::Refusal;
use bigiron_model::rule::Rule;
use bigiron_model::shell::quote;
use bigiron_model::size;
use bigiron_model::store::SlotTally;

/// A night in progress.
struct NightRun<'a> {
    args: &'a Nightly,
    dir: PathBuf,
    night: Night,
    base: Question,
    script: Option<Script>,
    cancel: Arc<AtomicBool>,
}

pub(super) fn run(args: &Nightly) -> anyhow::Result<u8> {
    super::check_gate(args.quick, &args.fail_on)?;
    let script = args.sim.as_deref().map(script).transpose()?;
    let (base, only) = question(args)?;
    let budget = if args.quick { Budget::Quick } else { Budget::Full };
    let rows = rows::rows(budget, &only)?;
    // A named row that cannot run is an error; without names, such rows are left out.
    let (rows, left_out) = if only.is_empty() { rows::possible(rows, &base) } else { (rows, Vec::new()) };
    for row in &left_out {
        output::line(format_args!("warning: row `{}` is left out: {}", row.row, row.why));
    }
    rows::check_reach(&base, &rows)?;
    let history = match &args.history {
        Some(dir) => dir.clone(),
        None => history::file::default_folder()?,
    };
    let base = Question { pairs: Some(pairs(args, &base, rows.len())), ..base };

    let environment = Environment::new(base.arms.iter().map(|arm| arm.kernel.clone()).collect(), &Terminal)?
        .at(args.out.as_deref(), args.qemu);
    let resolve = |rows: &[&Row]| resolved::resolve(&rows::question(&base, rows), &environment);
    let boots = rows::pack(&rows, |rows| resolve(rows).map(drop))?;
    let resolved = boots.iter().map(|rows| resolve(rows)).collect::<Result<Vec<ResolvedQuestion>, Refusal>>()?;
    let asked: String = resolved.iter().map(ResolvedQuestion::sha256).collect();
    let question_sha256: String = Sha256::digest(asked).iter().map(|byte| format!("{byte:02x}")).collect();

    let (dir, found) = place(args, &resolved[0], &question_sha256)?;
    let here = environment.provenance(resolved[0].machine.host)?;
    let night = match found {
        Some(night) => {
            // A finished night is compared too: it answers only for the kernels and programs that it measured.
            here.check("night", &dir, Some(&night.provenance()))?;
            inputs::check_kernels("night", &dir, &resolved[0], night.arms.iter().map(|a| &a.kernel), &environment)?;
            night
        }
        None => {
            // Kernels are fetched, and bad ones refused, before the folder is created.
            let (identities, _) = hosts::kernels(&resolved[0], &environment)?;
            let names = resolved[0].arms.iter().map(|a| a.name.clone());
            let night = Night {
                schema: Night::schema(),
                bigiron: env!("CARGO_PKG_VERSION").to_owned(),
                executable: here.executable,
                qemu: here.qemu,
                qemu_build: here.qemu_build,
                question_sha256,
                begun: date::now(),
                budget,
                pairs: resolved[0].pairs,
                clock: resolved[0].clock,
                repeat: repeat(args),
                arms: names.zip(identities).map(|(name, kernel)| NightArm { name, kernel }).collect(),
                groups: Night::groups(&boots),
                left_out,
            };
            night.create(&dir)?;
            night
        }
    };
    let cancel = signals::cancelled_by_signals()?;
    let work = NightRun { args, dir, night, base, script, cancel };
    work.all()?;
    remember(&work, &history)?;
    let report = report(&work.dir, &work.night, &work.cancel)?;
    for (name, text) in [("report.html", print::html(&report)), ("report.json", print::json(&report))] {
        match Night::write_report(&work.dir, name, without_passwords(&text).as_bytes()) {
            Ok(path) => output::note(&format!("Grid: {}", path.display())),
            Err(e) => output::warn(&e.to_string()),
        }
    }
    output::note(&cost(&report));
    let added = history::file::append(&history, &report.entries)?;
    if added > 0 {
        output::note(&format!("{added} kernels added to the history in `{}`", history.display()));
    }
    output::data(&rendered(&report, args.format))?;
    Ok(super::status(report.grid.decision(), &args.fail_on))
}

/// What the night cost this machine, over all its sessions.
fn cost(report: &NightReport) -> String {
    let cpu = report.cpu_s;
    let time = if cpu < 100.0 { format!("{cpu:.0} s") } else { format!("{:.1} min", cpu / 60.0) };
    format!("{} boots, {time} of CPU time", report.boots)
}

/// Regenerates the grid of the night in `dir`; boots nothing.
pub(super) fn again(dir: &Path, night: &Night, format: HistoryFormat, fail_on: &[FailOn]) -> anyhow::Result<u8> {
    super::check_gate(night.budget == Budget::Quick, fail_on)?;
    let report = report(dir, night, &AtomicBool::new(false))?;
    output::data(&rendered(&report, format))?;
    Ok(super::status(report.grid.decision(), fail_on))
}

fn rendered(report: &NightReport, format: HistoryFormat) -> String {
    match format {
        HistoryFormat::Text => print::text(report),
        HistoryFormat::Json => print::json(report),
        HistoryFormat::Html => print::html(report),
    }
}

/// The common question of the night's studies, and the workloads that were named.
fn question(args: &Nightly) -> anyhow::Result<(Question, Vec<String>)> {
    let named = Store::open().and_then(|store| store.names()).map_err(refuse)?;
    let (arms, workloads) = arguments::sort(&args.words, &named)?;
    if let Some(arm) = arms.iter().find(|a| !a.settings.is_empty()) {
        return Err(Refusal::new(format!("`{arm}` sets levers; a night compares kernels"))
            .hint("`--set LEVER=VALUE` sets a lever on all kernels; `bigiron compare` compares settings")
            .into());
    }
    if arms.len() < 2 {
        return Err(Refusal::new(match arms.len() {
            0 => "No kernels; a night needs two or more, the baseline first",
            _ => "Only one kernel; a night needs two or more, the baseline first",
        })
        .into());
    }
    let wrong = |option: &str, message: String| Refusal::new(format!("--{option}: {message}"));
    let mut settings = Vec::new();
    for text in &args.set {
        settings.push(setting::parse(text).map_err(|e| wrong("set", e.to_string()))?);
    }
    let base = Question {
        arms,
        settings,
        clock: Some(args.clock.parse().map_err(|e| wrong("clock", e))?),
        screening: args.quick,
        seed: Some(args.seed),
        host: args.sim.as_ref().map(|_| HostKind::Sim),
        cpus: args.cpus,
        memory_bytes: Some(size::parse_bytes(&args.memory).map_err(|e| wrong("memory", e))?),
        storage: args.storage.clone(),
        qemu: args.qemu,
        ..Question::default()
    };
    Ok((base, workloads))
}

/// Pairs of every study: few for a screening, else enough for each row's verdict to pass the correction for multiple comparisons.
fn pairs(args: &Nightly, base: &Question, rows: usize) -> u32 {
    let clock = base.clock.unwrap_or(Clock::Exact);
    let usual = if clock == Clock::Wall { 12 } else { 10 };
    args.pairs.unwrap_or(match args.quick {
        true => SCREENING_PAIRS,
        false => {
            bigiron_stats::power::smallest_pairs(Rule::LATEST.flips(clock), rows * (base.arms.len() - 1)).max(usual)
        }
    })
}

/// Reads a script of the host `sim` from a file.
pub(super) fn script(path: &Path) -> anyhow::Result<Script> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|e| Refusal::new(format!("Cannot read the script `{name}`: {e}")))?;
    Ok(toml::from_str(&text).map_err(|e| {
        let line = e.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        Refusal::new(e.message().to_owned()).at(Some(format!("{name}:{line}")))
    })?)
}

/// The command line that repeats the question.
fn repeat(args: &Nightly) -> String {
    let mut words = vec!["bigiron".to_owned(), "nightly".to_owned()];
    words.extend(args.words.iter().cloned());
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.extend([format!("--{name}"), value]);
        }
    };
    option(
        "clock",
        Some(args.clock.parse().map_or_else(|_| args.clock.clone(), |clock: Clock| clock.word().to_owned())),
    );
    option("pairs", args.pairs.map(|n| n.to_string()));
    option("cpus", args.cpus.map(|n| n.to_string()));
    option("memory", Some(args.memory.clone()));
    option("storage", args.storage.clone());
    option("qemu", args.qemu.map(|source| source.to_string()));
    option("seed", Some(args.seed.to_string()));
    for set in &args.set {
        option("set", Some(set.clone()));
    }
    option("sim", args.sim.as_ref().map(|p| p.display().to_string()));
    if args.quick {
        words.push("--quick".to_owned());
    }
    words.iter().map(|w| quote(w)).collect::<Vec<_>>().join(" ")
}

/// The night's folder, and the night of this question that it already holds: the folder given, or the first default folder whose
/// night is unfinished.
fn place(args: &Nightly, first: &ResolvedQuestion, question: &str) -> anyhow::Result<(PathBuf, Option<Night>)> {
    if let Some(dir) = &args.out {
        return match Night::open(dir)? {
            Some(night) if night.question_sha256 == question => Ok((dir.clone(), Some(night))),
            Some(night) => Err(Refusal::new(format!("`{}` holds another night", dir.display()))
                .hint(format!(
                    "Name another folder; that night resumes with `{} --out {}`",
                    night.repeat,
                    quote(&dir.display().to_string())
                ))
                .into()),
            None if bigiron_model::store::Folder::holds_other_things(dir) => {
                Err(Refusal::new(format!("`{}` is not empty and is not a night", dir.display()))
                    .hint("Name a new or empty folder with `--out DIR`")
                    .into())
            }
            None => Ok((dir.clone(), None)),
        };
    }
    let name = first.folder_name();
    let arms = name.rsplit_once('-').map_or(name.as_str(), |(arms, _)| arms);
    for number in 1.. {
        let name = format!(
            "nightly-{arms}-{}{}",
            &question[..8],
            if number == 1 { String::new() } else { format!("-{number}") }
        );
        let dir = Path::new(RESULTS).join(name);
        match Night::open(&dir)? {
            Some(night) if night.question_sha256 == question && !night.is_finished(&dir)? => {
                return Ok((dir, Some(night)));
            }
            Some(_) => {}
            None if bigiron_model::store::Folder::holds_other_things(&dir) => {}
            None => return Ok((dir, None)),
        }
    }
    unreachable!("the numbers are unbounded")
}

impl NightRun<'_> {
    /// Runs all parts that have not run yet.
    fn all(&self) -> anyhow::Result<()> {
        if self.night.is_finished(&self.dir)? {
            output::note(&format!("`{}` already holds this night; nothing to boot", self.dir.display()));
            return Ok(());
        }
        let (mut failed, of) = (Vec::new(), self.night.groups.len());
        for (index, group) in self.night.groups.iter().enumerate() {
            let names: Vec<&str> = group.rows.iter().map(|r| r.name.as_str()).collect();
            output::note(&format!("Part {} of {of}: {}", index + 1, names.join(", ")));
            match self.part(group) {
                Err(e) if !self.cancel.load(Relaxed) => {
                    output::line(format_args!("error: Part {}: {e:#}", index + 1));
                    failed.push((index + 1).to_string());
                }
                done => done?,
            }
        }
        ensure!(
            failed.is_empty(),
            "Parts that did not complete, of {of}: {}. Fix the errors above, and the same command resumes the night",
            failed.join(", ")
        );
        Ok(())
    }

    /// Runs the rows of one boot; if a boot fails, runs each row alone. Nobody watches a night, so an error in one part does not
    /// stop the others.
    fn part(&self, group: &Group) -> anyhow::Result<()> {
        self.study(&group.folder, &group.rows.iter().collect::<Vec<_>>())?;
        if group.must_split(&self.dir)? {
            output::note("A boot failed: running each of these rows alone to find the cause");
            for row in &group.rows {
                self.study(&Group::alone(row), &[row])?;
            }
        }
        Ok(())
    }

    fn study(&self, folder: &str, rows: &[&Row]) -> anyhow::Result<()> {
        let identities: Vec<_> = self.night.arms.iter().map(|a| a.kernel.clone()).collect();
        let out = self.dir.join(folder);
        let request = StudyRequest {
            question: rows::question(&self.base, rows),
            file: None,
            script: self.script.clone(),
            out: Some(&out),
            fresh: false,
            jobs: self.args.jobs,
            why: Some(0),
            model: false,
            locks: None,
            trials: TrialsBy::This,
            part: Some(SearchContext { kernels: &identities, repeat: &self.night.repeat, cancel: &self.cancel }),
            observer: &Terminal,
        };
        conduct::conduct(&request).map(drop)
    }
}

/// Copies the history's results of the kernels compared tonight into the night's folder, so that the grid can be regenerated on
/// any machine.
fn remember(work: &NightRun<'_>, history: &Path) -> anyhow::Result<()> {
    let kept = History::read(history)?;
    for (line, why) in &kept.unreadable {
        output::line(format_args!("warning: history.jsonl:{line}: {why}; the line is skipped"));
    }
    let entries = collect::entries(&work.night, &studies(&work.dir, &work.night, &work.cancel)?.begun);
    let last: Vec<HistoryEntry> = entries.iter().filter_map(|tonight| last(tonight, &kept)).cloned().collect();
    if !last.is_empty() && History::read(&work.dir)?.entries.is_empty() {
        history::file::append(&work.dir, &last)?;
    }
    Ok(())
}

/// The studies of a night.
#[derive(Default)]
struct NightStudies {
    begun: Vec<Studied>,
    /// The rows of the studies that have not begun.
    waiting: Vec<Row>,
}

fn studies(dir: &Path, night: &Night, stop: &AtomicBool) -> anyhow::Result<NightStudies> {
    let mut all = NightStudies::default();
    for group in &night.groups {
        let split = group.must_split(dir)?;
        match studied(dir, &group.folder, group.rows.clone(), stop)? {
            Some(study) => all.begun.push(Studied { split, ..study }),
            None => all.waiting.extend(group.rows.iter().cloned()),
        }
        let alone = if split { &group.rows[..] } else { &[] };
        for row in alone {
            match studied(dir, &Group::alone(row), vec![row.clone()], stop)? {
                Some(study) => all.begun.push(Studied { alone: true, ..study }),
                None => all.waiting.push(row.clone()),
            }
        }
    }
    Ok(all)
}

/// The report of a night.
pub(super) fn report(dir: &Path, night: &Night, stop: &AtomicBool) -> anyhow::Result<NightReport> {
    let NightStudies { begun: studies, waiting } = studies(dir, night, stop)?;
    let names: Vec<String> = night.arms.iter().map(|a| a.name.clone()).collect();
    let entries = collect::entries(night, &studies);
    let records = || studies.iter().flat_map(|s| &s.records);
    Ok(NightReport {
        grid: Grid::new(&names, &studies, &waiting),
        night: night.clone(),
        previous: previous(&entries, &studies, &History::read(dir)?),
        entries,
        boots: records().count(),
        cpu_s: records().map(|r| r.host.cpu_s).sum(),
    })
}

fn studied(dir: &Path, name: &str, rows: Vec<Row>, stop: &AtomicBool) -> anyhow::Result<Option<Studied>> {
    let Some(study) = Group::study(dir, name)? else { return Ok(None) };
    let (records, judgement) = conduct::judged(&study, stop, &Terminal)?;
    // A spoilt study is invalid for good, whatever it lacks.
    let is_finished = judgement.state == State::Spoilt || SlotTally::of(study.plan(), &records).missing().is_empty();
    Ok(Some(Studied {
        folder: name.to_owned(),
        rows,
        plan: study.plan().clone(),
        records,
        judgement,
        split: false,
        alone: false,
        is_finished,
    }))
}
