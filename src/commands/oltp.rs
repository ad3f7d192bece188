//! `bigiron oltp`: jobs on this machine, the database of any server, and tests of crashes.

mod crash;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use serde::Serialize;

use super::{FAILED, output};
use crate::cli::{DbsimFormat, OltpAction, OltpRun};
use crate::conduct::signals;
use crate::study::schedule;
use bigiron_lab::host::{HostError, Phase, local};
use bigiron_model::metric::{MetricDef, Unit};
use bigiron_model::refusal::Refusal;
use bigiron_model::workload::Options;
use bigiron_oltp::check::CheckReport;
use bigiron_oltp::trial_database::Procedures;
use bigiron_oltp::{Oltp, Scale, check, jobs, ledger, ramp, trial_database};
use bigiron_report::quantity::Quantity;
use bigiron_sql::pg::{Connection, Url};
use bigiron_workload::Workload as _;

pub(super) fn run(action: OltpAction) -> anyhow::Result<u8> {
    match action {
        OltpAction::Run(args) => once(&args),
        OltpAction::CrashTest(args) => crash::run(&args),
        OltpAction::Load { url, warehouses } => load(&url, warehouses),
        OltpAction::Check { url, fresh } => check(&url, fresh),
        OltpAction::Prove { url, acks } => prove(&url, &acks),
        OltpAction::Jobs { name } => super::jobs::show(&jobs::LIBRARY, name.as_deref(), jobs::about),
    }
}

fn options(args: &OltpRun) -> Result<Options, Refusal> {
    let lengths = args.seconds.map(|seconds| [("length", seconds), ("ramp", seconds.div_ceil(4))]);
    let lengths: Vec<_> = lengths.into_iter().flatten().map(|(key, seconds)| (key, format!("{seconds}s"))).collect();
    let lengths: Vec<_> = lengths.iter().map(|(key, time)| (*key, time.as_str())).collect();
    let right = "OPTION=VALUE, such as `warehouses=4`";
    let mut options = super::jobs::options(&Oltp, &args.job, &args.set, right, &lengths)?;
    if let Some(acks) = options.get_mut("acks") {
        *acks = Oltp.embed("acks", acks).map_err(Refusal::new)?;
    }
    Ok(options)
}

/// The result of one run.
#[derive(Serialize)]
struct RunResult<'a> {
    bigiron: &'static str,
    seed: u64,
    metrics: &'a BTreeMap<String, f64>,
    facts: &'a BTreeMap<String, String>,
    /// Why the run is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

fn once(args: &OltpRun) -> anyhow::Result<u8> {
    let options = options(args)?;
    let metrics = Oltp.parse(&options).map_err(Refusal::new)?.metrics();
    let seed = args.seed.map_or_else(schedule::draw_seed, Ok)?;
    let cancel = signals::cancelled_by_signals()?;
    let once = local::once(&Oltp, &options, seed, &args.dir, &cancel, &show).map_err(|e| match e {
        HostError::Cancelled => anyhow::anyhow!("Interrupted; all processes are stopped and all files removed"),
        other => other.into(),
    })?;
    let failed = once.failure.map(|(failure, why)| format!("{}: {why}", failure.verb()));
    let result = RunResult {
        bigiron: env!("CARGO_PKG_VERSION"),
        seed,
        metrics: &once.values,
        facts: &once.facts,
        failed: failed.clone(),
    };
    output::data(&match args.format {
        DbsimFormat::Json => serde_json::to_string_pretty(&result)? + "\n",
        DbsimFormat::Text => text(&result, &metrics),
    })?;
    Ok(if failed.is_some() { FAILED } else { 0 })
}

/// Shows the current step on a terminal.
fn show(phase: Phase) {
    if let Phase::Step { step, done, of, .. } = phase
        && std::io::stderr().is_terminal()
    {
        let far = match of {
            0 | 1 => String::new(),
            // A ramp has few steps, all of the same length.
            2..100 => format!(" (step {} of {of})", done + 1),
            _ => format!(" {} %", u64::from(done) * 100 / u64::from(of)),
        };
        let _ = write!(std::io::stderr(), "\r\x1b[K{step}{far}");
        if step == "verify" {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn text(result: &RunResult<'_>, metrics: &[MetricDef]) -> String {
    let mut out = String::new();
    // A failed run's measurements are not shown.
    if let Some(why) = &result.failed {
        let _ = writeln!(out, "FAILED: the workload {why}");
        let _ = writeln!(out, "Seed {}", result.seed);
        return out;
    }
    let _ = writeln!(out, "Seed {}; every consistency condition holds", result.seed);
    let rows = metrics.iter().filter_map(|m| {
        let value = result.metrics.get(&m.name)?;
        Some(vec![m.name.clone(), Quantity::metric(*value, m.unit, 0.0).to_string(), m.summary.clone()])
    });
    output::table(&mut out, &["Metric", "value", ""], rows);
    let steps = ramp::steps_of(result.facts);
    if !steps.is_empty() {
        let bytes =
            |n: Option<u64>| n.map_or_else(String::new, |n| Quantity::metric(n as f64, Unit::Bytes, 0.0).to_string());
        let rows = steps.iter().map(|step| {
            let [memory, page_tables, session] = [step.memory, step.page_tables, step.session].map(bytes);
            vec![step.users.to_string(), memory, page_tables, session, step.result.clone()]
        });
        output::table(&mut out, &["Users", "memory", "page tables", "a session", "result"], rows);
    }
    let facts = result.facts.iter().filter(|(name, _)| !ramp::is_of_step(name));
    output::table(&mut out, &["Fact", ""], facts.map(|(name, value)| vec![name.clone(), value.clone()]));
    out
}

fn url(text: &str) -> Result<Url, Refusal> {
    Url::parse(text).map_err(|e| Refusal::new(e.to_string()))
}

fn load(text: &str, warehouses: u32) -> anyhow::Result<u8> {
    let url = url(text)?;
    let step = |step: &str, done: u64, of: u64| {
        if done == of {
            output::note(&format!("{step}: done"));
        }
    };
    for what in trial_database::load_marked(&url, Scale { warehouses }, Procedures::Wanted, &step)? {
        output::note(&format!("not available on this server: {what}"));
    }
    output::note(&format!("Loaded {warehouses} warehouses into {url}"));
    Ok(0)
}

fn check(text: &str, fresh: bool) -> anyhow::Result<u8> {
    let mut database = Connection::connect(&url(text)?)?;
    let report = check::conditions(&mut database, fresh)?;
    print(&report)
}

fn prove(text: &str, acks: &Path) -> anyhow::Result<u8> {
    let (account, marks) = ledger::Account::read(acks)?;
    let mut database = Connection::connect(&url(text)?)?;
    let mut report = check::prove(&mut database, &marks, &account)?;
    report.checks.extend(check::conditions(&mut database, false)?.checks);
    output::note(&format!("{} acknowledged write transactions", account.entries.len()));
    print(&report)
}

fn print(report: &CheckReport) -> anyhow::Result<u8> {
    let mut out = String::new();
    for check in &report.checks {
        let _ = writeln!(out, "{check}");
    }
    output::data(&out)?;
    Ok(if report.passed() { 0 } else { FAILED })
}
