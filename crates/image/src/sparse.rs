//! Images as the blocks that are not zero: packed for a cache and a guest's initramfs, and as sparse files on a disk.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, bail};

/// Bytes of a block in the search for zeros, for all file systems here.
const BLOCK: usize = 4096;
/// What a block without data is.
static ZEROS: [u8; BLOCK] = [0; BLOCK];
/// Zeros between two extents that are rather copied than left out, in bytes.
const GAP: u64 = 64 << 10;
/// Bytes that are read at once in the search for zeros.
const READ_BYTES: usize = 1 << 20;

pub(super) fn created(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("Cannot make {}", path.display()))
}

/// Writes a packed image of `size_mib` into an empty file.
pub(super) fn unpack(packed: &[u8], size_mib: u64, file: &File) -> anyhow::Result<()> {
    let size = size_mib << 20;
    file.set_len(size)?;
    for (offset, data) in Extents::new(packed) {
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > size) {
            bail!("The packed image is damaged: it has bytes at {offset}, and the disk has {size_mib} MiB");
        }
        file.write_all_at(data, offset)?;
    }
    Ok(())
}

/// The (offset, length) of what the host's file system stores for a sparse file, in whole blocks. All bytes outside are zero. The ranges themselves
/// depend on that file system, and on what of the file is in memory.
fn stored(file: &File) -> anyhow::Result<Vec<(u64, u64)>> {
    let len = file.metadata()?.len();
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < len {
        let data = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
            Ok(offset) => offset / BLOCK as u64 * BLOCK as u64,
            Err(rustix::io::Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let hole = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(data))?.next_multiple_of(BLOCK as u64).min(len);
        ranges.push((data, hole - data));
        at = hole;
    }
    Ok(ranges)
}

/// The (offset, length) of the data in a file, in whole blocks: those that are not all zero, and zeros between them up to [`GAP`]. They depend on the
/// file's bytes only, so that a guest that copies them does the same work on every host.
///
/// # Errors
/// If the file cannot be read.
pub fn extents(file: &File) -> anyhow::Result<Vec<(u64, u64)>> {
    let mut extents: Vec<(u64, u64)> = Vec::new();
    let mut buffer = vec![0; READ_BYTES];
    for (start, length) in stored(file)? {
        let mut at = start;
        while at < start + length {
            let piece = &mut buffer[..(start + length - at).min(READ_BYTES as u64) as usize];
            file.read_exact_at(piece, at)?;
            for (offset, block) in (at..).step_by(BLOCK).zip(piece.chunks(BLOCK)) {
                if is_zero(block) {
                    continue;
                }
                match extents.last_mut() {
                    Some((first, bytes)) if offset - (*first + *bytes) <= GAP => {
                        *bytes = offset + block.len() as u64 - *first;
                    }
                    _ => extents.push((offset, block.len() as u64)),
                }
            }
            at += piece.len() as u64;
        }
    }
    Ok(extents)
}

/// A disk for one guest that starts with the bytes of `image`: shared with it if the file system can, otherwise copied without its holes.
pub fn restore(image: &Path, to: &Path) -> anyhow::Result<()> {
    let make = || format!("Cannot make {}", to.display());
    let from = File::open(image).with_context(|| format!("Cannot open {}", image.display()))?;
    let onto = File::create(to).with_context(make)?;
    if rustix::fs::ioctl_ficlone(&onto, &from).is_ok() {
        return Ok(());
    }
    onto.set_len(from.metadata()?.len()).with_context(make)?;
    for (offset, length) in stored(&from)? {
        let (mut read, mut written) = (offset, offset);
        while read < offset + length {
            let left = (offset + length - read) as usize;
            if rustix::fs::copy_file_range(&from, Some(&mut read), &onto, Some(&mut written), left)
                .with_context(make)?
                == 0
            {
                bail!("{} ends early", image.display());
            }
        }
    }
    Ok(())
}

/// Whether a block, of at most [`BLOCK`] bytes, has no data.
fn is_zero(block: &[u8]) -> bool {
    // A comparison of two slices is faster than one of bytes, and images have gigabytes.
    *block == ZEROS[..block.len()]
}

/// Packs a sparse file: for every run of 4 KiB blocks that are not all zero, offset and length (u64, little-endian) and the bytes.
pub(super) fn pack(file: &mut File) -> anyhow::Result<Vec<u8>> {
    let len = file.seek(SeekFrom::End(0))?;
    let mut packed = Vec::new();
    let mut run: Option<(u64, Vec<u8>)> = None;
    let mut at = 0;
    while at < len {
        // Skip holes quickly; without SEEK_DATA support the kernel reports the whole file as data.
        let data = match rustix::fs::seek(&*file, rustix::fs::SeekFrom::Data(at)) {
            Ok(offset) => offset / BLOCK as u64 * BLOCK as u64,
            Err(rustix::io::Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let hole = rustix::fs::seek(&*file, rustix::fs::SeekFrom::Hole(data))?.next_multiple_of(BLOCK as u64);
        file.seek(SeekFrom::Start(data))?;
        let mut buffer = vec![0; (hole.min(len) - data) as usize];
        file.read_exact(&mut buffer)?;
        for (n, block) in buffer.chunks(BLOCK).enumerate() {
            let offset = data + (n * BLOCK) as u64;
            if is_zero(block) {
                flush(&mut run, &mut packed);
                continue;
            }
            match &mut run {
                Some((start, bytes)) if *start + bytes.len() as u64 == offset => bytes.extend_from_slice(block),
                _ => {
                    flush(&mut run, &mut packed);
                    run = Some((offset, block.to_vec()));
                }
            }
        }
        at = hole;
    }
    flush(&mut run, &mut packed);
    Ok(packed)
}

fn flush(run: &mut Option<(u64, Vec<u8>)>, packed: &mut Vec<u8>) {
    if let Some((start, bytes)) = run.take() {
        packed.extend_from_slice(&start.to_le_bytes());
        packed.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        packed.extend_from_slice(&bytes);
    }
}

/// The extents of a packed image: (offset, bytes). Ends early at a damaged extent.
pub struct Extents<'a> {
    rest: &'a [u8],
}

impl<'a> Extents<'a> {
    pub fn new(packed: &'a [u8]) -> Self {
        Self { rest: packed }
    }
}

impl<'a> Iterator for Extents<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (offset, rest) = self.rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (data, rest) = rest.split_at_checked(u64::from_le_bytes(*len) as usize)?;
        self.rest = rest;
        Some((u64::from_le_bytes(*offset), data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_exactly_the_bytes_that_are_not_zero() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[7; 5000], 8192).unwrap();
        file.write_all_at(&[9; 1], (1 << 20) - 1).unwrap();
        let packed = pack(&mut file).unwrap();
        let mut copy = vec![0u8; 1 << 20];
        for (offset, data) in Extents::new(&packed) {
            copy[offset as usize..][..data.len()].copy_from_slice(data);
        }
        let mut want = vec![0u8; 1 << 20];
        want[8192..13192].fill(7);
        want[(1 << 20) - 1] = 9;
        assert!(copy == want);
        assert!(packed.len() < 20_000, "{} bytes for three blocks", packed.len());
    }

    #[test]
    fn extents_depend_on_the_bytes_and_not_on_what_is_stored() {
        let sparse = tempfile::tempfile().unwrap();
        sparse.set_len(4 << 20).unwrap();
        for (offset, bytes) in [(0, 5000), (60 << 10, 1), (1 << 20, 4096), (3 << 20, 1 << 20)] {
            sparse.write_all_at(&vec![7; bytes], offset).unwrap();
        }
        let stored = tempfile::tempfile().unwrap();
        let mut whole = vec![0; 4 << 20];
        sparse.read_exact_at(&mut whole, 0).unwrap();
        stored.write_all_at(&whole, 0).unwrap();
        let found = extents(&stored).unwrap();
        assert_eq!(found, [(0, 64 << 10), (1 << 20, 4096), (3 << 20, 1 << 20)]);
        assert_eq!(extents(&sparse).unwrap(), found);
    }

    #[test]
    fn a_restored_disk_has_the_bytes_and_the_holes_of_its_image() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let file = File::create(&image).unwrap();
        file.set_len(8 << 20).unwrap();
        file.write_all_at(&[7; 5000], 1 << 20).unwrap();
        file.write_all_at(&[9], (8 << 20) - 1).unwrap();
        let disk = dir.path().join("disk");
        restore(&image, &disk).unwrap();
        assert!(std::fs::read(&image).unwrap() == std::fs::read(&disk).unwrap());
        let disk = File::open(&disk).unwrap();
        assert_eq!(stored(&File::open(&image).unwrap()).unwrap(), stored(&disk).unwrap());
        assert!(stored(&disk).unwrap().iter().all(|(offset, length)| (offset | length) % BLOCK as u64 == 0));
    }
}
