//! System calls without libc, whose `errno` belongs to QEMU.

use core::arch::asm;
use core::sync::atomic::AtomicU32;

const SYS_FUTEX: usize = 202;
const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;
const SYS_CLOCK_GETTIME: usize = 228;
const SYS_GETTID: usize = 186;
const ETIMEDOUT: isize = -110;
const EINTR: isize = -4;

/// `struct timespec`.
#[repr(C)]
struct Duration {
    seconds: i64,
    nanoseconds: i64,
}

/// Makes a system call; returns its result, or a negative error number.
///
/// # Safety
/// The arguments must be valid for the call.
pub(crate) unsafe fn call(number: usize, arguments: [usize; 4]) -> isize {
    let result;
    // SAFETY: the kernel preserves all registers but these; what it reads and writes through the arguments is the caller's word.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2], in("r10") arguments[3],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Why a sleep ended.
#[derive(PartialEq, Eq)]
pub(crate) enum Woken {
    /// The thread was woken, or the word no longer held the value.
    Word,
    Signal,
    Time,
}

/// Sleeps while `word` holds `value`, for at most this number of milliseconds.
pub(crate) fn wait(word: &AtomicU32, value: u32, ms: u32) -> Woken {
    let time = Duration { seconds: (ms / 1000).into(), nanoseconds: i64::from(ms % 1000) * 1_000_000 };
    let arguments = [word.as_ptr() as usize, FUTEX_WAIT_PRIVATE, value as usize, &raw const time as usize];
    // SAFETY: word and time live for the duration of the call.
    match unsafe { call(SYS_FUTEX, arguments) } {
        ETIMEDOUT => Woken::Time,
        EINTR => Woken::Signal,
        _ => Woken::Word,
    }
}

/// The calling thread's number.
pub(crate) fn thread() -> u32 {
    // SAFETY: it takes no arguments.
    unsafe { call(SYS_GETTID, [0; 4]) as u32 }
}

/// Nanoseconds of CPU time used by a thread of this process; 0 if no thread has that number.
pub(crate) fn cpu_ns(thread: u32) -> u64 {
    // MAKE_THREAD_CPUCLOCK(thread, CPUCLOCK_SCHED) of the kernel's include/linux/posix-timers.h.
    let clock = (!thread as i32) << 3 | 6;
    let mut time = Duration { seconds: 0, nanoseconds: 0 };
    // SAFETY: the kernel writes a `struct timespec`.
    unsafe { call(SYS_CLOCK_GETTIME, [clock as usize, &raw mut time as usize, 0, 0]) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

/// Writes a line to standard error.
#[cfg(preload)]
pub(crate) fn say(line: &str) {
    const SYS_WRITE: usize = 1;
    for text in [line, "\n"] {
        // SAFETY: the kernel reads the text alone.
        unsafe { call(SYS_WRITE, [2, text.as_ptr() as usize, text.len(), 0]) };
    }
}

/// Ends the process.
#[cfg(preload)]
pub(crate) fn exit(status: usize) -> ! {
    const SYS_EXIT_GROUP: usize = 231;
    loop {
        // SAFETY: it does not return.
        unsafe { call(SYS_EXIT_GROUP, [status, 0, 0, 0]) };
    }
}

/// Wakes a thread that sleeps on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the kernel only takes the word's address.
    unsafe { call(SYS_FUTEX, [word.as_ptr() as usize, FUTEX_WAKE_PRIVATE, 1, 0]) };
}
