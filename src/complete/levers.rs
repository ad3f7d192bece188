//! Levers and their values.

use clap_complete::engine::CompletionCandidate;

use super::{after, candidate};
use crate::registry;
use crate::study::setting;
use bigiron_lab::lever::fault::Fault;
use bigiron_lab::lever::runtime::{self, TABLES};
use bigiron_lab::lever::{boot, fault};
use bigiron_workload::Workload;

/// `LEVER=VALUE`: the family, the lever, or its value.
pub(super) fn setting(typed: &str) -> Vec<CompletionCandidate> {
    match typed.split_once('=') {
        Some((lever, _)) => after(&format!("{lever}="), values(lever)),
        None => named(typed, "="),
    }
}

/// The family, or the lever.
pub(super) fn lever(typed: &str) -> Vec<CompletionCandidate> {
    named(typed, "")
}

/// The families, each with `end`.
pub(super) fn families(end: &str) -> Vec<CompletionCandidate> {
    let about = |family: &str| match registry::find(family) {
        Some(_) => format!("options of the workload {family}"),
        None => format!("see `bigiron doc {family}`"),
    };
    setting::families().map(|family| candidate(format!("{family}{end}"), about(family))).collect()
}

/// Names of levers: families before the first dot, then those of the family, each with `end`.
fn named(typed: &str, end: &str) -> Vec<CompletionCandidate> {
    let Some((family, _)) = typed.split_once('.') else { return families(".") };
    let levers: Vec<(String, String)> = match family {
        "boot" => boot::FREQUENT.iter().map(|(name, _)| (format!("boot.{name}"), String::new())).collect(),
        "fault" => vec![(fault::INJECT.to_owned(), fault::SUMMARY.to_owned())],
        _ => match (TABLES.iter().find(|(name, _)| *name == family), registry::find(family)) {
            (Some((_, levers)), _) => levers.iter().map(|l| (l.name.to_owned(), l.summary.to_owned())).collect(),
            (None, Some(workload)) => {
                let option = |name: String| {
                    let about = workload.explain(&name).first().map_or(String::new(), |e| e.summary.to_owned());
                    (format!("{family}.{name}"), about)
                };
                names(workload).into_iter().map(option).collect()
            }
            (None, None) => Vec::new(),
        },
    };
    let complete = |(name, about): (String, String)| match runtime::find(&name) {
        // The rest of the name is the user's.
        Some(named) if named.rest == "NAME" || named.rest == "PATH" => {
            candidate(&name[..name.len() - named.rest.len()], about)
        }
        _ => candidate(format!("{name}{end}"), about),
    };
    levers.into_iter().map(complete).collect()
}

/// The values of a lever, if it has a list of words.
fn values(lever: &str) -> Vec<CompletionCandidate> {
    let plain = |words: Vec<&'static str>| words.into_iter().map(|word| candidate(word, "")).collect();
    match lever.split_once('.') {
        Some(("boot", name)) => {
            let name = boot::canonical(name);
            let frequent = boot::FREQUENT.iter().find(|(frequent, _)| *frequent == name);
            plain(frequent.map_or_else(Vec::new, |(_, values)| values.to_vec()))
        }
        Some(("fault", "inject")) => plain(Fault::ALL.map(Fault::name).into()),
        Some((family, _)) if runtime::is_family(family) => {
            plain(runtime::find(lever).map_or_else(Vec::new, |named| named.lever.takes.words()))
        }
        Some((family, name)) => registry::find(family).map_or_else(Vec::new, |w| option_values(w, name)),
        None => Vec::new(),
    }
}

/// The names of a workload's options, and of the keys of its jobs that can be listed.
fn names(workload: &dyn Workload) -> Vec<String> {
    let options = workload.options().iter().map(|option| option.name.to_owned());
    options.chain(workload.dotted()).collect()
}

fn option_values(workload: &dyn Workload, name: &str) -> Vec<CompletionCandidate> {
    if let Some((option, library)) = workload.library()
        && option == name
    {
        return library.shipped.iter().map(|file| candidate(file.name, "")).collect();
    }
    let mut words: Vec<&str> = workload.explain(name).into_iter().flat_map(|e| e.words).collect();
    words.dedup();
    words.into_iter().map(|word| candidate(word, "")).collect()
}

/// `OPTION=VALUE` of a workload, without the workload's name.
pub(super) fn option_of(workload: &str, typed: &str) -> Vec<CompletionCandidate> {
    let Some(workload) = registry::find(workload) else { return Vec::new() };
    match typed.split_once('=') {
        Some((name, _)) => after(&format!("{name}="), option_values(workload, name)),
        None => {
            let about = |name: &str| workload.explain(name).first().map_or("", |e| e.summary);
            // The first argument names the job.
            let names = names(workload).into_iter().filter(|name| name != "job");
            names.map(|name| candidate(format!("{name}="), about(&name))).collect()
        }
    }
}
