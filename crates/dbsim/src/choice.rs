//! The choice of blocks: distributions over all blocks of the data files.
//!
//! Invariant: a block is a function of the random number and the distribution alone. Popular ranks are scattered over files and
//! blocks by a permutation, so that neighbours in popularity are not neighbours on disk.

use super::job::{Choice, Job, Step};

/// Spreads neighbouring ranks over files and blocks. Prime, and larger than any number of blocks: rank × SCATTER is a permutation.
const SCATTER: u64 = 2_654_435_761;

/// The block of a rank; rank 0 is the most popular.
fn scatter(rank: u64, blocks: u64) -> u32 {
    (rank * SCATTER % blocks) as u32
}

/// A number below `n` from 64 random bits, by multiplication (D. Lemire, "Fast random integer generation in an interval"; the
/// bias, n / 2^64, is not corrected).
#[inline]
pub fn below(random: u64, n: u64) -> u64 {
    ((u128::from(random) * u128::from(n)) >> 64) as u64
}

/// A prepared distribution.
pub enum Chooser {
    Uniform {
        blocks: u64,
    },
    /// By inversion of the cumulative table: the share of gets for a rank and all hotter ones, in units of 2^-63.
    Zipf {
        cumulative: Vec<u64>,
    },
    /// TPC-C's NURand(A, 0, blocks − 1) (clause 2.1.6): ((random(0, A) | random(0, blocks − 1)) + C) mod blocks.
    NuRand {
        a: u64,
        c: u64,
        blocks: u64,
    },
    Hot {
        /// Share of gets for the hot blocks, in units of 2^-64.
        gets: u64,
        hot: u64,
        blocks: u64,
    },
}

impl Chooser {
    /// `seed` determines NURand's constant.
    pub fn new(choice: Choice, blocks: u32, seed: u64) -> Self {
        let n = u64::from(blocks);
        match choice {
            Choice::Uniform => Self::Uniform { blocks: n },
            Choice::Zipf(theta) => Self::Zipf { cumulative: cumulative(theta, blocks) },
            Choice::NuRand(a) => Self::NuRand { a, c: below(mix(seed), a.saturating_add(1)), blocks: n },
            Choice::Hot { gets, blocks: percent } => Self::Hot {
                gets: ((u128::from(gets) << 64) / 100).min(u128::from(u64::MAX)) as u64,
                hot: (n * u64::from(percent)).div_ceil(100).clamp(1, n),
                blocks: n,
            },
        }
    }

    fn blocks(&self) -> u64 {
        match self {
            Self::Uniform { blocks } | Self::NuRand { blocks, .. } | Self::Hot { blocks, .. } => *blocks,
            Self::Zipf { cumulative } => cumulative.len() as u64,
        }
    }

    /// The block of a rank; rank 0 is the most popular where blocks differ in popularity.
    pub fn block(&self, rank: usize) -> u32 {
        scatter(rank as u64, self.blocks())
    }

    /// The block that 64 random bits choose.
    #[inline]
    pub fn draw(&self, random: u64) -> u32 {
        if let Self::Uniform { blocks } = self { below(random, *blocks) as u32 } else { self.draw_uneven(random) }
    }

    fn draw_uneven(&self, random: u64) -> u32 {
        match self {
            Self::Uniform { blocks } => below(random, *blocks) as u32,
            Self::Zipf { cumulative } => {
                let rank = cumulative.partition_point(|c| *c <= random >> 1);
                self.block(rank.min(cumulative.len() - 1))
            }
            Self::NuRand { a, c, blocks } => {
                let both = below(random, a.saturating_add(1)) | below(mix(random), *blocks);
                scatter((both + c) % blocks, *blocks)
            }
            Self::Hot { gets, hot, blocks } => {
                let other = mix(random);
                let cold = blocks - hot;
                let rank = if random < *gets || cold == 0 { below(other, *hot) } else { hot + below(other, cold) };
                scatter(rank, *blocks)
            }
        }
    }
}

fn cumulative(theta: f64, blocks: u32) -> Vec<u64> {
    let weights = || (1..=blocks).map(|rank| f64::from(rank).powf(-theta));
    let total: f64 = weights().sum();
    let mut sum = 0.0;
    weights()
        .map(|w| {
            sum += w;
            (sum / total * (1u64 << 63) as f64) as u64
        })
        .collect()
}

/// A bijection that scatters (finaliser of SplitMix64, S. Vigna): yields more bits from the same draw.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The distributions of a job, each prepared once, before the processes are forked.
pub struct Choosers {
    made: Vec<(Choice, Chooser)>,
    blocks: u32,
}

impl Choosers {
    pub fn new(job: &Job, seed: u64) -> Self {
        let mut made: Vec<(Choice, Chooser)> = Vec::new();
        // The most frequent transactions first: a cache would hold their most popular blocks.
        let mut transactions: Vec<_> = job.transactions.iter().collect();
        transactions.sort_by_key(|t| std::cmp::Reverse(t.weight));
        for step in transactions.iter().flat_map(|t| &t.steps) {
            if let Step::Read { choice, .. } = step
                && !made.iter().any(|(c, _)| c == choice)
            {
                made.push((*choice, Chooser::new(*choice, job.blocks(), seed)));
            }
        }
        Self { made, blocks: job.blocks() }
    }

    /// The distribution of a choice that occurs in the job.
    pub fn index(&self, choice: Choice) -> usize {
        self.made.iter().position(|(c, _)| *c == choice).expect("every choice of the job was made ready")
    }

    pub fn get(&self, index: usize) -> &Chooser {
        &self.made[index].1
    }

    /// The block of a rank in the first distribution of the most frequent transaction; rank 0 is the most popular.
    pub fn popular(&self, rank: usize) -> u32 {
        match self.made.first() {
            Some((_, chooser)) => chooser.block(rank),
            None => rank as u32 % self.blocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u32 = 1_280;

    fn frequencies(choice: Choice) -> (Chooser, Vec<u32>, f64) {
        let chooser = Chooser::new(choice, BLOCKS, 1);
        let mut counts = vec![0u32; BLOCKS as usize];
        let draws = 200_000;
        for i in 0..draws {
            counts[chooser.draw(mix(i)) as usize] += 1;
        }
        (chooser, counts, draws as f64)
    }

    /// Five standard errors of a binomial share.
    fn near(count: f64, draws: f64, p: f64) -> bool {
        (count / draws - p).abs() < 5.0 * (p * (1.0 - p) / draws).sqrt()
    }

    #[test]
    fn ranks_are_a_permutation_of_the_blocks() {
        for choice in [Choice::Uniform, Choice::Zipf(0.9), Choice::Hot { gets: 80, blocks: 20 }] {
            let chooser = Chooser::new(choice, BLOCKS, 0);
            let mut blocks: Vec<_> = (0..BLOCKS as usize).map(|r| chooser.block(r)).collect();
            blocks.sort_unstable();
            assert!(blocks.iter().copied().eq(0..BLOCKS));
        }
    }

    #[test]
    fn zipf_follows_its_exponent() {
        for theta in [0.5, 0.9, 1.2] {
            let (chooser, counts, draws) = frequencies(Choice::Zipf(theta));
            let total: f64 = (1..=BLOCKS).map(|r| f64::from(r).powf(-theta)).sum();
            for rank in [0, 9, 99] {
                let p = f64::from(rank as u32 + 1).powf(-theta) / total;
                assert!(near(f64::from(counts[chooser.block(rank) as usize]), draws, p), "{theta} {rank}");
            }
        }
    }

    #[test]
    fn uniform_and_hot_keep_their_shares() {
        let (_, counts, draws) = frequencies(Choice::Uniform);
        let lower: u32 = counts[..BLOCKS as usize / 4].iter().sum();
        assert!(near(f64::from(lower), draws, 0.25));
        let (chooser, counts, draws) = frequencies(Choice::Hot { gets: 80, blocks: 20 });
        let hot: u32 = (0..BLOCKS as usize / 5).map(|r| counts[chooser.block(r) as usize]).sum();
        assert!(near(f64::from(hot), draws, 0.8));
        let (_, counts, _) = frequencies(Choice::Hot { gets: 100, blocks: 1 });
        assert_eq!(counts.iter().filter(|c| **c > 0).count(), 13);
    }

    #[test]
    fn nurand_is_as_uneven_as_tpc_c_says() {
        // Of A = 255 over 1,280 values: the low 8 bits of `x | y` are all set with probability (3/4)^8 each if independent.
        let (_, counts, draws) = frequencies(Choice::NuRand(255));
        let chooser = Chooser::new(Choice::NuRand(255), BLOCKS, 1);
        let Chooser::NuRand { c, .. } = chooser else { unreachable!() };
        let full: u32 = (0..5).map(|i| counts[scatter((i * 256 + 255 + c) % 1_280, 1_280) as usize]).sum();
        assert!(near(f64::from(full), draws, 0.75f64.powi(8)), "{full}");
    }
}
