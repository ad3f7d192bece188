//! Marks in the instruction stream: what the exact profile's plugin looks for (crates/profile), and nothing to anybody else.

use std::arch::asm;

use bigiron_profile::Mark;

const BEGIN: u64 = u64::from_le_bytes(Mark::Begin.instruction());
const END: u64 = u64::from_le_bytes(Mark::End.instruction());
const CUT: u64 = u64::from_le_bytes(Mark::Cut.instruction());

/// What is measured begins here.
#[inline(always)]
pub fn begin() {
    // SAFETY: a NOP; it is not moved over accesses to memory.
    unsafe { asm!(".quad {}", const BEGIN, options(nostack, preserves_flags)) };
}

/// What is measured ends here; another span may begin.
#[inline(always)]
pub fn end() {
    // SAFETY: as above.
    unsafe { asm!(".quad {}", const END, options(nostack, preserves_flags)) };
}

/// What the spans since the last cut have measured is one window.
#[inline(always)]
pub fn cut() {
    // SAFETY: as above.
    unsafe { asm!(".quad {}", const CUT, options(nostack, preserves_flags)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the machine code of this program has `mark` in it: what was translated otherwise would never be found.
    fn has(mark: Mark) -> bool {
        let program = std::fs::read("/proc/self/exe").unwrap();
        program.windows(8).any(|bytes| bytes == mark.instruction())
    }

    #[test]
    fn marks_are_nops_of_these_very_bytes() {
        begin();
        end();
        cut();
        assert!([Mark::Begin, Mark::End, Mark::Cut].into_iter().all(has));
    }
}
