//! `vm.*`: the shape of a guest's machine, for each arm.
//!
//! Invariant: a guest whose kernel does not see the requested shape is never measured.

use serde::{Deserialize, Serialize};

use super::accepted_values::AcceptedValues;
use super::runtime::{Lever, LeverTarget, SideEffects};
use bigiron_model::setting::Setting;
use bigiron_sys::cpu_list;

pub const NUMA: &str = "vm.numa";
pub const THREADS: &str = "vm.threads";
pub const DISKS: &str = "vm.disks";
pub const BLOCK_SIZE: &str = "vm.block-size";

/// Default bytes of a disk's logical block.
const SECTOR: u32 = 512;

const fn lever(name: &'static str, takes: AcceptedValues, summary: &'static str) -> Lever {
    Lever { name, place: LeverTarget::Machine, takes, touches: SideEffects::Nothing, since: None, summary }
}

pub const LEVERS: &[Lever] = &[
    lever(
        NUMA,
        AcceptedValues::Number { least: 1, most: 64 },
        "NUMA nodes, among which CPUs and memory are divided equally",
    ),
    lever(
        THREADS,
        AcceptedValues::Words(&[("1", "1"), ("2", "2"), ("4", "4")]),
        "threads of a core (SMT): this many CPUs are siblings, which share only their place in the topology",
    ),
    lever(
        DISKS,
        AcceptedValues::Number { least: 0, most: 1000 },
        "SCSI disks (scsi_debug) that hold dbsim's data files, one on each, instead of the file system",
    ),
    lever(
        BLOCK_SIZE,
        AcceptedValues::Words(&[("512", "512"), ("4096", "4096")]),
        "bytes of a logical block of the disks: of `vm.disks`, and of the models `nvme` and `ssd`",
    ),
];

/// The shape of a guest's machine, beyond what all arms of a study share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineShape {
    /// NUMA nodes; with one there is no topology at all.
    pub nodes: u32,
    /// CPUs per core.
    pub threads: u32,
    /// Raw disks in addition to those with file systems.
    pub disks: u32,
    /// Bytes of a disk's logical block.
    pub block_bytes: u32,
}

impl Default for MachineShape {
    fn default() -> Self {
        Self { nodes: 1, threads: 1, disks: 0, block_bytes: SECTOR }
    }
}

impl MachineShape {
    /// The shape that `settings` (already checked) request.
    pub fn of(settings: &[Setting]) -> Self {
        let number = |lever: &str| settings.iter().find(|(name, _)| name == lever).and_then(|(_, n)| n.parse().ok());
        Self {
            nodes: number(NUMA).unwrap_or(1),
            threads: number(THREADS).unwrap_or(1),
            disks: number(DISKS).unwrap_or(0),
            block_bytes: number(BLOCK_SIZE).unwrap_or(SECTOR),
        }
    }

    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Number of nodes that have a CPU, on a machine with `cpus`.
    pub fn nodes_with_cpus(&self, cpus: u32) -> u32 {
        self.nodes.min(cpus)
    }

    /// Whether the running kernel, whose files `read` returns, has the nodes and the threads.
    ///
    /// # Errors
    /// What it has instead.
    pub fn verify(&self, cpus: u32, read: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
        self.verify_nodes(cpus, read)?;
        self.verify_threads(read)
    }

    fn verify_threads(&self, read: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
        if self.threads == 1 {
            return Ok(());
        }
        let lever = format!("Lever `{THREADS}={}` did not take", self.threads);
        let read = |path: &str| read(path).ok_or_else(|| format!("{lever}: `{path}` cannot be read"));
        let control = read("/sys/devices/system/cpu/smt/control")?;
        // If something else (`boot.nosmt`) has switched siblings off, each core has one thread.
        let want = if matches!(control.trim(), "off" | "forceoff") { 1 } else { self.threads as usize };
        for cpu in cpu_list::parse(&read("/sys/devices/system/cpu/online")?).unwrap_or_default() {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let text = read(&path)?;
            if cpu_list::parse(&text).map_or(0, |siblings| siblings.len()) != want {
                return Err(format!(
                    "{lever}: `{path}` says `{}`; on an emulated machine Linux before 6.9 treats every thread as a core",
                    text.trim()
                ));
            }
        }
        Ok(())
    }

    fn verify_nodes(&self, cpus: u32, read: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
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
            if cpu_list::parse(&text).map_or(0, |nodes| nodes.len()) != want as usize {
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
        assert!(MachineShape::of(&[]).is_plain());
        assert_eq!(MachineShape::of(&[lever::parse("vm.numa=4").unwrap()]).nodes, 4);
        let settings = ["vm.disks=256", "vm.block-size=4096"].map(|text| lever::parse(text).unwrap());
        assert_eq!(
            MachineShape::of(&settings),
            MachineShape { disks: 256, block_bytes: 4096, ..MachineShape::default() }
        );
        assert_eq!(MachineShape::of(&[lever::parse("vm.threads=2").unwrap()]).threads, 2);
        assert!(lever::parse("vm.block-size=1024").unwrap_err().to_string().contains("`512` or `4096`"));
        assert!(lever::parse("vm.threads=3").unwrap_err().to_string().contains("`1`, `2` or `4`"));
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
        let shape = MachineShape { nodes: 2, ..MachineShape::default() };
        shape.verify(1, &with("0-1", "0")).unwrap();
        shape.verify(4, &with("0-1", "0-1")).unwrap();
        let why = shape.verify(1, &with("0", "0")).unwrap_err();
        assert_eq!(why, "Lever `vm.numa=2` did not take: `/sys/devices/system/node/online` says `0`");
        assert!(shape.verify(2, &with("0-1", "0")).unwrap_err().contains("has_cpu"));
        assert!(shape.verify(2, &|_| None).unwrap_err().contains("without NUMA"));
        MachineShape::default().verify(2, &|_| None).unwrap();
    }

    #[test]
    fn the_kernel_must_see_the_threads() {
        let with = |control: &'static str, online: &'static str, siblings: fn(u32) -> &'static str| {
            move |path: &str| {
                let cpu = path.strip_prefix("/sys/devices/system/cpu/cpu").and_then(|rest| rest.split('/').next());
                let text = match (path.rsplit('/').next().unwrap(), cpu) {
                    ("control", _) => control,
                    ("online", _) => online,
                    (_, cpu) => siblings(cpu.unwrap().parse().unwrap()),
                };
                Some(format!("{text}\n"))
            }
        };
        let shape = MachineShape { threads: 2, ..MachineShape::default() };
        let pairs = |cpu| if cpu < 2 { "0-1" } else { "2-3" };
        shape.verify(4, &with("on", "0-3", pairs)).unwrap();
        shape.verify(2, &with("forceoff", "0,2", |cpu| if cpu == 0 { "0" } else { "2" })).unwrap();
        let why = shape.verify(2, &with("notsupported", "0-1", |cpu| if cpu == 0 { "0" } else { "1" })).unwrap_err();
        assert!(why.starts_with("Lever `vm.threads=2` did not take: `/sys/devices/system/cpu/cpu0/topology/"), "{why}");
        assert!(why.contains("says `0`; ") && why.contains("before 6.9"), "{why}");
        assert!(shape.verify(4, &with("on", "0-3", |_| "0-3")).is_err());
        assert!(shape.verify(4, &|_| None).unwrap_err().contains("cannot be read"));
    }
}
