//! NUMA: the cache's nodes, and the kernel's counters during the window.
//!
//! Invariant: a machine with one node has none of these facts.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result};

const NODES: &str = "/sys/devices/system/node";

/// Counters of /proc/vmstat, and their names in the record.
const BALANCING: &[(&str, &str)] = &[
    ("numa_pte_updates", "numa-pages-watched"),
    ("numa_hint_faults", "numa-hint-faults"),
    ("numa_hint_faults_local", "numa-hint-faults-local"),
    ("numa_pages_migrated", "numa-pages-migrated"),
];

/// Counters of each node's `numastat`: pages allocated for a CPU of the node itself, for other CPUs, and by interleaving.
const ALLOCATED: &[&str] = &["local_node", "other_node", "interleave_hit"];

/// The kernel's counters at one moment.
pub struct Nodes {
    counted: BTreeMap<String, u64>,
}

impl Nodes {
    /// The counters now; `None` on a machine with one node.
    pub fn now() -> Option<Self> {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Option<Self> {
        let inside = |path: &str| root.join(path.trim_start_matches('/'));
        let online = fs::read_to_string(inside(NODES).join("online")).ok()?;
        let nodes = bigiron_sys::cpu_list::parse(&online).filter(|nodes| nodes.len() > 1)?;
        let vmstat = fs::read_to_string(inside("/proc/vmstat")).unwrap_or_default();
        let mut counted: BTreeMap<String, u64> = BALANCING
            .iter()
            .filter_map(|(counter, fact)| Some(((*fact).to_owned(), field(&vmstat, counter)?)))
            .collect();
        for node in nodes {
            let text = fs::read_to_string(inside(NODES).join(format!("node{node}/numastat"))).unwrap_or_default();
            for counter in ALLOCATED {
                let fact = format!("numa-node{node}-{}", counter.replace('_', "-"));
                counted.extend(field(&text, counter).map(|n| (fact, n)));
            }
        }
        Some(Self { counted })
    }

    /// The counts since then, and the nodes of the mapping that begins at `addresses`, as seen by this process.
    pub fn facts_since(&self, addresses: &Range<u64>) -> Result<BTreeMap<String, String>> {
        let now = Self::now().context("The machine's NUMA nodes have disappeared")?;
        let since = |(fact, n): (String, u64)| {
            let before = self.counted.get(&fact).copied().unwrap_or(0);
            (fact, n.saturating_sub(before).to_string())
        };
        let mut facts: BTreeMap<_, _> = now.counted.into_iter().map(since).collect();
        let maps = fs::read_to_string("/proc/self/numa_maps").context("Cannot read /proc/self/numa_maps")?;
        let (policy, pages) = mapping(&maps, addresses).context("The cache is not in /proc/self/numa_maps")?;
        facts.insert("numa-cache-policy".to_owned(), policy);
        facts.insert("numa-cache-pages".to_owned(), pages);
        Ok(facts)
    }
}

/// The number after a word at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Policy and pages by node of the mappings within `addresses`, from /proc/PID/numa_maps: `node 0: 10, node 1: 7`.
fn mapping(maps: &str, addresses: &Range<u64>) -> Option<(String, String)> {
    let mut policy = None;
    let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let start = words.next().and_then(|start| u64::from_str_radix(start, 16).ok());
        if !start.is_some_and(|start| addresses.contains(&start)) {
            continue;
        }
        policy = policy.or(words.next().map(str::to_owned));
        for word in words {
            let node = word.strip_prefix('N').and_then(|rest| rest.split_once('='));
            if let Some((Ok(node), Ok(n))) = node.map(|(node, n)| (node.parse(), n.parse::<u64>())) {
                *pages.entry(node).or_default() += n;
            }
        }
    }
    let by_node: Vec<String> = pages.iter().map(|(node, n)| format!("node {node}: {n}")).collect();
    Some((policy?, by_node.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_where_they_lie() {
        let maps = "7f0000000000 default file=/lib/x mapped=9 N0=9 kernelpagesize_kB=4\n\
                    7f1000000000 interleave:0-1 file=/dev/zero\\040(deleted) dirty=17 N0=10 N1=7 kernelpagesize_kB=4\n\
                    7f1000200000 interleave:0-1 anon=2 dirty=2 N1=2 kernelpagesize_kB=4\n";
        let found = mapping(maps, &(0x7f10_0000_0000..0x7f10_0040_0000));
        assert_eq!(found, Some(("interleave:0-1".to_owned(), "node 0: 10, node 1: 9".to_owned())));
        assert_eq!(mapping(maps, &(0..4096)), None);
    }

    #[test]
    fn one_node_has_no_facts_and_two_have_their_counters() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let at = root.path().join(path);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, text).unwrap();
        };
        write("sys/devices/system/node/online", "0\n");
        assert!(Nodes::below(root.path()).is_none());
        write("sys/devices/system/node/online", "0-1\n");
        write("sys/devices/system/node/node1/numastat", "numa_hit 5\nlocal_node 3\nother_node 2\n");
        write("proc/vmstat", "numa_hint_faults_local 4\nnuma_hint_faults 9\n");
        let counted = Nodes::below(root.path()).unwrap().counted;
        let want = [
            ("numa-hint-faults", 9),
            ("numa-hint-faults-local", 4),
            ("numa-node1-local-node", 3),
            ("numa-node1-other-node", 2),
        ];
        assert_eq!(counted, want.map(|(name, n)| (name.to_owned(), n)).into());
    }
}
