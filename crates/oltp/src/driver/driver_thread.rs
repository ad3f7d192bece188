//! The common work of driver threads for any engine: keeping the window, counting, and ending with the others.
//!
//! Invariant: however a thread ends, the others are told, and no request sent is lost: it was answered, or it is in doubt.

use crate::input::Request;
use crate::loss::FULL;
use crate::output::{Output, TransactionError};
use bigiron_sys::cpu_clock::ThreadCpu;
use bigiron_sys::load::now_ns;

use super::scheduler::{ConnectionScheduler, RequestEnd, User};
use super::tally::TransactionTally;
use bigiron_sys::load::poll::Stop;
use bigiron_workload::run_control::RunControl;

/// Receives every response, in the order of the thread's responses: the client's own ledger of acknowledged work.
pub type LedgerWriter<'a> = Box<dyn FnMut(&Request, &Output) + Send + 'a>;

/// Why a thread ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadError {
    /// A transaction failed; the engine's message.
    Failed(String),
    /// The server is gone, or unusable.
    Lost(String),
}

/// The result of a thread.
pub struct ThreadResult {
    pub tally: TransactionTally,
    /// CPU time in the window.
    pub cpu: ThreadCpu,
    /// Requests without a response.
    pub in_doubt: Vec<Request>,
    pub trouble: Option<ThreadError>,
    /// Number of requests waiting for a connection when the window closed, and the maximum at any time.
    pub backlog: usize,
    pub longest_queue: usize,
}

/// One thread's work.
pub struct DriverThread<'a, U: User> {
    pub scheduler: ConnectionScheduler<U>,
    control: &'a RunControl,
    stop: &'a Stop,
    ledger: Option<LedgerWriter<'a>>,
    tally: TransactionTally,
    opened: Option<ThreadCpu>,
    closed: Option<ThreadCpu>,
    in_doubt: Vec<Request>,
    trouble: Option<ThreadError>,
    backlog: usize,
}

impl<'a, U: User> DriverThread<'a, U> {
    pub fn new(
        scheduler: ConnectionScheduler<U>,
        control: &'a RunControl,
        stop: &'a Stop,
        ledger: Option<LedgerWriter<'a>>,
    ) -> Self {
        Self {
            scheduler,
            control,
            stop,
            ledger,
            tally: TransactionTally::default(),
            opened: None,
            closed: None,
            in_doubt: Vec::new(),
            trouble: None,
            backlog: 0,
        }
    }

    /// Processes everything due at `now`; returns whether there is anything left to do.
    pub fn goes_on(&mut self, now: u64) -> bool {
        self.control.tick(now);
        if self.opened.is_none() && self.control.is_open() {
            self.opened = Some(ThreadCpu::now());
        }
        if self.closed.is_none() && self.control.is_over() {
            self.closed = Some(ThreadCpu::now());
            self.backlog = self.scheduler.waiting();
            self.scheduler.stop();
            self.stop.wake();
        }
        self.scheduler.pass(now);
        self.closed.is_none() || self.scheduler.in_flight() > 0
    }

    /// Until when there is nothing to do unless a response arrives.
    pub fn deadline(&self) -> Option<u64> {
        let window = self.closed.is_none().then(|| self.control.deadline()).flatten();
        [self.scheduler.next_event(), window].into_iter().flatten().min()
    }

    /// Records a connection's response; returns whether the request must be sent again.
    pub fn answer(&mut self, lane: usize, result: Result<Output, TransactionError>) -> bool {
        let now = now_ns();
        match self.scheduler.ended(lane, now, result) {
            RequestEnd::Again => return true,
            RequestEnd::Done(done) => {
                let in_window = self.control.ended(now);
                if let Some(ledger) = &mut self.ledger {
                    ledger(&done.request, &done.output);
                }
                self.tally.count(&done, in_window);
                // At once, not in the next round: nothing may begin after the window.
                if self.control.is_over() {
                    self.scheduler.stop();
                }
            }
            RequestEnd::Failed { kind, why } => self.fail(ThreadError::Failed(format!("{}: {why}", kind.name()))),
            RequestEnd::NoSpace(why) => self.fail(ThreadError::Lost(format!("{FULL}: {why}"))),
            RequestEnd::InDoubt { request, why } => {
                self.in_doubt.push(request);
                self.fail(ThreadError::Lost(why));
            }
        }
        false
    }

    /// Ends the run of all threads; the first cause is recorded.
    pub fn fail(&mut self, trouble: ThreadError) {
        self.trouble.get_or_insert(trouble);
        self.scheduler.stop();
        self.control.give_up(now_ns());
        self.stop.wake();
    }

    /// Whether the run has ended because of this thread.
    pub fn has_failed(&self) -> bool {
        self.trouble.is_some()
    }

    pub fn report(mut self) -> ThreadResult {
        let end = self.closed.unwrap_or_else(ThreadCpu::now);
        ThreadResult {
            cpu: self.opened.map_or_else(ThreadCpu::default, |begin| end.since(begin)),
            tally: std::mem::take(&mut self.tally),
            in_doubt: std::mem::take(&mut self.in_doubt),
            trouble: self.trouble.take(),
            backlog: self.backlog,
            longest_queue: self.scheduler.longest_queue(),
        }
    }
}

impl<U: User> Drop for DriverThread<'_, U> {
    /// A thread that panics must not leave the others waiting for its share.
    fn drop(&mut self) {
        self.control.give_up(now_ns());
        self.stop.wake();
    }
}
