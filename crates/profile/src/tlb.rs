//! The TLBs of a core: which pages it knows, of which size, and at which physical address.
//!
//! Invariant: what is known of a page is what the page tables said when it was walked; the guest has to invalidate it, as for a processor.

use crate::cache::Cache;
use crate::geometry::{FIRST_TLB, SECOND_TLB, Size};
use crate::kernel::zeroed;

/// The start of the kernel's half of the address space. Its pages are global.
const KERNEL: u64 = 0xffff_8000_0000_0000;

/// Bits of an address within a page, by the page's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Small = 12,
    Large = 21,
    Huge = 30,
}

/// A page and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Translation {
    pub(crate) size: Page,
    /// Physical address of its first byte.
    pub(crate) base: u64,
}

impl Translation {
    pub(crate) fn physical(self, address: u64) -> u64 {
        self.base | (address & ((1 << self.size as u32) - 1))
    }
}

/// An entry; all zeros is none. The key is the virtual page number with its size in the upper bits.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    key: u64,
    base: u64,
}

const SIZES: [Page; 3] = [Page::Small, Page::Large, Page::Huge];

/// Of keys: the page is global.
const GLOBAL: u64 = 1 << 56;
/// Of keys of programs' pages: the bits of how often CR3 was written, above those of an address of 47 bits.
const SWITCHES: u64 = 0xf_ffff << 36;

/// The key of a page's entry after `switches` writes of CR3.
fn key(address: u64, size: Page, switches: u64) -> u64 {
    let page = address << 7 >> (size as u32 + 7) | (size as u64) << 57;
    if address >= KERNEL { page | GLOBAL } else { page & !SWITCHES | switches << 36 & SWITCHES }
}

/// A set-associative table of pages of all sizes.
pub(crate) struct Tlb {
    entries: &'static mut [Entry],
    ways: usize,
    mask: u64,
    /// How often CR3 was written: entries of other programs are in the way no longer.
    switches: u64,
    /// Whether it has ever held a page of each size, so that a size that is not used is not looked for.
    used: [bool; 3],
}

impl Tlb {
    pub(crate) fn new(size: Size) -> Option<Self> {
        // SAFETY: zeros are no entry.
        let entries = unsafe { zeroed::<Entry>(size.sets * size.ways) }?;
        Some(Self { entries, ways: size.ways, mask: size.sets as u64 - 1, switches: 0, used: [false; 3] })
    }

    fn set(&mut self, key: u64) -> &mut [Entry] {
        let at = (key & self.mask) as usize * self.ways;
        &mut self.entries[at..at + self.ways]
    }

    /// Uses the page of an address, if it is known.
    #[inline]
    pub(crate) fn find(&mut self, address: u64) -> Option<Translation> {
        for (n, size) in SIZES.into_iter().enumerate() {
            if !self.used[n] {
                continue;
            }
            let key = key(address, size, self.switches);
            let set = self.set(key);
            if let Some(at) = set.iter().position(|entry| entry.key == key) {
                set[..=at].rotate_right(1);
                return Some(Translation { size, base: set[0].base });
            }
        }
        None
    }

    fn is_current(&self, key: u64) -> bool {
        key & GLOBAL != 0 || (key ^ self.switches << 36) & SWITCHES == 0
    }

    pub(crate) fn insert(&mut self, address: u64, page: Translation) {
        let key = key(address, page.size, self.switches);
        self.used[SIZES.iter().position(|size| *size == page.size).unwrap_or(0)] = true;
        let at = (key & self.mask) as usize * self.ways;
        let last = at + self.ways - 1;
        // In place of one that is not valid, if there is one.
        let replaced = (at..last).find(|n| !self.is_current(self.entries[*n].key)).unwrap_or(last);
        self.entries[at..=replaced].rotate_right(1);
        self.entries[at] = Entry { key, base: page.base };
    }

    fn forget(&mut self, address: u64) {
        for size in SIZES {
            let key = key(address, size, self.switches);
            self.set(key).iter_mut().filter(|entry| entry.key == key).for_each(|entry| entry.key = 0);
        }
    }

    fn switch(&mut self) {
        self.switches += 1;
        if self.switches << 36 & SWITCHES == 0 {
            self.entries.iter_mut().filter(|entry| entry.key & GLOBAL == 0).for_each(|entry| entry.key = 0);
        }
    }
}

/// Where a page was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    First(Translation),
    Second(Translation),
    Nowhere,
}

/// The TLBs of a core.
pub(crate) struct Tlbs {
    first: [Tlb; 2],
    second: Tlb,
    /// Upper page tables that the walker keeps, by 2 MiB.
    pub(crate) walker: Cache,
}

/// Which of the first-level TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Instructions = 0,
    Data = 1,
}

impl Tlbs {
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            first: [Tlb::new(FIRST_TLB)?, Tlb::new(FIRST_TLB)?],
            second: Tlb::new(SECOND_TLB)?,
            walker: Cache::new(crate::geometry::WALKER)?,
        })
    }

    /// What a page's entry is found by until CR3 is written.
    pub(crate) fn key(&self, address: u64, size: Page) -> u64 {
        key(address, size, self.second.switches)
    }

    /// Whether the page with that key is the last of its set that was used.
    #[inline]
    pub(crate) fn was_last(&mut self, of: Of, key: u64) -> bool {
        let tlb = &mut self.first[of as usize];
        tlb.is_current(key) && tlb.set(key)[0].key == key
    }

    #[inline]
    pub(crate) fn find(&mut self, of: Of, address: u64) -> Found {
        if let Some(page) = self.first[of as usize].find(address) {
            return Found::First(page);
        }
        let Some(page) = self.second.find(address) else { return Found::Nowhere };
        self.first[of as usize].insert(address, page);
        Found::Second(page)
    }

    /// Learns a page that was walked.
    pub(crate) fn learn(&mut self, of: Of, address: u64, page: Translation) {
        self.first[of as usize].insert(address, page);
        self.second.insert(address, page);
    }

    /// As `invlpg` does.
    pub(crate) fn invalidate(&mut self, address: u64) {
        self.first.iter_mut().chain([&mut self.second]).for_each(|tlb| tlb.forget(address));
        self.walker.forget(address >> Page::Large as u32);
    }

    /// As writing CR3 does without process-context identifiers, which QEMU's guests do not have: all but global pages.
    pub(crate) fn switch(&mut self) {
        self.first.iter_mut().chain([&mut self.second]).for_each(|tlb| tlb.switch());
        self.walker.forget_all();
    }

    /// As writing CR4 does.
    pub(crate) fn forget_all(&mut self) {
        self.first.iter_mut().chain([&mut self.second]).for_each(|tlb| tlb.entries.fill(Entry { key: 0, base: 0 }));
        self.walker.forget_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u64 = 0x7fff_1234_5000;
    const DIRECT: u64 = 0xffff_8880_0020_0000;

    fn small(base: u64) -> Translation {
        Translation { size: Page::Small, base }
    }

    #[test]
    fn pages_are_known_until_they_are_invalidated() {
        let mut tlbs = Tlbs::new().unwrap();
        assert_eq!(tlbs.find(Of::Data, USER), Found::Nowhere);
        tlbs.learn(Of::Data, USER, small(0x5000));
        tlbs.learn(Of::Data, DIRECT, Translation { size: Page::Large, base: 0x20_0000 });
        assert_eq!(tlbs.find(Of::Data, USER + 7), Found::First(small(0x5000)));
        assert_eq!(tlbs.find(Of::Instructions, USER), Found::Second(small(0x5000)));
        assert_eq!(tlbs.find(Of::Instructions, USER), Found::First(small(0x5000)));
        let Found::First(large) = tlbs.find(Of::Data, DIRECT + 0x1f_fff8) else { panic!() };
        assert_eq!(large.physical(DIRECT + 0x1f_fff8), 0x3f_fff8);
        tlbs.switch();
        assert_eq!(tlbs.find(Of::Data, USER), Found::Nowhere);
        assert!(matches!(tlbs.find(Of::Data, DIRECT), Found::First(_)));
        // What another program had there is not found after as many switches as there are numbers for.
        tlbs.learn(Of::Data, USER, small(0x5000));
        (0..1 << 20).for_each(|_| tlbs.switch());
        assert_eq!(tlbs.find(Of::Data, USER), Found::Nowhere);
        tlbs.invalidate(DIRECT + 0x1000);
        assert_eq!(tlbs.find(Of::Data, DIRECT), Found::Nowhere);
    }

    #[test]
    fn as_many_pages_are_known_as_the_tlbs_have_entries() {
        for (pages, walks) in [(64, 0), (2048, 0), (4096, 4096)] {
            let mut tlbs = Tlbs::new().unwrap();
            let mut round = || {
                let nowhere = (0..pages).filter(|n| {
                    let address = USER + n * 4096;
                    let missed = tlbs.find(Of::Data, address) == Found::Nowhere;
                    if missed {
                        tlbs.learn(Of::Data, address, small(n * 4096));
                    }
                    missed
                });
                nowhere.count()
            };
            assert_eq!(round(), pages as usize);
            assert_eq!(round(), walks, "{pages} pages");
        }
    }
}
