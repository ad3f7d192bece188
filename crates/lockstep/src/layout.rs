//! Where QEMU 7.2 has what [`crate::quanta`] reads and writes: bytes from the beginning of its `CPUState` and `TimersState`.
//!
//! Invariant: used only where [`fits`] has found these numbers in QEMU's own code.

use core::ffi::{CStr, c_void};

/// `running`: the vCPU is executing, or about to.
pub(crate) const RUNNING: usize = 0xbc;
/// `interrupt_request`.
pub(crate) const INTERRUPTS: usize = 0xd8;
/// `icount_budget`: instructions that may pass before the next timer, of which `icount_extra` and the counter are left.
pub(crate) const BUDGET: usize = 0xe0;
pub(crate) const EXTRA: usize = 0xe8;
/// `jmp_env`.
pub(crate) const JUMP: usize = 0xf8;
/// `node`, the next vCPU.
pub(crate) const NEXT: usize = 0x248;
pub(crate) const HALTED: usize = 0x2fc;
/// `icount_decr.u16.low`, beyond the `CPUState`.
pub(crate) const COUNTER: usize = 0x13a0;

/// `qemu_icount_bias` and `qemu_icount`, whose sum is the time.
pub(crate) const BIAS: usize = 40;
pub(crate) const ICOUNT: usize = 64;

/// Bytes of a function that are searched.
const LENGTH: usize = 96;

/// Whether QEMU's functions, which `function` finds by their names, use these places. `clock` is its `timers_state`.
///
/// # Safety
/// The functions must have at least [`LENGTH`] bytes that can be read, with those that follow them.
pub(crate) unsafe fn fits(function: impl Fn(&CStr) -> *const c_void, clock: *const u8) -> bool {
    let code = |name: &CStr| {
        let start = function(name).cast::<u8>();
        // SAFETY: the caller's word.
        (!start.is_null()).then(|| unsafe { core::slice::from_raw_parts(start, LENGTH) })
    };
    let (Some(start), Some(idle), Some(execute), Some(exit), Some(raw), Some(time)) = (
        code(c"cpu_exec_start"),
        code(c"all_cpu_threads_idle"),
        code(c"cpu_exec"),
        code(c"cpu_loop_exit"),
        code(c"icount_get_raw"),
        code(c"icount_get"),
    ) else {
        return false;
    };
    // icount_get_raw calls the function that adds up the time: call rel32.
    let Some(called) = raw.iter().position(|b| *b == 0xe8).and_then(|at| target(raw, at + 1)) else { return false };
    // SAFETY: QEMU's code as well.
    let update = unsafe { core::slice::from_raw_parts(called, LENGTH) };
    with(start, &[0xc6, 0x87], RUNNING) // movb $1, running(%rdi)
        && with(idle, &[0x48, 0x8b, 0x9b], NEXT) // mov next(%rbx), %rbx
        && with(execute, &[0x44, 0x8b, 0xaf], HALTED) // mov halted(%rdi), %r13d
        && with(execute, &[0xf6, 0x87], INTERRUPTS) // testb $POLL, interrupt_request(%rdi)
        && with(exit, &[0x48, 0x81, 0xc7], JUMP) // add $jmp_env, %rdi
        && with(update, &[0x0f, 0xb7, 0x88], COUNTER) // movzwl low(%rax), %ecx
        && with(update, &[0x48, 0x03, 0x88], EXTRA) // add extra(%rax), %rcx
        && with(update, &[0x48, 0x8b, 0x90], BUDGET) // mov budget(%rax), %rdx
        && refers(update, &[0x48, 0x8b, 0x05], clock.wrapping_add(ICOUNT)) // mov qemu_icount(%rip), %rax
        && refers(time, &[0x48, 0x8b, 0x35], clock.wrapping_add(BIAS)) // mov bias(%rip), %rsi
}

/// Whether the code has an instruction that begins so and whose displacement is `place`.
fn with(code: &[u8], begins: &[u8], place: usize) -> bool {
    let place = (place as u32).to_le_bytes();
    code.windows(begins.len() + 4).any(|bytes| bytes.starts_with(begins) && bytes.ends_with(&place))
}

/// Whether the code has an instruction that begins so and reads `place`.
fn refers(code: &[u8], begins: &[u8], place: *const u8) -> bool {
    let mut found = code.windows(begins.len()).enumerate().filter(|(_, bytes)| *bytes == begins);
    found.any(|(at, _)| target(code, at + begins.len()) == Some(place))
}

/// What the displacement at the end of an instruction, relative to the next one, stands for.
fn target(code: &[u8], at: usize) -> Option<*const u8> {
    let bytes = code.get(at..at + 4)?;
    let offset = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Some(code.as_ptr().wrapping_add(at + 4).wrapping_offset(offset as isize))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions as Debian's QEMU 7.2 has them, with a clock behind them.
    fn functions() -> Vec<[u8; LENGTH]> {
        let mut code = vec![[0x90; LENGTH]; 8];
        code[0][..7].copy_from_slice(&[0xc6, 0x87, 0xbc, 0, 0, 0, 1]);
        code[1][16..23].copy_from_slice(&[0x48, 0x8b, 0x9b, 0x48, 0x02, 0, 0]);
        code[2][70..77].copy_from_slice(&[0x44, 0x8b, 0xaf, 0xfc, 0x02, 0, 0]);
        code[2][82..89].copy_from_slice(&[0xf6, 0x87, 0xd8, 0, 0, 0, 0x10]);
        code[3][4..11].copy_from_slice(&[0x48, 0x81, 0xc7, 0xf8, 0, 0, 0]);
        let to = |from: usize, to: usize| ((to as i64 - from as i64) as i32).to_le_bytes();
        code[4][14] = 0xe8;
        code[4][15..19].copy_from_slice(&to(4 * LENGTH + 19, 6 * LENGTH));
        code[5][19..22].copy_from_slice(&[0x48, 0x8b, 0x35]);
        code[5][22..26].copy_from_slice(&to(5 * LENGTH + 26, 7 * LENGTH + BIAS));
        code[6][35..42].copy_from_slice(&[0x0f, 0xb7, 0x88, 0xa0, 0x13, 0, 0]);
        code[6][42..49].copy_from_slice(&[0x48, 0x03, 0x88, 0xe8, 0, 0, 0]);
        code[6][49..56].copy_from_slice(&[0x48, 0x8b, 0x90, 0xe0, 0, 0, 0]);
        code[6][63..66].copy_from_slice(&[0x48, 0x8b, 0x05]);
        code[6][66..70].copy_from_slice(&to(6 * LENGTH + 70, 7 * LENGTH + ICOUNT));
        code
    }

    const NAMES: [&CStr; 6] =
        [c"cpu_exec_start", c"all_cpu_threads_idle", c"cpu_exec", c"cpu_loop_exit", c"icount_get_raw", c"icount_get"];

    fn fit(code: &[[u8; LENGTH]]) -> bool {
        let at =
            |name: &CStr| NAMES.iter().position(|n| *n == name).map_or(core::ptr::null(), |n| code[n].as_ptr().cast());
        // SAFETY: the code is there.
        unsafe { fits(at, code[7].as_ptr()) }
    }

    #[test]
    fn only_a_qemu_with_these_places_fits() {
        assert!(fit(&functions()));
        for (function, at) in
            [(0, 2), (1, 19), (2, 73), (2, 84), (3, 7), (4, 15), (5, 22), (6, 38), (6, 45), (6, 52), (6, 66)]
        {
            let mut other = functions();
            other[function][at] ^= 0x80;
            assert!(!fit(&other), "{function} {at}");
        }
    }
}
