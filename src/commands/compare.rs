//! `bigiron compare`.

mod questions;

use clap::CommandFactory as _;

use crate::commands::output::Terminal;
use crate::study::setting;
use bigiron_model::host::HostKind;
use std::path::Path;

use super::{output, report};
use crate::cli::{Cli, Compare, Design};
use crate::conduct::environment::refuse;
use crate::conduct::{Conducted, StudyRequest, TrialsBy};
use crate::study::question::Question;
use crate::study::resolved::SCREENING_PAIRS;
use crate::study::{arguments, command};
use bigiron_archive::store::Store;
use bigiron_model::margins;
use bigiron_model::refusal::Refusal;
use bigiron_model::size;
use bigiron_probe::machine;

pub(super) fn run(args: Compare) -> anyhow::Result<u8> {
    let fail_on = args.outcome.fail_on.clone();
    Ok(super::status(conduct(args)?.judgement.decision(), &fail_on))
}

/// Conducts the comparison and prints its report.
pub(super) fn conduct(mut args: Compare) -> anyhow::Result<Conducted> {
    if args.words.is_empty() {
        let named = Store::open().and_then(|store| store.names()).map_err(refuse)?;
        if args.design.on.as_ref().is_some_and(|host| host.kind.is_machine()) {
            return Err(Refusal::new("Nothing to compare: name two or more arms of this machine's kernel")
                .hint("For example `bigiron compare --on local running running,mm.thp=never`")
                .into());
        }
        args.words = questions::ask(&options(), &named, !args.program.is_empty())?;
    }
    let mut question = question(&args.words, &args.design)?;
    check_program(args.program.as_slice(), &args.metric, &question)?;
    command::ask(&mut question, &args.program, &args.metric)?;
    question.gates = !args.outcome.fail_on.is_empty();
    question.rebuilds = args.rebuilds;
    (question.budget, question.precision) = (args.sizing.budget, args.sizing.precision);
    if args.quick {
        super::check_gate(true, &args.outcome.fail_on)?;
        // The same work in fewer boots: a short form of the workloads would be other work, with other verdicts.
        question.screening = true;
        let machines = question.targets.len().max(1) as u32;
        question.pairs = question.pairs.or(Some(SCREENING_PAIRS.next_multiple_of(2 * machines)));
    }
    let request = StudyRequest {
        question,
        file: None,
        script: None,
        out: args.outcome.out.as_deref(),
        fresh: args.outcome.fresh,
        jobs: args.outcome.jobs,
        why: args.outcome.why,
        model: args.outcome.model,
        locks: args.outcome.locks,
        trials: TrialsBy::asked(args.outcome.prepare, args.design.on.as_ref().and_then(|host| host.slurm.clone()))?,
        part: None,
        observer: &Terminal,
    };
    report::conduct_and_print(&request, &args.outcome)
}

/// The options of this call, as they were given. Without arms every word after the command is one, or its value.
fn options() -> Vec<String> {
    std::env::args().skip_while(|word| word != "compare").skip(1).collect()
}

/// Checks what stands after `--`, and what needs it.
fn check_program(program: &[String], metrics: &[String], question: &Question) -> Result<(), Refusal> {
    if program.is_empty() && std::env::args_os().last().is_some_and(|word| word == "--") {
        return Err(Refusal::new("Nothing follows `--`; your own program and its arguments go there"));
    }
    let has_program = question.settings.iter().any(|(lever, _)| lever == command::RUN)
        || question.arms.iter().any(|arm| arm.settings.iter().any(|(lever, _)| lever == command::RUN));
    if !metrics.is_empty() && program.is_empty() && !has_program {
        return Err(Refusal::new("--metric: There is no program to print this metric")
            .hint("Your own program goes after `--`: `bigiron compare … --metric … -- ./benchmark`"));
    }
    let command = Cli::command();
    let own: Vec<String> = command
        .find_subcommand("compare")
        .into_iter()
        .flat_map(|compare| compare.get_arguments())
        .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
        .collect();
    for word in program.iter().skip(1).filter(|word| own.contains(&word.split('=').next().unwrap_or(word).to_owned())) {
        output::warn(&format!(
            "`{word}` follows `--`, so bigiron passes it to your program; bigiron's own options go before `--`"
        ));
    }
    Ok(())
}

/// Builds the question from the arguments.
pub(super) fn question(words: &[String], design: &Design) -> anyhow::Result<Question> {
    let named = Store::open().and_then(|store| store.names()).map_err(refuse)?;
    let (arms, workloads) = arguments::sort(words, &named)?;
    let wrong = |option: &str, message: String| Refusal::new(format!("--{option}: {message}"));
    let mut q = Question {
        arms,
        workloads,
        pairs: design.pairs,
        seed: design.seed,
        hang_limit: design.hang_limit,
        idle_gap: design.idle_gap,
        host: design.on.as_ref().map(|host| host.kind),
        targets: design.on.as_ref().map_or_else(Vec::new, |host| host.targets.clone()),
        no_way_back: design.no_way_back,
        no_vm_gate: design.no_vm_gate,
        qemu: design.qemu,
        cpus: design.cpus,
        storage: design.storage.clone(),
        filesystem: design.filesystem.clone(),
        ..Question::default()
    };
    q.clock = design.clock.as_deref().map(str::parse).transpose().map_err(|e| wrong("clock", e))?;
    q.memory_bytes = design.memory.as_deref().map(size::parse_bytes).transpose().map_err(|e| wrong("memory", e))?;
    for text in &design.set {
        q.settings.push(setting::parse(text).map_err(|e| wrong("set", e.to_string()))?);
    }
    if design.quiet_machine {
        quiet(&mut q)?;
    }
    for text in &design.margin {
        let (kind, margin) = margins::parse(text).map_err(|e| wrong("margin", e.message))?;
        if q.margins.insert(kind, margin).is_some() {
            return Err(wrong("margin", format!("`{text}` sets a margin a second time")).into());
        }
    }
    Ok(q)
}

/// Adds the levers that make this machine quieter, except those already set.
fn quiet(q: &mut Question) -> Result<(), Refusal> {
    if q.host != Some(HostKind::Local) {
        return Err(Refusal::new(match q.host {
            Some(HostKind::Ssh) => {
                "--quiet-machine sets only this machine's frequencies; use it with `--on local`, or set levers such as `cpu.governor`"
            }
            _ => "--quiet-machine: a guest has no frequencies; use it with `--on local`",
        }));
    }
    let settings = machine::quieting(Path::new("/sys"));
    if settings.is_empty() {
        return Err(Refusal::new(
            "--quiet-machine: this machine has neither a governor nor a boost setting; a hypervisor or the firmware chooses the frequency",
        )
        .hint("`bigiron doctor --on local` lists other sources of noise"));
    }
    for (lever, value) in settings {
        if !q.settings.iter().any(|(other, _)| other == lever) {
            q.settings.push((lever.to_owned(), value.to_owned()));
        }
    }
    Ok(())
}
