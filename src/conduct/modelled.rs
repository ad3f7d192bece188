//! Judged trials that are also modelled (`--model`): each leaves evidence, as if it had been rerun with profiling.
//!
//! Invariant: a guest executes the same instructions in the same virtual time whether they are counted or not, so the records equal
//! those of plain trials.

use bigiron_lab::host::{Host, HostError, Phase, Trial, TrialEvidence, TrialResult};
use bigiron_model::clock::Clock;
use bigiron_model::host::HostKind;
use bigiron_model::purpose::Purpose;
use bigiron_model::refusal::Refusal;
use bigiron_model::store::Folder;

/// A host whose judged trials leave evidence in the study's folder.
pub(super) struct ModelledHost<'a> {
    pub host: &'a dyn Host,
    pub folder: &'a Folder,
}

/// Refuses `--model` where it has no effect.
///
/// # Errors
/// The host or the clock does not support it.
pub(super) fn check(host: HostKind, clock: Clock) -> Result<(), Refusal> {
    match (host, clock) {
        (HostKind::Vm, Clock::Exact | Clock::ExactParallel) => Ok(()),
        (HostKind::Vm, clock) => {
            Err(Refusal::new(format!("`--model` needs the clock `{}`, not `{}`", Clock::Exact, clock.word()))
                .hint("Use `--clock exact`, or leave out `--model`"))
        }
        (host, _) => {
            Err(Refusal::new(format!("`--model` needs guests; on the host `{}` nothing is modelled", host.name()))
                .hint("Leave out `--model`; `--on local` measures the real processor"))
        }
    }
}

impl Host for ModelledHost<'_> {
    fn parallel(&self) -> usize {
        self.host.parallel()
    }

    fn supports(&self, purpose: Purpose) -> Result<(), String> {
        self.host.supports(purpose)
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        let purpose = if trial.purpose == Purpose::Judge { Purpose::Profile } else { trial.purpose };
        let mut result = self.host.run(&Trial { purpose, ..*trial }, phase)?;
        if let (Purpose::Judge, Some(TrialEvidence::Executed(evidence))) = (trial.purpose, &result.evidence) {
            if evidence.places.is_empty() {
                return Err(HostError::Fatal(
                    "The model did not find the guest's page tables in this QEMU; leave `--model` out".to_owned(),
                ));
            }
            self.folder.keep_evidence(evidence).map_err(|e| HostError::Fatal(e.to_string()))?;
            result.evidence = None;
        }
        Ok(result)
    }
}
