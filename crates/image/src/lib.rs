//! Empty file systems, made without root by the host's mkfs on a sparse file, and packed as the extents that are not zero.
//!
//! Invariant: an image is built once per (file system, size, options, mkfs version) and cached under that key, so that both arms of every pair start
//! from the same bytes; some versions of mkfs are not reproducible byte for byte.

pub mod journal;
mod sparse;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

pub use sparse::{Extents, extents, restore};
use sparse::{created, pack, unpack};

/// A file system that can be made here.
struct Maker {
    filesystem: &'static str,
    tool: &'static str,
    package: &'static str,
    /// The kernel module.
    module: &'static str,
    /// Smallest size in MiB that the tool accepts, and the percentage of the disk that the file system uses itself.
    least_mib: u64,
    overhead: u64,
}

const fn maker(
    filesystem: &'static str,
    tool: &'static str,
    package: &'static str,
    module: &'static str,
    least_mib: u64,
    overhead: u64,
) -> Maker {
    Maker { filesystem, tool, package, module, least_mib, overhead }
}

/// Every file system for which Debian has both a tool and, in at least one flavour, a kernel. xfs refuses less than 300 MiB.
const MAKERS: &[Maker] = &[
    maker("ext4", "mke2fs", "e2fsprogs", "ext4", 64, 25),
    maker("xfs", "mkfs.xfs", "xfsprogs", "xfs", 320, 25),
    maker("ext2", "mke2fs", "e2fsprogs", "ext4", 64, 25),
    maker("ext3", "mke2fs", "e2fsprogs", "ext4", 64, 25),
    maker("btrfs", "mkfs.btrfs", "btrfs-progs", "btrfs", 384, 60),
    maker("f2fs", "mkfs.f2fs", "f2fs-tools", "f2fs", 256, 50),
    maker("jfs", "mkfs.jfs", "jfsutils", "jfs", 64, 25),
    maker("reiserfs", "mkreiserfs", "reiserfsprogs", "reiserfs", 128, 25),
];

/// File systems that a user may request, and why they are unavailable.
pub const UNAVAILABLE: &[(&str, &str)] = &[
    (
        "bcachefs",
        "Debian has no tool that makes it in the releases that bigiron's kernels come from, and Linux dropped it in 6.18",
    ),
    ("nilfs2", "it needs a cleaner daemon in user space, which a guest does not have"),
    ("zfs", "its module is not part of Linux"),
    ("ocfs2", "it needs a cluster"),
    ("tmpfs", "it has no disk; `--storage ram` is a file system on a RAM disk"),
];

/// What a disk is made with: the file system, and options for its tool in addition to bigiron's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemSpec<'a> {
    pub filesystem: &'a str,
    pub options: &'a str,
    /// The guest's disk number, see [`FileSystemSpec::on`].
    disk: usize,
    /// The disk's logical block is 4 KiB.
    wide: bool,
    /// The journal is on a separate disk, see [`journal`].
    apart: bool,
}

impl<'a> FileSystemSpec<'a> {
    pub fn new(filesystem: &'a str, options: &'a str) -> Self {
        Self { filesystem, options, disk: 0, wide: false, apart: false }
    }

    /// The same specification on disk `n` of the guest: with its own UUID if the kernel refuses a second file system with the same one. All other
    /// file systems share an image.
    #[must_use]
    pub fn on(self, n: usize) -> Self {
        Self { disk: if matches!(self.filesystem, "xfs" | "btrfs") { n } else { 0 }, ..self }
    }

    /// The same specification for a disk with logical blocks of this many bytes: the file system must not have smaller blocks, which some tools
    /// choose for a small disk.
    #[must_use]
    pub fn of_blocks(self, bytes: u32) -> Self {
        Self { wide: bytes > 512, ..self }
    }

    /// The same specification with its journal on a separate disk, or inside.
    #[must_use]
    pub fn with_journal_apart(self, apart: bool) -> Self {
        Self { apart, ..self }
    }

    /// Whether its journal is on a separate disk.
    pub fn is_apart(self) -> bool {
        self.apart
    }

    fn for_wide(self) -> &'static [&'static str] {
        match self.filesystem {
            "ext2" | "ext3" | "ext4" if self.wide => &["-b", "4096"],
            "xfs" if self.wide => &["-s", "size=4096"],
            _ => &[],
        }
    }

    /// The path of the image in a guest's archive.
    pub fn path(self, size_mib: u64) -> String {
        let Self { filesystem, disk, .. } = self;
        if disk == 0 {
            format!("/images/{filesystem}-{size_mib}")
        } else {
            format!("/images/{filesystem}-{size_mib}-{disk}")
        }
    }

    /// The path of its journal's image there, if the journal has a separate disk.
    pub fn journal_path(self, size_mib: u64) -> String {
        format!("{}-journal", self.path(size_mib))
    }

    fn uuid(self) -> String {
        let (first, last) = UUID.split_at(UUID.len() - 12);
        if self.disk == 0 { format!("{first}{last}") } else { format!("{first}{:012x}", (self.disk << 16) + 1) }
    }
}

/// The names of the file systems that can be made.
pub fn filesystems() -> impl Iterator<Item = &'static str> {
    MAKERS.iter().map(|m| m.filesystem)
}

fn find(filesystem: &str) -> Option<&'static Maker> {
    MAKERS.iter().find(|m| m.filesystem == filesystem)
}

/// The kernel module for `filesystem`; `None` for an unknown file system.
pub fn module(filesystem: &str) -> Option<&'static str> {
    find(filesystem).map(|m| m.module)
}

/// Modules that `filesystem` needs but that nothing in it names, if a kernel has them as modules.
pub fn helpers(filesystem: &str) -> &'static [&'static str] {
    match filesystem {
        "f2fs" => &["crc32_generic"],
        _ => &[],
    }
}

/// Size in MiB of a disk on which `filesystem` leaves room for `bytes`.
pub fn size_mib(filesystem: &str, bytes: u64) -> u64 {
    let (least, overhead) = find(filesystem).map_or((64, 25), |m| (m.least_mib, m.overhead));
    (bytes.div_ceil(1 << 20) * (100 + overhead) / 100 + 64).max(least).next_multiple_of(64)
}

/// Fixed, so that nothing in the image is random: "bigiron" in hexadecimal.
pub const UUID: &str = "62696769-726f-6e00-8000-000000000001";
pub const HASH_SEED: &str = "62696769-726f-6e00-8000-000000000002";
/// 2024-01-01, the date at which the guest's clock starts.
pub const EPOCH: &str = "1704067200";

/// The tool that makes `filesystem` and the Debian package that has it; `None` for an unknown file system.
pub fn tool(filesystem: &str) -> Option<(&'static str, &'static str)> {
    find(filesystem).map(|m| (m.tool, m.package))
}

/// The path of `tool`: in PATH or in the system directories that an ordinary user's PATH lacks.
pub fn find_tool(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(tool))
        .find(|file| file.is_file())
}

/// The packed image of an empty file system of `size_mib`, from `cache` or made now.
///
/// # Errors
/// The tool is missing (names the package), or failed (with its output).
pub fn packed(cache: &Path, kind: FileSystemSpec<'_>, size_mib: u64) -> anyhow::Result<Vec<u8>> {
    if kind.apart {
        return journal::packed_disk(cache, kind, size_mib);
    }
    let tool = tool_of(kind.filesystem)?;
    kept(cache, kind, size_mib, "", &mut |raw| {
        raw.as_file().set_len(size_mib << 20)?;
        make(&tool, kind, &[], raw.path())
    })
}

/// The program that makes `filesystem`.
fn tool_of(filesystem: &str) -> anyhow::Result<PathBuf> {
    let (name, package) = tool(filesystem).with_context(|| format!("Cannot make a `{filesystem}` file system"))?;
    installed(name, package)
}

fn installed(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    find_tool(name).with_context(|| format!("`{name}` is not installed; `apt-get install {package}` brings it"))
}

/// The packed content that `make` writes into its file: from `cache`, or made now. `part` distinguishes images made for one disk.
fn kept(
    cache: &Path,
    kind: FileSystemSpec<'_>,
    size_mib: u64,
    part: &str,
    make: &mut dyn FnMut(&mut NamedTempFile) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<u8>> {
    let filesystem = kind.filesystem;
    let tool = tool_of(filesystem)?;
    let version = Command::new(&tool).arg("-V").stdin(Stdio::null()).output();
    let version = version.with_context(|| tool.display().to_string())?;
    let key = Sha256::new()
        .chain_update(filesystem)
        .chain_update(size_mib.to_le_bytes())
        .chain_update(&version.stdout)
        .chain_update(&version.stderr)
        .chain_update(kind.options)
        .chain_update(kind.for_wide().concat())
        .chain_update(if kind.disk == 0 { String::new() } else { kind.uuid() })
        .chain_update(part)
        .finalize();
    let key: String = key.iter().take(8).map(|b| format!("{b:02x}")).collect();
    let dir = cache.join("images");
    let kept = dir.join(format!("{filesystem}-{size_mib}M-{part}{key}.img"));
    if let Ok(bytes) = std::fs::read(&kept) {
        return Ok(bytes);
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("Cannot make {}", dir.display()))?;
    let keep = || format!("Cannot make a file system in `{}`; set BIGIRON_CACHE to a folder with room", dir.display());
    let mut raw = NamedTempFile::new_in(&dir).with_context(keep)?;
    make(&mut raw)?;
    let bytes = pack(raw.as_file_mut())?;
    // Renamed into place: two processes may make the same image, and neither may see half of one. The first one stays.
    let mut file = NamedTempFile::new_in(&dir).with_context(keep)?;
    file.write_all(&bytes).and_then(|()| file.as_file().sync_all()).with_context(keep)?;
    match file.persist_noclobber(&kept) {
        Ok(_) => Ok(bytes),
        Err(_) => std::fs::read(&kept).with_context(|| format!("Cannot keep {}", kept.display())),
    }
}

/// A program from one of the packages. Those of e2fsprogs take their time stamps from these variables; others ignore them.
fn command(tool: &Path) -> Command {
    let mut command = Command::new(tool);
    command.env("SOURCE_DATE_EPOCH", EPOCH).env("E2FSPROGS_FAKE_TIME", EPOCH).stdin(Stdio::null());
    command
}

/// Makes a file system on the file at `path`, which already has its size, with `more` options in addition to the kind's.
fn make(tool: &Path, kind: FileSystemSpec<'_>, more: &[OsString], path: &Path) -> anyhow::Result<()> {
    let mut command = command(tool);
    match kind.filesystem {
        "ext2" | "ext3" | "ext4" => {
            let extended = format!("hash_seed={HASH_SEED},lazy_itable_init=0,lazy_journal_init=0,nodiscard");
            command.args(["-q", "-F", "-t", kind.filesystem, "-m", "0", "-U", UUID, "-E", &extended]);
        }
        "xfs" => {
            command.args(["-q", "-f", "-K", "-m", &format!("uuid={}", kind.uuid())]);
        }
        "btrfs" => {
            command.args(["-q", "-f", "-K", "-U", &kind.uuid()]);
        }
        // Discarding would only punch holes into a sparse file.
        "f2fs" => {
            command.args(["-q", "-f", "-t", "0"]);
        }
        "jfs" => {
            command.arg("-q");
        }
        // Twice: otherwise it asks before it uses anything but a whole disk.
        "reiserfs" => {
            command.args(["-q", "-f", "-f", "-u", UUID]);
        }
        other => bail!("Cannot make a `{other}` file system"),
    }
    done(command.args(kind.for_wide()).args(kind.options.split_whitespace()).args(more).arg(path))
}

/// Runs a program to its end; a failure includes its output.
fn done(command: &mut Command) -> anyhow::Result<()> {
    let tool = PathBuf::from(command.get_program());
    let output = command.output().with_context(|| tool.display().to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed ({}): {}", tool.display(), output.status, said.trim());
    }
    Ok(())
}

/// A plain file with an empty `filesystem` of `size_mib`, for a disk of the VM: the packed image, unpacked.
pub fn write_raw(cache: &Path, kind: FileSystemSpec<'_>, size_mib: u64, to: &Path) -> anyhow::Result<()> {
    unpack(&packed(cache, kind, size_mib)?, size_mib, &created(to)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The position and value of each file system's magic number.
    const MAGIC: &[(&str, usize, &[u8])] = &[
        ("ext4", 1080, &[0x53, 0xef]),
        ("xfs", 0, b"XFSB"),
        ("ext2", 1080, &[0x53, 0xef]),
        ("ext3", 1080, &[0x53, 0xef]),
        ("btrfs", 65_600, b"_BHRfS_M"),
        ("f2fs", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
        ("jfs", 32_768, b"JFS1"),
        ("reiserfs", 65_588, b"ReIsEr2Fs"),
    ];

    #[test]
    fn an_image_is_made_once_and_has_its_file_system_magic() {
        let cache = tempfile::tempdir().unwrap();
        assert!(filesystems().eq(MAGIC.iter().map(|m| m.0)));
        for (filesystem, offset, magic) in MAGIC {
            let (name, package) = tool(filesystem).unwrap();
            if find_tool(name).is_none() && *filesystem == "reiserfs" {
                // Not by `eprintln!`, which the harness shows of failed tests alone.
                let why = format_args!("newer releases of Debian have no {package}");
                let _ = writeln!(std::io::stderr(), "SKIPPED images of reiserfs: {why}");
                continue;
            }
            assert!(find_tool(name).is_some(), "apt-get install {package}");
            let (kind, size) = (FileSystemSpec::new(filesystem, ""), size_mib(filesystem, 1));
            let first = packed(cache.path(), kind, size).unwrap();
            assert_eq!(first, packed(cache.path(), kind, size).unwrap());
            let raw = cache.path().join("raw");
            write_raw(cache.path(), kind, size, &raw).unwrap();
            let bytes = std::fs::read(&raw).unwrap();
            assert_eq!(&bytes[*offset..][..magic.len()], *magic, "{filesystem}");
        }
    }

    #[test]
    fn second_disks_have_uuids_of_their_own_where_kernels_ask_for_them() {
        let cache = tempfile::tempdir().unwrap();
        for (filesystem, apart) in [("xfs", true), ("btrfs", true), ("ext4", false)] {
            let (kind, size) = (FileSystemSpec::new(filesystem, ""), size_mib(filesystem, 1));
            let images = [0, 1, 2].map(|n| packed(cache.path(), kind.on(n), size).unwrap());
            assert_eq!([images[0] != images[1], images[1] != images[2]], [apart; 2], "{filesystem}");
            assert_eq!(kind.on(1).path(size) != kind.path(size), apart);
        }
    }

    #[test]
    fn disks_of_wide_blocks_have_file_systems_of_wide_blocks() {
        let cache = tempfile::tempdir().unwrap();
        // The block size in the superblock: ext4 as a power of two of 1 KiB, xfs the sector in bytes.
        let ext4 = |bytes: &[u8]| 1024 << u32::from_le_bytes(bytes[1048..1052].try_into().unwrap());
        let xfs = |bytes: &[u8]| u32::from(u16::from_be_bytes(bytes[102..104].try_into().unwrap()));
        let made = |filesystem: &str, block: u32| {
            let raw = cache.path().join("raw");
            let kind = FileSystemSpec::new(filesystem, "").of_blocks(block);
            write_raw(cache.path(), kind, size_mib(filesystem, 1), &raw).unwrap();
            std::fs::read(&raw).unwrap()
        };
        assert_eq!([512, 4096].map(|block| ext4(&made("ext4", block))), [1024, 4096]);
        assert_eq!([512, 4096].map(|block| xfs(&made("xfs", block))), [512, 4096]);
    }

    #[test]
    fn options_make_another_image_and_wrong_ones_say_so() {
        let cache = tempfile::tempdir().unwrap();
        let kind = |options| FileSystemSpec::new("ext4", options);
        let plain = packed(cache.path(), kind(""), 64).unwrap();
        let bare = packed(cache.path(), kind("-O ^has_journal"), 64).unwrap();
        assert!(bare.len() < plain.len(), "no journal, {} and {} bytes", bare.len(), plain.len());
        let error = packed(cache.path(), kind("-O nosuchfeature"), 64).unwrap_err().to_string();
        assert!(error.contains("mke2fs failed") && error.contains("nosuchfeature"), "{error}");
    }
}
