//! The PAUSE instruction of a guest with one vCPU.
//!
//! At each PAUSE, QEMU leaves the loop that executes a vCPU, so that another vCPU gets its turn: some 300 ns of the host's time for an instruction
//! that takes one of the guest's. Kernels calibrate their APIC timer with 100 ms of nothing but PAUSE and RDTSC, which is a third of the cost of a
//! boot. Without another vCPU the loop may as well continue: QEMU marks the exit with an exception number, which this code resets on the way to the
//! loop, so that the loop executes the next instruction.
//!
//! Invariant: the guest executes the same instructions at the same virtual time. Other requests for the vCPU (a timer, an interrupt, the main loop)
//! are still checked before that instruction. Code that differs from the known forms of QEMU's `helper_pause` and `cpu_loop_exit` is left alone.

use core::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// QEMU's `EXCP_INTERRUPT`: the loop ends.
const INTERRUPT: i32 = 0x10000;
/// No exception: the loop goes on.
const NONE: i32 = -1;

/// Words of the stack, from the return address of a jump on, that include the return address of the caller of `cpu_loop_exit`.
const WORDS: usize = 5;
/// Bytes of `cpu_loop_exit` that are examined.
const LENGTH: usize = 64;

/// The known parts of QEMU's code.
pub(crate) struct Pause {
    /// The address at which `helper_pause` would continue; 0 until the first PAUSE.
    after: AtomicUsize,
    /// The word of the stack that holds that address.
    word: AtomicUsize,
    /// Bytes from the jump's buffer, a field of the vCPU, to the number of its exception.
    distance: AtomicI64,
}

impl Pause {
    pub(crate) const fn new() -> Self {
        Pause { after: AtomicUsize::new(0), word: AtomicUsize::new(0), distance: AtomicI64::new(0) }
    }

    /// A thread is about to jump to `buffer`. `text` holds the addresses of the first and the last byte of the code that contains `cpu_loop_exit`,
    /// which is at `exit`.
    ///
    /// # Safety
    /// `stack` must be that of the calling thread, with [`WORDS`] words; `text` must be readable; code in it that looks like QEMU's must be QEMU's.
    pub(crate) unsafe fn look(&self, buffer: *mut u8, stack: *const usize, exit: usize, text: (usize, usize)) {
        // SAFETY: the caller's word.
        let words = unsafe { core::slice::from_raw_parts(stack, WORDS) };
        if !(exit..exit + LENGTH).contains(&words[0]) {
            return;
        }
        if self.after.load(Ordering::Relaxed) == 0 {
            // SAFETY: the caller's word.
            let code = unsafe { core::slice::from_raw_parts(text.0 as *const u8, text.1 - text.0) };
            let Some((word, after, distance)) = find(words, code, text.0, exit) else { return };
            self.word.store(word, Ordering::Relaxed);
            self.distance.store(distance, Ordering::Relaxed);
            self.after.store(after, Ordering::Relaxed);
        }
        if words[self.word.load(Ordering::Relaxed)] != self.after.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: both are fields of the same vCPU, so far from each other by QEMU's own code.
        let exception = unsafe { &mut *buffer.offset(self.distance.load(Ordering::Relaxed) as isize).cast::<i32>() };
        if *exception == INTERRUPT {
            *exception = NONE;
        }
    }
}

/// Finds the word of the stack with the return address of code that sets [`INTERRUPT`] and calls `cpu_loop_exit`; returns the word's index, that
/// address, and the bytes from the jump's buffer to the exception's number. `code` begins at the address `start`.
fn find(words: &[usize], code: &[u8], start: usize, exit: usize) -> Option<(usize, usize, i64)> {
    let buffer = buffer(code.get(exit - start..)?)?;
    let (word, after, exception) = words.iter().enumerate().skip(1).find_map(|(n, &after)| {
        // movl $0x10000, exception(%rdi); call cpu_loop_exit
        let at = after.checked_sub(start)?.checked_sub(15)?;
        let [0xc7, 0x87, field @ .., 0xe8, c0, c1, c2, c3] = code.get(at..at + 15)? else { return None };
        let (field, value) = field.split_at(4);
        let call = i32::from_le_bytes([*c0, *c1, *c2, *c3]);
        let is = number(value)? == INTERRUPT && after.wrapping_add_signed(call as isize) == exit;
        is.then(|| Some((n, after, number(field)?)))?
    })?;
    Some((word, after, i64::from(exception) - i64::from(buffer)))
}

/// The offset in a vCPU of the buffer to which `cpu_loop_exit` jumps.
fn buffer(exit: &[u8]) -> Option<i32> {
    exit.get(..LENGTH)?.windows(7).find_map(|bytes| match bytes {
        // add $buffer, %rdi; or lea buffer(%rdi), %rdi
        [0x48, 0x81, 0xc7, field @ ..] | [0x48, 0x8d, 0xbf, field @ ..] => number(field),
        _ => None,
    })
}

fn number(bytes: &[u8]) -> Option<i32> {
    Some(i32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QEMU's two functions as in Debian's version 7.2, and the offset at which the first continues.
    fn qemu(field: i32, value: i32) -> (Vec<u8>, usize) {
        let mut code = vec![0x90; 256];
        let exit = 128_i32;
        code[..2].copy_from_slice(&[0xc7, 0x87]);
        code[2..6].copy_from_slice(&field.to_le_bytes());
        code[6..10].copy_from_slice(&value.to_le_bytes());
        code[10] = 0xe8;
        code[11..15].copy_from_slice(&(exit - 15).to_le_bytes());
        let exit = exit as usize;
        code[exit..exit + 4].copy_from_slice(&[0x48, 0x83, 0xec, 0x08]);
        code[exit + 4..exit + 11].copy_from_slice(&[0x48, 0x81, 0xc7, 0xf8, 0, 0, 0]);
        (code, 15)
    }

    /// The remaining exception after jumps by this code with `exception`, from a caller that would continue at `after`.
    fn left(code: &[u8], after: usize, exception: i32) -> i32 {
        let mut vcpu = vec![0_i32; 1024];
        vcpu[0x304 / 4] = exception;
        let start = code.as_ptr() as usize;
        let exit = start + 128;
        let stack = [exit + 31, 0, start + after, 0, 0];
        let pause = Pause::new();
        for _ in 0..2 {
            let buffer = vcpu.as_mut_ptr().cast::<u8>().wrapping_add(0xf8);
            // SAFETY: the code is read alone, and the buffer is the vCPU's.
            unsafe { pause.look(buffer, stack.as_ptr(), exit, (start, start + code.len())) };
        }
        vcpu[0x304 / 4]
    }

    #[test]
    fn a_pause_is_no_reason_to_leave_the_loop() {
        let (code, after) = qemu(0x304, INTERRUPT);
        assert_eq!(left(&code, after, INTERRUPT), NONE);
    }

    #[test]
    fn other_exits_and_other_code_are_left_alone() {
        let (code, after) = qemu(0x304, INTERRUPT);
        assert_eq!(left(&code, after, 14), 14, "a page fault");
        assert_eq!(left(&code, after + 1, INTERRUPT), INTERRUPT, "another caller");
        let (code, after) = qemu(0x304, 0x10001);
        assert_eq!(left(&code, after, INTERRUPT), INTERRUPT, "HLT");
        let (mut code, after) = qemu(0x304, INTERRUPT);
        code[132..139].fill(0x90);
        assert_eq!(left(&code, after, INTERRUPT), INTERRUPT, "another `cpu_loop_exit`");
    }
}
