//! The machine and disks that an arm requires: shapes that cannot be built are refused before any boot.
//!
//! Invariant: accepted shapes give QEMU whole cores and whole MiB for every node.

use std::num::NonZero;

use super::{ResolvedArm, ResolvedQuestion};
use bigiron_image::journal;
use bigiron_lab::lever::fs;
use bigiron_lab::lever::vm::{BLOCK_SIZE, DISKS, MachineShape, NUMA, THREADS};
use bigiron_model::refusal::Refusal;
use bigiron_model::size;
use bigiron_model::storage;
use bigiron_model::storage::Medium;
use bigiron_model::suggest;

/// Least memory of a node: with less, the kernel leaves the node out or has no room for its per-node data.
const NODE_MEMORY: u64 = 64 << 20;

/// The kernel's memory for a SCSI disk: queue, tags, requests of the scheduler.
const DISK_MEMORY: u64 = 256 << 10;

impl ResolvedQuestion {
    pub(super) fn check_shapes(&self) -> Result<(), Refusal> {
        for (i, arm) in self.arms.iter().enumerate() {
            let shape = &arm.parsed.shape;
            self.check_nodes(shape)
                .and_then(|()| self.check_threads(shape))
                .and_then(|()| self.check_disks(shape, arm))
                .and_then(|()| self.check_journal(shape, arm))
                .map_err(|why| self.places.refuse(&format!("arms.{i}"), why))?;
        }
        Ok(())
    }

    fn check_nodes(&self, shape: &MachineShape) -> Result<(), String> {
        let (cpus, nodes) = (self.machine.cpus, shape.nodes);
        if cpus > nodes && !cpus.is_multiple_of(nodes) {
            let (fewer, more) = (cpus / nodes * nodes, cpus.next_multiple_of(nodes));
            return Err(format!("Lever `{NUMA}={nodes}` divides {cpus} CPUs unevenly; use {fewer} or {more} CPUs"));
        }
        let least = NODE_MEMORY * u64::from(nodes);
        if nodes > 1 && self.machine.memory_bytes < least {
            return Err(format!(
                "Lever `{NUMA}={nodes}` leaves each node less than {}; give the guest at least {} of memory",
                size::print_bytes(NODE_MEMORY),
                size::print_bytes(least)
            ));
        }
        Ok(())
    }

    fn check_threads(&self, shape: &MachineShape) -> Result<(), String> {
        let (cpus, threads) = (self.machine.cpus, shape.threads);
        let nodes = shape.nodes_with_cpus(cpus);
        if (cpus / nodes).is_multiple_of(threads) {
            return Ok(());
        }
        let (whole, of) = (nodes * threads, if nodes > 1 { format!(" on {nodes} nodes") } else { String::new() });
        let right = match cpus / whole * whole {
            0 => whole.to_string(),
            fewer => format!("{fewer} or {}", fewer + whole),
        };
        Err(format!("Lever `{THREADS}={threads}` does not divide {cpus} CPUs{of} into whole cores; use {right} CPUs"))
    }

    fn check_disks(&self, shape: &MachineShape, arm: &ResolvedArm) -> Result<(), String> {
        let storage = &self.machine.storage;
        let medium = storage::find(storage).map(|profile| profile.medium);
        if shape.block_bytes != MachineShape::default().block_bytes && !matches!(medium, Some(Medium::Modelled { .. }))
        {
            return Err(format!(
                "Lever `{BLOCK_SIZE}={}` has nothing to act on: storage `{storage}` has blocks of 512 bytes; use `nvme` or `ssd`",
                shape.block_bytes
            ));
        }
        let Some(disks) = NonZero::new(shape.disks) else { return Ok(()) };
        if !matches!(medium, Some(Medium::Modelled { .. } | Medium::Ram)) {
            return Err(format!("Lever `{DISKS}={disks}` needs flash disks: use storage `nvme`, `ssd` or `ram`"));
        }
        let needs = arm.parsed.raw_needs().ok_or_else(|| {
            format!("Lever `{DISKS}={disks}` has nothing to act on: no workload of this study works on raw disks; `dbsim` does")
        })?;
        if needs.count > disks.get() as usize {
            let (files, option) = (needs.count, "dbsim.data.files");
            return Err(format!(
                "{files} data files do not fit onto {disks} disks, one on each; set `{option}={disks}`"
            ));
        }
        Ok(())
    }

    fn check_journal(&self, shape: &MachineShape, arm: &ResolvedArm) -> Result<(), String> {
        let Some(profile) = fs::journal(&arm.settings) else { return Ok(()) };
        let lever = format!("Lever `{}={}`", fs::JOURNAL, profile.name);
        let filesystem = fs::kind(&arm.settings, &self.machine.filesystem);
        if journal::mount_option(filesystem).is_none() {
            let right = suggest::list(journal::filesystems());
            return Err(format!("{lever} is not for {filesystem}: {right} can have their journal on a separate disk"));
        }
        profile.goes_with(self.clock).map_err(|why| {
            let right = suggest::list(storage::names(self.clock));
            format!("{lever} is not available: {why}; use {right}")
        })?;
        if shape.disks > 0 {
            return Err(format!(
                "{lever} applies to the disk of a file system, but with `{DISKS}={}` the data is on raw disks; leave out one of the two",
                shape.disks
            ));
        }
        match arm.parsed.needs().any(|needs| needs.storage_bytes.is_some()) {
            true => Ok(()),
            false => Err(format!("{lever} has nothing to act on: no workload of this study has a disk; `dbsim` has")),
        }
    }

    /// Memory of raw disks, of the arm with the most.
    pub(super) fn disk_memory(&self) -> u64 {
        let of = |arm: &ResolvedArm| {
            let each = arm.parsed.raw_needs().map_or(0, |needs| needs.bytes + DISK_MEMORY);
            u64::from(arm.parsed.shape.disks) * each
        };
        self.arms.iter().map(of).max().unwrap_or(0)
    }
}
