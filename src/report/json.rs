//! The report as JSON. Its schema is docs/reference/report.schema.json; the tests hold every report they make against it.
//!
//! Invariant: a figure shown to people is a quantity (`value`, `unit`, `text`), the same as in the text report; figures on the log scale
//! stand under `log` and are unrounded.

mod waits;

use std::collections::BTreeMap;

use bigiron_stats::Verdict;
use serde::Serialize;

use super::fact::{self, Fact};
use super::kconfig::Difference;
use super::quantity::Quantity;
use super::row::Row;
use super::scope::{self, Booted};
use super::sentence::About;
use super::{Report, subject};
use crate::judge::calls::Calls;
use crate::judge::causes::{Causes, Looking};
use crate::judge::line::{Missing, Order};
use crate::judge::standing::SetAside;
use crate::judge::suite::Reason;
use crate::judge::survival::Survival;
use crate::judge::{Comparison, State};
use crate::metric::{Kind, MetricDef};
use crate::study::plan::{Design, Machine};
use crate::workload::Options;

/// Version of this format.
pub const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    bigiron: &'a str,
    /// In words; null if nobody wrote it down.
    question: Option<&'a str>,
    state: &'static str,
    boots: Boots,
    /// Over all arms; null while unfinished.
    verdict: Option<&'static str>,
    sentences: Vec<Said<'a>>,
    study: Study<'a>,
    survival: &'a [Survival],
    comparisons: Vec<Compared<'a>>,
    /// Null where nothing was looked into.
    causes: Option<Explained<'a>>,
    /// By comparison; null where nothing was counted.
    counters: Option<Vec<Counted<'a>>>,
    /// Null where no locks were looked at.
    locks: Option<waits::Waits<'a>>,
    set_aside: &'a [SetAside],
    kernels: Vec<Booted>,
    /// One line per workload.
    durability: Vec<String>,
    facts: Vec<Fact>,
    not_tested: Vec<String>,
    method: Vec<String>,
}

#[derive(Serialize)]
struct Counted<'a> {
    baseline: &'a str,
    arm: &'a str,
    reading_ns: f64,
    tested: usize,
    never: &'a [String],
    only_baseline: &'a [String],
    only_arm: &'a [String],
    lines: Vec<CountedLine<'a>>,
}

/// Unrounded: there may be thousands of them.
#[derive(Serialize)]
struct CountedLine<'a> {
    workload: &'a str,
    /// None for an amount at the end of the workload.
    metrics: &'a [String],
    counter: &'a str,
    unit: &'static str,
    baseline_mean: f64,
    arm_mean: f64,
    change_percent: f64,
    ci95_percent: Option<[f64; 2]>,
    p: f64,
    /// Null where both arms are the same in every pair.
    adjusted_p: Option<f64>,
    pairs: usize,
}

#[derive(Serialize)]
struct Explained<'a> {
    looking: Option<&'a Looking>,
    missing: &'a [String],
    lines: Vec<ExplainedLine<'a>>,
}

#[derive(Serialize)]
struct ExplainedLine<'a> {
    arm: &'a str,
    workload: &'a str,
    metric: &'a str,
    pairs: usize,
    /// Nanoseconds for one operation.
    baseline_ns: f64,
    arm_ns: f64,
    only_baseline_ns: f64,
    only_arm_ns: f64,
    causes: Vec<ExplainedCause<'a>>,
    /// What these causes are together, of the difference.
    explained: f64,
    /// Null where instructions were counted.
    sampled: Option<ExplainedSamples>,
    /// System calls for one operation; empty where not every instruction was counted.
    system_calls: Vec<ExplainedCall<'a>>,
    /// Parts of the kernel; all of them together are the difference.
    parts: Vec<ExplainedPart>,
    /// What differs between the arms there, in words.
    touching: Option<String>,
}

#[derive(Serialize)]
struct ExplainedSamples {
    cpus: f64,
    baseline_samples: u64,
    arm_samples: u64,
    not_told_apart: NotToldApart,
}

#[derive(Serialize)]
struct NotToldApart {
    functions: usize,
    baseline_ns: f64,
    arm_ns: f64,
    standard_error_ns: f64,
}

#[derive(Serialize)]
struct ExplainedCall<'a> {
    name: &'a str,
    baseline: f64,
    arm: f64,
}

#[derive(Serialize)]
struct ExplainedPart {
    part: &'static str,
    change_ns: f64,
    share: f64,
}

#[derive(Serialize)]
struct ExplainedCause<'a> {
    function: &'a str,
    formerly: Option<&'a str>,
    baseline_ns: f64,
    arm_ns: f64,
    /// Of the difference; null where instructions were counted.
    standard_error_ns: Option<f64>,
    share: f64,
}

#[derive(Serialize)]
struct Boots {
    planned: u32,
    done: u32,
    void_pairs: u32,
}

#[derive(Serialize)]
struct Said<'a> {
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
    reason: Option<Why<'a>>,
    lines: Vec<Judged<'a>>,
    /// Null where a configuration is not known.
    config_differences: Option<&'a [Difference]>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Why<'a> {
    Failed,
    Complained { classes: &'a [String] },
    TooManyVoid,
    BaselineFailed,
    NoClock,
    Primaries { workloads: &'a [String] },
}

#[derive(Serialize)]
struct Judged<'a> {
    workload: &'a str,
    metric: &'a MetricDef,
    clock: &'static str,
    verdict: &'static str,
    unadjusted_verdict: &'static str,
    tiny: bool,
    uneven: bool,
    baseline_mean: &'a Option<Quantity>,
    arm_mean: &'a Option<Quantity>,
    change: &'a Option<Quantity>,
    ci95: Option<[&'a Quantity; 2]>,
    ci90: Option<[&'a Quantity; 2]>,
    smallest_visible: &'a Option<Quantity>,
    margin: &'a Quantity,
    p: Option<f64>,
    claim_p: f64,
    adjusted_p: f64,
    more_pairs: Option<u32>,
    pairs: usize,
    missing: Absent,
    log: Option<Log>,
    deltas: Vec<Delta>,
}

#[derive(Serialize)]
struct Absent {
    failed: u32,
    absent: u32,
}

#[derive(Serialize)]
struct Log {
    mean: f64,
    sd: f64,
    ci95: Option<(f64, f64)>,
    ci90: Option<(f64, f64)>,
    smallest_visible: Option<f64>,
    margin: f64,
}

#[derive(Serialize)]
struct Delta {
    pair: u32,
    order: &'static str,
    a: f64,
    b: f64,
    d: f64,
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
        state: match judgement.state {
            State::Finished => "finished",
            State::Unfinished => "unfinished",
            State::Spoilt => "spoilt",
        },
        boots: Boots { planned: judgement.planned, done: judgement.done, void_pairs: judgement.void_pairs },
        verdict: judgement.verdict.map(Verdict::name),
        sentences: report
            .sentences
            .iter()
            .map(|s| Said {
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
        causes: explained(report),
        counters: (!report.counters.is_empty()).then(|| counted(report)),
        locks: waits::of(report),
        set_aside: &judgement.set_aside,
        kernels: scope::booted(plan, report.records),
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
    let percent = |log: f64| 100.0 * log.exp_m1();
    let arms = &report.plan.arms;
    let all = report.counters.iter().zip(&report.judgement.comparisons);
    all.map(|(counts, comparison)| Counted {
        baseline: &arms[0].name,
        arm: &arms[comparison.arm].name,
        reading_ns: counts.reading_ns,
        tested: counts.tested,
        never: &counts.never,
        only_baseline: &counts.only_a,
        only_arm: &counts.only_b,
        lines: counts
            .counters
            .iter()
            .map(|c| CountedLine {
                workload: &c.workload,
                metrics: &c.metrics,
                counter: &c.name,
                unit: c.unit.name(),
                baseline_mean: c.a,
                arm_mean: c.b,
                change_percent: percent(c.change.mean),
                ci95_percent: c.change.ci95.map(|(low, high)| [percent(low), percent(high)]),
                p: c.change.p,
                adjusted_p: c.change.adjusted_p,
                pairs: c.pairs,
            })
            .collect(),
    })
    .collect()
}

fn explained<'a>(report: &'a Report<'_>) -> Option<Explained<'a>> {
    let found = &report.why;
    if found.looking.is_none() && found.missing.is_empty() {
        return None;
    }
    let lines = found.causes.iter().map(|of| {
        let shown = of.listed;
        ExplainedLine {
            arm: &report.plan.arms[report.judgement.comparisons[of.comparison].arm].name,
            workload: &of.workload,
            metric: &of.metric,
            pairs: of.pairs,
            baseline_ns: of.a,
            arm_ns: of.b,
            only_baseline_ns: of.gone,
            only_arm_ns: of.new,
            causes: of.causes[..shown]
                .iter()
                .map(|cause| ExplainedCause {
                    function: &cause.name,
                    formerly: cause.formerly.as_deref(),
                    baseline_ns: cause.a,
                    arm_ns: cause.b,
                    standard_error_ns: cause.se,
                    share: cause.delta() / of.delta(),
                })
                .collect(),
            explained: of.explained(shown),
            sampled: of.sampled.as_ref().map(|s| ExplainedSamples {
                cpus: s.cpus,
                baseline_samples: s.samples.0,
                arm_samples: s.samples.1,
                not_told_apart: NotToldApart {
                    functions: s.functions,
                    baseline_ns: s.a,
                    arm_ns: s.b,
                    standard_error_ns: s.se,
                },
            }),
            system_calls: system_calls(found, of),
            parts: subject::parts(of)
                .into_iter()
                .map(|p| ExplainedPart { part: p.name, change_ns: p.delta, share: p.share })
                .collect(),
            touching: report.touching(of),
        }
    });
    Some(Explained { looking: found.looking.as_ref(), missing: &found.missing, lines: lines.collect() })
}

fn system_calls<'a>(why: &'a super::why::Why, causes: &Causes) -> Vec<ExplainedCall<'a>> {
    let is_it =
        |c: &&Calls| c.comparison == causes.comparison && c.workload == causes.workload && c.metric == causes.metric;
    let calls = why.calls.iter().find(is_it).map_or(&[][..], |found| &found.calls);
    calls.iter().map(|c| ExplainedCall { name: &c.name, baseline: c.a, arm: c.b }).collect()
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
        reason: comparison.suite.as_ref().map(|s| match &s.reason {
            Reason::Failed => Why::Failed,
            Reason::Complained(classes) => Why::Complained { classes },
            Reason::TooManyVoid => Why::TooManyVoid,
            Reason::BaselineFailed => Why::BaselineFailed,
            Reason::NoClock => Why::NoClock,
            Reason::Primaries(workloads) => Why::Primaries { workloads },
        }),
        lines: rows.iter().map(|row| judged(report, row)).collect(),
        config_differences,
    }
}

fn judged<'a>(report: &Report<'_>, row: &'a Row<'_>) -> Judged<'a> {
    let line = row.line;
    let Missing { failed, absent } = line.missing;
    fn ends((low, high): &(Quantity, Quantity)) -> [&Quantity; 2] {
        [low, high]
    }
    Judged {
        workload: &line.workload,
        metric: &line.metric,
        clock: report.plan.clock.name(),
        verdict: line.verdict.name(),
        unadjusted_verdict: line.unadjusted.unwrap_or(line.verdict).name(),
        tiny: line.tiny,
        uneven: line.estimate.is_some_and(|e| e.uneven),
        baseline_mean: &row.a,
        arm_mean: &row.b,
        change: &row.change,
        ci95: row.ci95.as_ref().map(ends),
        ci90: row.ci90.as_ref().map(ends),
        smallest_visible: &row.visible,
        margin: &row.margin,
        p: line.estimate.map(|e| e.p),
        claim_p: line.claim_p,
        adjusted_p: line.adjusted_p,
        more_pairs: line.more_pairs,
        pairs: line.deltas.len(),
        missing: Absent { failed, absent },
        log: line.estimate.map(|e| Log {
            mean: e.mean,
            sd: e.sd,
            ci95: e.ci95,
            ci90: e.ci90,
            smallest_visible: e.mde,
            margin: line.log_margin,
        }),
        deltas: line
            .deltas
            .iter()
            .map(|d| Delta {
                pair: d.pair,
                order: match d.order {
                    Order::Ab => "ab",
                    Order::Ba => "ba",
                },
                a: d.a,
                b: d.b,
                d: d.d,
            })
            .collect(),
    }
}
