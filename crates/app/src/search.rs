//! The search for the highest injection rate that conforms.
//!
//! Invariant: no rate is tried twice, and the search ends.

/// Rates that are tried, as parts of what clients get without a rate.
const STEPS: [f64; 15] = [0.2, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15];

/// A bisection: rates below `low` conform, those from `high` on do not.
pub struct Search {
    capacity: f64,
    low: usize,
    high: usize,
}

impl Search {
    /// With what clients get without a rate.
    pub fn new(capacity: f64) -> Self {
        Self { capacity, low: 0, high: STEPS.len() }
    }

    /// The next rate to try; `None` if the answer is known.
    pub fn next(&self) -> Option<f64> {
        (self.low < self.high).then(|| self.capacity * STEPS[self.middle()])
    }

    /// Whether that rate conforms.
    pub fn tell(&mut self, conforms: bool) {
        let middle = self.middle();
        if conforms { self.low = middle + 1 } else { self.high = middle }
    }

    fn middle(&self) -> usize {
        self.low.midpoint(self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
