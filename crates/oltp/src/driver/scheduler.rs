//! Chooses the next terminal and its connection: thousands of terminals and a few connections, without a socket or a clock.
//!
//! Invariant: the schedule depends only on the seed, the terminals' numbers and the times passed in: simultaneous events are
//! handled in the order of the terminals, no arrival is lost, and a latency counts from the start intended by the terminal or the
//! schedule.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::arrivals::Arrivals;
use super::dates::Dates;
use crate::input::{Input, Request, TransactionKind};
use crate::output::{Output, TransactionError};
use crate::terminal::Terminal;

/// Maximum number of immediate retries after a deadlock or a serialization failure.
pub const RETRIES: u32 = 10;

/// A user: its requests, and their times.
pub trait User {
    fn next(&mut self) -> Input;
    fn keying(&self, kind: TransactionKind) -> Duration;
    fn think(&mut self, kind: TransactionKind) -> Duration;
}

impl User for Terminal {
    fn next(&mut self) -> Input {
        Terminal::next(self)
    }

    fn keying(&self, kind: TransactionKind) -> Duration {
        Terminal::keying(self, kind)
    }

    fn think(&mut self, kind: TransactionKind) -> Duration {
        Terminal::think(self, kind)
    }
}

/// How requests arrive.
pub enum Demand {
    /// Each user's first at its own time, the next ones after its responses.
    Closed { first: Vec<u64> },
    /// By schedule, assigned to the users in turn.
    Open(Arrivals),
}

/// A user, and in a closed loop its next request.
struct UserState<U> {
    user: U,
    next: Option<Input>,
}

/// A request that waits for a connection.
struct Waiting {
    since: u64,
    user_state: usize,
}

/// A connection's request.
struct Lane {
    user_state: usize,
    intended: u64,
    retries: u32,
    request: Option<Request>,
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// It must be sent again, on the same connection.
    Again,
    Done(AnsweredRequest),
    /// It failed permanently, and the run with it.
    Failed {
        kind: TransactionKind,
        why: String,
    },
    /// There is no disk space for it, and the run is over.
    NoSpace(String),
    /// The connection is lost; whether the request was committed is unknown.
    InDoubt {
        request: Request,
        why: String,
    },
}

/// An answered transaction.
#[derive(Debug, PartialEq, Eq)]
pub struct AnsweredRequest {
    pub request: Request,
    pub output: Output,
    /// Nanoseconds from the intended start.
    pub latency: u64,
    pub retries: u32,
}

/// The terminals and connections of one driver thread.
pub struct ConnectionScheduler<U> {
    user_states: Vec<UserState<U>>,
    lanes: Vec<Lane>,
    free: VecDeque<usize>,
    /// Each user state has the lane of the same number.
    own: bool,
    queue: VecDeque<Waiting>,
    /// When users have finished keying.
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    arrivals: Option<(Arrivals, usize)>,
    dates: Dates,
    in_flight: usize,
    longest_queue: usize,
    stopped: bool,
}

impl<U: User> ConnectionScheduler<U> {
    /// `users` in the order of their numbers.
    pub fn new(users: impl IntoIterator<Item = U>, lanes: usize, demand: Demand, dates: Dates) -> Self {
        let user_states: Vec<_> = users.into_iter().map(|user| UserState { user, next: None }).collect();
        let mut scheduler = Self {
            lanes: (0..lanes).map(|_| Lane { user_state: 0, intended: 0, retries: 0, request: None }).collect(),
            free: (0..lanes).collect(),
            own: false,
            queue: VecDeque::with_capacity(user_states.len()),
            timers: BinaryHeap::with_capacity(user_states.len()),
            arrivals: None,
            dates,
            in_flight: 0,
            longest_queue: 0,
            stopped: false,
            user_states,
        };
        match demand {
            Demand::Closed { first } => {
                scheduler.own = lanes >= scheduler.user_states.len();
                for (user_state, at) in first.into_iter().enumerate() {
                    let UserState { user, next } = &mut scheduler.user_states[user_state];
                    *next = Some(user.next());
                    scheduler.timers.push(Reverse((at, user_state)));
                }
            }
            Demand::Open(arrivals) => scheduler.arrivals = Some((arrivals, 0)),
        }
        scheduler
    }

    /// The time of the next scheduled event.
    pub fn next_event(&self) -> Option<u64> {
        if self.stopped {
            return None;
        }
        match &self.arrivals {
            Some((arrivals, _)) => Some(arrivals.next()),
            None => self.timers.peek().map(|Reverse((at, _))| *at),
        }
    }

    /// Processes all events that are due.
    pub fn pass(&mut self, now: u64) {
        if self.stopped {
            return;
        }
        while let Some(&Reverse((at, user_state))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            self.queue.push_back(Waiting { since: at, user_state });
        }
        if let Some((arrivals, turn)) = &mut self.arrivals {
            while arrivals.next() <= now {
                self.queue.push_back(Waiting { since: arrivals.take(), user_state: *turn });
                *turn = (*turn + 1) % self.user_states.len();
            }
        }
        self.longest_queue = self.longest_queue.max(self.queue.len());
    }

    /// Assigns the request that has waited longest to a free connection, if there is one; returns its number.
    pub fn dispatch(&mut self) -> Option<usize> {
        if self.stopped {
            return None;
        }
        let waiting = self.queue.front()?;
        let lane = if self.own { waiting.user_state } else { self.free.pop_front()? };
        let Waiting { since, user_state } = self.queue.pop_front()?;
        let UserState { user, next } = &mut self.user_states[user_state];
        let input = next.take().unwrap_or_else(|| user.next());
        let request = Request { input, date: self.dates.take() };
        self.lanes[lane] = Lane { user_state, intended: since, retries: 0, request: Some(request) };
        self.in_flight += 1;
        Some(lane)
    }

    /// The request of a busy connection.
    ///
    /// # Panics
    /// If the connection is free.
    pub fn request(&self, lane: usize) -> &Request {
        self.lanes[lane].request.as_ref().expect("the connection is busy")
    }

    /// Records a connection's response; the connection is free then, unless it must retry.
    ///
    /// # Panics
    /// If the connection is free.
    pub fn ended(&mut self, lane: usize, now: u64, result: Result<Output, TransactionError>) -> RequestEnd {
        let Lane { user_state, intended, retries, request } = &mut self.lanes[lane];
        let (user_state, retries_before) = (*user_state, *retries);
        let result = match result {
            Err(TransactionError::Retry(_)) if *retries < RETRIES => {
                *retries += 1;
                return RequestEnd::Again;
            }
            other => other,
        };
        let (request, latency) = (request.take().expect("the connection is busy"), now.saturating_sub(*intended));
        self.in_flight -= 1;
        match result {
            Ok(output) => {
                if !self.own {
                    self.free.push_back(lane);
                }
                if self.arrivals.is_none() {
                    self.sit(user_state, now, request.input.kind());
                }
                RequestEnd::Done(AnsweredRequest { request, output, latency, retries: retries_before })
            }
            Err(TransactionError::Disconnected(why)) => RequestEnd::InDoubt { request, why },
            Err(TransactionError::NoSpace(why)) => RequestEnd::NoSpace(why),
            Err(TransactionError::Failed(why)) => RequestEnd::Failed { kind: request.input.kind(), why },
            Err(TransactionError::Retry(why)) => {
                RequestEnd::Failed { kind: request.input.kind(), why: format!("{why}; tried again {RETRIES} times") }
            }
        }
    }

    /// A user that has its response thinks, and then keys in its next request.
    fn sit(&mut self, user_state: usize, now: u64, kind: TransactionKind) {
        let UserState { user, next } = &mut self.user_states[user_state];
        let input = user.next();
        let at = now + (user.think(kind) + user.keying(input.kind())).as_nanos() as u64;
        *next = Some(input);
        if at > now {
            self.timers.push(Reverse((at, user_state)));
        } else {
            self.queue.push_back(Waiting { since: now, user_state });
        }
    }

    /// From now on nothing begins; outstanding requests complete.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Number of requests sent but not answered.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Number of requests waiting for a connection.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The maximum number that ever waited.
    pub fn longest_queue(&self) -> usize {
        self.longest_queue
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
