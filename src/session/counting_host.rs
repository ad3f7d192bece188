//! A simulated host that counts how many trials run at the same time.

use std::fs;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use bigiron_lab::host::sim::{Script, SimHost};
use bigiron_lab::host::{Host, HostError, Phase, Trial, TrialResult};

/// How long the first trials wait for each other: a thread may be delayed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The host.
pub(super) struct CountingHost {
    host: SimHost,
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    /// Number of trials that must run at the same time before any of them goes on.
    expected: usize,
    running: usize,
    most: usize,
}

impl CountingHost {
    /// The first trials go on when `expected` of them have begun. Each takes its time after that, in which one too many would be counted.
    pub(super) fn new(script: Script, expected: usize) -> Self {
        let counts = Mutex::new(Counts { expected, ..Counts::default() });
        Self { host: SimHost::new(script), counts, changed: Condvar::new() }
    }

    /// The most trials that have run at the same time.
    pub(super) fn most(&self) -> usize {
        self.counts.lock().unwrap().most
    }

    fn begin(&self) {
        let mut counts = self.counts.lock().unwrap();
        counts.running += 1;
        counts.most = counts.most.max(counts.running);
        self.changed.notify_all();
        let lack = |counts: &mut Counts| counts.most < counts.expected;
        let (mut counts, waited) = self.changed.wait_timeout_while(counts, PATIENCE, lack).unwrap();
        if waited.timed_out() {
            // They do not come: no other trial waits for them.
            counts.expected = 0;
            self.changed.notify_all();
        }
    }
}

impl Host for CountingHost {
    fn parallel(&self) -> usize {
        self.host.parallel()
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        assert_eq!(fs::read_dir(trial.artifacts).unwrap().count(), 0);
        self.begin();
        let result = self.host.run(trial, phase);
        self.counts.lock().unwrap().running -= 1;
        result
    }
}
