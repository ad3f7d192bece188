//! `chat`: many workers that do little except send each other messages, in rooms with a server or in groups without one.
//!
//! Invariant: the number of messages depends only on the options and the clock's name, and every message is checked on arrival.

mod carrier;
mod groups;
mod java;
mod message;
mod rooms;
mod spec;
#[cfg(test)]
mod tests;
mod worker_group;

use std::time::Duration;

use anyhow::{Context as _, ensure};

use self::carrier::Carrier;
use self::groups::Groups;
use self::java::{JavaRooms, warm_up_runs};
use self::message::Stamp;
use self::rooms::Rooms;
use self::spec::{AUTO, Engine, Spec, Topology, Workers};
use self::worker_group::{BOARD_BYTES, RunBoard, RunCost};
use super::{java_program, micro};
use bigiron_model::clock::Clock;
use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_model::workload::{Options, Window};
use bigiron_probe::symbols;
use bigiron_sys::segment::Segment;
use bigiron_workload::limits;
use bigiron_workload::{
    Configured, Context, ImageContext, Images, Needs, OptionDef, Progress, Running, Workload, WorkloadResult,
};

/// The primary metric's name.
const PRIMARY: &str = "messages";
/// Descriptors of a process besides its connections.
const OTHER_FILES: u64 = 64;
/// CPU time of a message at most: a processor needs some 10 µs, and emulation executes 12,500 instructions at some tens of millions per second.
const MESSAGE: Duration = Duration::from_micros(100);
const EMULATED_MESSAGE: Duration = Duration::from_millis(1);

/// The workload of messages.
pub struct Chat;

const OPTIONS: &[OptionDef] = &[
    OptionDef {
        name: "engine",
        default: "native",
        allowed: &["native", "java"],
        summary: "Program of the workers: bigiron itself, or two JVMs, one for the users and one for the server",
    },
    OptionDef {
        name: "shape",
        default: "rooms",
        allowed: &["rooms", "groups"],
        summary: "Rooms of users with a server between them, or groups of senders and receivers",
    },
    OptionDef {
        name: "workers",
        default: AUTO,
        allowed: &[AUTO, "processes", "threads"],
        summary: "Kind of workers; `auto`: threads in rooms, processes in groups",
    },
    OptionDef {
        name: "carrier",
        default: AUTO,
        allowed: &[AUTO, "socketpair", "pipe", "tcp"],
        summary: "Connections for messages; `auto`: TCP in rooms, pairs of sockets in groups",
    },
    OptionDef { name: "size", default: "100", allowed: &[], summary: "Bytes of a message, 16 to 4096" },
    OptionDef { name: "rooms", default: "10", allowed: &[], summary: "Rooms" },
    OptionDef { name: "users", default: "20", allowed: &[], summary: "Users of a room, each with four workers" },
    OptionDef {
        name: "messages",
        default: AUTO,
        allowed: &[],
        summary: "Messages of each user; `auto`: 10 under the exact clock, 500 on the wall clock",
    },
    OptionDef { name: "groups", default: "10", allowed: &[], summary: "Groups" },
    OptionDef { name: "peers", default: "20", allowed: &[], summary: "Senders of a group, and receivers" },
    OptionDef {
        name: "loops",
        default: AUTO,
        allowed: &[],
        summary: "Messages of each sender to each receiver; `auto`: 10 under the exact clock, 1000 on the wall clock",
    },
    OptionDef { name: "runs", default: "1", allowed: &[], summary: "Measured runs in each trial" },
];

impl Workload for Chat {
    fn name(&self) -> &'static str {
        "chat"
    }

    fn summary(&self) -> &'static str {
        "Hundreds of threads or processes that send each other messages: scheduling, wake-ups, sockets, pipes"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Spec::parse(options)?))
    }
}

impl Configured for Spec {
    fn needs(&self) -> Needs {
        Needs { storage_bytes: None, memory_bytes: self.memory_bytes(), modules: Vec::new() }
    }

    fn metrics(&self) -> Vec<MetricDef> {
        let def = |name: &str, unit, better, kind, summary: &str| MetricDef {
            name: name.to_owned(),
            unit,
            better,
            kind,
            primary: name == PRIMARY,
            summary: summary.to_owned(),
        };
        let usage = |name, unit, summary| def(name, unit, Better::Lower, Kind::Usage, summary);
        vec![
            def(
                PRIMARY,
                Unit::named("msg/s"),
                Better::Higher,
                Kind::Throughput,
                "Messages carried per second: in groups those received, in rooms those sent to the server and those relayed",
            ),
            def(
                "elapsed",
                Unit::Ns,
                Better::Lower,
                Kind::Cost,
                "Time from the release of all workers to the end of the last, of all runs",
            ),
            usage("user", Unit::Ns, "CPU time of all workers in user mode"),
            usage("system", Unit::Ns, "CPU time of all workers in the kernel"),
            usage("voluntary-switches", Unit::Count, "Context switches of a worker that waited"),
            usage("involuntary-switches", Unit::Count, "Context switches of a worker that was still runnable"),
        ]
    }

    fn silence(&self) -> Duration {
        self.longest_run(Clock::Wall, MESSAGE)
    }

    fn guest_silence(&self) -> Duration {
        // A guest on the wall clock has more messages, and is not emulated.
        self.longest_run(Clock::Exact, EMULATED_MESSAGE).max(self.silence())
    }

    fn lays_out(&self) -> bool {
        false
    }

    fn images(&self, cx: &ImageContext<'_>) -> anyhow::Result<Images> {
        match self.engine {
            Engine::Native => Ok(Images::default()),
            Engine::Java => java_program::images(cx),
        }
    }

    fn prepare(&self, cx: &Context<'_>) -> anyhow::Result<Box<dyn Running + '_>> {
        limits::check(self.workers() as usize)?;
        if self.carrier == Carrier::Tcp {
            micro::loopback_up()?;
        }
        limits::allow_files(self.connections() * self.carrier.descriptors() + OTHER_FILES)?;
        let java = (self.engine == Engine::Java).then(|| JavaRooms::start(self, cx)).transpose()?;
        Ok(Box::new(Trial { spec: self, java }))
    }
}

/// A trial, with its JVMs if it has some.
struct Trial<'a> {
    spec: &'a Spec,
    java: Option<JavaRooms>,
}

impl Running for Trial<'_> {
    fn run(&mut self, cx: &Context<'_>) -> anyhow::Result<WorkloadResult> {
        let spec = self.spec;
        let (mut sum, mut windows) = (RunCost::default(), Vec::new());
        let before = if self.java.is_some() { warm_up_runs(spec.messages(cx.clock)) } else { 0 };
        let begins = |step: &str, done: u32| (cx.progress)(Progress { step, done, of: before + spec.runs });
        if let Some(java) = &mut self.java {
            for n in 0..before {
                begins("warm-up", n);
                java.warm_up().context("In the warm-up")?;
            }
        }
        for n in 0..spec.runs {
            let step = format!("run-{}", n + 1);
            begins(&step, before + n);
            let taken = match &mut self.java {
                Some(java) => java.run(),
                None => once(spec, cx),
            };
            let taken = taken.with_context(|| format!("In {step}"))?;
            let metrics = vec![PRIMARY.to_owned(), "elapsed".to_owned()];
            windows.push(Window { metrics, operations: spec.messages(cx.clock), ns: taken.elapsed_ns });
            sum = RunCost { elapsed_ns: sum.elapsed_ns + taken.elapsed_ns, usage: sum.usage.and(taken.usage) };
        }
        ensure!(sum.elapsed_ns > 0, "The clock did not advance during the messages");
        let messages = spec.messages(cx.clock) * u64::from(spec.runs);
        let values = [
            (PRIMARY, messages as f64 / (sum.elapsed_ns as f64 / 1e9)),
            ("elapsed", sum.elapsed_ns as f64),
            ("user", sum.usage.user_ns as f64),
            ("system", sum.usage.system_ns as f64),
            ("voluntary-switches", sum.usage.voluntary_switches as f64),
            ("involuntary-switches", sum.usage.involuntary_switches as f64),
        ];
        let mut facts = facts(spec, messages, cx);
        let mut programs = Vec::new();
        if let Some(java) = self.java.take() {
            facts.push(("jvm", java.version()));
            // While they are still visible.
            programs = symbols::running();
            programs.extend(java.end()?);
        }
        Ok(WorkloadResult {
            programs,
            values: values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            facts: facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            windows,
        })
    }

    fn verify(self: Box<Self>, _: &Context<'_>) -> anyhow::Result<()> {
        // Each message was checked on arrival; a run with a missing or extra message has failed.
        Ok(())
    }
}

/// One run, in new processes.
fn once(spec: &Spec, cx: &Context<'_>) -> anyhow::Result<RunCost> {
    let (rounds, stamp) = (spec.rounds(cx.clock), Stamp::new(cx.seed, spec.size));
    let bytes = spec.server_bytes(rounds) as usize + BOARD_BYTES;
    let segment = Segment::new(bytes).with_context(|| format!("No {} MiB for the server", bytes >> 20))?;
    let board = RunBoard::new(&segment);
    match spec.shape {
        Topology::Groups { groups, peers } => Groups { spec, groups, peers, rounds, stamp: &stamp }.run(&board),
        Topology::Rooms { rooms, users } => Rooms::new(spec, (rooms, users), rounds, &stamp, &segment).run(&board),
    }
}

fn facts(spec: &Spec, messages: u64, cx: &Context<'_>) -> Vec<(&'static str, String)> {
    let rounds = spec.rounds(cx.clock);
    let shape = match spec.shape {
        Topology::Groups { groups, peers } => {
            format!("{groups} groups of {peers} senders and {peers} receivers, {rounds} messages of each to each")
        }
        Topology::Rooms { rooms, users } => {
            format!("{rooms} rooms of {users} users, {rounds} messages of each to all others")
        }
    };
    let kind = if spec.workers == Workers::Processes { "processes" } else { "threads" };
    vec![
        ("shape", shape),
        ("workers", format!("{} {kind}", spec.workers())),
        ("carrier", spec.carrier.word().to_owned()),
        ("size", spec.size.to_string()),
        ("runs", spec.runs.to_string()),
        ("messages-checked", messages.to_string()),
    ]
}
