//! One interface over `io_submit` (libaio's system calls) and io_uring, so that a workload can be asked to use either.
//!
//! Invariant: the engine owns every buffer that the kernel may be reading or writing, and does not let go of one in flight.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use io_uring::{IoUring, opcode, types};

/// A request on one of the engine's own buffers.
#[derive(Clone, Copy)]
pub struct Request<'fd> {
    /// Which buffer, `0..depth`; must not be in flight.
    pub slot: usize,
    pub fd: BorrowedFd<'fd>,
    pub offset: u64,
    /// Bytes, at most the engine's block size.
    pub len: usize,
    pub write: bool,
    /// Ask for `RWF_DSYNC`: the write completes when the data is durable.
    pub dsync: bool,
}

/// A request that has ended.
pub struct Completion {
    pub slot: usize,
    /// Bytes transferred.
    pub result: io::Result<usize>,
}

/// Anonymous pages for `depth` buffers of `block` bytes: page-aligned, so fit for direct I/O.
struct Buffers {
    base: NonNull<u8>,
    block: usize,
    in_flight: Vec<bool>,
}

// SAFETY: the mapping is private to this value; nothing in it depends on the thread.
unsafe impl Send for Buffers {}

impl Buffers {
    fn new(depth: usize, block: usize) -> io::Result<Self> {
        let len = depth * block;
        // SAFETY: a fresh anonymous mapping, no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned page 0"))?;
        Ok(Self { base, block, in_flight: vec![false; depth] })
    }

    fn pointer(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.in_flight.len(), "slot {slot} of {}", self.in_flight.len());
        // SAFETY: slot is in range (asserted), so the offset stays inside the mapping.
        unsafe { self.base.as_ptr().add(slot * self.block) }
    }

    fn get(&mut self, slot: usize) -> &mut [u8] {
        assert!(!self.in_flight[slot], "buffer {slot} is in flight");
        // SAFETY: in range, not in flight (the kernel does not touch it), and borrowed mutably from self.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(slot), self.block) }
    }

    fn take(&mut self, request: &Request<'_>) -> io::Result<*mut u8> {
        if request.len > self.block || self.in_flight[request.slot] {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.in_flight[request.slot] = true;
        Ok(self.pointer(request.slot))
    }

    fn pending(&self) -> usize {
        self.in_flight.iter().filter(|f| **f).count()
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; the engines wait for what is in flight before they drop it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.block * self.in_flight.len()) };
    }
}

/// How requests reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Nowhere: every request ends at once. Measures what the rest costs.
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

/// What engine is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    pub method: Method,
    /// Requests in flight at most; the number of buffers.
    pub depth: usize,
    /// Requests handed over in one system call, at most.
    pub batch: usize,
    /// io_uring: buffers and files registered with the kernel.
    pub registered: bool,
    /// io_uring: a kernel thread takes the submissions (`IORING_SETUP_SQPOLL`).
    pub sqpoll: bool,
    /// io_uring: completions are polled for at the device (`IORING_SETUP_IOPOLL`).
    pub iopoll: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Self { method: Method::Sync, depth: 1, batch: 1, registered: false, sqpoll: false, iopoll: false }
    }
}

/// An asynchronous I/O engine.
pub trait Engine: Send {
    /// The buffer of a slot that is not in flight.
    fn buffer(&mut self, slot: usize) -> &mut [u8];
    /// Hands all of `requests` to the kernel in one system call (more only if the kernel takes fewer at once).
    fn submit(&mut self, requests: &[Request<'_>]) -> io::Result<()>;
    /// Waits until at least `min` requests have ended and appends all that have to `done`.
    fn wait(&mut self, min: usize, done: &mut Vec<Completion>) -> io::Result<()>;
    /// Requests handed over and not yet waited for.
    fn pending(&self) -> usize;
}

// The kernel's ABI of io_submit (include/uapi/linux/aio_abi.h).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    reqprio: i16,
    fd: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IoEvent {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;

/// `io_submit` and `io_getevents`, without the library.
pub struct LibAio {
    context: u64,
    buffers: Buffers,
    iocbs: Vec<Iocb>,
    events: Vec<IoEvent>,
}

impl LibAio {
    /// An engine with `depth` buffers of `block` bytes (a multiple of 4096).
    pub fn new(depth: usize, block: usize) -> io::Result<Self> {
        let mut context = 0u64;
        // SAFETY: io_setup writes one word to the pointer given.
        check(unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) })?;
        let buffers = Buffers::new(depth, block)?;
        Ok(Self { context, buffers, iocbs: vec![Iocb::default(); depth], events: vec![IoEvent::default(); depth] })
    }
}

impl Engine for LibAio {
    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.buffers.get(slot)
    }

    fn submit(&mut self, requests: &[Request<'_>]) -> io::Result<()> {
        let mut pointers = Vec::with_capacity(requests.len());
        for r in requests {
            let buf = self.buffers.take(r)?;
            self.iocbs[r.slot] = Iocb {
                data: r.slot as u64,
                rw_flags: if r.dsync { libc::RWF_DSYNC } else { 0 },
                opcode: if r.write { IOCB_CMD_PWRITE } else { IOCB_CMD_PREAD },
                fd: r.fd.as_raw_fd() as u32,
                buf: buf as u64,
                nbytes: r.len as u64,
                offset: r.offset as i64,
                ..Iocb::default()
            };
            pointers.push(&raw mut self.iocbs[r.slot]);
        }
        let mut sent = 0;
        while sent < pointers.len() {
            // SAFETY: the iocbs live in self and are not moved or reused before their slot completes; so do the buffers.
            let n = check(unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, pointers.len() - sent, pointers[sent..].as_ptr())
            })?;
            sent += n as usize;
        }
        Ok(())
    }

    fn wait(&mut self, min: usize, done: &mut Vec<Completion>) -> io::Result<()> {
        let mut got = 0;
        loop {
            // SAFETY: `events` has room for the count passed.
            let n = check_interrupted(unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    min - got,
                    self.events.len(),
                    self.events.as_mut_ptr(),
                    std::ptr::null::<libc::timespec>(),
                )
            })?;
            for e in &self.events[..n] {
                let slot = e.data as usize;
                self.buffers.in_flight[slot] = false;
                done.push(Completion { slot, result: transferred(e.res) });
            }
            got += n;
            if got >= min {
                return Ok(());
            }
        }
    }

    fn pending(&self) -> usize {
        self.buffers.pending()
    }
}

impl Drop for LibAio {
    fn drop(&mut self) {
        // SAFETY: the context made in `new`; io_destroy waits for everything in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// io_uring, without registered buffers or files, without a polling thread.
pub struct Uring {
    ring: IoUring,
    buffers: Buffers,
}

impl Uring {
    /// An engine with `depth` buffers of `block` bytes (a multiple of 4096).
    pub fn new(depth: usize, block: usize) -> io::Result<Self> {
        Ok(Self { ring: IoUring::new(depth as u32)?, buffers: Buffers::new(depth, block)? })
    }

    fn reap(&mut self, done: &mut Vec<Completion>) -> usize {
        let mut n = 0;
        for e in self.ring.completion() {
            let slot = e.user_data() as usize;
            self.buffers.in_flight[slot] = false;
            done.push(Completion { slot, result: transferred(i64::from(e.result())) });
            n += 1;
        }
        n
    }
}

impl Engine for Uring {
    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.buffers.get(slot)
    }

    fn submit(&mut self, requests: &[Request<'_>]) -> io::Result<()> {
        for r in requests {
            let buf = self.buffers.take(r)?;
            let fd = types::Fd(r.fd.as_raw_fd());
            let entry = if r.write {
                opcode::Write::new(fd, buf, r.len as u32)
                    .offset(r.offset)
                    .rw_flags(if r.dsync { libc::RWF_DSYNC } else { 0 })
                    .build()
            } else {
                opcode::Read::new(fd, buf, r.len as u32).offset(r.offset).build()
            };
            // SAFETY: the buffer belongs to self and stays untouched until its completion is seen.
            unsafe { self.ring.submission().push(&entry.user_data(r.slot as u64)) }
                .map_err(|_| io::Error::other("io_uring submission queue is full"))?;
        }
        self.ring.submit()?;
        Ok(())
    }

    fn wait(&mut self, min: usize, done: &mut Vec<Completion>) -> io::Result<()> {
        let mut got = self.reap(done);
        while got < min {
            match self.ring.submit_and_wait(min - got) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => {
                    other?;
                }
            }
            got += self.reap(done);
        }
        Ok(())
    }

    fn pending(&self) -> usize {
        self.buffers.pending()
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        let _ = self.wait(self.buffers.pending(), &mut done);
    }
}

/// `pread` and `pwrite`, one request after the other: what the asynchronous engines are compared with.
pub struct Blocking {
    buffers: Buffers,
    done: Vec<Completion>,
}

impl Blocking {
    /// An engine with `depth` buffers of `block` bytes (a multiple of 4096).
    pub fn new(depth: usize, block: usize) -> io::Result<Self> {
        Ok(Self { buffers: Buffers::new(depth, block)?, done: Vec::with_capacity(depth) })
    }
}

impl Engine for Blocking {
    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.buffers.get(slot)
    }

    fn submit(&mut self, requests: &[Request<'_>]) -> io::Result<()> {
        for r in requests {
            if r.len > self.buffers.block {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let buffer = &mut self.buffers.get(r.slot)[..r.len];
            let result = match (r.write, r.dsync) {
                (false, _) => rustix::io::pread(r.fd, buffer, r.offset),
                (true, false) => rustix::io::pwrite(r.fd, buffer, r.offset),
                (true, true) => {
                    rustix::io::pwritev2(r.fd, &[io::IoSlice::new(buffer)], r.offset, rustix::io::ReadWriteFlags::DSYNC)
                }
            };
            self.buffers.in_flight[r.slot] = true;
            self.done.push(Completion { slot: r.slot, result: result.map_err(io::Error::from) });
        }
        Ok(())
    }

    fn wait(&mut self, min: usize, done: &mut Vec<Completion>) -> io::Result<()> {
        if min > self.done.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for c in self.done.drain(..) {
            self.buffers.in_flight[c.slot] = false;
            done.push(c);
        }
        Ok(())
    }

    fn pending(&self) -> usize {
        self.buffers.pending()
    }
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_interrupted(result: libc::c_long) -> io::Result<usize> {
    match check(result) {
        Ok(n) => Ok(n as usize),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(e) => Err(e),
    }
}

fn transferred(res: i64) -> io::Result<usize> {
    if res < 0 { Err(io::Error::from_raw_os_error(-res as i32)) } else { Ok(res as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn round_trip(engine: &mut dyn Engine) {
        let file = tempfile::tempfile().unwrap();
        let mut done = Vec::new();
        for slot in 0..4 {
            engine.buffer(slot).fill(slot as u8 + 1);
        }
        let write =
            |slot| Request { slot, fd: file.as_fd(), offset: slot as u64 * 4096, len: 4096, write: true, dsync: true };
        engine.submit(&[write(0), write(1), write(2), write(3)]).unwrap();
        engine.wait(4, &mut done).unwrap();
        assert_eq!((done.len(), engine.pending()), (4, 0));
        assert!(done.iter().all(|c| matches!(c.result, Ok(4096))));
        engine.buffer(0).fill(0);
        engine.submit(&[Request { slot: 0, offset: 3 * 4096, write: false, dsync: false, ..write(0) }]).unwrap();
        done.clear();
        engine.wait(1, &mut done).unwrap();
        assert!(engine.buffer(0).iter().all(|b| *b == 4));
    }

    #[test]
    fn blocking_reads_what_it_wrote() {
        round_trip(&mut Blocking::new(4, 4096).unwrap());
    }

    #[test]
    fn libaio_reads_what_it_wrote() {
        round_trip(&mut LibAio::new(4, 4096).unwrap());
    }

    #[test]
    fn uring_reads_what_it_wrote() {
        match Uring::new(4, 4096) {
            Ok(mut ring) => round_trip(&mut ring),
            Err(e) => eprintln!("no io_uring here: {e}"),
        }
    }
}
