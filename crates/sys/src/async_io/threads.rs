//! A pool of threads that make blocking calls: asynchronous I/O in user space, as in a C library's POSIX AIO.
//!
//! Invariant: a thread owns a slot's buffer from the moment it takes the request from the queue until it queues the completion.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::buffers::Buffers;
use super::inline::{Call, Plain};
use super::{Completion, Engine, Request, explain};

/// Most threads of a pool: if more requests are in flight, they wait their turn.
const THREADS_MAX: usize = 64;
/// A thread's stack; it calls the kernel and nothing else.
const STACK: usize = 64 << 10;

#[derive(Clone, Copy)]
struct Work {
    slot: usize,
    fd: RawFd,
    offset: u64,
    len: usize,
    write: bool,
    dsync: bool,
    dontcache: bool,
    /// The slot's buffer.
    address: usize,
}

#[derive(Default)]
struct Queues {
    asked: VecDeque<Work>,
    ended: VecDeque<Completion>,
    /// Number of completions that wakes the owner; 0 if it does not wait.
    wanted: usize,
    /// Threads that sleep because there is no work.
    idle: usize,
    leave: bool,
}

#[derive(Default)]
struct Shared {
    queues: Mutex<Queues>,
    asked: Condvar,
    ended: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        // No code that can panic runs under the lock.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pool.
pub struct Threads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    buffers: Buffers,
}

impl Threads {
    /// An engine with `depth` buffers of `block` bytes and as many threads, but at most 64.
    pub fn new(depth: usize, block: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        {
            let mut queues = shared.lock();
            queues.asked.reserve(depth);
            queues.ended.reserve(depth);
        }
        let mut pool = Self { shared, threads: Vec::new(), buffers: Buffers::new(depth, block)? };
        for _ in 0..depth.min(THREADS_MAX) {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || serve(&shared));
            pool.threads.push(thread.map_err(|e| explain(&e, "Cannot start an I/O thread"))?);
        }
        Ok(pool)
    }
}

fn serve(shared: &Shared) {
    let mut queues = shared.lock();
    loop {
        if let Some(work) = queues.asked.pop_front() {
            drop(queues);
            let completion = carry_out(&work);
            queues = shared.lock();
            queues.ended.push_back(completion);
            if queues.wanted > 0 && queues.ended.len() >= queues.wanted {
                queues.wanted = 0;
                shared.ended.notify_one();
            }
        } else if queues.leave {
            return;
        } else {
            queues.idle += 1;
            queues = shared.asked.wait(queues).unwrap_or_else(PoisonError::into_inner);
            queues.idle -= 1;
        }
    }
}

fn carry_out(work: &Work) -> Completion {
    // SAFETY: the slot is in flight, so its buffer of at least `len` bytes is this thread's alone until the completion.
    let buffer = unsafe { std::slice::from_raw_parts_mut(work.address as *mut u8, work.len) };
    // SAFETY: the caller keeps the file open until the request has ended (documented in `Request`).
    let fd = unsafe { BorrowedFd::borrow_raw(work.fd) };
    let request = Request {
        slot: work.slot,
        fd,
        offset: work.offset,
        len: work.len,
        write: work.write,
        dsync: work.dsync,
        dontcache: work.dontcache,
    };
    Completion::of_call(work.slot, Plain::transfer(&request, buffer))
}

impl Engine for Threads {
    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.buffers.get(slot)
    }

    fn submit(&mut self, requests: &[Request<'_>]) -> io::Result<()> {
        self.buffers.take_all(requests)?;
        let mut queues = self.shared.lock();
        for r in requests {
            let address = self.buffers.pointer(r.slot) as usize;
            queues.asked.push_back(Work {
                slot: r.slot,
                fd: r.fd.as_raw_fd(),
                offset: r.offset,
                len: r.len,
                write: r.write,
                dsync: r.dsync,
                dontcache: r.dontcache,
                address,
            });
        }
        for _ in 0..queues.idle.min(requests.len()) {
            self.shared.asked.notify_one();
        }
        Ok(())
    }

    fn take(&mut self, min: usize, max: usize, done: &mut Vec<Completion>) -> io::Result<()> {
        if min > max || min > self.buffers.pending() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut queues = self.shared.lock();
        while queues.ended.len() < min {
            queues.wanted = min;
            queues = self.shared.ended.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
        queues.wanted = 0;
        let count = max.min(queues.ended.len());
        for c in queues.ended.drain(..count) {
            self.buffers.give_back(c.slot);
            done.push(c);
        }
        Ok(())
    }

    fn pending(&self) -> usize {
        self.buffers.pending()
    }

    fn describe(&self) -> String {
        format!("pread/pwrite by {} threads", self.threads.len())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().leave = true;
        self.shared.asked.notify_all();
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
    }
}
