//! `bigiron dbsim`: jobs on this machine.

mod device;
mod live;
mod result;
mod run;
mod run_directory;
mod runner;
mod tables;

use std::path::Path;

use super::{jobs, output};
use crate::cli::{DbsimAction, DbsimJob};
use bigiron_dbsim::{Dbsim, job};
use bigiron_model::refusal::Refusal;
use bigiron_model::workload::Options;
use bigiron_workload::Configured as _;

pub(super) fn run(action: DbsimAction) -> anyhow::Result<u8> {
    match action {
        DbsimAction::Run(args) => run::run(&args),
        DbsimAction::Check { job, print } => check(&job, print),
        DbsimAction::Verify { dir, acks } => run::verify(&dir, acks.as_deref()),
        DbsimAction::Jobs { name } => jobs::show(&job::shipped::LIBRARY, name.as_deref(), |shipped| {
            job::draft(shipped.name).ok().and_then(|draft| draft.about()).unwrap_or_default()
        }),
        DbsimAction::ImportFio { file } => import_fio(&file),
    }
}

/// The options that express a job's name and its settings.
fn options(asked: &DbsimJob) -> Result<Options, Refusal> {
    jobs::options(&Dbsim, &asked.job, &asked.set, "KEY=VALUE, such as `cache.size=64M`", &[])
}

fn check(asked: &DbsimJob, print: bool) -> anyhow::Result<u8> {
    let options = options(asked)?;
    let job = job::Job::parse(&options).map_err(Refusal::new)?;
    if print {
        output::data(&job::print(&job))?;
        return Ok(0);
    }
    let about = job::draft(&asked.job)?.about();
    output::data(&job::explain::explain(&job, about.as_deref(), &job.needs()))?;
    Ok(0)
}

fn import_fio(file: &Path) -> anyhow::Result<u8> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|e| Refusal::new(format!("Cannot read the fio job file `{name}`: {e}")))?;
    output::data(&job::fio::import(&name, &text)?)?;
    Ok(0)
}
