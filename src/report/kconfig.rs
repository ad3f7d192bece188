//! What differs between two kernel configurations.
//!
//! Invariant: an option that is off and an option that does not exist are the same thing: neither kernel has the feature.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// Name → value of the options that are set to something but `n`.
type Options<'a> = BTreeMap<&'a str, &'a str>;

/// An option that two configurations set differently. `None` is off or absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Without the prefix `CONFIG_`.
    pub option: String,
    pub a: Option<String>,
    pub b: Option<String>,
}

/// Options that a database server's kernel is most often judged by; their differences are shown first. A name ending in `*` is a prefix.
const NOTABLE: &[&str] = &[
    "ARCH_FORCE_MAX_ORDER",
    "BFQ_GROUP_IOSCHED",
    "BLK_WBT*",
    "CC_OPTIMIZE_*",
    "CC_VERSION_TEXT",
    "CFS_BANDWIDTH",
    "COMPACTION",
    "CPU_MITIGATIONS",
    "DEBUG_LIST",
    "DEFAULT_MMAP_MIN_ADDR",
    "FORTIFY_SOURCE",
    "HARDENED_USERCOPY",
    "HIGH_RES_TIMERS",
    "HUGETLB_PAGE*",
    "HZ",
    "INIT_ON_*",
    "INIT_STACK_*",
    "IOSCHED_*",
    "LRU_GEN*",
    "MEMCG*",
    "MITIGATION_*",
    "MQ_IOSCHED_*",
    "NO_HZ*",
    "NR_CPUS",
    "NUMA*",
    "PAGE_TABLE_*",
    "PER_VMA_LOCK",
    "PREEMPT*",
    "PSI*",
    "RANDOMIZE_*",
    "RCU_*",
    "READ_ONLY_THP_FOR_FS",
    "RETHUNK",
    "RETPOLINE",
    "RSEQ*",
    "SCHED_*",
    "SHUFFLE_PAGE_ALLOCATOR",
    "SLAB_FREELIST_*",
    "SLAB",
    "SLUB*",
    "SPECULATION_MITIGATIONS",
    "STACKPROTECTOR*",
    "TRANSPARENT_HUGEPAGE*",
    "UNWINDER_*",
    "VMAP_STACK",
    "X86_INTEL_TSX_*",
    "ZSWAP*",
];

impl Difference {
    pub fn is_notable(&self) -> bool {
        NOTABLE.iter().any(|name| match name.strip_suffix('*') {
            Some(prefix) => self.option.starts_with(prefix),
            None => self.option == *name,
        })
    }

    /// The value as a report prints it.
    pub fn shown(value: Option<&str>) -> &str {
        value.unwrap_or("off")
    }
}

/// The options that differ, in alphabetical order. Input is the text of a kernel's `.config`.
pub fn differences(a: &str, b: &str) -> Vec<Difference> {
    let (a, b) = (parse(a), parse(b));
    let names: BTreeSet<&str> = a.keys().chain(b.keys()).copied().collect();
    names
        .into_iter()
        .filter(|name| a.get(name) != b.get(name))
        .map(|name| Difference {
            option: name.to_owned(),
            a: a.get(name).map(|v| (*v).to_owned()),
            b: b.get(name).map(|v| (*v).to_owned()),
        })
        .collect()
}

fn parse(text: &str) -> Options<'_> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("CONFIG_")?.split_once('='))
        .filter(|(_, value)| *value != "n")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_and_absent_are_alike() {
        let a = "# comment\nCONFIG_HZ=250\nCONFIG_OLD=y\n# CONFIG_SAME is not set\nCONFIG_LSM=\"a,b=c\"\n";
        let b = "CONFIG_HZ=1000\nCONFIG_NEW=m\nCONFIG_LSM=\"a,b=c\"\nCONFIG_GONE=n\n";
        let all = differences(a, b);
        let text: Vec<_> = all
            .iter()
            .map(|d| {
                format!("{} {} {}", d.option, Difference::shown(d.a.as_deref()), Difference::shown(d.b.as_deref()))
            })
            .collect();
        assert_eq!(text, ["HZ 250 1000", "NEW off m", "OLD y off"]);
        assert!(all[0].is_notable() && !all[1].is_notable());
        assert_eq!(differences(a, a), []);
    }
}
