//! The search for the highest injection rate that conforms.
//!
//! Invariant: no rate is tried twice, and the search ends.

use anyhow::{Context as _, Result};

use crate::calls::REQUESTS_PER_DEALER;
use crate::metrics::Point;

/// Rates that are tried, as parts of what clients get without a rate.
const STEPS: [f64; 15] = [0.2, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15];

/// Drives the tiers at a rate, or as much as the clients' connections take, in a window of this number.
pub type Drive<'a> = &'a mut dyn FnMut(Option<f64>, u32) -> Result<Point>;

/// Finds the highest rate that conforms. Returns the points in their order, and the number of the one that counts.
///
/// # Errors
/// No rate conforms; or a point failed.
pub fn highest(drive: Drive<'_>) -> Result<(Vec<Point>, usize)> {
    let mut points = vec![drive(None, 0)?];
    let mut search = Search::new(points[0].requests_per_second() / REQUESTS_PER_DEALER);
    let (mut best, mut fault) = (None, None);
    while let Some(rate) = search.next() {
        let point = drive(Some(rate), points.len() as u32)?;
        let found = point.fault();
        search.tell(found.is_none());
        match found {
            None => best = Some(points.len()),
            Some(found) => fault = Some(found),
        }
        points.push(point);
    }
    let best = best.with_context(|| format!("No injection rate conforms: {}", fault.unwrap_or_default()))?;
    Ok((points, best))
}

/// A bisection: rates below `low` conform, those from `high` on do not.
struct Search {
    capacity: f64,
    low: usize,
    high: usize,
}

impl Search {
    /// With what clients get without a rate.
    fn new(capacity: f64) -> Self {
        Self { capacity, low: 0, high: STEPS.len() }
    }

    /// The next rate to try; `None` if the answer is known.
    fn next(&self) -> Option<f64> {
        (self.low < self.high).then(|| self.capacity * STEPS[self.middle()])
    }

    /// Whether that rate conforms.
    fn tell(&mut self, conforms: bool) {
        let middle = self.middle();
        if conforms { self.low = middle + 1 } else { self.high = middle }
    }

    fn middle(&self) -> usize {
        self.low.midpoint(self.high)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;
    use bigiron_sys::cpu_clock::ThreadCpu;
    use bigiron_web::call::CallTally;
    use bigiron_web::driver::{DriveResult, Tally};

    use super::*;
    use crate::calls::{ADVANCE, KINDS, ORDER};

    #[test]
    fn the_highest_rate_is_found_wherever_it_is() {
        for (n, limit) in STEPS.iter().map(|step| step * 200.0).chain([1.0]).enumerate() {
            let (mut search, mut best, mut tries) = (Search::new(200.0), None, 0);
            while let Some(rate) = search.next() {
                let conforms = rate <= limit;
                best = if conforms { Some(rate) } else { best };
                search.tell(conforms);
                tries += 1;
            }
            assert_eq!(best, (n < STEPS.len()).then_some(limit));
            assert!(tries <= 4, "{tries}");
        }
    }

    /// What a business whose servers answer 800 requests per second, of which those of `slow` are late beyond `limit`, gives at a rate.
    fn point(rate: Option<f64>, limit: f64, slow: usize) -> Point {
        let mut tally = Tally { calls: vec![CallTally::default(); KINDS.len()], requests: 8000, ..Tally::default() };
        let is_late = rate.is_some_and(|rate| rate > limit);
        for (kind, calls) in tally.calls.iter_mut().enumerate() {
            let late = if is_late && kind == slow { KINDS[kind].limit * 2 } else { KINDS[kind].limit / 2 };
            (0..100).for_each(|_| calls.latency.record(late.as_nanos() as u64));
        }
        let driven = DriveResult {
            window_ns: 10_000_000_000,
            tally,
            cpu: ThreadCpu::default(),
            conforming: 0,
            // Of two ways not to conform, the other one.
            backlog: if is_late && slow == KINDS.len() { 161 } else { 160 },
            longest_queue: 0,
        };
        Point { rate, driven, cpu: [0; 3] }
    }

    #[test]
    fn the_point_that_counts_is_that_of_the_highest_conforming_rate() {
        for (limit, slow) in [(150.0, ORDER), (150.0, ADVANCE), (150.0, KINDS.len()), (41.0, ORDER), (1000.0, ORDER)] {
            let mut asked = Vec::new();
            let (points, best) = highest(&mut |rate, number| {
                assert_eq!(number as usize, asked.len());
                asked.push(rate);
                Ok(point(rate, limit, slow))
            })
            .unwrap();
            assert_eq!(points.iter().map(|point| point.rate).collect::<Vec<_>>(), asked);
            // What clients get without a rate: 800 requests, of which every fourth is a dealer's.
            let expected = STEPS.iter().map(|step| step * 200.0).filter(|rate| *rate <= limit).fold(0.0, f64::max);
            assert_eq!(points[best].rate, Some(expected), "{limit} {slow}: {asked:?}");
            assert!(points[best].fault().is_none());
            let wrongly =
                points[1..].iter().filter(|point| point.fault().is_none() != point.rate.is_some_and(|r| r <= limit));
            assert_eq!(wrongly.count(), 0);
        }
        let none = highest(&mut |rate, _| Ok(point(rate, 1.0, ORDER))).err().unwrap().to_string();
        assert_eq!(none, "No injection rate conforms: the 90th percentile of `Order` is 4.00 s, above 2 s");
        let none = highest(&mut |rate, _| Ok(point(rate, 1.0, KINDS.len()))).err().unwrap().to_string();
        assert_eq!(
            none,
            "No injection rate conforms: 161 requests waited at the end of a window in which 8000 were answered"
        );
        let failed = highest(&mut |rate, _| match rate {
            None => Ok(point(rate, 1.0, ORDER)),
            Some(_) => bail!("Tomcat ended"),
        });
        assert_eq!(failed.err().unwrap().to_string(), "Tomcat ended");
    }
}
