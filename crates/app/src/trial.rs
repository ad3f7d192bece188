//! A trial: its points, the sums before and after them, and its facts.

use std::collections::BTreeMap;

use anyhow::{Context as _, Error, Result, bail};

use bigiron_model::workload::Window;
use bigiron_probe::counters::span;
use bigiron_probe::symbols;
use bigiron_service::java::heap_is_full;
use bigiron_sys::network::Wiring;
use bigiron_web::call::CallTally;
use bigiron_web::document::Documents;
use bigiron_web::driver::{self, Drive, Work};
use bigiron_workload::run_control::{RunLength, RunMoment};
use bigiron_workload::units::print_duration;
use bigiron_workload::{Context, EndedBadly, Progress, Running, WorkloadResult, WrongData};

use crate::calls::{KINDS, Requests};
use crate::conditions::{self, Sums};
use crate::metrics::{OPERATIONS, Point};
use crate::search;
use crate::settings::{Rate, ServerSettings, Settings};
use crate::tiers::Tiers;

/// A trial with its servers, which end with it.
pub struct Trial<'a> {
    pub settings: &'a Settings,
    pub tiers: Tiers,
}

impl Trial<'_> {
    /// Drives Tomcat at this rate for a window.
    fn drive(&mut self, cx: &Context<'_>, rate: Option<f64>, number: u32) -> Result<Point> {
        (cx.progress)(Progress { step: "run", done: number, of: 0 });
        let address = self.tiers.address;
        let guard = self.tiers.guard();
        let tiers = &mut self.tiers;
        let (mut before, mut after) = (Ok([0; 3]), Ok([0; 3]));
        let mut watch = |moment: RunMoment| match moment {
            RunMoment::Opened => {
                before = tiers.cpu_ns();
                span::before();
            }
            RunMoment::Closed => {
                after = tiers.cpu_ns();
                span::after();
            }
            RunMoment::Connecting | RunMoment::Sample | RunMoment::Halfway => {}
        };
        let requests = Requests { dealers: self.settings.servers.dealers };
        let driven = driver::run(Drive {
            load: &self.settings.load(rate),
            work: Work::Called(&requests),
            address,
            encryptor: None,
            host: &address.to_string(),
            wiring: &Wiring::Own,
            // Calls are for none, but a driver has some.
            documents: &Documents::single("/", Vec::new()),
            threads: cx.cpus.div_ceil(8).min(self.settings.clients),
            // Each point draws its own requests.
            seed: cx.seed.wrapping_add(u64::from(number)),
            watch: &mut watch,
        });
        span::cut();
        drop(guard);
        match driven {
            Ok(driven) => {
                let (before, after) = (before?, after?);
                let cpu = [0, 1, 2].map(|n| after[n].saturating_sub(before[n]));
                self.tiers.end().map_or(Ok(Point { rate, driven, cpu }), |error| Err(error.into()))
            }
            Err(error) => Err(self.explained(error)),
        }
    }

    /// An error of a connection, which reports only that it broke, with the tier's own explanation.
    fn explained(&mut self, error: Error) -> Error {
        match self.tiers.complaint() {
            Some(complaint) if heap_is_full(&complaint.to_string()) => {
                error.context(format!("{complaint}; increase `app.heap`"))
            }
            Some(complaint) => error.context(complaint),
            None => error,
        }
    }

    /// The points in their order, and the number of the one that counts.
    fn points(&mut self, cx: &Context<'_>) -> Result<(Vec<Point>, usize)> {
        let rate = match self.settings.rate {
            Rate::Off => None,
            Rate::Fixed(rate) => Some(rate),
            Rate::Search => return search::highest(&mut |rate, number| self.drive(cx, rate, number)),
        };
        let point = self.drive(cx, rate, 0)?;
        if let Some(fault) = point.fault() {
            bail!("The run does not conform: {fault}; lower {}", rate.map_or("`app.clients`", |_| "`app.rate`"));
        }
        Ok((vec![point], 0))
    }

    fn facts(&self, points: &[Point], best: &Point, calls: &[CallTally], checked: usize) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        let mut put = |name: &str, value: String| facts.insert(name.to_owned(), value);
        let Settings { servers, tomcat_on, database_on, clients, .. } = self.settings;
        let ServerSettings { threads, pool, session_bytes, dealers, heap_bytes, quick_compiler, .. } = *servers;
        put("server-version", self.tiers.version.clone());
        put("compilers", if quick_compiler { "c1" } else { "both" }.to_owned());
        for (name, number) in [
            ("clients", u64::from(*clients)),
            ("threads", u64::from(threads)),
            ("pool", u64::from(pool)),
            ("session-bytes", session_bytes),
            ("dealers", u64::from(dealers)),
            ("heap-bytes", heap_bytes),
            ("requests-checked", best.driven.tally.requests),
            ("conditions-checked", checked as u64),
        ] {
            put(name, number.to_string());
        }
        for (name, host) in [("tomcat-on", tomcat_on), ("database-on", database_on)] {
            if let Some(machine) = host.machine() {
                put(name, format!("ssh:{machine}"));
            }
        }
        let length = |length| match length {
            RunLength::Operations(n) => format!("{n} requests"),
            RunLength::Time(time) => print_duration(time),
        };
        put("warmup", length(self.settings.warm_up));
        put("length", length(self.settings.length));
        let rate = |rate: Option<f64>| rate.map_or("off".to_owned(), |rate| format!("{rate:.1}"));
        put("injection-rate", rate(best.rate));
        if points.len() > 1 {
            let tried = points.iter().map(|point| {
                let verdict = point.fault().map_or("conforms", |_| "does not conform");
                format!("{} {verdict}", rate(point.rate))
            });
            put("rates-tried", tried.collect::<Vec<_>>().join(", "));
        }
        put("requests-per-second", format!("{:.1}", best.requests_per_second()));
        put("backlog", best.driven.backlog.to_string());
        put("longest-queue", best.driven.longest_queue.to_string());
        put("cpu-shares", best.shares());
        let done = KINDS.iter().zip(calls).map(|(kind, calls)| format!("{} {}", kind.metric, calls.done));
        put("operations-done", done.collect::<Vec<_>>().join(", "));
        facts
    }
}

impl Running for Trial<'_> {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        let before = self.tiers.connect().and_then(|mut database| Sums::read(&mut *database));
        let before = before.map_err(|error| self.explained(error))?;
        let (points, best) = self.points(cx)?;
        // While the servers are still visible.
        let mut programs = symbols::running();
        let mut calls = vec![CallTally::default(); KINDS.len()];
        for point in &points {
            calls.iter_mut().zip(&point.driven.tally.calls).for_each(|(sum, calls)| sum.add(calls));
        }
        (cx.progress)(Progress { step: "check", done: 0, of: 0 });
        let checked = self.tiers.connect().and_then(|mut database| conditions::check(&mut *database, &before, &calls));
        let checked = checked.map_err(|error| match error.is::<WrongData>() {
            true => error,
            false => self.explained(error),
        })?;
        programs.extend(self.tiers.stop_tomcat()?);
        let window = |(n, point): (usize, &Point)| Window {
            metrics: if n == best { vec![OPERATIONS.to_owned()] } else { Vec::new() },
            operations: point.operations(),
            ns: point.driven.window_ns,
        };
        Ok(WorkloadResult {
            values: points[best].values()?,
            facts: self.facts(&points, &points[best], &calls, checked),
            windows: points.iter().enumerate().map(window).collect(),
            programs,
        })
    }

    /// The data were checked after the last window.
    fn verify(self: Box<Self>, _: &Context<'_>) -> Result<()> {
        self.tiers.close().context(EndedBadly)
    }
}
