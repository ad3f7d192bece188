//! The idle gap before each boot on the wall clock.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::super::{SessionError, SessionEvent};
use super::{Study, script, starts};
use bigiron_lab::host::sim::SimHost;
use bigiron_lab::host::{Host, HostError, Phase, Trial, TrialResult};
use bigiron_model::clock::Clock;
use bigiron_model::store::testing::plan;

/// Notes when trials begin and end.
struct Timed {
    host: SimHost,
    times: Mutex<Vec<Instant>>,
}

impl Host for Timed {
    fn parallel(&self) -> usize {
        self.host.parallel()
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        let now = || self.times.lock().unwrap().push(Instant::now());
        now();
        let result = self.host.run(trial, phase);
        now();
        result
    }
}

#[test]
fn every_boot_has_its_idle_gap_before_it() {
    let mut plan = plan(2, 2, Clock::Wall, 3);
    plan.design.idle_gap_seconds = 1;
    let study = Study::new(&plan);
    let begun = Instant::now();
    let host = Timed { host: SimHost::new(script(Vec::new())), times: Mutex::new(vec![begun]) };
    let (ended, events) = study.run(&host, 1, &AtomicBool::new(false));
    assert_eq!(ended.unwrap().completed, 4);
    let times = host.times.into_inner().unwrap();
    assert_eq!(times.len(), 9);
    for idle in times.chunks_exact(2) {
        assert!((idle[1] - idle[0]).as_secs_f64() > 0.95, "{:?}", idle[1] - idle[0]);
    }
    let counted = events.iter().filter(|e| matches!(e, SessionEvent::SlotEnd { wall_s, .. } if *wall_s >= 1.0));
    assert_eq!(counted.count(), 4, "the time left counts the gaps");
}

#[test]
fn an_interruption_does_not_wait_for_the_gap() {
    let mut plan = plan(2, 2, Clock::Wall, 3);
    plan.design.idle_gap_seconds = 3600;
    let (ended, events) = Study::new(&plan).run(&SimHost::new(script(Vec::new())), 1, &AtomicBool::new(true));
    assert!(matches!(ended, Err(SessionError::Interrupted { done: 0, total: 4, .. })));
    assert_eq!(starts(&events), []);
}
