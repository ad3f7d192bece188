//! Packages that others have made.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use bigiron_model::fuzz_target;

use super::deb::{LinkEntry, extract, unpack};
use super::{fixture, image, modinfo};

const WORDS: &[&str] = &[
    "!<arch>\n",
    "debian-binary",
    "control.tar",
    "data.tar",
    "control.tar.xz",
    "data.tar.zst",
    "data.tar.gz",
    "`\n",
    "2.0\n",
    "./control",
    "../",
    "./",
    "/",
    "Package:",
    "Version:",
    "Architecture:",
    "amd64",
    "all",
    "Depends:",
    "linux-image-6.1",
    "boot/vmlinuz-6.1",
    "boot/config-6.1",
    "boot/System.map-6.1",
    "lib/modules/6.1/kernel/a.ko.xz",
    "ustar\0",
    "ustar  \0",
    "././@LongLink",
    "././@PaxHeader",
    "30 path=../../x\n",
    "17 size=9999999999\n",
    "00000000000",
    "77777777777",
    "#1/16",
    "GNU.sparse.major",
    "\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}",
];

/// Corrects the checksums of the headers of tar archives in `bytes`.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    // A header has 512 bytes, with its magic at 257 and its checksum, counted as blanks, at 148.
    let magics: Vec<usize> = bytes.windows(5).enumerate().filter(|(_, w)| w == b"ustar").map(|(at, _)| at).collect();
    for at in magics {
        let Some(header) = at.checked_sub(257).and_then(|start| bytes.get_mut(start..start + 512)) else { continue };
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}

/// The files and folders below `dir`.
fn below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(below(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}

/// A package with links and with a path longer than a header has room for.
fn with_links() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o755);
    builder.append_data(&mut header, format!("usr/{}/a", "long/".repeat(30)), &b"bytes"[..]).unwrap();
    for (kind, name, to) in [(tar::EntryType::Symlink, "usr/b", "../usr/a"), (tar::EntryType::Link, "usr/c", "usr/a")] {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(0);
        builder.append_link(&mut header, name, to).unwrap();
    }
    let data = builder.into_inner().unwrap();
    let control = fixture::tar(&[("./control", b"Package: p\nVersion: 1\nArchitecture: all\n")]);
    let mut package = ar::Builder::new(Vec::new());
    for (name, bytes) in [("debian-binary", &b"2.0\n"[..]), ("control.tar", &control), ("data.tar", &data)] {
        package.append(&ar::Header::new(name.into(), bytes.len() as u64), bytes).unwrap();
    }
    package.into_inner().unwrap()
}

#[test]
fn packages() {
    let small = fixture::deb("Package: p\nVersion: 1\nArchitecture: all\n", &[("./boot/config-6.1", b"X=y\n")], "");
    let kernels = ["", ".gz", ".xz", ".zst"].map(|suffix| fixture::kernel_deb("6.1.0-9-amd64", suffix));
    let seeds = kernels.into_iter().chain([small, with_links()]).collect();
    let dir = tempfile::tempdir().unwrap();
    let (path, into) = (dir.path().join("a.deb"), dir.path().join("into"));
    fuzz_target!(packages, seeds, WORDS).run(|input| {
        fs::write(&path, with_checksums(input)).unwrap();
        let fresh = || {
            let _ = fs::remove_dir_all(&into);
            fs::create_dir(&into).unwrap();
        };
        fresh();
        let kernel = unpack(&path, &into);
        fresh();
        let links = RefCell::new(0);
        let all = extract(&path, &into, &|at| Some(at.to_owned()), &mut |at, entry| {
            assert!(at.is_relative() && !at.starts_with(".."));
            if let LinkEntry::Same(to) = entry {
                assert!(to.is_relative() && !to.starts_with(".."));
            }
            *links.borrow_mut() += 1;
        });
        let outside = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(outside, 2, "nothing but the package and the folder");
        assert!(below(&into).iter().all(|path| !path.is_symlink()));
        if let Ok(found) = &kernel {
            return Ok(format!("{} {} {} {}", found.image, found.config, found.modules, links.borrow()));
        }
        all.map(|_| format!("links {}", links.borrow())).map_err(|e| e.to_string())
    });
}

#[test]
fn modules() {
    let fields = ["alias=a-b", "softdep=pre: a b post: c", "depends=b,c-d", "vermagic=6.1.0-9-amd64 SMP preempt"];
    let seeds = vec![fixture::ko(&fields), fixture::ko(&["vermagic=6.1"])];
    fuzz_target!(modules, seeds, &["\x7fELF", ".modinfo\0", "vermagic=", "softdep=pre: ", "depends=", "alias=", "\0"])
        .run(|input| {
            let info = modinfo::parse(input)?;
            assert!(!info.release.is_empty());
            Ok(format!("{} {} {}", info.depends.len(), info.soft.len(), info.aliases.len()))
        });
}

#[test]
fn images() {
    let seeds = vec![fixture::bzimage("6.1.0"), fixture::elf(183, b"a=b\0")];
    fuzz_target!(images, seeds, &["HdrS", "MZ", "zimg", "ARM\x64", "RSC\x05", "\x7fELF"]).run(|input| {
        let image = image::parse(input)?;
        assert!(image::is_release(&image.release));
        Ok(String::new())
    });
}
