//! The disks of a guest: with the file systems of its workloads, and their journals.

use anyhow::Context as _;

use super::arm::{self, PreparedArm, storage_of};
use super::{DiskContent, VmHost, journal_serial};
use crate::lever;
use crate::protocol::{self, JournalDisk, Storage};
use crate::vm::disk;
use bigiron_image as image;
use bigiron_model::plan::{Arm, Plan};
use std::path::Path;

impl VmHost {
    /// The disk of the plan's workload number `n`; one that is a file of the host is made by `make`, given its serial number.
    pub(super) fn storage(
        &self,
        plan: &Plan,
        (planned, arm): (&Arm, &PreparedArm),
        n: usize,
        make: &mut dyn FnMut(&str, DiskContent<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<Storage>> {
        let (machine, name, kind) = (&plan.machine, &plan.workloads[n].name, arm::kind(plan, planned).on(n));
        let profile = storage_of(plan)?;
        if let Some(loaded) = arm.images.data(name) {
            let device = loaded.device(profile, machine.cpus, n, name);
            if let protocol::Device::Virtio { serial } = &device {
                make(serial, loaded.moves_to_mib().map_or(DiskContent::Image(&loaded.path), DiskContent::Empty))?;
            }
            let journal = match loaded.moves_to_mib() {
                Some(size_mib) => self.journal(plan, (planned, arm), n, size_mib, make)?,
                None => None,
            };
            return Ok(Some(Storage { journal, ..loaded.storage(device, kind) }));
        }
        let Some(size_mib) = arm.storage_mib.get(n).copied().flatten() else { return Ok(None) };
        let device = disk::device(profile, size_mib, machine.cpus, n, name);
        let mut image = Some(kind.path(size_mib));
        if let protocol::Device::Virtio { serial } = &device {
            make(serial, DiskContent::Empty(size_mib))?;
            image = None;
        }
        let journal = self.journal(plan, (planned, arm), n, size_mib, make)?;
        Ok(Some(Storage { device, filesystem: kind.filesystem.to_owned(), image, copy: None, files: None, journal }))
    }

    /// The disk of the journal of the plan's workload number `n`, whose file system is of `size_mib`, if the arm's journals have their own.
    fn journal(
        &self,
        plan: &Plan,
        (planned, arm): (&Arm, &PreparedArm),
        n: usize,
        size_mib: u64,
        make: &mut dyn FnMut(&str, DiskContent<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<JournalDisk>> {
        let Some(profile) = lever::fs::journal(&planned.settings) else { return Ok(None) };
        let journal_mib = arm.journal_mib(size_mib).context("A journal that was not made")?;
        let serial = journal_serial(&plan.workloads[n].name);
        // Behind those with the file systems.
        let index = plan.workloads.len() + n;
        let device = disk::device(profile, journal_mib, plan.machine.cpus, index, &serial);
        let mut image = Some(arm::kind(plan, planned).on(n).journal_path(size_mib));
        if let protocol::Device::Virtio { serial } = &device {
            make(serial, DiskContent::Journal(size_mib))?;
            image = None;
        }
        Ok(Some(JournalDisk { storage: profile.name.to_owned(), device, image }))
    }

    pub(super) fn lay(
        &self,
        kind: image::FileSystemSpec<'_>,
        content: DiskContent<'_>,
        path: &Path,
    ) -> anyhow::Result<()> {
        match content {
            DiskContent::Image(image) => image::restore(image, path),
            DiskContent::Empty(size_mib) => image::write_raw(&self.cache, kind, size_mib, path),
            DiskContent::Journal(size_mib) => image::journal::write_raw_journal(&self.cache, kind, size_mib, path),
        }
    }
}
