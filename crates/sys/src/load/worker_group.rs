//! A worker group: processes (or threads of one) that do a trial's stages side by side. The parent begins each stage, and all members end it.
//!
//! Invariant: no member outlives the worker group, and a member's failure is an error with the member's own message. A stage's figures come from the
//! members: the parent's wake-up delay affects none of them.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::now_ns;
use crate::cpu_clock::thread_cpu_time;
use crate::family::{Children, ProcessFamily};
use crate::latch::EventCount;
use crate::process::{Exit, exit_now};
use crate::segment::{LatchedBytes, PAGE, Segment, shared_struct};

/// Most processes that one head forks: heads fork side by side, each from a small address space.
const PROCESSES: usize = 256;
/// Bytes of a thread's stack.
const STACK: usize = 256 << 10;
/// Most bytes kept of a member's error message.
const WORD: usize = 1024;
/// The stage in which all members end.
const LEAVE: u32 = u32::MAX;

/// Whether the members are processes or threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberKind {
    Processes,
    /// Threads of one process.
    Threads,
}

/// The work of a worker group.
pub trait GroupWork: Sync {
    /// Prepares what all members inherit; run in each process that forks members.
    ///
    /// # Errors
    /// Ends the worker group.
    fn prepare_head(&self) -> Result<()> {
        Ok(())
    }

    /// The life of a member: it prepares, then does each stage that [`Member::next_stage`] returns, until there is none.
    ///
    /// # Errors
    /// Ends the worker group.
    fn run_member(&self, member: &mut Member<'_>) -> Result<()>;
}

shared_struct! {
    struct WorkerTimes {
        ended: AtomicU64,
        cpu: AtomicU64,
    }
}

shared_struct! {
    struct StageGate {
        stage: AtomicU32,
        over: AtomicU32,
        arrived: AtomicU32,
        /// The number of a member that ended early, from 1; 0 if none did.
        lost: AtomicU32,
        opened: EventCount,
    }
}

/// The memory that members and parent share.
pub struct GroupBoard<'s> {
    gate: &'s StageGate,
    worker_times: &'s [WorkerTimes],
    words: Vec<LatchedBytes<'s>>,
    hear: PipeReader,
    tell: PipeWriter,
}

impl<'s> GroupBoard<'s> {
    /// Bytes of segment for this many members.
    pub const fn bytes(members: usize) -> usize {
        members * (2 * PAGE + size_of::<WorkerTimes>()) + 2 * PAGE
    }

    /// A board for this many members, in a new part of `segment`.
    ///
    /// # Errors
    /// The system has no pipe left.
    pub fn new(segment: &'s Segment, members: usize) -> Result<Self> {
        let (hear, tell) = std::io::pipe().context("Cannot make a pipe")?;
        let words = (0..members).map(|_| segment.latched(WORD)).collect();
        Ok(Self { gate: segment.one(), worker_times: segment.many(members), words, hear, tell })
    }

    fn leave_word(&self, number: usize, text: &str) {
        let text = &text.as_bytes()[..text.len().min(WORD - 2)];
        let mut word = self.words[number].lock();
        word[..2].copy_from_slice(&(text.len() as u16).to_le_bytes());
        word[2..2 + text.len()].copy_from_slice(text);
    }

    fn word(&self, number: usize) -> Option<String> {
        let word = self.words[number].lock();
        let length = usize::from(u16::from_le_bytes([word[0], word[1]]));
        (length > 0).then(|| String::from_utf8_lossy(&word[2..2 + length]).into_owned())
    }

    /// Counts a member as ready for the next stage; the last one notifies the parent.
    fn arrive(&self) -> Result<()> {
        if self.gate.arrived.fetch_add(1, SeqCst) + 1 == self.worker_times.len() as u32 {
            (&self.tell).write_all(&[1]).context("The parent of the workers is gone")?;
        }
        Ok(())
    }
}

/// A member of a worker group, as it sees itself.
pub struct Member<'a> {
    /// `0..members`.
    pub number: usize,
    board: &'a GroupBoard<'a>,
    stage: u32,
    cpu: Duration,
}

impl Member<'_> {
    /// Ends the current stage and waits for the next one; returns its number, from 0, or `None` if the member must end.
    ///
    /// # Errors
    /// The parent has gone.
    pub fn next_stage(&mut self) -> Result<Option<u32>> {
        let worker_times = &self.board.worker_times[self.number];
        worker_times.ended.store(now_ns(), SeqCst);
        worker_times.cpu.store((thread_cpu_time() - self.cpu).as_nanos() as u64, SeqCst);
        self.board.arrive()?;
        let gate = self.board.gate;
        gate.opened.wait_until(|| gate.stage.load(SeqCst) != self.stage);
        self.stage = gate.stage.load(SeqCst);
        self.cpu = thread_cpu_time();
        Ok((self.stage != LEAVE).then(|| self.stage - 1))
    }

    /// Whether a timed stage is over; to be checked between two pieces of work.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.board.gate.over.load(SeqCst) != 0
    }
}

/// The cost of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCost {
    /// From its beginning until the last member was done; for a timed stage, until its time was over.
    pub ns: u64,
    /// CPU time of all members until they were done.
    pub cpu_ns: u64,
}

/// The members, as their parent sees them. Dropping it kills and reaps the remaining members.
pub struct WorkerGroup<'a> {
    board: &'a GroupBoard<'a>,
    families: Vec<ProcessFamily>,
}

impl<'a> WorkerGroup<'a> {
    /// Starts the members and waits until all are ready for the first stage.
    ///
    /// # Errors
    /// They cannot be started, or one fails.
    pub fn start(board: &'a GroupBoard<'a>, shape: MemberKind, work: &dyn GroupWork) -> Result<Self> {
        let members = board.worker_times.len();
        ensure!(members > 0, "A worker group needs at least one member");
        let mut worker_group = Self { board, families: Vec::new() };
        let heads = match shape {
            MemberKind::Processes => members.div_ceil(PROCESSES),
            MemberKind::Threads => 1,
        };
        let each = members.div_ceil(heads);
        for first in (0..members).step_by(each) {
            let numbers = first..members.min(first + each);
            let family =
                ProcessFamily::fork_head(|children| match head(board, shape, work, numbers.clone(), children) {
                    Ok(()) => 0,
                    Err((number, word)) => {
                        board.leave_word(number, &word);
                        board.gate.lost.store(number as u32 + 1, SeqCst);
                        1
                    }
                });
            worker_group.families.push(family.context("Cannot start the processes")?);
        }
        worker_group.wait(None)?;
        Ok(worker_group)
    }

    /// A stage that ends when all members have done their work.
    ///
    /// # Errors
    /// A member fails.
    pub fn stage(&mut self) -> Result<StageCost> {
        let began = self.open();
        self.wait(None)?;
        Ok(self.took(began, None))
    }

    /// A stage that ends after `time`, when [`Member::is_over`] becomes true; `read` is called at that moment to read the counts.
    ///
    /// # Errors
    /// A member fails.
    pub fn stage_for<T>(&mut self, time: Duration, read: impl FnOnce() -> T) -> Result<(StageCost, T)> {
        let began = self.open();
        let done = self.wait(Some(began + time.as_nanos() as u64))?;
        let (counted, at) = (read(), now_ns());
        self.board.gate.over.store(1, SeqCst);
        if !done {
            self.wait(None)?;
        }
        Ok((self.took(began, Some(at)), counted))
    }

    /// Ends all members.
    ///
    /// # Errors
    /// A member fails while ending.
    pub fn leave(mut self) -> Result<()> {
        self.board.gate.stage.store(LEAVE, SeqCst);
        self.board.gate.opened.signal();
        while let Some(family) = self.families.pop() {
            let exit = family.wait().context("Cannot wait for the processes")?;
            if exit != Exit::Status(0) {
                return Err(self.obituary());
            }
        }
        Ok(())
    }

    /// Begins the next stage and returns its time.
    fn open(&self) -> u64 {
        let gate = self.board.gate;
        gate.arrived.store(0, SeqCst);
        gate.over.store(0, SeqCst);
        let began = now_ns();
        gate.stage.fetch_add(1, SeqCst);
        gate.opened.signal();
        began
    }

    fn took(&self, began: u64, ended: Option<u64>) -> StageCost {
        let last = self.board.worker_times.iter().map(|s| s.ended.load(SeqCst)).max().unwrap_or(began);
        let cpu_ns = self.board.worker_times.iter().map(|s| s.cpu.load(SeqCst)).sum();
        StageCost { ns: ended.unwrap_or(last).saturating_sub(began), cpu_ns }
    }

    /// Waits until all members have arrived, or the monotonic clock reaches `deadline`; returns whether they have.
    fn wait(&mut self, deadline: Option<u64>) -> Result<bool> {
        loop {
            let mut fds = vec![PollFd::from_borrowed_fd(self.board.hear.as_fd(), PollFlags::IN)];
            fds.extend(self.families.iter().map(|f| PollFd::from_borrowed_fd(f.as_fd(), PollFlags::IN)));
            let left = deadline.map(|d| Duration::from_nanos(d.saturating_sub(now_ns())));
            let left = left.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
            match rustix::event::poll(&mut fds, left.as_ref()) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e).context("Cannot wait for the processes"),
            }
            if fds[1..].iter().any(|f| f.revents().contains(PollFlags::IN)) {
                return Err(self.obituary());
            }
            if fds[0].revents().contains(PollFlags::IN) {
                let mut byte = [0];
                (&self.board.hear).read_exact(&mut byte).context("Cannot read from the processes")?;
                return Ok(true);
            }
        }
    }

    /// The error for a head that ended early.
    fn obituary(&self) -> anyhow::Error {
        match self.board.gate.lost.load(SeqCst) {
            0 => anyhow!("The parent of some of the processes was killed"),
            n => match self.board.word(n as usize - 1) {
                Some(word) => anyhow!("Process {} failed: {word}", n - 1),
                None => anyhow!("Process {} ended early", n - 1),
            },
        }
    }
}

impl Drop for WorkerGroup<'_> {
    fn drop(&mut self) {
        // Kill all first; then each only has to be reaped.
        self.families.iter().for_each(ProcessFamily::kill);
    }
}

/// Forks members and waits for them to end; if one ends badly, returns an error with its number and message.
fn head(
    board: &GroupBoard<'_>,
    shape: MemberKind,
    work: &dyn GroupWork,
    numbers: std::ops::Range<usize>,
    children: &mut Children,
) -> Result<(), (usize, String)> {
    let first = numbers.start;
    work.prepare_head().map_err(|e| (first, format!("{e:#}")))?;
    let cannot = |number: usize| move |e| (number, format!("Cannot be started: {e}"));
    match shape {
        MemberKind::Processes => {
            for number in numbers {
                children.fork(number, || member(board, number, work)).map_err(cannot(number))?;
            }
        }
        MemberKind::Threads => children.fork(first, || threads(board, work)).map_err(cannot(first))?,
    }
    while let Some((number, exit)) = children.next_end().map_err(|e| (first, e.to_string()))? {
        if exit == Exit::Status(0) {
            continue;
        }
        // A failing thread ends its whole process and has left its message.
        let number = match shape {
            MemberKind::Processes => number,
            MemberKind::Threads => (0..board.worker_times.len()).find(|n| board.word(*n).is_some()).unwrap_or(number),
        };
        let word = board.word(number).unwrap_or_else(|| match exit {
            Exit::Status(n) => format!("it ended with status {n}"),
            Exit::Signal(n) => format!("it was ended by signal {n}"),
        });
        return Err((number, word));
    }
    Ok(())
}

/// Runs a member and returns its exit status.
fn member(board: &GroupBoard<'_>, number: usize, work: &dyn GroupWork) -> i32 {
    match work.run_member(&mut Member { number, board, stage: 0, cpu: Duration::ZERO }) {
        Ok(()) => 0,
        Err(e) => {
            board.leave_word(number, &format!("{e:#}"));
            1
        }
    }
}

/// Runs all members as threads. The first failure ends them all.
fn threads(board: &GroupBoard<'_>, work: &dyn GroupWork) -> i32 {
    std::thread::scope(|scope| {
        for number in 0..board.worker_times.len() {
            let body = move || {
                let status = catch_unwind(AssertUnwindSafe(|| member(board, number, work))).unwrap_or(101);
                if status != 0 {
                    exit_now(status);
                }
            };
            if let Err(e) = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body) {
                board.leave_word(number, &format!("Cannot start a thread: {e}"));
                exit_now(1);
            }
        }
    });
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds its number and the stage's to a sum; fails if told to.
    struct Sum<'s> {
        sum: &'s AtomicU64,
        fails: Option<(usize, u32)>,
    }

    impl GroupWork for Sum<'_> {
        fn run_member(&self, member: &mut Member<'_>) -> Result<()> {
            while let Some(stage) = member.next_stage()? {
                ensure!(self.fails != Some((member.number, stage)), "Asked to fail");
                self.sum.fetch_add(10 * u64::from(stage) + member.number as u64, SeqCst);
            }
            Ok(())
        }
    }

    fn with_sum(shape: MemberKind, fails: Option<(usize, u32)>, test: impl FnOnce(WorkerGroup<'_>, &AtomicU64)) {
        let segment = Segment::new(GroupBoard::bytes(5) + 64).unwrap();
        let board = GroupBoard::new(&segment, 5).unwrap();
        let sum = segment.one();
        test(WorkerGroup::start(&board, shape, &Sum { sum, fails }).unwrap(), sum);
    }

    #[test]
    fn all_do_every_stage_once() {
        for shape in [MemberKind::Processes, MemberKind::Threads] {
            with_sum(shape, None, |mut worker_group, sum| {
                let stage = worker_group.stage().unwrap();
                assert_eq!(sum.load(SeqCst), 10);
                assert!(stage.ns > 0 && stage.cpu_ns > 0);
                worker_group.stage().unwrap();
                assert_eq!(sum.load(SeqCst), 10 + 60);
                worker_group.leave().unwrap();
            });
        }
    }

    #[test]
    fn who_fails_is_named_with_what_it_said() {
        for shape in [MemberKind::Processes, MemberKind::Threads] {
            with_sum(shape, Some((3, 1)), |mut worker_group, _| {
                worker_group.stage().unwrap();
                let error = worker_group.stage().unwrap_err().to_string();
                assert!(error.starts_with("Process ") && error.ends_with("Asked to fail"), "{error}");
            });
        }
    }

    /// Counts until the stage is over.
    struct Until<'s>(&'s AtomicU64);

    impl GroupWork for Until<'_> {
        fn run_member(&self, member: &mut Member<'_>) -> Result<()> {
            while member.next_stage()?.is_some() {
                while !member.is_over() {
                    self.0.fetch_add(1, SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Ok(())
        }
    }

    #[test]
    fn a_stage_with_a_time_ends_by_it() {
        let segment = Segment::new(GroupBoard::bytes(2) + 64).unwrap();
        let board = GroupBoard::new(&segment, 2).unwrap();
        let sum: &AtomicU64 = segment.one();
        let mut worker_group = WorkerGroup::start(&board, MemberKind::Processes, &Until(sum)).unwrap();
        let time = Duration::from_millis(30);
        let (stage, counted) = worker_group.stage_for(time, || sum.load(SeqCst)).unwrap();
        assert!(stage.ns >= time.as_nanos() as u64 && counted <= sum.load(SeqCst));
        worker_group.leave().unwrap();
    }
}
