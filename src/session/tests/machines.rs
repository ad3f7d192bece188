//! Several machines in one session: each runs its own pairs, and a lost one stops only these.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use super::super::{SessionError, SessionEvent, rerun};
use super::{Study, at, script, starts};
use crate::session::counting_host::CountingHost;
use bigiron_judge::fixture;
use bigiron_lab::host::sim::{Script, SimHost, What};
use bigiron_lab::host::{Host, HostError, Phase, Trial, TrialResult};
use bigiron_model::clock::Clock;
use bigiron_model::plan::Plan;
use bigiron_model::purpose::Purpose;
use bigiron_model::store::testing;

/// Twelve pairs that go round three machines.
fn plan() -> Plan {
    fixture::on_three_machines(testing::plan(12, 2, Clock::Wall, 3))
}

/// Fails if a machine runs two trials at once.
struct OneEach {
    host: CountingHost,
    busy: Mutex<Vec<u32>>,
}

impl Host for OneEach {
    fn parallel(&self) -> usize {
        self.host.parallel()
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        {
            let mut busy = self.busy.lock().unwrap();
            assert!(!busy.contains(&trial.slot.machine), "machine {} is busy", trial.slot.machine);
            busy.push(trial.slot.machine);
        }
        let result = self.host.run(trial, phase);
        self.busy.lock().unwrap().retain(|machine| *machine != trial.slot.machine);
        result
    }
}

#[test]
fn all_machines_work_at_once_and_each_in_the_plans_order() {
    let plan = plan();
    let study = Study::new(&plan);
    let host = CountingHost::new(Script { delay_ms: 40, ..Script::default() }, 3);
    let host = OneEach { host, busy: Mutex::new(Vec::new()) };
    let (ended, events) = study.run(&host, 1, &AtomicBool::new(false));
    assert_eq!(ended.unwrap().completed, 24);
    assert_eq!(host.host.most(), 3);
    assert!(matches!(&events[0], SessionEvent::SessionStart { width: 3, .. }));
    for machine in 0..3 {
        let own = starts(&events).into_iter().map(|(slot, _)| slot);
        let own: Vec<u32> = own.filter(|slot| plan.slots[*slot as usize].machine == machine).collect();
        assert!(own.len() == 8 && own.is_sorted(), "{own:?}");
    }
    for record in study.records() {
        assert_eq!(record.machine.as_deref(), Some(["a", "b", "c"][record.pair as usize % 3]));
    }
    // Reruns for evidence are one at a time.
    let host = CountingHost::new(Script { delay_ms: 20, ..Script::default() }, 1);
    let slots: Vec<_> = (0..6).map(|slot| (slot, Purpose::Locks)).collect();
    rerun(&study.folder, &host, &slots, 8, &AtomicBool::new(false), &|_| {}).unwrap();
    assert_eq!(host.most(), 1);
}

#[test]
fn a_lost_machine_stops_only_its_own_pairs_and_they_can_be_resumed() {
    let study = Study::new(&plan());
    // The third pair of machine b.
    let lost = script(vec![at(What::Fatal, 14, None)]);
    let (ended, events) = study.play(lost, 1);
    let error = ended.unwrap_err();
    assert!(matches!(error, SessionError::Machines { done: 20, total: 24, .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("`b` lacks 4 trials: The script says that the host fails for good"), "{said}");
    let stopped = |e: &SessionEvent| matches!(e, SessionEvent::MachineStopped { machine, .. } if machine == "b");
    assert_eq!(events.iter().filter(|e| stopped(e)).count(), 1);
    let done: Vec<u32> = study.records().iter().map(|r| r.slot).collect();
    assert!(done.iter().all(|slot| ![14, 15, 20, 21].contains(slot)), "{done:?}");
    let (ended, events) = study.run(&SimHost::new(script(Vec::new())), 1, &AtomicBool::new(false));
    assert_eq!((ended.unwrap().ran, starts(&events).len()), (4, 4));
    assert_eq!(study.records().len(), 24);
}
