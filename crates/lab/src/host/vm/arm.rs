//! What is the same for every boot of an arm: its kernel, and an initramfs with the agent, modules and empty file systems.

use std::path::Path;
#[cfg(test)]
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};

use super::images::ArmImages;
use super::kernel::BootImage;
#[cfg(test)]
use super::kernel::Form;
use crate::lever::{self, vm};
use crate::protocol::{Module, RawDisks};
use crate::vm::initramfs::Archive;
use bigiron_archive::modules::ModuleFile;
use bigiron_archive::{Kernel, KernelError, modinfo, modules};
use bigiron_image as image;
use bigiron_image::journal::packed_journal;
use bigiron_model::plan::{Arm, Plan, Slot};
use bigiron_model::storage;
use bigiron_model::storage::{Medium, StorageProfile};
use bigiron_workload::Configured;

/// What is the same for every boot of an arm.
pub(super) struct PreparedArm {
    /// The kernel; of a plan with rebuilds, all builds.
    pub(super) boots: Vec<BootImage>,
    /// Agent, modules, file-system images.
    pub(super) archive: Vec<u8>,
    /// The modules in the archive, in the order in which they load.
    pub(super) modules: Vec<Module>,
    /// Those that levers need, loaded when the devices are there: a scheduler that is known earlier would become their default.
    pub(super) lever_modules: Vec<Module>,
    pub(super) cmdline: Vec<String>,
    pub(super) images: ArmImages,
    pub(super) raw_disks: Option<RawDisks>,
    /// MiB of the file system of each of the plan's workloads, if it has one that is not in an image.
    pub(super) storage_mib: Vec<Option<u64>>,
    /// MiB of file systems, and of the journals that they have on other disks.
    journals: Vec<(u64, u64)>,
}

impl PreparedArm {
    /// An arm without modules or file systems.
    #[cfg(test)]
    pub(super) fn bare(kernel: PathBuf, images: ArmImages) -> Self {
        Self {
            boots: vec![BootImage { path: kernel, form: Some(Form::Packed("in tests".to_owned())) }],
            archive: Vec::new(),
            modules: Vec::new(),
            lever_modules: Vec::new(),
            cmdline: Vec::new(),
            images,
            raw_disks: None,
            storage_mib: Vec::new(),
            journals: Vec::new(),
        }
    }

    /// The image that boots in a slot.
    pub(super) fn boot_image(&self, plan: &Plan, slot: &Slot) -> &BootImage {
        &self.boots[plan.design.build_of(slot.pair).unwrap_or(0) as usize]
    }

    /// MiB of the journal of a file system of `size_mib`, if that has a disk of its own.
    pub(super) fn journal_mib(&self, size_mib: u64) -> Option<u64> {
        self.journals.iter().find(|(of, _)| *of == size_mib).map(|(_, journal)| *journal)
    }
}

pub(super) fn prepare(
    workloads: &[Box<dyn Configured>],
    plan: &Plan,
    arm: &Arm,
    (kernel, boots): (&Kernel, Vec<BootImage>),
    cache: &Path,
    agent: &[u8],
) -> anyhow::Result<PreparedArm> {
    let mut archive = Archive::with_agent(agent);
    let images = ArmImages::of(workloads, plan, arm)?;
    let mut wanted = wanted_modules(workloads, plan, arm, kernel)?;
    if !images.is_empty() {
        wanted.extend(["nfit", "nd_pmem", "ext4"]);
    }
    let storage_mib: Vec<_> = workloads.iter().map(|workload| storage_mib(workload.as_ref(), plan, arm)).collect();
    let empty = empty_images(&storage_mib, plan, arm, &images);
    let mut journals = Vec::new();
    if let Some(profile) = lever::fs::journal(&arm.settings) {
        for &(kind, size_mib) in &empty {
            let journal = packed_journal(cache, kind, size_mib)
                .with_context(|| format!("Lever `{}={}` is not available", lever::fs::JOURNAL, profile.name))?;
            journals.push((size_mib, journal.size_mib));
            if profile.is_in_memory() {
                archive.file(&kind.journal_path(size_mib), 0o644, &journal.packed);
            }
        }
    }
    let sizes = empty.iter().map(|(_, size_mib)| *size_mib).chain(journals.iter().map(|(_, mib)| *mib));
    let largest = sizes.max().unwrap_or(0);
    let disks = plan.workloads.len() * if journals.is_empty() { 1 } else { 2 };
    let mut packed = |n: usize, module: &ModuleFile| {
        // Unpacked here: a kernel need not be able to unpack them, and none pays for it.
        let path = format!("/modules/{n:02}-{}.ko", module.name);
        archive.file(&path, 0o644, &modinfo::read_module(&module.path, module.compression)?);
        let parameters = parameters(&module.name, disks, largest);
        anyhow::Ok(Module { path, parameters, optional: module.optional })
    };
    let mut first = optional(kernel, image::helpers(kind(plan, arm).filesystem))?;
    for module in modules::load_order(kernel, &wanted).map_err(|e| without(e, arm, plan))? {
        if !first.iter().any(|f| f.name == module.name) {
            first.push(module);
        }
    }
    let to_load = first.iter().enumerate().map(|(n, m)| packed(n, m)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut lever_modules = Vec::new();
    for module in
        optional(kernel, &lever::modules(&arm.settings))?.iter().filter(|m| !first.iter().any(|f| f.name == m.name))
    {
        lever_modules.push(packed(to_load.len() + lever_modules.len(), module)?);
    }
    let mut raw_disks = raw_disks(workloads, arm)?;
    if let Some(raw) = &mut raw_disks {
        let at = to_load.len() + lever_modules.len();
        let loaded = |name: &str| first.iter().any(|f| f.name == name);
        let order = modules::load_order(kernel, &["sd_mod", "scsi_debug"])
            .with_context(|| format!("Lever `{}={}` is not available", vm::DISKS, raw.count))?;
        for module in order.iter().filter(|module| !loaded(&module.name)) {
            let mut module = packed(at + raw.modules.len(), module)?;
            if module.path.ends_with("-scsi_debug.ko") {
                module.parameters = scsi_debug(plan, raw)?;
            }
            raw.modules.push(module);
        }
    }
    if storage_of(plan)?.is_in_memory() {
        for (kind, size_mib) in empty {
            archive.file(&kind.path(size_mib), 0o644, &image::packed(cache, kind, size_mib)?);
        }
    }
    Ok(PreparedArm {
        boots,
        archive: archive.finish(),
        modules: to_load,
        lever_modules,
        cmdline: lever::cmdline(&arm.settings),
        images,
        raw_disks,
        storage_mib,
        journals,
    })
}

/// Left alone, null_blk makes a disk of its own beside those of configfs, and brd sixteen small ones: one for each file system and each
/// journal, as large as the largest, is wanted (memory is taken only as it is written).
fn parameters(module: &str, disks: usize, size_mib: u64) -> String {
    match module {
        "null_blk" => "nr_devices=0".to_owned(),
        "nbd" => format!("nbds_max={disks}"),
        "brd" => format!("rd_nr={disks} rd_size={}", size_mib << 10),
        _ => String::new(),
    }
}

/// The raw disks that an arm asks for, as large as its workloads need them.
fn raw_disks(workloads: &[Box<dyn Configured>], arm: &Arm) -> anyhow::Result<Option<RawDisks>> {
    let shape = vm::MachineShape::of(&arm.settings);
    if shape.disks == 0 {
        return Ok(None);
    }
    let bytes = workloads.iter().filter_map(|workload| workload.raw_disks()).map(|raw| raw.bytes);
    let bytes = bytes.max().context("No workload of this study works on raw disks")?;
    Ok(Some(RawDisks {
        count: shape.disks,
        size_mib: bytes.div_ceil(1 << 20),
        block_bytes: shape.block_bytes,
        modules: Vec::new(),
    }))
}

/// One adapter with as many targets as there are disks, each of which ends a request so long after it came; one store for all.
fn scsi_debug(plan: &Plan, raw: &RawDisks) -> anyhow::Result<String> {
    let delay = match storage_of(plan)?.medium {
        Medium::Modelled { completion_ns } => format!("ndelay={completion_ns}"),
        Medium::Ram => "delay=0".to_owned(),
        _ => anyhow::bail!("Storage `{}` has no raw disks", plan.machine.storage),
    };
    let (count, block) = (raw.count, raw.block_bytes);
    let store_mib = u64::from(count) * raw.size_mib;
    Ok(format!("num_tgts={count} max_luns=1 dev_size_mb={store_mib} sector_size={block} {delay}"))
}

/// What the arm's disks are made with.
pub(super) fn kind<'a>(plan: &'a Plan, arm: &'a Arm) -> image::FileSystemSpec<'a> {
    let filesystem = lever::fs::kind(&arm.settings, &plan.machine.filesystem);
    image::FileSystemSpec::new(filesystem, lever::fs::mkfs(&arm.settings))
        .of_blocks(vm::MachineShape::of(&arm.settings).block_bytes)
        .with_journal_apart(lever::fs::journal(&arm.settings).is_some())
}

/// Those of `modules` that the kernel has, with what they need; what it has not is left to it to say.
fn optional(kernel: &Kernel, modules: &[&'static str]) -> anyhow::Result<Vec<ModuleFile>> {
    let mut found: Vec<ModuleFile> = Vec::new();
    for &wanted in modules {
        match modules::load_order(kernel, &[wanted]) {
            Ok(order) => {
                for module in order {
                    if !found.iter().any(|f| f.name == module.name) {
                        found.push(module);
                    }
                }
            }
            Err(KernelError::ModuleNotFound { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(found)
}

/// A kernel without the file system that was asked for: what would be right.
fn without(error: KernelError, arm: &Arm, plan: &Plan) -> anyhow::Error {
    let filesystem = kind(plan, arm).filesystem;
    match &error {
        KernelError::ModuleNotFound { module, release, .. } if image::module(filesystem) == Some(module) => anyhow!(
            "The kernel {release} has no file system {filesystem}; Debian's general flavours have more than its cloud flavours \
             (`debian:6.1/amd64`), and no kernel has all"
        ),
        _ => error.into(),
    }
}

pub(super) fn storage_of(plan: &Plan) -> anyhow::Result<&'static StorageProfile> {
    let name = &plan.machine.storage;
    let profile = storage::find(name).with_context(|| format!("No storage `{name}`"))?;
    profile.goes_with(plan.clock).map_err(anyhow::Error::msg)?;
    Ok(profile)
}

/// The empty file systems that the arm's workloads ask for and their MiB, each once.
fn empty_images<'a>(
    storage_mib: &[Option<u64>],
    plan: &'a Plan,
    arm: &'a Arm,
    images: &ArmImages,
) -> Vec<(image::FileSystemSpec<'a>, u64)> {
    let mut all = Vec::new();
    for (n, workload) in plan.workloads.iter().enumerate() {
        let size_mib = match images.data(&workload.name) {
            Some(loaded) => loaded.moves_to_mib(),
            None => storage_mib[n],
        };
        let image = size_mib.map(|size_mib| (kind(plan, arm).on(n), size_mib));
        all.extend(image.filter(|image| !all.contains(image)));
    }
    all
}

/// MiB of file system for a workload: what it asks for, and what the file system itself needs (journal, metadata).
fn storage_mib(workload: &dyn Configured, plan: &Plan, arm: &Arm) -> Option<u64> {
    let bytes = workload.needs().storage_bytes?;
    Some(image::size_mib(kind(plan, arm).filesystem, bytes))
}

/// A module that the kernel need not have.
fn has<'a>(kernel: &Kernel, module: &'a str) -> Option<&'a str> {
    modules::load_order(kernel, &[module]).is_ok().then_some(module)
}

fn wanted_modules(
    workloads: &[Box<dyn Configured>],
    plan: &Plan,
    arm: &Arm,
    kernel: &Kernel,
) -> anyhow::Result<Vec<&'static str>> {
    let mut wanted = Vec::new();
    let mut storage = false;
    for needs in workloads.iter().map(|workload| workload.needs()) {
        storage |= needs.storage_bytes.is_some();
        wanted.extend(needs.modules);
    }
    if storage {
        let journal = lever::fs::journal(&arm.settings);
        for profile in [Some(storage_of(plan)?), journal].into_iter().flatten() {
            match profile.medium {
                Medium::Ram => wanted.push("brd"),
                Medium::Modelled { .. } => wanted.extend(["configfs", "null_blk"]),
                // The scheduler of single queues, as the kernel chooses it where it is built in.
                Medium::Rotational(_) => {
                    wanted.extend(has(kernel, "mq_deadline"));
                    wanted.push("nbd");
                }
                Medium::HostFile => wanted.extend(["virtio_pci", "virtio_blk"]),
                Medium::Folder => anyhow::bail!("Storage `{}` is not a disk of a guest", storage::LOCAL),
            }
        }
        let filesystem = kind(plan, arm).filesystem;
        wanted.push(image::module(filesystem).with_context(|| format!("No file system `{filesystem}`"))?);
    }
    Ok(wanted)
}
