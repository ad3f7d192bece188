//! Small kernel files of all kinds, for tests.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The smallest file with a bzImage's header.
pub fn bzimage(release: &str) -> Vec<u8> {
    let mut bytes = vec![0; 0x400 + 64];
    bytes[0x1f1] = 1;
    bytes[0x1f4] = 4;
    bytes[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
    bytes[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    bytes[0x211] = 1;
    bytes[0x236] = 1;
    let banner = format!("{release} (builder@host) #1 SMP\0");
    bytes[0x300..0x300 + banner.len()].copy_from_slice(banner.as_bytes());
    bytes
}

/// An ELF module with the given `.modinfo` fields.
pub fn ko(fields: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    for field in fields {
        data.extend_from_slice(field.as_bytes());
        data.push(0);
    }
    elf(62, &data)
}

/// A relocatable ELF64 file for `machine`, with only `.modinfo` and `.shstrtab`.
pub fn elf(machine: u16, modinfo: &[u8]) -> Vec<u8> {
    let names = b"\0.modinfo\0.shstrtab\0";
    let headers = 64 + modinfo.len() + names.len();
    let mut bytes = Vec::new();
    bytes.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for half in [1u16, machine] {
        bytes.extend_from_slice(&half.to_le_bytes());
    }
    bytes.extend_from_slice(&1u32.to_le_bytes());
    for word in [0u64, 0, headers as u64] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&0u32.to_le_bytes());
    for half in [64u16, 0, 0, 64, 3, 2] {
        bytes.extend_from_slice(&half.to_le_bytes());
    }
    bytes.extend_from_slice(modinfo);
    bytes.extend_from_slice(names);
    let sections = [(0u32, 0u32, 0usize, 0usize), (1, 1, 64, modinfo.len()), (10, 3, 64 + modinfo.len(), names.len())];
    for (name, kind, offset, size) in sections {
        bytes.extend_from_slice(&name.to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        for word in [0u64, 0, offset as u64, size as u64] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&[0; 8]);
        for word in [1u64, 0] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

/// A tar archive of regular files.
pub fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        // Set directly: the library refuses to write paths such as a hostile package would contain.
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

pub fn pack(bytes: &[u8], suffix: &str) -> Vec<u8> {
    match suffix {
        "" => bytes.to_vec(),
        ".gz" => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
        ".xz" => {
            let mut out = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
        ".zst" => ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest),
        other => panic!("no such compression: {other}"),
    }
}

/// A Debian package: control fields, files, and the compression of its parts.
pub fn deb(control: &str, files: &[(&str, &[u8])], suffix: &str) -> Vec<u8> {
    let mut builder = ar::Builder::new(Vec::new());
    let control = pack(&tar(&[("./control", control.as_bytes())]), suffix);
    let data = pack(&tar(files), suffix);
    let members = [
        ("debian-binary".to_owned(), b"2.0\n".to_vec()),
        (format!("control.tar{suffix}"), control),
        (format!("data.tar{suffix}"), data),
    ];
    for (name, bytes) in members {
        builder.append(&ar::Header::new(name.into_bytes(), bytes.len() as u64), &bytes[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

/// A complete kernel in one package, with the modules `a` (which needs `b`) and `b`.
pub fn kernel_deb(release: &str, suffix: &str) -> Vec<u8> {
    let control = format!("Package: linux-image-{release}\nVersion: 1.0-1\nArchitecture: amd64\nDepends: kmod\n");
    let magic = format!("vermagic={release} SMP");
    let image = bzimage(release);
    let a = pack(&ko(&["depends=b", &magic]), ".xz");
    let b = ko(&["depends=", &magic]);
    deb(
        &control,
        &[
            (&format!("./boot/vmlinuz-{release}"), &image),
            (&format!("./boot/config-{release}"), b"CONFIG_EXT4_FS=y\n"),
            (&format!("./boot/System.map-{release}"), b"ffffffffffffffff B the real one is elsewhere\n"),
            (&format!("./lib/modules/{release}/kernel/lib/a.ko.xz"), &a),
            (&format!("./lib/modules/{release}/kernel/lib/b.ko"), &b),
            (&format!("./lib/modules/{release}/modules.builtin"), b"kernel/fs/configfs/configfs.ko\n"),
            (&format!("./usr/share/doc/linux-image-{release}/copyright"), b"kept nowhere"),
        ],
        suffix,
    )
}

/// Writes a file and creates its folders.
pub fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}
