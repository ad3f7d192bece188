//! `io_submit` and its completion ring, without libaio.
//!
//! Invariant: completions are taken from the ring that the kernel maps into this process; `io_getevents` is called only when the ring does not hold
//! enough.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::buffers::Buffers;
use super::{Completion, Engine, Request, check, explain};

// The kernel's ABI of io_submit (include/uapi/linux/aio_abi.h), little-endian.
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

/// The structure at the context's address (struct aio_ring of fs/aio.c, unchanged since Linux 2.6): the events follow it.
#[repr(C)]
struct Ring {
    id: u32,
    /// Number of events.
    nr: u32,
    /// Next event to take; moved by this process.
    head: AtomicU32,
    /// Next event to fill; moved by the kernel.
    tail: AtomicU32,
    magic: u32,
    compat_features: u32,
    incompat_features: u32,
    header_length: u32,
}

const RING_MAGIC: u32 = 0xa10a_10a1;

/// Linux AIO.
pub struct LibAio {
    context: u64,
    /// Whether the context is a ring of the known layout.
    mapped: bool,
    buffers: Buffers,
    iocbs: Vec<Iocb>,
    /// The argument of one io_submit call.
    pointers: Vec<*mut Iocb>,
    events: Vec<IoEvent>,
}

// SAFETY: the pointers are to this value's own iocbs, the context belongs to the process, not to a thread.
unsafe impl Send for LibAio {}

impl LibAio {
    /// An engine with `depth` buffers of `block` bytes.
    pub fn new(depth: usize, block: usize) -> io::Result<Self> {
        let mut context = 0u64;
        // SAFETY: io_setup writes one word to the pointer given.
        check(unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) }).map_err(|e| {
            match e.raw_os_error() {
                Some(libc::EAGAIN) => explain(&e, "All AIO contexts are in use (sysctl fs.aio-max-nr)"),
                Some(libc::ENOSYS) => explain(&e, "This kernel has no AIO (CONFIG_AIO)"),
                _ => e,
            }
        })?;
        let buffers = Buffers::new(depth, block)?;
        // SAFETY: a context is the address of its ring's first page, mapped readable until io_destroy.
        let ring = unsafe { &*(context as *const Ring) };
        let mapped = ring.magic == RING_MAGIC
            && ring.incompat_features == 0
            && ring.header_length as usize == size_of::<Ring>()
            && ring.nr > 0;
        Ok(Self {
            context,
            mapped,
            buffers,
            iocbs: vec![Iocb::default(); depth],
            pointers: Vec::with_capacity(depth),
            events: vec![IoEvent::default(); depth],
        })
    }

    /// Takes at most `max` events from the ring, without a system call.
    fn reap(&mut self, max: usize, done: &mut Vec<Completion>) -> usize {
        if !self.mapped {
            return 0;
        }
        // SAFETY: mapped until io_destroy, which only drop calls.
        let ring = unsafe { &*(self.context as *const Ring) };
        let tail = ring.tail.load(Acquire) % ring.nr;
        let mut head = ring.head.load(Relaxed) % ring.nr;
        let mut taken = 0;
        while head != tail && taken < max {
            let at = self.context as usize + size_of::<Ring>() + head as usize * size_of::<IoEvent>();
            // SAFETY: event `head` of `nr` behind the header; filled by the kernel before it moved the tail (acquired).
            let event = unsafe { (at as *const IoEvent).read_volatile() };
            self.end(&event, done);
            head = if head + 1 == ring.nr { 0 } else { head + 1 };
            taken += 1;
        }
        if taken > 0 {
            ring.head.store(head, Release);
        }
        taken
    }

    fn end(&mut self, event: &IoEvent, done: &mut Vec<Completion>) {
        let slot = event.data as usize;
        self.buffers.give_back(slot);
        done.push(Completion { slot, res: event.res });
    }

    fn get_events(&mut self, min: usize, max: usize, done: &mut Vec<Completion>) -> io::Result<usize> {
        let max = max.min(self.events.len());
        // SAFETY: `events` has room for the count passed.
        let got = check(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                min,
                max,
                self.events.as_mut_ptr(),
                std::ptr::null::<libc::timespec>(),
            )
        });
        match got {
            Ok(n) => {
                for i in 0..n as usize {
                    let event = self.events[i];
                    self.end(&event, done);
                }
                Ok(n as usize)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(e) => Err(e),
        }
    }
}

impl Engine for LibAio {
    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.buffers.get(slot)
    }

    fn submit(&mut self, requests: &[Request<'_>]) -> io::Result<()> {
        self.buffers.take_all(requests)?;
        self.pointers.clear();
        for r in requests {
            let buf = self.buffers.pointer(r.slot);
            let iocb = &mut self.iocbs[r.slot];
            *iocb = Iocb {
                data: r.slot as u64,
                rw_flags: r.flags(),
                opcode: if r.write { IOCB_CMD_PWRITE } else { IOCB_CMD_PREAD },
                fd: r.fd.as_raw_fd() as u32,
                buf: buf as u64,
                nbytes: r.len as u64,
                offset: r.offset as i64,
                ..Iocb::default()
            };
            self.pointers.push(&raw mut *iocb);
        }
        let mut sent = 0;
        while sent < requests.len() {
            // SAFETY: the iocbs live in self and are not moved or reused before their slot completes; so do the buffers.
            let taken = check(unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, requests.len() - sent, self.pointers[sent..].as_ptr())
            });
            match taken {
                Ok(n) => sent += n as usize,
                Err(e) => {
                    for r in &requests[sent..] {
                        self.buffers.give_back(r.slot);
                    }
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, min: usize, max: usize, done: &mut Vec<Completion>) -> io::Result<()> {
        if min > max || min > self.buffers.pending() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut got = self.reap(max, done);
        while got < min {
            got += self.get_events(min - got, max - got, done)?;
        }
        if !self.mapped && min == 0 && max > 0 {
            self.get_events(0, max, done)?;
        }
        Ok(())
    }

    fn pending(&self) -> usize {
        self.buffers.pending()
    }

    fn describe(&self) -> String {
        if self.mapped { "io_submit, completions from the mapped ring" } else { "io_submit, io_getevents" }.to_owned()
    }
}

impl Drop for LibAio {
    fn drop(&mut self) {
        // SAFETY: the context made in `new`; io_destroy waits for everything in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
