//! Clients that replay a loadfile, each in its own process, with any kind of server.
//!
//! Invariant: the requests of a client and their order depend only on the loadfile and the length; only requests answered as the
//! loadfile expects are counted.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context as _, Result, ensure};

use super::{KINDS, Request, RequestKind, Settings};
use bigiron_probe::counters::span;
use bigiron_sys::load::burn::Piece;
use bigiron_sys::load::worker_group::{GroupBoard, GroupWork, Member, MemberKind, StageCost, WorkerGroup};
use bigiron_sys::load::{Histogram, Recorder, ShardedHistogram, now_ns};
use bigiron_sys::segment::{Segment, shared_struct};
use bigiron_workload::length::Length;
use bigiron_workload::limits;

/// The server of one client.
pub trait Server {
    /// The client begins a pass.
    fn begin(&mut self, pass: u32) -> Result<()>;

    /// The measured time begins, perhaps in the middle of the first pass: nothing may be done any more beyond serving.
    fn measured(&mut self) {}

    /// Serves a request; a reply that differs from the loadfile is an error.
    ///
    /// # Errors
    /// The reply, if the loadfile expects another.
    fn serve(&mut self, request: &Request) -> Result<()>;

    /// The client aborts its pass and will begin another: undoes its effects.
    fn reset(&mut self) -> Result<()>;
}

/// Creates servers.
pub trait Service: Sync {
    type Server: Server;

    /// Setup that all clients inherit, see [`GroupWork::prepare_head`].
    fn prepare_head(&self) -> Result<()> {
        Ok(())
    }

    /// The server of a client, in that client's process.
    fn open(&self, client: usize) -> Result<Self::Server>;

    /// The measured part is about to begin, or has just ended: reads what the whole machine has used.
    fn at_window(&self, _end: WindowEnd) {}
}

/// An end of the measured part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEnd {
    Open,
    Close,
}

shared_struct! {
    struct Counter {
        bytes: AtomicU64,
        requests: AtomicU64,
        /// The first pass whose files the last one finds, the last pass, and the number of its requests that were answered.
        first: AtomicU64,
        pass: AtomicU64,
        answered: AtomicU64,
    }
}

/// The progress of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub first: u32,
    pub pass: u32,
    pub answered: usize,
}

/// The measurements of a replay.
pub struct Replayed {
    pub stage: StageCost,
    pub bytes: u64,
    pub requests: u64,
    /// By [`RequestKind`]; empty for kinds that the loadfile lacks.
    pub latencies: Vec<Histogram>,
    /// By client.
    pub progress: Vec<Progress>,
}

struct Replay<'a, S> {
    settings: &'a Settings,
    service: &'a S,
    latencies: &'a [Option<ShardedHistogram<'a>>],
    counters: &'a [Counter],
}

/// Replays the loadfile: the warm-up, then the measured part. `between` is called between the two.
///
/// # Errors
/// If a client cannot continue, or gets an unexpected reply.
pub fn replay<S: Service>(settings: &Settings, service: &S, between: impl FnOnce()) -> Result<Replayed> {
    let clients = settings.clients;
    limits::check(clients)?;
    let present: Vec<bool> = RequestKind::ALL.iter().map(|(kind, ..)| settings.file.count(*kind) > 0).collect();
    let bytes = GroupBoard::bytes(clients)
        + KINDS * ShardedHistogram::bytes(clients)
        + clients * size_of::<Counter>()
        + 4 * bigiron_sys::segment::PAGE;
    let segment = Segment::new(bytes).context("Cannot map the shared segment")?;
    let board = GroupBoard::new(&segment, clients)?;
    let latencies: Vec<_> = present.iter().map(|p| p.then(|| ShardedHistogram::new(&segment, clients))).collect();
    let counters = segment.many::<Counter>(clients);
    let replay = Replay { settings, service, latencies: &latencies, counters };
    let mut worker_group = WorkerGroup::start(&board, MemberKind::Processes, &replay)?;
    match settings.warm_up {
        Length::Passes(_) => drop(worker_group.stage()?),
        Length::Time(time) => drop(worker_group.stage_for(time, || ())?),
    }
    between();
    let counted = || {
        counters
            .iter()
            .fold((0, 0), |(bytes, requests), c| (bytes + c.bytes.load(Relaxed), requests + c.requests.load(Relaxed)))
    };
    service.at_window(WindowEnd::Open);
    span::open(|| ());
    let (stage, (bytes, requests)) = match settings.length {
        Length::Passes(_) => (worker_group.stage()?, counted()),
        Length::Time(time) => worker_group.stage_for(time, counted)?,
    };
    span::close(|| ());
    service.at_window(WindowEnd::Close);
    span::cut();
    worker_group.leave()?;
    ensure!(bytes > 0 && stage.ns > 0, "Nothing was read or written in the measured time; increase the length");
    let read = |h: &Option<ShardedHistogram<'_>>| h.as_ref().map_or_else(Histogram::new, ShardedHistogram::read);
    let progress = |c: &Counter| Progress {
        first: c.first.load(Relaxed) as u32,
        pass: c.pass.load(Relaxed) as u32,
        answered: c.answered.load(Relaxed) as usize,
    };
    Ok(Replayed {
        stage,
        bytes,
        requests,
        latencies: latencies.iter().map(read).collect(),
        progress: counters.iter().map(progress).collect(),
    })
}

impl<S: Service> GroupWork for Replay<'_, S> {
    fn prepare_head(&self) -> Result<()> {
        self.service.prepare_head()
    }

    fn run_member(&self, member: &mut Member<'_>) -> Result<()> {
        let number = member.number;
        let recorders = self.latencies.iter().map(|h| h.as_ref().map(|h| h.recorder(number))).collect();
        let mut client = Client {
            settings: self.settings,
            server: self.service.open(number)?,
            counter: &self.counters[number],
            recorders,
            work: Piece::lasting(self.settings.work),
            measured: false,
            next: 0,
            passes: 0,
        };
        while let Some(stage) = member.next_stage()? {
            client.measured = stage > 0;
            let length = if client.measured { self.settings.length } else { self.settings.warm_up };
            match length {
                Length::Passes(passes) => client.passes(passes)?,
                Length::Time(_) => client.until_over(member)?,
            }
            if !client.measured && matches!(self.settings.length, Length::Passes(_)) && client.next > 0 {
                client.server.reset()?;
                client.next = 0;
                client.counter.first.store(client.passes.into(), Relaxed);
            }
            if !client.measured && matches!(self.settings.warm_up, Length::Time(_)) {
                client.server.measured();
            }
        }
        Ok(())
    }
}

struct Client<'a, S> {
    settings: &'a Settings,
    server: S,
    counter: &'a Counter,
    recorders: Vec<Option<Recorder<'a>>>,
    /// Before each request.
    work: Piece,
    measured: bool,
    /// Of the pass.
    next: usize,
    /// Number of passes begun.
    passes: u32,
}

impl<S: Server> Client<'_, S> {
    /// Whole passes. The last one keeps its files, to be checked, or to be removed by the next.
    fn passes(&mut self, passes: u32) -> Result<()> {
        let file = &self.settings.file;
        for left in (0..passes).rev() {
            let leave = left == 0 && (self.measured || file.starts_afresh());
            let end = if leave { file.without_farewell() } else { file.requests.len() };
            self.begin()?;
            let mut at = now_ns();
            while self.next < end {
                at = self.request(at)?;
            }
            self.next = 0;
        }
        Ok(())
    }

    /// Continues from the client's present position until the stage is over.
    fn until_over(&mut self, member: &Member<'_>) -> Result<()> {
        let mut at = now_ns();
        while !member.is_over() {
            if self.next == self.settings.file.requests.len() {
                self.next = 0;
            }
            if self.next == 0 {
                self.begin()?;
            }
            at = self.request(at)?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        self.passes += 1;
        if self.settings.file.starts_afresh() {
            self.counter.first.store(self.passes.into(), Relaxed);
        }
        self.counter.pass.store(self.passes.into(), Relaxed);
        self.counter.answered.store(0, Relaxed);
        self.server.begin(self.passes)
    }

    /// Sends the next request, begun at `at` unless the client has its own work to do first; returns when it was answered.
    fn request(&mut self, mut at: u64) -> Result<u64> {
        if !self.settings.work.is_zero() {
            self.work.run();
            at = now_ns();
        }
        let request = &self.settings.file.requests[self.next];
        self.server.serve(request).with_context(|| {
            format!("Line {} ({}) of loadfile `{}`", request.line, request.action.kind().word(), self.settings.name)
        })?;
        let end = now_ns();
        self.next += 1;
        self.counter.answered.store(self.next as u64, Relaxed);
        if self.measured {
            let count = |to: &AtomicU64, n| to.store(to.load(Relaxed) + n, Relaxed);
            count(&self.counter.bytes, request.bytes());
            count(&self.counter.requests, 1);
            if let Some(recorder) = &self.recorders[request.action.kind() as usize] {
                recorder.record(end - at);
            }
        }
        Ok(end)
    }
}
