//! The counter by which QEMU keeps virtual time under `-icount`: the half-word in the CPU state from which each block first takes its number of
//! instructions. Time is what has been taken from it, so adding to it gives time back, and taking from it lets time pass.
//!
//! The counter lies just below the part of the state at which a register of translated code points, in every QEMU since 5.0, but not always as far. So
//! it is searched: it is the one half-word that falls by the number of instructions of each block.
//!
//! Invariant: the counter never rises above what it was before the block that is executing now, and never falls below zero.

/// Half-words below the CPU state that are looked at.
pub const WINDOW: usize = 64;

/// Blocks that are looked at; firmware executes several hundred thousand.
pub const BLOCKS: u32 = 20_000;

/// Finds the counter.
pub struct Search {
    last: [u16; WINDOW],
    fits: [u32; WINDOW],
    blocks: u32,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// More blocks are needed.
    NotYet,
    /// The counter is this many bytes below the CPU state.
    Below(usize),
    /// No half-word, or more than one, falls as the counter does.
    Nothing,
}

impl Search {
    pub const fn new() -> Self {
        Self { last: [0; WINDOW], fits: [0; WINDOW], blocks: 0 }
    }

    /// Looks at the half-words below the CPU state, the highest last, after a block with that many instructions has taken them.
    pub fn block(&mut self, now: &[u16; WINDOW], instructions: u16) -> Found {
        for ((last, now), fits) in self.last.iter_mut().zip(now).zip(&mut self.fits) {
            *fits += u32::from(last.wrapping_sub(*now) == instructions);
            *last = *now;
        }
        self.blocks += 1;
        if self.blocks < BLOCKS {
            return Found::NotYet;
        }
        // All but those after which it was refilled, and those that QEMU takes for longer than they are.
        let mut counters = (0..WINDOW).filter(|n| self.fits[*n] >= BLOCKS / 100 * 98);
        let others = self.fits.iter().filter(|fits| **fits >= BLOCKS / 4).count();
        match (counters.next(), others) {
            (Some(n), 1) => Found::Below((WINDOW - n) * size_of::<u16>()),
            _ => Found::Nothing,
        }
    }
}

/// What is still to be charged because the counter was too low.
#[derive(Default)]
pub struct Debt(u64);

impl Debt {
    pub const fn none() -> Self {
        Self(0)
    }

    /// The counter after an iteration, for which the block has taken one, if it costs `cycles` instead.
    pub fn charge(&mut self, counter: u16, cycles: u64) -> u16 {
        let due = self.0 + cycles;
        if due == 0 {
            return counter.saturating_add(1);
        }
        let due = due - 1;
        let taken = due.min(u64::from(counter));
        self.0 = due - taken;
        counter - taken as u16
    }

    pub fn is_paid(&self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(state: impl Fn(u32, u16) -> [u16; WINDOW]) -> Found {
        let mut search = Search::new();
        let mut total = 0_u16;
        for n in 0..BLOCKS {
            let instructions = (n % 7 + 1) as u16;
            total = total.wrapping_add(instructions);
            match search.block(&state(n, total), instructions) {
                Found::NotYet => {}
                found => return found,
            }
        }
        panic!("endless")
    }

    #[test]
    fn the_counter_is_found_among_others() {
        let one = |n: u32, total: u16| {
            let mut state = [0; WINDOW];
            state[3] = n as u16;
            state[5] = total;
            state[WINDOW - 8] = 1000_u16.wrapping_sub(total);
            state
        };
        assert_eq!(search(one), Found::Below(16));
        let two = |n: u32, total: u16| {
            let mut state = one(n, total);
            state[7] = 7_u16.wrapping_sub(total);
            state
        };
        assert_eq!(search(two), Found::Nothing);
        assert_eq!(search(|_, _| [0; WINDOW]), Found::Nothing);
    }

    #[test]
    fn the_counter_is_given_back_one_and_charged_the_cost() {
        let mut debt = Debt::none();
        assert_eq!(debt.charge(99, 0), 100);
        assert_eq!(debt.charge(99, 1), 99);
        assert_eq!(debt.charge(99, 15), 85);
        // Ten more than there are: the following iterations do not get theirs back.
        assert_eq!(debt.charge(10, 21), 0);
        assert_eq!((0..12).fold(500, |counter, _| debt.charge(counter, 0)), 502);
        assert_eq!(debt.charge(0, 30), 0);
        assert!(!debt.is_paid());
        assert_eq!(debt.charge(100, 5), 67);
        assert!(debt.is_paid());
    }
}
