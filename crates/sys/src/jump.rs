//! Jumps out of nested calls to a mark set before them, as `setjmp` and `longjmp` of C do, on x86-64.
//!
//! Invariant: only calls of this file are jumped out of, and they own nothing that must be dropped.

use std::arch::naked_asm;
use std::hint::black_box;

/// The registers that survive a call in the System V ABI: rbx, rbp, r12 to r15, the stack pointer, and the return address.
#[repr(C)]
#[derive(Default)]
struct JumpBuffer([u64; 8]);

/// Sets `mark` here and calls `descend(mark, depth)`. Returns 0 if that returns and 1 if it jumps to the mark.
///
/// # Safety
/// `mark` is valid for writes and `descend` jumps to no other mark that has been left.
#[unsafe(naked)]
unsafe extern "C" fn mark_and_call(
    mark: *mut JumpBuffer,
    depth: u64,
    descend: unsafe extern "C" fn(*const JumpBuffer, u64),
) -> u64 {
    naked_asm!(
        "mov [rdi], rbx",
        "mov [rdi + 8], rbp",
        "mov [rdi + 16], r12",
        "mov [rdi + 24], r13",
        "mov [rdi + 32], r14",
        "mov [rdi + 40], r15",
        "lea rax, [rsp + 8]",
        "mov [rdi + 48], rax",
        "mov rax, [rsp]",
        "mov [rdi + 56], rax",
        "sub rsp, 8",
        "call rdx",
        "add rsp, 8",
        "xor eax, eax",
        "ret",
    )
}

/// Returns from the [`mark_and_call`] that set `mark`, with the value 1.
///
/// # Safety
/// That call has not returned, and no frame between it and this one owns anything that must be dropped.
#[unsafe(naked)]
unsafe extern "C" fn jump(mark: *const JumpBuffer) -> ! {
    naked_asm!(
        "mov rbx, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov r12, [rdi + 16]",
        "mov r13, [rdi + 24]",
        "mov r14, [rdi + 32]",
        "mov r15, [rdi + 40]",
        "mov rsp, [rdi + 48]",
        "mov eax, 1",
        "jmp [rdi + 56]",
    )
}

/// Calls itself until `left` is 0, then jumps out of all these calls.
///
/// # Safety
/// `mark` was set by a [`mark_and_call`] that has not returned.
#[inline(never)]
unsafe extern "C" fn descend(mark: *const JumpBuffer, left: u64) {
    if left == 0 {
        // SAFETY: the caller's promise; the frames in between are of this function, which owns nothing.
        unsafe { jump(mark) };
    }
    // SAFETY: the caller's promise, passed on.
    unsafe { descend(mark, left - 1) };
    // Never reached; it keeps the call above from becoming a tail call.
    black_box(left);
}

/// Sets a mark and jumps to it out of `depth` nested calls, `times` times. Returns the number of jumps to the mark.
pub fn jumps(times: u64, depth: u64) -> u64 {
    let mut mark = JumpBuffer::default();
    // SAFETY: the mark is a local of ours, and `descend` jumps to it while `mark_and_call` has not returned.
    (0..times).map(|_| unsafe { mark_and_call(&raw mut mark, black_box(depth), descend) }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_jump_comes_back() {
        // Values that live across the jump are unchanged.
        let kept: Vec<u64> = (0..100).collect();
        assert_eq!(jumps(7, 10), 7);
        assert_eq!(jumps(1, 0), 1);
        assert_eq!(jumps(0, 3), 0);
        assert_eq!(kept.iter().sum::<u64>(), 4950);
    }

    #[test]
    fn a_call_that_returns_is_told_from_a_jump() {
        unsafe extern "C" fn stay(_: *const JumpBuffer, _: u64) {}
        let mut mark = JumpBuffer::default();
        // SAFETY: `stay` does not jump.
        assert_eq!(unsafe { mark_and_call(&raw mut mark, 0, stay) }, 0);
    }
}
