//! The metrics of `multiuser`: the declarations of each mode, and their values.
//!
//! Invariant: the declarations depend only on the options, and each metric has a value after every run.

use std::collections::BTreeMap;

use super::curve::{Curve, LoadPoint, POINTS_TO_FIT};
use super::options::{Load, Mode, Settings};
use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_model::workload::Window;

pub const PEAK: &str = "peak-jobs-per-minute";
pub const GEOMEAN: &str = "geomean";
const RATE: &str = "rate";

fn metric(name: &str, unit: Unit, better: Better, kind: Kind, summary: &str) -> MetricDef {
    MetricDef {
        name: name.to_owned(),
        unit,
        better,
        kind,
        primary: [PEAK, GEOMEAN].contains(&name),
        summary: summary.to_owned(),
    }
}

/// The declared metrics.
pub fn of(settings: &Settings) -> Vec<MetricDef> {
    match settings.mode {
        Mode::Single => single(settings),
        Mode::Multi => multi(settings),
    }
}

fn multi(settings: &Settings) -> Vec<MetricDef> {
    use Better::{Higher, Lower};
    let percent = Unit::named("%");
    let mut all =
        vec![metric(PEAK, Unit::JobsPerMinute, Higher, Kind::Throughput, "The highest rate of all load points")];
    let users: &[u32] = match &settings.load {
        Load::List(users) => users,
        Load::Ramp(_) => &[],
    };
    all.extend(users.iter().map(|n| {
        let summary = format!("Tests per minute that {n} users do together");
        metric(&format!("{RATE}-{n}"), Unit::JobsPerMinute, Higher, Kind::Throughput, &summary)
    }));
    all.extend([
        metric("timing-index", percent, Higher, Kind::Usage, "Job timing index at the peak: 100 minus the coefficient of variation of the users' times"),
        metric("beyond-peak", percent, Higher, Kind::Amount, "Area under the curve beyond the peak, relative to the area if the peak's rate held; 100 if the peak is the last point"),
        metric("cpu-per-job", Unit::Ns, Lower, Kind::Cost, "CPU time of a test, over all points"),
        metric("cpu-user", Unit::Ns, Lower, Kind::Usage, "CPU time of a test in user mode"),
        metric("cpu-system", Unit::Ns, Lower, Kind::Usage, "CPU time of a test in the kernel"),
        metric("memory-per-child", Unit::Bytes, Lower, Kind::Usage, "Memory of a user's process before its first test, with page tables and kernel structures, at the point with the most users"),
    ]);
    if users.len() >= POINTS_TO_FIT {
        let millionths = Unit::named("millionths");
        all.extend([
            metric(
                "usl-lambda",
                Unit::JobsPerMinute,
                Higher,
                Kind::Throughput,
                "Universal Scalability Law: the rate of one user",
            ),
            metric("usl-sigma", millionths, Lower, Kind::Usage, "Universal Scalability Law: contention"),
            metric("usl-kappa", millionths, Lower, Kind::Usage, "Universal Scalability Law: coherency"),
        ]);
    }
    all
}

fn single(settings: &Settings) -> Vec<MetricDef> {
    let unit = Unit::OperationsPerSecond;
    let geomean =
        metric(GEOMEAN, unit, Better::Higher, Kind::Throughput, "Geometric mean of all tests' operations per second");
    // Named as in workfiles.
    let tests = settings.mix.tests().map(|test| {
        let summary = format!("{}; counted in {}", test.summary, test.unit);
        metric(test.name, unit, Better::Higher, Kind::Throughput, &summary)
    });
    std::iter::once(geomean).chain(tests).collect()
}

/// The metrics that each load point explains: its own rate, and the peak.
pub fn windows(settings: &Settings, curve: &Curve) -> Vec<Window> {
    let peak = curve.peak().users;
    let window = |point: &LoadPoint| {
        let own = matches!(settings.load, Load::List(_)).then(|| format!("{RATE}-{}", point.users));
        let metrics = own.into_iter().chain((point.users == peak).then(|| PEAK.to_owned())).collect();
        Window { metrics, operations: u64::from(point.jobs) * u64::from(point.users), ns: point.elapsed_ns }
    };
    curve.points.iter().map(window).collect()
}

/// The values of a run with many users.
pub fn values(settings: &Settings, curve: &Curve) -> BTreeMap<String, f64> {
    let peak = curve.peak();
    let (user, system) = curve.cpu_ns_per_job();
    let mut values = BTreeMap::from([
        (PEAK.to_owned(), peak.rate()),
        ("timing-index".to_owned(), peak.spread.timing_index()),
        ("beyond-peak".to_owned(), curve.held_beyond_peak()),
        ("cpu-per-job".to_owned(), user + system),
        ("cpu-user".to_owned(), user),
        ("cpu-system".to_owned(), system),
        ("memory-per-child".to_owned(), curve.memory_per_child()),
    ]);
    if let Load::List(users) = &settings.load {
        values.extend(curve.points.iter().map(|p| (format!("{RATE}-{}", p.users), p.rate())));
        if users.len() >= POINTS_TO_FIT
            && let Some(law) = curve.law()
        {
            values.insert("usl-lambda".to_owned(), law.lambda);
            values.insert("usl-sigma".to_owned(), law.sigma * 1e6);
            values.insert("usl-kappa".to_owned(), law.kappa * 1e6);
        }
    }
    values
}
