//! bzImages: the information in the boot protocol's header, and what a file that is not a bzImage really is.
//!
//! Field offsets are those in the kernel's Documentation/arch/x86/boot.rst. The release comes from the header and never from a file's name.

use std::io::{self, Read as _};
use std::path::Path;

use super::error::{KernelError, doing};
use super::regular_file;

/// Far more than any kernel's image has.
const LONGEST: u64 = 1 << 30;

/// What a bzImage says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The output of `uname -r`.
    pub release: String,
    /// The whole version line: release, builder, number and date of the build.
    pub banner: String,
}

/// Reads and checks the bzImage at `path`.
pub fn read(path: &Path) -> Result<Image, KernelError> {
    let bytes = read_file(path, LONGEST)?;
    parse(&bytes).map_err(|reason| KernelError::Image { path: path.to_path_buf(), reason })
}

/// Read a file that the user names, which may be a device or a FIFO without an end.
pub(super) fn read_file(path: &Path, longest: u64) -> Result<Vec<u8>, KernelError> {
    let bad = |reason: String| KernelError::NoFile { path: path.to_path_buf(), reason };
    let file = regular_file::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => bad(error.to_string()),
        _ => KernelError::io("Cannot read", path, error),
    })?;
    let mut bytes = Vec::new();
    // Files of /proc have no length.
    file.take(longest + 1).read_to_end(&mut bytes).map_err(doing("Cannot read", path))?;
    if bytes.len() as u64 > longest {
        return Err(bad(format!("it is larger than {} MiB", longest >> 20)));
    }
    Ok(bytes)
}

/// Check the bytes of a bzImage; the error says what they are instead.
pub fn parse(bytes: &[u8]) -> Result<Image, String> {
    if bytes.get(0x202..0x206) != Some(b"HdrS") || u16_at(bytes, 0x1fe) != Some(0xaa55) {
        return Err(what_instead(bytes));
    }
    let short = || "its header is cut short".to_owned();
    let protocol = u16_at(bytes, 0x206).ok_or_else(short)?;
    if protocol < 0x020c {
        return Err(format!(
            "its boot protocol {}.{:02} is older than 2.12, so it is older than Linux 3.8 or not for x86-64",
            protocol >> 8,
            protocol & 0xff
        ));
    }
    if bytes.get(0x211).ok_or_else(short)? & 1 == 0 {
        return Err("it is a zImage".to_owned());
    }
    if bytes.get(0x236).ok_or_else(short)? & 1 == 0 {
        return Err("it is a 32-bit x86 kernel".to_owned());
    }
    let setup_sectors = match bytes[0x1f1] {
        0 => 4,
        n => u64::from(n),
    };
    let payload = u64::from(u32_at(bytes, 0x1f4).ok_or_else(short)?) * 16;
    let expected = (setup_sectors + 1) * 512 + payload;
    if (bytes.len() as u64) < expected {
        return Err(format!("it is truncated: {} bytes of {expected}", bytes.len()));
    }
    let at = usize::from(u16_at(bytes, 0x20e).ok_or_else(short)?) + 0x200;
    let text = bytes.get(at..).filter(|_| at > 0x200).ok_or("it has no version string")?;
    let end = text.iter().take(512).position(|b| *b == 0).ok_or("its version string has no end")?;
    let banner = str::from_utf8(&text[..end]).map_err(|_| "its version string is not text")?.trim();
    let release = banner.split_whitespace().next().unwrap_or_default();
    if !is_release(release) {
        return Err(format!("its version string is `{banner}`"));
    }
    Ok(Image { release: release.to_owned(), banner: banner.to_owned() })
}

/// Whether a string can be a kernel release. Releases become folder names, so nothing else may pass.
pub fn is_release(release: &str) -> bool {
    release.starts_with(|c: char| c.is_ascii_digit())
        && release.len() <= 64
        && release.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+-~".contains(&b))
}

fn what_instead(bytes: &[u8]) -> String {
    let begins = |magic: &[u8]| bytes.starts_with(magic);
    if bytes.is_empty() {
        "it is empty".to_owned()
    } else if begins(b"\x7fELF") {
        match u16_at(bytes, 18) {
            Some(62) => {
                "it is an x86-64 ELF file, probably `vmlinux`; the bzImage is arch/x86/boot/bzImage in the build tree"
                    .to_owned()
            }
            Some(machine) => format!("it is an ELF file for {}", elf_machine(machine)),
            None => "it is a truncated ELF file".to_owned(),
        }
    } else if bytes.get(56..60) == Some(b"ARM\x64") {
        "it is an arm64 Image".to_owned()
    } else if bytes.get(56..60) == Some(b"RSC\x05") {
        "it is a RISC-V Image".to_owned()
    } else if begins(b"MZ") {
        let machine = u32_at(bytes, 0x3c).and_then(|pe| u16_at(bytes, (pe as usize).checked_add(4)?));
        let machine = match machine {
            Some(0x8664) => "x86-64".to_owned(),
            Some(0xaa64) => "arm64".to_owned(),
            Some(0x5064) => "RISC-V".to_owned(),
            Some(0x6264) => "LoongArch".to_owned(),
            Some(other) => format!("machine {other:#06x}"),
            None => "an unknown machine".to_owned(),
        };
        let zboot = if bytes.get(4..8) == Some(b"zimg") { "a compressed EFI kernel" } else { "an EFI program" };
        format!("it is {zboot} for {machine}")
    } else if begins(&[0x1f, 0x8b]) {
        "it is a gzip file (the usual form of arm64 kernels)".to_owned()
    } else if begins(b"\xfd7zXZ") || begins(&[0x28, 0xb5, 0x2f, 0xfd]) {
        "it is a compressed file".to_owned()
    } else if begins(b"!<arch>\n") {
        "it is an archive; a Debian package's name must end in `.deb`".to_owned()
    } else if begins(&[0x27, 0x05, 0x19, 0x56]) {
        "it is a U-Boot image".to_owned()
    } else if bytes.len() < 0x250 {
        format!("it is truncated or something else: {} bytes", bytes.len())
    } else {
        "it has no x86 boot header".to_owned()
    }
}

pub(super) fn elf_machine(machine: u16) -> String {
    match machine {
        3 => "32-bit x86".to_owned(),
        20 | 21 => "PowerPC".to_owned(),
        22 => "s390".to_owned(),
        40 => "32-bit ARM".to_owned(),
        62 => "x86-64".to_owned(),
        183 => "arm64".to_owned(),
        243 => "RISC-V".to_owned(),
        258 => "LoongArch".to_owned(),
        other => format!("machine {other}"),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture::bzimage;
    use super::*;

    #[test]
    fn release_is_read_from_the_header() {
        let image = parse(&bzimage("6.12.113+deb12-cloud-amd64")).unwrap();
        assert_eq!(image.release, "6.12.113+deb12-cloud-amd64");
        assert_eq!(image.banner, "6.12.113+deb12-cloud-amd64 (builder@host) #1 SMP");
    }

    #[test]
    fn what_has_no_end_is_not_read() {
        for path in ["/dev/zero", "/proc/self"] {
            let said = read(Path::new(path)).unwrap_err().to_string();
            assert!(said.contains("not a regular file"), "{said}");
        }
        crate::hash::of_file(Path::new("/dev/zero")).unwrap_err();
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4097).unwrap();
        assert_eq!(read_file(file.path(), 4097).unwrap().len(), 4097);
        assert!(read_file(file.path(), 4096).unwrap_err().to_string().contains("larger than"));
    }

    #[test]
    fn what_is_no_bzimage_is_named() {
        let good = bzimage("6.1.0");
        let mut elf = b"\x7fELF".to_vec();
        elf.resize(64, 0);
        elf[18] = 183;
        let mut arm = vec![0; 0x400];
        arm[56..60].copy_from_slice(b"ARM\x64");
        let mut zboot = vec![0; 0x400];
        zboot[..2].copy_from_slice(b"MZ");
        zboot[4..8].copy_from_slice(b"zimg");
        zboot[0x3c] = 0x80;
        zboot[0x84..0x86].copy_from_slice(&0xaa64_u16.to_le_bytes());
        let mut narrow = good.clone();
        narrow[0x236] = 0;
        let mut bad_release = bzimage("../../etc");
        bad_release[0x1f4] = 0;
        for (bytes, what) in [
            (&elf[..], "ELF file for arm64"),
            (&arm, "arm64 Image"),
            (&zboot, "compressed EFI kernel for arm64"),
            (&narrow, "32-bit"),
            (&good[..good.len() - 1], "truncated: 1087 bytes of 1088"),
            (&good[..0x220], "cut short"),
            (&good[..100], "truncated"),
            (b"", "empty"),
            (&[0x1f, 0x8b, 8], "gzip"),
            (&bad_release, "version string is `../../etc"),
        ] {
            let said = parse(bytes).unwrap_err();
            assert!(said.contains(what), "{said} / {what}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..0x500)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn never_panics_on_a_damaged_header(at in 0usize..0x400, value: u8, cut in 0usize..0x441) {
            let mut bytes = bzimage("6.1.0");
            bytes[at] = value;
            bytes.truncate(cut);
            let _ = parse(&bytes);
        }
    }
}
