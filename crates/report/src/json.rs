//! The report as JSON. Its schema is report.schema.json; the tests validate every report against it.
//!
//! Invariant: a figure meant for people is a quantity (`value`, `unit`, `text`), the same as in the text report; figures on the log scale stand under
//! `log` and are unrounded.

mod waits;

use std::collections::BTreeMap;

use bigiron_stats::Verdict;
use serde::Serialize;

use super::environment::{self, Unasked};
use super::fact::{self, Fact};
use super::kconfig::Difference;
use super::layers::{Layers, layers};
use super::machines::{self, OnMachine};
use super::quantity::Quantity;
use super::row::Row;
use super::scope::{self, Booted};
use super::sentence::About;
use super::{Report, subsystem};
use bigiron_judge::calls::{Call, Calls};
use bigiron_judge::causes::{Cause, Causes, Profiling};
use bigiron_judge::counters::ComparedCounters;
use bigiron_judge::family::Family;
use bigiron_judge::line::{Estimate, Line};
use bigiron_judge::modelled::ModelledWindow;
use bigiron_judge::standing::SetAside;
use bigiron_judge::suite::Reason;
use bigiron_judge::survival::Survival;
use bigiron_judge::{Comparison, State};
use bigiron_model::metric::Kind;
use bigiron_model::plan::{Design, Machine};
use bigiron_model::rule::Rule;
use bigiron_model::workload::Options;

/// Version of this format.
pub const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    bigiron: &'a str,
    /// In words; null if the user gave none.
    question: Option<&'a str>,
    state: State,
    boots: Boots,
    /// Over all arms; null while unfinished.
    verdict: Option<&'static str>,
    sentences: Vec<SentenceJson<'a>>,
    study: Study<'a>,
    survival: &'a [Survival],
    comparisons: Vec<Compared<'a>>,
    /// By comparison; empty unless the study has a file server and its layers.
    layers: Vec<Layers<'a>>,
    /// Null if nothing was profiled.
    causes: Option<Explained<'a>>,
    /// By comparison; null if nothing was counted.
    counters: Option<Vec<Counted<'a>>>,
    /// Null if no locks were traced.
    locks: Option<waits::Waits<'a>>,
    set_aside: &'a [SetAside],
    kernels: Vec<Booted>,
    /// Null if the trials' environments were not noted.
    environment: Option<Unasked>,
    /// One line per workload.
    durability: Vec<String>,
    facts: Vec<Fact>,
    not_tested: Vec<String>,
    method: Vec<String>,
}

/// Unrounded: there may be thousands of counters.
#[derive(Serialize)]
struct Counted<'a> {
    baseline: &'a str,
    arm: &'a str,
    #[serde(flatten)]
    counts: &'a ComparedCounters,
}

#[derive(Serialize)]
struct Explained<'a> {
    looking: Option<&'a Profiling>,
    missing: &'a [String],
    lines: Vec<ExplainedLine<'a>>,
    /// Every window that was modelled, whether its line differs or not.
    modelled: Vec<ModelledJson<'a>>,
}

#[derive(Serialize)]
struct ModelledJson<'a> {
    arm: &'a str,
    #[serde(flatten)]
    of: &'a ModelledWindow,
}

#[derive(Serialize)]
struct ExplainedLine<'a> {
    arm: &'a str,
    #[serde(flatten)]
    of: &'a Causes,
    causes: Vec<ExplainedCause<'a>>,
    /// The share of the difference that these causes explain together.
    explained: f64,
    /// System calls for one operation; empty where not every instruction was counted.
    system_calls: &'a [Call],
    /// Parts of the kernel; they add up to the difference.
    parts: Vec<ExplainedPart>,
    /// Differences between the arms in these parts, in words.
    touching: Option<String>,
}

#[derive(Serialize)]
struct ExplainedPart {
    part: &'static str,
    change_ns: f64,
    share: f64,
}

#[derive(Serialize)]
struct ExplainedCause<'a> {
    #[serde(flatten)]
    cause: &'a Cause,
    /// Share of the difference.
    share: f64,
}

#[derive(Serialize)]
struct Boots {
    planned: u32,
    done: u32,
    void_pairs: u32,
}

#[derive(Serialize)]
struct SentenceJson<'a> {
    about: About,
    arm: Option<&'a str>,
    workload: Option<&'a str>,
    text: String,
    verdict: Option<&'static str>,
}

#[derive(Serialize)]
struct Study<'a> {
    question_sha256: &'a str,
    repeat: &'a str,
    clock: &'static str,
    rule: Rule,
    design: &'a Design,
    machine: &'a Machine,
    arms: Vec<&'a str>,
    workloads: BTreeMap<&'a str, &'a Options>,
    margins: &'a BTreeMap<Kind, f64>,
}

#[derive(Serialize)]
struct Compared<'a> {
    baseline: &'a str,
    arm: &'a str,
    pairs: u32,
    verdict: Option<&'static str>,
    reason: Option<&'a Reason>,
    families: &'a [Family],
    lines: Vec<Judged<'a>>,
    /// Null if a configuration is unknown.
    config_differences: Option<&'a [Difference]>,
}

#[derive(Serialize)]
struct Judged<'a> {
    #[serde(flatten)]
    line: &'a Line,
    clock: &'static str,
    unadjusted_verdict: &'static str,
    uneven: bool,
    doubtful: bool,
    copies_decide_sign: bool,
    baseline_mean: &'a Option<Quantity>,
    arm_mean: &'a Option<Quantity>,
    change: &'a Option<Quantity>,
    ci95: Option<[&'a Quantity; 2]>,
    ci90: Option<[&'a Quantity; 2]>,
    smallest_visible: &'a Option<Quantity>,
    margin: &'a Quantity,
    p: Option<f64>,
    pairs: usize,
    /// Absent if there is one machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    machines: Vec<OnMachine<'a>>,
    /// p of "the effect is the same on every machine", adjusted for the number of lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    machines_p: Option<f64>,
    log: Option<Log>,
}

/// On the log scale.
#[derive(Serialize)]
struct Log {
    #[serde(flatten)]
    estimate: Estimate,
    margin: f64,
}

/// The whole report as one indented JSON document.
pub fn json(report: &Report<'_>) -> String {
    let plan = report.plan;
    let judgement = report.judgement;
    let facts = fact::facts(plan, report.records);
    let document = Document {
        schema: SCHEMA,
        bigiron: &plan.bigiron,
        question: plan.question.as_deref(),
        state: judgement.state,
        boots: Boots { planned: judgement.planned, done: judgement.done, void_pairs: judgement.void_pairs },
        verdict: judgement.verdict.map(Verdict::name),
        sentences: report
            .sentences
            .iter()
            .map(|s| SentenceJson {
                about: s.about,
                arm: s.arm.as_deref(),
                workload: s.workload.as_deref(),
                text: s.full(),
                verdict: s.verdict.map(Verdict::name),
            })
            .collect(),
        study: Study {
            question_sha256: &plan.question_sha256,
            repeat: &plan.repeat,
            clock: plan.clock.name(),
            rule: plan.rule,
            design: &plan.design,
            machine: &plan.machine,
            arms: plan.arms.iter().map(|a| a.name.as_str()).collect(),
            workloads: plan.workloads.iter().map(|w| (w.name.as_str(), &w.options)).collect(),
            margins: &plan.margins,
        },
        survival: &judgement.survival,
        comparisons: judgement
            .comparisons
            .iter()
            .enumerate()
            .map(|(index, c)| compared(report, c, &report.rows[index], report.configs[index].as_deref()))
            .collect(),
        layers: layers(report),
        causes: explained(report),
        counters: (!report.counters.is_empty()).then(|| counted(report)),
        locks: waits::of(report),
        set_aside: &judgement.set_aside,
        kernels: scope::booted(plan, report.records),
        environment: environment::unasked(plan, report.records),
        durability: fact::durability(plan, &facts),
        facts,
        not_tested: scope::not_tested(plan),
        method: scope::method(plan),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("A report has string keys only");
    text.push('\n');
    text
}

fn counted<'a>(report: &'a Report<'_>) -> Vec<Counted<'a>> {
    let arms = &report.plan.arms;
    let all = report.counters.iter().zip(&report.judgement.comparisons);
    all.map(|(counts, comparison)| Counted { baseline: &arms[0].name, arm: &arms[comparison.arm].name, counts })
        .collect()
}

fn explained<'a>(report: &'a Report<'_>) -> Option<Explained<'a>> {
    let found = &report.why;
    if found.looking.is_none() && found.missing.is_empty() {
        return None;
    }
    let lines = found.causes.iter().map(|of| {
        let shown = of.listed;
        let touching = report.touching(of);
        ExplainedLine {
            arm: &report.plan.arms[report.judgement.comparisons[of.comparison].arm].name,
            of,
            causes: of.causes[..shown]
                .iter()
                .map(|cause| ExplainedCause { cause, share: cause.delta() / of.delta() })
                .collect(),
            explained: of.explained(shown),
            system_calls: system_calls(found, of),
            parts: subsystem::parts(of)
                .into_iter()
                .map(|p| ExplainedPart { part: p.name, change_ns: p.delta, share: p.share })
                .collect(),
            touching: (!touching.is_empty())
                .then(|| format!("Differences between A and B there: {}.", touching.join("; "))),
        }
    });
    let arm = |comparison: usize| report.plan.arms[report.judgement.comparisons[comparison].arm].name.as_str();
    let modelled = found.modelled.iter().map(|of| ModelledJson { arm: arm(of.comparison), of }).collect();
    Some(Explained { looking: found.looking.as_ref(), missing: &found.missing, lines: lines.collect(), modelled })
}

fn system_calls<'a>(why: &'a super::why::Why, causes: &Causes) -> &'a [Call] {
    let is_it =
        |c: &&Calls| c.comparison == causes.comparison && c.workload == causes.workload && c.metric == causes.metric;
    why.calls.iter().find(is_it).map_or(&[], |found| &found.calls)
}

fn compared<'a>(
    report: &'a Report<'_>,
    comparison: &'a Comparison,
    rows: &'a [Row<'_>],
    config_differences: Option<&'a [Difference]>,
) -> Compared<'a> {
    Compared {
        baseline: &report.plan.arms[0].name,
        arm: &report.plan.arms[comparison.arm].name,
        pairs: comparison.pairs,
        verdict: comparison.suite.as_ref().map(|s| s.verdict.name()),
        reason: comparison.suite.as_ref().map(|s| &s.reason),
        families: &comparison.families,
        lines: rows.iter().map(|row| judged(report, row)).collect(),
        config_differences,
    }
}

fn judged<'a>(report: &'a Report<'_>, row: &'a Row<'_>) -> Judged<'a> {
    let line = row.line;
    fn ends((low, high): &(Quantity, Quantity)) -> [&Quantity; 2] {
        [low, high]
    }
    Judged {
        line,
        clock: report.plan.clock.name(),
        unadjusted_verdict: line.unadjusted.unwrap_or(line.verdict).name(),
        uneven: line.estimate.is_some_and(|e| e.uneven),
        doubtful: line.estimate.is_some_and(|e| e.doubtful),
        copies_decide_sign: row.copies_decide,
        baseline_mean: &row.a,
        arm_mean: &row.b,
        change: &row.change,
        ci95: row.ci95.as_ref().map(ends),
        ci90: row.ci90.as_ref().map(ends),
        smallest_visible: &row.mde,
        margin: &row.margin,
        p: line.estimate.map(|e| e.p),
        pairs: line.deltas.len(),
        machines: machines::of_line(report, row),
        machines_p: line.by_machine.p,
        log: line.estimate.map(|estimate| Log { estimate, margin: line.log_margin }),
    }
}
