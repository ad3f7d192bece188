//! Samples of executed code, and the kernel's own events: `perf_event_open`, one ring buffer for each CPU.
//!
//! Invariant: records are taken from a ring only after the kernel has written them completely, and only once.

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What triggers a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A number of cycles, counted by the CPU itself; none pass while it halts. The sampling interrupt cannot be masked.
    Cycles,
    /// A number of nanoseconds, by a kernel timer. A sample is delayed while interrupts are disabled.
    CpuClock,
}

/// The members of `perf_event_attr` up to its fifth version (linux/perf_event.h, 4.8): the kernel treats missing members as 0.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attr>() == 112);

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const TRACEPOINT: u32 = 2;

/// The `sample_type` of every event here: instruction pointer, process and thread, time, CPU and call chain, which is also their order in a record.
const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 5;

/// Added at the end for tracepoints: their own fields.
const RAW: u64 = 1 << 10;

const DISABLED: u64 = 1;
const MMAP: u64 = 1 << 8;
const COMM: u64 = 1 << 9;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
const MMAP2: u64 = 1 << 23;
const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCKID: u64 = 1 << 25;

const FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const ENABLE: u64 = 0x2400;
const DISABLE: u64 = 0x2401;
const SET_OUTPUT: u64 = 0x2405;
const SET_FILTER: u64 = 0x4008_2406;

/// The offsets of `data_head` and `data_tail` in `perf_event_mmap_page`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

const PAGE: usize = 4096;

/// Bytes of a ring: with its first page, less than the 516 KiB that a user may lock for each CPU (`kernel.perf_event_mlock_kb`), and enough for a
/// second of the deepest call chains.
const DATA: usize = 64 * PAGE;

/// Most kernel functions in a tracepoint's call chain.
const DEPTH: u16 = 16;

/// One of the kernel's own events.
#[derive(Clone, Copy, Debug)]
pub struct Tracepoint<'a> {
    /// Its number in tracefs.
    pub id: u64,
    /// Whether its kernel call chain is recorded.
    pub stack: bool,
    /// The condition on its fields under which it is recorded, in the language of tracefs.
    pub filter: Option<&'a CStr>,
}

impl Trigger {
    fn event(self) -> (u32, u64) {
        match self {
            Trigger::Cycles => (HARDWARE, 0),
            Trigger::CpuClock => (SOFTWARE, 0),
        }
    }
}

fn open(attr: &Attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    // SAFETY: reads one attribute of the size that it names; makes a descriptor or fails.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, std::ptr::from_ref(attr), pid, cpu, -1 as libc::c_int, FLAG_FD_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just made, and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Cycles for each nanosecond that the calling thread runs, counted while `busy` works; an error if the CPU cannot count them.
pub fn cycles_per_ns(busy: impl FnOnce()) -> io::Result<f64> {
    let (kind, config) = Trigger::Cycles.event();
    let count = |kind, config| {
        let attr = Attr { kind, config, size: size_of::<Attr>() as u32, ..Attr::default() };
        open(&attr, 0, -1)
    };
    // The second event is the thread's running time.
    let events = [count(kind, config)?, count(SOFTWARE, 1)?];
    busy();
    let mut values = [0.0; 2];
    for (event, value) in events.iter().zip(&mut values) {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes)?;
        *value = u64::from_ne_bytes(bytes) as f64;
    }
    if values[0] == 0.0 || values[1] == 0.0 {
        return Err(io::Error::other("No cycles were counted"));
    }
    Ok(values[0] / values[1])
}

/// The samples of one CPU.
#[derive(Debug)]
pub struct Ring {
    /// The first event owns the ring; the others write to it too.
    events: Vec<OwnedFd>,
    base: NonNull<u8>,
    /// Bytes of data, a power of two.
    data: usize,
    tail: u64,
}

// SAFETY: the mapping is this value's own; its owner may read it and move the tail.
unsafe impl Send for Ring {}

impl Ring {
    /// Samples of all processes on `cpu`, one every `period` of `trigger`, with times of `CLOCK_MONOTONIC`; sampling starts with [`Ring::enable`].
    /// New processes and mappings are recorded as well.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` if this process may not observe others, `ENOENT` or `EOPNOTSUPP` if the machine does not have the trigger.
    pub fn new(trigger: Trigger, period: u64, cpu: u32) -> io::Result<Self> {
        let (kind, config) = trigger.event();
        let attr = Attr {
            kind,
            size: size_of::<Attr>() as u32,
            config,
            sample_period: period,
            sample_type: SAMPLE_TYPE,
            flags: DISABLED | MMAP | MMAP2 | COMM | COMM_EXEC | TASK | WATERMARK | SAMPLE_ID_ALL | USE_CLOCKID,
            // Nobody waits for the ring: it is read from time to time.
            wakeup_watermark: DATA as u32,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        Self::map(open(&attr, -1, cpu as i32)?, DATA)
    }

    /// The events of `points` on `cpu`, in any process: samples with their fields, in order, and new processes as in [`Ring::new`]. The ring has
    /// `data` bytes, a power of two and whole pages.
    ///
    /// # Errors
    /// As [`Ring::new`], and `EINVAL` for an invalid filter or an empty list.
    pub fn of_tracepoints(points: &[Tracepoint<'_>], cpu: u32, data: usize) -> io::Result<Self> {
        let mut ring: Option<Self> = None;
        for point in points {
            let told = if ring.is_none() { MMAP | MMAP2 | COMM | COMM_EXEC | TASK } else { 0 };
            let chain = if point.stack { 0 } else { EXCLUDE_CALLCHAIN_KERNEL };
            let attr = Attr {
                kind: TRACEPOINT,
                size: size_of::<Attr>() as u32,
                config: point.id,
                sample_period: 1,
                sample_type: SAMPLE_TYPE | RAW,
                flags: DISABLED | WATERMARK | SAMPLE_ID_ALL | USE_CLOCKID | EXCLUDE_CALLCHAIN_USER | chain | told,
                wakeup_watermark: data as u32,
                clockid: libc::CLOCK_MONOTONIC,
                sample_max_stack: DEPTH,
                ..Attr::default()
            };
            let event = open(&attr, -1, cpu as i32)?;
            if let Some(filter) = point.filter {
                control(&event, SET_FILTER, filter.as_ptr() as usize)?;
            }
            match &mut ring {
                Some(ring) => {
                    control(&event, SET_OUTPUT, ring.events[0].as_raw_fd() as usize)?;
                    ring.events.push(event);
                }
                None => ring = Some(Self::map(event, data)?),
            }
        }
        ring.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }

    fn map(event: OwnedFd, data: usize) -> io::Result<Self> {
        let (prot, len) = (libc::PROT_READ | libc::PROT_WRITE, PAGE + data);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, event.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned page 0"))?;
        Ok(Self { events: vec![event], base, data, tail: 0 })
    }

    pub fn enable(&self) -> io::Result<()> {
        self.events.iter().try_for_each(|event| control(event, ENABLE, 0))
    }

    pub fn disable(&self) -> io::Result<()> {
        self.events.iter().try_for_each(|event| control(event, DISABLE, 0))
    }

    /// Appends the whole records that were written since the last call.
    pub fn take(&mut self, to: &mut Vec<u8>) {
        let head = self.position(HEAD).load(Ordering::Acquire);
        for piece in pieces(self.tail, head, self.data).into_iter().filter(|piece| !piece.is_empty()) {
            let at = to.len();
            to.resize(at + piece.len(), 0);
            // SAFETY: within the data that follow the first page. The kernel wrote it before it moved the head, and writes there again only
            // after the tail has been moved.
            unsafe {
                let from = self.base.as_ptr().add(PAGE + piece.start);
                std::ptr::copy_nonoverlapping(from, to[at..].as_mut_ptr(), piece.len());
            }
        }
        // Everything has been read before the kernel may write there again.
        fence(Ordering::SeqCst);
        self.tail = head;
        self.position(TAIL).store(head, Ordering::Release);
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the first page, which the kernel too reads and writes whole.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, to which no reference exists.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGE + self.data) };
    }
}

fn control(event: &OwnedFd, request: u64, argument: usize) -> io::Result<()> {
    // SAFETY: takes nothing, a descriptor's number, or a string that ends with 0 and is there until the call returns.
    match unsafe { libc::ioctl(event.as_raw_fd(), request as _, argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The places of the bytes from `tail` to `head` (which only grow) in a ring of `size` bytes: up to its end, and from its beginning.
fn pieces(tail: u64, head: u64, size: usize) -> [Range<usize>; 2] {
    let len = (head.saturating_sub(tail) as usize).min(size);
    let start = (tail % size as u64) as usize;
    let first = len.min(size - start);
    [start..start + first, 0..len - first]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_round_the_end_is_in_two_pieces() {
        for (tail, head, is) in [
            (0, 0, [0..0, 0..0]),
            (0, 8, [0..8, 0..0]),
            (8, 64, [8..64, 0..0]),
            (56, 80, [56..64, 0..16]),
            (64 + 56, 64 + 80, [56..64, 0..16]),
            (8, 72, [8..64, 0..8]),
        ] {
            assert_eq!(pieces(tail, head, 64), is, "{tail}..{head}");
        }
    }

    /// Samples only if this process may; otherwise the error says so.
    #[test]
    fn a_ring_has_samples_or_says_that_it_may_not() {
        match Ring::new(Trigger::CpuClock, 1_000_000, 0) {
            Ok(mut ring) => {
                ring.enable().unwrap();
                let mut bytes = Vec::new();
                while bytes.is_empty() {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    ring.take(&mut bytes);
                }
                ring.disable().unwrap();
                // A record's header has its size in the last two of eight bytes.
                let size = u16::from_ne_bytes([bytes[6], bytes[7]]);
                assert!(size >= 8 && size.is_multiple_of(8) && usize::from(size) <= bytes.len());
            }
            Err(e) => assert!(
                matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::ENOSYS | libc::ENOENT)),
                "{e}"
            ),
        }
    }

    #[test]
    fn cycles_are_counted_or_are_not_there() {
        let busy = || super::super::spin::iterations(1_000_000);
        if let Ok(rate) = cycles_per_ns(busy) {
            assert!(rate > 0.0 && rate < 20.0, "{rate}");
        }
    }
}
