//! A block of instructions as the model sees it.

use crate::events::Event;
use crate::instruction::{End, Word, see};

/// A translated block.
pub(crate) struct Shape {
    pub(crate) start: u64,
    pub(crate) end: End,
    /// Where the last instruction begins, and where the next would.
    pub(crate) at: u64,
    pub(crate) next: u64,
    /// The numbers of the first and the last instruction's counters, and how many of the block's last instructions have the latter: programs are counted
    /// by page.
    pub(crate) counter: usize,
    pub(crate) last_counter: usize,
    pub(crate) counted_there: u64,
    pub(crate) instructions: u64,
    pub(crate) words: Words,
    /// Where executions of the last instruction are counted: of the first vCPU, and how many bytes from there those of each further one.
    executed: (*const u64, usize),
    /// Its first bytes.
    bytes: [u8; BYTES],
}

/// Bytes by which blocks at the same address are told apart.
const BYTES: usize = 32;

/// Instructions that only move a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    loads: u32,
    stores: u32,
}

impl Words {
    pub(crate) const NONE: Self = Self { loads: 0, stores: 0 };

    /// Straight-line code with as many as this is unrolled: what a loop that copies or clears a line of memory has at least.
    pub(crate) const UNROLLED: u32 = 8;

    pub(crate) fn add(&mut self, other: Self) {
        self.loads += other.loads;
        self.stores += other.stores;
    }

    /// The unrolled part of straight-line code with these moves, if they are enough. Each move hides one other instruction. Loads and stores overlap, so
    /// the more frequent kind determines the number of words.
    pub(crate) fn unrolled(self, instructions: u64) -> Option<Unrolled> {
        let all = self.loads + self.stores;
        let words = self.loads.max(self.stores).into();
        (all >= Self::UNROLLED).then(|| Unrolled { instructions: instructions.min(2 * u64::from(all)), words })
    }
}

/// Unrolled code that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unrolled {
    pub(crate) instructions: u64,
    /// That it moved between registers and memory.
    pub(crate) words: u64,
}

impl Unrolled {
    pub(crate) const NONE: Self = Self { instructions: 0, words: 0 };
}

impl Shape {
    /// A block without instructions.
    pub(crate) fn new(start: u64) -> Self {
        Self {
            start,
            end: End::Other,
            at: start,
            next: start,
            counter: 0,
            last_counter: 0,
            counted_there: 0,
            instructions: 0,
            words: Words::NONE,
            executed: (core::ptr::null(), 0),
            bytes: [0; BYTES],
        }
    }

    /// The block's next instruction, at that address, with its counter's number; tells the event that its execution is.
    pub(crate) fn add(&mut self, at: u64, bytes: &[u8], counter: usize) -> Option<Event> {
        let used = (self.next - self.start).min(BYTES as u64) as usize;
        self.bytes[used..].iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        if self.instructions == 0 {
            self.counter = counter;
        }
        self.counted_there = if self.last_counter == counter { self.counted_there + 1 } else { 1 };
        self.last_counter = counter;
        self.at = at;
        self.next = at + bytes.len() as u64;
        self.instructions += 1;
        let seen = see(bytes, self.next);
        self.end = seen.end;
        self.words.add(match seen.word {
            Some(Word::Load) => Words { loads: 1, stores: 0 },
            Some(Word::Store) => Words { loads: 0, stores: 1 },
            None => Words::NONE,
        });
        seen.event
    }

    /// Sets where executions of the last instruction are counted: the address of the first vCPU's counter, and the distance in bytes from each vCPU's
    /// counter to the next one's.
    ///
    /// # Safety
    /// There must be such numbers for ever, and nothing else may write them while a block begins.
    pub(crate) unsafe fn counted_at(&mut self, place: (*const u64, usize)) {
        self.executed = place;
    }

    /// How often the last instruction, or another one that is counted there, has begun to execute on a vCPU; 0 if it is not counted.
    #[inline]
    pub(crate) fn executions(&self, vcpu: usize) -> u64 {
        let (first, step) = self.executed;
        // SAFETY: the word of who told the place.
        if first.is_null() { 0 } else { unsafe { first.byte_add(vcpu * step).read() } }
    }

    /// Whether this is `whole`, or the beginning of it. A beginning has no branch: that would end the whole, too, so the code has been patched.
    pub(crate) fn begins(&self, whole: &Self) -> bool {
        let known = (self.next - self.start).min(BYTES as u64) as usize;
        let same = |of: &Self| (of.end, of.at, of.next, of.instructions, of.words);
        let fits = if self.next < whole.next { self.end == End::Other } else { same(self) == same(whole) };
        self.start == whole.start && fits && self.bytes[..known] == whole.bytes[..known]
    }

    /// Whether the instruction at that address is one of its.
    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.start..self.next).contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_the_end_and_the_events_of_its_instructions() {
        let mut shape = Shape::new(0x1000);
        assert_eq!(shape.add(0x1000, &[0xf0, 0xff, 0x07], 7), Some(Event::Locked));
        assert_eq!(shape.add(0x1003, &[0xc3], 8), None);
        assert_eq!((shape.start, shape.counter, shape.last_counter, shape.counted_there), (0x1000, 7, 8, 1));
        assert_eq!((shape.end, shape.at, shape.next, shape.instructions), (End::Return, 0x1003, 0x1004, 2));
        assert_eq!(shape.words, Words::NONE);
    }

    #[test]
    fn unrolled_code_moves_its_loads_or_its_stores() {
        let of = |loads, stores| Words { loads, stores }.unrolled(20).map(|u| (u.instructions, u.words));
        assert_eq!(
            [of(8, 8), of(0, 9), of(8, 0), of(4, 4)],
            [Some((20, 8)), Some((18, 9)), Some((16, 8)), Some((16, 4))]
        );
        assert_eq!(of(4, 3), None);
    }

    #[test]
    fn a_beginning_is_known_by_its_bytes() {
        // Of one page, so that one counter counts all.
        let block = |first: u8, n: u64| {
            let mut shape = Shape::new(0x40_1000);
            (0..n).for_each(|k| _ = shape.add(0x40_1000 + 3 * k, &[0x48, if k == 0 { first } else { 0x89 }, 0x07], 3));
            shape
        };
        let whole = block(0x89, 20);
        assert_eq!((whole.counter, whole.last_counter, whole.counted_there), (3, 3, 20));
        assert!([1, 10, 15, 20].iter().all(|n| block(0x89, *n).begins(&whole)));
        assert!(!block(0x89, 21).begins(&whole), "longer");
        // Patched beyond the bytes that are kept: a jump, and a load in place of a store.
        let patched = |n: u64, last: &[u8]| {
            let mut shape = block(0x89, n);
            shape.add(0x40_1000 + 3 * n, last, 3);
            shape
        };
        assert!(patched(15, &[0x48, 0x89, 0x07]).begins(&whole) && patched(19, &[0x48, 0x89, 0x07]).begins(&whole));
        assert!(!patched(15, &[0xe9, 0, 0, 0, 0]).begins(&whole) && !patched(19, &[0x48, 0x8b, 0x07]).begins(&whole));
        assert!(!block(0x8b, 10).begins(&whole), "another program's");
        assert!(whole.contains(0x40_1000) && whole.contains(0x40_1000 + 57) && !whole.contains(0x40_1000 + 60));
    }
}
