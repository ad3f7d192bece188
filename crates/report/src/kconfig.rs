//! Differences between two kernel configurations.
//!
//! Invariant: an option that is off and an option that does not exist are equal: neither kernel has the feature. A renamed option is one option, and
//! a feature that older kernels always had, without an option, counts as on.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// Name → value of the options that are set to anything but `n`.
type Options<'a> = BTreeMap<&'a str, &'a str>;

/// An option that two configurations set differently. `None` is off or absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Without the prefix `CONFIG_`.
    pub option: String,
    pub a: Option<String>,
    pub b: Option<String>,
}

/// Options by which a database server's kernel is most often judged; their differences are shown first. A name ending in `*` is a prefix.
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
    "PAGE_TABLE_CHECK*",
    "PER_VMA_LOCK",
    "PREEMPT*",
    "PSI*",
    "RANDOMIZE_*",
    "RCU_*",
    "READ_ONLY_THP_FOR_FS",
    "RSEQ*",
    "SCHED_*",
    "SHUFFLE_PAGE_ALLOCATOR",
    "SLAB_FREELIST_*",
    "SLAB",
    "SLUB*",
    "STACKPROTECTOR*",
    "TRANSPARENT_HUGEPAGE*",
    "UNWINDER_*",
    "VMAP_STACK",
    "X86_INTEL_TSX_*",
    "ZSWAP*",
];

/// Options that Linux 6.9 renamed (commit be83e809ca67 and later ones): old name, new name.
const RENAMED: &[(&str, &str)] = &[
    ("CALL_DEPTH_TRACKING", "MITIGATION_CALL_DEPTH_TRACKING"),
    ("CPU_IBPB_ENTRY", "MITIGATION_IBPB_ENTRY"),
    ("CPU_IBRS_ENTRY", "MITIGATION_IBRS_ENTRY"),
    ("CPU_SRSO", "MITIGATION_SRSO"),
    ("CPU_UNRET_ENTRY", "MITIGATION_UNRET_ENTRY"),
    ("GDS_FORCE_MITIGATION", "MITIGATION_GDS_FORCE"),
    ("PAGE_TABLE_ISOLATION", "MITIGATION_PAGE_TABLE_ISOLATION"),
    ("RETHUNK", "MITIGATION_RETHUNK"),
    ("RETPOLINE", "MITIGATION_RETPOLINE"),
    ("SLS", "MITIGATION_SLS"),
    ("SPECULATION_MITIGATIONS", "CPU_MITIGATIONS"),
];

/// Options whose feature a kernel has if it does not mention them: mitigations that were always built in until they became optional (Linux 6.9 to
/// 6.14), and `MEMCG_KMEM`, which `MEMCG` has included since 6.10.
const UNASKED: &[&str] = &[
    "MEMCG_KMEM",
    "MITIGATION_GDS",
    "MITIGATION_L1TF",
    "MITIGATION_MDS",
    "MITIGATION_MMIO_STALE_DATA",
    "MITIGATION_RETBLEED",
    "MITIGATION_RFDS",
    "MITIGATION_SPECTRE_BHI",
    "MITIGATION_SPECTRE_V1",
    "MITIGATION_SPECTRE_V2",
    "MITIGATION_SRBDS",
    "MITIGATION_SSB",
    "MITIGATION_TAA",
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
    let texts = [a, b];
    let (a, b) = (parse(a), parse(b));
    let names: BTreeSet<&str> = a.keys().chain(b.keys()).copied().collect();
    let unasked = |name: &str| {
        let line = format!("CONFIG_{name}");
        let asks = |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == line);
        UNASKED.contains(&name) && !texts.into_iter().all(asks)
    };
    names
        .into_iter()
        .filter(|name| a.get(name) != b.get(name) && !unasked(name))
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
        .map(|(name, value)| (RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new), value))
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

    #[test]
    fn another_name_is_no_difference() {
        let old = "CONFIG_RETPOLINE=y\nCONFIG_SLS=y\n";
        let new = "CONFIG_MITIGATION_RETPOLINE=y\nCONFIG_MITIGATION_MDS=y\n# CONFIG_MITIGATION_SLS is not set\n";
        let all = differences(old, new);
        assert_eq!(all.iter().map(|d| (&*d.option, d.b.as_deref())).collect::<Vec<_>>(), [("MITIGATION_SLS", None)]);
        // An option that is turned off deliberately is a difference.
        let without =
            "CONFIG_MITIGATION_RETPOLINE=y\n# CONFIG_MITIGATION_MDS is not set\n# CONFIG_MITIGATION_SLS is not set\n";
        assert_eq!(differences(without, new)[0].option, "MITIGATION_MDS");
        assert_eq!(differences(without, new).len(), 1);
    }
}
