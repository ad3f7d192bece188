//! Rooms: each user sends messages to the server, which relays them to all others in the room. Each connection has four workers:
//! a sender and a receiver at the user's end, a receiver and a sender at the server's end.
//!
//! Invariant: a user's receiver that ends successfully has received every message of all others in its room exactly once, and
//! each user's messages in order.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use anyhow::{Context as _, Result};
use rustix::fd::BorrowedFd;

use super::carrier::{ConnectionEnd, receive, send};
use super::message::{Buffer, Header, LARGEST, Next, SENDERS, Stamp};
use super::spec::{Spec, Workers};
use super::worker_group::{RunBoard, RunCost, WorkerError};
use bigiron_sys::family::Children;
use bigiron_sys::latch::{EventCount, Latch};
use bigiron_sys::segment::{Segment, shared_struct};

/// Workers per connection.
const PARTS: usize = 4;

shared_struct! {
    struct Line {
        latch: Latch,
        taken: AtomicU32,
        put: AtomicU32,
        grown: EventCount,
    }
}

/// The messages to send to one user, as positions, in order. It has room for all messages of a run.
struct Queue<'s> {
    line: &'s Line,
    places: &'s [AtomicU32],
}

impl Queue<'_> {
    fn put(&self, place: u32) {
        {
            let _held = self.line.latch.lock();
            let at = self.line.put.load(SeqCst);
            self.places[at as usize].store(place, Relaxed);
            self.line.put.store(at + 1, SeqCst);
        }
        self.line.grown.signal();
    }

    /// Takes the next position, sleeping until there is one.
    fn take(&self) -> u32 {
        loop {
            let ticket = self.line.grown.ticket();
            {
                let _held = self.line.latch.lock();
                let at = self.line.taken.load(SeqCst);
                if at < self.line.put.load(SeqCst) {
                    self.line.taken.store(at + 1, SeqCst);
                    return self.places[at as usize].load(Relaxed);
                }
            }
            self.line.grown.wait(ticket);
        }
    }

    fn reset(&self) {
        self.line.taken.store(0, SeqCst);
        self.line.put.store(0, SeqCst);
    }
}

/// The server's data of a room.
struct Room<'s> {
    /// Every message received from users, by user and number.
    said: &'s [AtomicU64],
    queues: Vec<Queue<'s>>,
}

/// The server's memory and the parameters of a run.
pub struct Rooms<'a> {
    spec: &'a Spec,
    stamp: &'a Stamp,
    users: u32,
    rounds: u32,
    rooms: Vec<Room<'a>>,
}

impl<'a> Rooms<'a> {
    pub fn new(
        spec: &'a Spec,
        (rooms, users): (u32, u32),
        rounds: u32,
        stamp: &'a Stamp,
        segment: &'a Segment,
    ) -> Self {
        let said = users as usize * rounds as usize;
        let queue = || Queue { line: segment.one(), places: segment.many(said - rounds as usize) };
        let room =
            |_| Room { said: segment.many(said * spec.slot() / 8), queues: (0..users).map(|_| queue()).collect() };
        Self { spec, stamp, users, rounds, rooms: (0..rooms).map(room).collect() }
    }

    /// Runs once.
    ///
    /// # Errors
    /// As [`RunBoard::run`].
    pub fn run(&self, board: &RunBoard<'_>) -> Result<RunCost> {
        self.rooms.iter().flat_map(|r| &r.queues).for_each(Queue::reset);
        board.run(self.spec.workers() as usize, |children| match self.spec.workers {
            Workers::Processes => (0..self.rooms.len()).try_for_each(|room| self.raise(room, board, children)),
            Workers::Threads => self.raise_threads(board, children),
        })
    }

    /// The connections of `count` users: for each, the user's end and the server's end.
    fn connect(&self, count: usize) -> Result<(Vec<ConnectionEnd>, Vec<ConnectionEnd>)> {
        let ends = (0..count).map(|_| self.spec.carrier.both_ways());
        Ok(ends.collect::<Result<Vec<_>, _>>().context("No connection")?.into_iter().unzip())
    }

    /// Forks the processes of a room.
    fn raise(&self, room: usize, board: &RunBoard<'_>, children: &mut Children) -> Result<()> {
        let users = self.users as usize;
        let (mut ours, mut theirs) = self.connect(users)?;
        for user in 0..users {
            for part in 0..PARTS {
                let life = || {
                    // Users do not keep the server's ends, nor the server theirs.
                    let end = if part < PARTS / 2 {
                        theirs.clear();
                        ours.swap_remove(user)
                    } else {
                        ours.clear();
                        theirs.swap_remove(user)
                    };
                    board.run_worker(|| self.play(room, user, part, &end))
                };
                let key = (room * users + user) * PARTS + part;
                children.fork(key, life).context("No process for a user")?;
            }
        }
        Ok(())
    }

    /// Forks two multithreaded processes: the users and the server.
    fn raise_threads(&self, board: &RunBoard<'_>, children: &mut Children) -> Result<()> {
        let all = self.rooms.len() * self.users as usize;
        let (mut ours, mut theirs) = self.connect(all)?;
        for (key, first) in [0, PARTS / 2].into_iter().enumerate() {
            let life = || {
                let ends = if first == 0 {
                    theirs.clear();
                    &ours
                } else {
                    ours.clear();
                    &theirs
                };
                board.together(all * PARTS / 2, |worker| {
                    let (connection, part) = (worker / (PARTS / 2), first + worker % (PARTS / 2));
                    let (room, user) = (connection / self.users as usize, connection % self.users as usize);
                    self.play(room, user, part, &ends[connection])
                })
            };
            children.fork(key, life).context("No process for the threads")?;
        }
        Ok(())
    }

    fn play(&self, room: usize, user: usize, part: usize, end: &ConnectionEnd) -> Result<(), WorkerError> {
        match part {
            0 => self.listen(room, user, end.reader()),
            1 => self.say(room, user, end.writer()),
            2 => self.take_in(room, user, end.reader()),
            _ => self.hand_out(room, user, end.writer()),
        }
    }

    fn header(&self, room: usize, user: usize, number: u64) -> Header {
        Header { from: user as u32, to: room as u32, number }
    }

    fn say(&self, room: usize, user: usize, to: BorrowedFd<'_>) -> Result<(), WorkerError> {
        let mut buffer = self.stamp.blank();
        let message = &mut buffer.0[..self.spec.size];
        for number in 0..self.rounds {
            self.stamp.put(message, self.header(room, user, number.into()));
            send(to, message).map_err(|e| WorkerError::Io("A user cannot send", e))?;
        }
        Ok(())
    }

    fn listen(&self, room: usize, user: usize, from: BorrowedFd<'_>) -> Result<(), WorkerError> {
        let failed = |e| WorkerError::Io("A user cannot receive", e);
        let wrong = |what: String| WorkerError::Wrong(format!("User {user} of room {room} {what}"));
        let mut buffer = self.stamp.blank();
        let message = &mut buffer.0[..self.spec.size];
        let mut next = Next([0; SENDERS]);
        let next = &mut next.0[..self.users as usize];
        for _ in 0..self.rounds as usize * (next.len() - 1) {
            receive(from, message).map_err(failed)?;
            let header = self.stamp.header(message).ok_or_else(|| wrong("got a damaged message".to_owned()))?;
            match next.get_mut(header.from as usize) {
                Some(next)
                    if header == self.header(room, header.from as usize, *next) && header.from != user as u32 =>
                {
                    *next += 1;
                }
                _ => {
                    return Err(wrong(format!("got a message that is not the next of anybody else there: {header:?}")));
                }
            }
        }
        match rustix::io::ioctl_fionread(from) {
            Ok(0) => Ok(()),
            Ok(n) => Err(wrong(format!("has {n} bytes more than were sent"))),
            Err(e) => Err(failed(e.into())),
        }
    }

    fn take_in(&self, room: usize, user: usize, from: BorrowedFd<'_>) -> Result<(), WorkerError> {
        let wrong = |what: &str, header| {
            WorkerError::Wrong(format!("The server got {what} from user {user} of room {room}: {header:?}"))
        };
        let slot = self.spec.slot() / 8;
        // A slot of whole words, which begins with the message.
        let mut buffer = Buffer([0; LARGEST]);
        let buffer = &mut buffer.0[..slot * 8];
        for number in 0..self.rounds {
            let message = &mut buffer[..self.spec.size];
            receive(from, message).map_err(|e| WorkerError::Io("The server cannot receive", e))?;
            match self.stamp.header(message) {
                Some(header) if header == self.header(room, user, number.into()) => {}
                other => return Err(wrong("a message that was not sent", other)),
            }
            let place = user as u32 * self.rounds + number;
            let words = &self.rooms[room].said[place as usize * slot..][..slot];
            for (to, from) in words.iter().zip(buffer.as_chunks::<8>().0) {
                to.store(u64::from_ne_bytes(*from), Relaxed);
            }
            let others = self.rooms[room].queues.iter().enumerate().filter(|(other, _)| *other != user);
            others.for_each(|(_, queue)| queue.put(place));
        }
        Ok(())
    }

    fn hand_out(&self, room: usize, user: usize, to: BorrowedFd<'_>) -> Result<(), WorkerError> {
        let slot = self.spec.slot() / 8;
        let mut buffer = Buffer([0; LARGEST]);
        let buffer = &mut buffer.0[..slot * 8];
        for _ in 0..self.rounds * (self.users - 1) {
            let place = self.rooms[room].queues[user].take() as usize;
            let words = &self.rooms[room].said[place * slot..][..slot];
            for (to, from) in buffer.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *to = from.load(Relaxed).to_ne_bytes();
            }
            send(to, &buffer[..self.spec.size]).map_err(|e| WorkerError::Io("The server cannot send", e))?;
        }
        Ok(())
    }
}
