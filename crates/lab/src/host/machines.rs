//! Several machines: the trials of a pair run on the pair's machine.
//!
//! Invariant: each machine is a host of its own; what happens to one has no effect on the others.

use std::thread;

use anyhow::bail;
use bigiron_model::plan::Plan;
use bigiron_model::purpose::Purpose;

use super::{Host, HostError, Phase, Trial, TrialResult};

/// One machine: its host, or why it cannot be used, and the plan as it is for a study on this machine alone.
pub struct OneOfMachines<'a> {
    pub host: Result<Box<dyn Host + 'a>, String>,
    pub plan: Plan,
}

/// The machines, in the plan's order.
pub struct MachinesHost<'a> {
    pub machines: Vec<OneOfMachines<'a>>,
}

impl Host for MachinesHost<'_> {
    fn parallel(&self) -> usize {
        self.machines.len()
    }

    fn supports(&self, purpose: Purpose) -> Result<(), String> {
        self.machines
            .iter()
            .filter_map(|machine| machine.host.as_ref().ok())
            .try_for_each(|host| host.supports(purpose))
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        let machine = self.machines.get(trial.slot.machine as usize);
        let machine = machine.ok_or_else(|| HostError::Fatal("The plan has no such machine".to_owned()))?;
        let host = machine.host.as_ref().map_err(|why| HostError::Fatal(why.clone()))?;
        host.run(&Trial { plan: &machine.plan, ..*trial }, phase)
    }

    /// All at once: a reboot takes minutes.
    fn close(&self, recorded: bool) -> anyhow::Result<()> {
        let close = |machine: &OneOfMachines<'_>| match &machine.host {
            Ok(host) => host.close(recorded).err().map(|e| format!("{e:#}")),
            Err(_) => None,
        };
        let failed: Vec<String> = thread::scope(|scope| {
            let closing: Vec<_> = self.machines.iter().map(|machine| scope.spawn(move || close(machine))).collect();
            closing.into_iter().filter_map(|one| one.join().expect("no panic is caught")).collect()
        });
        if !failed.is_empty() {
            bail!("{}", failed.join("; "));
        }
        Ok(())
    }
}
