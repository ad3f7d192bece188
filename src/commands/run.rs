//! `bigiron run`.

use std::path::Path;

use anyhow::anyhow;
use bigiron_model::host::HostKind;
use serde::Deserialize;

use super::report;
use crate::cli::Run;
use crate::commands::output::Terminal;
use crate::conduct::{StudyRequest, TrialsBy};
use crate::study::file::{self, StudyFile};
use bigiron_lab::host::sim::Script;
use bigiron_model::refusal::Refusal;

pub(super) fn run(args: Run) -> anyhow::Result<u8> {
    let study = file::find(&args.study)?;
    let script = script_of(&study, &args.study)?;
    let mut question = study.question;
    question.seed = args.seed.or(question.seed);
    if args.pairs.is_some() || args.sizing.budget.is_some() || args.sizing.precision.is_some() {
        (question.pairs, question.overrides_pairs) = (args.pairs, true);
        (question.budget, question.precision) = (args.sizing.budget, args.sizing.precision);
    }
    question.qemu = args.qemu.or(question.qemu);
    let slurm = args.on.as_ref().and_then(|host| host.slurm.clone());
    if let Some(host) = args.on.filter(|host| !host.targets.is_empty()) {
        (question.host, question.targets) = (Some(host.kind), host.targets);
    }
    if script.is_some() && question.host != Some(HostKind::Sim) {
        let place = Some(args.study.display().to_string());
        return Err(Refusal::new("`[sim]` is for the host `sim` only; this study has another one").at(place).into());
    }
    if let Some(script) = script.as_ref().filter(|_| question.host == Some(HostKind::Sim)) {
        question.targets = script.machine_names();
    }
    let request = StudyRequest {
        question,
        file: Some(&args.study),
        script,
        out: args.outcome.out.as_deref(),
        fresh: args.outcome.fresh,
        jobs: args.outcome.jobs,
        why: args.outcome.why,
        model: args.outcome.model,
        locks: args.outcome.locks,
        trials: TrialsBy::asked(args.outcome.prepare, slurm)?,
        part: None,
        observer: &Terminal,
    };
    report::conduct(&request, &args.outcome)
}

/// The table `[sim]` of a study file.
pub(super) fn script_of(study: &StudyFile, path: &Path) -> anyhow::Result<Option<Script>> {
    script(&study.text).map_err(|e| {
        let line = e.span().map_or(1, |span| 1 + study.text[..span.start].matches('\n').count());
        anyhow!(Refusal::new(e.message().to_owned()).at(Some(format!("{}:{line}", path.display()))))
    })
}

fn script(text: &str) -> Result<Option<Script>, toml::de::Error> {
    #[derive(Deserialize)]
    struct Sim {
        sim: Option<Script>,
    }
    toml::from_str::<Sim>(text).map(|s| s.sim)
}
