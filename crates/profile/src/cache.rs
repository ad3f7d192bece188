//! A set-associative cache of numbered lines, with the least recently used line of a set replaced. TLBs are caches of pages.
//!
//! Invariant: a set's tags are in the order of their last use.

use crate::geometry::Size;
use crate::kernel::zeroed;

pub(crate) struct Cache {
    /// Zero, or one more than the part of the line's number above the set's.
    tags: &'static mut [u32],
    ways: usize,
    mask: u64,
    shift: u32,
}

impl Cache {
    /// An empty one; `None` without memory.
    pub(crate) fn new(size: Size) -> Option<Self> {
        // SAFETY: zeros are numbers.
        let tags = unsafe { zeroed::<u32>(size.sets * size.ways) }?;
        Some(Self { tags, ways: size.ways, mask: size.sets as u64 - 1, shift: size.sets.trailing_zeros() })
    }

    fn set(&mut self, line: u64) -> (&mut [u32], u32) {
        let at = (line & self.mask) as usize * self.ways;
        (&mut self.tags[at..at + self.ways], ((line >> self.shift) as u32).wrapping_add(1))
    }

    /// Uses a line; tells how many others of its set were used since it was, or `None` if it is not there.
    #[inline]
    pub(crate) fn touch(&mut self, line: u64) -> Option<usize> {
        let (tags, tag) = self.set(line);
        if tags[0] == tag {
            return Some(0);
        }
        let found = tags.iter().position(|way| *way == tag);
        let end = found.unwrap_or(tags.len() - 1);
        tags.copy_within(..end, 1);
        tags[0] = tag;
        found
    }

    /// Forgets a line.
    pub(crate) fn forget(&mut self, line: u64) {
        let (tags, tag) = self.set(line);
        if let Some(at) = tags.iter().position(|way| *way == tag) {
            tags[at..].rotate_left(1);
            *tags.last_mut().expect("a cache has ways") = 0;
        }
    }

    pub(crate) fn forget_all(&mut self) {
        self.tags.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(sets: usize, ways: usize) -> Cache {
        Cache::new(Size { sets, ways }).unwrap()
    }

    #[test]
    fn the_least_recently_used_line_of_a_set_is_replaced() {
        let mut c = cache(4, 2);
        assert_eq!([0, 4, 0, 8, 0, 4].map(|line| c.touch(line)), [None, None, Some(1), None, Some(1), None]);
        // Other sets are others' business.
        assert_eq!([1, 2, 3, 1].map(|line| c.touch(line)), [None, None, None, Some(0)]);
        c.forget(0);
        assert_eq!([4, 0].map(|line| c.touch(line)), [Some(0), None]);
        c.forget_all();
        assert_eq!(c.touch(0), None);
    }

    /// Against the definition: a list of lines for each set, by last use.
    #[test]
    fn it_is_what_lists_by_last_use_are() {
        let (sets, ways) = (8, 3);
        let mut c = cache(sets, ways);
        let mut lists: Vec<Vec<u64>> = vec![Vec::new(); sets];
        let mut random = 12345_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let line = (random >> 33) % 64;
            let list = &mut lists[line as usize % sets];
            let was = list.iter().position(|l| *l == line);
            if random >> 60 == 0 {
                c.forget(line);
                was.map(|at| list.remove(at));
                continue;
            }
            assert_eq!(c.touch(line), was);
            was.map(|at| list.remove(at));
            list.insert(0, line);
            list.truncate(ways);
        }
    }
}
