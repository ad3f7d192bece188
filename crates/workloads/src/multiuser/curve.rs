//! The curve of jobs per minute over users: its points, its peak, and the rate beyond the peak.
//!
//! Invariant: points are in the order of their users, and there is at least one.

use std::collections::BTreeMap;

use bigiron_stats::usl::Usl;

use super::rates::{self, Spread};

/// A completed load point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadPoint {
    pub users: u32,
    /// Tests that each user ran.
    pub jobs: u32,
    /// From the release of all users until the last one has been reaped.
    pub elapsed_ns: u64,
    /// The users' times.
    pub spread: Spread,
    /// CPU time of all users.
    pub user_ns: u64,
    pub system_ns: u64,
    /// Memory of all users' processes just before the start.
    pub memory_bytes: u64,
    /// Size of each user's file.
    pub file_bytes: u64,
}

impl LoadPoint {
    /// Jobs per minute of all users.
    pub fn rate(&self) -> f64 {
        rates::jobs_per_minute(self.jobs, self.users, self.elapsed_ns)
    }

    /// Jobs of all users.
    fn jobs_of_all(&self) -> f64 {
        f64::from(self.jobs) * f64::from(self.users)
    }
}

/// The points of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    pub points: Vec<LoadPoint>,
}

/// Minimum number of points for comparing the parameters of a fit.
pub const POINTS_TO_FIT: usize = 6;

impl Curve {
    /// The point of the highest rate; of several, the one with the fewest users.
    pub fn peak(&self) -> &LoadPoint {
        let better = |best: &'_ LoadPoint, next: &'_ LoadPoint| next.rate() > best.rate();
        self.points
            .iter()
            .reduce(|best, next| if better(best, next) { next } else { best })
            .expect("a curve has a point")
    }

    fn largest(&self) -> &LoadPoint {
        self.points.last().expect("a curve has a point")
    }

    /// The area under the curve from its peak to its end, in jobs per minute times users, by trapezia.
    pub fn area_beyond_peak(&self) -> f64 {
        let peak = self.peak().users;
        let beyond: Vec<_> = self.points.iter().filter(|p| p.users >= peak).collect();
        let between =
            |two: &[&LoadPoint]| (two[0].rate() + two[1].rate()) / 2.0 * f64::from(two[1].users - two[0].users);
        // The sum of nothing is a negative zero.
        beyond.windows(2).map(between).sum::<f64>() + 0.0
    }

    /// That area in per cent of the area if the peak's rate held to the end; 100 if the peak is the end.
    pub fn held_beyond_peak(&self) -> f64 {
        let peak = self.peak();
        let width = f64::from(self.largest().users - peak.users);
        if width > 0.0 { 100.0 * self.area_beyond_peak() / (peak.rate() * width) } else { 100.0 }
    }

    /// The Universal Scalability Law fitted to all points.
    pub fn law(&self) -> Option<Usl> {
        Usl::fit(&self.points.iter().map(|p| (f64::from(p.users), p.rate())).collect::<Vec<_>>())
    }

    /// CPU time per job over all points, user and system, in nanoseconds.
    pub fn cpu_ns_per_job(&self) -> (f64, f64) {
        let jobs: f64 = self.points.iter().map(LoadPoint::jobs_of_all).sum();
        let sum = |of: fn(&LoadPoint) -> u64| self.points.iter().map(|p| of(p) as f64).sum::<f64>() / jobs;
        (sum(|p| p.user_ns), sum(|p| p.system_ns))
    }

    /// Bytes of memory of each user's process, at the point with the most users.
    pub fn memory_per_child(&self) -> f64 {
        let point = self.largest();
        point.memory_bytes as f64 / f64::from(point.users)
    }

    /// The curve and its derived figures, as facts.
    pub fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        let mut fact = |name: &str, value: String| facts.insert(name.to_owned(), value);
        for p in &self.points {
            let seconds = |ns: f64| format!("{:.4}", ns / 1e9);
            let line = format!(
                "{:.2} jobs/min; {:.2} of each; {} s; user {} s, system {} s; deviation {} s, {:.2} %; JTI {:.2} %; shortest {} s, longest {} s; files of {} KiB",
                p.rate(),
                p.rate() / f64::from(p.users),
                seconds(p.elapsed_ns as f64),
                seconds(p.user_ns as f64),
                seconds(p.system_ns as f64),
                seconds(p.spread.deviation_ns),
                100.0 * p.spread.variation(),
                p.spread.timing_index(),
                seconds(p.spread.shortest_ns as f64),
                seconds(p.spread.longest_ns as f64),
                p.file_bytes / 1024
            );
            // Leading zeros, so that names sort like numbers.
            fact(&format!("users.{:07}", p.users), line);
        }
        fact("peak-users", self.peak().users.to_string());
        fact("area-beyond-peak", format!("{:.0} jobs/min x users", self.area_beyond_peak()));
        fact("jobs-per-user", self.largest().jobs.to_string());
        if let Some(law) = self.law() {
            let peak = if law.peak().is_finite() { format!("{:.1} users", law.peak()) } else { "nowhere".to_owned() };
            let line = format!(
                "lambda {:.2} jobs/min, sigma {:.6}, kappa {:.8}, peak at {peak}, residual {:.2} %",
                law.lambda,
                law.sigma,
                law.kappa,
                100.0 * law.residual
            );
            fact("scalability-law", line);
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A curve of these rates with one job per user, so that the time determines the rate.
    fn curve(rates: &[(u32, f64)]) -> Curve {
        let point = |(users, rate): &(u32, f64)| LoadPoint {
            users: *users,
            jobs: 100,
            elapsed_ns: (60.0 * 100.0 * f64::from(*users) / rate * 1e9).round() as u64,
            user_ns: u64::from(*users) * 300,
            system_ns: u64::from(*users) * 100,
            memory_bytes: u64::from(*users) * 50_000,
            ..LoadPoint::default()
        };
        Curve { points: rates.iter().map(point).collect() }
    }

    #[test]
    fn a_curve_has_a_peak_and_an_area_beyond() {
        let curve = curve(&[(1, 100.0), (2, 200.0), (4, 400.0), (8, 300.0), (16, 100.0)]);
        assert_eq!(curve.peak().users, 4);
        // 4 · 350 + 8 · 200 = 3000 of 12 · 400 = 4800.
        assert!((curve.area_beyond_peak() - 3000.0).abs() < 1e-3);
        assert!((curve.held_beyond_peak() - 62.5).abs() < 1e-4);
        assert_eq!(curve.cpu_ns_per_job(), (3.0, 1.0));
        assert_eq!(curve.memory_per_child(), 50_000.0);
        let facts = curve.facts();
        assert!(facts["users.0000004"].starts_with("400.00 jobs/min; 100.00 of each; 60.0000 s;"), "{facts:?}");
        assert_eq!((facts["peak-users"].as_str(), facts["jobs-per-user"].as_str()), ("4", "100"));
        assert!(facts["scalability-law"].starts_with("lambda "), "{facts:?}");
    }

    #[test]
    fn a_peak_at_the_end_holds_and_the_first_of_equals_counts() {
        assert_eq!(curve(&[(1, 100.0), (2, 200.0)]).held_beyond_peak(), 100.0);
        assert_eq!(curve(&[(1, 100.0), (2, 200.0)]).area_beyond_peak(), 0.0);
        let flat = curve(&[(1, 100.0), (2, 100.0)]);
        assert_eq!(flat.peak().users, 1);
        assert!((flat.held_beyond_peak() - 100.0).abs() < 1e-6);
        assert!(!flat.facts().contains_key("scalability-law"));
    }
}
