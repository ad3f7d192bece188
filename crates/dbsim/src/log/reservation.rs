//! Writing redo: room is reserved, records are appended, and a commit is posted to the log writer.
//!
//! Invariant: appended redo was reserved, including worst-case padding and headers; commits are posted in the order of their
//! LSNs.

use std::sync::atomic::Ordering::SeqCst;

use anyhow::{Result, ensure};

use bigiron_sys::load::now_ns;
use bigiron_sys::segment::LockedBytes;

use super::super::journal::{self, CHUNK_HEADER};
use super::super::turns::SwitchCause;
use super::super::waits::{self, WaitEvent};
use super::{Log, RECORD_MAX, Room, get, put};

/// Bytes at the start of a record that its number changes.
const NUMBERED: usize = 16;

/// Copies `bytes` to the position of LSN `at` in the ring.
fn copy_in(ring: &mut [u8], at: u64, bytes: &[u8]) {
    let at = (at % ring.len() as u64) as usize;
    let tail = bytes.len().min(ring.len() - at);
    ring[at..at + tail].copy_from_slice(&bytes[..tail]);
    ring[..bytes.len() - tail].copy_from_slice(&bytes[tail..]);
}

/// Room in log buffer and journal for the redo of one transaction.
pub struct Reservation<'a> {
    log: &'a Log<'a>,
    process: usize,
    left: u64,
}

/// A commit whose redo is in the log buffer.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    pub(super) process: usize,
    /// The chunk with its record.
    pub(super) group: u64,
    /// LSN after its record.
    pub lsn: u64,
    pub(super) requested: u64,
    pub(super) posted: u64,
}

impl Log<'_> {
    /// Room for this many records with this many bytes in total; an error if even the empty log buffer has less.
    fn want(&self, records: usize, bytes: usize) -> Result<u64> {
        let want = bytes as u64 + records as u64 * self.overhead();
        let most = self.buffer.len() as u64 - self.overhead() - CHUNK_HEADER as u64;
        ensure!(want <= most, "A transaction's redo may need {want} bytes; the log buffer has room for {most}");
        Ok(want)
    }

    /// Whether this can be reserved without waiting. Must be called with the latch held.
    fn has_room(&self, want: u64) -> bool {
        get(&self.control.queued) == get(&self.control.granted) && self.room(want) == Room::Free
    }

    /// Commits without a reservation: appends `records`, the commit's last, like [`Reservation::commit`]. If no process waits for
    /// room, reserving, appending and posting take the latch once.
    pub fn commit(&self, process: usize, records: &[&[u8]], requested: u64) -> Result<Commit> {
        let bytes = records.iter().map(|r| r.len()).sum();
        let want = self.want(records.len(), bytes)?;
        let buffer = self.buffer.lock();
        if self.has_room(want) {
            let reserved = &self.control.reserved;
            put(reserved, get(reserved) + want);
            return Ok(Reservation { log: self, process, left: want }.post(buffer, records, requested));
        }
        drop(buffer);
        Ok(self.reserve(process, records.len(), bytes)?.commit(records, requested))
    }

    /// Reserves room for `records` records with `bytes` in total. Must be called without a latch. Waits for the log writer if the
    /// buffer is full, and for the log switch if the journal is.
    ///
    /// An error if even the empty log buffer has too little room.
    pub fn reserve(&self, process: usize, records: usize, bytes: usize) -> Result<Reservation<'_>> {
        let c = self.control;
        let want = self.want(records, bytes)?;
        let reservation = Reservation { log: self, process, left: want };
        let slot = &self.slots[process];
        {
            let _held = self.buffer.lock();
            if self.has_room(want) {
                put(&c.reserved, get(&c.reserved) + want);
                return Ok(reservation);
            }
            slot.want.store(want, SeqCst);
            let at = get(&c.queued) as usize;
            put(&c.queued, at as u64 + 1);
            self.queue[at % self.queue.len()].store(process as u64, SeqCst);
        }
        let mut waiting = waits::enter(WaitEvent::LogBufferSpace);
        let turn = self.turns.turn();
        self.wake_writer();
        slot.room.wait_until(|| slot.want.load(SeqCst) == 0);
        if self.turns.turn() > turn {
            waiting.becomes(match self.turns.cause() {
                Some(SwitchCause::Checkpoint) => WaitEvent::LogSwitchCheckpoint,
                Some(SwitchCause::Archive) => WaitEvent::LogSwitchArchiving,
                None => WaitEvent::LogSwitch,
            });
        }
        Ok(reservation)
    }
}

impl Reservation<'_> {
    /// Appends one record and returns the LSN after it.
    pub fn append(&mut self, record: &[u8]) -> u64 {
        let mut buffer = self.log.buffer.lock();
        self.append_to(&mut buffer, record)
    }

    fn append_to(&mut self, buffer: &mut LockedBytes<'_>, record: &[u8]) -> u64 {
        let c = self.log.control;
        let cost = record.len() as u64 + self.log.overhead();
        assert!(record.len() <= RECORD_MAX, "a record of {} bytes; the maximum is {RECORD_MAX}", record.len());
        self.left = self.left.checked_sub(cost).expect("more redo than was reserved");
        let open = get(&c.fill);
        if open > CHUNK_HEADER as u64 && open + record.len() as u64 > self.log.group_bytes {
            self.log.close(buffer);
        }
        let sequence = get(&c.records) + 1;
        let (mut head, rest) = (*record.first_chunk::<NUMBERED>().expect("a record has a header"), &record[NUMBERED..]);
        journal::number_record(&mut head, sequence);
        put(&c.records, sequence);
        let begin = get(&c.chunk) + get(&c.fill);
        copy_in(buffer, begin, &head);
        copy_in(buffer, begin + NUMBERED as u64, rest);
        let lsn = begin + record.len() as u64;
        put(&c.fill, get(&c.fill) + record.len() as u64);
        put(&c.next, lsn);
        put(&c.reserved, get(&c.reserved) - cost);
        lsn
    }

    /// Returns unused room. Must be called with the latch held; the caller then wakes the processes returned.
    fn release(&mut self) -> Vec<usize> {
        let reserved = &self.log.control.reserved;
        put(reserved, get(reserved) - self.left);
        self.left = 0;
        self.log.grant()
    }

    /// Appends `records`, the last of them the commit's, which was requested at `requested` (of [`now_ns`]), returns the rest of
    /// the reservation, and posts to the log writer. [`Log::wait`] waits for durability.
    pub fn commit(self, records: &[&[u8]], requested: u64) -> Commit {
        let buffer = self.log.buffer.lock();
        self.post(buffer, records, requested)
    }

    fn post(mut self, mut buffer: LockedBytes<'_>, records: &[&[u8]], requested: u64) -> Commit {
        let (log, process) = (self.log, self.process);
        let c = log.control;
        let lsn = records.iter().fold(0, |_, record| self.append_to(&mut buffer, record));
        let group = get(&c.closed);
        // Under the latch, so that commits are posted in the order of their LSNs.
        let at = get(&c.posted);
        let entry = &log.posted[at as usize % log.posted.len()];
        put(&entry.lsn, lsn);
        put(&entry.process, process as u64);
        put(&c.posted, at + 1);
        if get(&c.first_post) == 0 {
            put(&c.first_post, requested);
        }
        c.wanted.fetch_max(lsn, SeqCst);
        let granted = self.release();
        drop(buffer);
        // Nothing is left to return.
        std::mem::forget(self);
        log.let_in(&granted);
        let posted = now_ns();
        log.wake_writer();
        Commit { process, group, lsn, requested, posted }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let log = self.log;
        let (granted, switching) = {
            let _held = log.buffer.lock();
            (self.release(), get(&log.control.switching) == 1)
        };
        log.let_in(&granted);
        if switching || log.control.wanted.load(SeqCst) > log.flushed() {
            log.wake_writer();
        }
    }
}
