//! The cache's invariants under processes that get, change and clean as fast as they can: the disk is an array of version
//! numbers, so that every lost block, lost change and double mapping shows.

use super::*;
use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::Dbsim;
use crate::job::{CacheSpec, ClassKind, Memory};
use bigiron_sys::process::{Exit, fork_child};
use bigiron_workload::testing;

/// A job whose cache has this many buffers and is cleaned by this many writers.
fn job(buffers: usize, replacement: Replacement, writers: usize) -> Job {
    let mut job = Job::parse(&testing::options(&Dbsim, []).unwrap()).unwrap();
    let bytes = (buffers * BLOCK) as u64;
    job.cache = CacheSpec { bytes, memory: Memory::Mmap, replacement, dirty_percent: 25, prefault: false };
    for class in job.classes.iter_mut().filter(|c| matches!(c.kind, ClassKind::DatabaseWriter { .. })) {
        class.count = writers;
    }
    job
}

shared_struct! {
    struct World {
        stop: AtomicU32,
        /// Writes to the disk.
        writes: AtomicU32,
    }
}

struct Bench<'s> {
    cache: Cache<'s>,
    world: &'s World,
    /// By block: the version on disk, and how often it has been changed.
    disk: &'s [AtomicU32],
    changes: &'s [AtomicU32],
}

impl<'s> Bench<'s> {
    fn new(segment: &'s Segment, job: &Job, blocks: usize) -> Self {
        Self {
            cache: Cache::new(segment, job),
            world: segment.one(),
            disk: segment.many(blocks),
            changes: segment.many(blocks),
        }
    }

    fn bytes(job: &Job, blocks: usize) -> usize {
        Cache::bytes(job) + 8 * blocks + 4096
    }

    fn read(&self, block: u32, page: &mut [u8]) {
        page[..4].copy_from_slice(&block.to_le_bytes());
        page[4..8].copy_from_slice(&self.disk[block as usize].load(SeqCst).to_le_bytes());
    }

    /// Gets and changes blocks chosen by `seed`.
    fn foreground(&self, mut seed: u64, gets: usize) {
        for _ in 0..gets {
            // A linear congruential generator (D. Knuth, MMIX); its upper bits are the random ones.
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let block = (seed >> 33) as u32 % self.disk.len() as u32;
            let pin = self.cache.get(block, |page| {
                self.read(block, page);
                Ok(())
            });
            let pin = pin.unwrap();
            if seed >> 60 < 8 {
                let mut page = pin.write();
                assert_eq!(number(&page, 0), block, "another block's buffer");
                pin.dirty(1);
                let version = number(&page, 4) + 1;
                page[4..8].copy_from_slice(&version.to_le_bytes());
                // Exclusive: no other process changes this block now, in any buffer.
                let before = self.changes[block as usize].fetch_add(1, SeqCst);
                assert_eq!(before + 1, version, "a change of block {block} is lost, or it is in two buffers");
            } else {
                assert_eq!(number(&pin.read(), 0), block, "another block's buffer");
            }
        }
    }

    /// Cleans the buffers of `writer` until the foregrounds are done, then all remaining ones.
    fn writer(&self, writer: usize) {
        let mut served = 0;
        let stopped = || self.world.stop.load(SeqCst) == 1;
        loop {
            let last = stopped();
            if !last {
                self.cache.wait_work(writer, served, stopped);
            }
            served = self.cache.free_waits();
            let due = match last {
                true => self.cache.dirty_before(writer, u64::MAX).collect(),
                false => self.cache.coldest_dirty(writer, 8),
            };
            self.cache.batch_begins(writer);
            for buffer in &due {
                assert_eq!(buffer % self.cache.writers.len(), writer, "another writer's buffer");
                let mut page = [0; BLOCK];
                let (block, pin) = self.cache.take_dirty(*buffer, &mut page);
                assert_eq!(number(&page, 0), block);
                let before = self.disk[block as usize].swap(number(&page, 4), SeqCst);
                assert!(before < number(&page, 4), "block {block} is written twice, or backwards");
                self.world.writes.fetch_add(1, SeqCst);
                drop(pin);
                self.cache.cleaned(1);
            }
            self.cache.batch_ends(writer);
            self.cache.cleaned(0);
            if last {
                return;
            }
        }
    }

    /// Checks the state when no process is active.
    fn check(&self) {
        let mut place = HashMap::new();
        for (buffer, b) in self.cache.buffers.iter().enumerate() {
            let (state, tag) = (b.state.load(SeqCst), b.tag.load(SeqCst));
            assert_eq!(state & PINS, 0, "buffer {buffer} is pinned");
            assert_eq!(state & DIRTY, 0, "buffer {buffer} is dirty");
            assert_eq!(state == FREE, tag == 0, "buffer {buffer} is lost");
            if tag != 0 {
                assert_eq!(place.insert(tag - 1, buffer), None, "block {} is in two buffers", tag - 1);
                assert_eq!(self.cache.find(self.cache.bucket(tag - 1), tag - 1), Some(buffer));
            }
        }
        let mut chained = 0;
        for bucket in self.cache.buckets {
            let mut at = bucket.head.load(SeqCst);
            while at != 0 {
                chained += 1;
                at = self.cache.buffers[at as usize - 1].next.load(SeqCst);
            }
        }
        assert_eq!(chained, place.len(), "a chain holds a buffer that is free, or one twice");
        assert_eq!(self.cache.dirty(), 0);
        for (disk, changes) in self.disk.iter().zip(self.changes) {
            assert_eq!(disk.load(SeqCst), changes.load(SeqCst), "a change is not on disk");
        }
    }
}

fn number(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().unwrap())
}

fn run(buffers: usize, blocks: usize, replacement: Replacement, writers: usize, foregrounds: usize, seed: u64) {
    let job = job(buffers, replacement, writers);
    let segment = Segment::new(Bench::bytes(&job, blocks)).unwrap();
    let bench = Bench::new(&segment, &job, blocks);
    let start = |body: &dyn Fn()| {
        fork_child(|| {
            body();
            0
        })
        .unwrap()
    };
    let cleaning: Vec<_> = (0..writers).map(|w| start(&|| bench.writer(w))).collect();
    let working: Vec<_> = (0..foregrounds).map(|f| start(&|| bench.foreground(seed + f as u64, 3_000))).collect();
    for child in working {
        assert_eq!(child.wait().unwrap(), Exit::Status(0), "{replacement:?}, {writers} writers");
    }
    bench.world.stop.store(1, SeqCst);
    bench.cache.writer().signal();
    for child in cleaning {
        assert_eq!(child.wait().unwrap(), Exit::Status(0), "{replacement:?}, {writers} writers");
    }
    bench.check();
    assert!(bench.world.writes.load(SeqCst) > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn no_block_is_lost_or_in_two_buffers(
        lru: bool,
        buffers in 20usize..200,
        more in 1usize..4,
        writers in 1usize..4,
        seed: u64,
    ) {
        let replacement = if lru { Replacement::Lru } else { Replacement::Clock };
        run(buffers, buffers * more + 7, replacement, writers, 4, seed);
    }
}

#[test]
fn few_buffers_and_many_processes_wait_for_each_other_and_all_get_on() {
    // Fewer buffers than foregrounds and writers could pin by two each, nearly every get a miss.
    for replacement in [Replacement::Clock, Replacement::Lru] {
        run(24, 2_000, replacement, 3, 20, 5);
    }
}

#[test]
fn lru_keeps_what_is_used() {
    let job = job(64, Replacement::Lru, 1);
    let segment = Segment::new(Bench::bytes(&job, 1000)).unwrap();
    let bench = Bench::new(&segment, &job, 1000);
    let get = |block: u32| {
        let read = |page: &mut [u8]| {
            bench.read(block, page);
            Ok(())
        };
        bench.cache.get(block, read).unwrap().hit
    };
    // Two blocks that are used repeatedly stay while 500 others pass through; a third one that is not used is replaced.
    assert!(!get(0) && !get(1) && !get(2));
    for other in 3..500 {
        assert!(!get(other));
        assert!(get(0) && get(1), "after {other}");
    }
    assert!(!get(2));
}

#[test]
fn a_wait_for_written_blocks_ends_with_the_batches_of_all_writers() {
    let job = job(64, Replacement::Clock, 3);
    let segment = Segment::new(Bench::bytes(&job, 10)).unwrap();
    let bench = Bench::new(&segment, &job, 10);
    let passed = &bench.world.writes;
    // No batch in progress: no wait.
    bench.cache.wait_written();
    bench.cache.batch_begins(0);
    bench.cache.batch_begins(2);
    let waiter = fork_child(|| {
        bench.cache.wait_written();
        passed.store(1, SeqCst);
        0
    })
    .unwrap();
    // It ignores a batch that begins later; one that ends and begins anew has ended.
    while bench.cache.control.written.waiting() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    bench.cache.batch_begins(1);
    bench.cache.batch_ends(0);
    bench.cache.batch_begins(0);
    while bench.cache.control.written.waiting() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(passed.load(SeqCst), 0, "writer 2 has not written yet");
    bench.cache.batch_ends(2);
    assert_eq!(waiter.wait().unwrap(), Exit::Status(0));
}
