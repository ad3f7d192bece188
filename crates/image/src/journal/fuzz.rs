//! Packed images: what a guest and the search for a journal read from them. They are the only content of an initramfs that is parsed; nothing here
//! reads the archive itself, which the kernel unpacks.

use std::os::unix::fs::FileExt as _;

use bigiron_model::fuzz_target;

use super::{of_ext, of_xfs};
use crate::sparse::{Extents, pack, unpack};

/// A disk of 1 MiB with the fields that are read of a superblock, each in its place.
fn packed(fields: &[(u64, [u8; 4])]) -> Vec<u8> {
    let mut file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    for (at, bytes) in fields {
        file.write_all_at(bytes, *at).unwrap();
    }
    file.write_all_at(b"a block behind", 64 << 10).unwrap();
    pack(&mut file).unwrap()
}

#[test]
fn packed_images() {
    let word = |n: u32| n.to_le_bytes();
    let ext = packed(&[(1024 + 0x5c, word(4)), (1024 + 0x18, word(2)), (1024 + 0x14c, word(4 << 20))]);
    let xfs = packed(&[(0, *b"XFSB"), (4, 4096_u32.to_be_bytes()), (96, 1000_u32.to_be_bytes())]);
    assert!(of_ext(&ext).is_some() && of_xfs(&xfs).is_some());
    fuzz_target!(packed_images, vec![ext, xfs], &["XFSB"]).run(|input| {
        let (extents, bytes) = Extents::new(input).fold((0, 0), |(n, sum), (_, data)| (n + 1, sum + data.len()));
        assert!(bytes <= input.len());
        let file = tempfile::tempfile().unwrap();
        let wrote = unpack(input, 1, &file).map_err(|e| e.to_string());
        let ext = of_ext(input).is_some_and(|inside| inside.blocks > 0);
        wrote.map(|()| format!("{} {ext} {}", extents.min(4), of_xfs(input).is_some()))
    });
}
