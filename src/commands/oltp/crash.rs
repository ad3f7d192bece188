//! `bigiron oltp crash-test`: a machine that loses its power repeatedly.
//!
//! Invariant: any loss is the first line of the result.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use bigiron_stats::order::{Rng as _, rng};
use serde::Serialize;

use super::super::{FAILED, compare, output};
use crate::cli::{Design, OltpCrashTest, RunFormat};
use crate::commands::output::Terminal;
use crate::conduct::environment::Environment;
use crate::conduct::hosts;
use crate::conduct::signals;
use crate::study::resolved;
use crate::study::schedule;
use bigiron_archive::Kernel;
use bigiron_lab::host::HostError;
use bigiron_lab::host::foundation;
use bigiron_lab::host::vm::crash::{CrashMachine, PowerCycle, PowerCycleEnd};
use bigiron_lab::vm::writes::{Honesty, WriteFate};
use bigiron_model::plan::Plan;
use bigiron_model::record::Failure;
use bigiron_oltp::job::Job;
use bigiron_oltp::ledger;
use bigiron_oltp::scale::DISTRICTS;

/// Maximum delay of the kill after the drawn commit.
const AFTER_MS: u64 = 50;
/// Attempts for a boot that the host spoils.
const TRIES: u32 = 3;

/// The result of the test.
#[derive(Serialize)]
struct Tested {
    bigiron: &'static str,
    kernel: String,
    seed: u64,
    /// `lying` if a disk without real flushes was rehearsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<&'static str>,
    /// Settings that permit the loss of commits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    weakened: Vec<String>,
    rounds: Vec<Round>,
    /// What was lost, half-done or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

/// One power loss, and what survived it.
#[derive(Serialize)]
struct Round {
    round: u32,
    /// Acknowledged write transactions since the previous boot.
    acknowledged: u64,
    /// What happened to the disk's writes; `None` if the disk kept all.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<Lost>,
    /// What was verified for this and all earlier rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    proved: Option<String>,
}

#[derive(Serialize)]
struct Lost {
    writes: u64,
    flushes: u64,
    unflushed_writes: u64,
    lost_blocks: u64,
}

pub(super) fn run(args: &OltpCrashTest) -> anyhow::Result<u8> {
    let environment = Environment::new(Vec::new(), &Terminal)?.at(None, args.qemu);
    let (plan, kernel) = plan(args, &environment)?;
    let options = plan.options_in(&plan.arms[0], "oltp");
    let job = Job::parse(&options).map_err(anyhow::Error::msg)?;
    let folder = Folder::make(args)?;
    let host = hosts::vm_host(&plan, std::slice::from_ref(&kernel), &environment)?;
    let honesty = if args.lying_disk { Honesty::Lying } else { Honesty::Honest };
    let mut tested = Tested {
        bigiron: env!("CARGO_PKG_VERSION"),
        kernel: plan.arms[0].kernel.release.clone(),
        seed: plan.design.seed,
        disk: args.lying_disk.then_some("lying"),
        weakened: job.engine.weakened(),
        rounds: Vec::new(),
        failed: None,
    };
    let mut machine = CrashMachine::new(&host, &plan, folder.path(), honesty);
    test(args, &job, &mut machine, &mut tested)?;
    output::data(&match args.format {
        RunFormat::Json => serde_json::to_string_pretty(&tested)? + "\n",
        RunFormat::Text => text(&tested),
    })?;
    if args.keep {
        output::note(&format!("Kept in `{}`", folder.path().display()));
    }
    Ok(if tested.failed.is_some() { FAILED } else { 0 })
}

/// A plan of one boot, made like that of a comparison of an arm with itself.
fn plan(args: &OltpCrashTest, environment: &Environment<'_>) -> anyhow::Result<(Plan, Kernel)> {
    let design = Design {
        clock: Some("none".to_owned()),
        cpus: args.cpus,
        memory: args.memory.clone(),
        seed: args.seed,
        storage: Some("host-file".to_owned()),
        filesystem: args.filesystem.clone(),
        qemu: args.qemu,
        set: args.set.clone(),
        ..Design::default()
    };
    let words = [args.arm.clone(), args.arm.clone(), "oltp".to_owned()];
    let mut question = compare::question(&words, &design)?;
    // The run has no planned end; the kill ends it.
    for (name, value) in [("oltp.ramp", "1"), ("oltp.length", "1000000000")] {
        question.settings.retain(|(lever, _)| lever != name);
        question.settings.push((name.to_owned(), value.to_owned()));
    }
    let resolved = resolved::resolve(&question, environment)?;
    let kernel = environment.kernel(&resolved.arms[0].kernel)?;
    let seed = resolved.seed.map_or_else(schedule::draw_seed, Ok)?;
    let mut plan = resolved.plan(vec![kernel.identity.clone(); 2], seed, String::new(), None)?;
    plan.arms.truncate(1);
    plan.slots.clear();
    plan.arms[0].foundation = foundation::find(&resolved.arms[0].parsed.workloads, &plan, &plan.arms[0])?;
    Ok((plan, kernel))
}

fn test(args: &OltpCrashTest, job: &Job, machine: &mut CrashMachine<'_>, tested: &mut Tested) -> anyhow::Result<()> {
    let cancel = signals::cancelled_by_signals()?;
    let districts = u64::from(job.scale.warehouses) * u64::from(DISTRICTS);
    let mut draws = rng(tested.seed ^ 1);
    let boot = |machine: &mut CrashMachine<'_>, end: &PowerCycleEnd<'_>| -> anyhow::Result<PowerCycle> {
        let mut tries = 0;
        loop {
            tries += 1;
            match machine.live(end, &cancel, &|_| {}) {
                Err(HostError::Void(why)) if tries < TRIES => output::note(&format!("Trying again: {why}")),
                Err(HostError::Cancelled) => {
                    anyhow::bail!("Interrupted; all processes are stopped and all files removed")
                }
                other => return Ok(other?),
            }
        }
    };
    for round in 1..=args.rounds {
        let wanted = 1 + draws.next_u64() % args.commits;
        let then = Duration::from_micros(draws.next_u64() % (AFTER_MS * 1000));
        let when = |bytes| ledger::entries_in(bytes, districts) >= wanted;
        let cycle = boot(machine, &PowerCycleEnd::Kill { when: &when, then })?;
        if !judge(&cycle, tested) {
            return Ok(());
        }
        let all = ledger::Account::read(&machine.acknowledged())?.0.entries.len() as u64;
        let before: u64 = tested.rounds.iter().map(|round| round.acknowledged).sum();
        tested.rounds.push(Round { round, acknowledged: all - before, disk: cycle.fate.map(lost), proved: None });
        output::note(&format!("Round {round}: killed after {} acknowledged transactions", all - before));
    }
    let cycle = boot(machine, &PowerCycleEnd::Proof)?;
    judge(&cycle, tested);
    Ok(())
}

/// Records what a boot has shown about the round before; returns whether to go on.
fn judge(cycle: &PowerCycle, tested: &mut Tested) -> bool {
    if let (Some(round), Some(facts)) = (tested.rounds.last_mut(), &cycle.proved) {
        round.proved =
            Some(facts.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("; "));
    }
    let Some((failure, message)) = &cycle.failure else { return true };
    let rounds = tested.rounds.len();
    tested.failed = Some(match failure {
        Failure::VerifyFailed => format!("DATA LOST after power loss {rounds}: {message}"),
        other => format!("FAILED after {rounds} power losses: the guest {}: {message}", other.verb()),
    });
    false
}

fn lost(fate: WriteFate) -> Lost {
    let WriteFate { writes, flushes, unflushed, lost_blocks } = fate;
    Lost { writes, flushes, unflushed_writes: unflushed, lost_blocks }
}

fn text(tested: &Tested) -> String {
    let mut out = String::new();
    let told: u64 = tested.rounds.iter().map(|round| round.acknowledged).sum();
    let rounds = tested.rounds.len();
    match &tested.failed {
        Some(why) => _ = writeln!(out, "{why}"),
        None => {
            let _ = writeln!(
                out,
                "NOTHING LOST in {rounds} power loss{}: all {told} acknowledged transactions are there, none is half-done",
                if rounds == 1 { "" } else { "es" }
            );
        }
    }
    let _ = writeln!(out, "Kernel {}, seed {}", tested.kernel, tested.seed);
    if tested.disk.is_some() {
        let _ = writeln!(out, "Rehearsed: a disk that acknowledges flushes but does not perform them");
    }
    for weak in &tested.weakened {
        let _ = writeln!(out, "Weakened: {weak}");
    }
    let rows = tested.rounds.iter().map(|round| {
        let number = |pick: fn(&Lost) -> u64| round.disk.as_ref().map_or("-".to_owned(), |lost| pick(lost).to_string());
        vec![
            round.round.to_string(),
            round.acknowledged.to_string(),
            number(|lost| lost.writes),
            number(|lost| lost.flushes),
            number(|lost| lost.unflushed_writes),
            number(|lost| lost.lost_blocks),
            round.proved.clone().unwrap_or_default(),
        ]
    });
    let head = ["Round", "acknowledged", "writes", "flushes", "unflushed", "blocks lost", "after it"];
    output::table(&mut out, &head, rows);
    out
}

/// The machine's folder, removed at the end unless it is to be kept.
enum Folder {
    Gone(tempfile::TempDir),
    Kept(PathBuf),
}

impl Folder {
    fn make(args: &OltpCrashTest) -> anyhow::Result<Self> {
        let made = tempfile::Builder::new().prefix("crash-").tempdir_in(&args.dir);
        let dir = made.with_context(|| format!("Cannot create a folder in {}", args.dir.display()))?;
        Ok(if args.keep { Self::Kept(dir.keep()) } else { Self::Gone(dir) })
    }

    fn path(&self) -> &Path {
        match self {
            Self::Gone(dir) => dir.path(),
            Self::Kept(path) => path,
        }
    }
}
