//! A study on this machine itself.
//!
//! Invariant: whatever belongs to guests is refused, not passed over.

use crate::lever;
use crate::refusal::Refusal;
use crate::study::question::Question;

/// What a study on this machine itself cannot choose.
pub(super) fn check(q: &Question) -> Result<(), Refusal> {
    let refuse = |place: &str, message: String| Err(q.places.refuse(place, message));
    for (i, arm) in q.arms.iter().enumerate() {
        if arm.kernel != "running" {
            let message = format!(
                "This machine cannot change its kernel to `{}`; with `--on local` every arm is `running`",
                arm.kernel
            );
            return Err(q
                .places
                .refuse(&format!("arms.{i}"), message)
                .hint("Kernels are compared in guests: leave `--on local` out"));
        }
    }
    let given = [
        ("machine.cpus", "CPUs", q.cpus.is_some()),
        ("machine.memory", "memory", q.memory_bytes.is_some()),
        ("machine.storage", "storage", q.storage.is_some()),
        ("machine.filesystem", "a file system", q.filesystem.is_some()),
    ];
    for (place, what, is_given) in given {
        if is_given {
            return refuse(place, format!("With `--on local` the machine has {what} of its own; leave it out"));
        }
    }
    let of_arms =
        q.arms.iter().enumerate().flat_map(|(i, arm)| arm.settings.iter().map(move |s| (format!("arms.{i}"), s)));
    for (place, (lever, _)) in q.settings.iter().map(|s| ("set".to_owned(), s)).chain(of_arms) {
        if lever::scope(lever) != lever::Scope::Workload {
            return refuse(
                &place,
                format!(
                    "Lever `{lever}` acts on a guest's kernel; with `--on local` there are only options of workloads"
                ),
            );
        }
    }
    Ok(())
}
