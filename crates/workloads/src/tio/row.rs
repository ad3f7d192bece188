//! A row of the table: one phase with one number of threads.

use std::fmt;

use super::options::Settings;
use bigiron_sys::load::Histogram;
use bigiron_sys::load::worker_group::StageCost;

/// The work of a phase, and its cost.
pub struct Row<'a> {
    pub settings: &'a Settings,
    pub stage: StageCost,
    pub latency: Histogram,
}

impl Row<'_> {
    /// Bytes per second of all threads together, until the last one was done.
    pub fn bytes_per_second(&self) -> f64 {
        self.latency.count() as f64 * self.settings.block as f64 * 1e9 / self.stage.ns as f64
    }

    /// CPU time of the threads in per cent of the phase's time: 200 for two busy threads.
    pub fn cpu_percent(&self) -> f64 {
        100.0 * self.stage.cpu_ns as f64 / self.stage.ns as f64
    }

    /// Share of operations, in per cent, that took longer than this many seconds.
    fn slower_percent(&self, seconds: u64) -> f64 {
        let slow: u64 =
            self.latency.buckets().1.iter().filter(|(ns, _)| *ns > seconds * 1_000_000_000).map(|(_, n)| n).sum();
        100.0 * slow as f64 / self.latency.count().max(1) as f64
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.bytes_per_second() / 1e6;
        let ms = |ns: f64| ns / 1e6;
        write!(f, "{megabytes:.2} MB/s, {:.1} % CPU, ", self.cpu_percent())?;
        write!(f, "mean {:.3} ms, ", ms(self.latency.mean().unwrap_or(0.0)))?;
        write!(f, "longest {:.3} ms, ", ms(self.latency.max().unwrap_or(0) as f64))?;
        write!(f, "{:.5} % > 2 s, {:.5} % > 10 s, ", self.slower_percent(2), self.slower_percent(10))?;
        write!(f, "{:.1} MB/s per CPU", megabytes / (self.cpu_percent() / 100.0).max(1e-9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_model::clock::Clock;
    use bigiron_model::workload::Options;

    #[test]
    fn a_row_says_all_that_the_table_has() {
        let mut latency = Histogram::new();
        (0..98).for_each(|_| latency.record(1_000_000));
        latency.record(3_000_000_000);
        latency.record(11_000_000_000);
        let settings = Settings::parse(&Options::new(), Clock::Exact).unwrap();
        let stage = StageCost { ns: 100_000_000, cpu_ns: 50_000_000 };
        let row = Row { settings: &settings, stage, latency };
        let text = row.to_string();
        assert!(text.starts_with("4.10 MB/s, 50.0 % CPU, mean 140.980 ms, longest 11"), "{text}");
        assert!(text.ends_with("2.00000 % > 2 s, 1.00000 % > 10 s, 8.2 MB/s per CPU"), "{text}");
    }
}
