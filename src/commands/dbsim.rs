//! `bigiron dbsim`: jobs on this machine.

mod device;
mod live;
mod place;
mod result;
mod run;
mod runner;
mod tables;

use std::fmt::Write as _;
use std::path::Path;

use super::output;
use crate::cli::{DbsimAction, DbsimJob};
use crate::refusal::Refusal;
use crate::suggest;
use crate::workload::dbsim::{Dbsim, job};
use crate::workload::{self, Options, Workload};

pub(super) fn run(action: DbsimAction) -> anyhow::Result<u8> {
    match action {
        DbsimAction::Run(args) => run::run(&args),
        DbsimAction::Check { job, print } => check(&job, print),
        DbsimAction::Verify { dir, acks } => run::verify(&dir, acks.as_deref()),
        DbsimAction::Jobs { name } => jobs(name.as_deref()),
        DbsimAction::ImportFio { file } => import_fio(&file),
    }
}

/// The options that a job's name and its settings are.
fn options(asked: &DbsimJob) -> Result<Options, Refusal> {
    let mut settings = vec![("job", asked.job.as_str())];
    for text in &asked.set {
        let Some((name, value)) = text.split_once('=').filter(|(_, value)| !value.is_empty()) else {
            let message = format!("`{text}` sets nothing; write KEY=VALUE, such as `cache.size=64M`");
            return Err(Refusal::new(message).at(Some("--set".to_owned())));
        };
        // Levers are called by the workload's name too; both are understood.
        let name = name.strip_prefix("dbsim.").unwrap_or(name);
        if name == "job" {
            return Err(Refusal::new("The job is named by the first argument").at(Some("--set".to_owned())));
        }
        if settings.iter().any(|(other, _)| *other == name) {
            return Err(Refusal::new(format!("`{name}` is set twice")).at(Some("--set".to_owned())));
        }
        settings.push((name, value));
    }
    workload::options(&Dbsim, settings).map_err(Refusal::new)
}

fn check(asked: &DbsimJob, print: bool) -> anyhow::Result<u8> {
    let options = options(asked)?;
    let job = job::Job::parse(&options).map_err(Refusal::new)?;
    if print {
        output::data(&job::print(&job))?;
        return Ok(0);
    }
    let about = job::draft(&asked.job)?.about();
    output::data(&job::explain::explain(&job, about.as_deref(), &Dbsim.needs(&options)))?;
    Ok(0)
}

fn import_fio(file: &Path) -> anyhow::Result<u8> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|e| Refusal::new(format!("Cannot read the fio job file `{name}`: {e}")))?;
    output::data(&job::fio::import(&name, &text)?)?;
    Ok(0)
}

fn jobs(name: Option<&str>) -> anyhow::Result<u8> {
    let Some(name) = name else {
        let mut out = String::new();
        for shipped in job::shipped::ALL {
            let about = job::draft(shipped.name)?.about().unwrap_or_default();
            let _ = writeln!(out, "{:<17} {about}", shipped.name);
        }
        output::data(&out)?;
        return Ok(0);
    };
    let Some(shipped) = job::shipped::find(name) else {
        let names = job::shipped::ALL.iter().map(|s| s.name);
        let right = match suggest::nearest(name, names.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", suggest::list(names)),
        };
        return Err(Refusal::new(format!("No job `{name}` comes with bigiron; {right}")).into());
    };
    output::data(shipped.text)?;
    Ok(0)
}
