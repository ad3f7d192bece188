//! Marks in the instruction stream, which the exact profile's plugin looks for (crates/profile); they have no other effect. If samples are taken
//! instead, a mark is also recorded with its time.
//!
//! Invariant: unless [`arm`] was called, a mark is a NOP, a load and a jump not taken, the same in every trial.

use std::arch::asm;
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use bigiron_profile::Mark;
use rustix::time::{ClockId, clock_gettime};

use super::shared_memory::SharedMemory;

const BEGIN: u64 = u64::from_le_bytes(Mark::Begin.instruction());
const END: u64 = u64::from_le_bytes(Mark::End.instruction());
const CUT: u64 = u64::from_le_bytes(Mark::Cut.instruction());
const INSTRUMENT: u64 = u64::from_le_bytes(Mark::Instrument.instruction());
const RELEASE: u64 = u64::from_le_bytes(Mark::Release.instruction());

/// Says that windows may follow; a guest whose clock counts instructions is slow until [`release`].
#[inline(always)]
pub fn instrument() {
    // SAFETY: a NOP.
    unsafe { asm!(".quad {}", const INSTRUMENT, options(nostack, preserves_flags)) };
}

/// Says that no window follows until [`instrument`].
///
/// The division is for QEMU before 8.0: there, an instruction that calls a function of QEMU's and ends its block of code (IRET) leaves a pointer to its
/// callbacks behind, which would still be followed when they have been freed. An instruction that calls one within its block clears the pointer. The
/// jump ends the block.
#[inline(always)]
pub fn release() {
    // SAFETY: one divided by one, a NOP, and a jump to what follows.
    unsafe {
        asm!(
            "div {one:e}",
            ".quad {mark}",
            "jmp 2f",
            "2:",
            one = in(reg) 1_u32,
            mark = const RELEASE,
            inout("eax") 1_u32 => _,
            inout("edx") 0_u32 => _,
            options(nostack),
        );
    }
}

/// Begins a measured span.
#[inline(always)]
pub fn begin() {
    // Outside the counted span, as at the end.
    stamp(Mark::Begin);
    // SAFETY: a NOP; it is not moved over accesses to memory.
    unsafe { asm!(".quad {}", const BEGIN, options(nostack, preserves_flags)) };
}

/// Ends a measured span; another may begin.
#[inline(always)]
pub fn end() {
    // SAFETY: as above.
    unsafe { asm!(".quad {}", const END, options(nostack, preserves_flags)) };
    stamp(Mark::End);
}

/// Ends a window, which consists of the spans since the last cut.
#[inline(always)]
pub fn cut() {
    // SAFETY: as above.
    unsafe { asm!(".quad {}", const CUT, options(nostack, preserves_flags)) };
    stamp(Mark::Cut);
}

/// Most recorded marks: half a million spans, in memory that is populated only when touched.
const MOST: usize = 1 << 20;

/// The recorded marks: a count, then one word each, the time in nanoseconds times four plus the mark.
static STAMPS: AtomicPtr<SharedMemory> = AtomicPtr::new(std::ptr::null_mut());

/// From now on, this process and all processes that it forks record their marks.
///
/// # Errors
/// There is no memory for them.
pub fn arm() -> io::Result<()> {
    let stamps = Box::leak(Box::new(SharedMemory::new(8 * (1 + MOST))?));
    STAMPS.store(stamps, Ordering::Release);
    Ok(())
}

#[inline(always)]
fn stamp(mark: Mark) {
    let stamps = STAMPS.load(Ordering::Relaxed);
    if !stamps.is_null() {
        write(stamps, mark);
    }
}

#[cold]
fn write(stamps: *const SharedMemory, mark: Mark) {
    // SAFETY: leaked in `arm`, so that it is there for good, here and in forked children.
    let stamps = unsafe { &*stamps };
    let time = clock_gettime(ClockId::Monotonic);
    let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    let place = stamps.at::<AtomicU64>(0).fetch_add(1, Ordering::AcqRel) as usize;
    if place < MOST {
        stamps.at::<AtomicU64>(8 * (1 + place)).store(ns << 2 | mark as u64, Ordering::Release);
    }
}

/// The marks since [`arm`], with the nanoseconds of `CLOCK_MONOTONIC`, in order; `None` if there were too many or none are recorded.
pub fn written() -> Option<Vec<(Mark, u64)>> {
    let stamps = STAMPS.load(Ordering::Acquire);
    // SAFETY: null, or leaked in `arm`.
    let stamps = unsafe { stamps.as_ref() }?;
    let count = stamps.at::<AtomicU64>(0).load(Ordering::Acquire) as usize;
    if count > MOST {
        return None;
    }
    let words = stamps.slice::<AtomicU64>(8, count).iter().map(|word| word.load(Ordering::Acquire));
    let mark = |word: u64| [Mark::Begin, Mark::End, Mark::Cut].into_iter().find(|mark| *mark as u64 == word & 3);
    Some(words.filter_map(|word| Some((mark(word)?, word >> 2))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this program's machine code contains `mark`: a different encoding would never be found.
    fn has(mark: Mark) -> bool {
        let program = std::fs::read("/proc/self/exe").unwrap();
        program.windows(8).any(|bytes| bytes == mark.instruction())
    }

    #[test]
    fn marks_are_nops_of_these_very_bytes() {
        begin();
        end();
        cut();
        instrument();
        release();
        assert!(Mark::ALL.into_iter().all(has));
    }

    /// In a separate process, so that the marks of other tests are not recorded.
    #[test]
    fn marks_of_forked_children_are_written_down_in_order() {
        let child = crate::process::fork_child(|| {
            begin();
            if written().is_some() || arm().is_err() {
                return 1;
            }
            begin();
            let grandchild = crate::process::fork_child(|| {
                end();
                0
            });
            if grandchild.and_then(crate::process::Child::wait).is_err() {
                return 2;
            }
            cut();
            let Some(marks) = written() else { return 3 };
            let kinds: Vec<_> = marks.iter().map(|(mark, _)| *mark).collect();
            let in_order = marks.is_sorted_by_key(|(_, ns)| *ns);
            if kinds == [Mark::Begin, Mark::End, Mark::Cut] && in_order { 0 } else { 4 }
        });
        assert_eq!(child.unwrap().wait().unwrap(), crate::process::Exit::Status(0));
    }
}
