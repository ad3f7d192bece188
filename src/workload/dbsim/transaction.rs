//! What a foreground does, drawn ahead: which blocks a transaction gets and which of them it changes.
//!
//! Invariant: the draws depend on the seed and the process's number only, never on time, so the same seed does the same work.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::job::{Amount, Job, Step as JobStep};

/// Exponent of the Zipf distribution of block gets: a few blocks are hot, most are rarely touched.
const ZIPF: f64 = 0.9;
/// Spreads neighbouring ranks over files and blocks. Prime, and larger than any number of blocks: rank × SCATTER is a permutation.
const SCATTER: u64 = 2_654_435_761;

/// A Zipf distribution over the blocks, by inversion of its cumulative table.
pub struct Skew {
    /// Share of gets that go to this rank or a hotter one, in units of 2^-63.
    cumulative: Vec<u64>,
}

impl Skew {
    pub fn new(blocks: u32) -> Self {
        let weights = || (1..=blocks).map(|rank| f64::from(rank).powf(-ZIPF));
        let total: f64 = weights().sum();
        let mut sum = 0.0;
        let cumulative = weights()
            .map(|w| {
                sum += w;
                (sum / total * (1u64 << 63) as f64) as u64
            })
            .collect();
        Self { cumulative }
    }

    /// The block of a rank; rank 0 is the hottest.
    pub fn block(&self, rank: usize) -> u32 {
        (rank as u64 * SCATTER % self.cumulative.len() as u64) as u32
    }

    fn draw(&self, random: u64) -> u32 {
        let rank = self.cumulative.partition_point(|c| *c <= random >> 1);
        self.block(rank.min(self.cumulative.len() - 1))
    }
}

/// One block get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// Block, counted over all files.
    pub block: u32,
    /// Whether the block is changed.
    pub change: bool,
}

/// A transaction's inputs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transaction {
    pub steps: Vec<Step>,
}

impl Transaction {
    pub fn changes(&self) -> usize {
        self.steps.iter().filter(|s| s.change).count()
    }
}

/// The endless stream of one foreground's transactions.
pub struct Stream<'a> {
    random: ChaCha8Rng,
    skew: &'a Skew,
    gets: usize,
    write_percent: u32,
}

impl<'a> Stream<'a> {
    pub fn new(job: &Job, skew: &'a Skew, seed: u64, process: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(process);
        let dirty = |s: &JobStep| match s {
            JobStep::Dirty(Amount::Percent(p)) => Some(*p),
            _ => None,
        };
        let write_percent = job.transactions.iter().flat_map(|t| &t.steps).find_map(dirty).unwrap_or(0);
        Self { random, skew, gets: job.gets_max(), write_percent }
    }

    pub fn draw(&mut self) -> Transaction {
        let mut step = || Step {
            block: self.skew.draw(self.random.next_u64()),
            change: (u64::from(self.random.next_u32()) * 100) >> 32 < u64::from(self.write_percent),
        };
        Transaction { steps: (0..self.gets).map(|_| step()).collect() }
    }
}

/// How many of `total` fall to `process` of `processes`.
pub fn share(total: u64, process: usize, processes: usize) -> u64 {
    total / processes as u64 + u64::from((process as u64) < total % processes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Workload, dbsim::Dbsim, options};

    fn job() -> Job {
        Job::parse(&options(&Dbsim as &dyn Workload, []).unwrap()).unwrap()
    }

    #[test]
    fn ranks_are_a_permutation_of_the_blocks() {
        let skew = Skew::new(1_280);
        let mut blocks: Vec<_> = (0..1_280).map(|r| skew.block(r)).collect();
        blocks.sort_unstable();
        assert!(blocks.iter().copied().eq(0..1_280));
    }

    #[test]
    fn frequencies_follow_zipf() {
        let (job, skew) = (job(), Skew::new(1_000));
        let mut stream = Stream::new(&job, &skew, 7, 0);
        let (mut hottest, mut tenth, mut changed) = (0.0, 0.0, 0.0);
        let draws = 20_000;
        for _ in 0..draws {
            for s in stream.draw().steps {
                hottest += f64::from(u8::from(s.block == skew.block(0)));
                tenth += f64::from(u8::from(s.block == skew.block(9)));
                changed += f64::from(u8::from(s.change));
            }
        }
        let gets = f64::from(draws) * job.gets_max() as f64;
        let total: f64 = (1..=1_000).map(|r| f64::from(r).powf(-ZIPF)).sum();
        // Five standard errors of a binomial share.
        let near = |n: f64, p: f64| (n / gets - p).abs() < 5.0 * (p * (1.0 - p) / gets).sqrt();
        assert!(near(hottest, 1.0 / total), "{hottest}");
        assert!(near(tenth, 10f64.powf(-ZIPF) / total), "{tenth}");
        assert!(near(changed, 0.3), "{changed}");
    }

    #[test]
    fn streams_differ_by_seed_and_process_only() {
        let (job, skew) = (job(), Skew::new(1_000));
        let take = |seed, process| {
            let mut s = Stream::new(&job, &skew, seed, process);
            (0..50).map(|_| s.draw()).collect::<Vec<_>>()
        };
        assert_eq!(take(1, 0), take(1, 0));
        assert_ne!(take(1, 0), take(2, 0));
        assert_ne!(take(1, 0), take(1, 1));
    }

    #[test]
    fn shares_add_up() {
        assert_eq!((0..8).map(|p| share(3_001, p, 8)).sum::<u64>(), 3_001);
        assert_eq!(share(3_001, 0, 8), 376);
    }
}
