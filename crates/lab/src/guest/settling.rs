//! Waiting until the kernel's own work after boot (crypto self-tests, deferred initcalls) is over.
//!
//! Without it the first windows measure that work: repeatably, so that no statistics would detect it.

use std::time::Instant;

use super::Finding;
use crate::protocol::GuestJob;
use bigiron_model::record::Failure;
use bigiron_sys as sys;

/// Iterations of the probing loop; two instructions each.
const SPIN: u64 = 2_000_000;
/// Under the exact clock two instructions take 2 ns; the timer tick adds about 0.2 %.
const QUIET_NS_PER_ITERATION: f64 = 2.0 * 1.02;
/// Maximum number of checks, a second of the guest's clock apart.
const LOOKS: u32 = 60;

/// Idles for the job's settling time, then (exact clock) until a loop of known cost has its known cost, then spins for the slot's
/// jitter.
pub(super) fn settle(job: &GuestJob) -> anyhow::Result<()> {
    super::sleep(job.settle_seconds);
    if job.clock.is_exact() {
        wait(
            &|| {
                let start = Instant::now();
                sys::spin::iterations(SPIN);
                start.elapsed().as_nanos() as f64 / SPIN as f64
            },
            &|| super::sleep(1),
        )?;
    }
    sys::spin::iterations(u64::from(job.jitter));
    Ok(())
}

/// Waits until the loop has its known cost by `ns_per_iteration`.
fn wait(ns_per_iteration: &dyn Fn() -> f64, sleep: &dyn Fn()) -> Result<(), Finding> {
    let mut last = 0.0;
    let quiet = (0..LOOKS).any(|look| {
        if look > 0 {
            sleep();
        }
        last = ns_per_iteration();
        last <= QUIET_NS_PER_ITERATION
    });
    if quiet {
        return Ok(());
    }
    let message = format!("The guest is not quiet {LOOKS} s after boot: a loop of 2 ns takes {last:.2} ns");
    Err(Finding(Failure::NeverQuiet, message))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::guest::trouble;
    use crate::protocol::GuestEvent;

    #[test]
    fn a_kernel_that_never_becomes_quiet_is_a_finding() {
        let sleeps = Cell::new(0);
        let sleep = || sleeps.set(sleeps.get() + 1);
        let error = wait(&|| 14.1, &sleep).unwrap_err().into();
        assert_eq!(sleeps.get(), LOOKS - 1);
        let GuestEvent::Failed { failure, message } = trouble(&error) else { panic!("unfit") };
        assert_eq!(failure, Failure::NeverQuiet);
        assert!(message.contains("takes 14.10 ns"), "{message}");
        let looks = Cell::new(0);
        let settling = || {
            looks.set(looks.get() + 1);
            if looks.get() < 3 { 2.5 } else { 2.003 }
        };
        wait(&settling, &|| {}).unwrap();
        assert_eq!(looks.get(), 3);
    }
}
