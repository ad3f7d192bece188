//! The shapes of all blocks that QEMU has translated.
//!
//! Where QEMU has to end before a block does, because a timer of the guest's is due, it executes the block's beginning as a block of its own. When that
//! is depends on the host, too: QEMU also ends early for a timer that the guest has since put off, unless the host has interrupted it meanwhile.
//! So a beginning has the shape of the whole, which QEMU has always translated before.
//!
//! Invariant: a shape never moves.

use core::mem::MaybeUninit;

use crate::kernel::zeroed;
use crate::shape::Shape;
use crate::table;

/// Most blocks.
const SHAPES: usize = 4 << 20;

/// A shape, and one more than the number of the shape before it with the same start, or 0.
struct Known {
    shape: Shape,
    older: u32,
}

pub(crate) struct Blocks {
    known: &'static mut [MaybeUninit<Known>],
    used: usize,
    /// One more than the number of the latest shape, by the hash of its start; open addressing.
    index: &'static mut [u32],
}

impl Blocks {
    /// None; `None` without memory.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: zeros are numbers, and unwritten shapes.
        unsafe { Some(Self { known: zeroed(SHAPES)?, used: 0, index: zeroed(2 * SHAPES)? }) }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used == SHAPES
    }

    fn at(&self, number: u32) -> Option<&'static Known> {
        let known = self.known.get((number as usize).checked_sub(1)?)?;
        // SAFETY: numbers are of shapes that were written, in memory that is never given back, and that nothing changes.
        Some(unsafe { &*known.as_ptr() })
    }

    /// The shape of a block that was translated: its own, or that of the block of which it is the beginning. `None` if there is no room for it.
    pub(crate) fn translated(&mut self, shape: Shape) -> Option<&'static Shape> {
        let mask = self.index.len() - 1;
        let mut place = table::place(shape.start, mask);
        while self.at(self.index[place]).is_some_and(|known| known.shape.start != shape.start) {
            place = (place + 1) & mask;
        }
        let latest = self.index[place];
        let mut whole = self.at(latest);
        while let Some(Known { shape: known, older }) = whole {
            if shape.begins(known) {
                return Some(known);
            }
            whole = self.at(*older);
        }
        if self.is_full() {
            return None;
        }
        self.known[self.used].write(Known { shape, older: latest });
        self.used += 1;
        self.index[place] = self.used as u32;
        self.at(self.used as u32).map(|known| &known.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u64, first: u8, n: u64) -> Shape {
        let mut shape = Shape::new(start);
        (0..n).for_each(|k| _ = shape.add(start + 2 * k, &[if k == 0 { first } else { 0x01 }, 0xc0], 0));
        shape
    }

    #[test]
    fn a_beginning_has_the_shape_of_the_whole() {
        let mut blocks = Blocks::new().unwrap();
        let mut instructions = |start, first, n| {
            let shape = blocks.translated(block(start, first, n)).unwrap();
            (shape.start, shape.instructions)
        };
        assert_eq!(instructions(0x1000, 1, 9), (0x1000, 9));
        assert_eq!(instructions(0x1000, 1, 4), (0x1000, 9));
        // Its rest.
        assert_eq!(instructions(0x1008, 1, 5), (0x1008, 5));
        // Another program's code there, and both programs' beginnings.
        assert_eq!(instructions(0x1000, 3, 6), (0x1000, 6));
        assert_eq!((instructions(0x1000, 3, 2), instructions(0x1000, 1, 2)), ((0x1000, 6), (0x1000, 9)));
        // A larger one, of which all are beginnings now.
        assert_eq!(instructions(0x1000, 1, 12), (0x1000, 12));
        assert_eq!(instructions(0x1000, 1, 9), (0x1000, 12));
        for start in 1..10_000 {
            assert_eq!(instructions(0x1000 * start, 5, 3), (0x1000 * start, 3));
            assert_eq!(instructions(0x1000 * start, 5, 1), (0x1000 * start, 3));
        }
    }
}
