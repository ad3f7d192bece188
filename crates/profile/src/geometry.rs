//! The caches and TLBs of the modelled processors.
//!
//! Invariant: a geometry never changes; other figures are another one, with another name.

/// Bytes of a cache line.
pub const LINE: u64 = 64;

/// A set-associative cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// A power of two.
    pub sets: usize,
    pub ways: usize,
}

impl Size {
    pub const fn bytes(self) -> u64 {
        (self.sets * self.ways) as u64 * LINE
    }
}

/// The caches of a processor. All have the same sets in L1 and in L2, so that one list of lines for each set tells what every geometry holds. The TLBs are the same in all, because those of the processors are alike: see [`FIRST_TLB`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub name: &'static str,
    pub l1_instructions: Size,
    pub l1_data: Size,
    pub l2: Size,
    pub last: Size,
}

impl Geometry {
    /// AMD EPYC "Rome": 32 KiB and 8 ways each, 512 KiB and 8 ways, 16 MiB and 16 ways for four cores (AnandTech 14694; 7-cpu.com, Zen 2).
    pub const ROME: Self = Self {
        name: "rome-like",
        l1_instructions: Size { sets: 64, ways: 8 },
        l1_data: Size { sets: 64, ways: 8 },
        l2: Size { sets: 1024, ways: 8 },
        last: Size { sets: 16 << 10, ways: 16 },
    };

    /// Intel Xeon "Ice Lake-SP": 32 KiB and 8 ways, 48 KiB and 12 ways, 1.25 MiB and 20 ways, 1.5 MiB and 12 ways a core, here of 16 cores (7-cpu.com,
    /// Ice Lake; Intel's "Optimization Reference Manual", table of cache parameters).
    pub const ICE_LAKE: Self = Self {
        name: "icelake-like",
        l1_instructions: Size { sets: 64, ways: 8 },
        l1_data: Size { sets: 64, ways: 12 },
        l2: Size { sets: 1024, ways: 20 },
        last: Size { sets: 32 << 10, ways: 12 },
    };

    /// AMD EPYC "Turin": 32 KiB and 8 ways, 48 KiB and 12 ways, 1 MiB and 16 ways, 32 MiB and 16 ways for eight cores (AMD's "Software Optimization
    /// Guide for the AMD Zen5 Microarchitecture", 58455, section 2.6; `cpuid` on one).
    pub const TURIN: Self = Self {
        name: "turin-like",
        l1_instructions: Size { sets: 64, ways: 8 },
        l1_data: Size { sets: 64, ways: 12 },
        l2: Size { sets: 1024, ways: 16 },
        last: Size { sets: 32 << 10, ways: 16 },
    };

    pub const ALL: [Self; 3] = [Self::ROME, Self::ICE_LAKE, Self::TURIN];

    /// The ones whose L1 and L2 hold what the others' hold at least, and what they hold at most.
    pub const SMALLEST: Self = Self::ROME;

    pub const LARGEST: Self = Self::ICE_LAKE;
}

/// The first-level TLBs, one for instructions and one for data, with pages of all sizes: 64 entries (WikiChip, Zen 2, fully associative; Ice Lake
/// has 64 of 4 ways for pages of 4 KiB).
pub const FIRST_TLB: Size = Size { sets: 16, ways: 4 };

/// The second-level TLB, for instructions and data: 2,048 entries (WikiChip: Zen 2 has 2,048 for data, Ice Lake 2,048 for both).
pub const SECOND_TLB: Size = Size { sets: 128, ways: 16 };

/// The entries of upper page tables that the walker keeps: 32 of 2 MiB each, within the 16 to 64 that processors have (Barr, Cox, Rixner:
/// "Translation caching: skip, don't walk", ISCA 2010).
pub const WALKER: Size = Size { sets: 8, ways: 4 };

/// Returns whose address the processor remembers: 32 (WikiChip, Zen 2; Ice Lake is taken to have as many).
pub const RETURNS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_have_the_published_sizes() {
        let sizes = |g: Geometry| [g.l1_instructions, g.l1_data, g.l2, g.last].map(|c| c.bytes() >> 10);
        assert_eq!(sizes(Geometry::ROME), [32, 32, 512, 16 << 10]);
        assert_eq!(sizes(Geometry::ICE_LAKE), [32, 48, 1280, 24 << 10]);
        assert_eq!(sizes(Geometry::TURIN), [32, 48, 1024, 32 << 10]);
        let caches = |g: Geometry| [g.l1_instructions, g.l1_data, g.l2];
        for geometry in Geometry::ALL {
            let bounds = caches(Geometry::SMALLEST).into_iter().zip(caches(Geometry::LARGEST));
            for (cache, (smallest, largest)) in caches(geometry).into_iter().zip(bounds) {
                assert!(cache.sets == smallest.sets && cache.sets == largest.sets);
                assert!((smallest.ways..=largest.ways).contains(&cache.ways));
            }
            for cache in [geometry.l1_instructions, geometry.l1_data, geometry.l2, geometry.last] {
                assert!(cache.sets.is_power_of_two());
            }
        }
    }
}
