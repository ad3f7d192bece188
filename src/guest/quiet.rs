//! Waiting until the kernel's own work after boot (crypto self-tests, deferred initcalls) is over.
//!
//! Without it the first windows measure that work: repeatably, so no statistics would notice.

use std::time::Instant;

use anyhow::bail;

use super::protocol::Job;
use crate::clock::Clock;
use crate::sys;

/// Iterations of the probing loop; two instructions each.
const SPIN: u64 = 2_000_000;
/// Under the exact clock two instructions cost 2 ns; the timer tick adds about 0.2 %.
const QUIET_NS_PER_ITERATION: f64 = 2.0 * 1.02;
/// Looks before giving up, a second of the guest's clock apart.
const LOOKS: u32 = 60;

/// Idles as the job says, then (exact clock) until a loop of known cost has its known cost, then burns the slot's jitter.
pub(super) fn settle(job: &Job) -> anyhow::Result<()> {
    super::sleep(job.settle_seconds);
    if job.clock == Clock::Exact {
        let mut last = 0.0;
        let quiet = (0..LOOKS).any(|look| {
            if look > 0 {
                super::sleep(1);
            }
            let start = Instant::now();
            sys::spin::iterations(SPIN);
            last = start.elapsed().as_nanos() as f64 / SPIN as f64;
            last <= QUIET_NS_PER_ITERATION
        });
        if !quiet {
            bail!("The guest is not quiet {LOOKS} s after boot: a loop of 2 ns takes {last:.2} ns");
        }
    }
    sys::spin::iterations(u64::from(job.jitter));
    Ok(())
}
