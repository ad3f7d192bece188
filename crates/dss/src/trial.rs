//! A trial: its run, windows, values and checks.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use anyhow::{Context as _, Result, bail, ensure};

use crate::answer::Answer;
use crate::answers::Answers;
use crate::database::{Client, TrialDatabase};
use crate::images::ANSWERS;
use crate::metrics::{QUERY_CPU, RATE, SCAN, SCAN_CPU, SPILLS, TEMPORARY, TOTAL};
use crate::query::Sql;
use crate::settings::{DssEngine, RunKind, Settings};
use crate::statements;
use crate::stream::{self, Clock, Done, Timing};
use crate::table::Table;
use bigiron_model::workload::Window;
use bigiron_probe::counters::span;
use bigiron_probe::symbols;
use bigiron_sql::database::SqlValue;
use bigiron_sql::engine::Engine;
use bigiron_sys::cpu_clock::thread_cpu_time;
use bigiron_sys::load::files::file_system;
use bigiron_sys::load::now_ns;
use bigiron_workload::{Context, EndedBadly, Progress, Running, WorkloadResult, WrongData};

/// An hour, in nanoseconds.
const HOUR: f64 = 3.6e12;

/// A trial with its loaded database. Dropping it ends the server.
pub struct Trial<'a> {
    settings: &'a Settings,
    database: TrialDatabase,
    /// The expected answers.
    answers: Answers,
    /// Answers and numbers of rows that were compared with them.
    checked: AtomicU64,
}

impl<'a> Trial<'a> {
    /// Opens the database.
    ///
    /// # Errors
    /// As [`TrialDatabase::open`]; if the context has no expected answers.
    pub fn prepare(cx: &Context<'_>, settings: &'a Settings) -> Result<Self> {
        let answers = cx
            .foundation
            .get(ANSWERS)
            .context("The trial has no expected answers to compare with; begin the study again")?;
        let answers = Answers::parse(answers).context("The plan's answers are unreadable")?;
        let database = TrialDatabase::open(cx, settings)?;
        Ok(Self { settings, database, answers, checked: AtomicU64::new(0) })
    }

    fn power(&self, cx: &Context<'_>, outcome: &mut WorkloadResult) -> Result<()> {
        let mut client = self.database.connect()?;
        let pieces = self.settings.queries.len() as u32 + if self.settings.refresh { 2 } else { 0 };
        let mut timing = Windows {
            database: &self.database,
            cx,
            outcome,
            done: 0,
            of: pieces,
            primary: RATE,
            server_ns: 0,
            driver_ns: 0,
        };
        let before = client.process_cpu_ns();
        let mut all = stream::queries(self.settings, 0, &mut client, &mut timing)?;
        if self.settings.refresh {
            all.extend(stream::refresh(self.settings, 0, &mut client, &mut timing)?);
        }
        let driver_ns = timing.driver_ns;
        let cpu_ns = timing.server_ns + driver_ns + client.process_cpu_ns() - before;
        let mean = all.iter().map(|done| (done.ns as f64).ln()).sum::<f64>() / all.len() as f64;
        outcome.values.insert(RATE.to_owned(), HOUR / mean.exp());
        outcome.values.extend(all.iter().map(|done| (done.name.clone(), done.ns as f64)));
        outcome.values.insert(QUERY_CPU.to_owned(), cpu_ns as f64 / all.len() as f64);
        let share = 100.0 * driver_ns as f64 / cpu_ns.max(1) as f64;
        outcome.facts.insert("driver-share".to_owned(), format!("{share:.2} % of all CPU time"));
        self.check(0, &all)
    }

    fn throughput(&self, cx: &Context<'_>, outcome: &mut WorkloadResult) -> Result<()> {
        let streams = self.settings.streams;
        let refreshing = u32::from(self.settings.refresh);
        // Open all connections before the clock starts.
        let ready = Barrier::new((streams + refreshing + 1) as usize);
        let of = streams * (self.settings.queries.len() as u32 + 2 * refreshing);
        let (sender, completed) = channel();
        let work = |stream: u32, mut clock: Clock| -> Result<(Vec<Done>, u64)> {
            let client = self.database.connect();
            ready.wait();
            let mut client = client?;
            let before = stream::cpu_ns(&client);
            let mut all = Vec::new();
            if stream < streams {
                all = stream::queries(self.settings, stream, &mut client, &mut clock)?;
            } else {
                for pair in 0..streams {
                    all.extend(stream::refresh(self.settings, pair, &mut client, &mut clock)?);
                }
            }
            Ok((all, stream::cpu_ns(&client) - before))
        };
        let (results, ns, server_ns) = std::thread::scope(|scope| {
            let clocks = std::iter::repeat_n(Clock(sender), (streams + refreshing) as usize);
            let threads: Vec<_> = (0..).zip(clocks).map(|(n, clock)| scope.spawn(move || work(n, clock))).collect();
            ready.wait();
            let server_before = self.database.server_cpu_ns();
            let begun = span::open(now_ns);
            // Ends when the last stream has dropped its clock.
            for (done, ()) in (1..of).zip(completed) {
                (cx.progress)(Progress { step: "run", done, of });
            }
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            let ended = span::close(now_ns);
            span::cut();
            (results, ended - begun, self.database.server_cpu_ns().saturating_sub(server_before))
        });
        let (mut times, mut cpu_ns, mut asked) = (BTreeMap::<String, Vec<f64>>::new(), server_ns, 0);
        for (stream, result) in results.into_iter().enumerate() {
            let Ok(result) = result else { bail!("Stream {stream} panicked") };
            let (all, ns) = result?;
            cpu_ns += ns;
            for done in &all {
                asked += u64::from(done.answer.is_some());
                times.entry(done.name.clone()).or_default().push(done.ns as f64);
            }
            self.check(stream as u32, &all)?;
        }
        ensure!(asked > 0 && ns > 0, "No stream ran a query");
        outcome.values.insert(RATE.to_owned(), asked as f64 * HOUR / ns as f64);
        outcome.values.insert(QUERY_CPU.to_owned(), cpu_ns as f64 / asked as f64);
        let metrics = times.keys().cloned().chain([RATE.to_owned(), QUERY_CPU.to_owned()]).collect();
        outcome.windows.push(Window { metrics, operations: asked, ns });
        outcome.values.extend(times.into_iter().map(|(name, all)| {
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            (name, mean)
        }));
        Ok(())
    }

    fn scan(&self, cx: &Context<'_>, outcome: &mut WorkloadResult) -> Result<()> {
        let mut client = self.database.connect()?;
        let mut timing = Windows {
            database: &self.database,
            cx,
            outcome,
            done: 0,
            of: 1,
            primary: SCAN,
            server_ns: 0,
            driver_ns: 0,
        };
        let before = client.process_cpu_ns();
        let mut answer = None;
        let ns = timing.time(SCAN, &mut || {
            answer = Some(client.query(statements::SCAN)?);
            Ok(())
        })?;
        let cpu_ns = timing.server_ns + timing.driver_ns + client.process_cpu_ns() - before;
        self.check_rows("the scan", first_number(answer.as_ref())?)?;
        // Only now, because this query reads data that the scan must find cold.
        let bytes = self.table_bytes(&mut client)?;
        ensure!(ns > 0, "The clock did not advance in the scan");
        outcome.values.insert(SCAN.to_owned(), bytes as f64 * 1e9 / ns as f64);
        outcome.values.insert(SCAN_CPU.to_owned(), cpu_ns as f64 / (bytes as f64 / 1e6));
        outcome.facts.insert("table-bytes".to_owned(), bytes.to_string());
        Ok(())
    }

    /// Size of the largest table in the engine's storage, in bytes.
    fn table_bytes(&self, client: &mut Client) -> Result<u64> {
        let bytes = match &self.database {
            TrialDatabase::DataFusion { data, .. } => std::fs::metadata(data.join("lineitem.parquet"))?.len(),
            TrialDatabase::Sqlite(_) => first_number(Some(&client.query(statements::SQLITE_BYTES)?))?,
            _ => first_number(Some(&client.query(statements::POSTGRES_BYTES)?))?,
        };
        ensure!(bytes > 0, "The largest table is empty");
        Ok(bytes)
    }

    fn spill(&self, cx: &Context<'_>, outcome: &mut WorkloadResult) -> Result<()> {
        let mut client = self.database.connect()?;
        let temporary = client.temporary_bytes()?;
        let mut timing = Windows {
            database: &self.database,
            cx,
            outcome,
            done: 0,
            of: 2,
            primary: TOTAL,
            server_ns: 0,
            driver_ns: 0,
        };
        let before = client.process_cpu_ns();
        let mut all = Vec::new();
        for (name, sql) in SPILLS.into_iter().zip(statements::SPILLS) {
            let mut answer = None;
            let ns = timing.time(name, &mut || {
                answer = Some(client.query(sql)?);
                Ok(())
            });
            all.push((name, ns.with_context(|| format!("In the {name}"))?, first_number(answer.as_ref())?));
        }
        let cpu_ns = timing.server_ns + timing.driver_ns + client.process_cpu_ns() - before;
        let written = client.temporary_bytes()?.saturating_sub(temporary);
        ensure!(
            written > 0,
            "The sort and the join needed no temporary files with {} of memory; lower `dss.memory` or raise `dss.scale`",
            self.settings.memory_in_words()
        );
        for (name, _, found) in &all {
            self.check_rows(&format!("the {name}"), *found)?;
        }
        let total: u64 = all.iter().map(|(_, ns, _)| ns).sum();
        outcome.values.insert(TOTAL.to_owned(), total as f64);
        outcome.values.extend(all.iter().map(|(name, ns, _)| ((*name).to_owned(), *ns as f64)));
        outcome.values.insert(QUERY_CPU.to_owned(), cpu_ns as f64 / all.len() as f64);
        outcome.values.insert(TEMPORARY.to_owned(), written as f64);
        Ok(())
    }

    /// Compares a row count of the largest table with the expected one.
    fn check_rows(&self, who: &str, found: u64) -> Result<()> {
        self.count(1);
        same_rows(Table::Lineitem, self.answers.lineitem, who, found)
    }

    fn count(&self, checked: u64) {
        self.checked.fetch_add(checked, Ordering::Relaxed);
    }

    fn check(&self, stream: u32, all: &[Done]) -> Result<()> {
        all.iter().filter_map(|done| done.answer.as_ref()).try_for_each(|(query, answer)| {
            self.count(1);
            self.answers.check(stream, *query, answer)
        })
    }

    fn facts(&self, cx: &Context<'_>) -> Result<BTreeMap<String, String>> {
        let settings = self.settings;
        let mut facts = BTreeMap::new();
        let mut put = |name: &str, value: String| facts.insert(name.to_owned(), value);
        put("scale", settings.scale.to_string());
        put("file-system", file_system(&cx.dir));
        put("engine", self.database.version()?);
        put("answers-checked", self.checked.load(Ordering::Relaxed).to_string());
        if settings.engine.dialect() != Sql::Sqlite {
            put("memory", settings.memory_in_words());
        }
        if settings.run == RunKind::Throughput {
            put("streams", settings.streams.to_string());
        }
        let weakened = match &settings.engine {
            DssEngine::Sql(engine @ Engine::Postgres { .. }) => engine.weakened(),
            _ => Vec::new(),
        };
        if !weakened.is_empty() {
            put("durability", format!("weakened: {}", weakened.join("; ")));
        }
        Ok(facts)
    }
}

impl Running for Trial<'_> {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        let mut outcome = WorkloadResult::default();
        self.database.make_cold()?;
        let ran = match self.settings.run {
            RunKind::Power => self.power(cx, &mut outcome),
            RunKind::Throughput => self.throughput(cx, &mut outcome),
            RunKind::Scan => self.scan(cx, &mut outcome),
            RunKind::Spill => self.spill(cx, &mut outcome),
        };
        // The connection reports only that it broke; the server may report why.
        ran.map_err(|error| match self.database.complaint() {
            Some(complaint) if !error.is::<WrongData>() => error.context(complaint),
            _ => error,
        })?;
        outcome.programs = symbols::running();
        outcome.facts.extend(self.facts(cx)?);
        Ok(outcome)
    }

    fn verify(self: Box<Self>, _: &Context<'_>) -> Result<()> {
        if self.settings.refresh {
            let mut client = self.database.connect()?;
            let answer = client.query("SELECT count(*) FROM lineitem")?;
            self.check_rows(AFTER_REFRESH, first_number(Some(&answer))?)?;
            let answer = client.query("SELECT count(*) FROM orders")?;
            let right = self.settings.scale.rows(Table::Orders);
            same_rows(Table::Orders, right, AFTER_REFRESH, first_number(Some(&answer))?)?;
        }
        self.database.close().context(EndedBadly)
    }
}

const AFTER_REFRESH: &str = "the check after the refresh functions";

/// Compares the number of a table's rows that `who` has seen with the right one.
fn same_rows(table: Table, right: u64, who: &str, found: u64) -> Result<()> {
    if right == found {
        return Ok(());
    }
    Err(WrongData(format!("Table {} has {right} rows, but {who} saw {found}", table.name())).into())
}

/// Times each piece of work in its own window.
struct Windows<'a> {
    database: &'a TrialDatabase,
    cx: &'a Context<'a>,
    outcome: &'a mut WorkloadResult,
    done: u32,
    of: u32,
    primary: &'static str,
    /// CPU time of a private server's processes in all windows.
    server_ns: u64,
    /// CPU time of this thread in all windows: not that of reading counters between them.
    driver_ns: u64,
}

impl Timing for Windows<'_> {
    fn time(&mut self, name: &str, work: &mut dyn FnMut() -> Result<()>) -> Result<u64> {
        (self.cx.progress)(Progress { step: name, done: self.done, of: self.of });
        let server_before = self.database.server_cpu_ns();
        let begun = span::open(now_ns);
        let driver_before = thread_cpu_time();
        let worked = work();
        self.driver_ns += (thread_cpu_time() - driver_before).as_nanos() as u64;
        let ended = span::close(now_ns);
        span::cut();
        self.server_ns += self.database.server_cpu_ns().saturating_sub(server_before);
        worked?;
        self.done += 1;
        let mut metrics = vec![name.to_owned()];
        if name != self.primary {
            metrics.push(self.primary.to_owned());
        }
        self.outcome.windows.push(Window { metrics, operations: 1, ns: ended - begun });
        Ok(ended - begun)
    }
}

/// The first number in the answer's first row.
fn first_number(answer: Option<&Answer>) -> Result<u64> {
    let value = answer.and_then(|answer| answer.rows.first()).and_then(|row| row.first());
    match value {
        Some(SqlValue::Integer(n)) => Ok(n.unsigned_abs()),
        Some(SqlValue::Text(text)) => text.parse().with_context(|| format!("`{text}` is not a number of rows")),
        other => bail!("The engine answered {other:?} instead of a number"),
    }
}
