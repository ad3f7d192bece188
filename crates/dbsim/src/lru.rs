//! LRU replacement: the buffers in the order of their last use.
//!
//! Invariant: every buffer is in exactly one place of exactly one list at any time.
//!
//! A single list would mean one latch for every get of every process. There are several, each with its share of the buffers by
//! number, and replacement alternates between them: the order is nearly the same, because blocks are assigned to buffers at
//! random.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use bigiron_sys::latch::Latch;
use bigiron_sys::segment::{Segment, shared_struct};

/// Minimum number of buffers per list, and maximum number of lists.
const WORTH: usize = 64;
const LISTS: usize = 32;

shared_struct! {
    /// A buffer is stored as its number + 1; 0 is none. All changes are under the latch.
    struct List {
        latch: Latch,
        newest: AtomicU32,
        oldest: AtomicU32,
        /// Padding, so that no two lists share a cache line.
        unused: [AtomicU32; 13],
    }
}

shared_struct! {
    struct Link {
        newer: AtomicU32,
        older: AtomicU32,
    }
}

/// The lists.
pub struct Lru<'s> {
    lists: &'s [List],
    links: &'s [Link],
    /// The list that gives the next buffer.
    turn: &'s AtomicU32,
}

impl<'s> Lru<'s> {
    /// Bytes of segment for the lists of this many buffers.
    pub fn bytes(buffers: usize) -> usize {
        LISTS * size_of::<List>() + buffers * size_of::<Link>() + 4 * 64
    }

    /// All buffers, in the order of their numbers.
    pub fn new(segment: &'s Segment, buffers: usize) -> Self {
        let lists = (buffers / WORTH).clamp(1, LISTS);
        let lru = Self { lists: segment.many(lists), links: segment.many(buffers), turn: segment.one() };
        for buffer in 0..buffers {
            lru.list(buffer).push(lru.links, buffer);
        }
        lru
    }

    fn list(&self, buffer: usize) -> &'s List {
        &self.lists[buffer % self.lists.len()]
    }

    /// Number of lists.
    pub fn lists(&self) -> usize {
        self.lists.len()
    }

    /// Makes `buffer` the most recently used one.
    pub fn touch(&self, buffer: usize) {
        let list = self.list(buffer);
        let _held = list.latch.lock();
        if list.newest.load(Relaxed) != buffer as u32 + 1 {
            list.unlink(self.links, buffer);
            list.push(self.links, buffer);
        }
    }

    /// The list whose turn it is.
    pub fn turn(&self) -> usize {
        self.turn.fetch_add(1, Relaxed) as usize % self.lists.len()
    }

    /// Puts the first buffers of a list that `fit`, longest unused first, into `found`, and returns their number.
    pub fn oldest(&self, list: usize, found: &mut [usize], fit: impl Fn(usize) -> bool) -> usize {
        let list = &self.lists[list];
        let _held = list.latch.lock();
        let (mut at, mut n) = (list.oldest.load(Relaxed), 0);
        while at != 0 && n < found.len() {
            let buffer = at as usize - 1;
            if fit(buffer) {
                found[n] = buffer;
                n += 1;
            }
            at = self.links[buffer].newer.load(Relaxed);
        }
        n
    }
}

impl List {
    fn push(&self, links: &[Link], buffer: usize) {
        let newest = self.newest.load(Relaxed);
        links[buffer].older.store(newest, Relaxed);
        links[buffer].newer.store(0, Relaxed);
        let link = buffer as u32 + 1;
        match newest {
            0 => self.oldest.store(link, Relaxed),
            n => links[n as usize - 1].newer.store(link, Relaxed),
        }
        self.newest.store(link, Relaxed);
    }

    fn unlink(&self, links: &[Link], buffer: usize) {
        let (newer, older) = (links[buffer].newer.load(Relaxed), links[buffer].older.load(Relaxed));
        match newer {
            0 => self.newest.store(older, Relaxed),
            n => links[n as usize - 1].older.store(older, Relaxed),
        }
        match older {
            0 => self.oldest.store(newer, Relaxed),
            n => links[n as usize - 1].newer.store(newer, Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_sys::process::{Exit, fork_child};
    use proptest::prelude::*;

    fn order(lru: &Lru<'_>, list: usize) -> Vec<usize> {
        let mut found = vec![0; lru.links.len() + 1];
        let n = lru.oldest(list, &mut found, |_| true);
        found.truncate(n);
        // The same the other way round.
        let mut back = Vec::new();
        let mut at = lru.lists[list].newest.load(Relaxed);
        while at != 0 && back.len() <= lru.links.len() {
            back.push(at as usize - 1);
            at = lru.links[at as usize - 1].older.load(Relaxed);
        }
        back.reverse();
        assert_eq!(found, back);
        found
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_the_last_use(touched in prop::collection::vec(0usize..10, 0..40)) {
            let segment = Segment::new(1 << 14).unwrap();
            let lru = Lru::new(&segment, 10);
            let mut model: Vec<usize> = (0..10).collect();
            for buffer in touched {
                lru.touch(buffer);
                model.retain(|b| *b != buffer);
                model.push(buffer);
            }
            prop_assert_eq!(order(&lru, 0), model);
        }
    }

    #[test]
    fn processes_lose_no_buffer() {
        const BUFFERS: usize = 3 * WORTH + 5;
        let segment = Segment::new(1 << 16).unwrap();
        let lru = Lru::new(&segment, BUFFERS);
        assert_eq!(lru.lists(), 3);
        let children: Vec<_> = (1..=4)
            .map(|step| {
                fork_child(|| {
                    for i in 0..20_000 {
                        lru.touch(i * step * 7 % BUFFERS);
                    }
                    0
                })
                .unwrap()
            })
            .collect();
        for c in children {
            assert_eq!(c.wait().unwrap(), Exit::Status(0));
        }
        let mut all: Vec<_> = (0..3).flat_map(|list| order(&lru, list)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..BUFFERS).collect::<Vec<_>>());
    }
}
