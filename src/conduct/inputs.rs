//! Compares a study's inputs with those at its start: programs, kernels, and the foundations of the workloads.
//!
//! Invariant: a study, night or search whose inputs have changed is neither shown as the answer nor resumed. Job and option files need no comparison:
//! their text is part of the question.

use std::path::Path;

use bigiron_archive::spec::KernelSpec;
use bigiron_lab::host::{foundation, local};
use bigiron_model::build::Build;
use bigiron_model::host::HostKind;
use bigiron_model::identity::Identity;
use bigiron_model::plan::RUNNING;
use bigiron_model::refusal::Refusal;
use bigiron_model::shell::quote;
use bigiron_model::store::Folder;

use super::environment::Environment;
use super::{SearchContext, hosts, study_folder};
use crate::study::resolved::ResolvedQuestion;

/// Number of a hash's digits in messages.
const DIGITS: usize = 12;

/// Refuses a study whose inputs have changed; each change is named.
pub(super) fn check(
    folder: &Folder,
    resolved: &ResolvedQuestion,
    environment: &Environment<'_>,
    part: Option<&SearchContext<'_>>,
) -> anyhow::Result<()> {
    let plan = folder.plan();
    environment.provenance(plan.machine.host)?.check("study", folder.dir(), plan.provenance.as_ref())?;
    // A night or a search compares its own kernels, once for all of its studies.
    let kernels = plan.arms.iter().map(|arm| &arm.kernel).filter(|_| part.is_none());
    let changes = changed_kernels(plan.machine.host, plan.boots(), kernels, environment)?;
    if !changes.is_empty() {
        return Err(changed(folder, &changes.join("; ")).into());
    }
    if !matches!(plan.machine.host, HostKind::Sim | HostKind::Ssh) {
        for (arm, asked) in plan.arms.iter().zip(&resolved.arms) {
            foundation::find(&asked.parsed.workloads, plan, arm).map_err(|error| {
                match error.downcast::<foundation::Changed>() {
                    Ok(change) => changed(folder, &change.to_string()).into(),
                    Err(other) => other,
                }
            })?;
        }
    }
    Ok(())
}

/// Refuses a night or a search, the `what` in `dir`, whose `kernels` have changed; each change is named.
pub fn check_kernels<'k>(
    what: &str,
    dir: &Path,
    resolved: &ResolvedQuestion,
    kernels: impl IntoIterator<Item = &'k Identity>,
    environment: &Environment<'_>,
) -> anyhow::Result<()> {
    let changes = changed_kernels(resolved.machine.host, resolved.boots(), kernels, environment)?;
    if changes.is_empty() {
        return Ok(());
    }
    let dir = dir.display().to_string();
    let message = format!("The kernels of the {what} in `{dir}` have changed since it began: {}", changes.join("; "));
    Err(Refusal::new(message)
        .hint(format!(
            "Start a new one with `--out DIR`, or rename that folder and repeat the command; `bigiron report {}` prints the old report",
            quote(&dir)
        ))
        .into())
}

/// The changes of `kernels`, each in words; `boots` says whether another machine boots before each trial.
fn changed_kernels<'k>(
    host: HostKind,
    boots: bool,
    kernels: impl IntoIterator<Item = &'k Identity>,
    environment: &Environment<'_>,
) -> anyhow::Result<Vec<String>> {
    let mut changes = Vec::new();
    for then in kernels {
        if let Some(now) = kernel_now(host, boots, then, environment)? {
            changes.extend(difference(then, &now));
        }
    }
    changes.dedup();
    Ok(changes)
}

/// The kernel that the arm names now; `None` if it names one of an archive, which was resolved when the study began: an archive gets newer kernels,
/// and only the network could tell.
fn kernel_now(
    host: HostKind,
    boots: bool,
    planned: &Identity,
    environment: &Environment<'_>,
) -> anyhow::Result<Option<Identity>> {
    Ok(match host {
        HostKind::Ssh if planned.spec == RUNNING => Some(hosts::own_kernel(boots, environment.targets()?)?),
        HostKind::Vm | HostKind::Ssh => match KernelSpec::parse(&planned.spec) {
            Ok(KernelSpec::Archive { .. } | KernelSpec::Latest | KernelSpec::Previous) => None,
            _ => Some(environment.kernel(&planned.spec)?.identity),
        },
        HostKind::Local => Some(local::identity()),
        HostKind::Sim => None,
    })
}

fn difference(then: &Identity, now: &Identity) -> Option<String> {
    let short = |hash: &str| hash.get(..DIGITS).unwrap_or(hash).to_owned();
    let optional = |text: &Option<String>| text.as_deref().map_or("none".to_owned(), short);
    let mut parts = Vec::new();
    if then.release != now.release {
        parts.push(format!("release {} → {}", then.release, now.release));
    }
    if then.image_sha256 != now.image_sha256 {
        parts.push(format!("image {} → {}", short(&then.image_sha256), short(&now.image_sha256)));
    }
    if then.config_sha256 != now.config_sha256 {
        parts.push(format!("configuration {} → {}", optional(&then.config_sha256), optional(&now.config_sha256)));
    }
    (!parts.is_empty()).then(|| format!("`{}`: {}", then.spec, parts.join(", ")))
}

/// Refuses an image that was linked again and is not that of the plan.
pub(super) fn check_build(kernel: &Identity, build: &Build, now: &Identity) -> Result<(), Refusal> {
    let then = Identity { image_sha256: build.image_sha256.clone(), ..kernel.clone() };
    difference(&then, &Identity { spec: then.spec.clone(), ..now.clone() }).map_or(Ok(()), |change| {
        Err(Refusal::new(format!("An image was missing from the cache; linked again, it differs: {change}")).hint(
            "The linker or another build tool has probably changed since the study began; `--fresh` begins a new study",
        ))
    })
}

pub(super) fn changed(folder: &Folder, changes: &str) -> Refusal {
    let dir = folder.dir().display().to_string();
    if let Some(later) = study_folder::later(folder.dir(), folder.plan()) {
        let later = quote(&later.display().to_string());
        return Refusal::new(format!("The inputs of the study in `{dir}` have changed since it began: {changes}"))
            .hint(format!(
                "A later study of this question is in {later}: add `--out {later}`, or `--fresh` for another one"
            ));
    }
    Refusal::new(format!("The inputs of the study in `{dir}` have changed since it began: {changes}")).hint(format!(
        "`--fresh` begins a new study in a folder beside it; `bigiron report {}` prints the old study's report",
        quote(&dir)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_a_kernel_is_named() {
        let then = Identity {
            spec: "./bz".to_owned(),
            release: "6.1.0".to_owned(),
            package: None,
            image_sha256: "a1".repeat(32),
            config_sha256: None,
        };
        assert_eq!(difference(&then, &then), None);
        let image = Identity { image_sha256: "c3".repeat(32), ..then.clone() };
        assert_eq!(difference(&then, &image).unwrap(), "`./bz`: image a1a1a1a1a1a1 → c3c3c3c3c3c3");
        let all = Identity { release: "6.1.1".to_owned(), config_sha256: Some("d4".repeat(32)), ..image };
        assert_eq!(
            difference(&then, &all).unwrap(),
            "`./bz`: release 6.1.0 → 6.1.1, image a1a1a1a1a1a1 → c3c3c3c3c3c3, configuration none → d4d4d4d4d4d4"
        );
    }
}
