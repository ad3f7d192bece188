//! Whole trials on this machine: with real servers, and with one of this file that plants faults.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use bigiron_workload::{ByClock, Configured as _, Running as _, WorkloadResult, WrongData, testing};

use crate::document::Documents;
use crate::settings::Settings;
use crate::trial::Trial;
use crate::workload::Web;

pub(crate) fn settings(words: &[(&str, &str)]) -> Settings {
    let small = [("connections", "6"), ("threads", "2"), ("warmup", "60"), ("length", "300")];
    let options = testing::options(&Web, small.into_iter().chain(words.iter().copied())).unwrap();
    let ByClock { other, .. } = Settings::parse(&options).unwrap();
    other
}

/// A trial; `meddle` is called between its preparation and its run.
pub(crate) fn trial(settings: &Settings, meddle: impl FnOnce(&mut Trial<'_>)) -> Result<WorkloadResult> {
    let dir = tempfile::tempdir().unwrap();
    let cx = testing::context(dir.path());
    let mut trial = Trial::prepare(&cx, settings)?;
    meddle(&mut trial);
    let outcome = trial.run(&cx)?;
    Box::new(trial).verify(&cx)?;
    Ok(outcome)
}

/// The first of a few trials that the machine did not disturb. If all stands still for a part of a second, no connection gets enough of its line; and if
/// the thread that reads the server's CPU time does, the window is over when it reads it first.
fn undisturbed(settings: &Settings) -> Result<WorkloadResult, String> {
    let mut disturbed = Vec::new();
    while disturbed.len() < 10 {
        match trial(settings, |_| {}).map_err(|error| format!("{error:#}")) {
            Err(said) if said.starts_with("None of ") && said.contains(" connections got ") => disturbed.push(said),
            Err(said) if said.starts_with("The window is too short to see any CPU time of the server") => {
                disturbed.push(said);
            }
            outcome => return outcome,
        }
    }
    Err(format!("{disturbed:?}"))
}

#[test]
fn real_servers_are_driven_in_every_way_and_deliver_what_is_declared() {
    for words in [
        &[("server", "nginx")][..],
        &[("server", "nginx"), ("keep-alive", "page"), ("sendfile", "no"), ("access-log", "no")],
        &[("server", "nginx"), ("keep-alive", "no"), ("rate", "2000"), ("reuseport", "yes")],
        &[("server", "nginx"), ("pipeline", "4"), ("workers", "1")],
        &[("server", "apache")],
        &[("server", "apache"), ("mpm", "worker"), ("keep-alive", "page")],
        &[("server", "apache"), ("mpm", "prefork"), ("rate", "2000")],
        &[("job", "c10k"), ("connections", "600"), ("busy", "5")],
        &[("job", "c10k"), ("connections", "600"), ("server", "apache"), ("rate", "2000")],
        &[("job", "tls")],
        &[("job", "tls"), ("server", "apache"), ("tls-version", "1.2"), ("rate", "1000")],
        &[("job", "tls"), ("tls-load", "bulk"), ("tls-version", "1.2"), ("length", "300")],
        &[("job", "tls"), ("tls-load", "bulk"), ("server", "apache"), ("pipeline", "2")],
        &[("job", "web99"), ("dynamic", "no"), ("directories", "2"), ("keep-alive", "page"), ("line-rate", "4e6")],
        &[("job", "web99"), ("dynamic", "no"), ("directories", "1"), ("line-rate", "off"), ("rate", "1000")],
    ] {
        let settings = settings(words);
        let outcome = undisturbed(&settings).unwrap_or_else(|said| panic!("{words:?}: {said}"));
        let declared = settings.metrics();
        assert_eq!(outcome.values.len(), declared.len(), "{words:?}");
        for def in declared {
            let value = outcome.values[&def.name];
            assert!(def.kind.takes(value), "{words:?}: {} is {value}", def.name);
        }
        assert_eq!(outcome.facts["requests-checked"], "300", "{words:?}");
        assert_eq!(outcome.windows[0].operations, 300);
        if settings.keep_alive == crate::settings::KeepAlive::No {
            assert!(outcome.facts["connections-made"].parse::<u32>().unwrap() > 200, "{:?}", outcome.facts);
        }
    }
}

#[test]
fn a_server_behind_network_devices_is_driven_over_them() {
    // Many requests for those that are counted: on a busy machine the window is partly over when the packets are first read.
    for words in [
        &[("server", "nginx"), ("network", "veth"), ("length", "3000")][..],
        &[("server", "apache"), ("network", "veth"), ("job", "tls"), ("length", "1000")],
        &[("job", "c10k"), ("network", "veth"), ("connections", "100"), ("busy", "4"), ("length", "3000")],
    ] {
        let outcome = match undisturbed(&settings(words)) {
            Err(said) if said.contains("No network between clients and servers") => {
                return testing::skipped("a web server behind network devices", said);
            }
            outcome => outcome.unwrap_or_else(|said| panic!("{words:?}: {said}")),
        };
        let packets = |fact: &str| outcome.facts[fact].split_once(' ').unwrap().0.parse::<u64>().unwrap();
        assert_eq!(outcome.facts["network"], "veth between two network namespaces");
        assert!(packets("network.servers-sent") >= 300 && packets("network.servers-received") >= 300, "{words:?}");
    }
}

#[test]
fn a_document_that_changed_is_wrong_data() {
    let settings = settings(&[]);
    let error = trial(&settings, |trial| trial.server().documents.spoil(1, 20_000)).unwrap_err();
    assert!(error.is::<WrongData>(), "{error:#}");
    let said = error.to_string();
    assert!(said.starts_with("Byte 20000 of `/images/left.png` is ") && said.contains("but the server sent"), "{said}");
}

#[test]
fn a_server_that_is_killed_fails_the_trial_with_the_cause() {
    // All processes in the middle of the run; or the first one alone: the others still answer, but nobody looks after them.
    for (server, length, all) in [("nginx", "600s", true), ("apache", "600s", true), ("nginx", "300", false)] {
        let settings = settings(&[("server", server), ("length", length)]);
        let error = trial(&settings, |trial| {
            let pid = Pid::from_raw(trial.server().pid().unwrap() as i32).unwrap();
            if all {
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(500));
                    kill_process_group(pid, Signal::KILL).unwrap();
                });
            } else {
                kill_process(pid, Signal::KILL).unwrap();
                // The others may be done before it has ended. It stays unreaped.
                waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
            }
        });
        let said = format!("{:#}", error.unwrap_err());
        assert!(said.contains(" ended in the run (signal: 9 (SIGKILL))"), "{server}: {said}");
    }
}

#[test]
fn more_connections_than_files_are_refused_before_the_first_trial() {
    // In a process of its own, whose limit is lowered.
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", "ulimit -n 300 && exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "tests::the_limit_is_low"])
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
}

#[test]
#[ignore = "the test above runs it"]
fn the_limit_is_low() {
    let settings = settings(&[("job", "c10k"), ("busy", "6"), ("connections", "10000")]);
    let cx = bigiron_workload::ImageContext { filesystem: None, foundation: &Default::default(), note: &|_| {} };
    // Root may raise the limit.
    match crate::images::of(&settings, &cx) {
        Ok(_) => assert!(rustix::process::geteuid().is_root()),
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains("opens up to 15256 files; `ulimit -Hn` is 300 and must be at least that"), "{said}");
        }
    }
    assert!(rustix::process::getrlimit(rustix::process::Resource::Nofile).current >= Some(300));
}

/// Serves each connection with `answer`, which gets the number of the request on its connection, from 0, and the stream.
fn serve(answer: impl Fn(u32, &mut TcpStream) -> bool + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = std::sync::Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = std::sync::Arc::clone(&answer);
            thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let mut stream = stream;
                let mut number = 0;
                // A request ends with an empty line.
                while let Some(Ok(line)) = lines.next() {
                    if line.is_empty() {
                        if !answer(number, &mut stream) {
                            return;
                        }
                        number += 1;
                    }
                }
            });
        }
    });
    port
}

fn of_url(port: u16, words: &[(&str, &str)]) -> Result<WorkloadResult> {
    let url = format!("http://127.0.0.1:{port}/x");
    let words: Vec<_> = [("server", "url"), ("url", url.as_str())].into_iter().chain(words.iter().copied()).collect();
    trial(&settings(&words), |_| {})
}

#[test]
fn a_server_of_the_users_is_driven_however_it_cuts_and_ends_its_responses() {
    let server = |ends: bool| {
        serve(move |number, stream| {
            // What is in flight then is lost, so not if requests are pipelined.
            let last = ends && number % 7 == 6;
            let close = if last { "Connection: close\r\n" } else { "" };
            let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
            let text = format!("{chunks}{close}\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
            // In two pieces, at another place each time.
            let (head, tail) = text.split_at(1 + number as usize * 13 % (text.len() - 1));
            stream.set_nodelay(true).is_ok()
                && stream.write_all(head.as_bytes()).is_ok()
                && stream.write_all(tail.as_bytes()).is_ok()
                && !last
        })
    };
    for (ends, words) in [(true, &[][..]), (true, &[("keep-alive", "no")]), (false, &[("pipeline", "3")])] {
        let outcome = of_url(server(ends), words).unwrap_or_else(|e| panic!("{words:?}: {e:#}"));
        assert_eq!(outcome.facts["document-bytes"], "11");
        // Every seventh response ends its connection, also in the window of 300 requests.
        let made: u64 = outcome.facts["connections-made"].parse().unwrap();
        let right = if !ends {
            // None is made again; a thread that starts late makes its own in the window.
            0..7
        } else if words.is_empty() {
            20..80
        } else {
            150..400
        };
        assert!(right.contains(&made), "{words:?}: {made} connections");
        assert!(!outcome.values.contains_key("server-cpu") && outcome.values["driver-cpu"] > 0.0);
    }
}

#[test]
fn what_a_faulty_server_does_is_the_cause() {
    let good = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    for (bad, wrong, words) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellO", true, "Byte 4 of `/x` is 0x6f, but the server sent 0x4f"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell", true, "`/x` has 5 bytes, but the server sent 4"),
        ("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", false, "answered a request for `/x` with status 503"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", false, "closed a connection in the middle of a response"),
        ("220 mail\r\n\r\n", false, "does not begin like one of HTTP/1.1: `220 mail`"),
        ("", false, "closed a connection without answering a request"),
    ] {
        let port = serve(move |number, stream| {
            let text = if number == 20 { bad } else { good };
            stream.write_all(text.as_bytes()).is_ok() && text == good
        });
        let error = of_url(port, &[]).unwrap_err();
        assert!(error.to_string().contains(words), "{bad}: {error:#}");
        assert_eq!(error.is::<WrongData>(), wrong, "{bad}: {error:#}");
    }
}

#[test]
fn a_server_that_is_not_there_or_changes_its_mind_is_refused() {
    // That of tcpmux, which nobody uses: one that was free a moment ago may be another test's.
    let port = 1;
    let said = format!("{:#}", of_url(port, &[]).unwrap_err());
    assert!(said.contains(&format!("Cannot fetch http://127.0.0.1:{port}/x: No server at 127.0.0.1:{port}")), "{said}");
    let count = std::sync::atomic::AtomicU32::new(0);
    let port = serve(move |_, stream| {
        let n = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{n}").is_ok()
    });
    let said = of_url(port, &[]).unwrap_err().to_string();
    assert!(said.contains("does not always send the same bytes"), "{said}");
    // The documents of a job are never empty.
    assert!((0..3).all(|n| !Documents::static_page().body(n).is_empty()));
}
