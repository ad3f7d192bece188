//! What a core predicts: conditional branches by tagged tables of histories of several lengths (TAGE: Seznec, Michaud, "A case for (partially) tagged
//! geometric history length branch prediction", JILP 8, 2006; AMD's processors have one since Zen 2), indirect jumps by their last target, returns by a
//! stack of calls.
//!
//! Processors have more and larger tables; that is why a misprediction is one for the model alone. A return that goes elsewhere than its call would have
//! it is one for every processor: retpolines and the kernel's safe return do this on purpose.

use crate::geometry::RETURNS;
use crate::kernel::zeroed;

/// Counters of branches without history, entries of each table with one, and targets of jumps.
const BRANCHES: usize = 16 << 10;
const TAGGED: usize = 4 << 10;
const JUMPS: usize = 2 << 10;

/// Branches in the history of each table: those before the one that is predicted.
const HISTORIES: [u32; 4] = [5, 12, 27, 60];

/// What a table knows of a branch after a history.
#[derive(Clone, Copy)]
#[repr(C)]
struct Tagged {
    /// A part of the branch's address and history; 0 if the entry is free.
    tag: u16,
    /// From "strongly not taken" to "strongly taken", 0 to 7.
    counter: u8,
    /// Whether it was right where shorter histories were not.
    useful: u8,
}

pub(crate) struct Predictor {
    /// Two bits each, from "strongly not taken" to "strongly taken".
    branches: &'static mut [u8],
    tables: [&'static mut [Tagged]; HISTORIES.len()],
    /// The last branch is the lowest bit.
    history: u64,
    folded: [Folded; HISTORIES.len()],
    jumps: &'static mut [u64],
    returns: [u64; RETURNS],
    top: usize,
}

/// A table's history, folded into three short numbers: it is cut into pieces of 12, 11 or 10 bits ([`FOLDED`]), and the number is the exclusive or of
/// the pieces.
#[derive(Clone, Copy)]
struct Folded([u16; FOLDED.len()]);

/// Bits of the folded histories: one for the index and two for the tag.
const FOLDED: [u32; 3] = [12, 11, 10];

impl Folded {
    /// Adds a branch to a history of `branches`. `leaving` is whether the oldest branch, which the history then no longer contains, was taken.
    fn push(&mut self, branches: u32, taken: bool, leaving: bool) {
        for (folded, bits) in self.0.iter_mut().zip(FOLDED) {
            let turned = *folded << 1 | *folded >> (bits - 1);
            *folded = (turned ^ u16::from(taken) ^ u16::from(leaving) << (branches % bits)) & ((1 << bits) - 1);
        }
    }
}

impl Predictor {
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: zeros are numbers.
        unsafe {
            Some(Self {
                branches: zeroed(BRANCHES)?,
                tables: [zeroed(TAGGED)?, zeroed(TAGGED)?, zeroed(TAGGED)?, zeroed(TAGGED)?],
                history: 0,
                folded: [Folded([0; FOLDED.len()]); HISTORIES.len()],
                jumps: zeroed(JUMPS)?,
                returns: [0; RETURNS],
                top: 0,
            })
        }
    }

    /// The entry of a table for a branch, and the tag that it has if it is this branch's.
    fn place(&self, table: usize, address: u64) -> (usize, u16) {
        let [index, one, other] = self.folded[table].0.map(u64::from);
        let index = address ^ address >> 12 ^ index;
        let tag = address ^ address >> 7 ^ one ^ other << 1;
        (index as usize % TAGGED, (tag & 0x7ff) as u16 + 1)
    }

    /// A conditional branch; tells whether it was predicted.
    pub(crate) fn branch(&mut self, address: u64, taken: bool) -> bool {
        let places: [_; HISTORIES.len()] = core::array::from_fn(|table| self.place(table, address));
        let is_found = |table: &usize| self.tables[*table][places[*table].0].tag == places[*table].1;
        let mut found = (0..HISTORIES.len()).rev().filter(is_found);
        let (longest, next) = (found.next(), found.next());
        let base = (address ^ address >> 14) as usize % BRANCHES;
        let says = |table: Option<usize>| match table {
            Some(table) => self.tables[table][places[table].0].counter >= 4,
            None => self.branches[base] >= 2,
        };
        let (predicted, otherwise) = (says(longest), says(next));
        match longest {
            Some(table) => {
                let entry = &mut self.tables[table][places[table].0];
                entry.counter = if taken { (entry.counter + 1).min(7) } else { entry.counter.saturating_sub(1) };
                if predicted != otherwise {
                    entry.useful =
                        if predicted == taken { (entry.useful + 1).min(3) } else { entry.useful.saturating_sub(1) };
                }
            }
            None => {
                let counter = &mut self.branches[base];
                *counter = if taken { (*counter + 1).min(3) } else { counter.saturating_sub(1) };
            }
        }
        if predicted != taken {
            self.learn(longest.map_or(0, |table| table + 1), &places, taken);
        }
        for (folded, branches) in self.folded.iter_mut().zip(HISTORIES) {
            folded.push(branches, taken, self.history >> (branches - 1) & 1 == 1);
        }
        self.history = self.history << 1 | u64::from(taken);
        predicted == taken
    }

    /// A branch that was mispredicted gets an entry in a table of a longer history, or what is there becomes less useful.
    fn learn(&mut self, from: usize, places: &[(usize, u16)], taken: bool) {
        for (table, (at, tag)) in self.tables.iter_mut().zip(places).skip(from) {
            let entry = &mut table[*at];
            if entry.useful == 0 {
                *entry = Tagged { tag: *tag, counter: if taken { 4 } else { 3 }, useful: 0 };
                return;
            }
            entry.useful -= 1;
        }
    }

    /// An indirect jump or call; tells whether its target was predicted.
    pub(crate) fn jump(&mut self, address: u64, to: u64) -> bool {
        let at = (address ^ address >> 14 ^ self.history & 0xfff) as usize % JUMPS;
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
        assert_eq!(misses(&|n| n % 40 != 39), 0, "a loop of forty rounds");
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
    fn a_folded_history_is_the_exclusive_or_of_its_pieces() {
        let mut p = Predictor::new().unwrap();
        let mut random = 1_u64;
        for _ in 0..500 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            p.branch(0x40_1000, random >> 63 == 1);
            for (folded, branches) in p.folded.iter().zip(HISTORIES) {
                for (value, bits) in folded.0.into_iter().zip(FOLDED) {
                    let history = p.history & ((1 << branches) - 1);
                    let pieces = (0..branches).step_by(bits as usize).map(|at| (history >> at) & ((1 << bits) - 1));
                    assert_eq!(u64::from(value), pieces.fold(0, |all, piece| all ^ piece), "{branches} in {bits}");
                }
            }
        }
    }

    /// Branches at random places that each always go the same way, more than there are entries: a predictor without tags mixes them up.
    #[test]
    fn branches_do_not_disturb_each_other() {
        let mut p = Predictor::new().unwrap();
        let mut random = 1_u64;
        let branches: Vec<(u64, bool)> = (0..3000)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (0xffff_ffff_8100_0000 + (random >> 33) % (16 << 20), random >> 63 == 1)
            })
            .collect();
        let mut missed = || branches.iter().filter(|(at, taken)| !p.branch(*at, *taken)).count();
        (0..20).for_each(|_| _ = missed());
        let missed = missed();
        assert!(missed <= 3, "{missed} of 3,000");
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
