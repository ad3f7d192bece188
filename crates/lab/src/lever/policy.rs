//! `memory.policy`: the NUMA nodes of the workload's memory.
//!
//! Invariant: a policy in force names its nodes, all of which have memory.

use std::path::Path;

use serde::{Deserialize, Serialize};

use bigiron_sys::cpu_list;
use bigiron_sys::kernel_file::{below, read};
use bigiron_sys::mempolicy;
use bigiron_sys::mempolicy::Mode;

/// A policy for the workload's processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub mode: Mode,
    /// Sorted; empty for a mode without nodes, and before resolution also for all nodes with memory.
    pub nodes: Vec<u32>,
}

const HAS_MEMORY: &str = "/sys/devices/system/node/has_memory";
/// Exists from Linux 6.9 on.
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

const RIGHT: &str = "write `default`, `local`, `preferred:NODE`, `bind:NODES`, `interleave`, `interleave:NODES`, `weighted-interleave` or \
                     `weighted-interleave:NODES`, with NODES such as `0,2-3`";

/// Parses the text.
///
/// # Errors
/// The correct form.
pub(super) fn parse(text: &str) -> Result<Policy, String> {
    let (word, list) = text.split_once(':').map_or((text, None), |(word, list)| (word, Some(list)));
    let mode = match word {
        "default" => Mode::Default,
        "local" => Mode::Local,
        "preferred" => Mode::Preferred,
        "bind" => Mode::Bind,
        "interleave" => Mode::Interleave,
        "weighted-interleave" => Mode::WeightedInterleave,
        _ => return Err(RIGHT.to_owned()),
    };
    let nodes = match list {
        None => Vec::new(),
        Some(list) => cpu_list::parse(list).ok_or_else(|| RIGHT.to_owned())?,
    };
    let fits = match mode {
        Mode::Default | Mode::Local => list.is_none(),
        Mode::Preferred => nodes.len() == 1,
        Mode::Bind => !nodes.is_empty(),
        Mode::Interleave | Mode::WeightedInterleave => true,
    };
    if fits { Ok(Policy { mode, nodes }) } else { Err(RIGHT.to_owned()) }
}

/// The policy on the machine below `root`, with its nodes.
///
/// # Errors
/// If this machine lacks the nodes, or its kernel the policy.
pub(super) fn resolve(text: &str, root: &Path) -> Result<Policy, String> {
    let mut policy = parse(text)?;
    let shown = read(&below(root, Path::new(HAS_MEMORY)))
        .map_err(|_| format!("this kernel has no `{HAS_MEMORY}`: it was built without NUMA"))?;
    let has = cpu_list::parse(&shown).unwrap_or_default();
    if let Some(node) = policy.nodes.iter().find(|node| !has.contains(node)) {
        let what = if has.len() == 1 { "one node with memory" } else { "nodes with memory" };
        return Err(format!("there is no memory on node {node}; this machine has {what}, {}", shown.trim()));
    }
    let all = matches!(policy.mode, Mode::Interleave | Mode::WeightedInterleave);
    if all && policy.nodes.is_empty() {
        policy.nodes = has;
    }
    if policy.mode == Mode::WeightedInterleave && !below(root, Path::new(WEIGHTS)).exists() {
        return Err(format!(
            "this kernel has no weighted interleave (`{WEIGHTS}`); Linux 6.9 is the first that can have it"
        ));
    }
    Ok(policy)
}

impl Policy {
    /// Applies the policy to this thread and all that it starts from now on.
    ///
    /// # Errors
    /// If the kernel refuses it or keeps another.
    pub(super) fn take(&self) -> Result<(), String> {
        mempolicy::set(self.mode, &self.nodes)
            .map_err(|e| format!("Lever `memory.policy` did not take: set_mempolicy: {e}"))?;
        match mempolicy::is(self.mode, &self.nodes) {
            Ok(true) => Ok(()),
            Ok(false) => Err("Lever `memory.policy` did not take: get_mempolicy shows another policy".to_owned()),
            Err(e) => Err(format!("Lever `memory.policy` cannot be read back: get_mempolicy: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::site::tests::machine;
    use super::*;

    #[test]
    fn policies_are_read_as_typed() {
        let policy = |mode, nodes: &[u32]| Ok(Policy { mode, nodes: nodes.to_vec() });
        assert_eq!(parse("bind:1"), policy(Mode::Bind, &[1]));
        assert_eq!(parse("interleave"), policy(Mode::Interleave, &[]));
        assert_eq!(parse("weighted-interleave:0,2-3"), policy(Mode::WeightedInterleave, &[0, 2, 3]));
        assert_eq!(parse("local"), policy(Mode::Local, &[]));
        for wrong in ["", "bind", "bind:", "bind:x", "preferred:0-1", "local:0", "random:0"] {
            assert!(parse(wrong).unwrap_err().contains("`bind:NODES`"), "{wrong}");
        }
    }

    #[test]
    fn nodes_and_modes_are_those_of_the_machine() {
        let two = machine(&[(HAS_MEMORY, "0-1\n")]);
        assert_eq!(resolve("interleave", two.path()).unwrap().nodes, [0, 1]);
        let why = resolve("bind:2", two.path()).unwrap_err();
        assert_eq!(why, "there is no memory on node 2; this machine has nodes with memory, 0-1");
        let why = resolve("weighted-interleave", two.path()).unwrap_err();
        assert!(why.contains("Linux 6.9 is the first"), "{why}");
        let new = machine(&[(HAS_MEMORY, "0-1\n"), (&format!("{WEIGHTS}/node0"), "1\n")]);
        assert_eq!(resolve("weighted-interleave:1", new.path()).unwrap().nodes, [1]);
        let none = machine(&[("/proc/x", "")]);
        assert!(resolve("local", none.path()).unwrap_err().contains("built without NUMA"));
    }
}
