//! Failed boots: how often one arm is called worse because of them.
//!
//! Invariant: both arms are drawn alike wherever a share is promised.

use bigiron_stats::{location, order::ChaCha12Rng};

use super::{
    Setting,
    check::{Checks, Share},
    noise::uniform,
    replicate::{Tally, replicate},
};

#[derive(Default)]
struct Rules {
    /// Any failed boot of the arm.
    any: Share,
    /// The arm alone fails, or more often than chance explains.
    counted: Share,
    /// The same where a failure counts only if it repeats, and none of these does.
    confirmed: Share,
}

impl Tally for Rules {
    fn merge(&mut self, other: Rules) {
        self.any.merge(other.any);
        self.counted.merge(other.counted);
        self.confirmed.merge(other.confirmed);
    }
}

fn failures(pairs: u32, share: f64, rng: &mut ChaCha12Rng) -> u32 {
    (0..pairs).filter(|_| uniform(rng) < share).count() as u32
}

pub(super) fn survival(setting: &Setting, checks: &mut Checks) {
    println!("Both arms fail in the same share of boots, by chance: worse because of that");
    println!(
        "{:>5} {:>9} {:>12} {:>17} {:>28}",
        "pairs", "failing %", "any failure", "counted in both", "and none repeats (exact)"
    );
    for pairs in [8, 10, 12, 24] {
        for share in [0.001, 0.01, 0.05, 0.2, 0.5] {
            let cell = format!("survival {pairs} {share}");
            let rules = replicate(setting, setting.replicates, &cell, |rng, rules: &mut Rules| {
                let (a, b) = (failures(pairs, share, rng), failures(pairs, share, rng));
                let more = location::more_often_p((b, pairs), (a, pairs)) <= 0.05;
                rules.any.count(b > 0);
                rules.counted.count((b > 0 && a == 0) || more);
                rules.confirmed.count(more);
            });
            println!(
                "{pairs:>5} {:>9} {:>12} {:>17} {:>28}",
                100.0 * share,
                rules.any.percent(),
                rules.counted.percent(),
                rules.confirmed.percent()
            );
            checks.at_most(&format!("worse by failures that do not repeat, {cell}"), rules.confirmed, 0.05);
        }
    }
}
