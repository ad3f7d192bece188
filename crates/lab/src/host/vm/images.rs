//! The images that an arm's workloads bring along, as persistent memory of its guests.
//!
//! Invariant: the same order of images gives the same slots of pmem devices in every boot of the arm.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};

use super::arm::kind;
use crate::host::foundation;
use crate::protocol::{Copy, Device, PmemFileSystem, Storage};
use crate::vm::disk;
use crate::vm::qemu::Pmem;
use bigiron_image as image;
use bigiron_model::plan::{Arm, Plan};
use bigiron_model::storage::{Medium, StorageProfile};
use bigiron_workload::{Configured, ImageRole};

/// What a pmem device's length must be a multiple of (the kernel's sub-section).
const ALIGNMENT: u64 = 2 << 20;

/// The images of one arm.
#[derive(Default)]
pub(super) struct ArmImages {
    images: Vec<ArmImage>,
}

/// An image as one guest after the other gets it.
pub(super) struct ArmImage {
    pub(super) name: &'static str,
    pub(super) path: PathBuf,
    workload: String,
    filesystem: &'static str,
    /// The file system that its files are laid onto, if that is not its own as it was made.
    moves_to: Option<String>,
    role: ImageRole,
    bytes: u64,
    extents: Vec<(u64, u64)>,
    /// Slot of its pmem device, if it has one.
    pmem: Option<usize>,
}

impl ArmImages {
    /// Has the arm's workloads find or build their images.
    pub(super) fn of(workloads: &[Box<dyn Configured>], plan: &Plan, arm: &Arm) -> anyhow::Result<Self> {
        let mut all = Self::default();
        let medium = super::arm::storage_of(plan)?.medium;
        for (planned, workload) in plan.workloads.iter().zip(workloads) {
            for image in foundation::lay(workload.as_ref(), plan, arm, &planned.name)?.images {
                let file = File::open(&image.path).with_context(|| format!("Cannot open {}", image.path.display()))?;
                let bytes = file.metadata()?.len();
                ensure!(bytes.is_multiple_of(ALIGNMENT), "{} is not whole 2 MiB", image.path.display());
                let is_data = image.role == ImageRole::Data;
                let kind = kind(plan, arm);
                let moves =
                    is_data && (image.filesystem != kind.filesystem || !kind.options.is_empty() || kind.is_apart());
                // A disk of the host holds its own copy.
                let is_pmem = !is_data || moves || medium != Medium::HostFile;
                let copied = is_data && !moves && matches!(medium, Medium::Modelled { .. } | Medium::Rotational(_));
                all.images.push(ArmImage {
                    name: image.name,
                    workload: planned.name.clone(),
                    filesystem: image.filesystem,
                    moves_to: moves.then(|| kind.filesystem.to_owned()),
                    role: image.role,
                    bytes,
                    extents: if copied { image::extents(&file)? } else { Vec::new() },
                    pmem: is_pmem.then(|| all.images.iter().filter(|i| i.pmem.is_some()).count()),
                    path: image.path,
                });
            }
        }
        Ok(all)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    pub(super) fn pmems(&self) -> Vec<Pmem> {
        let pmem = |i: &ArmImage| Pmem { path: i.path.clone(), bytes: i.bytes };
        self.images.iter().filter(|i| i.pmem.is_some()).map(pmem).collect()
    }

    /// What `workload` finds on its disk.
    pub(super) fn data(&self, workload: &str) -> Option<&ArmImage> {
        self.images.iter().find(|i| i.workload == workload && i.role == ImageRole::Data)
    }

    pub(super) fn trees(&self, workload: &str) -> Vec<PmemFileSystem> {
        let tree = |i: &ArmImage| {
            Some(PmemFileSystem { name: i.name.to_owned(), pmem: i.pmem?, filesystem: i.filesystem.to_owned() })
        };
        self.images.iter().filter(|i| i.workload == workload && i.role == ImageRole::Tree).filter_map(tree).collect()
    }
}

impl ArmImage {
    /// MiB of the empty file system that its files are laid onto; `None` if it is a disk as it is.
    pub(super) fn moves_to_mib(&self) -> Option<u64> {
        self.moves_to.as_deref().map(|filesystem| image::size_mib(filesystem, self.bytes))
    }

    /// The disk that it lies on: of the guest's memory without a model it is one itself.
    pub(super) fn device(&self, profile: &StorageProfile, cpus: u32, index: usize, serial: &str) -> Device {
        match (profile.medium, self.pmem) {
            (Medium::Ram, Some(index)) if self.moves_to.is_none() => Device::Pmem { index },
            _ => {
                let size_mib = self.moves_to_mib().unwrap_or_else(|| self.bytes.div_ceil(1 << 20));
                disk::device(profile, size_mib, cpus, index, serial)
            }
        }
    }

    pub(super) fn storage(&self, device: Device, kind: image::FileSystemSpec<'_>) -> Storage {
        let mut storage = Storage {
            filesystem: kind.filesystem.to_owned(),
            image: None,
            copy: None,
            files: None,
            journal: None,
            device,
        };
        match (self.moves_to_mib(), self.pmem) {
            (Some(size_mib), Some(pmem)) => {
                let own = self.filesystem.to_owned();
                storage.files = Some(PmemFileSystem { name: self.name.to_owned(), pmem, filesystem: own });
                if !matches!(storage.device, Device::Virtio { .. }) {
                    storage.image = Some(kind.path(size_mib));
                }
            }
            (None, Some(pmem)) if matches!(storage.device, Device::NullBlk { .. } | Device::Rotational { .. }) => {
                storage.copy = Some(Copy { pmem, extents: self.extents.clone() });
            }
            _ => {}
        }
        storage
    }
}
