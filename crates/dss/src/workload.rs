//! The workload `dss`: its needs, metrics and images.

use std::time::Duration;

use anyhow::Result;

use crate::settings::{self, DssEngine, OPTIONS, RunKind, Settings};
use crate::trial::Trial;
use crate::{images, metrics};
use bigiron_model::metric::MetricDef;
use bigiron_model::workload::Options;
use bigiron_sql::catalogue;
use bigiron_sql::engine::Engine;
use bigiron_workload::{
    Configured, Context, ImageContext, Images, Needs, NightlyRow, OptionDef, Running, RunsOn, Workload, check_network,
};

#[cfg(test)]
#[path = "workload_tests.rs"]
mod tests;

const MIB: u64 = 1 << 20;

/// The workload `dss`.
pub struct Dss;

impl Workload for Dss {
    fn name(&self) -> &'static str {
        "dss"
    }

    fn summary(&self) -> &'static str {
        "Decision support: 22 TPC-H-like queries on DataFusion, PostgreSQL or SQLite"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn check_dotted(&self, name: &str) -> Result<(), String> {
        settings::check_dotted(name)
    }

    fn dotted(&self) -> Vec<String> {
        catalogue::option_names().into_iter().filter(|name| name.starts_with("postgres.")).collect()
    }

    fn nightly(&self) -> &'static [NightlyRow] {
        const ROWS: &[NightlyRow] =
            &[row("sqlite", &[("engine", "sqlite")]), row("postgres", &[("engine", "postgres")])];
        ROWS
    }

    fn alone(&self, metric: &str) -> Option<(&'static str, String)> {
        let query: u8 = metric.strip_prefix('q')?.parse().ok()?;
        (metrics::of_query(query) == metric).then(|| ("queries", query.to_string()))
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Settings::parse(options)?))
    }
}

/// A nightly row for an engine.
const fn row(label: &'static str, options: &'static [(&'static str, &'static str)]) -> NightlyRow {
    NightlyRow { label, options, ..NightlyRow::PLAIN }.quick(&[("queries", "1,3,6,13,18"), ("refresh", "no")])
}

impl Settings {
    /// Approximate size of the loaded tables with their indexes, in bytes.
    pub fn data_bytes(&self) -> u64 {
        let (base, each) = match self.engine {
            DssEngine::DataFusion { .. } => (4, 450),
            DssEngine::Sql(Engine::Sqlite { .. }) => (4, 2000),
            DssEngine::Sql(_) => (64, 2600),
        };
        base * MIB + self.of_scale(each * MIB)
    }

    /// Space for changes, their log, and temporary files, in bytes.
    pub fn room(&self) -> u64 {
        let temporary = if self.run == RunKind::Spill { 4000 } else { 200 };
        let log = match (&self.engine, self.refresh) {
            (DssEngine::Sql(Engine::Postgres { .. }), true) => 256,
            (DssEngine::Sql(Engine::Postgres { .. }), false) => 64,
            _ => 32,
        };
        log * MIB + self.of_scale(temporary * MIB)
    }

    /// Scales `bytes`, an amount at scale factor 1.
    fn of_scale(&self, bytes: u64) -> u64 {
        (self.scale.factor() * bytes as f64) as u64
    }
}

impl Configured for Settings {
    fn check_arm(&self, on: RunsOn) -> Result<(), String> {
        if let DssEngine::Sql(Engine::Url(_)) = self.engine { check_network("dss.url", on) } else { Ok(()) }
    }

    fn needs(&self) -> Needs {
        let server = match self.engine {
            DssEngine::DataFusion { .. } => 128 * MIB + u64::from(self.streams) * (64 * MIB + self.memory),
            DssEngine::Sql(Engine::Postgres { .. }) => 160 * MIB,
            DssEngine::Sql(_) => 128 * MIB,
        };
        Needs {
            storage_bytes: Some(self.data_bytes() + self.room()),
            memory_bytes: (64 << 20) + server,
            modules: Vec::new(),
        }
    }

    fn images(&self, cx: &ImageContext<'_>) -> Result<Images> {
        images::of(self, cx)
    }

    fn metrics(&self) -> Vec<MetricDef> {
        metrics::of(self)
    }

    fn room_option(&self) -> Option<&'static str> {
        Some("scale")
    }

    fn silence(&self) -> Duration {
        // A single query may take that long while the other streams compete with it.
        Duration::from_secs_f64(600.0 + 600.0 * self.scale.factor() * f64::from(self.streams))
    }

    fn guest_silence(&self) -> Duration {
        // The longest query takes about 200 CPU seconds of emulation at scale factor 1.
        Duration::from_secs_f64(300.0 * self.scale.factor() * f64::from(self.streams))
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        Ok(Box::new(Trial::prepare(cx, self)?))
    }
}
