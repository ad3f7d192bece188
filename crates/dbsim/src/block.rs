//! The database block: 8 KiB with the block's address, its version and a checksum.
//!
//! Invariant: a block's body is a function of its address and version alone, so that anyone can compute its correct contents. Its
//! checksum is valid only on disk: it is computed on the way out, because the block in the cache keeps changing.

use thiserror::Error;

use super::checksum;

/// Bytes of a database block.
pub const BLOCK: usize = 8192;
/// Bytes of the header.
pub const HEADER: usize = 64;
/// Longest change, in bytes.
pub const CHANGE_MAX: usize = 700;
const CHANGE_MIN: usize = 100;
const MAGIC: u32 = 0x4253_4244;

/// The place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Data file, from 0.
    pub file: u32,
    /// Block within the file, from 0.
    pub block: u32,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "block {} of data file {}", self.block, self.file)
    }
}

/// An error in a block.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BlockError {
    #[error("Checksum of {0} is wrong: torn or corrupted")]
    Checksum(Address),
    #[error("{found} is in place of {wanted}: misdirected")]
    Misplaced { wanted: Address, found: Address },
    #[error("The data in place of {0} are not a database block")]
    Foreign(Address),
    #[error("The body of {0} does not match version {1}")]
    Body(Address, u32),
}

/// The author of a change and its LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub version: u32,
    /// End of the redo that describes the change.
    pub lsn: u64,
    pub process: u32,
    pub transaction: u64,
}

/// The place of a change: `len` bytes at `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    pub offset: usize,
    pub len: usize,
}

fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}

/// A bijection that scatters (finaliser of SplitMix64, S. Vigna).
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn seed(address: Address, version: u32) -> u64 {
    mix((u64::from(address.file) << 56) ^ (u64::from(address.block) << 24) ^ mix(u64::from(version)))
}

fn fill(bytes: &mut [u8], seed: u64) {
    let mut word = seed;
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for w in words {
        *w = word.to_le_bytes();
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
}

/// Makes `page` version 0 of the block, unsealed.
pub fn initialise(page: &mut [u8], address: Address) {
    page[..HEADER].fill(0);
    page[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    page[8..12].copy_from_slice(&address.file.to_le_bytes());
    page[12..16].copy_from_slice(&address.block.to_le_bytes());
    fill(&mut page[HEADER..BLOCK], seed(address, 0));
}

/// The place of the change to `version`.
pub fn extent(address: Address, version: u32) -> ByteRange {
    let seed = seed(address, version);
    let len = CHANGE_MIN + (seed >> 40) as usize % (CHANGE_MAX - CHANGE_MIN + 1);
    let offset = HEADER + (seed & 0xffff) as usize % (BLOCK - HEADER - len + 1);
    ByteRange { offset, len }
}

/// Writes the bytes of the change to `version` into `payload`; returns their place.
pub fn change(address: Address, version: u32, payload: &mut [u8; CHANGE_MAX]) -> ByteRange {
    let extent = extent(address, version);
    fill(&mut payload[..extent.len], seed(address, version));
    extent
}

/// Applies a change to the block and stamps it.
pub fn apply(page: &mut [u8], offset: usize, payload: &[u8], stamp: Stamp) {
    page[offset..offset + payload.len()].copy_from_slice(payload);
    page[16..20].copy_from_slice(&stamp.version.to_le_bytes());
    page[20..24].copy_from_slice(&stamp.process.to_le_bytes());
    page[24..32].copy_from_slice(&stamp.lsn.to_le_bytes());
    page[32..40].copy_from_slice(&stamp.transaction.to_le_bytes());
}

/// The last change's stamp.
pub fn stamp(page: &[u8]) -> Stamp {
    Stamp { version: u32_at(page, 16), process: u32_at(page, 20), lsn: u64_at(page, 24), transaction: u64_at(page, 32) }
}

/// Computes the checksum (CRC-32C) of a block that is about to be written.
pub fn seal(page: &mut [u8]) {
    seal_with(page, crc32c::crc32c);
}

/// [`seal`] outside of measured windows.
pub fn seal_unmeasured(page: &mut [u8]) {
    seal_with(page, checksum::unmeasured);
}

#[inline]
fn seal_with(page: &mut [u8], checksum: fn(&[u8]) -> u32) {
    let sum = checksum(&page[8..BLOCK]);
    page[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// Checks that a block in the cache is the expected one.
pub fn identify(page: &[u8], wanted: Address) -> Result<(), BlockError> {
    let found = Address { file: u32_at(page, 8), block: u32_at(page, 12) };
    if u32_at(page, 0) != MAGIC {
        Err(BlockError::Foreign(wanted))
    } else if found != wanted {
        Err(BlockError::Misplaced { wanted, found })
    } else {
        Ok(())
    }
}

/// Checks a block read from disk: that it is whole and the expected one.
pub fn check(page: &[u8], wanted: Address) -> Result<(), BlockError> {
    check_with(page, wanted, crc32c::crc32c)
}

/// [`check`] outside of measured windows.
pub fn check_unmeasured(page: &[u8], wanted: Address) -> Result<(), BlockError> {
    check_with(page, wanted, checksum::unmeasured)
}

#[inline]
fn check_with(page: &[u8], wanted: Address, checksum: fn(&[u8]) -> u32) -> Result<(), BlockError> {
    if u32_at(page, 0) != MAGIC {
        return Err(BlockError::Foreign(wanted));
    }
    if u32_at(page, 4) != checksum(&page[8..BLOCK]) {
        return Err(BlockError::Checksum(wanted));
    }
    identify(page, wanted)
}

/// Checks the body against the contents of the block's version, computed from scratch.
pub fn check_body(page: &[u8], address: Address) -> Result<(), BlockError> {
    let version = stamp(page).version;
    let mut expected = [0; BLOCK];
    image(&mut expected, address, version);
    // By words: comparing byte slices calls memcmp, which goes byte by byte in musl.
    let (found, wanted) = (page[HEADER..BLOCK].as_chunks::<8>().0, expected[HEADER..].as_chunks::<8>().0);
    if found.iter().eq(wanted) { Ok(()) } else { Err(BlockError::Body(address, version)) }
}

/// Versions up to this are built by applying every change; beyond, it is cheaper to go back from the last change until every byte
/// has been written.
const FORWARD: u32 = 64;

/// Builds the block's body in `version`. The header has only magic and address.
pub fn image(page: &mut [u8], address: Address, version: u32) {
    initialise(page, address);
    let mut payload = [0; CHANGE_MAX];
    if version <= FORWARD {
        for v in 1..=version {
            let ByteRange { offset, len } = change(address, v, &mut payload);
            page[offset..offset + len].copy_from_slice(&payload[..len]);
        }
        return;
    }
    // Ranges that no later change has written.
    let mut open: Vec<_> = std::iter::once(HEADER..BLOCK).collect();
    for v in (1..=version).rev() {
        let ByteRange { offset, len } = extent(address, v);
        let end = offset + len;
        if !open.iter().any(|o| o.start < end && offset < o.end) {
            continue;
        }
        change(address, v, &mut payload);
        let mut left = Vec::with_capacity(open.len() + 1);
        for o in open {
            let (from, to) = (o.start.max(offset), o.end.min(end));
            if from < to {
                page[from..to].copy_from_slice(&payload[from - offset..to - offset]);
                left.extend([o.start..from, to..o.end].into_iter().filter(|r| !r.is_empty()));
            } else {
                left.push(o);
            }
        }
        if left.is_empty() {
            return;
        }
        open = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERE: Address = Address { file: 3, block: 17 };

    fn block(versions: u32) -> [u8; BLOCK] {
        let mut page = [0; BLOCK];
        let mut payload = [0; CHANGE_MAX];
        initialise(&mut page, HERE);
        for version in 1..=versions {
            let e = change(HERE, version, &mut payload);
            apply(&mut page, e.offset, &payload[..e.len], Stamp { version, lsn: 8, process: 1, transaction: 2 });
        }
        seal(&mut page);
        page
    }

    #[test]
    fn a_block_in_another_place_is_found_out() {
        let elsewhere = Address { file: 3, block: 18 };
        assert_eq!(check(&block(2), elsewhere), Err(BlockError::Misplaced { wanted: elsewhere, found: HERE }));
        assert_eq!(check(&[0; BLOCK], HERE), Err(BlockError::Foreign(HERE)));
    }

    #[test]
    fn a_missing_change_is_found_out() {
        let mut page = block(3);
        let mut earlier = block(2);
        earlier[16..20].copy_from_slice(&3u32.to_le_bytes());
        seal(&mut earlier);
        assert_eq!(check(&earlier, HERE), Ok(()));
        assert_eq!(check_body(&earlier, HERE), Err(BlockError::Body(HERE, 3)));
        seal(&mut page);
        assert_eq!(check_body(&page, HERE), Ok(()));
    }

    #[test]
    fn the_image_of_a_late_version_is_that_of_all_changes() {
        let mut page = [0; BLOCK];
        let mut payload = [0; CHANGE_MAX];
        initialise(&mut page, HERE);
        for version in 1..=3_000 {
            let e = change(HERE, version, &mut payload);
            page[e.offset..e.offset + e.len].copy_from_slice(&payload[..e.len]);
            if version < 3 * FORWARD || version % 500 == 0 {
                let mut made = [0; BLOCK];
                image(&mut made, HERE, version);
                assert!(made == page, "version {version}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_and_any_torn_half_is_found_out(bit in 0usize..BLOCK * 8, cut in 1usize..16) {
            let whole = block(1);
            prop_assert_eq!(check(&whole, HERE), Ok(()));
            let mut flipped = whole;
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(check(&flipped, HERE).is_err());
            let mut torn = block(2);
            torn[cut * 512..].copy_from_slice(&whole[cut * 512..]);
            // A cut behind the change leaves the newer block whole.
            if torn != block(2) {
                prop_assert!(check(&torn, HERE).is_err());
            }
        }

        #[test]
        fn changes_stay_inside_the_body(file in 0u32..10, block in 0u32..u32::MAX, version in 1u32..u32::MAX) {
            let e = change(Address { file, block }, version, &mut [0; CHANGE_MAX]);
            prop_assert!(e.offset >= HEADER && e.offset + e.len <= BLOCK && (CHANGE_MIN..=CHANGE_MAX).contains(&e.len));
        }
    }
}
