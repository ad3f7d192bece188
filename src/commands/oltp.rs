//! `bigiron oltp`: jobs on this machine, the database of any server, and tests of crashes.

mod crash;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use serde::Serialize;

use super::{FAILED, conduct, output};
use crate::cli::{DbsimFormat, OltpAction, OltpRun};
use crate::host::{HostError, Phase, local};
use crate::metric::{MetricDef, Unit};
use crate::refusal::Refusal;
use crate::report::quantity::Quantity;
use crate::suggest;
use crate::workload::oltp::check::Report;
use crate::workload::oltp::house::Procedures;
use crate::workload::oltp::pg::{Connection, Url};
use crate::workload::oltp::{Oltp, Scale, check, house, jobs, ledger, ramp};
use crate::workload::{self, Options, Workload as _};

pub(super) fn run(action: OltpAction) -> anyhow::Result<u8> {
    match action {
        OltpAction::Run(args) => once(&args),
        OltpAction::CrashTest(args) => crash::run(&args),
        OltpAction::Load { url, warehouses } => load(&url, warehouses),
        OltpAction::Check { url, fresh } => check(&url, fresh),
        OltpAction::Prove { url, acks } => prove(&url, &acks),
        OltpAction::Jobs { name } => list(name.as_deref()),
    }
}

fn options(args: &OltpRun) -> Result<Options, Refusal> {
    let mut settings = vec![("job", args.job.as_str())];
    for text in &args.set {
        let Some((name, value)) = text.split_once('=').filter(|(_, value)| !value.is_empty()) else {
            let message = format!("`{text}` sets nothing; write OPTION=VALUE, such as `warehouses=4`");
            return Err(Refusal::new(message).at(Some("--set".to_owned())));
        };
        // Levers are called by the workload's name too; both are understood.
        let name = name.strip_prefix("oltp.").unwrap_or(name);
        if settings.iter().any(|(other, _)| *other == name) {
            return Err(Refusal::new(format!("`{name}` is set twice")).at(Some("--set".to_owned())));
        }
        settings.push((name, value));
    }
    let length = args.seconds.map(|seconds| (format!("{seconds}s"), format!("{}s", seconds.div_ceil(4))));
    if let Some((length, ramp)) = &length {
        settings.extend([("length", length.as_str()), ("ramp", ramp.as_str())]);
    }
    let mut options = workload::options(&Oltp, settings).map_err(Refusal::new)?;
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
    /// Why it counts for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

fn once(args: &OltpRun) -> anyhow::Result<u8> {
    let options = options(args)?;
    let seed = args.seed.map_or_else(conduct::draw_seed, Ok)?;
    let cancel = conduct::cancelled_by_signals()?;
    let once = local::once(&Oltp, &options, seed, &args.dir, &cancel, &show).map_err(|e| match e {
        HostError::Cancelled => anyhow::anyhow!("Interrupted; everything that was started is stopped and removed"),
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
        DbsimFormat::Text => text(&result, &Oltp.metrics(&options)),
    })?;
    Ok(if failed.is_some() { FAILED } else { 0 })
}

/// What the run is at, for who waits at a terminal.
fn show(phase: Phase) {
    if let Phase::Step { step, done, of, .. } = phase
        && std::io::stderr().is_terminal()
    {
        let far = match of {
            0 | 1 => String::new(),
            // Steps of a ramp are few, and as long as each other.
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
    // Nothing that was measured in a run that failed is worth a look.
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
    for what in house::load_marked(&url, Scale { warehouses }, Procedures::Wanted, &step)? {
        output::note(&format!("not available on this server: {what}"));
    }
    output::note(&format!("{warehouses} warehouses are in {url}"));
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
    output::note(&format!("{} acknowledged transactions that write", account.entries.len()));
    print(&report)
}

fn print(report: &Report) -> anyhow::Result<u8> {
    let mut out = String::new();
    for check in &report.checks {
        let _ = writeln!(out, "{check}");
    }
    output::data(&out)?;
    Ok(if report.passed() { 0 } else { FAILED })
}

fn list(name: Option<&str>) -> anyhow::Result<u8> {
    let Some(name) = name else {
        let mut out = String::new();
        for job in jobs::SHIPPED {
            let _ = writeln!(out, "{:<10} {}", job.name, job.about());
        }
        output::data(&out)?;
        return Ok(0);
    };
    let Some(job) = jobs::SHIPPED.iter().find(|job| job.name == name) else {
        let names = jobs::SHIPPED.iter().map(|job| job.name);
        let right = match suggest::nearest(name, names.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", suggest::list(names)),
        };
        return Err(Refusal::new(format!("No job `{name}` comes with bigiron; {right}")).into());
    };
    output::data(job.text)?;
    Ok(0)
}
