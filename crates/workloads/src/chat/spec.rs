//! The workload's options, read.
//!
//! Invariant: what comes out of here fits into the numbers that messages and queues have; what does not was refused.

use super::carrier::Carrier;
use super::message::{HEADER, LARGEST};
use bigiron_model::clock::Clock;
use bigiron_model::workload::Options;

/// Who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each sender of a group sends to each of its receivers.
    Groups { groups: u32, peers: u32 },
    /// A server relays what each user of a room says to all others in it.
    Rooms { rooms: u32, users: u32 },
}

/// What workers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    Processes,
    Threads,
}

/// All options, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    pub shape: Topology,
    pub workers: Workers,
    pub carrier: Carrier,
    /// Bytes of a message.
    pub size: usize,
    /// Messages that a sender sends to each receiver, or a user says; `None` goes by the clock.
    rounds: Option<u32>,
    pub runs: u32,
}

/// The word that leaves a choice to the shape or the clock.
pub const AUTO: &str = "auto";

const SIZES: std::ops::RangeInclusive<usize> = HEADER..=LARGEST;
const GROUPS_LIMIT: u32 = 1000;
/// A byte tells the senders of a group apart.
const PEERS_LIMIT: u32 = 200;
const ROUNDS_LIMIT: u32 = 10_000_000;
const RUNS_LIMIT: u32 = 1000;
const WORKERS_LIMIT: u64 = 100_000;
/// Of the memory in which a server keeps a room's messages.
const MEMORY_LIMIT: u64 = 16 << 30;

/// Rounds if nothing is said, under the exact clock (or none) and on the wall clock: 40,000 messages and 4 million in groups, 40,000 and 2 million
/// in rooms, of the default numbers of both.
const GROUP_ROUNDS: (u32, u32) = (10, 1000);
const ROOM_ROUNDS: (u32, u32) = (10, 500);

impl Spec {
    pub fn parse(options: &Options) -> Result<Self, String> {
        let get = |name: &str| options.get(name).map_or("", String::as_str);
        let number = |name: &str, least: u32, most: u32| match get(name).parse::<u32>() {
            Ok(n) if (least..=most).contains(&n) => Ok(n),
            _ => Err(format!("`chat.{name}` is a number from {least} to {most}, not `{}`", get(name))),
        };
        let rounds = |name: &str| match get(name) {
            AUTO => Ok(None),
            _ => number(name, 1, ROUNDS_LIMIT).map(Some).map_err(|e| format!("{e} (or `{AUTO}`)")),
        };
        let in_rooms = get("shape") != "groups";
        // Both shapes' numbers are looked at, so that a mistake does not wait for the other shape.
        let (groups, peers, loops) =
            (number("groups", 1, GROUPS_LIMIT)?, number("peers", 1, PEERS_LIMIT)?, rounds("loops")?);
        let (rooms, users, messages) =
            (number("rooms", 1, GROUPS_LIMIT)?, number("users", 2, PEERS_LIMIT)?, rounds("messages")?);
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
                "`chat.size` is from {least} (a message says which it is) to {most} bytes (a pipe takes so much at once), not `{}`",
                get("size")
            )
        })?;
        let spec = Self {
            shape: if in_rooms { Topology::Rooms { rooms, users } } else { Topology::Groups { groups, peers } },
            workers,
            carrier,
            size,
            rounds: if in_rooms { messages } else { loops },
            runs: number("runs", 1, RUNS_LIMIT)?,
        };
        if spec.workers() > WORKERS_LIMIT {
            return Err(format!("That would be {} workers; `chat` has at most {WORKERS_LIMIT}", spec.workers()));
        }
        let bytes = spec.server_bytes(spec.rounds(Clock::Wall));
        if bytes > MEMORY_LIMIT {
            return Err(format!(
                "A server keeps all that is said in its rooms, and that would be {} MiB; the most is {} MiB: have fewer `chat.messages`",
                bytes >> 20,
                MEMORY_LIMIT >> 20
            ));
        }
        Ok(spec)
    }

    /// Messages that a sender sends to each receiver, or a user says.
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

    /// Bytes that the server keeps: what was said, and for each user the queue of what is to be sent.
    pub fn server_bytes(&self, rounds: u32) -> u64 {
        let Topology::Rooms { rooms, users } = self.shape else { return 0 };
        let (users, said) = (u64::from(users), u64::from(users) * u64::from(rounds));
        let queues = users * ((said - u64::from(rounds)) * 4 + 256);
        u64::from(rooms) * (said * self.slot() as u64 + queues + 256)
    }

    /// Bytes of memory of a run, at most.
    pub fn memory_bytes(&self) -> u64 {
        // A process: its tables, its stacks and what it writes of its own; a thread: its two stacks.
        let worker: u64 = if self.workers == Workers::Processes { 256 << 10 } else { 96 << 10 };
        // Messages under way, with what the kernel adds to each.
        let connection: u64 = if self.carrier == Carrier::Tcp { 512 << 10 } else { 256 << 10 };
        self.server_bytes(self.rounds(Clock::Wall))
            + self.workers() * worker
            + self.connections() * connection
            + (16 << 20)
    }
}
