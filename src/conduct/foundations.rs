//! The foundations of a study's arms, here or on its targets: servers' programs and data.
//!
//! Invariant: a study's trials start from the foundation in its plan. On targets, it is built before the study begins, and no trial gets a newer one.

use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::bail;
use bigiron_archive::Kernel;
use bigiron_lab::host::foundation::{self, Foundation};
use bigiron_lab::host::ssh::SshHost;
use bigiron_lab::target::messages::FoundationAnswer;
use bigiron_model::host::HostKind;
use bigiron_model::plan::Plan;
use bigiron_model::refusal::Refusal;
use bigiron_model::store::Folder;

use super::environment::Environment;
use super::{hosts, inputs};
use crate::study::resolved::ResolvedQuestion;

/// Puts the foundation of each arm into a new plan; missing parts are built now, which may take minutes.
///
/// # Errors
/// A part is unavailable or cannot be built, or it differs between the study's targets.
pub(super) fn find(
    resolved: &ResolvedQuestion,
    plan: &mut Plan,
    kernels: &[Kernel],
    environment: &Environment<'_>,
    cancel: Option<&AtomicBool>,
) -> anyhow::Result<()> {
    let all = match plan.machine.host {
        HostKind::Sim => return Ok(()),
        HostKind::Ssh => on_targets(plan, kernels, environment, cancel)?,
        HostKind::Vm | HostKind::Local => {
            let arms = plan.arms.iter().zip(&resolved.arms);
            arms.map(|(arm, asked)| foundation::find(&asked.parsed.workloads, plan, arm)).collect::<Result<_, _>>()?
        }
    };
    put(plan, all);
    Ok(())
}

fn put(plan: &mut Plan, all: Vec<Foundation>) {
    for (arm, foundation) in plan.arms.iter_mut().zip(all) {
        arm.foundation = foundation;
    }
}

/// Finds the foundations on all targets in parallel. If a target's differ from the first one's, asks it for those of the first, which it may still have.
fn on_targets(
    plan: &Plan,
    kernels: &[Kernel],
    environment: &Environment<'_>,
    cancel: Option<&AtomicBool>,
) -> anyhow::Result<Vec<Foundation>> {
    let kernels = hosts::brought(plan, kernels);
    let mut machines = Vec::new();
    for (machine, target) in (0..).zip(environment.targets()?) {
        let left = plan.slots.iter().filter(|slot| slot.machine == machine).count() as u32;
        // This refuses what the machine's administrator does not allow, before anything is prepared there.
        let host = hosts::on_one(plan, &kernels, None, left, environment, target)?;
        environment.observer().note(&format!("Preparing the workloads on `{}`", target.look.name));
        machines.push((&*target.look.name, host));
    }
    let ask = |host: &SshHost<'_>, plan: &Plan| match host.foundations(plan, cancel)? {
        FoundationAnswer::Found(all) => anyhow::Ok(all),
        FoundationAnswer::Changed(what) => bail!(what),
    };
    let found: Vec<Vec<Foundation>> = thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<_> = machines.iter().map(|(_, host)| scope.spawn(move || ask(host, plan))).collect();
        asked.into_iter().map(|asked| asked.join().expect("no panic is caught")).collect::<Result<_, _>>()
    })?;
    let mut first = found.first().cloned().unwrap_or_default();
    for ((name, host), own) in machines.iter().zip(&found).skip(1) {
        let Some(what) = difference(&first, own) else { continue };
        let mut pinned = plan.clone();
        put(
            &mut pinned,
            first
                .iter()
                .map(|arm| arm.iter().filter(|(key, _)| !is_file(key)).map(|(k, v)| (k.clone(), v.clone())).collect())
                .collect(),
        );
        if ask(host, &pinned).is_err() {
            return Err(differ(machines[0].0, name, &what).into());
        }
    }
    // Each machine's own programs may differ; the plan contains only those that all machines share.
    for (i, arm) in first.iter_mut().enumerate() {
        arm.retain(|key, value| !is_file(key) || found.iter().all(|own| own[i].get(key) == Some(value)));
    }
    Ok(first)
}

/// Whether a part is one of the machine's own programs, such as `command.file make`.
fn is_file(key: &str) -> bool {
    key.split_once('.').is_some_and(|(_, name)| name.starts_with("file "))
}

/// The first part that differs between two machines, except their own programs: its name and both values.
fn difference(a: &[Foundation], b: &[Foundation]) -> Option<(String, [String; 2])> {
    a.iter().zip(b).find_map(|(of_a, of_b)| {
        let mut names = of_a.keys().chain(of_b.keys()).filter(|name| !is_file(name));
        let name = names.find(|name| of_a.get(*name) != of_b.get(*name))?;
        let value = |of: &Foundation| of.get(name).map_or("nothing", String::as_str).to_owned();
        Some((name.clone(), [value(of_a), value(of_b)]))
    })
}

fn differ(first: &str, other: &str, (part, [a, b]): &(String, [String; 2])) -> Refusal {
    Refusal::new(format!(
        "The machines of a study must start from the same `{part}`: `{first}` has {a}, `{other}` has {b}"
    ))
    .hint(
        "Use machines with the same Debian release; if their releases are the same, one of them read the archive up to a day before the other: try \
         again tomorrow",
    )
}

/// Refuses to resume a study on a target whose foundation differs from the plan's.
pub(super) fn check(folder: &Folder, host: &SshHost<'_>) -> anyhow::Result<()> {
    let plan = folder.plan();
    if plan.arms.iter().all(|arm| arm.foundation.is_empty()) {
        return Ok(());
    }
    match host.foundations(plan, None)? {
        FoundationAnswer::Found(_) => Ok(()),
        FoundationAnswer::Changed(what) => Err(inputs::changed(folder, &what).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_start_from_different_versions_are_refused() {
        let arm = |version: &str, make: &str| {
            let parts = [("web.server", version), ("build.file make", make)];
            Foundation::from(parts.map(|(name, value)| (name.to_owned(), value.to_owned())))
        };
        let old = [arm("nginx 1.22", "a1"), arm("nginx 1.22", "a1")];
        assert_eq!(difference(&old, &old), None);
        assert_eq!(difference(&old, &[arm("nginx 1.22", "b2"), arm("nginx 1.22", "b2")]), None);
        let what = difference(&old, &[arm("nginx 1.22", "a1"), arm("nginx 1.26", "a1")]).unwrap();
        assert_eq!(
            differ("a", "b", &what).message,
            "The machines of a study must start from the same `web.server`: `a` has nginx 1.22, `b` has nginx 1.26"
        );
        let none = [Foundation::new(), Foundation::new()];
        assert_eq!(difference(&old, &none).unwrap().1[1], "nothing");
    }
}
