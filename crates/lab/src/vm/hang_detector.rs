//! How long a trial may go without a sign of progress.
//!
//! Invariant: a trial hangs by CPU time, not wall time, so that a busy machine is not mistaken for a trial that hangs. Time in which this
//! process did not run either (it was stopped, or the machine slept) is no silence of the trial.

use std::time::{Duration, Instant};

/// CPU seconds that a trial may use in all, by hang limit: a trial that always shows progress ends too. By default 33 hours of
/// every CPU, more than any job is made for.
const TOTAL_FACTOR: u32 = 1000;

/// Decides whether a trial has hung.
pub struct HangDetector {
    limit_s: u32,
    idle: Duration,
    /// CPU seconds used so far, and at the last sign of progress.
    cpu: f64,
    cpu_at_progress: f64,
    progress: Instant,
    /// When it was last looked, and the silence until then.
    looked: Instant,
    silent: Duration,
}

/// The longest time between two looks that counts as silence. Looks are 10 ms apart, or a second; more is a pause of this process.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

impl HangDetector {
    /// A trial hangs if it uses `limit_s` CPU seconds without progress, or if it shows none for the wall time `idle` and uses
    /// (almost) no CPU: it is asleep with nothing to wake it.
    pub fn new(limit_s: u32, idle: Duration) -> Self {
        let now = Instant::now();
        Self { limit_s, idle, cpu: 0.0, cpu_at_progress: 0.0, progress: now, looked: now, silent: Duration::ZERO }
    }

    /// A sign of progress.
    pub fn progressed(&mut self) {
        self.progress = Instant::now();
        (self.looked, self.silent) = (self.progress, Duration::ZERO);
        self.cpu_at_progress = self.cpu;
    }

    /// The wall time since the last sign of progress.
    pub fn silence(&self) -> Duration {
        self.progress.elapsed()
    }

    /// Counts CPU time from here on: `cpu` seconds were used before anybody measured.
    pub fn measure_from(&mut self, cpu: f64) {
        self.cpu = cpu;
        self.cpu_at_progress = cpu;
    }

    /// Why the trial counts as hung, given the CPU seconds it has used; `None` while it does not.
    pub fn hung(&mut self, cpu: Option<f64>, doing: &str) -> Option<String> {
        self.cpu = cpu.unwrap_or(self.cpu);
        let used = self.cpu - self.cpu_at_progress;
        let limit = f64::from(self.limit_s);
        if used > limit {
            return Some(format!("No progress for {used:.0} CPU seconds (limit {limit:.0}) {doing}"));
        }
        let total = limit * f64::from(TOTAL_FACTOR);
        if self.cpu > total {
            return Some(format!("No end after {:.0} CPU seconds (limit {total:.0}) {doing}", self.cpu));
        }
        self.look(Instant::now());
        if self.silent > self.idle && used < limit / 10.0 {
            return Some(format!("No progress and no CPU used for {} s {doing}", self.silent.as_secs()));
        }
        None
    }

    fn look(&mut self, now: Instant) {
        self.silent += now.saturating_duration_since(self.looked).min(LONGEST_LOOK);
        self.looked = now;
    }

    /// CPU seconds used when last measured.
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_this_process_is_no_silence_of_the_trial() {
        let mut detector = HangDetector::new(10, Duration::from_secs(100));
        let begun = detector.looked;
        detector.look(begun + Duration::from_secs(1));
        detector.look(begun + Duration::from_secs(86_400));
        assert_eq!(detector.silent, Duration::from_secs(1) + LONGEST_LOOK);
        assert_eq!(detector.hung(Some(0.0), ""), None);
    }

    #[test]
    fn a_trial_hangs_by_cpu_time_or_by_using_none() {
        let mut detector = HangDetector::new(10, Duration::from_secs(3600));
        detector.measure_from(100.0);
        assert_eq!(detector.hung(Some(109.0), ""), None);
        detector.progressed();
        assert_eq!(detector.hung(Some(118.5), ""), None, "progress at 109 s");
        let why = detector.hung(Some(119.75), "in `micro`").expect("10.75 s without progress");
        assert_eq!(why, "No progress for 11 CPU seconds (limit 10) in `micro`");

        let mut detector = HangDetector::new(10, Duration::from_secs(3600));
        for cpu in 0..=1000 {
            assert_eq!(detector.hung(Some(f64::from(cpu) * 10.0), ""), None);
            detector.progressed();
        }
        let why = detector.hung(Some(10_001.0), "in `micro`").expect("1000 limits are over");
        assert_eq!(why, "No end after 10001 CPU seconds (limit 10000) in `micro`");

        let mut detector = HangDetector::new(10, Duration::ZERO);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(detector.hung(Some(2.0), ""), None, "it works");
        detector.measure_from(2.0);
        assert!(detector.hung(Some(2.5), "").is_some_and(|why| why.starts_with("No progress and no CPU used")));
    }
}
