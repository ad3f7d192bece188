//! Straight-line code that QEMU executes as more than one block.
//!
//! Where QEMU divides it depends on the host: its instruction budget of 65,535 begins anew whenever the host makes it leave translated code, and a block is
//! cut where the budget ends. A block also ends early at an instruction that accesses a device, and its rest then executes as another block.
//!
//! Invariant: what it tells of instructions that execute in a row is the same however they are divided.

use crate::instruction::End;
use crate::shape::{Shape, Unrolled, Words};

/// What a block is of the code before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Control arrives here: by a branch, an interrupt, or an exception.
    First,
    /// The code goes on where a block was cut.
    Next,
    /// The rest of a block that was told of as a whole when it began.
    Rest,
}

/// The straight-line code that a core is executing.
pub(crate) struct Straight {
    /// How the block before ended, and where the instruction after it would be.
    ended: (End, u64),
    /// Start and end of the last block that was no [`Part::Rest`].
    whole: (u64, u64),
    /// Of the code since control arrived.
    words: Words,
    instructions: u64,
}

impl Straight {
    pub(crate) const fn new() -> Self {
        Self { ended: (End::Other, 0), whole: (0, 0), words: Words::NONE, instructions: 0 }
    }

    /// A block begins; tells what it is, and what of the code before, if that ends here, was unrolled. Code that an exception or an interrupt ends has none: what of it was executed depends on where it was divided.
    #[inline]
    pub(crate) fn block(&mut self, shape: &Shape) -> (Part, Unrolled) {
        let (end, next) = core::mem::replace(&mut self.ended, (shape.end, shape.next));
        let falls = next == shape.start;
        let goes = match end {
            End::Branch(target) => target == shape.start,
            End::Other => false,
            _ => true,
        };
        let is_inside = self.whole.0 < shape.start && shape.start < self.whole.1;
        // A loop within a block goes on in it, too.
        let jumps = goes && matches!(end, End::Jump | End::Repeated | End::Branch(_));
        if is_inside && !jumps {
            return (Part::Rest, Unrolled::NONE);
        }
        self.whole = (shape.start, shape.next);
        if end == End::Other && falls {
            self.words.add(shape.words);
            self.instructions += shape.instructions;
            return (Part::Next, Unrolled::NONE);
        }
        let words = core::mem::replace(&mut self.words, shape.words);
        let instructions = core::mem::replace(&mut self.instructions, shape.instructions);
        match words.unrolled(instructions) {
            Some(unrolled) if goes || falls => (Part::First, unrolled),
            _ => (Part::First, Unrolled::NONE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVE: [u8; 3] = [0x48, 0x89, 0x07];
    const BACK: [u8; 2] = [0x75, 0xf0];
    /// Ten moves and a branch.
    const TEN: Unrolled = Unrolled { instructions: 11, words: 10 };

    /// A block of moves of three bytes each, with a branch 16 bytes back or not.
    fn shape(start: u64, moves: u64, branches: bool) -> Shape {
        let mut shape = Shape::new(start, 0);
        (0..moves).for_each(|n| _ = shape.add(start + 3 * n, &MOVE));
        if branches {
            shape.add(start + 3 * moves, &BACK);
        }
        shape
    }

    #[test]
    fn a_division_changes_nothing() {
        let whole = shape(0x1000, 10, true);
        // Round the loop, and on to what follows.
        for to in [0x1010, 0x1020] {
            let mut straight = Straight::new();
            assert_eq!(straight.block(&whole), (Part::First, Unrolled::NONE));
            assert_eq!(straight.block(&shape(to, 1, false)), (Part::First, TEN));
            for cut in 1..10 {
                let mut straight = Straight::new();
                assert_eq!(straight.block(&shape(0x1000, cut, false)), (Part::First, Unrolled::NONE));
                assert_eq!(
                    straight.block(&shape(0x1000 + 3 * cut, 10 - cut, true)),
                    (Part::Next, Unrolled::NONE),
                    "after {cut}"
                );
                assert_eq!(straight.block(&shape(to, 1, false)), (Part::First, TEN), "after {cut}");
            }
        }
    }

    #[test]
    fn code_that_an_exception_ends_has_no_unrolled_instructions() {
        for cut in [None, Some(4)] {
            let mut straight = Straight::new();
            match cut {
                None => drop(straight.block(&shape(0x1000, 10, true))),
                Some(cut) => {
                    straight.block(&shape(0x1000, cut, false));
                    straight.block(&shape(0x1000 + 3 * cut, 10 - cut, true));
                }
            }
            assert_eq!(straight.block(&shape(0x9000, 9, true)), (Part::First, Unrolled::NONE), "{cut:?}");
        }
    }

    #[test]
    fn the_rest_of_a_block_that_ended_early_was_told_of() {
        let mut straight = Straight::new();
        straight.block(&shape(0x1000, 10, true));
        assert_eq!(straight.block(&shape(0x1006, 3, false)), (Part::Rest, Unrolled::NONE));
        assert_eq!(straight.block(&shape(0x100f, 5, true)), (Part::Rest, Unrolled::NONE));
        // The branch at its end, to within the block: a loop.
        let target = 0x101e + 2 - 16;
        assert_eq!(straight.block(&shape(target, 4, true)), (Part::First, TEN));
    }

    #[test]
    fn an_iteration_of_a_repeated_instruction_is_no_rest() {
        let mut straight = Straight::new();
        let mut repeats = shape(0x1000, 2, false);
        repeats.add(0x1006, &[0xf3, 0x48, 0xa6]);
        let mut alone = Shape::new(0x1006, 0);
        alone.add(0x1006, &[0xf3, 0x48, 0xa6]);
        assert_eq!(straight.block(&repeats).0, Part::First);
        assert_eq!(straight.block(&alone).0, Part::First);
        assert_eq!(straight.block(&alone).0, Part::First);
        assert_eq!(straight.block(&shape(0x1009, 1, false)).0, Part::First);
    }

    #[test]
    fn an_interrupt_is_where_control_arrives() {
        let mut straight = Straight::new();
        straight.block(&shape(0x1000, 4, false));
        assert_eq!(straight.block(&shape(0x9000, 4, false)), (Part::First, Unrolled::NONE));
        assert_eq!(straight.block(&shape(0x100c, 4, false)), (Part::First, Unrolled::NONE));
    }
}
