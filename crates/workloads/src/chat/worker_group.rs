//! The workers of a run: forked, held until all are ready, released together, and waited for.
//!
//! Invariant: no worker outlives a run, however it ends; the time runs from the release of all until the last has been reaped.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, poll};

use bigiron_probe::counters::span;
use bigiron_sys::family::{Children, ProcessFamily};
use bigiron_sys::latch::EventCount;
use bigiron_sys::launch;
use bigiron_sys::launch::Usage;
use bigiron_sys::load::now_ns;
use bigiron_sys::process::{Exit, exit_now};
use bigiron_sys::segment::{Segment, shared_struct};
use bigiron_workload::WrongData;

/// Maximum bytes of a worker's failure message.
const WORD: usize = 512;
/// Bytes of the segment for a [`RunBoard`], including alignment.
pub const BOARD_BYTES: usize = 4096;
/// Bytes of a thread's stack.
const STACK: usize = 64 << 10;
/// Interval of the check whether a worker ended before all were ready.
const GLANCE: Duration = Duration::from_secs(1);

shared_struct! {
    struct Gate {
        ready: AtomicU32,
        open: AtomicU32,
        /// 1 if a worker could not continue, 2 if it received a wrong message.
        failed: AtomicU32,
        /// Whether the run has completed successfully.
        done: AtomicU32,
        /// Event count for `ready` and `failed`.
        news: EventCount,
        opened: EventCount,
        elapsed_ns: AtomicU64,
        user_ns: AtomicU64,
        system_ns: AtomicU64,
        voluntary_switches: AtomicU64,
        involuntary_switches: AtomicU64,
    }
}

/// The shared state of a run's processes.
pub struct RunBoard<'s> {
    gate: &'s Gate,
    word: &'s [AtomicU8],
}

/// The cost of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunCost {
    pub elapsed_ns: u64,
    pub usage: Usage,
}

/// Why a worker cannot continue.
pub enum WorkerError {
    /// A system call failed; what it was for.
    Io(&'static str, io::Error),
    /// It received a wrong message.
    Wrong(String),
}

impl<'s> RunBoard<'s> {
    pub fn new(segment: &'s Segment) -> Self {
        Self { gate: segment.one(), word: segment.many(WORD) }
    }

    /// A worker's life: it reports ready, waits for the release, runs its body. The first worker that fails reports why.
    pub fn run_worker(&self, body: impl FnOnce() -> Result<(), WorkerError>) -> i32 {
        self.gate.ready.fetch_add(1, SeqCst);
        self.gate.news.signal();
        self.gate.opened.wait_until(|| self.gate.open.load(SeqCst) == 1);
        let Err(trouble) = body() else { return 0 };
        match trouble {
            WorkerError::Io(what, e) => self.fail(1, &format!("{what}: {e}")),
            WorkerError::Wrong(what) => self.fail(2, &what),
        }
        1
    }

    fn fail(&self, kind: u32, word: &str) {
        if self.gate.failed.compare_exchange(0, kind, SeqCst, SeqCst).is_ok() {
            for (to, from) in self.word.iter().zip(word.bytes()) {
                to.store(from, SeqCst);
            }
        }
        self.gate.news.signal();
    }

    /// The message of the first worker that failed.
    fn word(&self) -> Option<anyhow::Error> {
        let kind = self.gate.failed.load(SeqCst);
        let bytes: Vec<u8> = self.word.iter().map(|b| b.load(SeqCst)).take_while(|b| *b != 0).collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match kind {
            0 => None,
            2 => Some(WrongData(text).into()),
            _ => Some(anyhow!(text)),
        }
    }

    /// A process with setup to do before its threads start; a failure of the setup is reported. Returns the process's exit
    /// status.
    pub fn set_up(&self, body: impl FnOnce() -> Result<i32>) -> i32 {
        body().unwrap_or_else(|e| {
            self.fail(1, &format!("{e:#}"));
            1
        })
    }

    /// Runs `workers` as threads of this process; `body` gets each one's number. Returns the process's exit status.
    pub fn together(&self, workers: usize, body: impl Fn(usize) -> Result<(), WorkerError> + Sync) -> i32 {
        let body = &body;
        std::thread::scope(|scope| {
            for worker in 0..workers {
                let life = move || {
                    // After a panic the others must not wait for this worker.
                    let status = catch_unwind(AssertUnwindSafe(|| self.run_worker(|| body(worker)))).unwrap_or(101);
                    if status != 0 {
                        exit_now(status);
                    }
                };
                if let Err(e) = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, life) {
                    self.fail(1, &format!("No thread for worker {worker} of {workers}: {e}"));
                    exit_now(1);
                }
            }
        });
        0
    }

    /// One run: `raise` forks processes whose `workers` all call [`RunBoard::run_worker`].
    ///
    /// # Errors
    /// If a worker failed or ended early; a [`WrongData`] if one received a wrong message.
    pub fn run(&self, workers: usize, raise: impl FnOnce(&mut Children) -> Result<()>) -> Result<RunCost> {
        let family = ProcessFamily::fork_head(|children| match self.head(workers, children, raise) {
            Ok(()) => 0,
            Err(e) => {
                self.fail(1, &format!("{e:#}"));
                1
            }
        });
        let family = family.context("No process for the workers")?;
        let mut end = [PollFd::new(&family, PollFlags::IN)];
        while let Err(e) = poll(&mut end, None) {
            if e != rustix::io::Errno::INTR {
                return Err(e).context("Cannot wait for the workers");
            }
        }
        if self.gate.done.load(SeqCst) == 0 {
            // Workers that wait for the failed one are killed.
            drop(family);
            return Err(self.word().unwrap_or_else(|| anyhow!("The parent of the workers was killed")));
        }
        family.wait()?.success("The parent of the workers")?;
        let get = |word: &AtomicU64| word.load(SeqCst);
        let usage = Usage {
            user_ns: get(&self.gate.user_ns),
            system_ns: get(&self.gate.system_ns),
            voluntary_switches: get(&self.gate.voluntary_switches),
            involuntary_switches: get(&self.gate.involuntary_switches),
            ..Usage::default()
        };
        Ok(RunCost { elapsed_ns: get(&self.gate.elapsed_ns), usage })
    }

    fn head(
        &self,
        workers: usize,
        children: &mut Children,
        raise: impl FnOnce(&mut Children) -> Result<()>,
    ) -> Result<()> {
        let gate = self.gate;
        raise(children)?;
        loop {
            let ticket = gate.news.ticket();
            if gate.failed.load(SeqCst) != 0 {
                bail!("A worker failed before all were ready");
            }
            if gate.ready.load(SeqCst) as usize == workers {
                break;
            }
            if let Some((key, exit)) = children.try_next_end()? {
                return Err(untimely(key, exit));
            }
            gate.news.wait_timeout(ticket, GLANCE);
        }
        let start = span::open(now_ns);
        gate.open.store(1, SeqCst);
        gate.opened.signal();
        while let Some((key, exit)) = children.next_end()? {
            if exit != Exit::Status(0) {
                return Err(untimely(key, exit));
            }
        }
        gate.elapsed_ns.store(span::close(now_ns) - start, SeqCst);
        span::cut();
        let usage = launch::children_usage();
        gate.user_ns.store(usage.user_ns, SeqCst);
        gate.system_ns.store(usage.system_ns, SeqCst);
        gate.voluntary_switches.store(usage.voluntary_switches, SeqCst);
        gate.involuntary_switches.store(usage.involuntary_switches, SeqCst);
        gate.done.store(1, SeqCst);
        Ok(())
    }
}

fn untimely(key: usize, exit: Exit) -> anyhow::Error {
    match exit {
        Exit::Status(n) => anyhow!("Process {key} of the workers ended early with status {n}"),
        Exit::Signal(n) => anyhow!("Process {key} of the workers was ended by signal {n}"),
    }
}
