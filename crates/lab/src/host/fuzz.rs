//! What a guest says: its events, from the bytes in the file that QEMU writes to what a report shows of them.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use bigiron_model::clock::Clock;
use bigiron_model::fuzz_target;
use bigiron_model::purpose::Purpose;
use bigiron_model::record::Complaint;
use bigiron_model::store::testing;
use bigiron_model::waits::{FutexWait, LockStat, LockWait, Traced, WaitTally, WindowWaits};
use bigiron_model::workload::{Program, Window};
use bigiron_probe::symbols::Symbols;

use super::received_events::ReceivedEvents;
use super::{Trial, samples, waits};
use crate::protocol::{GuestEvent, PROTOCOL};
use crate::vm::watch::Watch;

const WORDS: &[&str] = &[
    "hello",
    "applied",
    "ready",
    "quiet",
    "step",
    "result",
    "windows",
    "counters",
    "marks",
    "waits",
    "samples",
    "lock-stat",
    "programs",
    "symbols",
    "features",
    "proved",
    "failed",
    "unfit",
    "complaints",
    "artifact",
    "done",
    "event",
    "null",
    "[]",
    "{}",
    "[[",
    "\"\"",
    "18446744073709551615",
    "1e999",
    "\\ud800",
    "\\u0000",
    "../x",
    "micro",
    "fork",
    "ffffffff81000000 T a\\n",
];

/// A trial's events in the order in which an agent sends them.
fn events() -> Vec<GuestEvent> {
    let name = |text: &str| text.to_owned();
    let guest = serde_json::json!({"release": "6.1", "version": "#1", "cmdline": "quiet", "cpus": 1, "memory_bytes": 1 << 30,
        "clocksource": "tsc"});
    let window = Window { metrics: vec![name("fork"), name("geomean")], operations: 10, ns: 1000 };
    let tally = WaitTally { waits: 3, spun: 1, total_ns: 900, spun_ns: 10, max_ns: 800 };
    let lock = LockWait { class: name("mutex"), lock: Some(name("a_lock")), caller: name("do_it"), tally };
    let futexes = vec![FutexWait { program: name("/init"), tally }];
    let waited = WindowWaits { locks: vec![lock.clone(), lock], futexes, ..WindowWaits::default() };
    let profile = serde_json::json!({"functions": {"do_it": 5}, "stacks": {"a;b": 5}, "idle": 1, "others": 2});
    let sampled = serde_json::json!({"event": "cpu-clock", "period_ns": 1_000_000, "cpus": 1, "samples": 8, "lost": 0});
    let taken = serde_json::json!({"sampled": sampled, "windows": [profile, profile]});
    let counters = serde_json::json!({"schema": 1, "names": ["vm.a"], "readings": 2, "reading_ns": 9, "windows": [
        {"workload": "micro", "metrics": ["fork"], "operations": 10, "ns": 100, "counts": [[0, 7]]}]});
    vec![
        GuestEvent::Hello { protocol: PROTOCOL, guest: serde_json::from_value(guest).unwrap() },
        GuestEvent::Ready,
        GuestEvent::Quiet { clocksource: name("tsc") },
        GuestEvent::Step { workload: name("micro"), step: name("fork"), done: 0, of: 2 },
        GuestEvent::Result {
            workload: name("micro"),
            values: vec![(name("fork"), 1.5), (name("geomean"), 2.5)],
            facts: vec![(name("note"), name("a fact"))],
        },
        GuestEvent::Windows { workload: name("micro"), windows: vec![window.clone(), window] },
        GuestEvent::Counters { counters: serde_json::from_value(counters).unwrap() },
        GuestEvent::Marks { marks: vec![(1, 10), (2, 20)] },
        GuestEvent::Waits { cpus: 1, traced: Traced::default(), windows: vec![waited.clone(), waited] },
        GuestEvent::Samples { taken: Ok(serde_json::from_value(taken).unwrap()) },
        GuestEvent::LockStat {
            stat: LockStat { workload: name("micro"), ns: 5, locks: vec![], total: Default::default() },
        },
        GuestEvent::Programs { programs: vec![Program { start: 0x1000, end: 0x2000, file: name("/init") }] },
        GuestEvent::Symbols { text: name("ffffffff81000000 _text\n80 __x64_sys_read\n") },
        GuestEvent::Features { found: vec![(name("journal"), name("on"))] },
        GuestEvent::Environment { facts: [(name("thp"), name("never"))].into() },
        GuestEvent::Complaints { lines: vec![Complaint { class: name("bug"), line: name("BUG: bad") }] },
        GuestEvent::Artifact { name: name("a.txt"), text: name("a text") },
        GuestEvent::Done,
    ]
}

#[test]
fn guest_events() {
    let all: Vec<String> = events().iter().map(|event| serde_json::to_string(event).unwrap() + "\n").collect();
    let failed = "{\"event\":\"failed\",\"failure\":\"panic\",\"message\":\"Oops\"}\n";
    let seeds =
        vec![all.concat().into_bytes(), [&all[0], failed].concat().into_bytes(), all[4..10].concat().into_bytes()];
    let plan = testing::plan(1, 1, Clock::Wall, 7);
    let trial = Trial {
        plan: &plan,
        slot: &plan.slots[0],
        arm: &plan.arms[0],
        purpose: Purpose::Judge,
        attempt: 0,
        artifacts: Path::new("/"),
        cancel: &AtomicBool::new(false),
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events");
    fuzz_target!(guest_events, seeds, WORDS).run(|input| {
        std::fs::write(&path, input).unwrap();
        let mut watch = Watch::new(&path, &dir.path().join("console"), 10);
        let mut received = ReceivedEvents::default();
        let mut bad = 0;
        for event in watch.read().unwrap() {
            match event {
                Ok(event) => received.take(event, &|_| {}),
                Err(shown) => {
                    assert!(shown.chars().count() <= 200 && !shown.contains(char::is_control), "{shown:?}");
                    bad += 1;
                }
            }
        }
        // What a host makes of them.
        let (metrics, step, done) =
            (received.metrics(), received.last_step().split('`').next().map(str::len), received.done);
        let counted = received.counters.map(|c| c.windows.iter().map(|window| c.counts(window).len()).sum::<usize>());
        let symbols = Symbols::from_compact(&received.symbols, received.programs);
        let named = symbols.map(|s| [0, 0x1800, u64::MAX].map(|at| s.name(at).len())).ok();
        let waited = received.waits.map(|(cpus, traced, windows)| {
            waits::evidence(&trial, metrics.clone(), &received.windows, (cpus, traced, &windows), received.lock_stat)
                .is_ok()
        });
        let taken = received.samples.map(|taken| {
            taken.map(|taken| samples::evidence(&trial, metrics.clone(), 1.0, received.windows, taken).is_ok())
        });
        let there = [named.is_some(), counted.is_some(), metrics.is_empty(), done, received.failed.is_some()];
        Ok(format!("{} {there:?} {waited:?} {:?} {step:?}", bad.min(2), taken.and_then(Result::ok)))
    });
}
