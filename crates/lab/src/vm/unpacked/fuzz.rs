//! Kernels that others have built. The input is `vmlinux` with its relocations; it is packed without compression, so that each change reaches it.

use std::io::Write as _;

use bigiron_model::fuzz_target;

use super::tests::Made;
use super::{SPACE, Unpacked};

#[test]
fn kernels() {
    let small = Made::small();
    let mut without_groups = Made::small();
    without_groups.list.clear();
    let seeds = vec![small.vmlinux(), without_groups.vmlinux()];
    fuzz_target!(kernels, seeds, &["\x7fELF\x02\x01\x01"]).run(|input| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        gzip.write_all(input).unwrap();
        let image = Made::around(&gzip.finish().unwrap());
        let unpacked = Unpacked::of(&image)?;
        let moved = unpacked.image(Some(u64::MAX));
        assert_eq!(moved.len(), unpacked.image(None).len());
        assert!(unpacked.end() <= SPACE);
        Ok(format!("{} {}", unpacked.distances.len().min(3), unpacked.relocations.add_64.len().min(3)))
    });
}

#[test]
fn payloads() {
    let seeds = vec![Made::small().image(), Made::around(b"\x02\x21\x4c\x18\x05\0\0\0\x40abcd")];
    let words = &["\x1f\u{8b}\x08", "(\u{b5}/\u{fd}", "\u{fd}7zXZ\0", "\x02!L\x18", "HdrS"];
    fuzz_target!(payloads, seeds, words)
        .run(|input| Unpacked::of(input).map(|unpacked| (unpacked.end() >> 20).to_string()));
}
