//! Several machines in one study: each pair stays on one of them.
//!
//! Invariant: they count only where a trial depends on its machine, so on the wall clock.

use bigiron_model::clock::Clock;
use bigiron_model::host::HostKind;
use bigiron_model::plan::Member;
use bigiron_model::refusal::Refusal;

use super::{Capabilities, MEMORY};
use crate::study::question::Question;

/// The machines of the question, if they are several.
///
/// # Errors
/// Several machines on a clock that does not depend on them, or with rebuilt kernels.
pub(super) fn members(
    q: &Question,
    host: HostKind,
    clock: Clock,
    here: &impl Capabilities,
) -> Result<Vec<Member>, Refusal> {
    if q.targets.len() < 2 {
        return Ok(Vec::new());
    }
    if clock != Clock::Wall {
        return Err(q.places.refuse(
            "design.clock",
            format!(
                "Several machines need the clock `wall`; on the clock `{clock}` a trial does not depend on its machine"
            ),
        ));
    }
    if q.rebuilds.is_some() {
        return Err(q.places.refuse("design.rebuilds", "Rebuilt kernels need one machine; leave out `rebuilds`"));
    }
    if host != HostKind::Sim {
        let members = here.members();
        // Searches look at no target before their first study.
        if members.len() != q.targets.len() {
            let message = format!("This command needs one machine, and {} are named; name one", q.targets.len());
            return Err(q.places.refuse("machine.host", message));
        }
        return Ok(members);
    }
    let member = |name: &String| Member {
        name: name.clone(),
        cpus: q.cpus.unwrap_or(1),
        memory_bytes: q.memory_bytes.unwrap_or(MEMORY),
        filesystem: q.filesystem.clone().unwrap_or_else(|| "ext4".to_owned()),
    };
    Ok(q.targets.iter().map(member).collect())
}
