//! Repeated string instructions that move memory (`rep movs`, `rep stos`) and what they cost.
//!
//! Under `-icount` QEMU executes each iteration as an instruction of its own, and one more when the count has reached zero. A processor moves whole
//! blocks instead: such an instruction costs it a start, and then its bytes. `rep cmps`, `scas` and `lods` stay one instruction for an iteration:
//! processors take one to three cycles for it (Agner Fog, "Instruction tables").
//!
//! Invariant: the cost depends on what the guest executes alone, never on the host or on when QEMU leaves translated code.

use crate::Weights;

/// A repeated move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Whether it reads what it writes (`movs`) instead of writing RAX (`stos`).
    pub copies: bool,
    /// Whether its count is ECX, by an address-size prefix, and not RCX. In 32-bit code RCX's upper half is zero.
    pub short_count: bool,
}

impl Move {
    /// The move that the instruction with these bytes is, if it is one.
    pub fn of(instruction: &[u8]) -> Option<Self> {
        let (mut repeated, mut short_count) = (false, false);
        for byte in instruction {
            match byte {
                0xf2 | 0xf3 => repeated = true,
                0x67 => short_count = true,
                // Operand size, segments, REX.
                0x66 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x40..=0x4f => {}
                0xa4 | 0xa5 => return repeated.then_some(Self { copies: true, short_count }),
                0xaa | 0xab => return repeated.then_some(Self { copies: false, short_count }),
                _ => return None,
            }
        }
        None
    }

    /// As a number, and back.
    pub fn number(self) -> usize {
        usize::from(self.copies) | usize::from(self.short_count) << 1
    }

    pub fn from_number(number: usize) -> Self {
        Self { copies: number & 1 != 0, short_count: number & 2 != 0 }
    }
}

/// Totals since the machine was switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub moves: u64,
    pub iterations: u64,
    pub bytes: u64,
}

/// Decides what each iteration costs.
pub struct Meter {
    weights: Weights,
    /// Bytes moved since the last move ended, and cycles charged for them. A move that is interrupted shares them with those of the interrupt's handler.
    bytes: u64,
    charged: u64,
    pub totals: Totals,
}

impl Meter {
    pub const fn new(weights: Weights) -> Self {
        Self { weights, bytes: 0, charged: 0, totals: Totals { moves: 0, iterations: 0, bytes: 0 } }
    }

    /// The cycles of an iteration that moved `size` bytes. `last` says that only the execution with a count of zero follows, which costs a cycle by
    /// itself. Cycles for bytes are charged as these move, so that the guest's timers are not late after a long move, and the start at the end.
    pub fn iteration(&mut self, size: u64, last: bool) -> u64 {
        self.count(1, size);
        let due = match last {
            true => self.weights.cycles(self.bytes).saturating_sub(1),
            false => self.bytes / self.weights.bytes_per_cycle,
        };
        let cycles = due.saturating_sub(self.charged);
        self.charged += cycles;
        if last {
            self.totals.moves += 1;
            (self.bytes, self.charged) = (0, 0);
        }
        cycles
    }

    /// The cycles of the next `count` iterations of `size` bytes each, none of them the last, if they are at most `most`.
    pub fn iterations(&mut self, count: u64, size: u64, most: u64) -> Option<u64> {
        let due = (self.bytes + count * size) / self.weights.bytes_per_cycle;
        let cycles = due.saturating_sub(self.charged);
        if cycles > most {
            return None;
        }
        self.count(count, size);
        self.charged += cycles;
        Some(cycles)
    }

    fn count(&mut self, iterations: u64, size: u64) {
        self.totals.iterations += iterations;
        self.totals.bytes += iterations * size;
        self.bytes += iterations * size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_told_from_other_instructions() {
        let (copy, fill) = (Move { copies: true, short_count: false }, Move { copies: false, short_count: false });
        assert_eq!(Move::of(&[0xf3, 0xa4]), Some(copy));
        assert_eq!(Move::of(&[0xf3, 0x48, 0xab]), Some(fill));
        assert_eq!(Move::of(&[0x67, 0xf3, 0x48, 0xa5]), Some(Move { short_count: true, ..copy }));
        // movsb alone, pause, rep ret, repe cmpsb, repne scasb, rep outsb, endbr64, movss.
        for other in [&[0xa4][..], &[0xf3, 0x90], &[0xf3, 0xc3], &[0xf3, 0xa6], &[0xf2, 0xae], &[0xf3, 0x6e]] {
            assert_eq!(Move::of(other), None, "{other:x?}");
        }
        assert_eq!(Move::of(&[0xf3, 0x0f, 0x1e, 0xfa]), None);
        assert_eq!(Move::of(&[0xf3, 0x0f, 0x10, 0xa4, 0x24]), None);
        for number in 0..4 {
            assert_eq!(Move::from_number(number).number(), number);
        }
    }

    /// Cycles of a move with the execution that ends it, and the most for one iteration but the last.
    fn cost(weights: Weights, size: u64, count: u64) -> (u64, u64) {
        let mut meter = Meter::new(weights);
        let before: Vec<u64> = (1..count).map(|_| meter.iteration(size, false)).collect();
        let last = meter.iteration(size, true);
        assert_eq!(meter.totals, Totals { moves: 1, iterations: count, bytes: size * count });
        (before.iter().sum::<u64>() + last + 1, before.into_iter().max().unwrap_or(0))
    }

    #[test]
    fn a_move_costs_its_bytes_however_many_each_iteration_moves() {
        for weights in Weights::ALL {
            for bytes in [8, 64, 128, 136, 4096, 1 << 20] {
                let (cycles, most) = cost(weights, 1, bytes);
                assert_eq!(cycles, weights.cycles(bytes));
                assert!(most <= 1, "timers would be late");
                assert_eq!(cost(weights, 8, bytes / 8).0, weights.cycles(bytes));
            }
        }
        assert_eq!(cost(Weights::ROME, 1, 4096).0, 151);
        assert_eq!(cost(Weights::ICE_LAKE, 1, 4096).0, 99);
    }

    #[test]
    fn an_interrupted_move_is_charged_for_its_bytes_once() {
        let mut meter = Meter::new(Weights::ROME);
        let whole: u64 = (0..1000).map(|_| meter.iteration(1, false)).sum();
        let handler = meter.iteration(8, true);
        let rest: u64 = (0..999).map(|_| meter.iteration(1, false)).sum::<u64>() + meter.iteration(1, true);
        let cycles = whole + handler + rest + 2;
        assert_eq!(cycles, Weights::ROME.cycles(1008) + Weights::ROME.cycles(1000));
    }

    #[test]
    fn iterations_at_once_cost_what_they_cost_one_by_one() {
        let (mut whole, mut single) = (Meter::new(Weights::ROME), Meter::new(Weights::ROME));
        for count in [1, 3, 31, 7, 500, 12, 4000] {
            let one_by_one: u64 = (0..count).map(|_| single.iteration(8, false)).sum();
            assert_eq!(
                whole.iterations(count, 8, one_by_one - u64::from(one_by_one > 0)),
                (one_by_one == 0).then_some(0)
            );
            if one_by_one > 0 {
                assert_eq!(whole.iterations(count, 8, one_by_one), Some(one_by_one));
            }
        }
        assert_eq!(whole.iteration(8, true), single.iteration(8, true));
        assert_eq!(whole.totals, single.totals);
    }
}
