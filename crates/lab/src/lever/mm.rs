//! `mm.*`: memory management: huge pages, reclaim, swap.

use super::accepted_values::AcceptedValues;
use super::runtime::{Lever, LeverTarget, SideEffects};

const fn file(name: &'static str, path: &'static str, takes: AcceptedValues, summary: &'static str) -> Lever {
    Lever { name, place: LeverTarget::File(path), takes, touches: SideEffects::Nothing, since: None, summary }
}

pub const LEVERS: &[Lever] = &[
    Lever {
        name: "mm.thp",
        place: LeverTarget::File("/sys/kernel/mm/transparent_hugepage/enabled"),
        takes: AcceptedValues::Offered(&["always", "madvise", "never"]),
        // khugepaged raises it as soon as it runs, and never lowers it to the previous value.
        touches: SideEffects::Files(&["/proc/sys/vm/min_free_kbytes"]),
        since: None,
        summary: "transparent huge pages",
    },
    file(
        "mm.thp-defrag",
        "/sys/kernel/mm/transparent_hugepage/defrag",
        AcceptedValues::Offered(&["always", "defer", "defer+madvise", "madvise", "never"]),
        "what a fault does for a huge page",
    ),
    file(
        "mm.thp-shmem",
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
        AcceptedValues::Offered(&["always", "within_size", "advise", "never", "deny", "force"]),
        "transparent huge pages of shared memory",
    ),
    file(
        "mm.hugepages-2m",
        "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        AcceptedValues::Pages,
        "reserved huge pages of 2 MiB",
    ),
    file(
        "mm.hugepages-1g",
        "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
        AcceptedValues::Pages,
        "reserved huge pages of 1 GiB",
    ),
    file(
        "mm.swappiness",
        "/proc/sys/vm/swappiness",
        AcceptedValues::Number { least: 0, most: 200 },
        "0 spares anonymous memory, 100 treats it as the page cache, 200 spares the cache",
    ),
    Lever {
        name: "mm.mglru",
        place: LeverTarget::File("/sys/kernel/mm/lru_gen/enabled"),
        takes: AcceptedValues::Switch { on: "y", off: "n" },
        touches: SideEffects::Nothing,
        since: Some("6.1"),
        summary: "reclaim by generations of pages (multi-gen LRU)",
    },
    file(
        "mm.zswap",
        "/sys/module/zswap/parameters/enabled",
        AcceptedValues::Switch { on: "Y", off: "N" },
        "compressed pages in memory before a swap device",
    ),
    file(
        "mm.zswap-compressor",
        "/sys/module/zswap/parameters/compressor",
        AcceptedValues::Text,
        "the compressor of zswap: lzo, lz4 or zstd, if the kernel has it",
    ),
    file(
        "mm.zswap-max-pool-percent",
        "/sys/module/zswap/parameters/max_pool_percent",
        AcceptedValues::Number { least: 1, most: 100 },
        "maximum share of memory for zswap",
    ),
    file(
        "mm.ksm",
        "/sys/kernel/mm/ksm/run",
        AcceptedValues::Words(&[("off", "0"), ("on", "1"), ("unmerge", "2")]),
        "merging of equal pages: on, off, or off with all of them unmerged",
    ),
    Lever {
        name: "mm.swap",
        place: LeverTarget::Swap,
        takes: AcceptedValues::Swap,
        touches: SideEffects::Nothing,
        since: None,
        summary: "a swap device of that size in compressed memory",
    },
];
