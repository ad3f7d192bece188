use std::path::Path;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::*;
use crate::options::OPTIONS;
use crate::settings::{Rate, Settings};
use crate::tiers::Tiers;
use crate::trial::Trial;
use bigiron_model::clock::Clock;
use bigiron_workload::run_control::RunLength;
use bigiron_workload::{Running as _, WorkloadResult, WrongData, testing};

const SMALL: [(&str, &str); 5] =
    [("length", "600"), ("warmup", "200"), ("threads", "4"), ("dealers", "50"), ("session", "1K")];

fn settings(more: &[(&str, &str)]) -> Settings {
    let kept = SMALL.into_iter().filter(|(name, _)| more.iter().all(|(other, _)| other != name));
    let options = testing::options(&App, kept.chain(more.iter().copied())).unwrap();
    Settings::parse(&options).unwrap().on(Clock::Exact).clone()
}

fn trial<'a>(settings: &'a Settings, dir: &Path) -> anyhow::Result<Trial<'a>> {
    bigiron_service::java::testing::install();
    let cx = testing::context(dir);
    Ok(Trial { settings, tiers: Tiers::open(&cx, settings)? })
}

fn run(trial: &mut Trial<'_>, dir: &Path) -> anyhow::Result<WorkloadResult> {
    trial.run(&testing::context(dir))
}

fn is_there(pid: u32) -> bool {
    test_kill_process(Pid::from_raw(pid as i32).unwrap()).is_ok()
}

#[test]
fn a_run_delivers_every_metric_and_its_data_are_right() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&[]);
    let mut trial = trial(&settings, dir.path()).unwrap();
    let outcome = run(&mut trial, dir.path()).unwrap();
    let declared = metrics::of();
    for def in &declared {
        assert!(def.kind.takes(outcome.values[&def.name]), "{}: {:?}", def.name, outcome.values);
    }
    assert_eq!(outcome.values.len(), declared.len());
    assert_eq!(outcome.facts["requests-checked"], "600");
    assert_eq!(outcome.facts["conditions-checked"], "19");
    assert!(!outcome.facts["operations-done"].contains(" 0,"), "{:?}", outcome.facts);
    eprintln!("{:?}\n{:?}", outcome.values, outcome.facts);
    let pids = trial.tiers.pids();
    Box::new(trial).verify(&testing::context(dir.path())).unwrap();
    assert!(!pids.into_iter().any(is_there));
}
