use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::driver::fixture;
use bigiron_model::clock::Clock;
use bigiron_sql::database::{Dialect, SqlValue};
use bigiron_sql::pg::ServerError;
use bigiron_workload::Context;
use bigiron_workload::testing;

fn trial_database(job: &Job, dir: &Path) -> TrialDatabase {
    let cx = Context { seed: 1, executable: "/bin/true".into(), ..testing::context(dir) };
    TrialDatabase::open(&cx, job, &job.config(Clock::Exact, 2)).unwrap()
}

/// A ramp without think time, whose limits are never exceeded.
fn job(users: &str, more: &[(&str, &str)]) -> Job {
    let settings = [
        ("job", "oast"),
        ("users", users),
        ("keying", "0.001"),
        ("think", "0.001"),
        ("ramp", "10"),
        // Enough for several of each kind: a step without one is not held.
        ("length", "500"),
        ("limits", "600/600/600/600/600"),
    ];
    fixture::job(&[&settings[..], more].concat())
}

fn context<'a>(dir: &'a Path, progress: &'a dyn Fn(Progress<'_>)) -> TrialContext<'a> {
    TrialContext { progress, ..fixture::context(dir) }
}

#[test]
fn each_step_tells_what_its_users_cost_and_one_without_room_ends_the_ramp() {
    let dir = tempfile::tempdir().unwrap();
    let job = job("8,16,60", &[("postgres.max_connections", "30")]);
    let mut trial_database = trial_database(&job, dir.path());
    let cx = context(dir.path(), &|_| ());
    let outcome = run(&job, &mut trial_database, &cx).unwrap();
    assert_eq!(outcome.values, BTreeMap::from([(USERS_HELD.to_owned(), 16.0)]));
    let fact = |name: &str| outcome.facts[name].as_str();
    assert!(fact("users.0000016").starts_with("held; ") && fact("users.0000016").contains("worst p90 "));
    assert!(
        fact("users.0000060").contains("Cannot establish 60 connections")
            && fact("users.0000060").contains("too many clients")
    );
    for users in ["0000008", "0000016"] {
        let bytes = |what: &str| fact(&format!("users.{users}.{what}-bytes")).parse::<u64>().unwrap();
        assert!(bytes("page-table") > 0);
        // A session that has planned statements has more than at its start, and less than the whole server.
        assert!((1 << 20..256 << 20).contains(&bytes("session")), "{}", bytes("session"));
        assert!(bytes("memory") < 64 << 30);
    }
    let told = steps_of(&outcome.facts);
    assert_eq!(told.iter().map(|s| s.users).collect::<Vec<_>>(), [8, 16, 60]);
    assert!(told[1].session > Some(0) && told[1].result == fact("users.0000016") && told[2].memory.is_none());
    assert!(
        is_of_step("users.0000016.session-bytes") && !is_of_step("users.0000016.detail") && !is_of_step("users-held")
    );
    assert!(fact("agreement").contains("by the database's") && !outcome.facts.contains_key("lost-server"));
    trial::verify(&trial_database.target(), &cx).unwrap();
    trial_database.close().unwrap();
}

#[test]
fn a_server_that_is_killed_ends_the_ramp_with_the_step_before_and_its_data_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    // More steps than the killer allows.
    let job = job("6..600:6", &[]);
    let mut trial_database = trial_database(&job, dir.path());
    let postmaster = trial_database.postmaster().unwrap() as i32;
    let (third, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let progress = |p: Progress<'_>| third.store(p.done > 1, Ordering::Release);
    let cx = context(dir.path(), &progress);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let sessions = crate::counters::children(postmaster);
                // One of many, during a later step: the ledger then has two.
                if third.load(Ordering::Acquire) && sessions.len() > 18 {
                    let _ = kill_process(Pid::from_raw(sessions[sessions.len() - 1]).unwrap(), Signal::KILL);
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let outcome = run(&job, &mut trial_database, &cx);
        done.store(true, Ordering::Release);
        outcome.unwrap()
    });
    let held = outcome.values[USERS_HELD] as u32;
    assert!((12..600).contains(&held) && held.is_multiple_of(6), "{held}");
    assert!(outcome.facts[&format!("users.{held:07}")].starts_with("held; "));
    assert!(outcome.facts[&format!("users.{:07}", held + 6)].starts_with("not held: "), "{:?}", outcome.facts);
    assert!(!outcome.facts.contains_key(&format!("users.{:07}", held + 12)));
    let said = &outcome.facts["lost-server"];
    assert!(said.contains("all acknowledged transactions are there") && said.contains("condition holds"), "{said}");
    trial::verify(&trial_database.target(), &cx).unwrap();
    trial_database.close().unwrap();
}

#[test]
fn a_server_that_crashed_between_two_connections_ends_the_ramp_although_it_is_back() {
    let is_back = |target: &DriveTarget<'_>| trial::database(target).is_ok();
    for waits in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let job = job("4,6,8,10", &[]);
        let mut trial_database = trial_database(&job, dir.path());
        let postmaster = trial_database.postmaster().unwrap() as i32;
        let place = match trial_database.target() {
            DriveTarget::Postgres(place) => place.clone(),
            other => panic!("{other:?}"),
        };
        // Before the second step connects: a helper of the server dies, and with it all sessions.
        let killed = AtomicBool::new(false);
        let progress = |p: Progress<'_>| {
            if p.done == 1 && !killed.swap(true, Ordering::AcqRel) {
                let child = crate::counters::children(postmaster)[0];
                kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
                while waits
                    && (crate::counters::children(postmaster).contains(&child)
                        || !is_back(&DriveTarget::Postgres(&place)))
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        };
        let outcome = run(&job, &mut trial_database, &context(dir.path(), &progress)).unwrap();
        assert_eq!(outcome.values[USERS_HELD], 4.0);
        assert!(outcome.facts["users.0000006"].starts_with("not held: "), "{:?}", outcome.facts);
        assert!(!outcome.facts.contains_key("users.0000008"));
        let said = &outcome.facts["lost-server"];
        assert!(said.contains("all acknowledged transactions are there"), "{said}");
        trial_database.close().unwrap();
    }
}

#[test]
fn a_first_step_that_is_not_held_is_no_result() {
    let dir = tempfile::tempdir().unwrap();
    let job = job("4,8", &[("engine", "sqlite"), ("connections", "1"), ("limits", "0.000001/600/600/600/600")]);
    let mut trial_database = trial_database(&job, dir.path());
    let error = run(&job, &mut trial_database, &context(dir.path(), &|_| ())).unwrap_err().to_string();
    assert!(error.contains("Not even 4 users are held: not held, new-order too slow"), "{error}");
    assert!(error.contains("start `oltp.users` with fewer"), "{error}");
}

#[test]
fn who_killed_is_said_only_if_somebody_was_killed() {
    assert_eq!(by_whom(Some(3), Some(3)), "");
    assert_eq!(by_whom(None, Some(3)), "");
    assert_eq!(by_whom(Some(3), Some(4)), "the kernel's OOM killer killed 1 process; ");
}

/// A session that answers so often, and is then ended.
struct Answers(u32);

impl Database for Answers {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute(&mut self, _: &str) -> Result<()> {
        self.rows("").map(drop)
    }

    fn rows(&mut self, _: &str) -> Result<Vec<Vec<SqlValue>>> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| anyhow!("ended"))?;
        Ok(Vec::new())
    }
}

#[test]
fn a_server_that_crashes_a_moment_later_does_not_live_on() {
    let watch = |answers| WatchSession(Some(Box::new(Answers(answers))));
    assert!(watch(1).lives());
    assert!(!watch(0).lives());
    assert!(!watch(3).lives_on());
    assert!(watch(u32::MAX).lives_on());
}

#[test]
fn a_connection_that_is_refused_is_told_from_a_server_that_goes_down() {
    let of_postgres = |sqlstate: &[u8; 5]| {
        let (severity, text) = ("FATAL".to_owned(), "said".to_owned());
        let error = ServerError { severity, sqlstate: SqlState(*sqlstate), text, detail: None, hint: None };
        Error::from(PgError::Startup { host: "h".to_owned(), error: Box::new(error) })
    };
    let of_mariadb =
        |code| Error::from(MariaError::Server { code, state: "08004".to_owned(), text: "said".to_owned() });
    let [host, cause] = ["h", "closed by the server"].map(str::to_owned);
    for (error, goes_down, in_words) in [
        (of_postgres(b"53300"), false, true),
        (of_postgres(b"57P03"), true, true),
        (Error::from(PgError::Closed("said".to_owned())), true, false),
        // A session that a crash ends before it is established.
        (Error::from(PgError::Connect { host, cause }), false, false),
        (of_mariadb(1040).context("Cannot establish 9 connections"), false, true),
        (of_mariadb(1053), true, true),
        (Error::from(MariaError::Closed("said".to_owned())), true, false),
    ] {
        assert!(is_of_connections(&error), "{error:#}");
        assert_eq!((is_cut_off(&error), is_refusal(&error)), (goes_down, in_words), "{error:#}");
    }
    assert!(!is_of_connections(&anyhow!("something else")));
}
