//! Which request comes next.
//!
//! Invariant: the requests of a process follow only from the seed and its number, however they are divided into batches.

use std::hint::cold_path;

use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::block::Address;
use super::super::choice::Chooser;
use super::super::job::{Job, RequestSpec};
use super::board;

/// The distribution of a class's requests.
pub struct Draws {
    /// `None`: one block after the other.
    chooser: Option<Chooser>,
    /// Requests in each file, and in all files of the class.
    per_file: u32,
    blocks: u32,
    /// The first of its files.
    first: u32,
    /// A draw below this reads: the read percentage in units of 2^-32.
    reads: u64,
}

/// The position of a process in its requests.
#[derive(Clone)]
pub struct Position {
    random: Xoshiro256PlusPlus,
    /// Next block of sequential requests.
    next: u32,
}

impl Draws {
    /// The draws of a class. `seed`: the run's.
    pub fn new(job: &Job, spec: &RequestSpec, seed: u64) -> Self {
        let per_file = board::per_file(job, spec.bytes);
        let (first, files) = spec.span(job.data.files);
        let blocks = per_file * files as u32;
        Self {
            first: first as u32,
            chooser: spec.random.then(|| Chooser::new(spec.choice, blocks, seed)),
            per_file,
            blocks,
            reads: (u64::from(spec.read_percent) << 32).div_ceil(100),
        }
    }

    /// The start of a process with its own seed, as number `number` in its class.
    pub fn start(&self, seed: u64, number: usize) -> Position {
        let files = self.blocks / self.per_file;
        // Sequential: each process begins at its own file, as far as there are enough.
        Position { random: Xoshiro256PlusPlus::seed_from_u64(seed), next: number as u32 % files * self.per_file }
    }

    /// The next request: its address, and whether it writes.
    #[inline(always)]
    pub fn draw(&self, at: &mut Position) -> (Address, bool) {
        let number = match &self.chooser {
            Some(chooser) => chooser.draw(at.random.next_u64()),
            None => {
                let number = at.next;
                at.next = if number + 1 == self.blocks { 0 } else { number + 1 };
                number
            }
        };
        let write = match self.reads {
            0 => true,
            reads if reads >> 32 != 0 => false,
            reads => {
                cold_path();
                at.random.next_u64() >> 32 >= reads
            }
        };
        // Many jobs have one file, and a division is the slowest operation here.
        let address = if number < self.per_file {
            Address { file: self.first, block: number }
        } else {
            cold_path();
            Address { file: self.first + number / self.per_file, block: number % self.per_file }
        };
        (address, write)
    }
}
