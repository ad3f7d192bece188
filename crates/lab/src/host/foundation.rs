//! What an arm's workloads start from besides its kernel: a server's programs, a loaded database.
//!
//! Invariant: all trials of a study start from the foundation in its plan; a session compares it when it begins, and names a change.

use std::collections::BTreeMap;

use bigiron_model::host::HostKind;
use bigiron_model::plan::{Arm, Plan};
use bigiron_workload::{Configured, ImageContext, Images};

use crate::lever;
use crate::target::messages::PROGRESS;

/// By `WORKLOAD.NAME`, as in a plan.
pub type Foundation = BTreeMap<String, String>;

/// Lets `workload`, which the plan calls `name`, find or build its foundation in `arm`: the one in the plan, if there is one.
pub(super) fn lay(workload: &dyn Configured, plan: &Plan, arm: &Arm, name: &str) -> anyhow::Result<Images> {
    let images = unchecked(workload, plan, arm, name)?;
    check(name, &of(&arm.foundation, name), &images.foundation)?;
    Ok(images)
}

/// As [`lay`], but accepts a foundation that differs from the plan's.
fn unchecked(workload: &dyn Configured, plan: &Plan, arm: &Arm, name: &str) -> anyhow::Result<Images> {
    let foundation = &of(&arm.foundation, name);
    let filesystem =
        (plan.machine.host == HostKind::Vm).then(|| lever::fs::kind(&arm.settings, &plan.machine.filesystem));
    let cx = ImageContext { filesystem, foundation, note: &|text| eprintln!("{PROGRESS}{text}") };
    workload.images(&cx)
}

/// The foundation of all `workloads` of `arm`, in the plan's order; missing parts are built now, which may take minutes.
///
/// # Errors
/// If a part is unavailable, cannot be built, or differs from the plan.
pub fn find(workloads: &[impl AsRef<dyn Configured>], plan: &Plan, arm: &Arm) -> anyhow::Result<Foundation> {
    all(workloads, plan, arm, lay)
}

/// As [`find`], for a single trial, but accepts a foundation that differs from the plan's: the previous trial may have rebuilt a command's programs.
///
/// # Errors
/// If a part is unavailable or cannot be built.
pub(super) fn of_trial(workloads: &[impl AsRef<dyn Configured>], plan: &Plan, arm: &Arm) -> anyhow::Result<Foundation> {
    all(workloads, plan, arm, unchecked)
}

fn all(
    workloads: &[impl AsRef<dyn Configured>],
    plan: &Plan,
    arm: &Arm,
    lay: fn(&dyn Configured, &Plan, &Arm, &str) -> anyhow::Result<Images>,
) -> anyhow::Result<Foundation> {
    let mut all = Foundation::new();
    for (planned, workload) in plan.workloads.iter().zip(workloads) {
        let images = lay(workload.as_ref(), plan, arm, &planned.name)?;
        all.extend(images.foundation.into_iter().map(|(name, value)| (format!("{}.{name}", planned.name), value)));
    }
    Ok(all)
}

/// The part of `workload`, by names without its prefix.
pub(super) fn of(all: &Foundation, workload: &str) -> BTreeMap<String, String> {
    let part = |(name, value): (&String, &String)| {
        let name = name.strip_prefix(workload)?.strip_prefix('.')?;
        Some((name.to_owned(), value.clone()))
    };
    all.iter().filter_map(part).collect()
}

/// A part of the foundation that is not what the plan says.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{name}`: {then} → {now}")]
pub struct Changed {
    name: String,
    then: String,
    now: String,
}

fn check(workload: &str, planned: &Foundation, found: &Foundation) -> Result<(), Changed> {
    for (name, then) in planned {
        let now = found.get(name).map_or("nothing", String::as_str);
        if now != then {
            let name = format!("{workload}.{name}");
            return Err(Changed { name, then: then.clone(), now: now.to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foundation(of: &[(&str, &str)]) -> Foundation {
        of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_workload_has_its_part() {
        let all = foundation(&[("oltp.image", "1"), ("oltp.server", "15"), ("oltp2.image", "2")]);
        assert_eq!(of(&all, "oltp"), foundation(&[("image", "1"), ("server", "15")]));
    }

    #[test]
    fn what_has_changed_is_named_and_what_was_never_planned_passes() {
        let planned = foundation(&[("server", "15.18")]);
        check("oltp", &planned, &foundation(&[("server", "15.18"), ("image", "1")])).unwrap();
        check("oltp", &foundation(&[]), &planned).unwrap();
        let changed = check("oltp", &planned, &foundation(&[("server", "15.19")])).unwrap_err().to_string();
        assert_eq!(changed, "`oltp.server`: 15.18 → 15.19");
        assert!(check("oltp", &planned, &foundation(&[])).is_err());
    }
}
