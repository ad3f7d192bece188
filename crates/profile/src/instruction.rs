//! What the model has to know of an instruction: how it ends a block, and whether its cost is not in the pipeline's.
//!
//! Encodings are those of the "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2, in 64-bit mode.

use crate::events::Event;

/// How a block of instructions ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// At a limit of QEMU's, or by an instruction of another kind.
    #[default]
    Other,
    /// By an iteration of a repeated string instruction, to its next one or to the next instruction.
    Repeated,
    /// A jump to a fixed place, which is always predicted.
    Jump,
    /// A conditional jump to that place.
    Branch(u64),
    IndirectJump,
    Call,
    IndirectCall,
    Return,
    /// `mov` to CR3, and to another control register.
    Cr3,
    Control,
    /// `invlpg` of the address in that register, by its number.
    Invalidate(u8),
}

impl End {
    /// Whether pages are invalidated, which has to be known also while a core is not modelled.
    pub(crate) fn invalidates(self) -> bool {
        matches!(self, End::Cr3 | End::Control | End::Invalidate(_))
    }
}

/// An instruction as the model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) end: End,
    pub(crate) event: Option<Event>,
    /// What it is if it only moves a word between memory and a register, or a constant to memory.
    pub(crate) word: Option<Word>,
}

/// A move of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Load,
    Store,
}

/// Whether an instruction is `cmpxchg8b` or `cmpxchg16b`.
pub(crate) fn is_wide_exchange(instruction: &[u8]) -> bool {
    let is_prefix =
        |b: &u8| matches!(b, 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x40..=0x4f);
    let prefixes = instruction.iter().take_while(|b| is_prefix(b)).count();
    matches!(instruction[prefixes..], [0x0f, 0xc7, operands, ..] if operands >> 3 & 7 == 1 && operands >> 6 != 3)
}

/// Decodes the instruction with these bytes, whose next one begins at `next`.
pub(crate) fn see(bytes: &[u8], next: u64) -> Seen {
    let (mut locked, mut repeated, mut repeats, mut extended) = (false, false, false, 0);
    let mut rest = bytes;
    while let [first, others @ ..] = rest {
        match first {
            0xf0 => locked = true,
            0xf3 => repeated = true,
            0xf2 => repeats = true,
            0x66 | 0x67 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 => {}
            0x40..=0x4f => extended = *first,
            _ => break,
        }
        rest = others;
    }
    let byte = |n: usize| rest.get(n).copied().unwrap_or(0);
    let (opcode, modrm) = (byte(0), byte(1));
    let in_memory = modrm < 0xc0;
    let operation = modrm >> 3 & 7;
    let near = |at: usize| next.wrapping_add_signed(i64::from(byte(at) as i8));
    let far = |at: usize| {
        let offset = rest.get(at..at + 4).map_or(0, |b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        next.wrapping_add_signed(i64::from(offset))
    };
    let end = match opcode {
        0x70..=0x7f | 0xe0..=0xe3 => End::Branch(near(1)),
        0x0f if matches!(modrm, 0x80..=0x8f) => End::Branch(far(2)),
        0xa4..=0xa7 | 0xaa..=0xaf if repeated || repeats => End::Repeated,
        0xe9 | 0xeb => End::Jump,
        0xe8 => End::Call,
        0xff if operation == 2 => End::IndirectCall,
        0xff if operation == 4 => End::IndirectJump,
        0xc2 | 0xc3 => End::Return,
        0x0f if modrm == 0x22 => {
            if byte(2) >> 3 & 7 == 3 {
                End::Cr3
            } else {
                End::Control
            }
        }
        // Only a plain register addresses in 64-bit kernels.
        0x0f if modrm == 0x01 && byte(2) < 0x40 && byte(2) >> 3 & 7 == 7 => {
            End::Invalidate((byte(2) & 7) | (extended & 1) << 3)
        }
        0x0f if modrm == 0x38 && byte(2) == 0x82 => End::Control,
        _ => End::Other,
    };
    let event = match (opcode, modrm, byte(2)) {
        (0x0f, 0x22, _) => Some(if end == End::Cr3 { Event::Cr3Write } else { Event::ControlWrite }),
        (0x0f, 0x30, _) => Some(Event::WriteMsr),
        (0x0f, 0x32, _) => Some(Event::ReadMsr),
        (0x0f, 0x38, 0x82) => Some(Event::InvalidatePage),
        (0x0f, 0x01, 0xf8) => Some(Event::Swapgs),
        (0x0f, 0x01, 0xf9) | (0x0f, 0x31, _) => Some(Event::ReadTsc),
        (0x0f, 0x01, 0xca | 0xcb) => Some(Event::UserAccess),
        (0x0f, 0x01, _) if matches!(end, End::Invalidate(_)) => Some(Event::InvalidatePage),
        (0x0f, 0xae, 0xe8 | 0xf0) => Some(Event::Fence),
        (0x0f, 0x05, _) => Some(Event::Syscall),
        (0x0f, 0x07, _) => Some(Event::Sysret),
        (0x0f, 0xa2, _) => Some(Event::Cpuid),
        (0xcf, _, _) => Some(Event::InterruptReturn),
        (0x90, _, _) if repeated => Some(Event::Pause),
        (0x9d, _, _) => Some(Event::SetFlags),
        // `xchg` with memory locks without the prefix.
        (0x86 | 0x87, _, _) if in_memory => Some(Event::Locked),
        (0xf6 | 0xf7, _, _) if operation >= 6 => Some(Event::Divide),
        _ if locked => Some(Event::Locked),
        _ => None,
    };
    // Moves of vector registers, and past the caches, have their memory operand in the third byte.
    let word = match (opcode, modrm) {
        (0x88 | 0x89, _) if in_memory => Some(Word::Store),
        (0x8a | 0x8b, _) if in_memory => Some(Word::Load),
        (0xc6 | 0xc7, _) if in_memory && operation == 0 => Some(Word::Store),
        (0x0f, 0x10 | 0x28 | 0x6f) if byte(2) < 0xc0 => Some(Word::Load),
        (0x0f, 0x11 | 0x29 | 0x2b | 0x7f | 0xc3 | 0xe7) if byte(2) < 0xc0 => Some(Word::Store),
        _ => None,
    };
    Seen { end, event, word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_exchanges_are_told_from_other_instructions() {
        // cmpxchg16b %gs:(%rsi), lock cmpxchg8b (%rdi).
        assert!(is_wide_exchange(&[0x65, 0x48, 0x0f, 0xc7, 0x0e]) && is_wide_exchange(&[0xf0, 0x0f, 0xc7, 0x0f]));
        // rdrand %rax, xsavec (%rdi), cmpxchg %rcx,(%rdi), nothing.
        for other in [&[0x48, 0x0f, 0xc7, 0xf0][..], &[0x0f, 0xc7, 0x27], &[0x48, 0x0f, 0xb1, 0x0f], &[0x48]] {
            assert!(!is_wide_exchange(other), "{other:x?}");
        }
    }

    #[test]
    fn ends_of_blocks_are_known() {
        let end = |bytes: &[u8]| see(bytes, 0x1000).end;
        assert_eq!(end(&[0x74, 0xfe]), End::Branch(0xffe));
        assert_eq!(end(&[0x2e, 0x0f, 0x85, 0x10, 0, 0, 0]), End::Branch(0x1010));
        assert_eq!([end(&[0xe9, 0, 0, 0, 0]), end(&[0xeb, 5])], [End::Jump; 2]);
        assert_eq!(
            [end(&[0xe8, 0, 0, 0, 0]), end(&[0xff, 0xd0]), end(&[0x41, 0xff, 0xe3])],
            [End::Call, End::IndirectCall, End::IndirectJump]
        );
        assert_eq!([end(&[0xc3]), end(&[0xf3, 0xc3]), end(&[0xc2, 8, 0])], [End::Return; 3]);
        assert_eq!([end(&[0x0f, 0x22, 0xd8]), end(&[0x0f, 0x22, 0xe0])], [End::Cr3, End::Control]);
        assert_eq!(
            [end(&[0x0f, 0x01, 0x3f]), end(&[0x41, 0x0f, 0x01, 0x3c, 0x24])],
            [End::Invalidate(7), End::Invalidate(12)]
        );
        // mov, inc, push of memory, swapgs, lgdt.
        for other in [&[0x48, 0x89, 0xc8][..], &[0xff, 0xc0], &[0xff, 0x30], &[0x0f, 0x01, 0xf8], &[0x0f, 0x01, 0x10]] {
            assert_eq!(end(other), End::Other, "{other:x?}");
        }
    }

    #[test]
    fn moves_of_words_are_known() {
        let word = |bytes: &[u8]| see(bytes, 0).word;
        // mov to memory, a constant to memory, movups, movnti.
        for bytes in [
            &[0x48, 0x89, 0x47, 0x08][..],
            &[0x48, 0xc7, 0x07, 0, 0, 0, 0],
            &[0x0f, 0x11, 0x07],
            &[0x4c, 0x0f, 0xc3, 0x07],
        ] {
            assert_eq!(word(bytes), Some(Word::Store), "{bytes:x?}");
        }
        // mov from memory, movdqa.
        for bytes in [&[0x4c, 0x8b, 0x06][..], &[0x66, 0x0f, 0x6f, 0x06]] {
            assert_eq!(word(bytes), Some(Word::Load), "{bytes:x?}");
        }
        // mov of registers, add to memory, lea, movzx from memory, movaps of registers, a jump.
        for bytes in [
            &[0x48, 0x89, 0xc8][..],
            &[0x48, 0x01, 0x07],
            &[0x48, 0x8d, 0x76, 0x40],
            &[0x0f, 0xb6, 0x06],
            &[0x0f, 0x28, 0xc1],
            &[0x75, 0x10],
        ] {
            assert_eq!(word(bytes), None, "{bytes:x?}");
        }
    }

    #[test]
    fn instructions_with_a_cost_of_their_own_are_known() {
        let event = |bytes: &[u8]| see(bytes, 0).event;
        for (bytes, is) in [
            (&[0x0f, 0x22, 0xdf][..], Event::Cr3Write),
            (&[0x0f, 0x22, 0xe0], Event::ControlWrite),
            (&[0x0f, 0x30], Event::WriteMsr),
            (&[0x0f, 0x32], Event::ReadMsr),
            (&[0x0f, 0x01, 0x38], Event::InvalidatePage),
            (&[0x66, 0x0f, 0x38, 0x82, 0x04, 0x24], Event::InvalidatePage),
            (&[0x0f, 0xae, 0xe8], Event::Fence),
            (&[0x0f, 0xae, 0xf0], Event::Fence),
            (&[0x0f, 0x05], Event::Syscall),
            (&[0x48, 0x0f, 0x07], Event::Sysret),
            (&[0x48, 0xcf], Event::InterruptReturn),
            (&[0x0f, 0x01, 0xf8], Event::Swapgs),
            (&[0xf0, 0x48, 0x0f, 0xc1, 0x07], Event::Locked),
            (&[0xf0, 0xff, 0x07], Event::Locked),
            (&[0x87, 0x07], Event::Locked),
            (&[0x48, 0xf7, 0xf1], Event::Divide),
            (&[0x0f, 0xa2], Event::Cpuid),
            (&[0xf3, 0x90], Event::Pause),
            (&[0x0f, 0x01, 0xf9], Event::ReadTsc),
            (&[0x0f, 0x01, 0xcb], Event::UserAccess),
            (&[0x9d], Event::SetFlags),
        ] {
            assert_eq!(event(bytes), Some(is), "{bytes:x?}");
        }
        // nop, xchg of registers, mul, not, clflush of memory, fxsave, endbr64.
        for none in [
            &[0x90][..],
            &[0x87, 0xc1],
            &[0xf7, 0xe1],
            &[0xf7, 0xd0],
            &[0x0f, 0xae, 0x38],
            &[0x0f, 0xae, 0x07],
            &[0xf3, 0x0f, 0x1e, 0xfa],
        ] {
            assert_eq!(event(none), None, "{none:x?}");
        }
    }
}
