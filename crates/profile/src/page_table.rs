//! Page tables of x86-64 with four levels ("Intel 64 and IA-32 Architectures Software Developer's Manual", volume 3, 4.5).
//!
//! Invariant: they are read, and never written.

use crate::tlb::{Page, Translation};

const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// What a walk found, and the physical addresses of the last two entries that it read: the last one, and the one above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    pub(crate) page: Translation,
    pub(crate) last: u64,
    pub(crate) above: u64,
}

/// Walks to an address's page; `read` returns the word at a physical address.
pub(crate) fn walk(cr3: u64, address: u64, mut read: impl FnMut(u64) -> Option<u64>) -> Option<Walk> {
    let (mut table, mut above) = (cr3 & ADDRESS, 0);
    for shift in [39, 30, 21, 12] {
        let at = table + (address >> shift & 511) * 8;
        let entry = read(at)?;
        if entry & PRESENT == 0 {
            return None;
        }
        let size = match shift {
            12 => Some(Page::Small),
            21 if entry & LARGE != 0 => Some(Page::Large),
            30 if entry & LARGE != 0 => Some(Page::Huge),
            _ => None,
        };
        if let Some(size) = size {
            // Bit 12 of a large page's entry is no address.
            let base = entry & ADDRESS & !((1 << size as u32) - 1);
            return Some(Walk { page: Translation { size, base }, last: at, above });
        }
        (table, above) = (entry & ADDRESS, at);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn pages_of_all_sizes_are_found() {
        let memory = HashMap::from([
            (0x1000 + 8 * 255, 0x2003),
            (0x2000, 0x3003),
            (0x2000 + 8, 0x4000_0083),
            (0x3000, 0x4003),
            (0x3000 + 8, 0x80_0000_0020_1083),
            (0x4000 + 8 * 3, 0x8000_0000_0009_9003),
            (0x4000 + 8 * 4, 0x9_a002),
        ]);
        let at = |address| walk(0x1018, address, |at| memory.get(&at).copied());
        let top = 255_u64 << 39;
        let page = |size, base| Translation { size, base };
        let small = Walk { page: page(Page::Small, 0x9_9000), last: 0x4018, above: 0x3000 };
        assert_eq!(at(top | 0x3123), Some(small));
        let large = at(top | 0x20_0123).unwrap();
        assert_eq!((large.page, large.last, large.above), (page(Page::Large, 0x20_0000), 0x3008, 0x2000));
        assert_eq!(at(top | 0x4000_0123).unwrap().page, page(Page::Huge, 0x4000_0000));
        // Not present, and not in memory.
        assert_eq!(at(top | 0x4000), None);
        assert_eq!(at(0), None);
    }
}
