//! io_uring: plain, with registered buffers and files, with a polling submission thread, with polled completion.
//!
//! Invariant: when `submit` or `exchange` returns, a request's entry has been handed to the kernel, or its slot is not in flight.

use std::hint::cold_path;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use io_uring::IoUring;
use io_uring::squeue::{Entry, Flags};
use rustix::io::Errno;
use rustix::io_uring::{IoringEnterFlags, io_uring_enter};

use super::buffers::Buffers;
use super::entry::Registered;
use super::{Completion, CompletionHandler, Engine, EngineSpec, Lists, Request, explain, transferred};

const REGISTER_RING_FDS: u32 = 20;
/// Most bytes that the kernel registers as one buffer.
const REGISTERED_MAX: usize = 1 << 30;
/// Milliseconds after which an idle polling thread goes to sleep.
const SQPOLL_IDLE_MS: u32 = 50;
/// `user_data` of the sync linked to a write.
const SYNC: u64 = u64::MAX;

/// An io_uring engine.
pub struct Uring {
    ring: IoUring,
    buffers: Buffers,
    /// The argument of `io_uring_enter`: the ring's descriptor, or its index among the registered ones.
    enter_fd: i32,
    enter_flags: IoringEnterFlags,
    /// Entries pushed but not yet taken by the kernel.
    queued: u32,
    sqpoll: bool,
    iopoll: bool,
    registered: Registered,
    task_run: &'static str,
}

impl Uring {
    /// A plain ring with `depth` buffers of `block` bytes: no registration, no polling, no setup flag.
    pub fn new(depth: usize, block: usize) -> io::Result<Self> {
        let ring = IoUring::new(depth.max(2) as u32).map_err(|e| refused(&e))?;
        Self::around(ring, depth, block, "")
    }

    /// The ring that `spec` describes. If the kernel supports it, task work is deferred until this thread asks for completions
    /// (`IORING_SETUP_DEFER_TASKRUN`, since 6.1; otherwise `IORING_SETUP_COOP_TASKRUN`, since 5.19).
    pub fn open(spec: &EngineSpec, block: usize, files: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let (ring, task_run) = set_up(spec)?;
        let mut engine = Self::around(ring, spec.depth, block, task_run)?;
        engine.sqpoll = spec.sqpoll;
        engine.iopoll = spec.iopoll;
        if spec.registered {
            engine.register(files)?;
        }
        if !spec.sqpoll {
            engine.register_ring();
        }
        if let (true, Some(file)) = (spec.iopoll, files.first()) {
            engine.try_polling(*file)?;
        }
        Ok(engine)
    }

    fn around(ring: IoUring, depth: usize, block: usize, task_run: &'static str) -> io::Result<Self> {
        Ok(Self {
            enter_fd: ring.as_raw_fd(),
            enter_flags: IoringEnterFlags::empty(),
            ring,
            buffers: Buffers::new(depth, block)?,
            queued: 0,
            sqpoll: false,
            iopoll: false,
            registered: Registered::default(),
            task_run,
        })
    }

    fn register(&mut self, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        // All buffers as one, split only where they exceed the kernel's limit: the data that the kernel looks up for each request then fits in a few
        // cache lines.
        let (each, vectors) = self.buffers.pieces(REGISTERED_MAX);
        // SAFETY: the buffers live as long as self, which drops the ring before them.
        unsafe { self.ring.submitter().register_buffers(&vectors) }
            .map_err(|e| explain(&e, "The kernel does not register the buffers (is RLIMIT_MEMLOCK large enough?)"))?;
        self.registered.know_buffers(each);
        if files.is_empty() {
            return Ok(());
        }
        let descriptors: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        self.ring
            .submitter()
            .register_files(&descriptors)
            .map_err(|e| explain(&e, "The kernel does not register the files"))?;
        self.registered.know_files(&descriptors);
        Ok(())
    }

    /// Registers the ring's descriptor, so that the kernel need not look it up at every call. Since Linux 5.18; optional.
    fn register_ring(&mut self) {
        // struct io_uring_rsrc_update: offset (which index; any), reserved, descriptor.
        #[repr(C)]
        struct Update {
            offset: u32,
            reserved: u32,
            data: u64,
        }
        let mut update = Update { offset: u32::MAX, reserved: 0, data: self.ring.as_raw_fd() as u64 };
        // SAFETY: one update, read and written by the kernel during the call.
        let result = unsafe {
            libc::syscall(libc::SYS_io_uring_register, self.ring.as_raw_fd(), REGISTER_RING_FDS, &raw mut update, 1)
        };
        if result == 1 {
            self.enter_fd = update.offset as i32;
            self.enter_flags = IoringEnterFlags::REGISTERED_RING;
        }
    }

    /// Reads once, to find out now whether the device can be polled.
    fn try_polling(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut done = Vec::with_capacity(1);
        let len = self.buffers.block();
        self.submit_and_wait(
            &[Request { slot: 0, fd, offset: 0, len, write: false, dsync: false, dontcache: false }],
            1,
            &mut done,
        )?;
        match done.pop().map(|c| c.result()) {
            Some(Err(e)) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Err(explain(
                &e,
                "The device has no queue that can be polled, or the file is not open for direct I/O (O_DIRECT)",
            )),
            Some(Err(e)) => Err(explain(&e, "Cannot read by polled completion")),
            _ => Ok(()),
        }
    }

    #[inline]
    fn push(&mut self, requests: &[Request<'_>]) -> io::Result<()> {
        self.buffers.take_all(requests)?;
        if self.sqpoll {
            return requests
                .iter()
                .try_for_each(|r| self.push_entry(&self.registered.entry(r, self.buffers.pointer(r.slot))));
        }
        let mut left = requests;
        loop {
            left = self.fill(left);
            if left.is_empty() {
                return Ok(());
            }
            if let Err(e) = self.hand_over() {
                return self.take_back(left, e);
            }
        }
    }

    /// Puts requests into the queue until it is full; returns the others.
    #[inline]
    fn fill<'r, 'fd>(&mut self, requests: &'r [Request<'fd>]) -> &'r [Request<'fd>] {
        let mut queue = self.ring.submission();
        for (i, r) in requests.iter().enumerate() {
            let entry = self.registered.entry(r, self.buffers.pointer(r.slot));
            // SAFETY: the buffer belongs to self and stays untouched until its completion is seen.
            if unsafe { queue.push(&entry) }.is_err() {
                return &requests[i..];
            }
            self.queued += 1;
        }
        &[]
    }

    /// Takes back the buffers of requests that are not handed over because of `error`.
    #[cold]
    fn take_back(&mut self, requests: &[Request<'_>], error: io::Error) -> io::Result<()> {
        requests.iter().for_each(|r| self.buffers.give_back(r.slot));
        Err(error)
    }

    #[inline(never)]
    fn push_entry(&mut self, entry: &Entry) -> io::Result<()> {
        // SAFETY: the buffer belongs to self and stays untouched until its completion is seen.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            if !self.sqpoll {
                return Err(io::Error::other("The submission queue of io_uring is full"));
            }
            // The polling thread has not yet taken the earlier entries.
            self.ring.submitter().squeue_wait()?;
        }
        self.queued += 1;
        Ok(())
    }

    /// Hands over the queued entries and waits until the completion queue holds `min` entries, or a signal arrives.
    #[inline]
    fn enter(&mut self, min: usize) -> io::Result<()> {
        if self.sqpoll {
            cold_path();
            return self.wake(min);
        }
        let wait = if min > 0 || self.iopoll { IoringEnterFlags::GETEVENTS } else { IoringEnterFlags::empty() };
        // SAFETY: the descriptor, or index, is this ring's; nothing but the call below uses it.
        let ring = unsafe { BorrowedFd::borrow_raw(self.enter_fd) };
        // SAFETY: the queued entries' buffers belong to self and stay untouched until their completions are seen.
        match unsafe { io_uring_enter(ring, self.queued, min as u32, self.enter_flags | wait) } {
            Ok(taken) => self.queued -= taken,
            Err(e) => {
                cold_path();
                if e != Errno::INTR {
                    return Err(e.into());
                }
            }
        }
        Ok(())
    }

    /// [`Uring::enter`] for a ring whose entries a kernel thread takes: the crate knows whether the thread must be woken.
    #[inline(never)]
    fn wake(&mut self, min: usize) -> io::Result<()> {
        self.queued = 0;
        match self.ring.submit_and_wait(min) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => other.map(drop),
        }
    }

    #[inline(never)]
    fn hand_over(&mut self) -> io::Result<()> {
        while self.queued > 0 {
            self.enter(0)?;
        }
        Ok(())
    }

    /// Hands over the queued entries, waits until `min` requests have ended and passes at most `max` completions to `to`.
    #[inline(always)]
    fn go(&mut self, min: usize, max: usize, to: &mut impl CompletionHandler) -> io::Result<()> {
        if min > max || min > self.buffers.pending() {
            self.hand_over()?;
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The kernel is asked to wait (and to run its deferred work first) only if there are not enough completions.
        let there = min > 0 && self.ring.completion().len() >= min;
        self.enter(if there { 0 } else { min })?;
        if self.queued > 0 {
            cold_path();
            self.hand_over()?;
        }
        self.reap(min, max, to)
    }

    /// Waits until `min` requests have ended, and passes their completions to `to`.
    #[inline(always)]
    fn reap(&mut self, min: usize, max: usize, to: &mut impl CompletionHandler) -> io::Result<()> {
        if min > 0 && self.ring.completion().len() < min {
            self.wait_for(min)?;
        }
        to.begin();
        for e in self.ring.completion().take(max) {
            let slot = e.user_data() as usize;
            self.buffers.give_back(slot);
            to.ended(Completion { slot, res: i64::from(e.result()) });
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn wait_for(&mut self, min: usize) -> io::Result<()> {
        while self.ring.completion().len() < min {
            self.enter(min)?;
        }
        Ok(())
    }
}

/// The ring with the best setup flags that this kernel supports, and a description of the flags.
fn set_up(spec: &EngineSpec) -> io::Result<(IoUring, &'static str)> {
    // One more than requests: a linked sync needs an entry of its own.
    let depth = spec.depth.max(2) as u32;
    let builder = || {
        let mut builder = IoUring::builder();
        if spec.iopoll {
            builder.setup_iopoll();
        }
        builder
    };
    // The smallest possible queues, so that they stay in the CPU's caches: a batch is handed over at once, and no more requests than the depth can
    // have ended. (The kernel has accepted the second size since 5.5, and these flags since 5.19 and later.)
    let build = |flags: fn(&mut io_uring::Builder)| {
        let mut builder = builder();
        flags(builder.setup_cqsize(depth));
        builder.build((spec.batch as u32).clamp(2, depth))
    };
    let unknown = |e: &io::Error| e.raw_os_error() == Some(libc::EINVAL);
    if !spec.sqpoll {
        // Without the queue's array of indices (since 6.6), because entries are taken in order anyway.
        let deferred: [fn(&mut io_uring::Builder); 2] = [
            |b| {
                b.setup_single_issuer().setup_defer_taskrun().setup_no_sqarray();
            },
            |b| {
                b.setup_single_issuer().setup_defer_taskrun();
            },
        ];
        for flags in deferred {
            match build(flags) {
                Err(e) if unknown(&e) => {}
                other => return Ok((other.map_err(|e| refused(&e))?, ", single issuer, deferred task work")),
            }
        }
        match build(|b| {
            b.setup_coop_taskrun();
        }) {
            Err(e) if unknown(&e) => {}
            other => return Ok((other.map_err(|e| refused(&e))?, ", cooperative task work")),
        }
    }
    let mut plain = builder();
    if spec.sqpoll {
        plain.setup_sqpoll(SQPOLL_IDLE_MS);
    }
    match plain.build(depth) {
        Ok(ring) => Ok((ring, "")),
        Err(e) if spec.sqpoll && e.raw_os_error() == Some(libc::EPERM) => {
            Err(explain(&e, "This kernel allows a polling submission thread to root only"))
        }
        Err(e) => Err(refused(&e)),
    }
}

fn refused(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => explain(error, "This kernel has no io_uring (CONFIG_IO_URING)"),
        Some(libc::EPERM) => explain(error, "io_uring is switched off (sysctl kernel.io_uring_disabled)"),
        Some(libc::ENOMEM) => explain(error, "No memory for an io_uring (is RLIMIT_MEMLOCK large enough?)"),
        _ => explain(error, "This kernel does not support this kind of io_uring"),
    }
}

impl Engine for Uring {
    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.buffers.get(slot)
    }

    fn submit(&mut self, requests: &[Request<'_>]) -> io::Result<()> {
        self.push(requests)?;
        self.hand_over()
    }

    fn take(&mut self, min: usize, max: usize, done: &mut Vec<Completion>) -> io::Result<()> {
        if min > max || min > self.buffers.pending() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.reap(min, max, done)
    }

    fn pending(&self) -> usize {
        self.buffers.pending()
    }

    #[inline]
    fn submit_and_take(
        &mut self,
        requests: &[Request<'_>],
        min: usize,
        max: usize,
        done: &mut Vec<Completion>,
    ) -> io::Result<()> {
        self.push(requests)?;
        self.go(min, max, done)
    }

    #[inline(always)]
    fn prepare<'fd>(
        &mut self,
        mut requests: impl ExactSizeIterator<Item = Request<'fd>>,
        lists: &mut Lists<'fd>,
    ) -> io::Result<()> {
        if self.sqpoll {
            cold_path();
            // The polling thread takes an entry as soon as it sees it, so prepared requests stay on the list.
            lists.requests.extend(requests);
            return Ok(());
        }
        loop {
            // A local count, because a count in self would need a store for each request.
            let (mut count, mut refused) = (0, None);
            let mut queue = self.ring.submission();
            while !queue.is_full() {
                let Some(r) = requests.next() else { break };
                if let Err(e) = self.buffers.mark(&r) {
                    refused = Some(e);
                    break;
                }
                let entry = self.registered.entry(&r, self.buffers.pointer(r.slot));
                // SAFETY: the buffer belongs to self and stays untouched until its completion is seen. There is room.
                let _ = unsafe { queue.push(&entry) };
                count += 1;
            }
            drop(queue);
            self.buffers.marked(count);
            self.queued += count as u32;
            if let Some(e) = refused {
                return Err(e);
            }
            if requests.len() == 0 {
                return Ok(());
            }
            cold_path();
            self.hand_over()?;
        }
    }

    #[inline(always)]
    fn exchange(
        &mut self,
        min: usize,
        max: usize,
        lists: &mut Lists<'_>,
        to: &mut impl CompletionHandler,
    ) -> io::Result<()> {
        if !lists.requests.is_empty() {
            cold_path();
            let pushed = self.push(&lists.requests);
            lists.requests.clear();
            pushed?;
        }
        self.go(min, max, to)
    }

    fn write_durably(&mut self, request: &Request<'_>) -> io::Result<usize> {
        if self.pending() > 0 || !request.write {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.iopoll {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "A ring with polled completion cannot sync; ask for a durable write (RWF_DSYNC)",
            ));
        }
        self.buffers.take(request)?;
        let buf = self.buffers.pointer(request.slot);
        let write = self.registered.entry(request, buf).flags(Flags::IO_LINK);
        let sync = self.registered.sync(request.fd.as_raw_fd(), SYNC);
        self.push_entry(&write)?;
        self.push_entry(&sync)?;
        let (mut written, mut synced) = (None, None);
        while written.is_none() || synced.is_none() {
            let missing = usize::from(written.is_none()) + usize::from(synced.is_none());
            self.enter(missing)?;
            for e in self.ring.completion() {
                let result = transferred(i64::from(e.result()));
                if e.user_data() == SYNC { synced = Some(result) } else { written = Some(result) }
            }
        }
        self.buffers.give_back(request.slot);
        let written = written.ok_or(io::ErrorKind::UnexpectedEof)??;
        // A short write breaks the chain: the sync is cancelled, and the caller sees the missing bytes.
        if written == request.len {
            synced.ok_or(io::ErrorKind::UnexpectedEof)??;
        }
        Ok(written)
    }

    fn describe(&self) -> String {
        let mut text = format!("io_uring{}", self.task_run);
        for (set, what) in [
            (self.registered.knows_buffers(), ", registered buffers"),
            (self.registered.knows_files(), ", registered files"),
            (self.sqpoll, ", polling submission thread"),
            (self.iopoll, ", polled completion"),
        ] {
            text += if set { what } else { "" };
        }
        text
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        let _ = self.hand_over();
        let _ = self.wait(self.buffers.pending(), &mut done);
    }
}

#[cfg(test)]
#[path = "uring_tests.rs"]
mod tests;
