//! Methods that bigiron does not use, compared with its own: other intervals, other designs, optional stopping.
//!
//! Invariant: the alternatives are the textbook methods, applied to the same sessions.

use bigiron_stats::{
    Flip, Flips, location,
    order::{ChaCha12Rng, Rng},
};

use super::{
    Setting,
    check::{Checks, Share},
    noise::{Noise, Pair, Session, balanced, normal},
    replicate::{Tally, replicate},
};

/// Resamples of a bootstrap interval.
const RESAMPLES: usize = 1_000;

#[derive(Default)]
struct Methods {
    t: Share,
    flip: Share,
    bootstrap: Share,
}

impl Tally for Methods {
    fn merge(&mut self, other: Methods) {
        self.t.merge(other.t);
        self.flip.merge(other.flip);
        self.bootstrap.merge(other.bootstrap);
    }
}

/// The percentile bootstrap's 95 % interval of the mean.
fn bootstrap(d: &[f64], rng: &mut ChaCha12Rng) -> (f64, f64) {
    let n = d.len();
    let pick = |rng: &mut ChaCha12Rng| d[((u64::from(rng.next_u32()) * n as u64) >> 32) as usize];
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| (0..n).map(|_| pick(rng)).sum::<f64>() / n as f64).collect();
    means.sort_unstable_by(f64::total_cmp);
    (means[RESAMPLES / 40], means[RESAMPLES - 1 - RESAMPLES / 40])
}

fn covers((low, high): (f64, f64)) -> bool {
    low <= 0.0 && 0.0 <= high
}

pub(super) fn methods(setting: &Setting, checks: &mut Checks) {
    println!("{:<15} {:>10} {:>6} {:>21}", "coverage", "Student t", "flip", "percentile bootstrap");
    let models =
        [Noise::Normal, Noise::HeavyTails, Noise::Bimodal, Noise::Lognormal, Noise::SlotEffect, Noise::SkewOfB];
    for noise in models {
        let cell = format!("methods {}", noise.name());
        let methods = replicate(setting, setting.replicates, &cell, |rng, methods: &mut Methods| {
            let session = noise.session(10, rng);
            let d = session.all();
            let flip = Flip::new(Flips::Balanced, &session.ab, &session.ba, 0)
                .interval(0.05)
                .expect("10 pairs have an interval");
            methods.flip.count(covers(flip));
            methods.t.count(covers(location::t_interval(&d, 0.05)));
            methods.bootstrap.count(covers(bootstrap(&d, rng)));
        });
        let percent = [methods.t, methods.flip, methods.bootstrap].map(Share::percent);
        println!("{:<15} {:>10} {:>6} {:>21}", noise.name(), percent[0], percent[1], percent[2]);
        match noise {
            Noise::Normal => {
                checks.near("Student's t, normal, 10 pairs", methods.t, 0.95, 0.005);
                checks.near("flip, normal, 10 pairs", methods.flip, 0.952, 0.005);
                checks.near("percentile bootstrap, normal, 10 pairs", methods.bootstrap, 0.896, 0.01);
            }
            Noise::SkewOfB => checks.at_least("flip, B-only skew, 10 pairs", methods.flip, 0.85),
            _ => checks.at_least(&format!("flip, {}, 10 pairs", noise.name()), methods.flip, 0.95),
        }
    }
}

/// Slowdown of the second position in the refused fixed order, in standard deviations of a pair.
const SECOND_PLACE: f64 = 0.6;

/// Number of windows per boot, and their noise relative to the boot's.
const WINDOWS: usize = 30;
const WINDOW_NOISE: f64 = 2.0;

pub(super) fn refused(setting: &Setting, checks: &mut Checks) {
    println!("{:<48} {:>15}", "10 pairs, no effect, Student's t", "false positives");
    let mut show = |what: &str, one: &(dyn Fn(&mut ChaCha12Rng) -> Vec<f64> + Sync)| {
        let wrong = replicate(setting, setting.replicates, what, |rng, wrong: &mut Share| {
            wrong.count(!covers(location::t_interval(&one(rng), 0.05)));
        });
        println!("{what:<48} {:>15}", wrong.percent());
        checks.at_least(&format!("{what}: false positives"), wrong, 0.25);
    };
    show("all A, then all B, trend", &|rng| all_a_then_all_b(Noise::Trend, rng));
    show("all A, then all B, AR(.9)", &|rng| all_a_then_all_b(Noise::Autoregressive, rng));
    show("always A then B, second place .6 s slower", &|rng| (0..10).map(|_| normal(rng) + SECOND_PLACE).collect());
    show("30 windows of each boot as samples", &|rng| {
        let pair = |boot: f64, rng: &mut ChaCha12Rng| -> Vec<f64> {
            (0..WINDOWS).map(|_| boot + WINDOW_NOISE * normal(rng)).collect()
        };
        (0..10).flat_map(|_| pair(normal(rng), rng)).collect()
    });
}

/// D_i = B_i − A_i if the ten boots of A come before the ten of B.
fn all_a_then_all_b(noise: Noise, rng: &mut ChaCha12Rng) -> Vec<f64> {
    let boots = noise.boots(20, rng);
    (0..10).map(|i| boots[10 + i] - boots[i]).collect()
}

/// Checks at 8, 10, … 24 pairs and stops at the first interval that excludes 0.
pub(super) fn peeking(setting: &Setting, checks: &mut Checks) {
    let wrong = replicate(setting, setting.replicates / 4, "peeking", |rng, wrong: &mut Share| {
        let mut so_far: Vec<Pair> = Vec::new();
        let mut stopped = false;
        for pairs in (8..=24).step_by(2) {
            let more = pairs - so_far.len();
            so_far.extend(balanced(more, rng).into_iter().map(|a_first| Pair { a_first, a: 0.0, b: normal(rng) }));
            let session = Session::of(&so_far);
            if Flip::new(Flips::Balanced, &session.ab, &session.ba, 0).p(0.0) <= 0.05 {
                stopped = true;
                break;
            }
        }
        wrong.count(stopped);
    });
    println!(
        "Checks after 8, 10, … 24 pairs, stop when the interval excludes 0: {} % false positives",
        wrong.percent()
    );
    checks.at_least("false positives of stopping when significant", wrong, 0.10);
}
