//! Room on a target's disks for the kernels of a study, checked before anything is copied.

use std::fs;
use std::path::Path;

use bigiron_archive::Kernel;
use bigiron_model::refusal::Refusal;

use crate::target::messages::Look;

/// What a study that boots needs in any case: trials with their artefacts, the audit log, the noted state of the machine.
const RECORDS: u64 = 16 << 20;

/// In /boot, what each method needs there at most: an entry of GRUB's menu, a kernel's configuration.
const BOOT: u64 = 2 << 20;

/// An initramfs with all drivers, and the tree that it is packed from.
const INITRAMFS: u64 = 320 << 20;

/// Bytes that a kernel takes on a target.
fn bytes(kernel: &Kernel) -> u64 {
    let size = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
    size(&kernel.image) + kernel.modules.as_deref().map_or(0, tree) + INITRAMFS
}

fn tree(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => tree(&entry.path()),
        // Small files take a block.
        Ok(meta) => meta.len().next_multiple_of(4096),
        Err(_) => 0,
    };
    entries.map(of).sum()
}

/// Refuses a target without room for `missing`, the kernels that must be brought.
pub(super) fn check(look: &Look, missing: &[&Kernel]) -> Result<(), Refusal> {
    enough(look, RECORDS + missing.iter().map(|kernel| bytes(kernel)).sum::<u64>())
}

fn enough(look: &Look, need: u64) -> Result<(), Refusal> {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    for (place, free, need) in [(look.folder.as_str(), look.free_bytes, need), ("/boot", look.boot_free_bytes, BOOT)] {
        if free < need {
            return Err(Refusal::new(format!(
                "`{}` has {} MiB free in `{place}`, and this study needs {} MiB there for its kernels",
                look.name,
                free >> 20,
                mib(need)
            ))
            .hint("Free space there; nothing was changed"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::look::testing::look;

    #[test]
    fn a_full_disk_is_refused_before_anything_is_copied() {
        let mut look = look();
        enough(&look, RECORDS).unwrap();
        look.free_bytes = RECORDS;
        let refused = enough(&look, RECORDS + 1).unwrap_err().message;
        assert_eq!(
            refused,
            "`db3` has 16 MiB free in `/root/.local/state/bigiron`, and this study needs 17 MiB there for its kernels"
        );
        (look.free_bytes, look.boot_free_bytes) = (1 << 40, BOOT - 1);
        assert!(enough(&look, RECORDS).unwrap_err().message.contains("1 MiB free in `/boot`"));
    }

    #[test]
    fn a_tree_has_the_blocks_of_its_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("kernel")).unwrap();
        fs::write(dir.path().join("modules.dep"), "x").unwrap();
        fs::write(dir.path().join("kernel/a.ko"), vec![0; 5000]).unwrap();
        assert_eq!(tree(dir.path()), 3 * 4096);
    }
}
