//! Programs and libraries of packages and of this machine.

use bigiron_model::fuzz_target;

use super::needed;

/// A program with a loaded segment, and a dynamic section that names one library.
fn program() -> Vec<u8> {
    let half = |n: u16| n.to_le_bytes().to_vec();
    let word = |n: u32| n.to_le_bytes().to_vec();
    let long = |n: u64| n.to_le_bytes().to_vec();
    let segment = |kind, at: u64, len: u64| {
        [word(kind), word(5), long(at), long(0x1000 + at), long(0), long(len), long(len), long(8)].concat()
    };
    let (dynamic, strings) = (176, 240);
    let mut bytes = [
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec(),
        [half(3), half(62), word(1), long(0), long(64), long(0), word(0)].concat(),
        [half(64), half(56), half(2), half(64), half(0), half(0)].concat(),
        segment(1, 0, 256),
        segment(2, dynamic, 64),
    ]
    .concat();
    assert_eq!(bytes.len() as u64, dynamic);
    for (tag, value) in [(1, 1), (5, 0x1000 + strings), (10, 11), (0, 0)] {
        bytes.extend([long(tag), long(value)].concat());
    }
    bytes.extend(b"\0libc.so.6\0\0\0\0\0\0");
    bytes
}

#[test]
fn libraries() {
    let seed = program();
    assert_eq!(needed(&seed).unwrap(), ["libc.so.6"]);
    fuzz_target!(libraries, vec![seed], &["\x7fELF\x02\x01\x01", "libm.so.6\0"])
        .run(|input| needed(input).map(|names| names.len().min(4).to_string()).map_err(|e| e.to_string()));
}
