//! A latency histogram of nanoseconds.
//!
//! Invariant: a quantile is off by at most 0.1 % of its value, the mean is exact, and no value is too large to be counted.

use hdrhistogram::Histogram as Hdr;

/// Latencies in nanoseconds, in buckets of three significant digits.
#[derive(Clone, Debug)]
pub struct Histogram {
    hdr: Hdr<u64>,
    sum: u128,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram that grows with the values it is given.
    pub fn new() -> Self {
        Self { hdr: Hdr::new(3).expect("three digits are allowed"), sum: 0 }
    }

    /// Counts one latency.
    pub fn record(&mut self, ns: u64) {
        self.add(ns, 1);
        self.sum += u128::from(ns);
    }

    /// Counts `count` latencies near `ns`, without their sum.
    pub(super) fn add(&mut self, ns: u64, count: u64) {
        self.hdr.record_n(ns, count).expect("the histogram grows by itself");
    }

    pub(super) fn set_sum(&mut self, sum: u128) {
        self.sum = sum;
    }

    /// Adds what another histogram has counted.
    pub fn merge(&mut self, other: &Self) {
        self.hdr.add(&other.hdr).expect("the histogram grows by itself");
        self.sum += other.sum;
    }

    /// Everything that was counted, for [`Histogram::of_buckets`]: the exact sum, and values with their counts.
    pub fn buckets(&self) -> (u128, Vec<(u64, u64)>) {
        (self.sum, self.hdr.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect())
    }

    /// The histogram with the content that [`Histogram::buckets`] returned.
    pub fn of_buckets(sum: u128, buckets: &[(u64, u64)]) -> Self {
        let mut histogram = Self::new();
        buckets.iter().for_each(|(ns, count)| histogram.add(*ns, *count));
        histogram.sum = sum;
        histogram
    }

    /// Number of counted latencies.
    pub fn count(&self) -> u64 {
        self.hdr.len()
    }

    /// Arithmetic mean in nanoseconds, exact; `None` if nothing was counted.
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum as f64 / self.count() as f64)
    }

    /// The latency in nanoseconds that a share `q` (0 to 1) of all latencies does not exceed; `None` if nothing was counted.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.hdr.value_at_quantile(q))
    }

    /// The longest latency, to bucket precision; `None` if nothing was counted.
    pub fn max(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.hdr.max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_counted_has_no_quantile() {
        let h = Histogram::new();
        assert_eq!((h.count(), h.mean(), h.quantile(0.5), h.max()), (0, None, None, None));
    }

    proptest! {
        #[test]
        fn quantiles_are_near_the_sorted_list(mut values in prop::collection::vec(1u64..100_000_000_000, 1..400), q in 0.0f64..1.0) {
            let mut halves = [Histogram::new(), Histogram::new()];
            for (i, v) in values.iter().enumerate() {
                halves[i % 2].record(*v);
            }
            let [mut all, other] = halves;
            let (sum, buckets) = other.buckets();
            let again = Histogram::of_buckets(sum, &buckets);
            prop_assert_eq!((again.max(), again.quantile(q), again.mean()), (other.max(), other.quantile(q), other.mean()));
            all.merge(&again);
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1] as f64;
            prop_assert!((all.quantile(q).unwrap() as f64 / exact - 1.0).abs() <= 0.001);
            let mean = values.iter().map(|v| u128::from(*v)).sum::<u128>() as f64 / values.len() as f64;
            prop_assert_eq!(all.mean().unwrap(), mean);
        }
    }
}
