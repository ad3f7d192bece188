//! The calling thread.

use core::arch::asm;
use core::ffi::CStr;

use crate::kernel::{self, call};

const SYS_GETPID: usize = 39;
const SYS_PRCTL: usize = 157;
const PR_SET_NAME: usize = 15;

/// Whether it is the process's first thread.
pub(crate) fn is_first() -> bool {
    // SAFETY: it takes no arguments.
    kernel::thread() == unsafe { call(SYS_GETPID, [0; 4]) } as u32
}

/// A value that differs between threads, obtained without a system call.
pub(crate) fn pointer() -> usize {
    let pointer;
    // SAFETY: on x86-64 the word at fs:0 holds its own address, in every thread.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags, pure)) };
    pointer
}

/// Sets its name.
pub(crate) fn name(name: &CStr) {
    // SAFETY: the kernel reads at most 16 bytes, and no further than the zero.
    unsafe { call(SYS_PRCTL, [PR_SET_NAME, name.as_ptr() as usize, 0, 0]) };
}
