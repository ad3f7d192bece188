//! The information in a kernel module's file: its `.modinfo` section, from plain and compressed files.

use std::io::{self, BufReader, Read};
use std::path::Path;

use object::{Object, ObjectSection};

use super::error::{KernelError, doing};
use super::image;
use super::regular_file;

/// The compression of a module's file. The kernel can load `Xz`, `Zstd` and `Gzip` directly if it is configured to (CONFIG_MODULE_DECOMPRESS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Xz,
    Zstd,
    Gzip,
}

impl Compression {
    /// The module's name in the kernel's spelling and the compression, from a file name; `None` if it is not a module's.
    pub fn of_file_name(name: &str) -> Option<(String, Self)> {
        let forms = [(".ko", Self::None), (".ko.xz", Self::Xz), (".ko.zst", Self::Zstd), (".ko.gz", Self::Gzip)];
        let (stem, compression) = forms.iter().find_map(|(suffix, c)| Some((name.strip_suffix(suffix)?, *c)))?;
        (!stem.is_empty()).then(|| (stem.replace('-', "_"), compression))
    }
}

/// Memory for unpacking xz, in KiB: kernels are packed with dictionaries of up to 128 MiB, and a damaged header may ask for 4 GiB.
pub(super) const XZ_KIB: u32 = 200 << 10;

/// The parts of `.modinfo` that loading needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModInfo {
    /// The release it was built for: the first word of `vermagic`.
    pub release: String,
    pub depends: Vec<String>,
    /// Modules to load before this one if they exist (`softdep=pre:`).
    pub soft: Vec<String>,
    pub aliases: Vec<String>,
}

/// The unpacked bytes of a module.
pub fn read_module(path: &Path, compression: Compression) -> Result<Vec<u8>, KernelError> {
    /// Largest module accepted; the largest of Debian's with debug information has some 100 MB.
    const MOST: u64 = 1 << 30;
    let file = regular_file::open(path).map_err(doing("Cannot read", path))?;
    let mut bytes = Vec::new();
    decoder(BufReader::new(file), compression)
        .and_then(|d| d.take(MOST).read_to_end(&mut bytes))
        .map_err(|e| KernelError::Module { path: path.to_path_buf(), reason: format!("it cannot be unpacked: {e}") })?;
    Ok(bytes)
}

/// A reader for the unpacked content of `input`.
pub fn decoder<'a>(input: impl Read + 'a, compression: Compression) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match compression {
        Compression::None => Box::new(input),
        Compression::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(input, true, XZ_KIB)),
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(input)),
        Compression::Zstd => Box::new(
            ruzstd::decoding::StreamingDecoder::new(input)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?,
        ),
    })
}

/// Reads a module's `.modinfo`.
pub fn read(path: &Path, compression: Compression) -> Result<ModInfo, KernelError> {
    let bytes = read_module(path, compression)?;
    parse(&bytes).map_err(|reason| KernelError::Module { path: path.to_path_buf(), reason })
}

/// The `.modinfo` of an x86-64 ELF file in memory.
pub fn parse(bytes: &[u8]) -> Result<ModInfo, String> {
    use object::read::elf::ElfFile64;
    if !bytes.starts_with(b"\x7fELF") {
        return Err("it is not an ELF file".to_owned());
    }
    let machine = bytes.get(18..20).map(|b| u16::from_le_bytes([b[0], b[1]])).unwrap_or_default();
    if machine != 62 {
        return Err(format!("it is for {}, not x86-64", image::elf_machine(machine)));
    }
    let file = ElfFile64::<object::Endianness>::parse(bytes).map_err(|e| format!("it is damaged: {e}"))?;
    let section = file.section_by_name(".modinfo").ok_or("it has no .modinfo section")?;
    let data = section.data().map_err(|e| format!("it is damaged: {e}"))?;
    let mut info = ModInfo::default();
    for (key, value) in data.split(|b| *b == 0).filter_map(|f| str::from_utf8(f).ok()?.split_once('=')) {
        match key {
            "vermagic" => info.release = value.split_whitespace().next().unwrap_or_default().to_owned(),
            "depends" => info.depends.extend(value.split(',').filter(|d| !d.is_empty()).map(|d| d.replace('-', "_"))),
            "softdep" => info.soft.extend(soft_before(value)),
            "alias" => info.aliases.push(value.to_owned()),
            _ => {}
        }
    }
    if info.release.is_empty() {
        return Err("it does not say which kernel it is for (no vermagic)".to_owned());
    }
    Ok(info)
}

/// The modules named after `pre:` in a `softdep` value.
fn soft_before(value: &str) -> Vec<String> {
    let mut before = false;
    let mut found = Vec::new();
    for word in value.split_whitespace() {
        match word {
            "pre:" => before = true,
            "post:" => before = false,
            name if before => found.push(name.to_owned()),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture::{elf, ko};
    use super::*;

    #[test]
    fn fields_are_read() {
        let bytes = ko(&[
            "alias=fs-ext4",
            "softdep=pre: crc32c foo-bar post: baz",
            "depends=jbd2,mbcache,crc16",
            "vermagic=6.1.0-53-amd64 SMP preempt mod_unload modversions ",
        ]);
        let info = parse(&bytes).unwrap();
        assert_eq!(info.release, "6.1.0-53-amd64");
        assert_eq!(info.depends, ["jbd2", "mbcache", "crc16"]);
        assert_eq!(info.soft, ["crc32c", "foo-bar"]);
        assert_eq!(info.aliases, ["fs-ext4"]);
    }

    #[test]
    fn refusals_say_what_it_is() {
        assert!(parse(b"hello").unwrap_err().contains("not an ELF"));
        assert!(parse(&elf(183, b"vermagic=6.1 SMP\0")).unwrap_err().contains("arm64, not x86-64"));
        assert!(parse(&ko(&["depends="])).unwrap_err().contains("vermagic"));
    }

    #[test]
    fn an_xz_header_that_asks_for_4_gib_is_refused() {
        let mut packed = super::super::fixture::pack(b"bytes", ".xz");
        // The block's header follows the stream's of 12 bytes: length, flags, filter, one byte of properties, that byte, padding, CRC32.
        let len = 4 * (usize::from(packed[12]) + 1);
        assert_eq!(packed[14..16], [0x21, 1], "LZMA2");
        for (dictionary, fits) in [(30, true), (40, false)] {
            packed[16] = dictionary;
            let mut crc = flate2::Crc::new();
            crc.update(&packed[12..12 + len - 4]);
            packed[12 + len - 4..12 + len].copy_from_slice(&crc.sum().to_le_bytes());
            let mut bytes = Vec::new();
            let read = decoder(&packed[..], Compression::Xz).unwrap().read_to_end(&mut bytes);
            assert_eq!(read.is_ok(), fits, "{dictionary}: {read:?}");
        }
    }

    #[test]
    fn file_names() {
        assert_eq!(Compression::of_file_name("null-blk.ko.xz"), Some(("null_blk".to_owned(), Compression::Xz)));
        assert_eq!(Compression::of_file_name("ext4.ko"), Some(("ext4".to_owned(), Compression::None)));
        assert_eq!(Compression::of_file_name("modules.order"), None);
        assert_eq!(Compression::of_file_name(".ko"), None);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..300, value: u8) {
            let _ = parse(&bytes);
            let mut module = ko(&["vermagic=6.1 SMP", "depends=a,b"]);
            let len = module.len();
            module[at % len] = value;
            let _ = parse(&module);
            let _ = parse(&module[..at % len]);
        }

        #[test]
        fn damaged_compression_is_an_error_or_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for (compression, magic) in [(Compression::Xz, &b"\xfd7zXZ\0\0\x04"[..]), (Compression::Gzip, &[0x1f, 0x8b, 8]), (Compression::Zstd, &[0x28, 0xb5, 0x2f, 0xfd])] {
                let mut data = magic.to_vec();
                data.extend_from_slice(&bytes);
                if let Ok(mut reader) = decoder(&data[..], compression) {
                    let mut out = Vec::new();
                    let _ = reader.as_mut().take(1 << 20).read_to_end(&mut out);
                }
            }
        }
    }
}
