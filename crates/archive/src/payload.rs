//! The actual kernel in a bzImage: `vmlinux` and its relocations, as passed to the kernel's own decompressor.
//!
//! The boot protocol's header gives the payload's position (Documentation/arch/x86/boot.rst); arch/x86/boot/compressed/Makefile defines its content:
//! an ELF file and, if the kernel is relocatable, the list of addresses to adjust.

use std::io::{BufRead, Read};

use super::modinfo::{Compression, XZ_KIB, decoder};

/// Largest kernel that is unpacked; one with everything built in has some 200 MB.
const MOST: u64 = 1 << 30;

/// Bytes of the file before the protected-mode part: the boot sector and the real-mode code.
pub fn setup_len(image: &[u8]) -> Option<usize> {
    let sectors = match *image.get(0x1f1)? {
        0 => 4,
        n => usize::from(n),
    };
    Some((sectors + 1) * 512)
}

/// `vmlinux` and what follows it, from a bzImage that [`image::parse`](super::image::parse) accepts.
///
/// # Errors
/// The payload is damaged, or its compression is not supported (bzip2, LZMA, LZO).
pub fn unpack(image: &[u8]) -> Result<Vec<u8>, String> {
    let short = || "its payload is cut short".to_owned();
    let word = |at: usize| {
        let bytes = image.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize)
    };
    let setup = setup_len(image).ok_or_else(short)?;
    let (offset, len) = (word(0x248).ok_or_else(short)?, word(0x24c).ok_or_else(short)?);
    let payload = image.get(setup + offset..).and_then(|rest| rest.get(..len)).ok_or_else(short)?;
    let compression = match payload {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
        [0x02, 0x21, 0x4c, 0x18, rest @ ..] => return lz4(rest),
        _ => return Err("its payload is compressed by neither gzip, xz, zstd nor lz4".to_owned()),
    };
    // Four bytes follow the compressed data, the unpacked length: only the first stream counts.
    let mut bytes = Vec::new();
    first_stream(payload, compression)
        .and_then(|stream| stream.take(MOST).read_to_end(&mut bytes))
        .map_err(|e| format!("its payload cannot be unpacked: {e}"))?;
    Ok(bytes)
}

fn first_stream<'a>(payload: impl BufRead + 'a, compression: Compression) -> std::io::Result<Box<dyn Read + 'a>> {
    match compression {
        Compression::Xz => Ok(Box::new(lzma_rust2::XzReader::new_mem_limit(payload, false, XZ_KIB))),
        Compression::Gzip => Ok(Box::new(flate2::bufread::GzDecoder::new(payload))),
        Compression::None | Compression::Zstd => decoder(payload, compression),
    }
}

/// LZ4's legacy format, without its magic number: blocks of 8 MiB, each preceded by its compressed length.
fn lz4(mut rest: &[u8]) -> Result<Vec<u8>, String> {
    const BLOCK: usize = 8 << 20;
    let mut bytes = Vec::new();
    let mut block = vec![0; BLOCK];
    // The remainder at the end is not a block but the unpacked length.
    while let Some((len, after)) = rest.split_first_chunk::<4>() {
        let len = u32::from_le_bytes(*len) as usize;
        let Some((packed, after)) = after.split_at_checked(len) else { break };
        let unpacked = lz4_flex::block::decompress_into(packed, &mut block)
            .map_err(|e| format!("its payload cannot be unpacked: {e}"))?;
        bytes.extend_from_slice(&block[..unpacked]);
        if bytes.len() as u64 > MOST {
            return Err("its payload is larger than 1 GiB".to_owned());
        }
        rest = after;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A bzImage with one sector of real-mode code and this payload, a few bytes into its protected-mode part.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024 + 16];
        image[0x1f1] = 1;
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend_from_slice(payload);
        image.extend_from_slice(b"the rest of the decompressor");
        image
    }

    /// Appends the unpacked length, as the kernel's build does.
    fn with_length(mut packed: Vec<u8>, len: usize) -> Vec<u8> {
        packed.extend_from_slice(&(len as u32).to_le_bytes());
        packed
    }

    #[test]
    fn payloads_are_unpacked_whatever_packed_them() {
        let kernel: Vec<u8> = (0..9u32 << 20).map(|n| (n / 1000) as u8).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&kernel).unwrap();
        assert!(unpack(&image(&gzip.finish().unwrap())).unwrap() == kernel);
        let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
        xz.write_all(&kernel).unwrap();
        assert!(unpack(&image(&with_length(xz.finish().unwrap(), kernel.len()))).unwrap() == kernel);
        let zstd = ruzstd::encoding::compress_to_vec(&kernel[..], ruzstd::encoding::CompressionLevel::Fastest);
        assert!(unpack(&image(&with_length(zstd, kernel.len()))).unwrap() == kernel);
    }

    #[test]
    fn lz4_payloads_are_blocks_of_8_mib() {
        let block = |bytes: &[u8]| {
            // A single block of literals: a token with a length of at least 15, bytes of 255, and the remainder.
            let mut packed = vec![0xf0];
            packed.extend(std::iter::repeat_n(255, (bytes.len() - 15) / 255));
            packed.push(((bytes.len() - 15) % 255) as u8);
            packed.extend_from_slice(bytes);
            [&(packed.len() as u32).to_le_bytes()[..], &packed].concat()
        };
        let kernel: Vec<u8> = (0..9u32 << 20).map(|n| (n / 1000) as u8).collect();
        let (first, second) = kernel.split_at(8 << 20);
        let packed = [&[0x02, 0x21, 0x4c, 0x18][..], &block(first), &block(second)].concat();
        assert!(unpack(&image(&with_length(packed, kernel.len()))).unwrap() == kernel);
    }

    #[test]
    fn what_cannot_be_unpacked_is_said() {
        assert!(unpack(&image(b"BZh91AY")).unwrap_err().contains("neither gzip"));
        assert!(unpack(&image(&[0x1f, 0x8b, 8, 0, 1])).unwrap_err().contains("cannot be unpacked"));
        let mut cut = image(&[0x1f, 0x8b]);
        cut.truncate(1030);
        assert!(unpack(&cut).unwrap_err().contains("cut short"));
        assert!(unpack(&[]).unwrap_err().contains("cut short"));
        let lz4 = [0x02, 0x21, 0x4c, 0x18, 3, 0, 0, 0, 0xff, 0xff, 0xff];
        assert!(unpack(&image(&lz4)).unwrap_err().contains("cannot be unpacked"));
    }
}
