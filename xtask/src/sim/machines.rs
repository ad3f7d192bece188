//! Several machines as blocks: machines of unlike speed and noise, each with its own effect of running second.
//!
//! Invariant: the order is drawn within each machine as plans draw it, and the mean effect of the machines is exactly the stated one; the variance of a
//! pair is 1 in the mean of the machines.

use bigiron_stats::order::{ChaCha12Rng, Rng as _};
use bigiron_stats::{Block, Designs, Flips, heterogeneity, power, shape};

use super::{
    Setting,
    check::{Checks, Share},
    design::Power,
    noise::{Noise, Session, balanced, uniform},
    replicate::{Tally, replicate},
};

/// Machines, and pairs in all.
const DESIGNS: [(usize, usize); 8] = [(2, 12), (2, 16), (3, 12), (4, 16), (5, 20), (6, 12), (7, 14), (8, 16)];

/// Permutations for the hint; a study draws more, for its many lines.
const DRAWS: usize = 1_999;

/// How machines differ.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Machines {
    Alike,
    /// In speed by up to e^4, in noise by up to a factor of 4, and in what running second costs by up to 2 s.
    Unlike,
    /// Only in the effect of B: by 2 s from the first machine to the last.
    Disagreeing,
}

impl Machines {
    fn name(self) -> &'static str {
        match self {
            Machines::Alike => "alike",
            Machines::Unlike => "unlike",
            Machines::Disagreeing => "disagree",
        }
    }

    /// The place of machine `at` of `of` between −1 and 1.
    fn place(at: usize, of: usize) -> f64 {
        2.0 * at as f64 / (of - 1) as f64 - 1.0
    }

    /// A session of `pairs` pairs on `of` machines.
    fn session(self, noise: Noise, of: usize, pairs: usize, rng: &mut ChaCha12Rng) -> Vec<Block<(f64, f64)>> {
        let factor = |at: usize| if self == Machines::Unlike { Machines::place(at, of).exp2() } else { 1.0 };
        let mean_square = (0..of).map(|at| factor(at).powi(2)).sum::<f64>() / of as f64;
        let block = |at: usize| {
            let orders = balanced(pairs / of, rng);
            let session = Session::of(&noise.schedule(&orders, rng));
            let scale = factor(at) / mean_square.sqrt();
            let (speed, second) =
                if self == Machines::Unlike { (4.0 * uniform(rng), 2.0 * uniform(rng)) } else { (0.0, 0.0) };
            let effect = if self == Machines::Disagreeing { Machines::place(at, of) } else { 0.0 };
            let on = |(a, b): &(f64, f64)| (speed + scale * a, speed + scale * b + effect);
            Block {
                ab: session.arms_ab.iter().map(on).map(|(a, b)| (a, b + second)).collect(),
                ba: session.arms_ba.iter().map(on).map(|(a, b)| (a + second, b)).collect(),
            }
        };
        (0..of).map(block).collect()
    }
}

fn differences(blocks: &[Block<(f64, f64)>]) -> Vec<Block> {
    let of = |pairs: &[(f64, f64)]| pairs.iter().map(|(a, b)| b - a).collect();
    blocks.iter().map(|block| Block { ab: of(&block.ab), ba: of(&block.ba) }).collect()
}

#[derive(Default)]
struct Found {
    covered: Share,
    false_difference: Share,
    /// `same`, although the effect is the margin of 1 s.
    wrong_same: Share,
    flagged: Share,
    /// The hint that machines disagree.
    hinted: Share,
    /// Coverage of flips that take all machines for one, and how much wider they are.
    covered_pooled: Share,
    wider: f64,
    studies: u64,
}

impl Tally for Found {
    fn merge(&mut self, other: Found) {
        let theirs = [other.covered, other.false_difference, other.wrong_same, other.flagged, other.hinted];
        let mine =
            [&mut self.covered, &mut self.false_difference, &mut self.wrong_same, &mut self.flagged, &mut self.hinted];
        mine.into_iter().zip(theirs).for_each(|(mine, other)| mine.merge(other));
        self.covered_pooled.merge(other.covered_pooled);
        self.wider += other.wider;
        self.studies += other.studies;
    }
}

fn simulate(setting: &Setting, machines: Machines, noise: Noise, of: usize, pairs: usize) -> Found {
    let (designs, pooled) = (Designs::new(Flips::Blocks(of as u32), 0), Designs::new(Flips::Balanced, 0));
    let cell = format!("machines {} {} {of} {pairs}", machines.name(), noise.name());
    replicate(setting, setting.replicates / 2, &cell, |rng, found: &mut Found| {
        let arms = machines.session(noise, of, pairs, rng);
        let blocks = differences(&arms);
        let flip = designs.flip_blocks(&blocks);
        let (low, high) = flip.interval(0.05).expect("these designs have a 95 % interval");
        found.covered.count(low <= 0.0 && 0.0 <= high);
        found.false_difference.count(low > 0.0 || high < 0.0);
        let inside = |(low, high): (f64, f64)| low + 1.0 > -1.0 && high + 1.0 < 1.0;
        found.wrong_same.count(flip.interval(0.10).is_some_and(inside));
        found.flagged.count(shape::flagged(&arms, |blocks| designs.flip_blocks(blocks)));
        // It costs as much as all else, four times over.
        if found.studies.is_multiple_of(4) {
            let p = heterogeneity::p(&blocks, DRAWS, rng.next_u64());
            found.hinted.count(p.is_some_and(|p| p <= heterogeneity::HINT_LEVEL));
        }
        let all = pooled.flip_blocks(&[Block::pooled(&blocks)]).interval(0.05).expect("8 pairs or more");
        found.covered_pooled.count(all.0 <= 0.0 && 0.0 <= all.1);
        found.wider += (all.1 - all.0) / (high - low);
        found.studies += 1;
    })
}

pub(super) fn machines(setting: &Setting, checks: &mut Checks) {
    println!(
        "unlike: e^4 in speed, a factor of 4 in noise, 2 s in what running second costs; disagree: 2 s in the effect"
    );
    println!(
        "{:>8} {:>5} {:<9} {:<10} {:>8} {:>6} {:>6} {:>7} {:>5} {:>16} {:>12}",
        "machines",
        "pairs",
        "machines",
        "noise",
        "coverage",
        "type I",
        "same|m",
        "flagged",
        "hint",
        "as one: coverage",
        "times wider"
    );
    let (sizes, models): (&[(usize, usize)], &[Noise]) = match setting.smoke {
        true => (&[(2, 12), (3, 12), (8, 16)], &[Noise::Normal]),
        false => (&DESIGNS, &[Noise::Normal, Noise::Lognormal, Noise::Autoregressive]),
    };
    for (&(of, pairs), &noise) in sizes.iter().flat_map(|size| models.iter().map(move |noise| (size, noise))) {
        for machines in [Machines::Alike, Machines::Unlike, Machines::Disagreeing] {
            let found = simulate(setting, machines, noise, of, pairs);
            println!(
                "{of:>8} {pairs:>5} {:<9} {:<10} {:>8} {:>6} {:>6} {:>7} {:>5} {:>16} {:>12.2}",
                machines.name(),
                noise.name(),
                found.covered.percent(),
                found.false_difference.percent(),
                found.wrong_same.percent(),
                found.flagged.percent(),
                found.hinted.percent(),
                found.covered_pooled.percent(),
                found.wider / found.studies as f64
            );
            let what =
                |what: &str| format!("{what}, {pairs} pairs on {of} machines, {}, {}", machines.name(), noise.name());
            checks.at_least(&what("coverage"), found.covered, 0.94);
            checks.at_most(&what("type I error"), found.false_difference, 0.05);
            checks.at_most(&what("wrong `same` at the margin"), found.wrong_same, 0.05);
            if machines != Machines::Disagreeing {
                checks.at_most(&what("hint without cause"), found.hinted, 0.05);
                // As of one machine, the test of the spread starts from estimated medians.
                checks.at_most(&what("flagged without cause"), found.flagged, 0.20);
            }
        }
    }
    power_of(setting, sizes, checks);
}

/// The power at the effect and the margin that the library prints.
fn power_of(setting: &Setting, sizes: &[(usize, usize)], checks: &mut Checks) {
    println!(
        "{:>8} {:>5} {:>7} {:>13} {:>13} {:>14}",
        "machines", "pairs", "MDE/s", "power at MDE", "margin/s same", "power of same"
    );
    for &(of, pairs) in sizes {
        let flips = Flips::Blocks(of as u32);
        let designs = Designs::new(flips, 0);
        let (mde, margin) = (power::mde(flips, pairs, 1.0), power::margin_for_same(flips, pairs as u32, 1.0));
        let found =
            replicate(setting, setting.replicates, &format!("blocks {of} {pairs}"), |rng, found: &mut Power| {
                let session = Machines::Alike.session(Noise::Normal, of, pairs, rng);
                found.count(&designs.flip_blocks(&differences(&session)), mde, margin);
            });
        println!(
            "{of:>8} {pairs:>5} {mde:>7.2} {:>13} {margin:>13.2} {:>14}",
            found.seen.percent(),
            found.same.percent()
        );
        checks.near(&format!("power at the MDE of {pairs} pairs on {of} machines"), found.seen, 0.8, 0.02);
        checks.near(&format!("power of `same` of {pairs} pairs on {of} machines"), found.same, 0.8, 0.03);
    }
}
