//! Waits by window: by lock and caller, and by program for futexes.
//!
//! The waits of the trial's processes count, and those of the kernel itself: its threads, and interrupts of idle CPUs.
//!
//! Invariant: each window gets the part of a wait that lies in its spans, so windows never hold more waiting than there was.

use std::collections::BTreeMap;

use super::names::{LockSymbols, class, taken};
use super::recorder::{Recording, WaitTarget};
use crate::sampled::programs::Role;
use crate::sampled::spans::Spans;
use crate::symbols::Symbols;
use bigiron_model::waits::{FutexWait, LockWait, Traced, WaitTally, WindowWaits};

/// A lock's class, name and caller; or a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Lock(String, Option<String>, String),
    Futex(String),
}

/// The waits of the windows, in order, without the data that only the workload knows; and how they were traced.
pub fn waited(
    recording: &Recording,
    spans: &Spans,
    symbols: &Symbols,
    places: &LockSymbols,
) -> (Vec<WindowWaits>, Traced) {
    let programs = &recording.programs;
    let key = |what: WaitTarget, image: u32| match what {
        WaitTarget::Lock { flags, variable, stack } => {
            let (class, caller) = (class(flags), places.caller(&recording.stacks[stack as usize], symbols));
            let own = variable.and_then(|lock| places.variable(lock));
            let lock = own.or_else(|| taken(&class, &caller)).map(str::to_owned);
            Key::Lock(class, lock, caller)
        }
        WaitTarget::Futex => Key::Futex(programs.who(image).to_owned()),
    };
    // `None` for origins that do not count.
    let counts = |image: u32| matches!(programs.role(image), Role::Trial | Role::Kernel | Role::Idle);
    let keys: Vec<Option<Key>> =
        recording.origins.iter().map(|o| counts(o.image).then(|| key(o.what, o.image))).collect();
    let mut tallies: Vec<BTreeMap<&Key, WaitTally>> = vec![BTreeMap::new(); spans.windows()];
    let mut traced = recording.traced.clone();
    for wait in &recording.waits {
        let Some(key) = &keys[wait.origin as usize] else {
            let own = programs.role(recording.origins[wait.origin as usize].image) == Role::Sampler;
            traced.others += u64::from(!own);
            continue;
        };
        for (window, ns) in spans.parts(wait.begin, wait.begin + wait.ns.max(1)) {
            let (spun, spun_ns) = if wait.spun { (1, ns) } else { (0, 0) };
            let one = WaitTally { waits: 1, spun, total_ns: ns, spun_ns, max_ns: ns };
            tallies[window].entry(key).or_default().add(&one);
        }
    }
    (tallies.into_iter().map(ranked).collect(), traced)
}

fn ranked(tallies: BTreeMap<&Key, WaitTally>) -> WindowWaits {
    let mut waited = WindowWaits::default();
    for (key, tally) in tallies {
        match key.clone() {
            Key::Lock(class, lock, caller) => waited.locks.push(LockWait { class, lock, caller, tally }),
            Key::Futex(program) => waited.futexes.push(FutexWait { program, tally }),
        }
    }
    rank(&mut waited);
    waited
}

/// Longest first; equal ones by name.
fn rank(waited: &mut WindowWaits) {
    waited.locks.sort_by(|x, y| {
        let names = |w: &LockWait| (w.class.clone(), w.lock.clone(), w.caller.clone());
        y.tally.total_ns.cmp(&x.tally.total_ns).then_with(|| names(x).cmp(&names(y)))
    });
    waited.futexes.sort_by(|x, y| y.tally.total_ns.cmp(&x.tally.total_ns).then_with(|| x.program.cmp(&y.program)));
}

/// Windows added up by the metrics that they explain, with metrics in order of first appearance.
#[derive(Debug, Default)]
pub struct ByMetric(Vec<WindowWaits>);

impl ByMetric {
    /// Adds a window of `workload`: its data, and the waits in it.
    pub fn add(&mut self, workload: &str, window: &bigiron_model::workload::Window, waited: &WindowWaits) {
        for metric in &window.metrics {
            let found = self.0.iter().position(|w| w.workload == workload && w.metric == *metric);
            let at = found.unwrap_or_else(|| {
                let (workload, metric) = (workload.to_owned(), metric.clone());
                self.0.push(WindowWaits { workload, metric, ..WindowWaits::default() });
                self.0.len() - 1
            });
            let sum = &mut self.0[at];
            // A guest may say any number.
            sum.operations = sum.operations.saturating_add(window.operations);
            sum.ns = sum.ns.saturating_add(window.ns);
            for lock in &waited.locks {
                let same =
                    |l: &&mut LockWait| (&l.class, &l.lock, &l.caller) == (&lock.class, &lock.lock, &lock.caller);
                match sum.locks.iter_mut().find(same) {
                    Some(known) => known.tally.add(&lock.tally),
                    None => sum.locks.push(lock.clone()),
                }
            }
            for futex in &waited.futexes {
                match sum.futexes.iter_mut().find(|f| f.program == futex.program) {
                    Some(known) => known.tally.add(&futex.tally),
                    None => sum.futexes.push(futex.clone()),
                }
            }
        }
    }

    pub fn all(mut self) -> Vec<WindowWaits> {
        self.0.iter_mut().for_each(rank);
        self.0
    }
}
