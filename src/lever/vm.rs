//! `vm.*`: the shape of a guest's machine, arm by arm.
//!
//! Invariant: a guest whose kernel does not see the shape that was asked for is never measured.

use serde::{Deserialize, Serialize};

use super::Setting;
use super::cpu::parse_list;
use super::runtime::{Lever, Place, Touches};
use super::takes::Takes;

pub const NUMA: &str = "vm.numa";
pub const DISKS: &str = "vm.disks";
pub const BLOCK_SIZE: &str = "vm.block-size";

/// Bytes of a disk's logical block, unless it is said otherwise.
const SECTOR: u32 = 512;

const fn lever(name: &'static str, takes: Takes, summary: &'static str) -> Lever {
    Lever { name, place: Place::Machine, takes, touches: Touches::Nothing, since: None, summary }
}

pub const LEVERS: &[Lever] = &[
    lever(NUMA, Takes::Number { least: 1, most: 64 }, "NUMA nodes, to which CPUs and memory are dealt in equal parts"),
    lever(
        DISKS,
        Takes::Number { least: 0, most: 1000 },
        "SCSI disks (scsi_debug) that dbsim's data files lie on, one on each, instead of the file system",
    ),
    lever(
        BLOCK_SIZE,
        Takes::Words(&[("512", "512"), ("4096", "4096")]),
        "bytes of a logical block of the disks: of `vm.disks`, and of the models `nvme` and `ssd`",
    ),
];

/// The shape of a guest's machine, beyond what all arms of a study share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// NUMA nodes; with one there is no topology at all.
    pub nodes: u32,
    /// Raw disks besides those with file systems.
    pub disks: u32,
    /// Of a disk's logical block.
    pub block_bytes: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { nodes: 1, disks: 0, block_bytes: SECTOR }
    }
}

impl Shape {
    /// The shape that `settings`, which have been checked, ask for.
    pub fn of(settings: &[Setting]) -> Self {
        let number = |lever: &str| settings.iter().find(|(name, _)| name == lever).and_then(|(_, n)| n.parse().ok());
        Self {
            nodes: number(NUMA).unwrap_or(1),
            disks: number(DISKS).unwrap_or(0),
            block_bytes: number(BLOCK_SIZE).unwrap_or(SECTOR),
        }
    }

    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Nodes that have a CPU, of a machine with `cpus`.
    pub fn nodes_with_cpus(&self, cpus: u32) -> u32 {
        self.nodes.min(cpus)
    }

    /// Whether the running kernel, whose files `read` gives, has the nodes.
    ///
    /// # Errors
    /// What it has instead.
    pub fn verify(&self, cpus: u32, read: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
        if self.nodes == 1 {
            return Ok(());
        }
        for (file, want) in
            [("online", self.nodes), ("has_memory", self.nodes), ("has_cpu", self.nodes_with_cpus(cpus))]
        {
            let path = format!("/sys/devices/system/node/{file}");
            let Some(text) = read(&path) else {
                return Err(format!(
                    "Lever `{NUMA}={}` did not take: `{path}` cannot be read; was the kernel built without NUMA?",
                    self.nodes
                ));
            };
            if parse_list(&text).map_or(0, |nodes| nodes.len()) != want as usize {
                return Err(format!("Lever `{NUMA}={}` did not take: `{path}` says `{}`", self.nodes, text.trim()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lever;

    #[test]
    fn a_shape_is_what_is_set() {
        assert!(Shape::of(&[]).is_plain());
        assert_eq!(Shape::of(&[lever::parse("vm.numa=4").unwrap()]).nodes, 4);
        let settings = ["vm.disks=256", "vm.block-size=4096"].map(|text| lever::parse(text).unwrap());
        assert_eq!(Shape::of(&settings), Shape { nodes: 1, disks: 256, block_bytes: 4096 });
        assert!(lever::parse("vm.block-size=1024").unwrap_err().to_string().contains("`512` or `4096`"));
        assert!(lever::parse("vm.numa=0").unwrap_err().to_string().contains("from 1 to 64"));
    }

    #[test]
    fn the_kernel_must_see_the_nodes() {
        let with = |online: &'static str, cpus: &'static str| {
            move |path: &str| {
                let text = match path.rsplit('/').next().unwrap() {
                    "has_cpu" => cpus,
                    _ => online,
                };
                Some(format!("{text}\n"))
            }
        };
        let shape = Shape { nodes: 2, ..Shape::default() };
        shape.verify(1, &with("0-1", "0")).unwrap();
        shape.verify(4, &with("0-1", "0-1")).unwrap();
        let why = shape.verify(1, &with("0", "0")).unwrap_err();
        assert_eq!(why, "Lever `vm.numa=2` did not take: `/sys/devices/system/node/online` says `0`");
        assert!(shape.verify(2, &with("0-1", "0")).unwrap_err().contains("has_cpu"));
        assert!(shape.verify(2, &|_| None).unwrap_err().contains("without NUMA"));
        Shape::default().verify(2, &|_| None).unwrap();
    }
}
