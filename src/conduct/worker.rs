//! A worker's part of a study that was prepared elsewhere.

use std::path::Path;

use bigiron_lab::host::sim::Script;
use bigiron_model::host::HostKind;
use bigiron_model::qemu::QemuSource;
use bigiron_model::refusal::Refusal;
use bigiron_model::store::{Folder, delivery};

use super::environment::Environment;
use super::{Observer, hosts, signals};
use crate::session::{self, Share};

/// What a worker is asked to do.
pub struct WorkerRequest<'a> {
    /// The study's folder.
    pub dir: &'a Path,
    pub share: Share,
    /// Tells machines apart.
    pub machine: &'a str,
    pub qemu: Option<QemuSource>,
    /// What the host `sim` plays.
    pub script: Option<Script>,
    pub observer: &'a dyn Observer,
}

/// Runs the worker's share; returns how many trials it delivered.
///
/// # Errors
/// This machine's programs or kernels are not those of the study, or it could not run a trial.
pub fn work(request: &WorkerRequest<'_>) -> anyhow::Result<u32> {
    let folder = Folder::open(request.dir)?;
    let plan = folder.plan();
    delivery::check(plan).map_err(|why| Refusal::new(format!("Workers cannot run this study: {why}")))?;
    if plan.machine.host == HostKind::Sim && request.script.is_none() {
        return Err(Refusal::new(
            "Workers cannot run this study: the plan does not have the script that its host `sim` plays",
        )
        .hint("Name the study file that has it: `--script FILE`")
        .into());
    }
    if let Share::Slot(slot) = request.share {
        let slots = plan.slots.len();
        if slot as usize >= slots {
            return Err(Refusal::new(format!("The study has no slot {slot}; its slots are 0 to {}", slots - 1)).into());
        }
    }
    let environment = Environment::new(Vec::new(), request.observer)?.at(Some(request.dir), request.qemu);
    environment.provenance(plan.machine.host)?.check("study", folder.dir(), plan.provenance.as_ref()).map_err(
        |refusal| refusal.hint("Workers need the executable and the QEMU with which the study was prepared"),
    )?;
    let kernels = match plan.machine.host {
        HostKind::Vm => {
            let kept = |kernel| environment.kept_kernel(kernel).map_err(|e| missing(&e));
            plan.arms.iter().map(|arm| kept(&arm.kernel)).collect::<Result<Vec<_>, _>>()?
        }
        _ => Vec::new(),
    };
    let host = hosts::host(&folder, &kernels, &environment, request.script.as_ref())?;
    let cancel = signals::cancelled_by_signals()?;
    Ok(session::work(&folder, host.as_ref(), request.share, request.machine, &cancel, &*request.observer.session())?)
}

fn missing(error: &anyhow::Error) -> Refusal {
    Refusal::new(format!("{error:#}")).hint(
        "Workers take kernels from bigiron's cache: set `BIGIRON_CACHE` to a folder that all machines share, as when the study was prepared",
    )
}
