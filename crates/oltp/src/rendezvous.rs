//! Driver processes on several hosts that form one run: they meet in the database that they drive.
//!
//! Invariant: no part begins before all have recorded the initial state, and none checks the data before all have ended.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::driver::{DriveResult, TransactionCounts, TransactionTally};
use bigiron_sql::database::{Database as _, SqlValue};
use bigiron_sql::pg::{Connection, PgError, Url};
use bigiron_sys::cpu_clock::ThreadCpu;
use bigiron_sys::load::Histogram;

const TABLE: &str = "bigiron_oltp_parts";
/// Interval at which the other parts are checked.
const LOOK: Duration = Duration::from_millis(20);
/// Interval at which the first part shows that it is alive, outside the measurement.
const BEAT: Duration = Duration::from_millis(100);
/// Time limit of the first part's load.
pub(super) const LOADING: Duration = Duration::from_secs(24 * 3600);
/// How late a part may arrive.
const LATE: Duration = Duration::from_secs(900);

/// The progress of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The first part has loaded and checked the tables.
    Loaded = 1,
    /// It has recorded the initial state.
    Ready = 2,
    /// It has ended, with its results.
    Ended = 3,
    /// It has checked the data.
    Checked = 4,
    /// It has failed; the reason.
    Failed = 9,
}

/// A row of the parts' table.
#[derive(Debug, PartialEq, Eq)]
struct PartRow {
    part: u32,
    stage: i64,
    seed: u64,
    said: String,
}

impl PartRow {
    fn of(row: &[SqlValue]) -> Result<Self> {
        let [SqlValue::Integer(part), SqlValue::Integer(stage), SqlValue::Integer(seed), SqlValue::Text(said)] = row
        else {
            bail!("The table of parts is not bigiron's: {row:?}");
        };
        Ok(Self { part: u32::try_from(*part)?, stage: *stage, seed: seed.cast_unsigned(), said: said.clone() })
    }
}

/// One part's connection to the others, through the database.
pub struct Rendezvous {
    session: Mutex<Connection>,
    part: u32,
    parts: u32,
    seed: u64,
}

impl Rendezvous {
    /// The first part creates the table, which the others wait for. All have the same seed.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn open(url: &Url, (part, parts): (u32, u32), seed: u64) -> Result<Self> {
        let mut session = Connection::connect(url)?;
        if part == 1 {
            session
                .run(&format!("DROP TABLE IF EXISTS {TABLE}"))
                .and_then(|()| {
                    session.run(&format!(
                        "CREATE TABLE {TABLE} (part integer, stage integer, seed bigint, said text, PRIMARY KEY (part, stage))"
                    ))
                })
                .context("No table for the parts of the run to meet in")?;
        }
        Ok(Self { session: Mutex::new(session), part, parts, seed })
    }

    fn session(&self) -> MutexGuard<'_, Connection> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that this part has reached `stage`.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn tell(&self, stage: Stage, said: &str) -> Result<()> {
        let (part, stage, seed, said) = (self.part, stage as u32, self.seed.cast_signed(), said.replace('\'', "''"));
        let sql = format!("INSERT INTO {TABLE} VALUES ({part}, {stage}, {seed}, '{said}')");
        Ok(self.session().run(&sql)?)
    }

    /// Waits for the first part's load. Rows of a killed run remain until the first part of this run begins; so rows present at
    /// the start count only once they change, as the row of a live first part does.
    ///
    /// # Errors
    /// If it fails, or never arrives.
    pub fn await_load(&self) -> Result<()> {
        let left = self.rows(Stage::Loaded)?;
        self.wait(1, LOADING, || self.said(self.rows(Stage::Loaded)?.into_iter().filter(|row| !left.contains(row))))
            .map(|_| ())
    }

    /// Waits until all parts have reached `stage`; returns their messages, in order.
    ///
    /// # Errors
    /// If one has failed, or does not arrive.
    pub fn await_all(&self, stage: Stage) -> Result<Vec<String>> {
        let (beats, beaten) = (Cell::new(0), Cell::new(None::<Instant>));
        self.wait(self.parts, LATE, || {
            let is_due = beaten.get().is_none_or(|at| at.elapsed() >= BEAT);
            if self.part == 1 && stage == Stage::Ready && is_due {
                beats.set(beats.get() + 1);
                beaten.set(Some(Instant::now()));
                let (loaded, n) = (Stage::Loaded as u32, beats.get());
                self.session().run(&format!("UPDATE {TABLE} SET said = '{n}' WHERE part = 1 AND stage = {loaded}"))?;
            }
            self.said(self.rows(stage)?.into_iter())
        })
    }

    fn wait(
        &self,
        count: u32,
        patience: Duration,
        look: impl Fn() -> Result<BTreeMap<u32, String>>,
    ) -> Result<Vec<String>> {
        let began = Instant::now();
        loop {
            let said = look()?;
            if said.len() as u32 >= count {
                return Ok(said.into_values().collect());
            }
            let missing = (1..=count).find(|part| !said.contains_key(part)).unwrap_or(count);
            ensure!(
                began.elapsed() < patience,
                "Part {missing} of {} has not arrived within {} s; start all parts within that time",
                self.parts,
                patience.as_secs()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// The rows of the parts that have reached `stage` or have failed.
    fn rows(&self, stage: Stage) -> Result<Vec<PartRow>> {
        let (wanted, failed) = (stage as u32, Stage::Failed as u32);
        let sql =
            format!("SELECT part, stage, seed, said FROM {TABLE} WHERE stage IN ({wanted}, {failed}) ORDER BY part");
        let rows = match self.session().query(&sql) {
            // The first part has not created it yet (undefined table).
            Err(PgError::Server(why)) if why.sqlstate.to_string() == "42P01" && stage == Stage::Loaded => Vec::new(),
            other => other?,
        };
        rows.iter().map(|row| PartRow::of(row)).collect()
    }

    /// The parts' messages, by their numbers.
    fn said(&self, rows: impl Iterator<Item = PartRow>) -> Result<BTreeMap<u32, String>> {
        let mut said = BTreeMap::new();
        for PartRow { part, stage, seed, said: text } in rows {
            ensure!(seed == self.seed, "Part {part} has another seed: start all parts with the same `--seed`");
            ensure!(stage != Stage::Failed as i64, "Part {part} has failed: {text}");
            said.insert(part, text);
        }
        Ok(said)
    }

    /// Ends the rendezvous. The first part drops the table when all have checked the data.
    ///
    /// # Errors
    /// If one has failed, or does not arrive.
    pub fn close(&self) -> Result<()> {
        self.tell(Stage::Checked, "")?;
        if self.part == 1 {
            self.await_all(Stage::Checked)?;
            self.session().execute(&format!("DROP TABLE {TABLE}"))?;
        }
        Ok(())
    }
}

/// A part's results in transit.
#[derive(Debug, Serialize, Deserialize)]
struct PartResult {
    window_ns: u64,
    window: [[u64; 3]; 5],
    whole: [[u64; 3]; 5],
    delivered: u64,
    /// Sum, and buckets.
    latency: Vec<(u128, Vec<(u64, u64)>)>,
    cpu_ns: [u64; 3],
    threads: u32,
    backlog: u64,
    longest_queue: u64,
}

/// Serializes a part's results for the others.
///
/// # Errors
/// Those of serialization.
pub fn written(driven: &DriveResult) -> Result<String> {
    let counts = |all: &[TransactionCounts; 5]| all.map(|c| [c.committed, c.rolled_back, c.retries]);
    let ns = |d: Duration| d.as_nanos() as u64;
    let found = PartResult {
        window_ns: driven.window_ns,
        window: counts(&driven.tally.window),
        whole: counts(&driven.tally.whole),
        delivered: driven.tally.delivered,
        latency: driven.tally.latency.iter().map(Histogram::buckets).collect(),
        cpu_ns: [ns(driven.cpu.total), ns(driven.cpu.user), ns(driven.cpu.system)],
        threads: driven.threads,
        backlog: driven.backlog,
        longest_queue: driven.longest_queue,
    };
    Ok(serde_json::to_string(&found)?)
}

/// Merges the results of all parts into `own`: counts and histograms add up, and so do CPU times and queues; the window is the
/// longest.
///
/// # Errors
/// If a part's results cannot be parsed.
pub fn merge(own: &mut DriveResult, parts: &[String]) -> Result<()> {
    let mut tally = TransactionTally::default();
    (own.window_ns, own.cpu, own.threads, own.backlog, own.longest_queue) = (0, ThreadCpu::default(), 0, 0, 0);
    for (part, text) in (1..).zip(parts) {
        let found: PartResult = serde_json::from_str(text).with_context(|| format!("The results of part {part}"))?;
        let counts = |all: [[u64; 3]; 5]| {
            all.map(|[committed, rolled_back, retries]| TransactionCounts { committed, rolled_back, retries })
        };
        let latency: Vec<Histogram> =
            found.latency.iter().map(|(sum, buckets)| Histogram::of_buckets(*sum, buckets)).collect();
        let Ok(latency) = latency.try_into() else { bail!("Part {part} has a wrong number of histograms") };
        let (window, whole) = (counts(found.window), counts(found.whole));
        tally.add(&TransactionTally { window, latency, whole, delivered: found.delivered });
        let [total, user, system] = found.cpu_ns.map(Duration::from_nanos);
        own.cpu = own.cpu.plus(ThreadCpu { total, user, system });
        own.window_ns = own.window_ns.max(found.window_ns);
        own.threads += found.threads;
        own.backlog += found.backlog;
        own.longest_queue = own.longest_queue.max(found.longest_queue);
    }
    own.tally = tally;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::driver::{DriveTarget, fixture};
    use super::super::input::TransactionKind;
    use super::super::scale::Scale;
    use super::super::trial::{self, TrialContext};
    use super::super::trial_database::{Procedures, load_marked};
    use super::*;
    use bigiron_model::clock::Clock;
    use bigiron_sql::server::Listen;
    use bigiron_sql::server::Transport;
    use bigiron_sql::server::{cluster, testing};
    use bigiron_workload::WorkloadResult;

    fn driven(orders: u64, latencies: &[u64]) -> DriveResult {
        let mut tally = TransactionTally::default();
        tally.window[TransactionKind::NewOrder.index()] =
            TransactionCounts { committed: orders, rolled_back: 1, retries: 2 };
        tally.whole = tally.window;
        latencies.iter().for_each(|ns| tally.latency[0].record(*ns));
        let cpu = ThreadCpu {
            total: Duration::from_nanos(7),
            user: Duration::from_nanos(3),
            system: Duration::from_nanos(4),
        };
        DriveResult {
            window_ns: orders,
            tally,
            cpu,
            threads: 2,
            backlog: 1,
            longest_queue: orders,
            lost: None,
            in_doubt: Vec::new(),
        }
    }

    #[test]
    fn findings_add_up() {
        let parts = [driven(10, &[1000, 5_000_000]), driven(30, &[2000])];
        let written: Vec<String> = parts.iter().map(|part| written(part).unwrap()).collect();
        let mut all = driven(0, &[]);
        merge(&mut all, &written).unwrap();
        assert_eq!(all.tally.window[0], TransactionCounts { committed: 40, rolled_back: 2, retries: 4 });
        assert_eq!((all.window_ns, all.threads, all.backlog, all.longest_queue), (30, 4, 2, 30));
        let latency = all.latency();
        assert_eq!((latency.count(), latency.mean()), (3, Some(5_003_000.0 / 3.0)));
        assert_eq!(latency.max(), parts[0].latency().max());
        assert_eq!(all.cpu.total, Duration::from_nanos(14));
        assert!(merge(&mut all, &["{}".to_owned()]).unwrap_err().to_string().contains("part 1"));
    }

    #[test]
    fn two_processes_make_one_run_and_a_third_that_fails_ends_it_for_all() {
        let server = testing::start(Listen::Socket, &[("fsync", "off"), ("full_page_writes", "off")]);
        let url = &cluster::url(&server.cluster, Transport::Unix).unwrap();
        let part = |part: u32| -> Result<(WorkloadResult, (u32, u32))> {
            let of = format!("{part}/2");
            let job = fixture::job(&[
                ("url", "postgresql://db/test"),
                ("warehouses", "2"),
                ("part", &of),
                ("connections", "2"),
                ("ramp", "200ms"),
                ("length", "5s"),
            ]);
            let config = job.config(Clock::Wall, 2);
            let rendezvous = Rendezvous::open(url, config.part, 9)?;
            let dir = tempfile::tempdir()?;
            let cx = TrialContext {
                dir: dir.path(),
                seed: 9,
                clock: Clock::Wall,
                cpus: 2,
                after: i64::MIN,
                unavailable: &[],
                rendezvous: Some(&rendezvous),
                ack_sink: None,
                progress: &|_| {},
            };
            if part == 1 {
                load_marked(url, Scale { warehouses: 2 }, Procedures::Needed, &|_, _, _| ())?;
                rendezvous.tell(Stage::Loaded, "")?;
            } else {
                rendezvous.await_load()?;
            }
            let target = DriveTarget::Postgres(url);
            let outcome = trial::run(&job, &target, &cx)?;
            trial::verify(&target, &cx)?;
            rendezvous.close()?;
            Ok((outcome, config.homes()))
        };
        let (one, two) = std::thread::scope(|scope| {
            let second = scope.spawn(|| part(2));
            (part(1).unwrap(), second.join().unwrap().unwrap())
        });
        assert_eq!((one.1, two.1), ((1, 1), (2, 2)));
        assert_eq!(one.0.values, two.0.values, "Both tell what both have found");
        assert_eq!(one.0.facts["agreement"], two.0.facts["agreement"]);
        assert!(two.0.facts["part"].starts_with("2 of 2, at home in warehouses 2 to 2"));

        // A killed run, and one with the same seed after it whose second part begins first.
        let open = |part: u32| Rendezvous::open(url, (part, 2), 9).unwrap();
        open(1).tell(Stage::Loaded, "").unwrap();
        open(2).tell(Stage::Failed, "it was killed").unwrap();
        std::thread::scope(|scope| {
            let (met, hear) = std::sync::mpsc::channel();
            let second = scope.spawn(move || {
                let second = open(2);
                met.send(()).unwrap();
                second.await_load().unwrap();
                met.send(()).unwrap();
                second.tell(Stage::Ready, "").unwrap();
            });
            hear.recv().unwrap();
            let early = hear.recv_timeout(LOOK * 20);
            assert_eq!(early, Err(std::sync::mpsc::RecvTimeoutError::Timeout), "the killed run is not this one");
            let first = open(1);
            first.tell(Stage::Loaded, "").unwrap();
            first.tell(Stage::Ready, "").unwrap();
            first.await_all(Stage::Ready).unwrap();
            second.join().unwrap();
        });

        let first = Rendezvous::open(url, (1, 3), 9).unwrap();
        Rendezvous::open(url, (3, 3), 9).unwrap().tell(Stage::Failed, "it's gone").unwrap();
        let why = first.await_all(Stage::Ready).unwrap_err().to_string();
        assert_eq!(why, "Part 3 has failed: it's gone");
        let first = Rendezvous::open(url, (1, 2), 9).unwrap();
        Rendezvous::open(url, (2, 2), 8).unwrap().tell(Stage::Ready, "").unwrap();
        assert!(first.await_all(Stage::Ready).unwrap_err().to_string().contains("the same `--seed`"));
    }
}
