//! A thread of the driver, which serves its share of the connections.
//!
//! Invariant: however a thread ends, the others are told, and no response is outstanding unless the run has failed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddrV4;
use std::num::NonZeroU64;

use anyhow::{Context as _, Result};

use bigiron_sys::cpu_clock::ThreadCpu;
use bigiron_sys::load::now_ns;
use bigiron_sys::load::poisson::Poisson;
use bigiron_sys::load::poll::{Poll, Stop};
use bigiron_sys::load::rng::SplitMix64;
use bigiron_workload::run_control::RunControl;

use super::connection::{Connection, Fault, Request, Wants};
use super::lane::{Lane, Line, Next, Order};
use super::load::{Load, Work};
use super::{Tally, Texts, share};
use crate::call::of_kind;
use crate::document::Documents;
use crate::encryption::Encryptor;
use crate::settings::KeepAlive;
use crate::web99::request;

/// Bytes read at once: more than the kernel usually holds for a connection.
const BUFFER: usize = 256 << 10;

/// A thread's part in the run.
#[derive(Clone, Copy)]
pub(super) struct Share<'a> {
    pub load: &'a Load,
    pub address: SocketAddrV4,
    pub encryptor: Option<&'a dyn Encryptor>,
    pub documents: &'a Documents,
    pub texts: &'a [Texts],
    /// The server's name in requests, and the driver's address as the server sees it.
    pub host: &'a str,
    pub client: &'a str,
    pub work: &'a Work<'a>,
    pub control: &'a RunControl,
    pub stop: &'a Stop,
    pub seed: u64,
    /// Its number, and how many there are.
    pub thread: (u32, u32),
    pub start: u64,
}

/// The result of a thread.
pub(super) struct ThreadResult {
    pub tally: Tally,
    pub cpu: ThreadCpu,
    pub fault: Option<Fault>,
    /// Clients that got enough of their lines.
    pub conforming: usize,
    pub backlog: usize,
    pub longest_queue: usize,
}

/// Requests that wait for a connection.
struct Queue<'a> {
    arrivals: Poisson<SplitMix64>,
    waiting: VecDeque<u64>,
    free: VecDeque<usize>,
    order: Order<'a>,
    longest: usize,
}

pub(super) struct Client<'a> {
    share: Share<'a>,
    poll: Poll,
    lanes: Vec<Lane<'a>>,
    /// `None` in a closed loop.
    queue: Option<Queue<'a>>,
    /// When busy lines are free again.
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    buffer: Box<[u8]>,
    tally: Tally,
    opened: Option<ThreadCpu>,
    closed: Option<ThreadCpu>,
    backlog: usize,
    outstanding: usize,
    fault: Option<Fault>,
}

impl<'a> Client<'a> {
    /// # Errors
    /// No descriptor is free.
    pub(super) fn new(part: Share<'a>) -> Result<Self> {
        let count = share(part.load.driven, part.thread);
        let documents = part.documents.count();
        let (thread, threads) = part.thread;
        // Neighbours are at different documents, unless a connection is for a whole page.
        let whole = part.load.keep_alive == KeepAlive::Page;
        let lane = |number: usize| Lane {
            connection: None,
            wants: Wants::Input,
            order: Order::new(
                part.work,
                part.seed,
                number as u32 * threads + thread,
                (if whole { 0 } else { number }, documents),
            ),
            limit: 0,
            line: Line::default(),
            free_at: 0,
        };
        let queue = part.load.rate.map(|rate| Queue {
            arrivals: Poisson::new(
                SplitMix64::stream(part.seed, &format!("arrivals {thread}")),
                threads,
                rate,
                part.start,
            ),
            waiting: VecDeque::new(),
            free: (0..count).collect(),
            order: Order::new(part.work, part.seed, u32::MAX - thread, (0, documents)),
            longest: 0,
        });
        Ok(Self {
            poll: Poll::new(part.stop).context("Cannot wait for connections")?,
            lanes: (0..count).map(lane).collect(),
            queue,
            timers: BinaryHeap::new(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            tally: Tally::default(),
            opened: None,
            closed: None,
            backlog: 0,
            outstanding: 0,
            fault: None,
            share: part,
        })
    }

    /// Works until the window is over and every request is answered.
    pub(super) fn work(mut self) -> ThreadResult {
        if self.queue.is_some() || self.share.load.line_rate.is_some() {
            // Otherwise a timer of this thread may be 50 µs late.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        }
        if let Err(fault) = self.rounds() {
            self.fault = Some(fault);
            self.share.control.give_up(now_ns());
            self.share.stop.wake();
        }
        let end = self.closed.unwrap_or_else(ThreadCpu::now);
        ThreadResult {
            cpu: self.opened.map_or_else(ThreadCpu::default, |begin| end.since(begin)),
            tally: std::mem::take(&mut self.tally),
            fault: self.fault.take(),
            conforming: self.conforming(),
            backlog: self.backlog,
            longest_queue: self.queue.as_ref().map_or(0, |queue| queue.longest),
        }
    }

    fn rounds(&mut self) -> Result<(), Fault> {
        if self.queue.is_none() {
            (0..self.lanes.len()).try_for_each(|lane| self.fill(lane))?;
        } else if self.share.load.keep_alive == KeepAlive::Yes {
            (0..self.lanes.len()).try_for_each(|lane| self.connect(lane))?;
        }
        let mut ready = Vec::new();
        while self.goes_on(now_ns()) {
            self.dispatch()?;
            let free = self.free_lines()?;
            let timer = self.closed.is_none().then(|| self.share.control.deadline()).flatten();
            let arrival = self.queue.as_ref().filter(|_| self.closed.is_none()).map(|queue| queue.arrivals.next());
            let deadline = [timer, arrival, free].into_iter().flatten().min();
            self.poll
                .wait(deadline, &mut ready)
                .map_err(|e| Fault::Server(format!("Cannot wait for the server: {e}")))?;
            ready.iter().try_for_each(|lane| self.event(*lane))?;
        }
        Ok(())
    }

    /// Processes what is due at `now`; returns whether anything is left to do.
    fn goes_on(&mut self, now: u64) -> bool {
        let control = self.share.control;
        control.tick(now);
        if self.opened.is_none() && control.is_open() {
            self.opened = Some(ThreadCpu::now());
        }
        if self.closed.is_none() && control.is_over() {
            self.closed = Some(ThreadCpu::now());
            self.backlog = self.queue.as_ref().map_or(0, |queue| queue.waiting.len());
            self.share.stop.wake();
        }
        if let Some(queue) = &mut self.queue {
            while queue.arrivals.next() <= now {
                queue.waiting.push_back(queue.arrivals.take());
            }
            queue.longest = queue.longest.max(queue.waiting.len());
        }
        self.closed.is_none() || self.outstanding > 0
    }

    /// Open loop: gives free connections the requests that have waited longest.
    fn dispatch(&mut self) -> Result<(), Fault> {
        while let Some(queue) = &mut self.queue
            && !self.share.control.is_over()
            && !queue.free.is_empty()
            && let Some(intended) = queue.waiting.pop_front()
            && let Some(lane) = queue.free.pop_front()
        {
            let next = queue.order.next();
            self.send(lane, next, intended)?;
        }
        Ok(())
    }

    /// Lets the clients whose lines are free again go on; returns when the next one is.
    fn free_lines(&mut self) -> Result<Option<u64>, Fault> {
        if self.closed.is_some() {
            return Ok(None);
        }
        let now = now_ns();
        while let Some(&Reverse((at, lane))) = self.timers.peek() {
            if at > now {
                return Ok(Some(at));
            }
            self.timers.pop();
            self.fill(lane)?;
        }
        Ok(None)
    }

    fn conforming(&self) -> usize {
        let rate = self.share.load.line_rate;
        rate.map_or(0, |rate| self.lanes.iter().filter(|lane| lane.line.conforms(rate)).count())
    }

    /// Closed loop: sends as many requests on a connection as may be outstanding.
    fn fill(&mut self, lane: usize) -> Result<(), Fault> {
        let Share { load, control, .. } = self.share;
        loop {
            let place = &mut self.lanes[lane];
            let (outstanding, asked) = place.connection.as_ref().map_or((0, 0), |c| (c.outstanding(), c.asked));
            let is_full = place.connection.is_some() && asked >= place.limit;
            if outstanding >= load.pipeline as usize || is_full || control.is_over() {
                return Ok(());
            }
            // With a line, a request is due when the line is free, however late this thread is.
            let intended = if place.free_at > 0 { place.free_at } else { now_ns() };
            let next = place.order.next();
            self.send(lane, next, intended)?;
        }
    }

    fn connect(&mut self, lane: usize) -> Result<(), Fault> {
        let connection = Connection::begin(self.share.address, self.share.encryptor)?;
        if self.share.load.is_distant {
            connection.expect_loss()?;
        }
        let wants = connection.wants();
        let added = self.poll.add(connection.fd(), lane);
        added.map_err(|e| Fault::Server(format!("Cannot wait for a connection: {e}")))?;
        let place = &mut self.lanes[lane];
        (place.connection, place.wants) = (Some(connection), Wants::Input);
        place.limit = place.order.requests(self.share.load.keep_alive);
        self.want(lane, wants)
    }

    fn send(&mut self, lane: usize, next: Next, intended: u64) -> Result<(), Fault> {
        if self.lanes[lane].connection.is_none() {
            self.connect(lane)?;
        }
        let limit = self.lanes[lane].limit;
        let Share { texts, documents, host, client, .. } = self.share;
        let Lane { connection: Some(connection), order, .. } = &mut self.lanes[lane] else { return Ok(()) };
        let is_last = connection.asked + 1 == limit;
        let wants = match (next, order) {
            (Next::Web(ask), _) => {
                let request = Request::new(ask.document, intended);
                match ask.dynamic {
                    None => {
                        let texts = &texts[ask.document];
                        connection.send(request, if is_last { &texts.last } else { &texts.kept })?
                    }
                    Some(dynamic) => {
                        let (text, page) = request::write(ask, dynamic, documents, host, client, is_last);
                        connection.send(request.with(page), &text)?
                    }
                }
            }
            (Next::Call(call), Order::Called(_, calls)) => {
                let request = Request::call(call.kind, calls.name(call.kind), intended);
                connection.send(request, &calls.write(call, host, is_last))?
            }
            // Only calls are in the order of calls.
            (Next::Call(_), _) => return Ok(()),
        };
        self.outstanding += 1;
        self.sent(lane, wants)
    }

    /// After a request was written, wholly or in part.
    fn sent(&mut self, lane: usize, wants: Wants) -> Result<(), Fault> {
        self.want(lane, wants)?;
        let Some(connection) = &mut self.lanes[lane].connection else { return Ok(()) };
        let control = self.share.control;
        if let Some(ns) = connection.established(now_ns())
            && control.is_open()
            && !control.is_over()
        {
            self.tally.connect.record(ns);
        }
        Ok(())
    }

    /// Waits for output as well, or no longer.
    fn want(&mut self, lane: usize, wants: Wants) -> Result<(), Fault> {
        let place = &mut self.lanes[lane];
        if let Some(connection) = place.connection.as_ref().filter(|_| place.wants != wants) {
            let changed = self.poll.output(connection.fd(), lane, wants == Wants::Output);
            changed.map_err(|e| Fault::Server(format!("Cannot wait for a connection: {e}")))?;
            place.wants = wants;
        }
        Ok(())
    }

    /// A connection can be read or written.
    fn event(&mut self, lane: usize) -> Result<(), Fault> {
        if self.lanes[lane].wants == Wants::Output {
            let Some(connection) = &mut self.lanes[lane].connection else { return Ok(()) };
            let wants = connection.send_rest()?;
            self.sent(lane, wants)?;
        }
        let Self { share, lanes, buffer, tally, outstanding, timers, .. } = self;
        let Lane { connection: Some(connection), line, free_at, .. } = &mut lanes[lane] else { return Ok(()) };
        let (before, rate) = (*outstanding, share.load.line_rate);
        connection.receive(buffer, share.documents, &mut |answer| {
            *outstanding -= 1;
            tally.all += 1;
            answer.dynamic.iter().for_each(|dynamic| tally.pages.add(dynamic));
            answer.said.iter().for_each(|said| of_kind(&mut tally.calls, said.kind).see(said));
            let counts = share.control.ended(answer.ended);
            if counts {
                tally.count(&answer);
            }
            if let Some(rate) = rate {
                *free_at = Line::free_at(&answer, rate);
                timers.push(Reverse((*free_at, lane)));
                if counts {
                    line.count(&answer, rate);
                }
            }
        })?;
        let wants = connection.wants();
        if share.encryptor.is_some() {
            // It may have sent a request that waited for the handshake.
            self.sent(lane, wants)?;
        }
        if self.outstanding == before {
            return Ok(());
        }
        let Lane { connection: Some(connection), limit, .. } = &self.lanes[lane] else { return Ok(()) };
        if connection.ends || (connection.outstanding() == 0 && connection.asked == *limit) {
            self.end(lane)?;
        }
        match &mut self.queue {
            Some(queue) => {
                queue.free.push_back(lane);
                self.goes_on(now_ns());
                self.dispatch()
            }
            // The next request waits for the line.
            None if rate.is_some() => Ok(()),
            None => self.fill(lane),
        }
    }

    /// Ends a connection; the next request makes a new one.
    fn end(&mut self, lane: usize) -> Result<(), Fault> {
        match self.lanes[lane].connection.take().map_or(0, |connection| connection.outstanding()) {
            0 => Ok(()),
            // The server may have discarded them, and answers with them.
            n => Err(Fault::Server(format!(
                "The server ended a connection with {n} requests outstanding; set `web.pipeline` to 1 for this server"
            ))),
        }
    }
}

impl Drop for Client<'_> {
    /// A thread that panics must not leave the others waiting for its share.
    fn drop(&mut self) {
        self.share.control.give_up(now_ns());
        self.share.stop.wake();
    }
}
