//! A block of instructions as the model sees it.

use crate::events::Event;
use crate::instruction::{End, see};

/// A translated block.
pub(crate) struct Shape {
    pub(crate) start: u64,
    pub(crate) end: End,
    /// Where the last instruction begins, and where the next would.
    pub(crate) at: u64,
    pub(crate) next: u64,
    pub(crate) counter: usize,
    pub(crate) instructions: u64,
    /// Instructions that only move a word.
    pub(crate) moves: u8,
}

impl Shape {
    /// Straight-line code with as many moves of words as this is unrolled: what a loop that copies or clears a line of memory has at least.
    pub(crate) const UNROLLED: u32 = 8;

    /// A block without instructions, whose counter is that of its first.
    pub(crate) fn new(start: u64, counter: usize) -> Self {
        Self { start, end: End::Other, at: start, next: start, counter, instructions: 0, moves: 0 }
    }

    /// The block's next instruction, at that address; tells the event that its execution is.
    pub(crate) fn add(&mut self, at: u64, bytes: &[u8]) -> Option<Event> {
        self.at = at;
        self.next = at + bytes.len() as u64;
        self.instructions += 1;
        let seen = see(bytes, self.next);
        self.end = seen.end;
        self.moves = self.moves.saturating_add(u8::from(seen.moves_word));
        seen.event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_the_end_and_the_events_of_its_instructions() {
        let mut shape = Shape::new(0x1000, 7);
        assert_eq!(shape.add(0x1000, &[0xf0, 0xff, 0x07]), Some(Event::Locked));
        assert_eq!(shape.add(0x1003, &[0xc3]), None);
        assert_eq!((shape.start, shape.counter), (0x1000, 7));
        assert_eq!((shape.end, shape.at, shape.next, shape.instructions), (End::Return, 0x1003, 0x1004, 2));
        assert_eq!(shape.moves, 0);
    }
}
