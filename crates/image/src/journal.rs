//! Journals on separate disks: the image of the journal, and the image of the file system that uses it.
//!
//! Invariant: the journal is as large as the one that the same options create inside the file system, in blocks of the same size: only its place
//! differs. Both images are made without a block device, which the tools themselves would require.

use std::ffi::OsString;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use tempfile::NamedTempFile;

use super::{
    Extents, FileSystemSpec, HASH_SEED, UUID, command, created, done, installed, kept, make, packed, tool_of, unpack,
};

/// File systems whose journal can be on another disk, and the mount option that names it.
const APART: &[(&str, &str)] = &[("ext3", "journal_path"), ("ext4", "journal_path"), ("xfs", "logdev")];

/// The UUID of an ext3 or ext4 journal, by which the file system identifies it.
const JOURNAL_UUID: &str = "62696769-726f-6e00-8000-000000000003";

/// The offset of ext4's superblock, on a disk of the file system and on a disk of its journal.
const SUPERBLOCK: u64 = 1024;

/// The file systems whose journal can be on another disk.
pub fn filesystems() -> impl Iterator<Item = &'static str> {
    APART.iter().map(|(name, _)| *name)
}

/// The mount option that names the journal's disk; `None` if the file system has none.
pub fn mount_option(filesystem: &str) -> Option<&'static str> {
    APART.iter().find(|(name, _)| *name == filesystem).map(|(_, option)| *option)
}

/// A journal's disk before its first mount.
pub struct Journal {
    /// Its bytes, in the format of [`Extents`].
    pub packed: Vec<u8>,
    pub size_mib: u64,
}

/// The size of the journal inside a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inside {
    block_bytes: u64,
    blocks: u64,
}

impl Inside {
    /// Number of ext4 blocks before the journal's own superblock: those with the disk's (`ext2fs_journal_sb_start`).
    fn before(self) -> u64 {
        if self.block_bytes == 1024 { 2 } else { 1 }
    }
}

/// The journal's disk for the file system of [`packed`] with the same arguments; `kind` must have a separate journal.
///
/// # Errors
/// The options create a file system without a journal, or a tool is missing or failed.
pub fn packed_journal(cache: &Path, kind: FileSystemSpec<'_>, size_mib: u64) -> anyhow::Result<Journal> {
    let inside = inside(cache, kind, size_mib)?;
    let is_ext = kind.filesystem != "xfs";
    let blocks = inside.blocks + if is_ext { inside.before() } else { 0 };
    let bytes = blocks * inside.block_bytes;
    let packed = kept(cache, kind, size_mib, "journal-", &mut |raw| {
        raw.as_file().set_len(bytes)?;
        if is_ext { ext_journal(inside, blocks, raw) } else { xfs(kind, size_mib, raw.path(), None) }
    })?;
    Ok(Journal { packed, size_mib: bytes.div_ceil(1 << 20) })
}

/// A plain file with that journal, for a disk of the VM.
pub fn write_raw_journal(cache: &Path, kind: FileSystemSpec<'_>, size_mib: u64, to: &Path) -> anyhow::Result<()> {
    let journal = packed_journal(cache, kind, size_mib)?;
    unpack(&journal.packed, journal.size_mib, &created(to)?)
}

/// The file system with its journal elsewhere.
pub(super) fn packed_disk(cache: &Path, kind: FileSystemSpec<'_>, size_mib: u64) -> anyhow::Result<Vec<u8>> {
    let inside = inside(cache, kind, size_mib)?;
    kept(cache, kind, size_mib, "apart-", &mut |raw| {
        if kind.filesystem == "xfs" {
            let log = NamedTempFile::new()?;
            log.as_file().set_len(inside.blocks * inside.block_bytes)?;
            return xfs(kind, size_mib, log.path(), Some(raw));
        }
        // Made with its journal first, so that everything else has the same place as in the file system that it is compared with.
        unpack(&packed(cache, kind.with_journal_apart(false), size_mib)?, size_mib, raw.as_file())?;
        ext_disk(raw)
    })
}

/// The journal that the file system would have inside.
fn inside(cache: &Path, kind: FileSystemSpec<'_>, size_mib: u64) -> anyhow::Result<Inside> {
    let whole = packed(cache, kind.with_journal_apart(false), size_mib)?;
    let read = match kind.filesystem {
        "ext3" | "ext4" => of_ext(&whole),
        "xfs" => of_xfs(&whole),
        other => bail!("Cannot make a `{other}` file system with its journal on a separate disk"),
    };
    read.with_context(|| format!("With `{}` there is no journal in {}", kind.options, kind.filesystem))
}

/// The `len` bytes at offset `at` of a packed image.
fn bytes(packed: &[u8], at: u64, len: usize) -> Option<&[u8]> {
    Extents::new(packed).find_map(|(offset, data)| data.get(at.checked_sub(offset)? as usize..)?.get(..len))
}

/// `fs/ext4/ext4.h`: the superblock has a copy of the journal's inode, which ends with its length.
fn of_ext(whole: &[u8]) -> Option<Inside> {
    let word = |at: u64| Some(u32::from_le_bytes(bytes(whole, SUPERBLOCK + at, 4)?.try_into().ok()?));
    let has_journal = word(0x5c)? & 4 != 0;
    // At most 64 KiB, or it is no file system of this kind.
    let block_bytes = 1024_u64 << word(0x18).filter(|log| *log <= 6)?;
    let length = u64::from(word(0x14c)?);
    (has_journal && length > 0).then_some(Inside { block_bytes, blocks: length / block_bytes })
}

/// `fs/xfs/libxfs/xfs_format.h`: `sb_blocksize` and `sb_logblocks`.
fn of_xfs(whole: &[u8]) -> Option<Inside> {
    let word = |at: u64| Some(u64::from(u32::from_be_bytes(bytes(whole, at, 4)?.try_into().ok()?)));
    Some(Inside { block_bytes: word(4)?, blocks: word(96)? })
}

/// A journal with one user, bigiron's file system; the kernel accepts no other.
fn ext_journal(inside: Inside, blocks: u64, raw: &NamedTempFile) -> anyhow::Result<()> {
    let block = inside.block_bytes.to_string();
    let mut mke2fs = command(&tool_of("ext4")?);
    mke2fs.args(["-q", "-F", "-O", "journal_dev", "-b", &block, "-U", JOURNAL_UUID]);
    done(mke2fs.args(["-E", &format!("hash_seed={HASH_SEED}")]).arg(raw.path()).arg(blocks.to_string()))?;
    // `include/linux/jbd2.h`, in network byte order: s_nr_users, s_users.
    let own = inside.before() * inside.block_bytes;
    raw.as_file().write_all_at(&1_u32.to_be_bytes(), own + 0x40)?;
    raw.as_file().write_all_at(&uuid_bytes(UUID), own + 0x100)?;
    Ok(())
}

/// Removes the journal from the file system on `raw`, and makes it use the external one. With a block device, tune2fs would do both at once.
fn ext_disk(raw: &NamedTempFile) -> anyhow::Result<()> {
    let [tune2fs, debugfs] = ["tune2fs", "debugfs"].map(|name| installed(name, "e2fsprogs"));
    done(command(&tune2fs?).args(["-O", "^has_journal"]).arg(raw.path()))?;
    let debugfs = debugfs?;
    for request in ["feature has_journal".to_owned(), format!("set_super_value journal_uuid {JOURNAL_UUID}")] {
        done(command(&debugfs).args(["-w", "-R", &request]).arg(raw.path()))?;
    }
    // debugfs always ends with status 0.
    let (mut features, mut uuid) = ([0; 4], [0; 16]);
    raw.as_file().read_exact_at(&mut features, SUPERBLOCK + 0x5c)?;
    raw.as_file().read_exact_at(&mut uuid, SUPERBLOCK + 0xd0)?;
    let is_set = u32::from_le_bytes(features) & 4 != 0 && uuid == uuid_bytes(JOURNAL_UUID);
    ensure!(is_set, "{} did not set the journal of a file system", debugfs.display());
    Ok(())
}

/// Makes a file system and its log together; keeps `log`, and `disk` if there is one.
fn xfs(kind: FileSystemSpec<'_>, size_mib: u64, log: &Path, disk: Option<&NamedTempFile>) -> anyhow::Result<()> {
    let scratch = NamedTempFile::new()?;
    let path = disk.unwrap_or(&scratch).path();
    created(path)?.set_len(size_mib << 20)?;
    let mut option = OsString::from("logdev=");
    option.push(log);
    make(&tool_of("xfs")?, kind, &["-l".into(), option], path)
}

fn uuid_bytes(text: &str) -> [u8; 16] {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16).expect("a UUID of bigiron's own").to_be_bytes()
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{size_mib, write_raw};

    fn made(filesystem: &str, options: &str) -> (Vec<u8>, Journal) {
        let cache = tempfile::tempdir().unwrap();
        let (kind, size) = (FileSystemSpec::new(filesystem, options).with_journal_apart(true), size_mib(filesystem, 1));
        let journal = packed_journal(cache.path(), kind, size).unwrap();
        let again = packed_journal(cache.path(), kind, size).unwrap();
        assert!(journal.packed == again.packed && journal.size_mib == again.size_mib);
        let raw = cache.path().join("raw");
        write_raw(cache.path(), kind, size, &raw).unwrap();
        let whole = packed(cache.path(), kind.with_journal_apart(false), size).unwrap();
        assert!(packed(cache.path(), kind, size).unwrap() != whole, "{filesystem}: another image for another arm");
        (std::fs::read(raw).unwrap(), journal)
    }

    #[test]
    fn ext4_and_its_journal_name_each_other() {
        for (filesystem, options, block) in
            [("ext4", "", 1024), ("ext3", "", 1024), ("ext4", "-b 4096 -J size=8", 4096)]
        {
            let (disk, journal) = made(filesystem, options);
            assert_eq!(disk[1024 + 0xd0..][..16], uuid_bytes(JOURNAL_UUID), "{filesystem} {options}");
            assert_eq!(disk[1024 + 0xe0..][..4], [0; 4], "no inode has the journal");
            assert_eq!(bytes(&journal.packed, 1024 + 0x68, 16).unwrap(), uuid_bytes(JOURNAL_UUID));
            let own = if block == 1024 { 2048 } else { 4096 };
            let number = |at: u64| u32::from_be_bytes(bytes(&journal.packed, own + at, 4).unwrap().try_into().unwrap());
            assert_eq!((number(0), number(0x40)), (0xc03b_3998, 1), "a journal of one user");
            assert_eq!(bytes(&journal.packed, own + 0x100, 16).unwrap(), uuid_bytes(UUID));
            // s_blocksize, and s_maxlen less s_first: the blocks that hold commits.
            assert_eq!(number(0xc), block);
            let usable = number(0x10) - number(0x14);
            assert_eq!(usable + 1, if block == 1024 { 4096 } else { 2048 }, "as inside");
            assert_eq!(journal.size_mib, if block == 1024 { 5 } else { 9 });
        }
    }

    #[test]
    fn xfs_has_its_log_elsewhere() {
        let (disk, journal) = made("xfs", "");
        assert_eq!(disk[48..56], [0; 8], "sb_logstart: no block of this disk");
        assert_eq!(journal.size_mib, 64);
        assert_eq!(bytes(&journal.packed, 0, 4).unwrap(), 0xfeed_babe_u32.to_be_bytes());
    }

    #[test]
    fn what_has_no_journal_cannot_move_it() {
        let cache = tempfile::tempdir().unwrap();
        let kind = FileSystemSpec::new("ext4", "-O ^has_journal").with_journal_apart(true);
        let error = packed_journal(cache.path(), kind, 64).err().unwrap().to_string();
        assert!(error.contains("With `-O ^has_journal` there is no journal in ext4"), "{error}");
        assert!(filesystems().eq(["ext3", "ext4", "xfs"]) && mount_option("btrfs").is_none());
    }
}
