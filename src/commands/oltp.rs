//! `bigiron oltp`: jobs on this machine, the database of any server, and tests of crashes.

mod crash;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::{FAILED, once, output};
use crate::cli::{OltpAction, OltpRun};
use crate::study::schedule;
use bigiron_model::metric::Unit;
use bigiron_model::refusal::Refusal;
use bigiron_model::workload::Options;
use bigiron_oltp::check::CheckReport;
use bigiron_oltp::trial_database::Procedures;
use bigiron_oltp::{Oltp, Scale, check, jobs, ledger, ramp, trial_database};
use bigiron_report::quantity::Quantity;
use bigiron_sql::pg::{Connection, Url};
use bigiron_workload::{RunsOn, Workload as _};

pub(super) fn run(action: OltpAction) -> anyhow::Result<u8> {
    match action {
        OltpAction::Run(args) => run_once(&args),
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
        *acks = Oltp.embed("acks", acks, RunsOn::Here).map_err(Refusal::new)?;
    }
    Ok(options)
}

fn run_once(args: &OltpRun) -> anyhow::Result<u8> {
    let options = options(args)?;
    let metrics = Oltp.parse(&options).map_err(Refusal::new)?.metrics();
    let seed = args.seed.map_or_else(schedule::draw_seed, Ok)?;
    let run = once::Run { workload: &Oltp, options: &options, metrics, seed: Some(seed), dir: &args.dir };
    run.print(BTreeMap::new(), args.format, "every consistency condition holds", &steps)
}

/// The steps of a ramp as a table; returns the other facts.
fn steps(facts: &BTreeMap<String, String>, out: &mut String) -> BTreeMap<String, String> {
    let steps = ramp::steps_of(facts);
    if !steps.is_empty() {
        let bytes =
            |n: Option<u64>| n.map_or_else(String::new, |n| Quantity::metric(n as f64, Unit::Bytes, 0.0).to_string());
        let rows = steps.iter().map(|step| {
            let [memory, page_tables, session] = [step.memory, step.page_tables, step.session].map(bytes);
            vec![step.users.to_string(), memory, page_tables, session, step.result.clone()]
        });
        output::table(out, &["Users", "memory", "page tables", "a session", "result"], rows);
    }
    facts
        .iter()
        .filter(|(name, _)| !ramp::is_of_step(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
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
