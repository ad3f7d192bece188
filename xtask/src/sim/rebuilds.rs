//! Builds of equal sources: an interval over pairs speaks of two images, one over builds of the sources.
//!
//! Invariant: the sources are equal or differ by exactly the stated effect; two builds differ by a normal or bimodal amount of standard deviation
//! .1 % of which an interval over the boots of one build of each learns nothing.

use bigiron_stats::{Designs, Flips, power};

use super::{
    Setting,
    check::{Checks, Share},
    noise::Noise,
    replicate::{Tally, replicate},
};

/// Standard deviation of the difference of two builds of one source, in per cent.
const BUILDS: f64 = 0.1;

#[derive(Default)]
struct Found {
    /// The 95 % interval excludes that the sources are equal.
    differs: Share,
    /// The interval contains the true difference.
    covered: Share,
}

impl Tally for Found {
    fn merge(&mut self, other: Found) {
        self.differs.merge(other.differs);
        self.covered.merge(other.covered);
    }
}

/// A design: builds of each source, pairs for each build, and whether the pairs of a build are averaged, as they are in studies.
struct RebuildDesign {
    name: &'static str,
    builds: usize,
    each: usize,
    averaged: bool,
}

const DESIGNS: [RebuildDesign; 5] = [
    RebuildDesign { name: "1 build, 10 pairs", builds: 1, each: 10, averaged: false },
    RebuildDesign { name: "5 builds × 2, pairs as units", builds: 5, each: 2, averaged: false },
    RebuildDesign { name: "6 builds × 2", builds: 6, each: 2, averaged: true },
    RebuildDesign { name: "8 builds", builds: 8, each: 1, averaged: true },
    RebuildDesign { name: "10 builds", builds: 10, each: 1, averaged: true },
];

/// Sources that differ by `effect` %: studies of `design` with noise of `pair` % within a pair.
fn simulate(setting: &Setting, design: &RebuildDesign, noise: Noise, pair: f64, effect: f64) -> Found {
    let designs = Designs::new(Flips::Full, 0);
    let cell = format!("rebuilds {} {} {pair} {effect}", design.name, noise.name());
    replicate(setting, setting.replicates / 2, &cell, |rng, found: &mut Found| {
        // An even number of sessions' pairs is drawn, of which one build uses the first.
        let builds = noise.session(design.builds.next_multiple_of(2), rng).all();
        let boots = Noise::Normal.session((design.builds * design.each).next_multiple_of(2), rng).all();
        let d = |build: usize, of: usize| effect + BUILDS * builds[build] + pair * boots[build * design.each + of];
        let of = |build: usize| (0..design.each).map(move |of| d(build, of));
        let units: Vec<f64> = match design.averaged {
            true => (0..design.builds).map(|build| of(build).sum::<f64>() / design.each as f64).collect(),
            false => (0..design.builds).flat_map(of).collect(),
        };
        let (low, high) = designs.flip(&units, &[]).interval(0.05).expect("six units or more have an interval");
        found.differs.count(low > 0.0 || high < 0.0);
        found.covered.count(low <= effect && effect <= high);
    })
}

pub(super) fn rebuilds(setting: &Setting, checks: &mut Checks) {
    println!("two builds of a source differ by {BUILDS} % (standard deviation); exact clock");
    println!(
        "{:<30} {:<12} {:>8} {:>16} {:>9} {:>15}",
        "design", "builds", "pair, %", "equal: \"real\"", "coverage", ".2 % is found"
    );
    let (pairs, models): (&[f64], &[Noise]) = match setting.smoke {
        true => (&[0.03], &[Noise::Normal]),
        false => (&[0.03, 0.1, 0.3], &[Noise::Normal, Noise::Bimodal]),
    };
    for design in &DESIGNS {
        for (&noise, &pair) in models.iter().flat_map(|noise| pairs.iter().map(move |pair| (noise, pair))) {
            let equal = simulate(setting, design, noise, pair, 0.0);
            let found = simulate(setting, design, noise, pair, 0.2);
            println!(
                "{:<30} {:<12} {pair:>8} {:>16} {:>9} {:>15}",
                design.name,
                noise.name(),
                equal.differs.percent(),
                found.covered.percent(),
                found.differs.percent()
            );
            let what = format!("{}, {}, pair {pair} %", design.name, noise.name());
            if design.averaged {
                checks.at_most(&format!("equal sources called different, {what}"), equal.differs, 0.05);
                checks.at_least(&format!("coverage, {what}"), found.covered, 0.94);
            } else if design.builds == 1 && pair < BUILDS / 3.0 {
                // Why builds are a level of the design.
                checks.at_least(&format!("equal sources called different, {what}"), equal.differs, 0.7);
            }
        }
    }
    few(setting, checks);
}

/// The power promised for so few builds that no design of pairs has their number.
fn few(setting: &Setting, checks: &mut Checks) {
    println!("{:>6} {:>7} {:>13}", "builds", "MDE/s", "power at MDE");
    for builds in [6, 7] {
        let designs = Designs::new(Flips::Full, 0);
        let mde = power::mde_of_builds(Flips::Full, builds, 1.0);
        let seen = replicate(setting, setting.replicates, &format!("few builds {builds}"), |rng, seen: &mut Share| {
            let d = &Noise::Normal.session(8, rng).all()[..builds];
            seen.count(2.0 * designs.flip(d, &[]).p_greater(-mde) <= 0.05);
        });
        println!("{builds:>6} {mde:>7.2} {:>13}", seen.percent());
        checks.near(&format!("power at the MDE of {builds} builds"), seen, 0.8, 0.02);
    }
}
