//! An idle session: connected, mostly asleep. A server with many users consists of thousands of them: processes whose page tables
//! have grown over the cache, and that now and then run for a moment.
//!
//! Invariant: the blocks it touches and the times it wakes depend only on its number and the job, so they are the same from run
//! to run.

use std::time::Duration;

use anyhow::Result;

use super::block;
use super::files::{self, DataFiles};
use super::instance::{Instance, Milestone, Phase, ProcessCounters};
use super::pace;
use super::waits::{self, WaitEvent};

/// Runs idle session `process`: gets `touch` blocks once, then one every `every`, until the window has closed.
pub fn run(instance: &Instance<'_>, process: usize, touch: usize, every: Duration) -> Result<()> {
    let role = instance.roles[process];
    let session = Session { instance, process, files: DataFiles::open(instance.job, instance.dir)? };
    // The initial contents of the cache: the hottest blocks; each session gets other blocks than its neighbours.
    let hot = (instance.cache.len() * 3 / 4).min(instance.job.blocks() as usize).max(1);
    let first = role.number.wrapping_mul(touch);
    let touch = touch.min(hot);
    for i in 0..touch {
        session.get((first + i) % hot)?;
    }
    instance.arrive(Milestone::Ready)?;
    waits::during(WaitEvent::Idle, || instance.wait_for(Phase::Measure));
    // Spread over the interval, so that sessions do not wake in step.
    let every = every.as_nanos() as u64;
    let offset = (every as f64 * role.number as f64 / instance.class(process).count as f64) as u64;
    let mut wake = pace::now() + offset;
    let mut n = 0;
    while every > 0 && !instance.reached(Phase::Close) {
        // Woken early if the run advances to another stretch of the window.
        if waits::during(WaitEvent::Idle, || instance.sleep_until(wake)) {
            if touch > 0 {
                session.get((first + n % touch) % hot)?;
            }
            n += 1;
            wake += every;
        }
    }
    waits::during(WaitEvent::Idle, || instance.wait_for(Phase::Leave));
    Ok(())
}

struct Session<'a> {
    instance: &'a Instance<'a>,
    process: usize,
    files: DataFiles,
}

impl Session<'_> {
    /// Gets the block of a rank and reads it.
    fn get(&self, rank: usize) -> Result<()> {
        let instance = self.instance;
        let number = instance.choosers.popular(rank);
        let address = files::address(instance.job, number);
        let counters = &instance.counters[self.process];
        let pin = instance.cache.get(number, |page| {
            self.files.read(address, page)?;
            ProcessCounters::grow(&counters.read_bytes, page.len() as u64);
            Ok(block::check(page, address)?)
        })?;
        ProcessCounters::bump(&counters.gets);
        if pin.hit {
            ProcessCounters::bump(&counters.hits);
        }
        let page = pin.read();
        // The whole block, so that each of its pages is in this process's page table.
        for at in (0..page.len()).step_by(4096) {
            std::hint::black_box(page[at]);
        }
        Ok(block::identify(&page, address)?)
    }
}
