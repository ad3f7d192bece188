//! A study on a machine's own kernel: this machine, or another one over SSH, which may also boot other kernels.
//!
//! Invariant: settings that only guests have are refused, not ignored.

use crate::study::question::Question;
use crate::study::resolved::{Capabilities, NO_CHOICE};
use bigiron_lab::lever;
use bigiron_lab::lever::runtime;
use bigiron_model::host::HostKind;
use bigiron_model::plan::RUNNING;
use bigiron_model::refusal::Refusal;
use bigiron_model::setting::TypedSetting;

/// Refuses settings that a study on this machine itself cannot choose.
pub(super) fn check(q: &Question, host: HostKind, here: &impl Capabilities) -> Result<(), Refusal> {
    let refuse = |place: &str, message: String| Err(q.places.refuse(place, message));
    for (i, arm) in q.arms.iter().enumerate() {
        if host == HostKind::Local && arm.kernel != RUNNING {
            let message = format!(
                "This machine cannot change its kernel to `{}`; with `--on local` every arm is `running`",
                arm.kernel
            );
            return Err(q
                .places
                .refuse(&format!("arms.{i}"), message)
                .hint("Kernels are compared in guests: leave out `--on local`"));
        }
    }
    let given = [
        ("machine.cpus", "CPUs", q.cpus.is_some()),
        ("machine.memory", "memory", q.memory_bytes.is_some()),
        ("machine.storage", "storage", q.storage.is_some()),
        ("machine.filesystem", "a file system", q.filesystem.is_some()),
    ];
    if q.qemu.is_some() {
        return refuse("machine.qemu", NO_CHOICE.replace("local", host.name()));
    }
    for (place, what, is_given) in given {
        if is_given {
            return refuse(place, format!("With `--on {host}` the machine already has {what}; leave this out"));
        }
    }
    let of_arms =
        q.arms.iter().enumerate().flat_map(|(i, arm)| arm.settings.iter().map(move |s| (format!("arms.{i}"), s)));
    for (place, (lever, value)) in q.settings.iter().map(|s| ("set".to_owned(), s)).chain(of_arms) {
        let is_here = match lever::scope(lever) {
            lever::Scope::Workload => true,
            lever::Scope::Runtime => runtime::find(lever).is_some_and(|named| named.lever.is_local()),
            lever::Scope::Boot => host == HostKind::Ssh,
        };
        if !is_here && host == HostKind::Local {
            return refuse(
                &place,
                format!(
                    "Lever `{lever}` acts on a guest; with `--on local` use options of workloads and levers of the running \
                     kernel (`bigiron lever list`)"
                ),
            );
        }
        if !is_here {
            return refuse(&place, format!("Lever `{lever}` acts on a guest; leave it out with `--on {host}`"));
        }
        // A scheduler's tunables exist only while it is chosen.
        if lever.starts_with("block.iosched.") && is_scheduled(q, &place) {
            continue;
        }
        here.can_set(&(lever.clone(), value.clone())).map_err(|why| {
            let typed = (lever.clone(), value.clone());
            q.places.refuse(&place, format!("Lever `{}` is not available here: {why}", TypedSetting(&typed)))
        })?;
    }
    Ok(())
}

/// Whether the arm of `place`, or all arms, choose a scheduler.
fn is_scheduled(q: &Question, place: &str) -> bool {
    let arm = place.strip_prefix("arms.").and_then(|n| q.arms.get(n.parse::<usize>().ok()?));
    let own = arm.map_or(&[][..], |arm| &arm.settings);
    q.settings.iter().chain(own).any(|(lever, _)| lever == "block.scheduler")
}
