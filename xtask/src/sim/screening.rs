//! Screenings: four pairs, judged by Student's t.
//!
//! Invariant: models in which B only shifts are promised to be safe; the others are shown and not promised.

use bigiron_stats::Student;

use super::{
    Setting,
    check::{Checks, Share},
    noise::Noise,
    replicate::replicate,
};

const PAIRS: usize = 4;

pub(super) fn screening(setting: &Setting, checks: &mut Checks) {
    println!("{PAIRS} pairs, Student's t");
    println!("{:<18} {:>8}", "noise", "coverage");
    let shifts = [Noise::Normal, Noise::HeavyTails, Noise::Bimodal, Noise::Lognormal, Noise::Ties];
    for noise in shifts.into_iter().chain(Noise::SHAPES) {
        let covered = replicate(
            setting,
            setting.replicates,
            &format!("screening {}", noise.name()),
            |rng, covered: &mut Share| {
                let d = noise.session(PAIRS, rng).all();
                let (low, high) = Student::new(&d).interval(0.05).expect("four values have an interval");
                covered.count(low <= 0.0 && 0.0 <= high);
            },
        );
        println!("{:<18} {:>8}", noise.name(), covered.percent());
        if shifts.contains(&noise) {
            checks.at_least(&format!("coverage of a screening, {}", noise.name()), covered, 0.94);
        }
    }
}
