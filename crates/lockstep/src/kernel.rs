//! System calls without libc, whose `errno` belongs to QEMU.

use core::arch::asm;
use core::sync::atomic::AtomicU32;

const SYS_FUTEX: usize = 202;
const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;
const EAGAIN: isize = -11;

/// `struct timespec`.
#[repr(C)]
struct Duration {
    seconds: i64,
    nanoseconds: i64,
}

/// A system call; its result, or an error's number below zero.
///
/// # Safety
/// The arguments must be what the call takes.
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

/// Sleeps while `word` holds `value`, until woken. `false` after a signal or `seconds`.
pub(crate) fn wait(word: &AtomicU32, value: u32, seconds: u32) -> bool {
    let patience = Duration { seconds: seconds.into(), nanoseconds: 0 };
    let arguments = [word.as_ptr() as usize, FUTEX_WAIT_PRIVATE, value as usize, &raw const patience as usize];
    // SAFETY: word and patience live for the duration of the call.
    let result = unsafe { call(SYS_FUTEX, arguments) };
    result == 0 || result == EAGAIN
}

/// Wakes a thread that sleeps on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the kernel only takes the word's address.
    unsafe { call(SYS_FUTEX, [word.as_ptr() as usize, FUTEX_WAKE_PRIVATE, 1, 0]) };
}
