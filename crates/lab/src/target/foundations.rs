//! The foundations of a study's arms on the target: servers' programs and generated data.
//!
//! Invariant: they are built during a turn, so that no trial and no boot begins meanwhile, by a process that ends when its connection closes.

use std::thread;

use anyhow::anyhow;
use bigiron_workload::registry::Registry;
use rustix::event::{PollFd, PollFlags, poll};

use super::folder::TargetFolder;
use super::messages::{FoundationAnswer, FoundationRequest};
use super::{allow, in_use, look};
use crate::host::foundation;

/// Finds the foundation of each arm, and builds missing parts.
pub(super) fn lay(
    folder: &TargetFolder,
    request: &FoundationRequest,
    registry: Registry,
) -> anyhow::Result<FoundationAnswer> {
    end_with_connection();
    let FoundationRequest { study, plan, demands } = request;
    let _turn = in_use::turn(folder)?;
    in_use::check(folder, study, demands.boots)?;
    allow::check(&look::look()?, *demands, 0)?;
    let names: Vec<&str> = plan.workloads.iter().map(|workload| &*workload.name).collect();
    folder.audit(study, &format!("prepared the workloads {}", names.join(", ")))?;
    let of = |arm| foundation::find(&registry.of_arm(plan, arm).map_err(anyhow::Error::msg)?, plan, arm);
    match plan.arms.iter().map(of).collect() {
        Ok(found) => Ok(FoundationAnswer::Found(found)),
        Err(error) => match error.downcast::<foundation::Changed>() {
            Ok(changed) => Ok(FoundationAnswer::Changed(changed.to_string())),
            Err(other) => Err(anyhow!(other)),
        },
    }
}

/// What a closed standard output shows.
const ENDED: PollFlags = PollFlags::ERR.union(PollFlags::HUP).union(PollFlags::NVAL);

/// Ends this process, and the servers that it has started, when the other end closes the connection.
fn end_with_connection() {
    thread::spawn(|| {
        loop {
            // Waits only for an error, which means that the other end is closed.
            let mut out = [PollFd::from_borrowed_fd(rustix::stdio::stdout(), PollFlags::empty())];
            let closed = poll(&mut out, None).is_ok() && out[0].revents().intersects(ENDED);
            if closed {
                std::process::exit(1);
            }
        }
    });
}
