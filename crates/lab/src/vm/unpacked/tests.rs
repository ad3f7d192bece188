use super::*;

/// A kernel of two parts, the first with its entry and words to be relocated; its relocations are those of `list`.
pub(super) struct Made {
    entry: u64,
    /// Physical addresses and contents.
    parts: Vec<(u64, Vec<u8>)>,
    pub(super) list: Vec<i32>,
}

const LOWEST: u64 = 16 << 20;

impl Made {
    fn new() -> Self {
        let mut code = vec![0x90; 0x3000];
        code[0x100..0x104].copy_from_slice(&0x8100_2000u32.to_le_bytes());
        code[0x200..0x204].copy_from_slice(&0x10u32.to_le_bytes());
        code[0x300..0x308].copy_from_slice(&0xffff_ffff_8100_2000u64.to_le_bytes());
        let at = |offset: u64| (MAP + LOWEST + offset) as i32;
        Self {
            entry: LOWEST + 0x40,
            parts: vec![(LOWEST, code), (LOWEST + 0x20_0000, b"data of it".to_vec())],
            // As in the file: 64 bits first, and each group after a zero.
            list: vec![0, at(0x300), 0, at(0x200), 0, at(0x100)],
        }
    }

    /// The ELF file with the list behind it.
    pub(super) fn vmlinux(&self) -> Vec<u8> {
        let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let (mut table, mut contents) = (Vec::new(), Vec::new());
        let first = 64 + 56 * self.parts.len() as u64;
        for (at, bytes) in &self.parts {
            table.extend([1u32, 7].into_iter().flat_map(u32::to_le_bytes));
            let offset = first + contents.len() as u64;
            let len = bytes.len() as u64;
            table.extend(
                [offset, MAP.wrapping_add(*at), *at, len, len, 0x20_0000].into_iter().flat_map(u64::to_le_bytes),
            );
            contents.extend_from_slice(bytes);
        }
        header.extend([2u16, 62].into_iter().flat_map(u16::to_le_bytes));
        header.extend(1u32.to_le_bytes());
        // The section table is empty, at the end of the file.
        let sections = first + contents.len() as u64;
        header.extend([self.entry, 64, sections].into_iter().flat_map(u64::to_le_bytes));
        header.extend(0u32.to_le_bytes());
        let counts = [64u16, 56, self.parts.len() as u16, 64, 0, 0];
        header.extend(counts.into_iter().flat_map(u16::to_le_bytes));
        let list = self.list.iter().flat_map(|word| word.to_le_bytes());
        [header, table, contents].concat().into_iter().chain(list).collect()
    }

    /// One of a few KiB, as low in memory as a kernel may lie.
    pub(super) fn small() -> Self {
        const LOWER: u64 = LOWEST - (2 << 20);
        let mut made = Self::new();
        made.entry -= LOWER;
        made.parts.iter_mut().for_each(|(at, _)| *at -= LOWER);
        made.list.iter_mut().filter(|at| **at != 0).for_each(|at| *at -= LOWER as i32);
        made.parts[0].1.truncate(0x400);
        made.parts[1].0 = (2 << 20) + 0x1000;
        made
    }

    pub(super) fn image(&self) -> Vec<u8> {
        use std::io::Write as _;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&self.vmlinux()).unwrap();
        Self::around(&gzip.finish().unwrap())
    }

    /// A bzImage with this payload.
    pub(super) fn around(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        let mut put = |at: usize, word: u32| image[at..at + 4].copy_from_slice(&word.to_le_bytes());
        put(0x1f1, 1);
        put(ALIGNMENT, 2 << 20);
        put(INIT_SIZE, 64 << 20);
        put(0x248, 0);
        put(0x24c, payload.len() as u32);
        image.extend_from_slice(payload);
        image
    }

    fn unpacked(&self) -> Result<Unpacked, String> {
        Unpacked::of(&self.image())
    }
}

/// The bytes of an image at a physical address.
fn at(image: &[u8], address: u64, len: usize) -> &[u8] {
    let from = 1024 + (address - CODE) as usize;
    &image[from..from + len]
}

fn word_32(image: &[u8], address: u64) -> u32 {
    u32::from_le_bytes(at(image, address, 4).try_into().unwrap())
}

fn word_64(image: &[u8], address: u64) -> u64 {
    u64::from_le_bytes(at(image, address, 8).try_into().unwrap())
}

#[test]
fn a_kernel_lies_where_it_belongs_and_is_jumped_to() {
    let unpacked = Made::new().unpacked().unwrap();
    let image = unpacked.image(None);
    assert_eq!(at(&image, LOWEST + 0x20_0000, 10), b"data of it");
    assert_eq!(word_32(&image, LOWEST + 0x100), 0x8100_2000);
    assert_eq!(image[LOADFLAGS] & KASLR, 0);
    // The last instructions: mov eax, entry; jmp rax.
    let code = at(&image, CODE, 0x80);
    let jump = [&[0xb8][..], &(LOWEST as u32 + 0x40).to_le_bytes(), &[0xff, 0xe0]].concat();
    assert!(code.windows(jump.len()).any(|w| w == jump), "{code:02x?}");
    // The last page below 4 GiB is mapped to itself.
    assert_eq!(word_64(&image, TABLES + 0x5000 + 8 * 511), 0xffe0_0083);
    let sixteens = u32::from_le_bytes(image[SYSSIZE..SYSSIZE + 4].try_into().unwrap());
    assert_eq!(image.len(), 1024 + 16 * sixteens as usize);
    assert_eq!(unpacked.end(), CODE + (image.len() - 1024) as u64);
}

#[test]
fn a_moved_kernel_has_its_words_changed() {
    let unpacked = Made::new().unpacked().unwrap();
    // From 16 MiB on there is room for 64 MiB in every 2 MiB of the first GiB.
    assert_eq!(unpacked.distances.len(), 473);
    for (drawn, distance) in [(0, 0), (5, 10 << 20), (473 + 7, 14 << 20), (472, 944 << 20)] {
        let image = unpacked.image(Some(drawn));
        assert_eq!(image[LOADFLAGS] & KASLR, KASLR);
        assert_eq!(u64::from(word_32(&image, LOWEST + 0x100)), 0x8100_2000 + distance);
        assert_eq!(word_32(&image, LOWEST + 0x200), 0x10u32.wrapping_sub(distance as u32));
        assert_eq!(word_64(&image, LOWEST + 0x300), 0xffff_ffff_8100_2000 + distance);
        assert_eq!(at(&image, LOWEST + 0x20_0000, 10), b"data of it");
    }
}

#[test]
fn lists_without_words_to_be_subtracted_are_those_of_newer_kernels() {
    let mut made = Made::new();
    made.list.drain(3..5);
    let image = made.unpacked().unwrap().image(Some(1));
    assert_eq!(word_32(&image, LOWEST + 0x100), 0x8120_2000);
    assert_eq!(word_32(&image, LOWEST + 0x200), 0x10);
    assert_eq!(word_64(&image, LOWEST + 0x300), 0xffff_ffff_8120_2000);
}

#[test]
fn a_kernel_that_cannot_be_moved_is_not() {
    let mut made = Made::new();
    made.list.clear();
    let unpacked = made.unpacked().unwrap();
    assert!(unpacked.image(Some(5)) == unpacked.image(None));
}

#[test]
fn the_entry_may_be_in_any_part() {
    let mut made = Made::new();
    made.entry = LOWEST + 0x20_0000;
    let jump = [&[0xb8][..], &(made.entry as u32).to_le_bytes(), &[0xff, 0xe0]].concat();
    assert!(made.unpacked().unwrap().memory.windows(jump.len()).any(|bytes| bytes == jump));
}

#[test]
fn what_is_not_understood_unpacks_itself() {
    let why = |change: &dyn Fn(&mut Made)| {
        let mut made = Made::new();
        change(&mut made);
        made.unpacked().err().expect("refused")
    };
    assert!(why(&|made| made.entry = LOWEST + 0x30_0000).contains("entry"));
    assert!(why(&|made| made.parts[0].0 = 1 << 20).contains("first two MiB"));
    assert!(why(&|made| made.parts[1].0 = 1 << 40).contains("1 GiB"));
    assert!(why(&|made| made.parts[1].0 = 1 << 29).contains("too far apart"));
    assert!(why(&|made| made.list.insert(1, i32::MIN)).contains("outside"));
    assert!(why(&|made| made.list.truncate(2)).contains("groups"));
    assert!(why(&|made| made.list.insert(2, 0)).contains("groups"));
    assert!(Unpacked::of(b"no kernel").is_err());
}
