//! Programs that were mapped while samples were taken: any file of the machine.

use bigiron_model::fuzz_target;
use object::elf::{EM_X86_64, ET_EXEC, PF_R, PF_X, PT_LOAD, SHT_STRTAB, SHT_SYMTAB, STB_GLOBAL, STT_FUNC};

use super::Functions;

/// A program with one segment and two functions, of which one has a mangled name.
fn program() -> Vec<u8> {
    let names = b"\0main\0_ZN3one3two17h0123456789abcdefE\0";
    let half = |n: u16| n.to_le_bytes().to_vec();
    let word = |n: u32| n.to_le_bytes().to_vec();
    let long = |n: u64| n.to_le_bytes().to_vec();
    let (code, symbols, strings, sections) = (120, 184, 256, 320);
    let header = [
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec(),
        [half(ET_EXEC.0), half(EM_X86_64.0), word(1)].concat(),
        [long(0x40_0078), long(64), long(sections), word(0)].concat(),
        [half(64), half(56), half(1), half(64), half(3), half(2)].concat(),
        [word(PT_LOAD.0), word(PF_R.0 | PF_X.0)].concat(),
        [long(0), long(0x40_0000), long(0x40_0000), long(184), long(184), long(0x1000)].concat(),
    ];
    let mut bytes = header.concat();
    assert_eq!(bytes.len(), code);
    bytes.resize(symbols, 0x90);
    let info = STB_GLOBAL.0 << 4 | STT_FUNC.0;
    for (name, at, size) in [(0, 0, 0), (1, 0x40_0078, 16), (6, 0x40_0088, 48_u64)] {
        bytes.extend(
            [word(name), vec![if name > 0 { info } else { 0 }, 0], half(u16::from(name > 0)), long(at), long(size)]
                .concat(),
        );
    }
    assert_eq!(bytes.len(), strings);
    bytes.extend(names);
    bytes.resize(sections as usize, 0);
    let section = |kind: u32, at: u64, len: u64, link: u32, entry: u64| {
        [word(0), word(kind), long(0), long(0), long(at), long(len), word(link), word(0), long(8), long(entry)].concat()
    };
    bytes.extend(section(0, 0, 0, 0, 0));
    bytes.extend(section(SHT_SYMTAB.0, symbols as u64, 72, 2, 24));
    bytes.extend(section(SHT_STRTAB.0, strings as u64, names.len() as u64, 0, 0));
    bytes
}

#[test]
fn programs() {
    let seed = program();
    assert_eq!(Functions::new(&seed).unwrap().name(0x88), Some("one::two"));
    fuzz_target!(programs, vec![seed], &["\x7fELF\x02\x01\x01", "_ZN", "_R", "17h0123456789abcdefE", "@@", "$LT$"])
        .run(|input| {
            let Some(functions) = Functions::new(input) else { return Err("not a program".to_owned()) };
            let named = [0, 0x78, 0x88, 1 << 63, u64::MAX].map(|at| functions.name(at).is_some());
            Ok(format!("{} {} {named:?}", functions.segments.len().min(3), functions.functions.len().min(3)))
        });
}
