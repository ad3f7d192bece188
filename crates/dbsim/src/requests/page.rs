//! The data of a verifiable request: a block with its address, version, writer and checksum.
//!
//! Invariant: no sector is equal in two versions of a block, so a block torn between sectors never has a valid checksum.

use thiserror::Error;

use super::super::block::Address;

const MAGIC: u32 = 0x5153_5152;
const SECTOR: usize = 512;
/// Bytes of the tag at the end of each sector.
const TAG: usize = 8;

/// The identity of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub address: Address,
    /// Number of writes of the block, including this one.
    pub version: u32,
    /// The writer, and the number of its write.
    pub process: u32,
    pub sequence: u64,
}

/// An error in a block that was read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PageError {
    #[error("The data in place of {0} were never written there")]
    Foreign(Address),
    #[error("Checksum of {0} is wrong: torn or corrupted")]
    Checksum(Address),
    #[error("{found} is in place of {wanted}: misdirected")]
    Misplaced { wanted: Address, found: Address },
    #[error("{address} is in version {found} instead of {wanted}: {}", if found < wanted { "lost write or stale read" } else { "written twice" })]
    Version { address: Address, wanted: u32, found: u32 },
}

/// Fills the part of a buffer that does not change between writes, with incompressible data.
pub fn prepare(page: &mut [u8], seed: u64) {
    let mut x = seed | 1;
    for word in page.as_chunks_mut::<8>().0 {
        // Xorshift (G. Marsaglia, 2003): the quality of the bits does not matter.
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        *word = x.to_le_bytes();
    }
}

/// Puts the label on a prepared block and seals it with its checksum (CRC-32C).
pub fn seal(page: &mut [u8], label: &Label) {
    let tag = (u64::from(label.version) << 32 | u64::from(label.address.block)).to_le_bytes();
    for sector in page.as_chunks_mut::<SECTOR>().0 {
        sector[SECTOR - TAG..].copy_from_slice(&tag);
    }
    page[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    page[8..12].copy_from_slice(&label.address.file.to_le_bytes());
    page[12..16].copy_from_slice(&label.address.block.to_le_bytes());
    page[16..20].copy_from_slice(&label.version.to_le_bytes());
    page[20..24].copy_from_slice(&label.process.to_le_bytes());
    page[24..32].copy_from_slice(&label.sequence.to_le_bytes());
    let sum = crc32c::crc32c(&page[8..]);
    page[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// Checks a block that was read: intact, in its place, in the last version written.
pub fn check(page: &[u8], wanted: Address, version: u32) -> Result<Label, PageError> {
    let u32_at = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    if u32_at(0) != MAGIC {
        return Err(PageError::Foreign(wanted));
    }
    if u32_at(4) != crc32c::crc32c(&page[8..]) {
        return Err(PageError::Checksum(wanted));
    }
    let found = Address { file: u32_at(8), block: u32_at(12) };
    if found != wanted {
        return Err(PageError::Misplaced { wanted, found });
    }
    let label = Label {
        address: found,
        version: u32_at(16),
        process: u32_at(20),
        sequence: u64::from(u32_at(28)) << 32 | u64::from(u32_at(24)),
    };
    if label.version != version {
        return Err(PageError::Version { address: wanted, wanted: version, found: label.version });
    }
    Ok(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERE: Address = Address { file: 3, block: 17 };

    fn page(bytes: usize, version: u32) -> Vec<u8> {
        let mut page = vec![0; bytes];
        prepare(&mut page, 1);
        seal(&mut page, &label(version));
        page
    }

    fn label(version: u32) -> Label {
        Label { address: HERE, version, process: 4, sequence: 1 << 33 }
    }

    #[test]
    fn each_fault_has_its_name() {
        assert_eq!(check(&page(512, 2), HERE, 2), Ok(label(2)));
        let elsewhere = Address { file: 3, block: 18 };
        let misplaced = PageError::Misplaced { wanted: elsewhere, found: HERE };
        assert_eq!(check(&page(512, 2), elsewhere, 2), Err(misplaced));
        assert_eq!(check(&[0; 4096], HERE, 1), Err(PageError::Foreign(HERE)));
        assert_eq!(
            check(&page(512, 2), HERE, 3).unwrap_err().to_string(),
            "block 17 of data file 3 is in version 2 instead of 3: lost write or stale read"
        );
    }

    proptest! {
        #[test]
        fn any_flipped_bit_and_any_torn_write_is_found_out(
            sectors in 2usize..17, bit in 0usize..512 * 8, cut in 1usize..16, versions in (1u32..9, 1u32..9)
        ) {
            let bytes = sectors * 512;
            let mut flipped = page(bytes, 1);
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(check(&flipped, HERE, 1).is_err());
            let (old, new) = (versions.0, versions.0 + versions.1);
            let cut = (cut % sectors).max(1) * 512;
            let mut torn = page(bytes, new);
            torn[cut..].copy_from_slice(&page(bytes, old)[cut..]);
            prop_assert_eq!(check(&torn, HERE, new), Err(PageError::Checksum(HERE)));
        }
    }
}
