//! What a core predicts: conditional branches by their history (gshare: McFarling, "Combining branch predictors", DEC WRL TN-36), indirect jumps by
//! their last target, returns by a stack of calls.
//!
//! Processors predict better than gshare does; that is why a misprediction is one for the model alone. A return that goes elsewhere than its call
//! would have it is one for every processor: retpolines and the kernel's safe return do this on purpose.

use crate::geometry::RETURNS;
use crate::kernel::zeroed;

/// Counters of branches, and targets of jumps.
const BRANCHES: usize = 16 << 10;
const JUMPS: usize = 2 << 10;

pub(crate) struct Predictor {
    /// Two bits each, from "strongly not taken" to "strongly taken".
    branches: &'static mut [u8],
    history: usize,
    jumps: &'static mut [u64],
    returns: [u64; RETURNS],
    top: usize,
}

impl Predictor {
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: zeros are numbers.
        let (branches, jumps) = unsafe { (zeroed::<u8>(BRANCHES)?, zeroed::<u64>(JUMPS)?) };
        Some(Self { branches, history: 0, jumps, returns: [0; RETURNS], top: 0 })
    }

    fn index(&self, address: u64, of: usize) -> usize {
        ((address ^ address >> 14) as usize ^ self.history) & (of - 1)
    }

    /// A conditional branch; tells whether it was predicted.
    pub(crate) fn branch(&mut self, address: u64, taken: bool) -> bool {
        let at = self.index(address, BRANCHES);
        let counter = &mut self.branches[at];
        let predicted = *counter >= 2;
        *counter = if taken { (*counter + 1).min(3) } else { counter.saturating_sub(1) };
        self.history = (self.history << 1 | usize::from(taken)) & 0xfff;
        predicted == taken
    }

    /// An indirect jump or call; tells whether its target was predicted.
    pub(crate) fn jump(&mut self, address: u64, to: u64) -> bool {
        let at = self.index(address, JUMPS);
        core::mem::replace(&mut self.jumps[at], to) == to
    }

    pub(crate) fn call(&mut self, back_to: u64) {
        self.top = (self.top + 1) % RETURNS;
        self.returns[self.top] = back_to;
    }

    /// A return; tells whether its target was predicted.
    pub(crate) fn ret(&mut self, to: u64) -> bool {
        let predicted = core::mem::take(&mut self.returns[self.top]);
        self.top = (self.top + RETURNS - 1) % RETURNS;
        predicted == to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_and_patterns_are_learnt() {
        let mut p = Predictor::new().unwrap();
        let mut misses = |pattern: &dyn Fn(usize) -> bool| {
            (0..4000).filter(|n| !p.branch(0x40_1000, pattern(*n)) && *n > 1000).count()
        };
        assert_eq!(misses(&|_| true), 0);
        assert_eq!(misses(&|n| n % 4 != 3), 0);
        let mut random = 1_u32;
        let mut bits = Vec::new();
        for _ in 0..4000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bits.push(random >> 31 == 1);
        }
        let missed = misses(&|n| bits[n]);
        assert!((1200..1800).contains(&missed), "half of 3,000, not {missed}");
    }

    #[test]
    fn returns_go_where_their_calls_said_up_to_the_depth_of_the_stack() {
        let mut p = Predictor::new().unwrap();
        let missed = |p: &mut Predictor, depth: u64| {
            (0..depth).for_each(|n| p.call(n + 1));
            (0..depth).rev().filter(|n| !p.ret(n + 1)).count()
        };
        assert_eq!(missed(&mut p, RETURNS as u64), 0);
        assert_eq!(missed(&mut p, RETURNS as u64 + 5), 5);
        // A retpoline: the return address is replaced, and the stack stays balanced.
        p.call(1);
        p.call(2);
        assert!(!p.ret(99));
        assert!(p.ret(1));
    }

    #[test]
    fn an_indirect_jump_is_predicted_to_go_where_it_went() {
        let mut p = Predictor::new().unwrap();
        assert_eq!([7, 7, 8, 8].map(|to| p.jump(0x40_2000, to)), [false, true, false, true]);
    }
}
