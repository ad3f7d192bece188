use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::*;
use crate::settings::{Rate, Settings};
use crate::tiers::Tiers;
use crate::trial::Trial;
use bigiron_model::clock::Clock;
use bigiron_sql::database::Database;
use bigiron_web::call::CallTally;
use bigiron_workload::run_control::RunLength;
use bigiron_workload::{Context, Progress, Running as _, RunsOn, Workload as _, WorkloadResult, WrongData, testing};

const SMALL: [(&str, &str); 5] =
    [("length", "600"), ("warmup", "200"), ("threads", "4"), ("dealers", "50"), ("session", "1K")];

fn settings(more: &[(&str, &str)]) -> Settings {
    let kept = SMALL.into_iter().filter(|(name, _)| more.iter().all(|(other, _)| other != name));
    let options = testing::options(&App, kept.chain(more.iter().copied())).unwrap();
    Settings::parse(&options).unwrap().on(Clock::Exact).clone()
}

fn trial<'a>(settings: &'a Settings, dir: &Path) -> anyhow::Result<Trial<'a>> {
    bigiron_service::java::testing::install();
    let cx = testing::context(dir);
    Ok(Trial { settings, tiers: Tiers::open(&cx, settings)? })
}

fn run(trial: &mut Trial<'_>, dir: &Path) -> anyhow::Result<WorkloadResult> {
    trial.run(&testing::context(dir))
}

/// The first run that conforms: one in which the machine stood still for seconds may not.
fn conforming(trial: &mut Trial<'_>, dir: &Path) -> WorkloadResult {
    let mut late = Vec::new();
    while late.len() < 10 {
        match run(trial, dir).map_err(|error| format!("{error:#}")) {
            Err(said) if said.starts_with("The run does not conform: the 90th percentile of `") => late.push(said),
            outcome => return outcome.unwrap(),
        }
    }
    panic!("{late:?}");
}

fn is_there(pid: u32) -> bool {
    test_kill_process(Pid::from_raw(pid as i32).unwrap()).is_ok()
}

#[test]
fn a_run_delivers_every_metric_and_its_data_are_right() {
    delivers("postgres", "with a private PostgreSQL 15");
}

#[test]
fn a_run_on_mariadb_delivers_the_same() {
    delivers("mariadb", "with a private MariaDB 10.11");
}

fn delivers(database: &str, name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&[("database", database)]);
    let mut trial = trial(&settings, dir.path()).unwrap();
    let pids = trial.tiers.pids();
    let outcome = conforming(&mut trial, dir.path());
    let declared = metrics::of();
    for def in &declared {
        assert!(def.kind.takes(outcome.values[&def.name]), "{}: {:?}", def.name, outcome.values);
    }
    assert_eq!(outcome.values.len(), declared.len());
    assert_eq!(outcome.facts["requests-checked"], "600");
    assert!(outcome.facts["server-version"].ends_with(name), "{:?}", outcome.facts);
    assert_eq!(outcome.facts["conditions-checked"], "19");
    assert!(!outcome.facts["operations-done"].contains(" 0,"), "{:?}", outcome.facts);
    changes_are_noticed(&mut *trial.tiers.connect().unwrap());
    let compiled = |name: &str| outcome.programs.iter().any(|program| program.file == name);
    assert!(compiled("method:bigiron.app.Page.row (java)") && compiled("method:Interpreter (java)"));
    assert!(compiled("compiled code (java)"), "the methods are in it");
    Box::new(trial).verify(&testing::context(dir.path())).unwrap();
    assert!(!pids.into_iter().any(is_there));
}

/// Every condition refuses a change of what it is about.
fn changes_are_noticed(database: &mut dyn Database) {
    let before = conditions::Sums::read(database).unwrap();
    let none = vec![CallTally::default(); calls::KINDS.len()];
    assert_eq!(conditions::check(database, &before, &none).unwrap(), 19);
    for (change, words) in [
        ("UPDATE orders SET total = total + 1 WHERE id = 1", "the orders' totals grew by 0"),
        (
            "INSERT INTO orders (dealer, state, total) VALUES (1, 0, 0)",
            "orders grew by 0, but in the database they grew by 1",
        ),
        ("DELETE FROM work WHERE id = 1", "work orders grew by 0, but in the database they grew by -1"),
        (
            "UPDATE work SET stage = stage + 1 WHERE id = (SELECT min(id) FROM work WHERE stage = 0)",
            "the work orders' stages",
        ),
        ("UPDATE dealer SET paid = paid + 1 WHERE id = 1", "what dealers paid grew by 0"),
        ("UPDATE purchase SET cost = cost + 1 WHERE delivered = 1", "the deliveries' cost"),
        (
            "UPDATE orders SET total = total + 1 WHERE id = 1; UPDATE orders SET total = total - 1 WHERE id = 2",
            "2 rows: an order's total",
        ),
        ("UPDATE line SET quantity = quantity + 1 WHERE order_id = 1 AND number = 1", "1 rows: a line's amount"),
        (
            "UPDATE dealer SET balance = balance + 1 WHERE id = 1; UPDATE dealer SET balance = balance - 1 WHERE id = 2",
            "a dealer's balance",
        ),
        ("UPDATE item SET stock = stock + 1 WHERE id = 1", "1 rows: an item's stock"),
        (
            "UPDATE line SET built = 1 WHERE order_id = 1 AND number = 1; UPDATE item SET stock = stock + (SELECT quantity FROM line WHERE \
         order_id = 1 AND number = 1) WHERE id = (SELECT item FROM line WHERE order_id = 1 AND number = 1)",
            "1 rows: each line that is built",
        ),
        ("UPDATE component SET stock = stock - 1 WHERE id = 1", "1 rows: a component's stock"),
    ] {
        database.execute("BEGIN").unwrap();
        database.execute(change).unwrap();
        let error = conditions::check(database, &before, &none).unwrap_err();
        database.execute("ROLLBACK").unwrap();
        assert!(error.is::<WrongData>() && error.to_string().contains(words), "{change}: {error:#}");
    }
    let mut wrong = none;
    wrong[calls::DELIVER].done = 1;
    let error = conditions::check(database, &before, &wrong).unwrap_err().to_string();
    assert_eq!(error, "The servlets reported that deliveries grew by 1, but in the database they grew by 0");
}

/// What a run says of a tier that is killed in it, and whether anything is left of it.
fn killed(tier: usize) -> String {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&[("length", "600s")]);
    let mut trial = trial(&settings, dir.path()).unwrap();
    let pids = trial.tiers.pids();
    let (tell, begun) = mpsc::channel();
    let killer = std::thread::spawn(move || {
        // Before that, this process itself asks the database for the sums.
        if begun.recv().is_ok() {
            std::thread::sleep(Duration::from_millis(1500));
            kill_process(Pid::from_raw(pids[tier] as i32).unwrap(), Signal::KILL).unwrap();
        }
    });
    let progress = move |now: Progress<'_>| {
        if now.step == "run" {
            tell.send(()).unwrap();
        }
    };
    let error = trial.run(&Context { progress: &progress, ..testing::context(dir.path()) }).unwrap_err();
    drop(progress);
    killer.join().unwrap();
    assert!(!error.is::<WrongData>(), "{error:#}");
    drop(trial);
    assert!(!pids.into_iter().any(is_there));
    format!("{error:#}")
}

#[test]
fn a_killed_database_and_a_killed_jvm_fail_the_trial_with_their_end() {
    let error = killed(1);
    assert!(error.starts_with("PostgreSQL ended in the run (signal: 9 (SIGKILL))"), "{error}");
    let error = killed(0);
    assert!(error.starts_with("Tomcat ended in the run (signal: 9 (SIGKILL))"), "{error}");
}

#[test]
fn a_jvm_without_memory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&[("heap", "64M"), ("session", "4M"), ("length", "600s")]);
    let mut trial = trial(&settings, dir.path()).unwrap();
    let error = format!("{:#}", run(&mut trial, dir.path()).unwrap_err());
    assert!(
        error.starts_with("Tomcat ended in the run (exit status: 3): ")
            && error.contains("OutOfMemoryError: Java heap")
            && error.contains("; increase `app.heap`"),
        "{error}"
    );
}

#[test]
fn a_rate_beyond_what_tomcat_serves_does_not_conform() {
    let dir = tempfile::tempdir().unwrap();
    let flooded = settings(&[("rate", "100000")]);
    let mut trial = trial(&flooded, dir.path()).unwrap();
    let error = format!("{:#}", run(&mut trial, dir.path()).unwrap_err());
    assert!(error.starts_with("The run does not conform: ") && error.ends_with("; lower `app.rate`"), "{error}");
}

#[test]
fn a_long_run_is_not_taken_for_a_hang() {
    let silence = |more: &[(&str, &str)]| {
        let options = testing::options(&App, more.iter().copied()).unwrap();
        let app = App.parse(&options).unwrap();
        (app.silence().as_secs(), app.guest_silence().as_secs())
    };
    // 30 s on the wall clock, and 1,400 requests of 100 ms in a guest.
    assert_eq!(silence(&[]), (630, 740));
    assert_eq!(silence(&[("length", "40m"), ("warmup", "10m")]), (600 + 3000, 600 + 20 * 3000));
    assert_eq!(silence(&[("length", "20000"), ("warmup", "0")]), (600 + 200, 600 + 2000));
    // A rate may be so low that requests are 2.5 s apart.
    assert_eq!(silence(&[("rate", "0.1"), ("length", "4000"), ("warmup", "0")]), (600 + 10_000, 600 + 10_000));
}

#[test]
fn options_are_refused_with_what_would_be_right() {
    for (more, want) in [
        (&[("rate", "0")][..], "`app.rate` cannot be `0`; it can be dealers' operations per second from 0.1"),
        (&[("rate", "search"), ("length", "1000")], "`search` needs `app.length` as a time"),
        (&[("clients", "0")], "`app.clients` cannot be `0`; it can be 1 to 10000, or `auto`"),
        (&[("threads", "1001")], "1 to 1000, or `auto`"),
        (&[("pool", "none")], "`app.pool` cannot be `none`"),
        (&[("dealers", "auto")], "`app.dealers` cannot be `auto`; it can be 10 to 1000000"),
        (&[("session", "17M")], "an amount from `0` to `16M`"),
        (&[("heap", "1M")], "an amount from `16M` to `1T`, or `auto`"),
        (&[("length", "399")], "`app.length` cannot be `399`; it can be a number of requests from `400`"),
        (&[("warmup", "soon")], "`app.warmup` cannot be `soon`"),
        (&[("virtual-threads", "on")], "virtual threads need Java 21 or newer, and Debian 12 has Java 17"),
        (&[("threads-kind", "virtual")], "virtual threads need Java 21"),
        (&[("transport", "unix")], "all tiers are reached by TCP"),
        (&[("database", "sqlite")], "`app.database` cannot be `sqlite`; it can be `postgres` or `mariadb`"),
        (&[("database-on", "db1")], "`app.database-on` cannot be `db1`; it can be `here`, or `ssh:NAME`"),
        (&[("tomcat-on", "ssh:a,ssh:b")], "`here`, or `ssh:NAME` with the machine's name for OpenSSH"),
        (&[("tomcat-on", "ssh:-oProxyCommand=x")], "`app.tomcat-on` cannot be `ssh:-oProxyCommand=x`"),
        (&[("tomcat-on", "local")], "`app.tomcat-on` cannot be `local`"),
        (&[("thread", "9")], "did you mean `app.threads`?"),
    ] {
        let error = testing::options(&App, more.iter().copied()).unwrap_err();
        assert!(error.contains(want), "{more:?}: {error}");
    }
    let auto = Settings::parse(&testing::options(&App, []).unwrap()).unwrap();
    assert_eq!((auto.wall.rate, auto.other.rate), (Rate::Search, Rate::Off));
    assert_eq!((auto.wall.servers.threads, auto.wall.servers.pool, auto.wall.clients), (50, 100, 100));
    assert_eq!(auto.other.length, RunLength::Operations(800));
    assert!(auto.wall.servers.background && !auto.other.servers.background);
    assert!(auto.other.servers.quick_compiler && !auto.wall.servers.quick_compiler);
    // A guest has no network.
    let elsewhere = App.parse(&testing::options(&App, [("database-on", "ssh:db1")]).unwrap()).unwrap();
    let refused = elsewhere.check_arm(RunsOn::Guest).unwrap_err();
    assert!(refused.contains("cannot reach the server of `app.database-on`"), "{refused}");
    elsewhere.check_arm(RunsOn::Elsewhere).unwrap();
    // A number of requests is no length of a search.
    let counted = Settings::parse(&testing::options(&App, [("length", "400")]).unwrap()).unwrap();
    assert_eq!(counted.wall.rate, Rate::Off);
}
