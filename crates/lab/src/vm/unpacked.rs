//! A kernel that is unpacked on the host. Under the exact clock every instruction of a guest is emulated, and to unpack itself takes a kernel a
//! quarter of its boot.
//!
//! What the kernel's decompressor does (arch/x86/boot/compressed/misc.c) is done here: the parts of `vmlinux` go where they belong in memory, and
//! the kernel's virtual address is drawn and its relocations are applied. The result is a bzImage with the kernel's own real-mode code, whose
//! protected-mode part is 60 bytes that switch to long mode and jump to the kernel.
//!
//! Invariant: what is not understood is an error, and such a kernel unpacks itself. The physical address is not drawn: it is the lowest that
//! the kernel's decompressor would choose.

use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use bigiron_archive::payload;

/// Where QEMU puts the protected-mode part, as boot loaders do (the boot protocol's `code32_start`).
const CODE: u64 = 1 << 20;
/// Pointer to the descriptors, the descriptors, and six pages of page tables behind the code.
const POINTER: u64 = CODE + 0xf0;
const DESCRIPTORS: u64 = CODE + 0x100;
const TABLES: u64 = CODE + 0x1_0000;
/// End of what is ours: kernels lie behind it.
const OURS: u64 = TABLES + 6 * 0x1000;

/// Virtual address of physical address 0 in a kernel that was not moved (`__START_KERNEL_map`).
const MAP: u64 = 0xffff_ffff_8000_0000;
/// Virtual addresses that a kernel may be moved within (`KERNEL_IMAGE_SIZE`).
const SPACE: u64 = 1 << 30;

/// Memory of a kernel on top of the bytes of its file: far more than lies before its first part and between its parts.
const GAPS: u64 = 64 << 20;

/// Fields of the setup header.
const LOADFLAGS: usize = 0x211;
const SYSSIZE: usize = 0x1f4;
const ALIGNMENT: usize = 0x230;
const INIT_SIZE: usize = 0x260;
/// In `loadflags`: the kernel was moved, and draws the places of its other regions too.
const KASLR: u8 = 1 << 1;

/// A kernel in the order of memory.
pub struct Unpacked {
    /// The real-mode part of its bzImage.
    setup: Vec<u8>,
    /// Memory from [`CODE`] on.
    memory: Vec<u8>,
    /// What is to be changed when it is moved.
    relocations: Relocations,
    /// Distances that it may be moved by.
    distances: Vec<u64>,
}

/// Places in [`Unpacked::memory`] of words to which a kernel's distance is added, or from which it is subtracted.
#[derive(Default)]
struct Relocations {
    add_32: Vec<usize>,
    subtract_32: Vec<usize>,
    add_64: Vec<usize>,
}

impl Unpacked {
    /// The kernel in the bzImage `image`.
    ///
    /// # Errors
    /// Why it has to unpack itself.
    pub fn of(image: &[u8]) -> Result<Self, String> {
        let kernel = payload::unpack(image)?;
        let setup = payload::setup_len(image).and_then(|len| image.get(..len)).ok_or("it has no setup")?.to_vec();
        let no_elf = |e: object::Error| format!("its payload is not an ELF file: {e}");
        let header = FileHeader64::<Endianness>::parse(&*kernel).map_err(no_elf)?;
        let endian = header.endian().map_err(no_elf)?;
        let entry = header.e_entry(endian);
        let mut memory = Vec::new();
        let mut has_entry = false;
        let mut lowest = u64::MAX;
        for part in header.program_headers(endian, &*kernel).map_err(no_elf)? {
            if part.p_type(endian) != PT_LOAD {
                continue;
            }
            let at = part.p_paddr(endian);
            let bytes = part.data(endian, &*kernel).map_err(|()| "a part of it is cut short")?;
            let from = at.checked_sub(CODE).filter(|_| at >= OURS).ok_or("it lies in the first two MiB")?;
            let to = from.checked_add(bytes.len() as u64).filter(|to| *to <= SPACE).ok_or("it is larger than 1 GiB")?;
            if to > kernel.len() as u64 + GAPS {
                return Err("its segments lie too far apart".to_owned());
            }
            if memory.len() < to as usize {
                memory.resize(to as usize, 0);
            }
            memory[from as usize..to as usize].copy_from_slice(bytes);
            lowest = lowest.min(at);
            // Up to Linux 6.17 the entry point is in the first segment; later it follows the data, in memory that is freed after boot.
            has_entry |= (at..CODE + to).contains(&entry);
        }
        if !has_entry {
            return Err("its entry point is outside its load segments".to_owned());
        }
        let sections = u64::from(header.e_shnum(endian)) * u64::from(header.e_shentsize(endian));
        let shdr_end = header.e_shoff(endian).saturating_add(sections);
        let list = kernel.get(shdr_end as usize..).filter(|_| shdr_end > 0).ok_or("it has no section headers")?;
        let relocations = Relocations::parse(list, memory.len())?;
        let word = |at: usize| setup.get(at..at + 4).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes")));
        let (alignment, size) = word(ALIGNMENT).zip(word(INIT_SIZE)).ok_or("its header is cut short")?;
        let distances = match relocations.add_32.is_empty() {
            true => Vec::new(),
            false => distances(lowest, u64::from(size), u64::from(alignment)),
        };
        put_code(&mut memory, u32::try_from(entry).map_err(|_| "its entry lies above 4 GiB")?);
        let used = memory.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let end = used.max(relocations.end());
        // In units of 16 bytes. Memory is zero when a machine starts.
        memory.resize(end.next_multiple_of(16), 0);
        Ok(Self { setup, memory, relocations, distances })
    }

    /// Bytes from the start of memory to the end of the kernel's file.
    pub fn end(&self) -> u64 {
        CODE + self.memory.len() as u64
    }

    /// A bzImage, its kernel moved as a number that was drawn says; not moved, and none of its regions, without one.
    pub fn image(&self, drawn: Option<u64>) -> Vec<u8> {
        let mut image = Vec::with_capacity(self.setup.len() + self.memory.len());
        image.extend_from_slice(&self.setup);
        image[SYSSIZE..SYSSIZE + 4].copy_from_slice(&(self.memory.len() as u32 / 16).to_le_bytes());
        image.extend_from_slice(&self.memory);
        let drawn = drawn.filter(|_| !self.distances.is_empty());
        image[LOADFLAGS] &= !KASLR;
        if let Some(drawn) = drawn {
            image[LOADFLAGS] |= KASLR;
            let distance = self.distances[(drawn % self.distances.len() as u64) as usize];
            self.relocations.apply(&mut image[self.setup.len()..], distance);
        }
        image
    }
}

/// The distances by which a kernel of `size` bytes at `lowest` may be moved.
fn distances(lowest: u64, size: u64, alignment: u64) -> Vec<u64> {
    // A kernel maps itself in units of 2 MiB.
    let step = alignment.max(2 << 20);
    let room = SPACE.saturating_sub(lowest + size);
    (0..=room / step).map(|n| n * step).collect()
}

impl Relocations {
    /// Reads arch/x86/tools/relocs' list from its end: words of 32 bits, sign-extended virtual addresses, in groups with a zero before each. The groups
    /// are, from the end: 32 bits, 32 bits to be subtracted (up to Linux 6.14), 64 bits.
    fn parse(list: &[u8], len: usize) -> Result<Self, String> {
        let words: Vec<i32> =
            list.rchunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().expect("four bytes"))).collect();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut rest = &words[..];
        while let Some(end) = rest.iter().position(|word| *word == 0) {
            let places = rest[..end].iter().map(|word| place(*word, len)).collect::<Option<_>>();
            groups.push(places.ok_or("a relocation lies outside of it")?);
            rest = &rest[end + 1..];
        }
        let groups: [Vec<usize>; 3] = match (rest, groups.len()) {
            ([], 0) => Default::default(),
            ([], 2) => {
                let [add_32, add_64] = groups.try_into().expect("two groups");
                [add_32, Vec::new(), add_64]
            }
            ([], 3) => groups.try_into().expect("three groups"),
            (rest, n) => return Err(format!("its relocations are in {n} groups, with {} words more", rest.len())),
        };
        let [add_32, subtract_32, add_64] = groups;
        Ok(Self { add_32, subtract_32, add_64 })
    }

    /// End of the last word that is changed.
    fn end(&self) -> usize {
        [&self.add_32, &self.subtract_32, &self.add_64].into_iter().flatten().max().map_or(0, |last| last + 8)
    }

    fn apply(&self, memory: &mut [u8], distance: u64) {
        for &at in &self.add_32 {
            change(memory, at, |word: u32| word.wrapping_add(distance as u32));
        }
        for &at in &self.subtract_32 {
            change(memory, at, |word: u32| word.wrapping_sub(distance as u32));
        }
        for &at in &self.add_64 {
            let field: &mut [u8; 8] = (&mut memory[at..at + 8]).try_into().expect("eight bytes");
            *field = u64::from_le_bytes(*field).wrapping_add(distance).to_le_bytes();
        }
    }
}

fn change(memory: &mut [u8], at: usize, by: impl Fn(u32) -> u32) {
    let field: &mut [u8; 4] = (&mut memory[at..at + 4]).try_into().expect("four bytes");
    *field = by(u32::from_le_bytes(*field)).to_le_bytes();
}

/// Place of the word at a virtual address in the memory from [`CODE`] on, if eight bytes of it are there.
fn place(address: i32, len: usize) -> Option<usize> {
    let at = (i64::from(address) as u64).checked_sub(MAP)?.checked_sub(CODE)? as usize;
    (at.checked_add(8)? <= len).then_some(at)
}

/// Lays down what switches to long mode, with the first 4 GiB mapped to themselves, and jumps to `entry`. A processor comes here in protected mode,
/// with flat segments and the boot parameters' address in ESI, which the kernel wants in RSI.
fn put_code(memory: &mut [u8], entry: u32) {
    let mut code = Vec::new();
    let word = |value: u64| (value as u32).to_le_bytes();
    code.extend([&[0x0f, 0x01, 0x15][..], &word(POINTER)].concat()); // lgdt [POINTER]
    code.extend([0x0f, 0x20, 0xe0, 0x83, 0xc8, 0x20, 0x0f, 0x22, 0xe0]); // cr4 |= PAE
    code.extend([&[0xb8][..], &word(TABLES), &[0x0f, 0x22, 0xd8]].concat()); // cr3 = TABLES
    code.extend([0xb9, 0x80, 0x00, 0x00, 0xc0, 0x0f, 0x32]); // rdmsr of EFER
    code.extend([0x0d, 0x00, 0x01, 0x00, 0x00, 0x0f, 0x30]); // EFER |= LME
    code.extend([0x0f, 0x20, 0xc0, 0x0d, 0x01, 0x00, 0x00, 0x80, 0x0f, 0x22, 0xc0]); // cr0 |= PG | PE
    let next = CODE + code.len() as u64 + 7;
    code.extend([&[0xea][..], &word(next), &[0x10, 0x00]].concat()); // ljmp 0x10:next
    code.extend([0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0]); // ds = es = ss = 0
    code.extend([0x89, 0xf6]); // mov esi, esi: clears the upper half
    code.extend([&[0xb8][..], &entry.to_le_bytes(), &[0xff, 0xe0]].concat()); // jmp entry
    let mut put = |at: u64, bytes: &[u8]| {
        let at = (at - CODE) as usize;
        memory[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(CODE, &code);
    put(POINTER, &[&31u16.to_le_bytes()[..], &word(DESCRIPTORS)].concat());
    // 64-bit code and data at the selectors that kernels use.
    for (n, descriptor) in [0, 0, 0x00af_9a00_0000_ffff_u64, 0x00cf_9200_0000_ffff].into_iter().enumerate() {
        put(DESCRIPTORS + 8 * n as u64, &descriptor.to_le_bytes());
    }
    // Present and writable; the last level has pages of 2 MiB.
    put(TABLES, &((TABLES + 0x1000) | 0x3).to_le_bytes());
    for gib in 0..4 {
        put(TABLES + 0x1000 + 8 * gib, &((TABLES + 0x2000 + 0x1000 * gib) | 0x3).to_le_bytes());
        for page in 0..512 {
            put(TABLES + 0x2000 + 0x1000 * gib + 8 * page, &((gib << 30) | (page << 21) | 0x83).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
