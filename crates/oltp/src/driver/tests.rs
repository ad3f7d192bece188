//! The event loop against a scripted server that speaks the protocol on a Unix socket.

use super::*;
use crate::config::RunLength;
use crate::driver::fixture;
use crate::output::Output;
use bigiron_model::clock::Clock;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The server's reply to its n-th transaction (counted from 0, over all connections).
type Script = fn(u64) -> Reply;

enum Reply {
    Answer,
    Deadlock,
    Refuse,
    Hang,
    Close,
}

struct Fake {
    _dir: tempfile::TempDir,
    url: Url,
    /// Number of transactions requested.
    asked: Arc<AtomicU64>,
}

impl Fake {
    fn start(script: Script) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, count) = (stream.unwrap(), Arc::clone(&count));
                // The server does not care about a closed client.
                thread::spawn(move || serve(stream, script, &count));
            }
        });
        let url = Url::parse(&format!("postgresql://u@/d?host={}", dir.path().display())).unwrap();
        Self { _dir: dir, url, asked }
    }
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut all = vec![tag];
    all.extend((body.len() as u32 + 4).to_be_bytes());
    all.extend(body);
    all
}

fn error(code: &str) -> Vec<u8> {
    message(b'E', format!("SERROR\0C{code}\0Mscripted\0\0").as_bytes())
}

/// Acts as the server for one client.
fn serve(mut stream: UnixStream, script: Script, asked: &AtomicU64) -> std::io::Result<()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut startup)?;
    let ready = message(b'Z', b"I");
    stream.write_all(&[message(b'R', &[0; 4]), message(b'K', &[0; 8]), ready.clone()].concat())?;
    // The requests in the messages before the next Sync.
    let (mut answer, mut executed) = (Vec::new(), false);
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let mut body = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
        stream.read_exact(&mut body)?;
        match head[0] {
            b'Q' => stream.write_all(&[message(b'C', b"SET\0"), ready.clone()].concat())?,
            b'P' => answer.extend(message(b'1', b"")),
            b'B' => answer.extend(message(b'2', b"")),
            b'E' => executed = true,
            b'S' if !executed => {
                stream.write_all(&[std::mem::take(&mut answer), ready.clone()].concat())?;
            }
            b'S' => {
                executed = false;
                let mut answer = std::mem::take(&mut answer);
                match script(asked.fetch_add(1, Relaxed)) {
                    Reply::Answer => {
                        // One column: the integer 7.
                        answer.extend(message(b'D', &[0, 1, 0, 0, 0, 4, 0, 0, 0, 7]));
                        answer.extend(message(b'C', b"SELECT 1\0"));
                    }
                    Reply::Deadlock => answer.extend(error("40P01")),
                    Reply::Refuse => answer.extend(error("22012")),
                    Reply::Hang => continue,
                    Reply::Close => return Ok(()),
                }
                answer.extend(&ready);
                stream.write_all(&answer)?;
            }
            b'X' => return Ok(()),
            _ => {}
        }
    }
}

/// Only stock levels: one statement that returns one integer.
fn config(settings: &[(&str, &str)]) -> Config {
    let settings: Vec<_> = [("mix", "0/0/0/0/100"), ("ramp", "20"), ("length", "300")]
        .into_iter()
        .chain(settings.iter().copied())
        .collect();
    fixture::job(&settings).config(Clock::Exact, 4)
}

fn drive(fake: &Fake, config: &Config) -> (Result<DriveResult>, Vec<RunMoment>) {
    let mut moments = Vec::new();
    let mut watch = |moment: RunMoment| moments.push(moment);
    let target = DriveTarget::Postgres(&fake.url);
    let driven = run(Drive { config, target, seed: 3, after: 0, watch: &mut watch, ledger: None });
    (driven, moments)
}

#[test]
fn the_window_holds_exactly_its_transactions_and_every_answer_is_in_the_ledger() {
    let fake = Fake::start(|_| Reply::Answer);
    let config = config(&[("connections", "5"), ("drivers", "2")]);
    assert_eq!(
        (config.drivers, config.ramp, config.length),
        (2, RunLength::Operations(20), RunLength::Operations(300))
    );
    let answers: Mutex<Vec<(u32, i64, Output)>> = Mutex::default();
    let ledger = |thread: u32| -> LedgerWriter<'_> {
        let answers = &answers;
        Box::new(move |request, output| answers.lock().unwrap().push((thread, request.date, output.clone())))
    };
    let mut moments = Vec::new();
    let driven = run(Drive {
        config: &config,
        target: DriveTarget::Postgres(&fake.url),
        seed: 3,
        after: 0,
        watch: &mut |moment| moments.push(moment),
        ledger: Some(&ledger),
    })
    .unwrap();
    assert_eq!((driven.transactions(), driven.latency().count(), driven.lost), (300, 300, None));
    assert!(driven.window_ns > 0 && driven.cpu.total.as_nanos() > 0);
    moments.retain(|m| *m != RunMoment::Sample);
    assert_eq!(moments, [RunMoment::Opened, RunMoment::Halfway, RunMoment::Closed]);
    // The ramp and the transactions in progress at the end are answered as well.
    let whole: u64 = driven.tally.whole.iter().map(TransactionCounts::ended).sum();
    let answers = answers.into_inner().unwrap();
    // Five connections: transactions that the other thread ends while one opens or closes the window are in no window.
    assert!((320..=330).contains(&whole), "{whole}");
    assert_eq!((answers.len() as u64, fake.asked.load(Relaxed)), (whole, whole));
    assert!(answers.iter().all(|(.., output)| *output == Output::StockLevel { low: 7 }));
    let dates: BTreeSet<_> = answers.iter().map(|(_, date, _)| date).collect();
    assert_eq!(dates.len(), answers.len());
    // A thread may have nothing left to do when it is scheduled.
    assert!(answers.iter().all(|(thread, ..)| *thread < 2));
}

#[test]
fn deadlocks_are_tried_again_and_counted() {
    // One in four, without a period that the turns of three connections could match.
    const fn deadlock(n: u64) -> bool {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 3
    }
    let fake = Fake::start(|n| if deadlock(n) { Reply::Deadlock } else { Reply::Answer });
    let driven = drive(&fake, &config(&[("connections", "3")])).0.unwrap();
    let whole = driven.tally.whole[TransactionKind::StockLevel.index()];
    assert_eq!(driven.transactions(), 300);
    let asked = fake.asked.load(Relaxed);
    assert_eq!(whole.committed + whole.retries, asked);
    assert_eq!(whole.retries, (0..asked).filter(|n| deadlock(*n)).count() as u64);
    assert!(whole.retries > 50, "{}", whole.retries);
}

#[test]
fn any_other_error_fails_the_run_in_the_servers_words() {
    for script in [
        |n| if n == 50 { Reply::Refuse } else { Reply::Answer },
        |n| if n >= 50 { Reply::Deadlock } else { Reply::Answer },
    ] as [Script; 2]
    {
        let error = drive(&Fake::start(script), &config(&[])).0.unwrap_err().to_string();
        assert!(error.starts_with("A transaction failed: stock-level:") && error.contains("scripted"), "{error}");
    }
}

#[test]
fn a_lost_server_leaves_its_requests_in_doubt_and_no_thread_behind() {
    // One connection of four is closed by the server; the others are still answered.
    let fake = Fake::start(|n| if n == 100 { Reply::Close } else { Reply::Answer });
    let (driven, moments) = drive(&fake, &config(&[("connections", "4"), ("drivers", "2")]));
    let driven = driven.unwrap();
    assert!(driven.lost.is_some());
    assert_eq!(driven.in_doubt.len(), 1, "{:?}", driven.in_doubt);
    let whole: u64 = driven.tally.whole.iter().map(TransactionCounts::ended).sum();
    assert_eq!(whole + 1, fake.asked.load(Relaxed));
    assert_eq!(moments.last(), Some(&RunMoment::Closed));
    let fake = Fake::start(|n| if n >= 100 { Reply::Close } else { Reply::Answer });
    let driven = drive(&fake, &config(&[])).0.unwrap();
    assert!(driven.lost.is_some() && (1..=4).contains(&driven.in_doubt.len()));
}

#[test]
fn nobody_to_connect_to_is_an_error() {
    let fake = Fake::start(|_| Reply::Hang);
    let url = Url::parse("postgresql://u@/d?host=/nonexistent").unwrap();
    let target = DriveTarget::Postgres(&url);
    let config = config(&[]);
    let none = run(Drive { config: &config, target, seed: 3, after: 0, watch: &mut |_| {}, ledger: None });
    assert!(format!("{:#}", none.unwrap_err()).starts_with("Cannot establish 4 connections: "));
    drop(fake);
}

#[test]
fn an_open_loop_and_users_that_think_run_on_the_same_sockets() {
    let fake = Fake::start(|_| Reply::Answer);
    let open = config(&[("rate", "20000"), ("connections", "2"), ("terminals", "50")]);
    let driven = drive(&fake, &open).0.unwrap();
    assert_eq!(driven.transactions(), 300);
    // 60 users with a mean think time of 5 ms on 3 connections, for a tenth of a second; for longer if a machine that stalls let nothing end in
    // it.
    let counted = [("100ms", 100), ("1s", 1_000), ("10s", 10_000), ("60s", 60_000)].into_iter().any(|(length, ms)| {
        let settings =
            [("terminals", "60"), ("connections", "3"), ("think", "0.001"), ("length", length), ("ramp", "0")];
        let driven = drive(&fake, &config(&settings)).0.unwrap();
        assert_eq!(driven.window_ns, ms * 1_000_000);
        driven.transactions() > 0
    });
    assert!(counted, "no transaction ends in a window of time");
}

#[test]
fn a_live_server_agrees_with_the_driver() {
    use crate::trial;
    use crate::trial_database::{Procedures, load_marked};
    use bigiron_sql::server::Listen;
    use bigiron_sql::server::Transport;
    use bigiron_sql::server::{cluster, testing};
    let server = testing::start(Listen::Socket, &[("fsync", "off"), ("full_page_writes", "off")]);
    let url = cluster::url(&server.cluster, Transport::Unix).unwrap();
    load_marked(&url, crate::Scale { warehouses: 1 }, Procedures::Needed, &|_, _, _| ()).unwrap();
    let target = DriveTarget::Postgres(&url);
    let dir = tempfile::tempdir().unwrap();
    let cx = fixture::context(dir.path());
    for settings in [
        &[("mode", "procedures"), ("length", "300")][..],
        &[("mode", "pipelined"), ("length", "300"), ("connections", "8"), ("drivers", "2")],
        &[("mode", "round-trips"), ("length", "300")],
        // A second by schedule: a slow machine only takes longer to respond.
        &[("rate", "400"), ("length", "400"), ("ramp", "20"), ("connections", "8")],
    ] {
        let job = fixture::job(&[settings, &[("limits", "600/600/600/600/600")]].concat());
        let outcome = trial::run(&job, &target, &cx).unwrap();
        trial::verify(&target, &cx).unwrap();
        assert!(outcome.values.values().all(|v| *v > 0.0), "{:?}", outcome.values);
        assert!(outcome.facts["agreement"].contains("by the database's"));
    }
}

/// Prints the effect on latencies of a server that freezes for 2 s of 16; used for the figures of the benches.
#[test]
#[ignore = "a measurement, not a test: what a frozen server does to an open and to a closed loop"]
fn a_frozen_server_is_in_the_latencies_of_an_open_loop() {
    use crate::trial_database::{Procedures, load_marked};
    use bigiron_sql::server::Listen;
    use bigiron_sql::server::Transport;
    use bigiron_sql::server::{cluster, testing};
    use rustix::process::{Pid, Signal, kill_process};
    let server = testing::start(Listen::Socket, &[]);
    let url = cluster::url(&server.cluster, Transport::Unix).unwrap();
    load_marked(&url, crate::Scale { warehouses: 1 }, Procedures::Needed, &|_, _, _| ()).unwrap();
    let freeze = || {
        // The sessions are children of the postmaster, as are its other workers.
        let postmaster = server.cluster.pid();
        let listed = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).unwrap();
        let all: Vec<Pid> = listed.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect();
        assert!(all.len() > 4);
        let send = |signal| {
            for pid in &all {
                let _ = kill_process(*pid, signal);
            }
        };
        send(Signal::STOP);
        thread::sleep(Duration::from_secs(2));
        send(Signal::CONT);
    };
    for (after, (rate, connections)) in (1..).zip([("off", "8"), ("200", "8"), ("500", "8"), ("1000", "32")]) {
        let settings = [("rate", rate), ("connections", connections), ("ramp", "2s"), ("length", "16s")];
        let config = fixture::job(&settings).config(Clock::Wall, 2);
        let driven = thread::scope(|scope| {
            let mut watch = |moment: RunMoment| {
                if moment == RunMoment::Halfway {
                    scope.spawn(freeze);
                }
            };
            let (target, after) = (DriveTarget::Postgres(&url), after * 1_000_000_000_000_000);
            run(Drive { config: &config, target, seed: 3, after, watch: &mut watch, ledger: None }).unwrap()
        });
        let latency = driven.latency();
        let within = (0..=1_000_000).rev().map(|n| f64::from(n) / 1e6);
        let within = { within }.find(|q| latency.quantile(*q).is_none_or(|ns| ns <= 500_000_000)).unwrap_or(0.0);
        eprintln!(
            "rate {rate:>4}, {connections:>2} connections: {} transactions, {:.4} % of them took more than 500 ms; longest {:.2} s, \
             queue of {}, {} waited at the end",
            driven.transactions(),
            (1.0 - within) * 100.0,
            latency.max().unwrap_or(0) as f64 / 1e9,
            driven.longest_queue,
            driven.backlog,
        );
    }
}
