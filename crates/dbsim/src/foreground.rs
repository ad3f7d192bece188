//! A foreground: transactions, one after the other, at the class's pace.
//!
//! Invariant: the number of transactions before and in the window, or the time, is fixed beforehand; which transactions, always.

use anyhow::Result;

use bigiron_sys::load::{LotRecorder, Recorder};

use super::audit::Audits;
use super::executor::Executor;
use super::instance::{Instance, Milestone, Phase, ProcessCounters};
use super::pace::{self, Starts};
use super::plan::Span;
use super::transaction::{Stream, Transaction, share};
use super::waits::{self, WaitEvent};
use bigiron_workload::units::Pace;

/// One of this many transactions is closely examined, in turn by worker, so that the cost does not show.
const AUDITED: u64 = 64;

/// Draws and executes transactions: a foreground, or the server of a client.
pub struct Transactor<'a> {
    instance: &'a Instance<'a>,
    worker: usize,
    executor: Executor<'a>,
    stream: Stream<'a>,
    transaction: Transaction,
    audits: Audits,
    kinds: Vec<LotRecorder<'a>>,
    stretches: Vec<Recorder<'a>>,
    /// Number of transactions so far.
    number: u64,
}

impl<'a> Transactor<'a> {
    /// Must be called in the process that executes the transactions, as number `worker` of these processes (not of all workers).
    pub fn new(instance: &'a Instance<'a>, worker: usize) -> Result<Self> {
        // Before this worker reports that it is ready: not part of any transaction.
        if instance.job.cache.prefault {
            instance.cache_memory.touch();
        }
        Ok(Self {
            instance,
            worker,
            executor: Executor::new(instance, worker)?,
            stream: Stream::new(instance.job, &instance.choosers, instance.seed, worker as u64),
            transaction: Transaction::default(),
            audits: Audits::new(),
            kinds: instance.kind_latency.iter().map(|h| h.lot_recorder(worker)).collect(),
            stretches: instance.stretch_latency.iter().map(|h| h.recorder(worker)).collect(),
            number: 0,
        })
    }

    /// Draws, executes and counts the next transaction. Its latency is measured from `intended`, its intended start if it has
    /// one, in nanoseconds of the monotonic clock.
    pub fn transaction(&mut self, intended: Option<u64>) -> Result<()> {
        let instance = self.instance;
        self.number += 1;
        self.stream.draw(&mut self.transaction);
        let (start, waited) = (pace::now(), waits::waited());
        let audited = self.number % AUDITED == self.worker as u64 % AUDITED;
        if audited {
            self.audits.begin();
        }
        self.executor.execute(&self.transaction)?;
        let audit = self.audits.end();
        let (end, waited) = (pace::now(), waits::waited() - waited);
        if instance.phase() == Phase::Measure as u32 {
            let latency = end.saturating_sub(intended.unwrap_or(start));
            self.kinds[self.transaction.kind].record(latency);
            if let Some(stretch) = self.stretches.get(instance.stretch()) {
                stretch.record(latency);
            }
            ProcessCounters::grow(&instance.counters[self.worker].outside_ns, (end - start).saturating_sub(waited));
            if let Some(audit) = audit {
                instance.waits.add_audit(self.worker, &audit);
            }
        }
        instance.transaction_ended();
        Ok(())
    }
}

/// Runs foreground `worker`.
pub fn run(instance: &Instance<'_>, worker: usize) -> Result<()> {
    let mut transactor = Transactor::new(instance, worker)?;
    drive(instance, worker, |intended| transactor.transaction(intended))
}

/// Directs `worker`, one of those that cause transactions, through the run: calls `work` for each transaction, with its intended
/// start if the pace is open.
pub fn drive(instance: &Instance<'_>, worker: usize, work: impl FnMut(Option<u64>) -> Result<()>) -> Result<()> {
    let mut driver = Driver { instance, worker, work };
    let plan = &instance.plan;
    match plan.ramp {
        Span::Transactions(n) => {
            driver.transactions(0, None, n)?;
            instance.arrive(Milestone::Ready)?;
        }
        Span::Time(_) => {
            instance.arrive(Milestone::Ready)?;
            driver.while_true(0, None, || !instance.reached(Phase::Measure))?;
        }
    }
    instance.wait_for(Phase::Measure);
    for (i, stretch) in plan.stretches.iter().enumerate() {
        instance.wait_stretch(i);
        match stretch.span {
            Span::Transactions(n) => {
                driver.transactions(i as u64 + 1, stretch.pace, n)?;
                // The last stretch ends when all workers with a fixed share are done, unless a time decides.
                if i + 1 < plan.stretches.len() || instance.by_time() {
                    instance.arrive(Milestone::Stretch)?;
                }
            }
            Span::Time(_) => {
                let on = || instance.stretch() == i && !instance.reached(Phase::Close);
                driver.while_true(i as u64 + 1, stretch.pace, on)?;
            }
        }
    }
    if instance.by_time() {
        instance.wait_for(Phase::Close);
    }
    instance.arrive(Milestone::Done)?;
    instance.wait_for(Phase::Leave);
    Ok(())
}

struct Driver<'a, F> {
    instance: &'a Instance<'a>,
    worker: usize,
    work: F,
}

impl<F: FnMut(Option<u64>) -> Result<()>> Driver<'_, F> {
    fn starts(&self, part: u64, pace: Option<Pace>) -> Starts {
        let (instance, class) = (self.instance, self.instance.class(self.worker));
        let of = (instance.roles[self.worker].number, class.count);
        Starts::new(pace.unwrap_or(class.pace), instance.seed, self.worker as u64, of, part, pace::now())
    }

    /// The worker's share of `total` transactions.
    fn transactions(&mut self, part: u64, pace: Option<Pace>, total: u64) -> Result<()> {
        let mut starts = self.starts(part, pace);
        let (of, transactors) = (self.instance.transactor(self.worker), self.instance.job.transactors());
        for _ in 0..share(total, of, transactors) {
            // A fixed share is always completed, whatever ends the sleep.
            let intended = self.wait(&mut starts).unwrap_or_else(|interrupted| interrupted);
            (self.work)(intended)?;
        }
        Ok(())
    }

    /// Transactions as long as `on` returns true.
    fn while_true(&mut self, part: u64, pace: Option<Pace>, on: impl Fn() -> bool) -> Result<()> {
        let mut starts = self.starts(part, pace);
        while on() {
            match self.wait(&mut starts) {
                Ok(intended) => (self.work)(intended)?,
                // The run advanced during the sleep: `on` decides.
                Err(_) => continue,
            }
        }
        Ok(())
    }

    /// Sleeps until the next transaction must begin; returns its intended start, if it has one. An error if the run advanced
    /// before that.
    fn wait(&self, starts: &mut Starts) -> Result<Option<u64>, Option<u64>> {
        let slept_until = |deadline| {
            let _waiting = waits::enter(WaitEvent::Pace);
            self.instance.sleep_until(deadline)
        };
        match starts {
            Starts::Closed { think } if think.is_zero() => Ok(None),
            Starts::Closed { think } => {
                let slept = slept_until(pace::now() + think.as_nanos() as u64);
                if slept { Ok(None) } else { Err(None) }
            }
            Starts::Open(arrivals) => {
                let intended = arrivals.take();
                if pace::now() > intended {
                    ProcessCounters::bump(&self.instance.counters[self.worker].late);
                } else if !slept_until(intended) {
                    return Err(Some(intended));
                }
                Ok(Some(intended))
            }
        }
    }
}
