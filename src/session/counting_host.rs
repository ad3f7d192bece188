//! A simulated host that counts how many trials run at the same time.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use bigiron_lab::host::sim::{Script, SimHost};
use bigiron_lab::host::{Host, HostError, Phase, Trial, TrialResult};

/// The host.
pub(super) struct CountingHost {
    host: SimHost,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl CountingHost {
    pub(super) fn new(script: Script) -> Self {
        Self { host: SimHost::new(script), running: AtomicUsize::new(0), most: AtomicUsize::new(0) }
    }

    /// The most trials that have run at the same time.
    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

impl Host for CountingHost {
    fn parallel(&self) -> usize {
        self.host.parallel()
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        assert_eq!(fs::read_dir(trial.artifacts).unwrap().count(), 0);
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let result = self.host.run(trial, phase);
        self.running.fetch_sub(1, Ordering::SeqCst);
        result
    }
}
