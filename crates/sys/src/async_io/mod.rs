//! One interface to all the ways in which a program can hand block I/O to the kernel, so that a workload can use any of them.
//!
//! Invariant: the engine owns every buffer that the kernel may be reading or writing, and keeps every buffer in flight.

mod buffers;
mod entry;
mod inline;
mod libaio;
mod threads;
mod uring;

use std::io;
use std::os::fd::BorrowedFd;

pub use inline::{Blocking, Null, Vectored};
pub use libaio::LibAio;
pub use threads::Threads;
pub use uring::Uring;

/// How requests reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Not at all: every request ends at once. Measures the cost of everything else.
    Null,
    /// `pread` and `pwrite`.
    Sync,
    /// `preadv2` and `pwritev2`.
    Vectored,
    /// A pool of threads that call `pread` and `pwrite`, as POSIX AIO in user space does.
    Threads,
    /// `io_submit` and `io_getevents`.
    Libaio,
    Uring,
}

/// The requested engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSpec {
    pub method: Method,
    /// Most requests in flight; the number of buffers.
    pub depth: usize,
    /// Most requests handed over in one system call.
    pub batch: usize,
    /// io_uring: buffers and files registered with the kernel.
    pub registered: bool,
    /// io_uring: a kernel thread takes the submissions (`IORING_SETUP_SQPOLL`).
    pub sqpoll: bool,
    /// io_uring: completions are polled at the device (`IORING_SETUP_IOPOLL`).
    pub iopoll: bool,
}

impl Default for EngineSpec {
    fn default() -> Self {
        Self { method: Method::Sync, depth: 1, batch: 1, registered: false, sqpoll: false, iopoll: false }
    }
}

/// Smallest and largest buffer, in bytes.
pub const BUFFER_BYTES: (usize, usize) = (512, 16 << 20);
/// Most requests in flight.
pub const DEPTH_MAX: usize = 4096;

/// A request on one of the engine's own buffers.
#[derive(Clone, Copy)]
pub struct Request<'fd> {
    /// The buffer's index, `0..depth`; it must not be in flight.
    pub slot: usize,
    /// Must stay open until the request has ended.
    pub fd: BorrowedFd<'fd>,
    pub offset: u64,
    /// Bytes, at most the engine's block size.
    pub len: usize,
    pub write: bool,
    /// Ask for `RWF_DSYNC`: the write completes when the data is durable.
    pub dsync: bool,
    /// Sets [`RWF_DONTCACHE`]: the page cache drops the data afterwards.
    pub dontcache: bool,
}

/// Linux 6.14: a read or write through the page cache, which drops the pages as soon as they are clean and unused.
pub const RWF_DONTCACHE: libc::c_int = 0x80;

impl Request<'_> {
    /// The `RWF_*` flags of the request.
    #[inline(always)]
    fn flags(&self) -> libc::c_int {
        let sync = if self.write && self.dsync { libc::RWF_DSYNC } else { 0 };
        sync | if self.dontcache { RWF_DONTCACHE } else { 0 }
    }
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    pub slot: usize,
    /// Bytes transferred, or the negated error, as in the kernel's rings.
    res: i64,
}

impl Completion {
    /// A completion: the request of `slot` has transferred this many bytes.
    pub fn of(slot: usize, bytes: usize) -> Self {
        Self { slot, res: bytes as i64 }
    }

    /// A completion from the result of a system call for the request of `slot`.
    fn of_call(slot: usize, result: rustix::io::Result<usize>) -> Self {
        Self { slot, res: result.map_or_else(|e| -i64::from(e.raw_os_error()), |n| n as i64) }
    }

    /// Whether it has transferred exactly this many bytes.
    #[inline]
    pub fn is_of(&self, bytes: usize) -> bool {
        self.res == bytes as i64
    }

    /// Bytes transferred.
    pub fn result(&self) -> io::Result<usize> {
        transferred(self.res)
    }
}

/// Requests for an engine that takes them as a list, and their completions.
#[derive(Default)]
pub struct Lists<'fd> {
    /// Requests for the next [`Engine::exchange`].
    pub requests: Vec<Request<'fd>>,
    done: Vec<Completion>,
}

impl Lists<'_> {
    /// Lists with room for `depth` of each.
    pub fn of(depth: usize) -> Self {
        Self { requests: Vec::with_capacity(depth), done: Vec::with_capacity(depth) }
    }
}

/// Receives the completions of requests. (Not a closure, because closures cannot be marked for inlining.)
pub trait CompletionHandler {
    /// Called before the first completion of a batch.
    fn begin(&mut self);

    fn ended(&mut self, completion: Completion);
}

impl CompletionHandler for Vec<Completion> {
    fn begin(&mut self) {}

    #[inline(always)]
    fn ended(&mut self, completion: Completion) {
        self.push(completion);
    }
}

/// An I/O engine. It must be used by the process and thread that opened it.
pub trait Engine: Send {
    /// The buffer of a slot that is not in flight.
    fn buffer(&mut self, slot: usize) -> &mut [u8];

    /// Hands all of `requests` to the kernel in one system call (more only if the kernel takes fewer at once). After an error, requests that the
    /// kernel has taken are in flight and end normally.
    fn submit(&mut self, requests: &[Request<'_>]) -> io::Result<()>;

    /// Waits until at least `min` requests have ended, and appends those that have to `done`, but at most `max`: the others wait for the next call.
    /// Fails if fewer than `min` are in flight.
    fn take(&mut self, min: usize, max: usize, done: &mut Vec<Completion>) -> io::Result<()>;

    /// [`Engine::take`] without a maximum.
    fn wait(&mut self, min: usize, done: &mut Vec<Completion>) -> io::Result<()> {
        self.take(min, usize::MAX, done)
    }

    /// Number of requests handed over and not yet taken back.
    fn pending(&self) -> usize;

    /// [`Engine::submit`] and [`Engine::take`], in one system call if the kernel has one.
    fn submit_and_take(
        &mut self,
        requests: &[Request<'_>],
        min: usize,
        max: usize,
        done: &mut Vec<Completion>,
    ) -> io::Result<()> {
        self.submit(requests)?;
        self.take(min, max, done)
    }

    /// [`Engine::submit_and_take`] without a maximum.
    fn submit_and_wait(&mut self, requests: &[Request<'_>], min: usize, done: &mut Vec<Completion>) -> io::Result<()> {
        self.submit_and_take(requests, min, usize::MAX, done)
    }

    /// Prepares requests for the next [`Engine::exchange`]: on the list, or directly in the kernel's queue, which saves the CPU caches the list.
    /// After an error, the requests before the faulty one are prepared.
    fn prepare<'fd>(
        &mut self,
        requests: impl ExactSizeIterator<Item = Request<'fd>>,
        lists: &mut Lists<'fd>,
    ) -> io::Result<()>
    where
        Self: Sized,
    {
        lists.requests.extend(requests);
        Ok(())
    }

    /// [`Engine::submit_and_take`] of all prepared requests. `to` gets the completions once all of them are there.
    fn exchange(
        &mut self,
        min: usize,
        max: usize,
        lists: &mut Lists<'_>,
        to: &mut impl CompletionHandler,
    ) -> io::Result<()>
    where
        Self: Sized,
    {
        exchange_lists(self, min, max, lists, to)
    }

    /// Writes, makes the file's data durable and returns the number of bytes written. Nothing else may be in flight. io_uring uses linked requests in
    /// one system call; any other engine uses the request and then `fdatasync`.
    fn write_durably(&mut self, request: &Request<'_>) -> io::Result<usize> {
        if self.pending() > 0 || !request.write {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut done = Vec::with_capacity(1);
        self.submit_and_wait(&[*request], 1, &mut done)?;
        let written = done.pop().ok_or(io::ErrorKind::UnexpectedEof)?.result()?;
        rustix::fs::fdatasync(request.fd)?;
        Ok(written)
    }

    /// A short description, with everything that the kernel agreed to.
    fn describe(&self) -> String;
}

/// [`Engine::exchange`] of the requests on the list.
fn exchange_lists(
    engine: &mut impl Engine,
    min: usize,
    max: usize,
    lists: &mut Lists<'_>,
    to: &mut impl CompletionHandler,
) -> io::Result<()> {
    let result = engine.submit_and_take(&lists.requests, min, max, &mut lists.done);
    lists.requests.clear();
    to.begin();
    lists.done.drain(..).for_each(|c| to.ended(c));
    result
}

/// Code that runs with an engine whose type the compiler knows, so that no call on a request's path is indirect.
pub trait EngineUser {
    type Output;
    fn with<E: Engine + 'static>(self, engine: E) -> Self::Output;
}

/// Opens the engine that `spec` describes, with buffers of `block_bytes`. `files` are the files that requests will name; io_uring registers them if
/// requested (if there are none, it registers only the buffers). The error says what this kernel or device does not support.
pub fn open(spec: &EngineSpec, block_bytes: usize, files: &[BorrowedFd<'_>]) -> io::Result<Box<dyn Engine>> {
    struct Boxed;
    impl EngineUser for Boxed {
        type Output = Box<dyn Engine>;
        fn with<E: Engine + 'static>(self, engine: E) -> Box<dyn Engine> {
            Box::new(engine)
        }
    }
    open_for(spec, block_bytes, files, Boxed)
}

/// [`open`]s the engine and runs `user` with it.
pub fn open_for<U: EngineUser>(
    spec: &EngineSpec,
    block_bytes: usize,
    files: &[BorrowedFd<'_>],
    user: U,
) -> io::Result<U::Output> {
    let refuse = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if !(BUFFER_BYTES.0..=BUFFER_BYTES.1).contains(&block_bytes) || !block_bytes.is_multiple_of(BUFFER_BYTES.0) {
        let (min, max) = BUFFER_BYTES;
        return refuse(format!(
            "Requests of {block_bytes} bytes are not supported; use a multiple of {min} up to {max}"
        ));
    }
    if !(1..=DEPTH_MAX).contains(&spec.depth) {
        return refuse(format!("{} requests in flight are not supported; use 1 to {DEPTH_MAX}", spec.depth));
    }
    let flags = [(spec.registered, "Registered buffers"), (spec.sqpoll, "A polling submission thread")];
    for (set, what) in flags.into_iter().chain([(spec.iopoll, "Polled completion")]) {
        if set && spec.method != Method::Uring {
            return refuse(format!("{what} need{} io_uring", if what.ends_with('s') { "" } else { "s" }));
        }
    }
    Ok(match spec.method {
        Method::Null => user.with(Null::new(spec.depth, block_bytes)?),
        Method::Sync => user.with(Blocking::new(spec.depth, block_bytes)?),
        Method::Vectored => user.with(Vectored::new(spec.depth, block_bytes)?),
        Method::Threads => user.with(Threads::new(spec.depth, block_bytes)?),
        Method::Libaio => user.with(LibAio::new(spec.depth, block_bytes)?),
        Method::Uring => user.with(Uring::open(spec, block_bytes, files)?),
    })
}

/// An error of the same kind with `text` before its message.
fn explain(error: &io::Error, text: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{text}: {error}"))
}

/// The bytes or the error from a result in the form of the kernel's rings: bytes, or the negated error.
fn transferred(res: i64) -> io::Result<usize> {
    if res < 0 { Err(io::Error::from_raw_os_error(-res as i32)) } else { Ok(res as usize) }
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests;
