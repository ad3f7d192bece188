//! What a core executes, as straight-line code: from where control arrives to where it goes elsewhere.
//!
//! QEMU executes such code as more than one block where it has to: at the end of a page, at an instruction that accesses a device, and, where a timer of the
//! guest's is due, after any instruction, at times that depend on the host ([`crate::blocks`]). Each iteration of a repeated instruction is a block, too,
//! but for those that are executed at once, and how many these are depends on the host again.
//!
//! Invariant: what it tells does not depend on how QEMU divides code.

use crate::instruction::End;
use crate::shape::{Shape, Unrolled, Words};

/// What a block is of the code before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Control arrives here: by a branch, an interrupt, or an exception.
    First,
    /// The code goes on where a block had to end.
    Next,
    /// The rest of a block that was told of as a whole when it began, or another iteration of its last instruction.
    Rest,
}

/// The straight-line code that a core is executing.
pub(crate) struct Straight {
    /// The block that began last, and what the counter of its last instruction was then.
    block: Option<(&'static Shape, u64)>,
    /// Whether that block executed its last instruction; `None` until it is asked.
    reached: Option<bool>,
    /// The last block that was no [`Part::Rest`].
    whole: Option<&'static Shape>,
    /// Of the code since control arrived.
    words: Words,
    instructions: u64,
}

impl Straight {
    pub(crate) const fn new() -> Self {
        Self { block: None, reached: None, whole: None, words: Words::NONE, instructions: 0 }
    }

    /// Settles whether the block that began last executed its last instruction. Call it before another vCPU executes, which may add to the same counters.
    #[inline]
    pub(crate) fn pause(&mut self, vcpu: usize) {
        if self.reached.is_none()
            && let Some((shape, before)) = self.block
        {
            self.reached = Some(shape.executions(vcpu).wrapping_sub(before) >= shape.counted_there);
        }
    }

    /// A block begins on this core's vCPU. Tells what it is; the block before, if its last instruction was executed and this is no [`Part::Rest`]; and what
    /// of the code before was unrolled, if that ends here. Code that an exception or an interrupt ends has nothing unrolled.
    #[inline]
    pub(crate) fn block(&mut self, shape: &'static Shape, vcpu: usize) -> (Part, Option<&'static Shape>, Unrolled) {
        self.pause(vcpu);
        let before = self.block.map(|(before, _)| before).filter(|_| self.reached == Some(true));
        self.block = Some((shape, shape.executions(vcpu)));
        self.reached = None;
        let is_rest = match before {
            Some(before) => before.end == End::Repeated && before.at == shape.start,
            None => self.whole.is_some_and(|whole| whole.contains(shape.start)),
        };
        if is_rest {
            return (Part::Rest, None, Unrolled::NONE);
        }
        self.whole = Some(shape);
        if before.is_some_and(|before| before.end == End::Other && before.next == shape.start) {
            self.words.add(shape.words);
            self.instructions += shape.instructions;
            return (Part::Next, before, Unrolled::NONE);
        }
        let words = core::mem::replace(&mut self.words, shape.words);
        let instructions = core::mem::replace(&mut self.instructions, shape.instructions);
        let goes = before.is_some_and(|before| match before.end {
            End::Branch(target) => [target, before.next].contains(&shape.start),
            End::Other => false,
            _ => true,
        });
        (Part::First, before, words.unrolled(instructions).filter(|_| goes).unwrap_or(Unrolled::NONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVE: [u8; 3] = [0x48, 0x89, 0x07];
    const BACK: [u8; 2] = [0x75, 0xf0];
    /// Ten moves and a branch.
    const TEN: Unrolled = Unrolled { instructions: 11, words: 10 };

    /// A core.
    struct Machine {
        straight: Straight,
        /// What it told, but for what is the rest of something.
        told: Vec<(Part, u64, Option<End>, Unrolled)>,
    }

    /// Counters of all machines of a test: instructions below 1 MiB all have the first, as those of a page of a program, and others have one each.
    fn count(address: u64) -> *mut u64 {
        thread_local!(static COUNTERS: *mut u64 = Box::leak(Box::new([0; 1 << 16])).as_mut_ptr());
        COUNTERS.with(|counters| counters.wrapping_add(counter(address)))
    }

    fn counter(address: u64) -> usize {
        address.saturating_sub(0x10_0000) as usize
    }

    fn leak(mut shape: Shape) -> &'static Shape {
        // SAFETY: the counters stay.
        unsafe { shape.counted_at((count(shape.at), 0)) };
        Box::leak(Box::new(shape))
    }

    /// A block of moves of three bytes each, with a branch 16 bytes back or not.
    fn shape(start: u64, moves: u64, branches: bool) -> &'static Shape {
        let mut shape = Shape::new(start);
        (0..moves).map(|n| start + 3 * n).for_each(|at| _ = shape.add(at, &MOVE, counter(at)));
        if branches {
            let at = start + 3 * moves;
            shape.add(at, &BACK, counter(at));
        }
        leak(shape)
    }

    impl Machine {
        fn new() -> Self {
            Self { straight: Straight::new(), told: Vec::new() }
        }

        /// Executes a block's instructions up to that one, from its start.
        fn run(&mut self, shape: &'static Shape, instructions: u64) {
            let (part, before, unrolled) = self.straight.block(shape, 0);
            if part != Part::Rest {
                self.told.push((part, shape.start, before.map(|before| before.end), unrolled));
            }
            for n in 0..instructions {
                // SAFETY: nothing else refers to it now.
                unsafe { *count(shape.start + 3 * n) += 1 };
            }
        }
    }

    const IN_PROGRAMS: u64 = 0x1000;
    const IN_THE_KERNEL: u64 = 0x10_1000;

    #[test]
    fn a_division_changes_nothing() {
        for start in [IN_PROGRAMS, IN_THE_KERNEL] {
            let whole = shape(start, 10, true);
            // Round the loop, on to what follows, and to the handler of an interrupt.
            for (to, unrolled) in [(start + 16, TEN), (start + 32, TEN), (start + 0x800, Unrolled::NONE)] {
                let run = |parts: &[u64]| {
                    let mut machine = Machine::new();
                    let mut at = 0;
                    for part in parts {
                        // A beginning has the whole's shape.
                        let block = if at == 0 { whole } else { shape(start + 3 * at, 10 - at, true) };
                        machine.run(block, *part);
                        at += part;
                    }
                    assert_eq!(at, 11);
                    machine.run(shape(to, 1, false), 1);
                    machine.told
                };
                let told = run(&[11]);
                let branch = Some(End::Branch(start + 16));
                assert_eq!(
                    told,
                    [(Part::First, start, None, Unrolled::NONE), (Part::First, to, branch, unrolled)],
                    "{to:x}"
                );
                for cut in 1..11 {
                    assert_eq!(run(&[cut, 11 - cut]), told, "{cut}");
                    (cut + 1..11).for_each(|next| assert_eq!(run(&[cut, next - cut, 11 - next]), told, "{cut} {next}"));
                }
            }
        }
    }

    #[test]
    fn code_that_an_exception_ends_has_no_end_and_no_unrolled_instructions() {
        for start in [IN_PROGRAMS, IN_THE_KERNEL] {
            let (whole, handler) = (shape(start, 10, true), shape(start + 0x800, 9, true));
            for executed in 1..11 {
                let mut machine = Machine::new();
                machine.run(whole, executed);
                machine.run(handler, 10);
                // The handler returns to the instruction.
                machine.run(shape(start + 3 * executed - 3, 11 - executed, true), 12 - executed);
                let [first, in_handler, after] = machine.told[..] else { panic!("{:?}", machine.told) };
                assert_eq!(first.0, Part::First);
                assert_eq!(in_handler, (Part::First, start + 0x800, None, Unrolled::NONE), "{executed}");
                assert_eq!((after.0, after.3), (Part::First, Unrolled::NONE), "{executed}");
            }
        }
    }

    #[test]
    fn code_goes_on_at_the_end_of_a_page() {
        let mut machine = Machine::new();
        machine.run(shape(IN_THE_KERNEL, 6, false), 6);
        machine.run(shape(IN_THE_KERNEL + 18, 4, true), 5);
        machine.run(shape(IN_THE_KERNEL, 1, false), 1);
        let parts: Vec<_> = machine.told.iter().map(|(part, .., unrolled)| (*part, *unrolled)).collect();
        let none = Unrolled::NONE;
        let branched = Unrolled::NONE;
        assert_eq!(parts, [(Part::First, none), (Part::Next, none), (Part::First, branched)]);
        let mut machine = Machine::new();
        machine.run(shape(IN_THE_KERNEL, 6, false), 6);
        machine.run(shape(IN_THE_KERNEL + 18, 4, true), 5);
        machine.run(shape(IN_THE_KERNEL + 32, 1, false), 1);
        assert_eq!(machine.told[2].3, TEN);
    }

    #[test]
    fn an_iteration_of_a_repeated_instruction_is_a_rest() {
        let start = IN_THE_KERNEL;
        let repeated = [0xf3, 0x48, 0xa6];
        let (mut first, mut alone) = (Shape::new(start), Shape::new(start + 3));
        first.add(start, &MOVE, counter(start));
        first.add(start + 3, &repeated, counter(start + 3));
        alone.add(start + 3, &repeated, counter(start + 3));
        let (first, alone) = (leak(first), leak(alone));
        let run = |iterations: u64| {
            let mut machine = Machine::new();
            machine.run(first, 2);
            (0..iterations).for_each(|_| machine.run(alone, 1));
            machine.run(shape(start + 6, 1, false), 1);
            machine.told
        };
        assert_eq!(run(1).len(), 2);
        assert_eq!(run(1), run(100));
        // After an interrupt control arrives at it.
        let mut machine = Machine::new();
        machine.run(first, 2);
        machine.run(shape(start + 0x800, 1, true), 2);
        machine.run(alone, 1);
        machine.run(alone, 1);
        assert_eq!(machine.told.len(), 3);
    }

    #[test]
    fn cores_that_execute_the_same_code_do_not_disturb_each_other() {
        let (mut one, mut other) = (Machine::new(), Machine::new());
        let whole = shape(IN_THE_KERNEL, 10, true);
        one.run(whole, 4);
        one.straight.pause(0);
        other.run(whole, 11);
        one.run(shape(IN_THE_KERNEL + 12, 6, true), 7);
        assert_eq!((one.told.len(), other.told.len()), (1, 1));
    }
}
