//! Simulated shares against promised ones.
//!
//! Invariant: a promise is allowed three Monte-Carlo standard errors, computed at the promised share; four in a smoke run, because one of its hundreds
//! of checks would often miss three by chance.

use anyhow::bail;

use super::replicate::Tally;

/// The share of replicates with a property.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Share {
    hits: u64,
    of: u64,
}

impl Tally for Share {
    fn merge(&mut self, other: Share) {
        self.hits += other.hits;
        self.of += other.of;
    }
}

impl Share {
    pub(super) fn count(&mut self, hit: bool) {
        self.hits += u64::from(hit);
        self.of += 1;
    }

    pub(super) fn rate(self) -> f64 {
        self.hits as f64 / self.of as f64
    }

    pub(super) fn percent(self) -> String {
        format!("{:.1}", 100.0 * self.rate())
    }

    fn standard_error(self, promised: f64) -> f64 {
        (promised * (1.0 - promised) / self.of as f64).sqrt()
    }
}

pub(super) struct Checks {
    /// Standard errors that a promise is allowed.
    allowed: f64,
    made: usize,
    misses: Vec<String>,
}

impl Checks {
    pub(super) fn new(is_smoke: bool) -> Self {
        Self { allowed: if is_smoke { 4.0 } else { 3.0 }, made: 0, misses: Vec::new() }
    }

    pub(super) fn at_most(&mut self, what: &str, share: Share, promised: f64) {
        self.check(share.rate() <= promised + self.allowed * share.standard_error(promised), || {
            format!("{what}: {} %, promised at most {} %", share.percent(), 100.0 * promised)
        });
    }

    pub(super) fn at_least(&mut self, what: &str, share: Share, promised: f64) {
        self.check(share.rate() >= promised - self.allowed * share.standard_error(promised), || {
            format!("{what}: {} %, promised at least {} %", share.percent(), 100.0 * promised)
        });
    }

    /// Within `points` (a share) of the promise.
    pub(super) fn near(&mut self, what: &str, share: Share, promised: f64, points: f64) {
        self.check((share.rate() - promised).abs() <= points + self.allowed * share.standard_error(promised), || {
            format!("{what}: {} %, promised {} % ± {}", share.percent(), 100.0 * promised, 100.0 * points)
        });
    }

    /// A mean of `of` values in 0..1 whose standard deviation is `sd`.
    pub(super) fn mean_at_most(&mut self, what: &str, mean: f64, sd: f64, of: u64, promised: f64) {
        self.check(mean <= promised + self.allowed * sd / (of as f64).sqrt(), || {
            format!("{what}: {:.2} %, promised at most {} %", 100.0 * mean, 100.0 * promised)
        });
    }

    /// Exact: no allowance.
    pub(super) fn holds(&mut self, what: &str, holds: bool) {
        self.check(holds, || what.to_owned());
    }

    fn check(&mut self, holds: bool, miss: impl FnOnce() -> String) {
        self.made += 1;
        if !holds {
            self.misses.push(miss());
        }
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        println!("\n{} checks, {} misses", self.made, self.misses.len());
        for miss in &self.misses {
            println!("  {miss}");
        }
        if !self.misses.is_empty() {
            bail!("{} of {} promises of the statistics are not kept", self.misses.len(), self.made);
        }
        Ok(())
    }
}
