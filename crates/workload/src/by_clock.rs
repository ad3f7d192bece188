//! Options whose `auto` depends on the clock.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bigiron_model::clock::Clock;
use bigiron_model::metric::MetricDef;

use crate::{Configured, Context, ImageContext, Images, Needs, RawNeeds, Running, RunsOn};

/// The options as read for the wall clock, and for the other clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByClock<T> {
    pub wall: T,
    pub other: T,
}

impl<T> ByClock<T> {
    /// Reads the options for each clock.
    ///
    /// # Errors
    /// As `read`.
    pub fn read<E>(read: impl Fn(Clock) -> Result<T, E>) -> Result<Self, E> {
        Ok(Self { wall: read(Clock::Wall)?, other: read(Clock::Exact)? })
    }

    pub fn on(&self, clock: Clock) -> &T {
        if clock == Clock::Wall { &self.wall } else { &self.other }
    }
}

/// Needs and metrics are those of the wall clock, where there is most to do, unless the clock is given.
impl<T: Configured> Configured for ByClock<T> {
    fn check_arm(&self, on: RunsOn) -> Result<(), String> {
        self.wall.check_arm(on)
    }

    fn needs(&self) -> Needs {
        self.wall.needs()
    }

    fn memory_on(&self, cpus: u32, clock: Clock) -> Option<u64> {
        self.on(clock).memory_on(cpus, clock)
    }

    fn raw_disks(&self) -> Option<RawNeeds> {
        self.wall.raw_disks()
    }

    fn images(&self, cx: &ImageContext<'_>) -> anyhow::Result<Images> {
        self.wall.images(cx)
    }

    fn metrics(&self) -> Vec<MetricDef> {
        self.wall.metrics()
    }

    fn silence(&self) -> Duration {
        self.wall.silence()
    }

    fn guest_silence(&self) -> Duration {
        self.other.guest_silence()
    }

    fn encrypts(&self) -> bool {
        self.wall.encrypts()
    }

    fn lays_out(&self) -> bool {
        self.wall.lays_out()
    }

    fn prepare(&self, cx: &Context<'_>) -> anyhow::Result<Box<dyn Running + '_>> {
        self.on(cx.clock).prepare(cx)
    }

    fn recover(
        &self,
        cx: &Context<'_>,
        acknowledged: &Path,
    ) -> anyhow::Result<(Box<dyn Running + '_>, BTreeMap<String, String>)> {
        self.on(cx.clock).recover(cx, acknowledged)
    }
}
