//! The parsed options of the workload.
//!
//! Invariant: a valid specification fits into the number ranges of messages and queues; all others are refused.

use std::time::Duration;

use super::carrier::Carrier;
use super::message::{HEADER, LARGEST};
use bigiron_model::clock::Clock;
use bigiron_model::workload::Options;

/// The shape of the communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each sender of a group sends to each of its receivers.
    Groups { groups: u32, peers: u32 },
    /// A server relays the messages of each user of a room to all others in it.
    Rooms { rooms: u32, users: u32 },
}

/// The kind of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    Processes,
    Threads,
}

/// The program of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// bigiron itself.
    Native,
    /// Two JVMs, with the threads of the server and of the users.
    Java,
}

/// All options, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    pub engine: Engine,
    pub shape: Topology,
    pub workers: Workers,
    pub carrier: Carrier,
    /// Bytes of a message.
    pub size: usize,
    /// Messages from a sender to each receiver, or of a user; `None` depends on the clock.
    rounds: Option<u32>,
    pub runs: u32,
}

/// The value that leaves a choice to the shape or the clock.
pub const AUTO: &str = "auto";

const SIZES: std::ops::RangeInclusive<usize> = HEADER..=LARGEST;
const GROUPS_LIMIT: u32 = 1000;
/// One byte identifies a sender within its group.
const PEERS_LIMIT: u32 = 200;
const ROUNDS_LIMIT: u32 = 10_000_000;
const RUNS_LIMIT: u32 = 1000;
const WORKERS_LIMIT: u64 = 100_000;
/// Maximum memory in which a server keeps a room's messages.
const MEMORY_LIMIT: u64 = 16 << 30;
/// Memory of a JVM besides its heap, and of one of its threads.
const OF_JVM: u64 = 160 << 20;
const OF_THREAD: u64 = 96 << 10;

/// A message takes at most this many times as long in Java, where the first ones are interpreted and compilers work beside them.
const JAVA_FACTOR: u64 = 3;

/// Default rounds, under the exact clock (or none) and on the wall clock: with the default numbers of workers 40,000 and 4
/// million messages in groups, 40,000 and 2 million in rooms.
const GROUP_ROUNDS: (u32, u32) = (10, 1000);
const ROOM_ROUNDS: (u32, u32) = (10, 500);

impl Spec {
    pub fn parse(options: &Options) -> Result<Self, String> {
        let get = |name: &str| options.get(name).map_or("", String::as_str);
        let number = |name: &str, least: u32, most: u32| match get(name).parse::<u32>() {
            Ok(n) if (least..=most).contains(&n) => Ok(n),
            _ => Err(format!("`chat.{name}` must be a number from {least} to {most}, not `{}`", get(name))),
        };
        let rounds = |name: &str| match get(name) {
            AUTO => Ok(None),
            _ => number(name, 1, ROUNDS_LIMIT).map(Some).map_err(|e| format!("{e} (or `{AUTO}`)")),
        };
        let in_rooms = get("shape") != "groups";
        // The numbers of both shapes are checked, so that a mistake does not stay hidden until the other shape is used.
        let (groups, peers, loops) =
            (number("groups", 1, GROUPS_LIMIT)?, number("peers", 1, PEERS_LIMIT)?, rounds("loops")?);
        let (rooms, users, messages) =
            (number("rooms", 1, GROUPS_LIMIT)?, number("users", 2, PEERS_LIMIT)?, rounds("messages")?);
        let engine = if get("engine") == "java" { Engine::Java } else { Engine::Native };
        if engine == Engine::Java {
            for (name, only) in [("shape", "rooms"), ("workers", "threads"), ("carrier", "tcp")] {
                if ![only, AUTO].contains(&get(name)) {
                    return Err(format!(
                        "`chat.{name}` cannot be `{}` with `chat.engine=java`, which has rooms of threads over TCP; it can be `{only}`",
                        get(name)
                    ));
                }
            }
        }
        let workers = match get("workers") {
            "processes" => Workers::Processes,
            "threads" => Workers::Threads,
            _ if in_rooms => Workers::Threads,
            _ => Workers::Processes,
        };
        let usual = if in_rooms { Carrier::Tcp } else { Carrier::Socketpair };
        let carrier = Carrier::WORDS.iter().find(|(word, _)| *word == get("carrier")).map_or(usual, |(_, c)| *c);
        let size = get("size").parse::<usize>().ok().filter(|n| SIZES.contains(n));
        let size = size.ok_or_else(|| {
            let (least, most) = (SIZES.start(), SIZES.end());
            format!(
                "`chat.size` must be from {least} (the header of a message) to {most} bytes (the atomic size of a pipe), not `{}`",
                get("size")
            )
        })?;
        let spec = Self {
            engine,
            shape: if in_rooms { Topology::Rooms { rooms, users } } else { Topology::Groups { groups, peers } },
            workers,
            carrier,
            size,
            rounds: if in_rooms { messages } else { loops },
            runs: number("runs", 1, RUNS_LIMIT)?,
        };
        if spec.workers() > WORKERS_LIMIT {
            return Err(format!("These options need {} workers; the maximum is {WORKERS_LIMIT}", spec.workers()));
        }
        let bytes = spec.server_bytes(spec.rounds(Clock::Wall));
        if bytes > MEMORY_LIMIT {
            return Err(format!(
                "A server keeps all messages of its rooms, which need {} MiB; the maximum is {} MiB: reduce `chat.messages`",
                bytes >> 20,
                MEMORY_LIMIT >> 20
            ));
        }
        Ok(spec)
    }

    /// Messages from a sender to each receiver, or of a user.
    pub fn rounds(&self, clock: Clock) -> u32 {
        let (exact, wall) = if matches!(self.shape, Topology::Rooms { .. }) { ROOM_ROUNDS } else { GROUP_ROUNDS };
        self.rounds.unwrap_or(if clock == Clock::Wall { wall } else { exact })
    }

    /// Messages of one run, each counted as often as it is carried.
    pub fn messages(&self, clock: Clock) -> u64 {
        let rounds = u64::from(self.rounds(clock));
        match self.shape {
            Topology::Groups { groups, peers } => u64::from(groups) * u64::from(peers) * u64::from(peers) * rounds,
            // Once to the server, and once to each of the others.
            Topology::Rooms { rooms, users } => u64::from(rooms) * u64::from(users) * u64::from(users) * rounds,
        }
    }

    /// CPU time of one run at most, if bigiron's own workers need `message` for each message.
    pub fn longest_run(&self, clock: Clock, message: Duration) -> Duration {
        let factor = if self.engine == Engine::Java { JAVA_FACTOR } else { 1 };
        let each = factor * message.as_micros() as u64;
        Duration::from_micros(each.saturating_mul(self.messages(clock)))
    }

    /// Connections of a run.
    pub fn connections(&self) -> u64 {
        match self.shape {
            Topology::Groups { groups, peers } => u64::from(groups) * u64::from(peers),
            Topology::Rooms { rooms, users } => u64::from(rooms) * u64::from(users),
        }
    }

    /// Workers of a run: two or four for each connection.
    pub fn workers(&self) -> u64 {
        self.connections() * if matches!(self.shape, Topology::Rooms { .. }) { 4 } else { 2 }
    }

    /// Bytes of a message in a server's memory: whole words.
    pub fn slot(&self) -> usize {
        self.size.next_multiple_of(8)
    }

    /// Bytes that the server keeps: the messages, and for each user the queue of messages to send.
    pub fn server_bytes(&self, rounds: u32) -> u64 {
        let Topology::Rooms { rooms, users } = self.shape else { return 0 };
        let (users, said) = (u64::from(users), u64::from(users) * u64::from(rounds));
        let queues = users * ((said - u64::from(rounds)) * 4 + 256);
        u64::from(rooms) * (said * self.slot() as u64 + queues + 256)
    }

    /// Bytes of the heap of each JVM: all messages of a run as objects, and the queues' references to them.
    pub fn heap_bytes(&self, clock: Clock) -> u64 {
        let Topology::Rooms { users, .. } = self.shape else { return 0 };
        let said = self.messages(clock) / u64::from(users);
        (32 << 20) + 2 * (said * (self.size as u64 + 24) + self.messages(clock) * 8)
    }

    /// Maximum bytes of memory of a run.
    pub fn memory_bytes(&self) -> u64 {
        if self.engine == Engine::Java {
            return 2 * (self.heap_bytes(Clock::Wall) + OF_JVM)
                + self.connections() * (512 << 10)
                + self.workers() * OF_THREAD;
        }
        // A process needs its tables, its stacks and its private pages; a thread its two stacks.
        let worker: u64 = if self.workers == Workers::Processes { 256 << 10 } else { 96 << 10 };
        // Messages in transit, with the kernel's overhead for each.
        let connection: u64 = if self.carrier == Carrier::Tcp { 512 << 10 } else { 256 << 10 };
        self.server_bytes(self.rounds(Clock::Wall))
            + self.workers() * worker
            + self.connections() * connection
            + (16 << 20)
    }
}
