//! A ramp of users: the number of users of each point, and the end. The rules are those of ReAIM 7 (osdl-aim-7 7.0.1.13).
//!
//! Invariant: the next point depends only on the points so far, and it always has more users.

use super::rates;

/// Number of initial points with an unchanged increment.
const STEADY_POINTS: u32 = 9;
/// Number of points used to guess a peak.
const WINDOW: usize = 5;

/// The parameters of a ramp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Users of the first point.
    pub start: u32,
    /// The first increment.
    pub increment: u32,
    /// Maximum users of a point.
    pub end: Option<u32>,
    /// Whether the increment adapts to the times of the points.
    pub adaptive: bool,
    /// Ends when the jobs per minute of each user fall to this.
    pub crossover: Option<f64>,
    /// Ends when the rate falls, or no longer rises.
    pub guess_peak: bool,
}

/// Why a ramp ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampEnd {
    /// The maximum number of users.
    Users,
    Crossover,
    /// Lower than before, and more than 1 % below the mean of five points.
    Falling,
    /// Five points within 1 %.
    Steady,
}

impl RampEnd {
    pub fn name(self) -> &'static str {
        match self {
            RampEnd::Users => "end",
            RampEnd::Crossover => "crossover",
            RampEnd::Falling => "rate falls",
            RampEnd::Steady => "rate is steady",
        }
    }
}

/// A ramp in progress.
#[derive(Clone, Debug)]
pub struct Ramp {
    spec: Spec,
    users: u32,
    increment: u32,
    points: u32,
    /// Elapsed time of the last two points, the newest first.
    elapsed: [f64; 2],
    /// Jobs per minute of the last points, the newest first; 0 where there was none.
    rates: [f64; WINDOW],
}

impl Ramp {
    pub fn new(spec: Spec) -> Self {
        let users = spec.start.max(1);
        Self { spec, users, increment: spec.increment.max(1), points: 0, elapsed: [0.0; 2], rates: [0.0; WINDOW] }
    }

    /// Users of the next point.
    pub fn users(&self) -> u32 {
        self.users
    }

    /// Records the time of the point, with `jobs` of each user, and advances to the next one.
    ///
    /// # Errors
    /// Why there is no next point.
    pub fn step(&mut self, jobs: u32, elapsed_ns: u64) -> Result<(), RampEnd> {
        let rate = rates::jobs_per_minute(jobs, self.users, elapsed_ns);
        self.points += 1;
        self.elapsed = [elapsed_ns as f64, self.elapsed[0]];
        self.rates.rotate_right(1);
        self.rates[0] = rate;
        if self.spec.end.is_some_and(|end| self.users >= end) {
            return Err(RampEnd::Users);
        }
        if self.spec.crossover.is_some_and(|least| rates::jobs_per_minute_each(jobs, elapsed_ns) <= least) {
            return Err(RampEnd::Crossover);
        }
        if self.spec.guess_peak
            && let Some(end) = guess(&self.rates)
        {
            return Err(end);
        }
        if self.spec.adaptive {
            self.increment = self.next_increment(rate);
        }
        self.users = self.users.saturating_add(self.increment);
        if self.spec.end.is_some_and(|end| self.users > end) { Err(RampEnd::Users) } else { Ok(()) }
    }

    fn next_increment(&self, rate: f64) -> u32 {
        if self.points <= STEADY_POINTS {
            return self.increment;
        }
        let (users, increment) = (f64::from(self.users), f64::from(self.increment));
        // Close to one job per minute for each user, at half-way to the crossover.
        if (rate - users) / users <= 0.10 {
            return ((rate - users) / 2.0).max(1.0) as u32;
        }
        let [newest, before] = self.elapsed;
        let before = if before > 0.0 { before } else { 1.0 };
        let factor = 2.0 / (before / ((newest + before) / 2.0));
        let next = match newest / before {
            ratio if ratio < 1.20 => increment * factor,
            ratio if ratio > 1.30 => increment / factor,
            _ => increment,
        };
        if next < 1.0 { self.increment } else { next as u32 }
    }
}

/// Whether the last points are a peak; never with fewer than five.
fn guess(rates: &[f64; WINDOW]) -> Option<RampEnd> {
    if rates[WINDOW - 1] <= 0.0 {
        return None;
    }
    let n = WINDOW as f64;
    let mean = rates.iter().sum::<f64>() / n;
    if rates[0] < rates[1] && (mean - rates[0]) / mean > 0.01 {
        return Some(RampEnd::Falling);
    }
    let deviation = (rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / n).sqrt();
    (deviation / mean < 0.01).then_some(RampEnd::Steady)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: Spec = Spec { start: 2, increment: 2, end: None, adaptive: true, crossover: None, guess_peak: false };
    const SECOND: u64 = 1_000_000_000;

    /// The users of a ramp's points (at most `most`) whose times are given by `elapsed`, and why it ended.
    fn climb(spec: Spec, most: usize, elapsed: impl Fn(u32) -> u64) -> (Vec<u32>, Option<RampEnd>) {
        let (mut ramp, mut seen) = (Ramp::new(spec), Vec::new());
        while seen.len() < most {
            seen.push(ramp.users());
            if let Err(end) = ramp.step(100, elapsed(ramp.users())) {
                return (seen, Some(end));
            }
        }
        (seen, None)
    }

    #[test]
    fn it_ends_with_the_users_that_were_asked_for() {
        let ends = |end| climb(Spec { end: Some(end), ..SPEC }, 100, |_| SECOND);
        assert_eq!(ends(6), (vec![2, 4, 6], Some(RampEnd::Users)));
        assert_eq!(ends(7), (vec![2, 4, 6], Some(RampEnd::Users)));
        assert_eq!(ends(1), (vec![2], Some(RampEnd::Users)));
    }

    #[test]
    fn nine_points_keep_the_increment() {
        // Constant time: r = 1, mean = time, so from the tenth point on the increment doubles each time.
        let (users, _) = climb(SPEC, 13, |_| SECOND);
        assert_eq!(users, [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 32, 48]);
        let (users, _) = climb(Spec { adaptive: false, ..SPEC }, 13, |_| SECOND);
        assert_eq!(users[12], 26);
    }

    #[test]
    fn the_increment_follows_the_time() {
        let next = |increment, newest, before, rate| {
            let ramp = Ramp { increment, points: 10, users: 100, elapsed: [newest, before], ..Ramp::new(SPEC) };
            ramp.next_increment(rate)
        };
        // r = 1.1 < 1.2: 10 · 2 / (10 / 10.5) = 21.
        assert_eq!(next(10, 11.0, 10.0, 1e6), 21);
        // Between: unchanged.
        assert_eq!(next(10, 12.5, 10.0, 1e6), 10);
        // r = 2 > 1.3: 10 / (2 / (10 / 15)) = 10 / 3.
        assert_eq!(next(10, 20.0, 10.0, 1e6), 3);
        // Below 1 the previous one is kept: 1 / 3.
        assert_eq!(next(1, 20.0, 10.0, 1e6), 1);
        // (110 - 100)/100 is 10 %: half of 10. At 101 half of 1 is less than 1.
        assert_eq!(next(10, 11.0, 10.0, 110.0), 5);
        assert_eq!(next(10, 11.0, 10.0, 101.0), 1);
        assert_eq!(next(10, 11.0, 10.0, 50.0), 1);
    }

    #[test]
    fn a_crossover_is_a_rate_of_one_user() {
        // 6000 jobs per minute and second: with n seconds for n users each gets 6000/n.
        let spec = Spec { crossover: Some(1000.0), adaptive: false, ..SPEC };
        assert_eq!(climb(spec, 100, |n| u64::from(n) * SECOND), (vec![2, 4, 6], Some(RampEnd::Crossover)));
    }

    #[test]
    fn a_peak_is_guessed_from_five_points() {
        let spec = Spec { start: 1, increment: 1, guess_peak: true, ..SPEC };
        // n users in n seconds: the rate is constant over five points.
        assert_eq!(climb(spec, 100, |n| u64::from(n) * SECOND), (vec![1, 2, 3, 4, 5], Some(RampEnd::Steady)));
        // The rate doubles up to six users and then falls to a half.
        let falling = |n| if n < 6 { SECOND } else { 12 * SECOND };
        assert_eq!(climb(spec, 100, falling), (vec![1, 2, 3, 4, 5, 6], Some(RampEnd::Falling)));
        // Fewer than five points do not allow a guess.
        assert_eq!(guess(&[1.0, 2.0, 3.0, 4.0, 0.0]), None);
        // 99 is 1.4 % below the mean of 100.4.
        assert_eq!(guess(&[99.0, 102.0, 101.0, 100.0, 100.0]), Some(RampEnd::Falling));
        // 104 is below 107 and yet above the mean of 102.8; the deviation is 4.0 %.
        assert_eq!(guess(&[104.0, 107.0, 107.0, 99.0, 97.0]), None);
    }
}
