//! What every driver thread does, whatever it drives: keeps the window, counts, and ends with the others.
//!
//! Invariant: however a thread ends, the others are told, and no request that was sent is forgotten: it was answered, or it is in doubt.

use crate::input::Request;
use crate::loss::FULL;
use crate::output::{Output, TransactionError};
use bigiron_sys::cpu_clock::ThreadCpu;
use bigiron_sys::load::now_ns;

use super::control::RunControl;
use super::poll::Stop;
use super::scheduler::{ConnectionScheduler, RequestEnd, User};
use super::tally::TransactionTally;

/// Hears of every answer, in the order of the thread's answers: the client's own ledger of what was acknowledged.
pub type LedgerWriter<'a> = Box<dyn FnMut(&Request, &Output) + Send + 'a>;

/// Why a thread ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadError {
    /// A transaction failed, in the engine's words.
    Failed(String),
    /// The server is gone, or as good as gone.
    Lost(String),
}

/// What a thread leaves behind.
pub struct ThreadResult {
    pub tally: TransactionTally,
    /// CPU time of the window.
    pub cpu: ThreadCpu,
    /// Requests without an answer.
    pub in_doubt: Vec<Request>,
    pub trouble: Option<ThreadError>,
    /// Requests that waited for a connection when the window closed, and the most that ever did.
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

    /// Lets happen what has come due at `now`; whether there is anything left to do.
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

    /// Until when there is nothing to do if nothing is answered.
    pub fn deadline(&self) -> Option<u64> {
        let window = self.closed.is_none().then(|| self.control.deadline()).flatten();
        [self.scheduler.next_event(), window].into_iter().flatten().min()
    }

    /// Takes a connection's answer; whether the same is to be sent again.
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
                // At once, and not with the next round: nothing begins behind the window.
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

    /// Ends the run of all threads; the first trouble is what it ended for.
    pub fn fail(&mut self, trouble: ThreadError) {
        self.trouble.get_or_insert(trouble);
        self.scheduler.stop();
        self.control.give_up(now_ns());
        self.stop.wake();
    }

    /// Whether the run has ended for a trouble of this thread.
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
    /// A thread that panics does not leave the others waiting for its share.
    fn drop(&mut self) {
        self.control.give_up(now_ns());
        self.stop.wake();
    }
}
