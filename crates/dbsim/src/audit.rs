//! A close examination of some transactions: do waits, CPU time and run queue explain their time?
//!
//! Invariant: the parts are measured independently of the whole: waits by their own clock readings, CPU time and run queue from
//! the scheduler's counters.

use std::time::Instant;

use bigiron_sys::cpu_clock::{RunDelay, thread_cpu_time};

use super::waits;

/// Time of the closely examined transactions, in nanoseconds: the identity `time = waits + cpu + run queue`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Number of transactions examined.
    pub count: u64,
    /// From the first to the last instruction.
    pub time: u64,
    /// Inside waits.
    pub waits: u64,
    /// Outside waits: on a CPU.
    pub cpu: u64,
    /// Outside waits: runnable, but without a CPU.
    pub run_queue: u64,
}

impl Audit {
    /// The sum of both.
    pub fn plus(&self, o: &Self) -> Self {
        Self {
            count: self.count + o.count,
            time: self.time + o.time,
            waits: self.waits + o.waits,
            cpu: self.cpu + o.cpu,
            run_queue: self.run_queue + o.run_queue,
        }
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            count: self.count - before.count,
            time: self.time - before.time,
            waits: self.waits - before.waits,
            cpu: self.cpu - before.cpu,
            run_queue: self.run_queue - before.run_queue,
        }
    }

    /// Share of the time that waits, CPU and run queue explain; ideally 1. `None` if nothing was examined.
    pub fn explained(&self) -> Option<f64> {
        (self.time > 0).then(|| (self.waits + self.cpu + self.run_queue) as f64 / self.time as f64)
    }
}

/// The examination of one transaction.
pub struct Auditor {
    run_delay: RunDelay,
    start: Instant,
    /// CPU time and run delay at its start.
    began: (u64, u64),
    /// CPU time, run delay and time inside waits.
    inside: (u64, u64, u64),
}

impl Auditor {
    /// CPU time and run delay of the thread so far.
    pub fn read(&self) -> Option<(u64, u64)> {
        Some((thread_cpu_time().as_nanos() as u64, self.run_delay.read()?))
    }

    /// Records the end of a wait that took `elapsed`; `before` it, [`Auditor::read`] returned that.
    pub fn left(&mut self, before: (u64, u64), elapsed: u64) {
        if let Some((cpu, delay)) = self.read() {
            self.inside.0 += cpu - before.0;
            self.inside.1 += delay - before.1;
            self.inside.2 += elapsed;
        }
    }
}

/// Examines transactions of this thread: besides the time of their waits, it measures the CPU time and the time without a CPU
/// outside them. This costs two system calls at either end of a wait, so only some transactions are examined.
pub struct Audits {
    /// `None` while a transaction is examined, and if the kernel does not report run delays.
    run_delay: Option<RunDelay>,
}

impl Audits {
    /// Must be called by the worker itself: it applies to the calling thread.
    pub fn new() -> Self {
        Self { run_delay: RunDelay::of_this_thread() }
    }

    /// Starts the examination of a transaction.
    pub fn begin(&mut self) {
        let Some(run_delay) = self.run_delay.take() else { return };
        let mut auditor = Auditor { run_delay, start: Instant::now(), began: (0, 0), inside: (0, 0, 0) };
        match auditor.read() {
            Some(began) => {
                auditor.began = began;
                auditor.start = Instant::now();
                waits::tell(Some(auditor));
            }
            None => self.run_delay = Some(auditor.run_delay),
        }
    }

    /// Ends the examination; returns the result, if there was one.
    pub fn end(&mut self) -> Option<Audit> {
        let auditor = waits::tell(None)?;
        let time = auditor.start.elapsed().as_nanos() as u64;
        let read = auditor.read();
        let (began, inside) = (auditor.began, auditor.inside);
        self.run_delay = Some(auditor.run_delay);
        let (cpu, delay) = read?;
        Some(Audit {
            count: 1,
            time,
            waits: inside.2,
            cpu: (cpu - began.0).saturating_sub(inside.0),
            run_queue: (delay - began.1).saturating_sub(inside.1),
        })
    }
}

impl Default for Audits {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::{WaitEvent, WaitTable, during};
    use bigiron_workload::testing::skipped;
    use std::time::Duration;

    #[test]
    fn what_is_looked_at_closely_adds_up() {
        let mut audits = Audits::new();
        if audits.run_delay.is_none() {
            return skipped("audits", "the kernel does not say how long a task is kept off the CPU");
        }
        let burn = |d| {
            let end = thread_cpu_time() + d;
            while thread_cpu_time() < end {}
        };
        // The machine may be busy: then the run queue explains the time. But nothing explains the time for which a hypervisor takes
        // the CPU away, so one of several audits must add up.
        let mut tries: Vec<Audit> = Vec::new();
        while !tries.last().is_some_and(|audit| (0.9..1.1).contains(&audit.explained().unwrap())) {
            assert!(tries.len() < 20, "{tries:?}");
            audits.begin();
            for _ in 0..5 {
                burn(Duration::from_millis(4));
                during(WaitEvent::Think, || std::thread::sleep(Duration::from_millis(2)));
                // CPU time inside a wait belongs to the wait.
                during(WaitEvent::DataFileRead, || burn(Duration::from_millis(3)));
            }
            let audit = audits.end().unwrap();
            let table = WaitTable::new(1).unwrap();
            table.add_audit(0, &audit);
            table.add_audit(0, &audit);
            assert_eq!(table.audit(0), audit.plus(&audit));
            assert!(audit.cpu >= 20_000_000 && audit.waits >= 25_000_000, "{audit:?}");
            tries.push(audit);
        }
        assert!(audits.end().is_none());
    }
}
