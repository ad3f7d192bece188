//! Whether the requested machine has room for the work: its memory, and CPUs that can be timed.
//!
//! Invariant: every machine refused here would fail, hang or measure something else in a guest.

use super::{Capabilities, ResolvedQuestion};
use bigiron_lab::lever;
use bigiron_model::clock::Clock;
use bigiron_model::host::HostKind;
use bigiron_model::identity::Identity;
use bigiron_model::refusal::Refusal;
use bigiron_model::size;
use bigiron_model::storage;
use bigiron_model::storage::StorageProfile;
use bigiron_model::version::major_minor;

/// Memory of a guest's kernel with its modules, and of the initramfs with this executable, in addition to the workloads' memory.
const KERNEL_MEMORY: u64 = 160 << 20;

/// Memory that was not asked for is whole steps: a little more that workloads need does not make every study another machine's.
const MEMORY_STEP: u64 = 256 << 20;

impl ResolvedQuestion {
    /// Memory that the workloads of this study need at least.
    fn memory_needed(&self) -> u64 {
        // Memory and storage for each workload: the largest need of any arm.
        let mut needs = vec![(0, 0); self.workloads.len()];
        for arm in &self.arms {
            for ((memory, storage), workload) in needs.iter_mut().zip(&arm.parsed.workloads) {
                let own = workload.needs();
                let here = workload.memory_on(self.machine.cpus, self.clock).unwrap_or(0);
                *memory = own.memory_bytes.max(here).max(*memory);
                *storage = own.storage_bytes.unwrap_or(0).max(*storage);
            }
        }
        // Workloads run one after the other, but their files stay.
        let working = needs.iter().map(|(memory, _)| *memory).max().unwrap_or(0);
        let in_memory = storage::find(&self.machine.storage).is_none_or(StorageProfile::is_in_memory);
        let stored: u64 = if in_memory { needs.iter().map(|(_, storage)| *storage).sum() } else { 0 };
        working + stored + self.disk_memory()
    }

    /// Bytes that a guest, or this machine, needs at least.
    fn least_memory(&self) -> u64 {
        let kernel = if self.machine.host.is_machine() { 0 } else { KERNEL_MEMORY };
        // What is swapped out to compressed memory leaves less than it takes; how much less nobody knows before.
        let swap = self.arms.iter().map(|arm| lever::swap_bytes(&arm.settings)).min().unwrap_or(0);
        (kernel + self.memory_needed()).saturating_sub(swap).next_multiple_of(1 << 20)
    }

    /// Gives a guest whose memory was not asked for what its workloads need, if that is more than usual.
    pub(super) fn widen_memory(&mut self) {
        let least = self.least_memory();
        if self.machine.memory_bytes < least {
            self.machine.memory_bytes = least.next_multiple_of(MEMORY_STEP);
        }
    }

    pub(super) fn check_host_memory(&self, here: &impl Capabilities) -> Result<(), Refusal> {
        let (bytes, has) = (self.machine.memory_bytes, here.memory_bytes());
        if self.machine.host == HostKind::Vm && bytes > has {
            let (bytes, has) = (size::print_bytes(bytes), has >> 20);
            let message = format!("A guest of {bytes} does not fit into this machine, which has {has} MiB of memory");
            return Err(self.places.refuse("machine.memory", message));
        }
        Ok(())
    }

    pub(super) fn check_memory(&self) -> Result<(), Refusal> {
        let bytes = self.machine.memory_bytes;
        let refuse = |message| self.places.refuse("machine.memory", message);
        if !bytes.is_multiple_of(1 << 20) {
            return Err(refuse(format!(
                "A guest's memory must be whole MiB, not {bytes} bytes; write for example `1G`"
            )));
        }
        let needed = self.least_memory();
        if bytes < needed {
            let names = self.workloads.iter().map(|w| w.name.as_str()).collect::<Vec<_>>().join(", ");
            let (has, least) = (size::print_bytes(bytes), size::print_bytes(needed));
            return Err(refuse(match self.machine.host.is_machine() {
                true => format!("With these options, {names} needs {least} of memory, and the machine has {has}"),
                false => format!("{has} of memory is too little for a kernel with {names}; give at least {least}"),
            }));
        }
        // Reserving them would take all that is free, also from other programs, and fail then.
        for (i, arm) in self.arms.iter().enumerate() {
            let reserved = lever::huge_page_bytes(&arm.settings);
            if reserved + KERNEL_MEMORY > bytes {
                let (reserved, has) = (size::print_bytes(reserved), size::print_bytes(bytes));
                let message = format!(
                    "{reserved} of huge pages do not fit into a machine with {has} of memory, beside its kernel"
                );
                return Err(self.places.refuse(&format!("arms.{i}"), message));
            }
        }
        Ok(())
    }

    pub(super) fn check_cpus(&self, here: &impl Capabilities) -> Result<(), Refusal> {
        let (cpus, host) = (self.machine.cpus, here.cpus());
        if self.machine.host == HostKind::Vm && self.clock == Clock::Wall && cpus > host {
            let message = format!("{cpus} CPUs cannot be timed on the {host} of this machine");
            return Err(self
                .places
                .refuse("machine.cpus", message)
                .hint("The clock `exact` has no such limit, and `none` shows whether the kernel survives"));
        }
        Ok(())
    }

    /// Before QEMU 8.1, instruction counting with more than one CPU live-locks in kernels before 6.12, unless the clock divides the turns.
    pub(super) fn check_live_lock(
        &self,
        arm: usize,
        kernel: &Identity,
        qemu: Option<(u32, u32)>,
    ) -> Result<(), Refusal> {
        let Some(qemu) = qemu.filter(|_| self.machine.host == HostKind::Vm && self.clock == Clock::Exact1) else {
            return Ok(());
        };
        if self.machine.cpus == 1 || qemu >= (8, 1) || major_minor(&kernel.release).is_some_and(|v| v >= (6, 12)) {
            return Ok(());
        }
        let message = format!(
            "QEMU {}.{} hangs in a kernel as old as {} with {} CPUs under the clock `exact/1`",
            qemu.0, qemu.1, kernel.release, self.machine.cpus
        );
        Err(self
            .places
            .refuse(&format!("arms.{arm}"), message)
            .hint("Use `--clock exact`, one CPU or kernels from 6.12 on, or install QEMU 8.1 or newer and use `--qemu system`"))
    }
}
