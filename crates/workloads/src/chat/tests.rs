//! Runs every shape, kind of worker and carrier with few messages, and with wrong messages.

use std::path::PathBuf;

use proptest::prelude::*;

use super::message::Header;
use super::*;
use bigiron_workload::{WrongData, testing};

/// The page of the workload.
const PAGE: &str = include_str!("../../../../docs/workloads/chat.md");

fn options(settings: &[(&str, &str)]) -> Result<Options, String> {
    testing::options(&Chat, settings.iter().copied())
}

fn with_context<T>(settings: &[(&str, &str)], act: impl FnOnce(&Spec, &Context<'_>) -> T) -> T {
    let options = options(settings).unwrap();
    let spec = Spec::parse(&options).unwrap();
    act(
        &spec,
        &Context {
            seed: 5,
            cpus: 1,
            executable: PathBuf::from("/nonexistent"),
            ..testing::context("/nonexistent".as_ref())
        },
    )
}

const SMALL: [(&str, &str); 6] =
    [("groups", "2"), ("peers", "3"), ("loops", "7"), ("rooms", "2"), ("users", "3"), ("messages", "7")];

#[test]
fn every_shape_runs_over_every_carrier_with_both_kinds_of_workers() {
    for (shape, messages) in [("groups", 2 * 3 * 3 * 7 * 2), ("rooms", 2 * 3 * 7 * 3 * 2)] {
        for carrier in ["socketpair", "pipe", "tcp"] {
            for workers in ["processes", "threads"] {
                let own = [("shape", shape), ("carrier", carrier), ("workers", workers), ("runs", "2")];
                let settings = [&SMALL[..], &own].concat();
                with_context(&settings, |spec, cx| {
                    let mut trial = spec.prepare(cx).unwrap();
                    let outcome = trial.run(cx).unwrap_or_else(|e| panic!("{own:?}: {e:#}"));
                    trial.verify(cx).unwrap();
                    let declared = spec.metrics();
                    assert_eq!(declared.iter().filter(|m| m.primary).count(), 1);
                    assert_eq!(declared.len(), outcome.values.len());
                    assert!(declared.iter().all(|m| m.kind.takes(outcome.values[&m.name])), "{:?}", outcome.values);
                    assert_eq!(outcome.facts["messages-checked"], messages.to_string());
                    let rate = messages as f64 / (outcome.values["elapsed"] / 1e9);
                    assert!((outcome.values["messages"] / rate - 1.0).abs() < 1e-9);
                });
            }
        }
    }
}

/// A run of one group or room of two, with `body` in place of every worker's own.
fn board<T>(act: impl FnOnce(&RunBoard<'_>) -> T) -> T {
    let segment = Segment::new(BOARD_BYTES).unwrap();
    act(&RunBoard::new(&segment))
}

#[test]
fn a_worker_that_fails_ends_the_run_and_says_why() {
    let run = |how: fn(usize) -> i32| {
        board(|board| {
            board.run(2, |children| {
                for key in 0..2 {
                    children.fork(key, || {
                        board.run_worker(|| match how(key) {
                            0 => Ok(()),
                            1 => Err(worker_group::WorkerError::Wrong("Twice the same".to_owned())),
                            2 => {
                                Err(worker_group::WorkerError::Io("Cannot send", std::io::ErrorKind::BrokenPipe.into()))
                            }
                            // Waits for a worker that has failed.
                            3 => loop {
                                std::thread::sleep(std::time::Duration::from_secs(600));
                            },
                            _ => bigiron_sys::process::exit_now(9),
                        })
                    })?;
                }
                Ok(())
            })
        })
    };
    assert!(run(|_| 0).is_ok());
    let wrong = run(|key| if key == 1 { 1 } else { 3 }).unwrap_err();
    assert!(wrong.is::<WrongData>() && wrong.to_string() == "Twice the same", "{wrong:?}");
    let error = run(|key| if key == 0 { 2 } else { 3 }).unwrap_err();
    assert!(!error.is::<WrongData>() && error.to_string() == "Cannot send: broken pipe", "{error:?}");
    let died = run(|key| if key == 1 { 4 } else { 3 }).unwrap_err();
    assert_eq!(died.to_string(), "Process 1 of the workers ended early with status 9");
}

#[test]
fn who_dies_before_all_are_ready_does_not_leave_them_waiting() {
    let error = board(|board| {
        board.run(2, |children| {
            children.fork(0, || board.run_worker(|| Ok(())))?;
            children.fork(1, || 7)?;
            Ok(())
        })
    });
    let message = error.unwrap_err().to_string();
    assert_eq!(message, "Process 1 of the workers ended early with status 7");
}

/// The verdict of a group's receiver on these messages.
fn received(carrier: &str, messages: &[Vec<u8>]) -> Result<(), String> {
    let settings = [("shape", "groups"), ("groups", "1"), ("peers", "2"), ("loops", "2"), ("carrier", carrier)];
    let spec = Spec::parse(&options(&settings).unwrap()).unwrap();
    let stamp = Stamp::new(5, spec.size);
    let groups = Groups { spec: &spec, groups: 1, peers: 2, rounds: 2, stamp: &stamp };
    let (input, output) = spec.carrier.one_way().unwrap();
    messages.iter().for_each(|m| carrier::send(rustix::fd::AsFd::as_fd(&output), m).unwrap());
    drop(output);
    groups.receive(0, 1, rustix::fd::AsFd::as_fd(&input)).map_err(|trouble| match trouble {
        worker_group::WorkerError::Wrong(what) => what,
        worker_group::WorkerError::Io(what, e) => format!("{what}: {e}"),
    })
}

fn messages(headers: &[(u32, u32, u64)]) -> Vec<Vec<u8>> {
    let stamp = Stamp::new(5, 100);
    let message = |(from, to, number): &(u32, u32, u64)| {
        let mut message = stamp.blank().0[..100].to_vec();
        stamp.put(&mut message, Header { from: *from, to: *to, number: *number });
        message
    };
    headers.iter().map(message).collect()
}

#[test]
fn a_receiver_finds_what_is_lost_doubled_misplaced_or_damaged() {
    let good = [(1, 1, 0), (0, 1, 0), (0, 1, 1), (1, 1, 1)];
    assert_eq!(received("socketpair", &messages(&good)), Ok(()));
    let with = |at: usize, header| {
        let mut changed = good;
        changed[at] = header;
        received("pipe", &messages(&changed)).unwrap_err()
    };
    for wrong in [with(2, (0, 1, 0)), with(0, (1, 0, 0)), with(3, (2, 1, 1)), with(1, (0, 1, 1))] {
        assert!(wrong.starts_with("Receiver 1 of group 0 got a message that is not its next"), "{wrong}");
    }
    assert!(received("pipe", &messages(&good[..3])).unwrap_err().starts_with("A receiver cannot receive"));
    let more = [&good[..], &[(1, 1, 2)]].concat();
    assert!(received("pipe", &messages(&more)).unwrap_err().ends_with("has 100 bytes more than were sent"));
    let mut damaged = messages(&good);
    damaged[2][99] ^= 1;
    assert!(received("pipe", &damaged).unwrap_err().ends_with("got a damaged message"));
}

#[test]
fn bytes_that_may_come_torn_are_counted_by_their_sender() {
    let whole = [vec![0; 150], vec![1; 200], vec![0; 50]];
    assert_eq!(received("tcp", &whole), Ok(()));
    let wrong = received("tcp", &[vec![0; 199], vec![1; 201]]).unwrap_err();
    assert_eq!(wrong, "Receiver 1 of group 0 got 199 bytes marked 0 instead of 200");
}

#[test]
fn the_shape_decides_what_is_not_said() {
    let of = |settings: &[(&str, &str)]| Spec::parse(&options(settings).unwrap()).unwrap();
    let rooms = of(&[]);
    assert_eq!((rooms.workers, rooms.carrier, rooms.workers()), (Workers::Threads, Carrier::Tcp, 800));
    // Counted as by chat in 2003: in each of ten rooms 20 users send 100 messages each, and each message goes to 19 others.
    assert_eq!(of(&[("messages", "100")]).messages(Clock::Exact), 10 * (2_000 + 38_000));
    let groups = of(&[("shape", "groups")]);
    assert_eq!((groups.workers, groups.carrier, groups.workers()), (Workers::Processes, Carrier::Socketpair, 400));
    assert_eq!(of(&[("shape", "groups"), ("loops", "100")]).messages(Clock::Wall), 400_000);
    assert!(
        groups.rounds(Clock::Wall) > groups.rounds(Clock::Exact)
            && rooms.rounds(Clock::Wall) > rooms.rounds(Clock::None)
    );
}

#[test]
fn a_long_run_is_not_taken_for_a_hang() {
    let silence = |settings: &[(&str, &str)]| {
        let spec = Chat.parse(&options(settings).unwrap()).unwrap();
        (spec.silence().as_secs(), spec.guest_silence().as_secs())
    };
    // By default 2,000,000 messages on the wall clock, and 40,000 under the exact clock.
    assert_eq!(silence(&[]), (200, 200));
    // 10 × 20 × 20 × 10,000, and emulated ten times as long.
    let many = ("messages", "10000");
    assert_eq!(silence(&[many]), (4000, 40_000));
    assert_eq!(silence(&[many, ("engine", "java")]), (12_000, 120_000));
    assert_eq!(silence(&[("shape", "groups"), ("loops", "100"), ("runs", "9")]), (40, 400));
}

#[test]
fn bad_options_are_refused_with_what_is_right() {
    let refuse = |name, value| options(&[(name, value)]).unwrap_err();
    assert_eq!(refuse("peers", "0"), "`chat.peers` must be a number from 1 to 200, not `0`");
    assert_eq!(refuse("loops", "many"), "`chat.loops` must be a number from 1 to 10000000, not `many` (or `auto`)");
    assert!(refuse("size", "15").starts_with("`chat.size` must be from 16"));
    for (name, value) in
        [("size", "4097"), ("users", "1"), ("rooms", "-1"), ("groups", ""), ("carrier", "udp"), ("runs", "0")]
    {
        refuse(name, value);
    }
    assert!(refuse("messages", "10000000").contains("reduce `chat.messages`"));
    let many = options(&[("rooms", "1000"), ("users", "200")]).unwrap_err();
    assert_eq!(many, "These options need 800000 workers; the maximum is 100000");
}

#[test]
fn the_page_names_every_option_and_metric() {
    for option in OPTIONS {
        assert!(PAGE.contains(&format!("| `chat.{}` |", option.name)), "{}", option.name);
    }
    for metric in Chat.parse(&options(&[]).unwrap()).unwrap().metrics() {
        assert!(PAGE.contains(&format!("`{}`", metric.name)), "{}", metric.name);
    }
}

proptest! {
    #[test]
    fn what_is_kept_in_memory_fits_into_what_is_asked_for(rooms in 1u32..4, users in 2u32..9, rounds in 1u32..40, size in 16usize..200) {
        let settings = [
            ("rooms", rooms.to_string()), ("users", users.to_string()), ("messages", rounds.to_string()), ("size", size.to_string()),
        ];
        let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let spec = Spec::parse(&options(&settings).unwrap()).unwrap();
        let bytes = spec.server_bytes(rounds) as usize + BOARD_BYTES;
        let segment = Segment::new(bytes).unwrap();
        RunBoard::new(&segment);
        let stamp = Stamp::new(1, size);
        // Panics if it does not fit.
        Rooms::new(&spec, (rooms, users), rounds, &stamp, &segment);
        prop_assert!(segment.used() <= bytes);
    }
}
