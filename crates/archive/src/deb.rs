//! Debian packages: extracts the kernel files, or files that a caller chooses, without dpkg.
//!
//! Invariant: files are written only below the given folder, and never through a link.

use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::error::{KernelError, doing};
use super::modinfo::{Compression, decoder};
use super::regular_file;

/// A System.map below this size is Debian's stub ("ffffffffffffffff B The real System.map is in the linux-image-<version>-dbg package").
const REAL_SYMBOLS: u64 = 64 << 10;

/// The package's control information.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    pub package: String,
    pub version: String,
    pub architecture: String,
    /// Kernel packages on which it depends.
    pub depends: Vec<String>,
}

/// The parts of a kernel found in a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    pub control: Control,
    pub image: bool,
    pub config: bool,
    pub symbols: bool,
    pub modules: usize,
}

/// Links that [`extract`] leaves to its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEntry {
    /// A symbolic link and its target.
    Link(PathBuf),
    /// Another name for a file in the same package.
    Same(PathBuf),
}

/// Extracts image (`image`), configuration (`config`), symbols (`System.map`) and modules (`modules/kernel/…`) of the package at `path` into `into`.
pub fn unpack(path: &Path, into: &Path) -> Result<Unpacked, KernelError> {
    let mut found = Unpacked::default();
    found.control = walk(path, &mut |input, compression| data(input, compression, into, &mut found))?;
    Ok(found)
}

/// Extracts files and links into `into`: `place` chooses each target, given the path in the package without a leading `/` or `./`, or drops the file
/// with `None`. Modes are kept except for special bits; the owner is the user running this. The caller creates links, by `link`, after all files are
/// there, so no link is ever followed.
pub fn extract(
    path: &Path,
    into: &Path,
    place: &dyn Fn(&Path) -> Option<PathBuf>,
    link: &mut dyn FnMut(PathBuf, LinkEntry),
) -> Result<Control, KernelError> {
    walk(path, &mut |input, compression| {
        let mut input = decoder(input, compression)?;
        let mut archive = tar::Archive::new(&mut input);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let Some(at) = plain(&entry.path()?).and_then(|p| place(&p)) else { continue };
            let kind = entry.header().entry_type();
            if kind.is_file() {
                let target = into.join(&at);
                write(&mut entry, &target)?;
                let mode = if entry.header().mode()? & 0o111 == 0 { 0o644 } else { 0o755 };
                let modified = UNIX_EPOCH + Duration::from_secs(entry.header().mtime()?);
                let settled = fs::set_permissions(&target, Permissions::from_mode(mode))
                    .and_then(|()| File::options().write(true).open(&target)?.set_modified(modified));
                settled.map_err(|e| UnpackError::Target(KernelError::io("Cannot write", &target, e)))?;
            } else if let Some(to) = entry.link_name()? {
                if kind.is_symlink() {
                    link(at, LinkEntry::Link(to.into_owned()));
                } else if kind.is_hard_link()
                    && let Some(to) = plain(&to).and_then(|p| place(&p))
                {
                    link(at, LinkEntry::Same(to));
                }
            }
        }
        io::copy(&mut input, &mut io::sink())?;
        Ok(())
    })
}

/// A path in an archive without a leading `/` or `./`; `None` if it would lead out of the folder, or is the folder itself.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir | Component::RootDir => {}
            Component::Normal(part) => out.push(part),
            _ => return None,
        }
    }
    Some(out).filter(|p| !p.as_os_str().is_empty())
}

/// The result of `data` for the files of the package at `path`, and the package's control information. The package must be complete.
fn walk(
    path: &Path,
    data: &mut dyn FnMut(&mut dyn Read, Compression) -> Result<(), UnpackError>,
) -> Result<Control, KernelError> {
    let bad = |reason: String| KernelError::Deb { path: path.to_path_buf(), reason };
    let file = regular_file::open(path).map_err(|e| match e.kind() {
        io::ErrorKind::InvalidInput => bad(e.to_string()),
        _ => KernelError::io("Cannot read", path, e),
    })?;
    let length = file.metadata().map_err(doing("Cannot read", path))?.len();
    let mut archive = ar::Archive::new(BufReader::with_capacity(1 << 16, file));
    let mut told = Control::default();
    let mut seen: Vec<&str> = Vec::new();
    // The ends of the members, from their headers of 60 bytes after a magic of 8 bytes.
    let mut end = 8;
    while let Some(entry) = archive.next_entry() {
        let mut entry = entry.map_err(|e| {
            bad(match seen.last() {
                None => format!("it is not a Debian package at all ({e})"),
                Some(part) => format!("it is truncated or damaged after its `{part}` part: {e}"),
            })
        })?;
        let name = String::from_utf8_lossy(entry.header().identifier()).trim_end_matches('/').to_owned();
        let size = entry.header().size();
        end += 60 + size;
        if end > length {
            return Err(bad(format!("it is truncated: {length} bytes, and its `{name}` part ends at {end}")));
        }
        end += size % 2;
        if name == "debian-binary" {
            let mut text = String::new();
            entry.by_ref().take(16).read_to_string(&mut text).map_err(|e| bad(e.to_string()))?;
            if !text.starts_with("2.") {
                return Err(bad(format!("its format is `{}`, not 2.x", text.trim())));
            }
            seen.push("debian-binary");
        } else if let Some(suffix) = name.strip_prefix("control.tar") {
            let compression =
                compression_of(suffix).ok_or_else(|| bad(format!("`{name}` has an unknown compression")))?;
            told = control(&mut entry, compression).map_err(|e| bad(format!("`{name}` is damaged: {e}")))?;
            if !matches!(told.architecture.as_str(), "amd64" | "all") {
                return Err(bad(format!("it is for {}, not amd64", told.architecture)));
            }
            seen.push("control");
        } else if let Some(suffix) = name.strip_prefix("data.tar") {
            let compression =
                compression_of(suffix).ok_or_else(|| bad(format!("`{name}` has an unknown compression")))?;
            data(&mut entry, compression).map_err(|e| match e {
                UnpackError::Archive(e) => bad(format!("`{name}` is damaged: {e}")),
                UnpackError::Target(e) => e,
            })?;
            seen.push("data");
        }
    }
    for part in ["debian-binary", "control", "data"] {
        if !seen.contains(&part) {
            return Err(bad(if seen.is_empty() {
                "it is not a Debian package at all".to_owned()
            } else {
                format!("it is truncated: no `{part}` part")
            }));
        }
    }
    Ok(told)
}

fn compression_of(suffix: &str) -> Option<Compression> {
    Some(match suffix {
        "" => Compression::None,
        ".xz" => Compression::Xz,
        ".zst" => Compression::Zstd,
        ".gz" => Compression::Gzip,
        _ => return None,
    })
}

fn control(input: impl Read, compression: Compression) -> io::Result<Control> {
    let mut archive = tar::Archive::new(decoder(input, compression)?);
    for entry in archive.entries()? {
        let entry = entry?;
        if entry.path()?.file_name().is_some_and(|n| n == "control") {
            let mut text = String::new();
            entry.take(1 << 20).read_to_string(&mut text)?;
            let field =
                |key: &str| text.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default().trim().to_owned();
            let depends = field("Depends:");
            let depends = depends.split(',').filter_map(|d| d.split_whitespace().next());
            return Ok(Control {
                package: field("Package:"),
                version: field("Version:"),
                architecture: field("Architecture:"),
                depends: depends.filter(|d| super::catalog::is_kernel_package(d)).map(str::to_owned).collect(),
            });
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "no `control` file"))
}

enum UnpackError {
    Archive(io::Error),
    Target(KernelError),
}

impl From<io::Error> for UnpackError {
    fn from(error: io::Error) -> Self {
        Self::Archive(error)
    }
}

fn data(input: impl Read, compression: Compression, into: &Path, found: &mut Unpacked) -> Result<(), UnpackError> {
    let mut input = decoder(input, compression)?;
    let mut archive = tar::Archive::new(&mut input);
    for entry in archive.entries()? {
        let mut entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let Some(kept) = keep(&entry.path()?) else { continue };
        if kept == Path::new("System.map") && entry.size() < REAL_SYMBOLS {
            continue;
        }
        let target = into.join(&kept);
        write(&mut entry, &target)?;
        match kept.to_str() {
            Some("image") => found.image = true,
            Some("config") => found.config = true,
            Some("System.map") => found.symbols = true,
            _ if kept.file_name().and_then(|n| n.to_str()).and_then(Compression::of_file_name).is_some() => {
                found.modules += 1;
            }
            _ => {}
        }
    }
    // The checksum of the whole comes last.
    io::copy(&mut input, &mut io::sink())?;
    Ok(())
}

fn write(entry: &mut impl Read, target: &Path) -> Result<(), UnpackError> {
    let at_target = |e: io::Error| UnpackError::Target(KernelError::io("Cannot write", target, e));
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(at_target)?;
    }
    let mut out = BufWriter::new(File::create(target).map_err(at_target)?);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match entry.read(&mut buffer)? {
            0 => break,
            n => out.write_all(&buffer[..n]).map_err(at_target)?,
        }
    }
    out.flush().map_err(at_target)
}

/// The target of a file of a package: `image`, `config`, `System.map`, or below `modules`. Any other file is dropped.
fn keep(path: &Path) -> Option<PathBuf> {
    let path = plain(path)?;
    let mut parts = path.iter().map(|p| p.to_str()).collect::<Option<Vec<_>>>()?;
    if parts.first() == Some(&"usr") {
        parts.remove(0);
    }
    match parts.as_slice() {
        ["boot", name] if name.starts_with("vmlinuz") => Some("image".into()),
        ["boot", name] if name.starts_with("config-") => Some("config".into()),
        ["boot", name] if name.starts_with("System.map") => Some("System.map".into()),
        ["lib", "modules", _, "vmlinuz"] => Some("image".into()),
        ["lib", "modules", _, "config"] => Some("config".into()),
        ["lib", "modules", _, "System.map"] => Some("System.map".into()),
        ["lib", "modules", _, name @ ("modules.builtin" | "modules.builtin.modinfo" | "modules.order")] => {
            Some(Path::new("modules").join(name))
        }
        ["lib", "modules", _, rest @ ..] if Compression::of_file_name(rest.last()?).is_some() => {
            Some(Path::new("modules").join(rest.iter().collect::<PathBuf>()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture;
    use super::*;

    const RELEASE: &str = "6.1.0-9-amd64";

    fn unpack_bytes(bytes: &[u8]) -> (Result<Unpacked, String>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = fixture::write(dir.path(), "some.deb", bytes);
        let into = dir.path().join("into");
        fs::create_dir(&into).unwrap();
        (unpack(&path, &into).map_err(|e| e.to_string()), dir)
    }

    #[test]
    fn keeps_what_a_kernel_needs_in_every_packing() {
        for suffix in ["", ".gz", ".xz", ".zst"] {
            let (found, dir) = unpack_bytes(&fixture::kernel_deb(RELEASE, suffix));
            let found = found.unwrap();
            assert_eq!((found.image, found.config, found.symbols, found.modules), (true, true, false, 2), "{suffix}");
            assert_eq!(found.control.package, format!("linux-image-{RELEASE}"));
            let into = dir.path().join("into");
            assert_eq!(fs::read(into.join("image")).unwrap(), fixture::bzimage(RELEASE));
            assert!(into.join("modules/kernel/lib/b.ko").is_file() && into.join("modules/modules.builtin").is_file());
            assert!(!into.join("usr").exists() && !into.join("System.map").exists());
        }
    }

    #[test]
    fn newer_layouts_of_files() {
        let control = "Package: linux-binary-7.2\nVersion: 7.2-1\nArchitecture: amd64\nDepends: kmod, linux-base-7.2.1-amd64 (= 7.2-1)\n";
        let symbols = vec![b'x'; 1 << 17];
        let files: [(&str, &[u8]); 4] = [
            ("./usr/lib/modules/7.2/vmlinuz", b"i"),
            ("./usr/lib/modules/7.2/config", b"c"),
            ("./usr/lib/modules/7.2/System.map", &symbols),
            ("./usr/lib/modules/7.2/kernel/x.ko.zst", b"m"),
        ];
        let (found, dir) = unpack_bytes(&fixture::deb(control, &files, ".xz"));
        let found = found.unwrap();
        assert_eq!((found.image, found.config, found.symbols, found.modules), (true, true, true, 1));
        assert_eq!(found.control.depends, ["linux-base-7.2.1-amd64"]);
        assert!(dir.path().join("into/modules/kernel/x.ko.zst").is_file());
    }

    #[test]
    fn damage_is_named() {
        let good = fixture::kernel_deb(RELEASE, ".xz");
        let other = fixture::deb("Package: linux-image-1\nVersion: 1\nArchitecture: arm64\n", &[], "");
        let mut flipped = good.clone();
        // In the middle of the compressed files, the last part of the archive.
        let at = good.len() - 300;
        flipped[at] ^= 0x40;
        for (bytes, what) in [
            (&b"hello"[..], "not a Debian package at all"),
            (b"", "not a Debian package at all"),
            (&good[..good.len() - 20], "it is truncated"),
            (&good[..100], "truncated"),
            (&flipped, "`data.tar.xz` is damaged"),
            (&other, "for arm64, not amd64"),
        ] {
            let said = unpack_bytes(bytes).0.unwrap_err();
            assert!(said.contains(what) && said.contains("some.deb"), "{said} / {what}");
        }
    }

    #[test]
    fn paths_cannot_leave_the_folder() {
        let control = "Package: p\nVersion: 1\nArchitecture: all\n";
        let files: [(&str, &[u8]); 3] =
            [("./lib/modules/6.1/../../../../evil.ko", b"x"), ("/boot/vmlinuz-6.1", b"y"), ("../evil.ko", b"z")];
        let (found, dir) = unpack_bytes(&fixture::deb(control, &files, ""));
        assert_eq!(found.unwrap().modules, 0);
        assert_eq!(fs::read(dir.path().join("into/image")).unwrap(), b"y");
        assert!(!dir.path().join("evil.ko").exists());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn damage_anywhere_never_panics(at in 0usize..2000, value: u8, cut in 0usize..4000) {
            let mut bytes = fixture::kernel_deb(RELEASE, ".xz");
            let len = bytes.len();
            bytes[at % len] = value;
            bytes.truncate(len.saturating_sub(cut).max(1));
            let _ = unpack_bytes(&bytes);
        }
    }
}
