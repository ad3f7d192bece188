//! What happened to a block whose checksum is wrong, determined from its 512-byte sectors.
//!
//! Invariant: a sector is attributed to a version only if it equals, byte for byte, that version's contents there.

use std::ops::RangeInclusive;

use super::finding::VerifyFailed;
use crate::block;
use crate::block::{Address, BLOCK, ByteRange, CHANGE_MAX, HEADER};

/// Bytes that any disk writes whole or not at all.
pub const SECTOR: usize = 512;
const SECTORS: usize = BLOCK / SECTOR;

/// The damage.
pub enum Damage {
    /// Every sector is of some version: the mixture that a write leaves which was cut off. By sector, the versions it can be of.
    Mixed { versions: Vec<Vec<RangeInclusive<u32>>>, finding: VerifyFailed },
    /// Some bytes are of no version.
    Corrupted(VerifyFailed),
}

#[cfg(test)]
impl Damage {
    pub fn finding(self) -> VerifyFailed {
        match self {
            Damage::Mixed { finding, .. } | Damage::Corrupted(finding) => finding,
        }
    }
}

/// Whether every sector can be of a version from `first` to `last`.
pub fn within(versions: &[Vec<RangeInclusive<u32>>], first: u32, last: u32) -> bool {
    versions.iter().all(|ranges| ranges.iter().any(|r| *r.start() <= last && *r.end() >= first))
}

/// The bytes of a sector that the block's version alone decides.
fn body(sector: usize) -> std::ops::Range<usize> {
    (sector * SECTOR).max(HEADER)..(sector + 1) * SECTOR
}

/// By sector, the versions up to `last` that it can be of, as ranges in ascending order.
fn versions(page: &[u8], address: Address, last: u32) -> Vec<Vec<RangeInclusive<u32>>> {
    let mut expected = [0; BLOCK];
    let mut payload = [0; CHANGE_MAX];
    block::initialise(&mut expected, address);
    let same = |expected: &[u8], s: usize| page[body(s)] == expected[body(s)];
    let mut since: Vec<Option<u32>> = (0..SECTORS).map(|s| same(&expected, s).then_some(0)).collect();
    let mut ranges = vec![Vec::new(); SECTORS];
    for version in 1..=last {
        let ByteRange { offset, len } = block::change(address, version, &mut payload);
        expected[offset..offset + len].copy_from_slice(&payload[..len]);
        for s in offset / SECTOR..=(offset + len - 1) / SECTOR {
            match (same(&expected, s), since[s]) {
                (true, None) => since[s] = Some(version),
                (false, Some(from)) => {
                    ranges[s].push(from..=version - 1);
                    since[s] = None;
                }
                _ => {}
            }
        }
    }
    for (s, since) in since.into_iter().enumerate() {
        ranges[s].extend(since.map(|from| from..=last));
    }
    ranges
}

/// Tells what is wrong with `page`, which is not a whole image of the block at `address`. `last` is the latest version that may
/// be in it.
pub fn diagnose(page: &[u8], address: Address, last: u32) -> Damage {
    let stamped = block::stamp(page).version;
    let header = block::identify(page, address).is_ok() && stamped <= last;
    let mut ranges = versions(page, address, last);
    let can_be = |s: usize, v: u32| ranges[s].iter().any(|r| r.contains(&v));
    // The first sector says itself which version it is of.
    let first = header && can_be(0, stamped);
    let odd: Vec<usize> = (0..SECTORS).filter(|s| !can_be(*s, stamped)).collect();
    if !first || odd.is_empty() || ranges.iter().any(Vec::is_empty) {
        return Damage::Corrupted(corrupted(page, address, stamped, last, &ranges));
    }
    // The latest version that all of them can be of, else the latest of any.
    let common = |v: &u32| odd.iter().all(|s| can_be(*s, *v));
    let newest = |s: &usize| ranges[*s].last().map_or(0, |r| *r.end());
    let ends = || odd.iter().flat_map(|s| &ranges[*s]).map(|r| *r.end());
    let rest = ends().filter(common).max().or_else(|| odd.iter().map(newest).max()).unwrap_or(0);
    let cut = odd[0];
    let finding = if common(&rest) && (cut..SECTORS).all(|s| can_be(s, rest)) {
        VerifyFailed::Torn { address, cut, first: stamped, rest }
    } else {
        VerifyFailed::StaleSectors { address, sectors: odd, stale: rest, version: stamped }
    };
    ranges[0] = vec![stamped..=stamped];
    Damage::Mixed { versions: ranges, finding }
}

/// Compares with the version that most sectors are of.
fn corrupted(
    page: &[u8],
    address: Address,
    stamped: u32,
    last: u32,
    ranges: &[Vec<RangeInclusive<u32>>],
) -> VerifyFailed {
    let votes = |v: u32| ranges.iter().flatten().filter(|r| r.contains(&v)).count();
    let candidates = ranges.iter().flatten().flat_map(|r| [*r.start(), *r.end()]).chain([stamped.min(last)]);
    let version = candidates.max_by_key(|v| (votes(*v), *v == stamped, *v)).unwrap_or(0);
    if page.iter().all(|b| *b == 0) {
        return block::BlockError::Foreign(address).into();
    }
    let mut expected = [0; BLOCK];
    block::image(&mut expected, address, version);
    // Of the header, only what the version decides can be compared.
    let known = |at: usize| !(4..HEADER).contains(&at) || (8..16).contains(&at);
    let differs = || page.iter().zip(&expected).enumerate().filter(|(at, (a, b))| known(*at) && a != b);
    VerifyFailed::Corrupted {
        address,
        version,
        // Nothing that can be compared differs: it is the rest of the header.
        byte: differs().next().map_or(4, |(at, _)| at),
        bits: differs().map(|(_, (a, b))| (a ^ b).count_ones()).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Stamp;
    use proptest::prelude::*;

    const HERE: Address = Address { file: 2, block: 9 };

    fn page(version: u32) -> [u8; BLOCK] {
        let mut page = [0; BLOCK];
        block::image(&mut page, HERE, version);
        block::apply(&mut page, HEADER, &[], Stamp { version, lsn: 100, process: 1, transaction: 2 });
        block::seal(&mut page);
        page
    }

    /// Sectors whose body differs between two versions.
    fn changed(a: u32, b: u32) -> Vec<usize> {
        (0..SECTORS).filter(|s| page(a)[body(*s)] != page(b)[body(*s)]).collect()
    }

    proptest! {
        #[test]
        fn a_torn_block_is_told_from_a_stale_sector_and_from_a_flipped_bit(
            old in 0u32..40, newer in 1u32..20, cut in 1usize..SECTORS, bit in HEADER * 8..BLOCK * 8
        ) {
            let new = old + newer;
            let mut torn = page(new);
            torn[cut * SECTOR..].copy_from_slice(&page(old)[cut * SECTOR..]);
            let behind: Vec<_> = changed(old, new).into_iter().filter(|s| *s >= cut).collect();
            if let Some(first) = behind.first() {
                match diagnose(&torn, HERE, new + 5) {
                    Damage::Mixed { versions, finding: VerifyFailed::Torn { cut, first: version, rest, .. } } => {
                        prop_assert_eq!((cut, version), (*first, new));
                        // Versions that differ nowhere behind the cut cannot be told apart.
                        prop_assert!(rest >= old && rest < new && changed(rest, old).iter().all(|s| *s < cut));
                        prop_assert!(within(&versions, old, new) && !within(&versions, old + 1, new - 1));
                    }
                    damage => prop_assert!(false, "{:?}", damage.finding()),
                }
            }
            let mut stale = page(new);
            // In the middle: behind it something is newer than the sector can be.
            let until = |s: usize| (old..new).take_while(|v| !changed(old, *v).contains(&s)).last().unwrap_or(old);
            let inner = changed(old, new).into_iter().find(|s| *s > 0 && changed(until(*s), new).iter().any(|o| o > s));
            if let Some(s) = inner {
                stale[body(s)].copy_from_slice(&page(old)[body(s)]);
                match diagnose(&stale, HERE, new + 5).finding() {
                    VerifyFailed::StaleSectors { sectors, version, .. } => prop_assert_eq!((sectors, version), (vec![s], new)),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            let mut flipped = page(new);
            flipped[bit / 8] ^= 1 << (bit % 8);
            let wanted = VerifyFailed::Corrupted { address: HERE, version: new, byte: bit / 8, bits: 1 };
            prop_assert_eq!(diagnose(&flipped, HERE, new + 5).finding(), wanted);
        }
    }

    #[test]
    fn damage_to_the_header_and_nothing_at_all_are_told() {
        let mut flipped = page(7);
        flipped[25] ^= 1;
        let wanted = VerifyFailed::Corrupted { address: HERE, version: 7, byte: 4, bits: 0 };
        assert_eq!(diagnose(&flipped, HERE, 9).finding(), wanted);
        assert_eq!(diagnose(&[0; BLOCK], HERE, 9).finding(), block::BlockError::Foreign(HERE).into());
    }
}
