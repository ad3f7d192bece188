//! A loop of exactly known cost.

use std::arch::asm;

/// Executes `n` times two instructions (`dec`, `jnz`).
pub fn iterations(n: u64) {
    if n == 0 {
        return;
    }
    // SAFETY: only the register operand and the flags are changed.
    unsafe {
        asm!("2:", "dec {n}", "jnz 2b", n = inout(reg) n => _, options(nomem, nostack));
    }
}
