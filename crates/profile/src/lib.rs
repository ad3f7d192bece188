//! A plugin of QEMU's with two duties under `-icount`.
//!
//! It drives the guest's virtual time (`moves=WEIGHTS`): an instruction that moves memory repeatedly costs what a processor takes for its bytes, by a
//! set of [`Weights`], and not one instruction for each iteration.
//!
//! It makes the exact profile (`out=PATH`): it counts every instruction that a guest executes, by virtual address, inside windows that the guest's
//! program marks. A mark is an 8-byte NOP (`nopl disp32(%rax,%rax,1)`) with a displacement that no compiler generates. It costs one instruction, needs
//! no privilege, and has no effect on a processor or under a QEMU that does not look for it, so the judged and the profiled programs are the same.
//! QEMU's inline additions do the counting and execute none of the guest's instructions, so virtual time does not change. The plugin writes one block
//! for each [`Mark::Cut`], see [`Windows`].
//!
//! Code is translated with what counts only between [`Mark::Instrument`] and [`Mark::Release`]: a guest boots, and tells its symbols at its end, as fast
//! as one that is not profiled.
//!
//! Invariant: counts cover the instructions between a [`Mark::Begin`] and the next [`Mark::End`], in any process; counts of several spans add up
//! until they are cut. Where moves have a cost of their own, it is what is counted.

#![cfg_attr(not(test), no_std)]

#[cfg(any(plugin, test))]
mod blocks;
#[cfg(any(plugin, test))]
mod cache;
#[cfg(plugin)]
mod clock;
#[cfg(plugin)]
mod counts;
pub mod events;
pub mod geometry;
#[cfg(plugin)]
mod guest;
#[cfg(any(plugin, test))]
mod icount;
#[cfg(any(plugin, test))]
mod instruction;
#[cfg(any(plugin, test))]
#[cfg_attr(test, allow(dead_code))]
mod kernel;
#[cfg(any(plugin, test))]
mod mapping;
#[cfg(plugin)]
mod memory;
#[cfg(plugin)]
mod model;
#[cfg(any(plugin, test))]
mod page_table;
#[cfg(plugin)]
mod plugin;
#[cfg(any(plugin, test))]
mod predictor;
#[cfg(any(plugin, test))]
mod processor;
#[cfg(any(plugin, test))]
mod rows;
#[cfg(any(plugin, test))]
mod sampler;
#[cfg(plugin)]
mod scores;
#[cfg(any(plugin, test))]
mod shape;
#[cfg(plugin)]
mod stage;
#[cfg(any(plugin, test))]
mod straight;
#[cfg(any(plugin, test))]
mod strings;
#[cfg(any(plugin, test))]
mod table;
#[cfg(any(plugin, test))]
mod tlb;

mod weights;
mod windows;

pub use weights::Weights;
pub use windows::{Truncated, Window, Windows};

/// The first eight bytes of the file, little-endian: `BIGPROF4`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BIGPROF4");

/// Replaces a window's number of addresses if there were too many for the plugin; nothing was counted from then on.
pub const OVERFLOW: u64 = u64::MAX;

/// The meaning of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    /// Counting begins.
    Begin = 1,
    /// Counting pauses.
    End = 2,
    /// The counts since the last cut are written as one window.
    Cut = 3,
    /// Windows may follow: from here on code is translated with what counts, which makes it several times slower.
    Instrument = 4,
    /// No window follows until the next [`Mark::Instrument`].
    Release = 5,
}

impl Mark {
    /// Bytes of the instruction.
    pub const LEN: usize = 8;

    /// The encoding: `0f 1f 84 00`, then this mark's number and `42 49 67`.
    pub const fn instruction(self) -> [u8; Self::LEN] {
        [0x0f, 0x1f, 0x84, 0x00, self as u8, 0x42, 0x49, 0x67]
    }

    /// Every mark.
    pub const ALL: [Mark; 5] = [Mark::Begin, Mark::End, Mark::Cut, Mark::Instrument, Mark::Release];

    /// The mark that an instruction encodes, if any.
    pub fn of(instruction: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| mark.instruction() == instruction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_known_by_its_bytes_and_nothing_else_is_one() {
        for mark in Mark::ALL {
            assert_eq!(Mark::of(&mark.instruction()), Some(mark));
        }
        // The longest NOP that assemblers use for padding.
        assert_eq!(Mark::of(&[0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0]), None);
        assert_eq!(Mark::of(&Mark::Begin.instruction()[..7]), None);
    }
}
