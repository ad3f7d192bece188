//! Groups: every sender sends to every receiver of its group, round after round.
//!
//! Invariant: a receiver that ends successfully has received every message of every sender of its group exactly once, and nothing
//! else.

use anyhow::{Context as _, Result};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::carrier::{receive, send};
use super::message::{Header, Next, SENDERS, Stamp};
use super::spec::{Spec, Workers};
use super::worker_group::{RunBoard, RunCost, WorkerError};
use bigiron_sys::family::Children;

/// The parameters of a run.
#[derive(Clone, Copy)]
pub struct Groups<'a> {
    pub spec: &'a Spec,
    pub groups: u32,
    pub peers: u32,
    pub rounds: u32,
    pub stamp: &'a Stamp,
}

impl Groups<'_> {
    /// Runs once.
    ///
    /// # Errors
    /// As [`RunBoard::run`].
    pub fn run(&self, board: &RunBoard<'_>) -> Result<RunCost> {
        let workers = self.spec.workers() as usize;
        board.run(workers, |children| match self.spec.workers {
            Workers::Processes => (0..self.groups).try_for_each(|group| self.raise(group, board, children)),
            Workers::Threads => {
                let all = || board.set_up(|| self.threads(board, workers));
                children.fork(0, all).context("No process for the threads")
            }
        })
    }

    /// Forks the processes of a group: receivers, then senders.
    fn raise(&self, group: u32, board: &RunBoard<'_>, children: &mut Children) -> Result<()> {
        let key = (group * 2 * self.peers) as usize;
        let mut outs: Vec<OwnedFd> = Vec::new();
        for peer in 0..self.peers {
            let (input, output) = self.spec.carrier.one_way().context("No connection")?;
            let mut output = Some(output);
            let life = || {
                // Only senders keep this end.
                output.take();
                board.run_worker(|| self.receive(group, peer, input.as_fd()))
            };
            children.fork(key + peer as usize, life).context("No process for a receiver")?;
            outs.extend(output.take());
        }
        for peer in 0..self.peers {
            let life = || board.run_worker(|| self.send(group, peer, &outs));
            children.fork(key + (self.peers + peer) as usize, life).context("No process for a sender")?;
        }
        Ok(())
    }

    /// All workers as threads of this process.
    fn threads(&self, board: &RunBoard<'_>, workers: usize) -> Result<i32> {
        let connections = (0..self.spec.connections()).map(|_| self.spec.carrier.one_way());
        let (ins, outs): (Vec<_>, Vec<_>) =
            connections.collect::<Result<Vec<_>, _>>().context("No connection")?.into_iter().unzip();
        let (ins, outs): (&[OwnedFd], &[OwnedFd]) = (&ins, &outs);
        Ok(board.together(workers, |worker| {
            let (group, place) = (worker as u32 / (2 * self.peers), worker as u32 % (2 * self.peers));
            let first = (group * self.peers) as usize;
            match place.checked_sub(self.peers) {
                None => self.receive(group, place, ins[first + place as usize].as_fd()),
                Some(peer) => self.send(group, peer, &outs[first..][..self.peers as usize]),
            }
        }))
    }

    fn send(&self, group: u32, peer: u32, outs: &[OwnedFd]) -> Result<(), WorkerError> {
        let failed = |e| WorkerError::Io("A sender cannot send", e);
        let first = group * self.peers;
        let mut buffer = self.stamp.blank();
        let message = &mut buffer.0[..self.spec.size];
        if self.spec.carrier.tears() {
            // Each byte identifies its sender.
            message.fill(peer as u8);
        }
        for number in 0..u64::from(self.rounds) {
            for (to, out) in (first..).zip(outs) {
                if !self.spec.carrier.tears() {
                    self.stamp.put(message, Header { from: first + peer, to, number });
                }
                send(out.as_fd(), message).map_err(failed)?;
            }
        }
        Ok(())
    }

    pub(super) fn receive(&self, group: u32, peer: u32, input: BorrowedFd<'_>) -> Result<(), WorkerError> {
        let wrong = |what: String| WorkerError::Wrong(format!("Receiver {peer} of group {group} {what}"));
        let (first, messages) = (group * self.peers, u64::from(self.peers) * u64::from(self.rounds));
        let mut buffer = self.stamp.blank();
        let message = &mut buffer.0[..self.spec.size];
        if self.spec.carrier.tears() {
            self.count(input, message, messages).map_err(|trouble| match trouble {
                WorkerError::Wrong(what) => wrong(what),
                io => io,
            })?;
        } else {
            let mut next = Next([0; SENDERS]);
            let next = &mut next.0[..self.peers as usize];
            for _ in 0..messages {
                receive(input, message).map_err(failed)?;
                let header = self.stamp.header(message).ok_or_else(|| wrong("got a damaged message".to_owned()))?;
                match next.get_mut(header.from.wrapping_sub(first) as usize) {
                    Some(next) if header.to == first + peer && header.number == *next => *next += 1,
                    _ => return Err(wrong(format!("got a message that is not its next of any sender: {header:?}"))),
                }
            }
        }
        match rustix::io::ioctl_fionread(input) {
            Ok(0) => Ok(()),
            Ok(n) => Err(wrong(format!("has {n} bytes more than were sent"))),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// Counts the bytes of each sender, whose messages may arrive torn.
    fn count(&self, input: BorrowedFd<'_>, message: &mut [u8], messages: u64) -> Result<(), WorkerError> {
        let mut bytes = [0u64; 256];
        for _ in 0..messages {
            receive(input, message).map_err(failed)?;
            message.iter().for_each(|b| bytes[usize::from(*b)] += 1);
        }
        let due = u64::from(self.rounds) * message.len() as u64;
        let wanted = |sender: usize| if sender < self.peers as usize { due } else { 0 };
        match bytes.iter().enumerate().find(|(sender, n)| **n != wanted(*sender)) {
            None => Ok(()),
            Some((sender, n)) => {
                Err(WorkerError::Wrong(format!("got {n} bytes marked {sender} instead of {}", wanted(sender))))
            }
        }
    }
}

fn failed(e: std::io::Error) -> WorkerError {
    WorkerError::Io("A receiver cannot receive", e)
}
