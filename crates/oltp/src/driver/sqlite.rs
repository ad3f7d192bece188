//! A driver thread whose only connection is SQLite itself.
//!
//! Invariant: each thread has its own engine. SQLite lets one of them write at a time: the others sleep inside it, which shows in
//! their latency.

use anyhow::{Context as _, Result};

use crate::sqlite::{Engine, Transact as _};
use bigiron_sys::load::now_ns;

use super::driver_thread::{DriverThread, ThreadResult};
use super::scheduler::User;
use bigiron_sys::load::poll::{Poll, Stop};

/// Works until the window has closed.
///
/// # Errors
/// If this thread cannot wait for its terminals.
pub fn work<U: User>(mut shift: DriverThread<'_, U>, mut engine: Engine, stop: &Stop) -> Result<ThreadResult> {
    let mut poll = Poll::new(stop).context("Cannot wait for terminals")?;
    let mut ready = Vec::new();
    while shift.goes_on(now_ns()) {
        match shift.scheduler.dispatch() {
            Some(lane) => loop {
                let result = engine.transact(shift.scheduler.request(lane));
                if !shift.answer(lane, result) {
                    break;
                }
            },
            None => poll.wait(shift.deadline(), &mut ready).context("Cannot wait for terminals")?,
        }
    }
    Ok(shift.report())
}
