//! A thread of the driver, which serves its share of the connections.
//!
//! Invariant: however a thread ends, the others are told, and no response is outstanding unless the run has failed.

use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::num::NonZeroU64;

use anyhow::{Context as _, Result};

use bigiron_sys::cpu_clock::ThreadCpu;
use bigiron_sys::load::now_ns;
use bigiron_sys::load::poll::{Poll, Stop};
use bigiron_workload::run_control::RunControl;

use super::arrivals::Arrivals;
use super::connection::{Connection, Fault, Request, Wants};
use super::{Tally, Texts, share};
use crate::document::Documents;
use crate::settings::{KeepAlive, Settings};

/// Bytes read at once: more than the kernel usually holds for a connection.
const BUFFER: usize = 256 << 10;

/// A thread's part in the run.
#[derive(Clone, Copy)]
pub(super) struct Share<'a> {
    pub settings: &'a Settings,
    pub address: SocketAddrV4,
    pub documents: &'a Documents,
    pub texts: &'a [Texts],
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
    pub backlog: usize,
    pub longest_queue: usize,
}

/// A place for a connection. Its number is that of its events.
struct Lane {
    connection: Option<Connection>,
    wants: Wants,
    /// The next document of its page.
    next: usize,
}

/// Requests that wait for a connection.
struct Queue {
    arrivals: Arrivals,
    waiting: VecDeque<u64>,
    free: VecDeque<usize>,
    next: usize,
    longest: usize,
}

pub(super) struct Client<'a> {
    share: Share<'a>,
    poll: Poll,
    lanes: Vec<Lane>,
    /// `None` in a closed loop.
    queue: Option<Queue>,
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
        let count = share(part.settings.connections, part.thread);
        let documents = part.documents.count();
        // Neighbours are at different documents, unless a connection is for a whole page.
        let whole = part.settings.keep_alive == KeepAlive::Page;
        let lane =
            |number| Lane { connection: None, wants: Wants::Input, next: if whole { 0 } else { number % documents } };
        let queue = part.settings.rate.map(|rate| Queue {
            arrivals: Arrivals::new(part.seed, part.thread, rate, part.start),
            waiting: VecDeque::new(),
            free: (0..count).collect(),
            next: 0,
            longest: 0,
        });
        Ok(Self {
            poll: Poll::new(part.stop).context("Cannot wait for connections")?,
            lanes: (0..count).map(lane).collect(),
            queue,
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
        if self.queue.is_some() {
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
            backlog: self.backlog,
            longest_queue: self.queue.as_ref().map_or(0, |queue| queue.longest),
        }
    }

    fn rounds(&mut self) -> Result<(), Fault> {
        if self.queue.is_none() {
            (0..self.lanes.len()).try_for_each(|lane| self.fill(lane))?;
        } else if self.share.settings.keep_alive == KeepAlive::Yes {
            (0..self.lanes.len()).try_for_each(|lane| self.connect(lane))?;
        }
        let mut ready = Vec::new();
        while self.goes_on(now_ns()) {
            self.dispatch()?;
            let timer = self.closed.is_none().then(|| self.share.control.deadline()).flatten();
            let arrival = self.queue.as_ref().filter(|_| self.closed.is_none()).map(|queue| queue.arrivals.next());
            let deadline = [timer, arrival].into_iter().flatten().min();
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
        let documents = self.share.documents.count();
        while let Some(queue) = &mut self.queue
            && !self.share.control.is_over()
            && !queue.free.is_empty()
            && let Some(intended) = queue.waiting.pop_front()
            && let Some(lane) = queue.free.pop_front()
        {
            let request = Request::new(queue.next % documents, intended);
            queue.next += 1;
            self.send(lane, request)?;
        }
        Ok(())
    }

    /// Closed loop: sends as many requests on a connection as may be outstanding.
    fn fill(&mut self, lane: usize) -> Result<(), Fault> {
        let Share { settings, documents, control, .. } = self.share;
        let limit = self.limit();
        loop {
            let place = &mut self.lanes[lane];
            let (outstanding, asked) = place.connection.as_ref().map_or((0, 0), |c| (c.outstanding(), c.asked));
            if outstanding >= settings.pipeline as usize || asked >= limit || control.is_over() {
                return Ok(());
            }
            let request = Request::new(place.next, now_ns());
            place.next = (place.next + 1) % documents.count();
            self.send(lane, request)?;
        }
    }

    /// Most requests of a connection.
    fn limit(&self) -> u32 {
        match self.share.settings.keep_alive {
            KeepAlive::Yes => u32::MAX,
            KeepAlive::Page => self.share.documents.count() as u32,
            KeepAlive::No => 1,
        }
    }

    fn connect(&mut self, lane: usize) -> Result<(), Fault> {
        let connection = Connection::begin(self.share.address)?;
        let added = self.poll.add(connection.fd(), lane);
        added.map_err(|e| Fault::Server(format!("Cannot wait for a connection: {e}")))?;
        let place = &mut self.lanes[lane];
        (place.connection, place.wants) = (Some(connection), Wants::Input);
        Ok(())
    }

    fn send(&mut self, lane: usize, request: Request) -> Result<(), Fault> {
        if self.lanes[lane].connection.is_none() {
            self.connect(lane)?;
        }
        let limit = self.limit();
        let texts = &self.share.texts[request.document];
        let Some(connection) = &mut self.lanes[lane].connection else { return Ok(()) };
        let bytes = if connection.asked + 1 == limit { &texts.last } else { &texts.kept };
        let wants = connection.send(request, bytes)?;
        self.outstanding += 1;
        self.sent(lane, wants)
    }

    /// After a request was written, wholly or in part.
    fn sent(&mut self, lane: usize, wants: Wants) -> Result<(), Fault> {
        let place = &mut self.lanes[lane];
        let Some(connection) = &mut place.connection else { return Ok(()) };
        if place.wants != wants {
            let changed = self.poll.output(connection.fd(), lane, wants == Wants::Output);
            changed.map_err(|e| Fault::Server(format!("Cannot wait for a connection: {e}")))?;
            place.wants = wants;
        }
        let control = self.share.control;
        if let Some(ns) = connection.established(now_ns())
            && control.is_open()
            && !control.is_over()
        {
            self.tally.connect.record(ns);
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
        let limit = self.limit();
        let Self { share, lanes, buffer, tally, outstanding, .. } = self;
        let Some(connection) = &mut lanes[lane].connection else { return Ok(()) };
        let before = *outstanding;
        connection.receive(buffer, share.documents, &mut |answer| {
            *outstanding -= 1;
            if share.control.ended(answer.ended) {
                tally.count(&answer);
            }
        })?;
        if *outstanding == before {
            return Ok(());
        }
        let over = connection.ends || (connection.outstanding() == 0 && connection.asked == limit);
        if over {
            self.end(lane)?;
        }
        match &mut self.queue {
            Some(queue) => {
                queue.free.push_back(lane);
                self.goes_on(now_ns());
                self.dispatch()
            }
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
