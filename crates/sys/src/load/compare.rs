//! Comparing what arrived with what is expected, in the measured loop.
//!
//! Invariant: every byte is compared, several words at a time: musl's `memcmp` goes byte by byte, which would count as the load's work.

/// Bytes compared at once.
const BLOCK: usize = 64;

/// Whether two slices hold the same bytes.
#[inline(never)]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    let (a_blocks, a_rest) = a.as_chunks::<BLOCK>();
    let (b_blocks, b_rest) = b.as_chunks::<BLOCK>();
    let blocks = a_blocks.iter().zip(b_blocks).all(|(a, b)| {
        let (a, b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
        let words = a.iter().zip(b).map(|(a, b)| u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b));
        words.fold(0, |differs, word| differs | word) == 0
    });
    a.len() == b.len() && blocks && a_rest == b_rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_compared() {
        let right: Vec<u8> = (0..300).map(|n| n as u8).collect();
        for length in [0, 1, 7, 8, 63, 64, 65, 128, 200, 300] {
            assert!(same(&right[..length], &right[..length]));
            for at in 0..length {
                let mut other = right[..length].to_vec();
                other[at] ^= 1;
                assert!(!same(&right[..length], &other), "{at} of {length}");
            }
        }
        assert!(!same(&right[..64], &right[..65]) && !same(&right[..65], &right[..64]));
    }
}
