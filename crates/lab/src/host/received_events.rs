//! A guest's reports: its events, accumulated.

use std::time::{Duration, Instant};

use crate::host::Phase;
use crate::protocol::GuestEvent;
use bigiron_model::counters::TrialCounters;
use bigiron_model::environment::Environment;
use bigiron_model::file_system;
use bigiron_model::record::FileChange;
use bigiron_model::record::{Complaint, Failure, GuestIdentity};
use bigiron_model::values::Values;
use bigiron_model::waits::{LockStat, Traced, WindowWaits};
use bigiron_model::workload::Program;
use bigiron_model::workload::Window;
use bigiron_probe::sampled::profile::Profiles;

/// The events of a guest so far.
#[derive(Default)]
pub(in crate::host) struct ReceivedEvents {
    pub(in crate::host) guest: Option<GuestIdentity>,
    pub(in crate::host) hello: Option<Instant>,
    pub(in crate::host) ready: Option<Instant>,
    /// Whether the guest has settled: its first workload is next.
    pub(in crate::host) quiet: bool,
    pub(in crate::host) step: Option<(String, String)>,
    pub(in crate::host) results: Vec<(String, Vec<(String, f64)>)>,
    pub(in crate::host) facts: Vec<(String, String)>,
    pub(in crate::host) environment: Environment,
    pub(in crate::host) changes: Vec<FileChange>,
    pub(in crate::host) complaints: Vec<Complaint>,
    pub(in crate::host) failed: Option<(Failure, String)>,
    pub(in crate::host) unfit: Option<String>,
    /// Names and texts.
    pub(in crate::host) artifacts: Vec<(String, String)>,
    /// What was verified of earlier power cycles.
    pub(in crate::host) proved: Option<Vec<(String, String)>>,
    /// The workload and its marked windows, in order.
    pub(in crate::host) windows: Vec<(String, Window)>,
    pub(in crate::host) counters: Option<TrialCounters>,
    /// Marks' numbers and times, in the order in which they were left.
    pub(in crate::host) marks: Vec<(u8, u64)>,
    pub(in crate::host) programs: Vec<Program>,
    /// The waits: number of CPUs, how they were traced, and the waits by window.
    pub(in crate::host) waits: Option<(u32, Traced, Vec<WindowWaits>)>,
    /// The samples, or why there are none.
    pub(in crate::host) samples: Option<Result<Profiles, String>>,
    pub(in crate::host) lock_stat: Vec<LockStat>,
    pub(in crate::host) symbols: String,
    pub(in crate::host) done: bool,
}

impl ReceivedEvents {
    pub(in crate::host) fn take(&mut self, event: GuestEvent, phase: &dyn Fn(Phase)) {
        match event {
            GuestEvent::Hello { guest, .. } => {
                self.guest = Some(guest);
                self.hello = Some(Instant::now());
                phase(Phase::Up);
            }
            GuestEvent::Applied { changes } => self.changes = changes,
            GuestEvent::Ready => self.ready = Some(Instant::now()),
            GuestEvent::Quiet { clocksource } => {
                self.quiet = true;
                if let Some(guest) = &mut self.guest {
                    guest.clocksource = clocksource;
                }
            }
            GuestEvent::Step { workload, step, done, of } => {
                self.step = Some((workload.clone(), step.clone()));
                phase(Phase::Step { workload, step, done, of });
            }
            GuestEvent::Result { workload, values, facts } => {
                self.facts.extend(facts.into_iter().map(|(k, v)| (format!("{workload}.{k}"), v)));
                self.results.push((workload, values));
            }
            GuestEvent::Windows { workload, windows } => {
                self.windows.extend(windows.into_iter().map(|window| (workload.clone(), window)));
            }
            GuestEvent::Counters { counters } => self.counters = Some(counters),
            GuestEvent::Marks { marks } => self.marks.extend(marks),
            GuestEvent::Waits { cpus, traced, windows } => self.waits = Some((cpus, traced, windows)),
            GuestEvent::Samples { taken } => self.samples = Some(taken),
            GuestEvent::LockStat { stat } => self.lock_stat.push(stat),
            GuestEvent::Programs { programs } => self.programs = programs,
            GuestEvent::Symbols { text } => self.symbols += &text,
            GuestEvent::Features { found } => {
                self.facts.extend(found.into_iter().map(|(name, value)| (file_system::fact(&name), value)));
            }
            GuestEvent::Environment { facts } => self.environment = facts,
            GuestEvent::Proved { facts, .. } => self.proved = Some(facts),
            // The first failure is the cause; its consequences come later.
            GuestEvent::Failed { failure, message } => {
                self.failed.get_or_insert((failure, message));
            }
            GuestEvent::Unfit { message } => self.unfit = Some(message),
            GuestEvent::Complaints { lines } => self.complaints = lines,
            GuestEvent::Artifact { name, text } => self.artifacts.push((name, text)),
            GuestEvent::Done => self.done = true,
        }
    }

    pub(in crate::host) fn last_step(&self) -> String {
        match (&self.step, self.ready, self.hello) {
            (Some((workload, step)), ..) => format!("in `{workload}`, step `{step}`"),
            (None, Some(_), _) => "before the first workload".to_owned(),
            (None, None, Some(_)) => "while the agent set the guest up".to_owned(),
            (None, None, None) => "while it booted".to_owned(),
        }
    }

    /// The time of the agent's own work in the guest, by the host's clock.
    pub(in crate::host) fn set_up(&self) -> Duration {
        self.hello.zip(self.ready).map_or(Duration::ZERO, |(hello, ready)| ready - hello)
    }

    /// The measured values.
    pub(in crate::host) fn metrics(&self) -> Values {
        let mut metrics = Values::default();
        for (workload, values) in &self.results {
            values.iter().for_each(|(name, value)| metrics.insert(workload, name, *value));
        }
        metrics
    }
}
