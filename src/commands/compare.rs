//! `bigiron compare`.

use crate::commands::output::Terminal;
use crate::study::setting;
use bigiron_model::host::HostKind;
use std::path::Path;

use super::report;
use crate::cli::{Compare, Design};
use crate::conduct::StudyRequest;
use crate::conduct::environment::refuse;
use crate::study::question::Question;
use crate::study::{arguments, command, quick};
use bigiron_archive::store::Store;
use bigiron_model::margins;
use bigiron_model::refusal::Refusal;
use bigiron_model::size;
use bigiron_probe::machine;

pub(super) fn run(args: Compare) -> anyhow::Result<u8> {
    let mut question = question(&args.words, &args.design)?;
    command::ask(&mut question, &args.program, &args.metric)?;
    if args.quick {
        super::check_gate(true, &args.outcome.fail_on)?;
        quick::shorten(&mut question);
    }
    let request = StudyRequest {
        question,
        file: None,
        script: None,
        out: args.outcome.out.as_deref(),
        fresh: args.outcome.fresh,
        jobs: args.outcome.jobs,
        why: args.outcome.why,
        locks: args.outcome.locks,
        part: None,
        observer: &Terminal,
    };
    report::conduct(&request, &args.outcome)
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
        host: design.on,
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
        return Err(Refusal::new("--quiet-machine: a guest has no frequencies; use it with `--on local`"));
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
