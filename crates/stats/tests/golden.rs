//! Comparison with numpy and scipy: `golden.py` computed the numbers, with other algorithms where they exist.

use bigiron_stats::{Flip, Flips, location, mser, multiplicity, power, stein::Stein};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    flip: Vec<FlipCase>,
    location: Vec<Location>,
    mser5: Vec<Mser>,
    multiplicity: Vec<Multiplicity>,
    clopper_pearson: Vec<Share>,
    sign_test: Vec<Sign>,
    stein: Vec<SteinCase>,
}

#[derive(Deserialize)]
struct FlipCase {
    ab: Vec<f64>,
    ba: Vec<f64>,
    tests: Vec<Test>,
    ci95: Option<(f64, f64)>,
    ci90: Option<(f64, f64)>,
}

#[derive(Deserialize)]
struct Test {
    theta: f64,
    p: f64,
    greater: f64,
    less: f64,
}

#[derive(Deserialize)]
struct Location {
    x: Vec<f64>,
    median: f64,
    hodges_lehmann: f64,
    theil_sen: f64,
    t95: (f64, f64),
    sd: f64,
}

#[derive(Deserialize)]
struct Mser {
    x: Vec<f64>,
    cut: Option<usize>,
}

#[derive(Deserialize)]
struct Multiplicity {
    p: Vec<f64>,
    holm: Vec<f64>,
    bh: Vec<f64>,
}

#[derive(Deserialize)]
struct Share {
    k: u64,
    n: u64,
    interval: (f64, f64),
}

#[derive(Deserialize)]
struct Sign {
    positive: u64,
    negative: u64,
    p: f64,
}

#[derive(Deserialize)]
struct SteinCase {
    ab: Vec<f64>,
    ba: Vec<f64>,
    half_width: f64,
    pairs: u32,
    interval: (f64, f64),
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("fixtures/golden.json")).expect("The fixture is what golden.py writes")
}

#[track_caller]
fn close(ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() <= 1e-9 * theirs.abs().max(0.05), "{ours} instead of {theirs}");
}

#[track_caller]
fn close_interval(ours: Option<(f64, f64)>, theirs: Option<(f64, f64)>) {
    assert_eq!(ours.is_some(), theirs.is_some());
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        close(ours.0, theirs.0);
        close(ours.1, theirs.1);
    }
}

#[test]
fn flip() {
    for case in golden().flip {
        let flip = Flip::new(Flips::Balanced, &case.ab, &case.ba, 0);
        close_interval(flip.interval(0.05), case.ci95);
        close_interval(flip.interval(0.10), case.ci90);
        for test in case.tests {
            close(flip.p(test.theta), test.p);
            close(flip.p_greater(test.theta), test.greater);
            close(flip.p_less(test.theta), test.less);
        }
    }
}

#[test]
fn location() {
    for case in golden().location {
        close(location::median(&case.x), case.median);
        close(location::hodges_lehmann(&case.x), case.hodges_lehmann);
        close(location::theil_sen(&case.x), case.theil_sen);
        close(power::sd(&case.x), case.sd);
        close_interval(Some(location::t_interval(&case.x, 0.05)), Some(case.t95));
    }
}

#[test]
fn mser5() {
    let cases = golden().mser5;
    assert!(
        cases.iter().any(|case| case.cut.is_none()) && cases.iter().any(|case| case.cut.is_some_and(|cut| cut > 0))
    );
    for case in cases {
        assert_eq!(mser::mser5(&case.x), case.cut);
    }
}

#[test]
fn multiplicity() {
    for case in golden().multiplicity {
        multiplicity::holm(&case.p).iter().zip(case.holm).for_each(|(&ours, theirs)| close(ours, theirs));
        multiplicity::benjamini_hochberg(&case.p).iter().zip(case.bh).for_each(|(&ours, theirs)| close(ours, theirs));
    }
}

#[test]
fn shares() {
    for case in golden().clopper_pearson {
        close_interval(Some(location::clopper_pearson(case.k, case.n, 0.05)), Some(case.interval));
    }
    for case in golden().sign_test {
        let p = location::sign_test(case.positive, case.negative);
        assert!((p - case.p).abs() <= 1e-9 * case.p, "{p} instead of {}", case.p);
    }
}

#[test]
fn stein() {
    for case in golden().stein {
        let stein = Stein::new(&case.ab, &case.ba).expect("Two pairs or more of each order");
        assert_eq!(stein.total_pairs(case.half_width, 0.05), case.pairs);
        close_interval(Some(stein.interval(&case.ab, &case.ba, 0.05)), Some(case.interval));
    }
}
