//! Comparison with a second implementation of the judge's rule: `nested.py` computed the numbers from the definitions, by other algorithms.

use bigiron_stats::suite::{self, Claim};
use bigiron_stats::{Flip, Flips, Verdict, location, verdict};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    lines: Vec<Line>,
    families: Vec<Family>,
    fisher: Vec<Fisher>,
}

#[derive(Deserialize)]
struct Line {
    d: Vec<f64>,
    margin: f64,
    no_change: f64,
    within: f64,
    /// One-sided p at 1/128.
    greater: f64,
    less: f64,
    ci95: Option<(f64, f64)>,
    ci90: Option<(f64, f64)>,
    verdict: String,
}

#[derive(Deserialize)]
struct Family {
    lines: Vec<Vec<f64>>,
    margin: f64,
    alone: Vec<String>,
    verdicts: Vec<String>,
    adjusted: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct Fisher {
    k: u32,
    n: u32,
    other: u32,
    of: u32,
    p: f64,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("fixtures/nested.json")).expect("The fixture is what nested.py writes")
}

#[track_caller]
fn close(ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() <= 1e-12, "{ours} instead of {theirs}");
}

/// A line's test, and its verdict alone. The order in which pairs ran has no effect: half of them are given as either.
fn alone(d: &[f64], margin: f64) -> (Flip, Verdict) {
    let (ab, ba) = d.split_at(d.len() / 2);
    let flip = Flip::new(Flips::Full, ab, ba, 0);
    let said = verdict(flip.interval(0.05), flip.interval(0.10), margin);
    (flip, said)
}

#[test]
fn lines() {
    let lines = golden().lines;
    assert!(lines.iter().any(|line| line.ci95.is_none()), "five pairs have no 95 % interval");
    for line in lines {
        let (flip, said) = alone(&line.d, line.margin);
        for (ours, theirs) in [(flip.interval(0.05), line.ci95), (flip.interval(0.10), line.ci90)] {
            assert_eq!(ours.is_some(), theirs.is_some());
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                close(ours.0, theirs.0);
                close(ours.1, theirs.1);
            }
        }
        let claim = Claim::of(&flip, said, line.margin);
        close(claim.no_change, line.no_change);
        close(claim.within, line.within);
        close(flip.p_greater(1.0 / 128.0), line.greater);
        close(flip.p_less(1.0 / 128.0), line.less);
        assert_eq!(said.name(), line.verdict, "{:?}", line.d);
    }
}

#[test]
fn families() {
    let mut weakened = 0;
    for family in golden().families {
        let claims: Vec<Claim> = family
            .lines
            .iter()
            .map(|d| {
                let (flip, said) = alone(d, family.margin);
                Claim::of(&flip, said, family.margin)
            })
            .collect();
        let names = |verdicts: &mut dyn Iterator<Item = Verdict>| verdicts.map(Verdict::name).collect::<Vec<_>>();
        assert_eq!(names(&mut claims.iter().map(|claim| claim.verdict)), family.alone);
        let adjusted = suite::adjust(&claims, 0.05);
        assert_eq!(names(&mut adjusted.iter().map(|line| line.verdict)), family.verdicts);
        weakened += adjusted.iter().filter(|line| line.verdict != line.unadjusted).count();
        let p: Vec<(f64, f64)> = claims.iter().map(|claim| (claim.no_change, claim.within)).collect();
        for (ours, theirs) in suite::nested(&p).into_iter().zip(family.adjusted) {
            close(ours.0, theirs.0);
            close(ours.1, theirs.1);
        }
    }
    assert!(weakened > 3, "families in which adjustment matters");
}

#[test]
fn failed_boots() {
    for case in golden().fisher {
        let p = location::more_often_p((case.k, case.n), (case.other, case.of));
        assert!((p - case.p).abs() <= 1e-9 * case.p, "{p} instead of {}", case.p);
    }
}
