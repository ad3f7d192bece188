//! Code shared by the commands of single workloads: `--set`, and the jobs that come with bigiron.

use std::fmt::Write as _;

use super::output;
use bigiron_model::refusal::Refusal;
use bigiron_model::workload::Options;
use bigiron_workload as workload;
use bigiron_workload::Workload;
use bigiron_workload::library::{Library, Shipped};

/// The complete options of `workload` with `job`, the texts of `--set` (each `NAME=VALUE`) and `more`, still unparsed: the
/// workload parses them. `right` shows the correct form of a text.
pub(super) fn options(
    workload: &dyn Workload,
    job: &str,
    set: &[String],
    right: &str,
    more: &[(&str, &str)],
) -> Result<Options, Refusal> {
    complete(workload, &[("job", job)], set, right, more)
}

/// As [`options`], for a workload that may have no jobs; the settings of `named` come from arguments.
pub(super) fn complete(
    workload: &dyn Workload,
    named: &[(&str, &str)],
    set: &[String],
    right: &str,
    more: &[(&str, &str)],
) -> Result<Options, Refusal> {
    let mut settings = named.to_vec();
    for text in set {
        let refuse = |message: String| Refusal::new(message).at(Some("--set".to_owned()));
        let Some((name, value)) = text.split_once('=').filter(|(_, value)| !value.is_empty()) else {
            return Err(refuse(format!("`{text}` is not a setting; write {right}")));
        };
        // The name may carry the workload's prefix, as in levers.
        let name = name.strip_prefix(workload.name()).and_then(|name| name.strip_prefix('.')).unwrap_or(name);
        if name == "job" && named.iter().any(|(other, _)| *other == name) {
            return Err(refuse("The first argument names the job".to_owned()));
        }
        if settings.iter().any(|(other, _)| *other == name) {
            return Err(refuse(format!("`{name}` is set twice")));
        }
        settings.push((name, value));
    }
    workload::complete(workload, settings.into_iter().chain(more.iter().copied())).map_err(Refusal::new)
}

/// Prints the job of that name, or a list of all jobs with their descriptions.
pub(super) fn show(library: &Library, name: Option<&str>, about: impl Fn(&Shipped) -> String) -> anyhow::Result<u8> {
    if let Some(name) = name {
        output::data(library.get(name)?.text)?;
        return Ok(0);
    }
    let width = library.shipped.iter().map(|job| job.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for job in library.shipped {
        let _ = writeln!(out, "{:<width$} {}", job.name, about(job));
    }
    output::data(&out)?;
    Ok(0)
}
