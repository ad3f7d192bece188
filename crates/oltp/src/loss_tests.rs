//! Servers and drivers that are killed while they work. A kill does not test syncing, because the kernel survives.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::check::{conditions, prove};
use crate::driver;
use crate::driver::{Drive, DriveTarget, fixture};
use crate::input::{Input, Request};
use crate::ledger::Fact;
use crate::output::Output;
use crate::random::Rng;
use crate::sqlite::Engine as Sqlite;
use crate::trial;
use crate::trial::TrialContext;
use crate::{Scale, load};
use bigiron_model::clock::Clock;
use bigiron_sql::database::{Database, SqlValue};
use bigiron_sql::sqlite::SqliteJournal;
use bigiron_workload::Context;
use bigiron_workload::testing;

/// Time limit until a run has reached the state that a test waits for.
const PATIENCE: Duration = Duration::from_secs(300);

fn passed(report: &CheckReport) {
    assert!(report.passed(), "{:?}", report.failures().map(ToString::to_string).collect::<Vec<_>>());
}

/// A trial on its own server, which is killed by `die` after this many new orders.
fn lose(
    trial_database: &TrialDatabase,
    cx: &TrialContext<'_>,
    mode: &str,
    orders: u64,
    die: fn(&TrialDatabase),
) -> Loss {
    let settings = [
        ("mode", mode),
        ("connections", "6"),
        ("drivers", "2"),
        ("ramp", "1"),
        ("length", "10000000"),
        ("warehouses", "1"),
    ];
    let job = fixture::job(&settings);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut database, began) = (trial_database.database().unwrap(), Instant::now());
            let first = check::server_new_orders(&mut *database).unwrap();
            while check::server_new_orders(&mut *database).unwrap() < first + orders {
                assert!(began.elapsed() < PATIENCE, "the run never came so far");
                thread::sleep(Duration::from_millis(5));
            }
            die(trial_database);
        });
        trial::run(&job, &trial_database.target(), cx).unwrap_err().downcast::<Loss>().unwrap()
    })
}

fn kill(pid: u32) {
    // A session may have ended by itself.
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
}

fn sessions(trial_database: &TrialDatabase) -> Vec<u32> {
    let sql = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' \
               AND (query LIKE '%oltp%' OR query LIKE '%UPDATE%' OR query LIKE '%INSERT%')";
    let rows = trial_database.database().unwrap().rows(sql).unwrap();
    let pid = |row: &Vec<SqlValue>| match row[0] {
        SqlValue::Integer(pid) => u32::try_from(pid).unwrap(),
        _ => panic!("{row:?}"),
    };
    rows.iter().map(pid).collect()
}

fn kill_all(trial_database: &TrialDatabase) {
    let sessions = sessions(trial_database);
    kill_postmaster(trial_database);
    sessions.into_iter().for_each(kill);
}

fn kill_postmaster(trial_database: &TrialDatabase) {
    kill(trial_database.postmaster().unwrap());
}

fn kill_session(trial_database: &TrialDatabase) {
    // At one moment, none of them may be at a statement of these kinds.
    let began = Instant::now();
    let session = loop {
        match sessions(trial_database).first() {
            Some(session) => break *session,
            None => assert!(began.elapsed() < PATIENCE, "there is no session"),
        }
        thread::sleep(Duration::from_millis(5));
    };
    kill(session);
}

/// Undoes a payment so completely that every consistency condition still holds.
fn forget(payment: &Entry, database: &mut dyn Database) {
    let Entry { date, fact } = payment;
    let Fact::Payment { warehouse, district, customer_warehouse, customer_district, customer, amount } = fact else {
        panic!("{payment:?}")
    };
    database
        .execute(&format!(
            "DELETE FROM history WHERE h_date = timestamp '2000-01-01' + {date} * interval '1 microsecond';
             UPDATE warehouse SET w_ytd = w_ytd - {amount} WHERE w_id = {warehouse};
             UPDATE district SET d_ytd = d_ytd - {amount} WHERE d_w_id = {warehouse} AND d_id = {district};
             UPDATE customer SET c_balance = c_balance + {amount}, c_ytd_payment = c_ytd_payment - {amount}
             WHERE c_w_id = {customer_warehouse} AND c_d_id = {customer_district} AND c_id = {customer}"
        ))
        .unwrap();
}

#[test]
fn a_killed_server_has_all_that_it_acknowledged_and_a_forgotten_commit_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let cx = Context { seed: 1, executable: "/bin/true".into(), ..testing::context(dir.path()) };
    let job = fixture::job(&[("warehouses", "1"), ("connections", "6")]);
    let mut trial_database = TrialDatabase::open(&cx, &job, &job.config(Clock::Exact, 2)).unwrap();
    let mut moments = Rng::new(20_251, 0);
    // All processes at once, like a crash of the machine; only the postmaster; one session, after which the server restarts the
    // others by itself.
    let ways: [fn(&TrialDatabase); 3] = [kill_all, kill_postmaster, kill_session];
    let mut last = None;
    for (seed, (mode, die)) in (7..).zip(["procedures", "pipelined", "round-trips"].into_iter().zip(ways)) {
        let cx = TrialContext { seed, ..fixture::context(dir.path()) };
        let orders = 40 + moments.bits() % 160;
        let loss = lose(&trial_database, &cx, mode, orders, die);
        assert!((1..=6).contains(&loss.in_doubt), "{loss}");
        assert!(loss.acks.entries.len() > 40, "{mode}: {}", loss.acks.entries.len());
        if mode == "round-trips" {
            last = Some(loss);
            break;
        }
        let told = loss.judge(&mut trial_database);
        assert!(!told.is::<WrongData>(), "{mode}: {told}");
        let text = told.to_string();
        assert!(text.contains("are there (") && text.ends_with("every consistency condition holds"), "{mode}: {text}");
    }
    let loss = last.unwrap();
    assert!(trial_database.recover().unwrap());
    let account = Account { in_flight: 0, entries: loss.acks.entries.clone() };
    let mut database = trial_database.database().unwrap();
    passed(&prove(&mut *database, &loss.marks, &account).unwrap());
    passed(&conditions(&mut *database, false).unwrap());
    // The negative control, which the conditions alone do not detect.
    let of_money = |e: &&Entry| matches!(e.fact, Fact::Payment { .. });
    forget(account.entries.iter().rfind(of_money).unwrap(), &mut *database);
    passed(&conditions(&mut *database, false).unwrap());
    drop(database);
    let told = loss.judge(&mut trial_database);
    assert!(told.is::<WrongData>(), "{told}");
    let text = told.to_string();
    assert!(
        text.contains("acknowledged-payments: FAILED, 1 times") && text.contains("acknowledged and lost"),
        "{text}"
    );
    trial_database.close().unwrap();
}

/// The process to kill: a driver on SQLite, with a ledger in a file.
#[test]
#[ignore = "started by the test below"]
fn child() {
    let path = PathBuf::from(std::env::var("BIGIRON_TEST_FILE").expect("set by the test that starts this one"));
    let round: u64 = std::env::var("BIGIRON_TEST_ROUND").unwrap().parse().unwrap();
    let job = fixture::job(&[("engine", "sqlite"), ("connections", "3"), ("ramp", "1"), ("length", "10000000")]);
    let journal = journal(round);
    let marks = Marks::take(&mut Sqlite::open(&path, journal).unwrap()).unwrap();
    let config = job.config(Clock::Exact, 2);
    let file = File::create_new(ledger_file(&path, round)).unwrap();
    let stream = Stream::begin(Box::new(file), config.connections, &marks).unwrap();
    let pages = LedgerPages::new(&config);
    let open = |thread: u32| pages.ledger(thread, Some(&stream));
    let target = DriveTarget::Sqlite { path: &path, journal };
    driver::run(Drive {
        config: &config,
        target,
        seed: round,
        after: marks.latest,
        watch: &mut |_| {},
        ledger: Some(&open),
    })
    .unwrap();
}

fn journal(round: u64) -> SqliteJournal {
    if round.is_multiple_of(2) { SqliteJournal::Wal } else { SqliteJournal::Rollback }
}

fn ledger_file(path: &Path, round: u64) -> PathBuf {
    path.with_file_name(format!("ledger-{round}"))
}

/// A child that is also killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_sqlite_has_all_that_it_acknowledged_and_a_forgotten_commit_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("oltp.db");
    load::sqlite(&path, Scale { warehouses: 1 }, false, &|_, _, _| ()).unwrap();
    let mut moments = Rng::new(20_252, 0);
    for round in 0..4 {
        let marks = Marks::take(&mut Sqlite::open(&path, journal(round)).unwrap()).unwrap();
        let name = format!("{}::child", module_path!().split_once("::").unwrap().1);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--ignored"])
            .env("BIGIRON_TEST_FILE", &path)
            .env("BIGIRON_TEST_ROUND", round.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let (mut child, began) = (Killed(child.unwrap()), Instant::now());
        let wanted = 60 + (moments.bits() % 200) as usize;
        let read = || Account::read(&ledger_file(&path, round)).map_or(0, |(account, _)| account.entries.len());
        while read() < wanted {
            assert!(began.elapsed() < PATIENCE && child.0.try_wait().unwrap().is_none(), "it never came so far");
            thread::sleep(Duration::from_millis(2));
        }
        drop(child);
        let (account, told) = Account::read(&ledger_file(&path, round)).unwrap();
        assert_eq!((account.in_flight, &told), (3, &marks));
        let mut engine = Sqlite::open(&path, journal(round)).unwrap();
        passed(&prove(&mut engine, &marks, &account).unwrap());
        passed(&conditions(&mut engine, false).unwrap());
        if round == 3 {
            let rows = "SELECT count(*) FROM history";
            let before = engine.rows(rows).unwrap();
            let paid = account.entries.iter().rfind(|e| matches!(e.fact, Fact::Payment { .. })).unwrap();
            let delete = format!("DELETE FROM history WHERE h_date = {}", paid.date);
            engine.connection().execute_batch(&delete).unwrap();
            assert_ne!(engine.rows(rows).unwrap(), before);
            let report = prove(&mut engine, &marks, &account).unwrap();
            let found: Vec<_> = report.failures().map(|check| check.name).collect();
            assert_eq!(found, ["acknowledged-payments"]);
        }
    }
}

#[test]
fn a_ledger_that_is_full_proves_nothing_and_one_that_is_not_has_all() {
    let config = fixture::job(&[("connections", "4"), ("drivers", "2")]).config(Clock::Exact, 2);
    let kept = |most: usize| {
        let (mut acks, pages) = (AckLedger::default(), LedgerPages::with_room(&config, most));
        let mut threads: Vec<_> = (0..2).map(|thread| pages.ledger(thread, None)).collect();
        let delivery = |date| Request { input: Input::Delivery { warehouse: 1, carrier: 1 }, date };
        for date in 0..10 {
            threads[date as usize % 2](&delivery(date), &Output::Delivery { delivered: 3 });
            threads[date as usize % 2](&delivery(date + 100), &Output::Delivery { delivered: 0 });
        }
        drop(threads);
        let driven = DriveResult {
            window_ns: 0,
            tally: driver::TransactionTally::default(),
            cpu: bigiron_sys::cpu_clock::ThreadCpu::default(),
            threads: 2,
            backlog: 0,
            longest_queue: 0,
            lost: Some("gone".to_owned()),
            in_doubt: vec![delivery(50)],
        };
        acks.enter(pages, &driven);
        acks
    };
    let acks = kept(40);
    assert!(!acks.is_full);
    assert_eq!(acks.entries.len(), 11);
    assert_eq!(acks.entries.last(), Some(&Entry { date: 50, fact: Fact::Unknown }));
    assert!(!kept(10).is_full && kept(8).is_full);
}
