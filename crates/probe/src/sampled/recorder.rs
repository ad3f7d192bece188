//! The recorder: a thread that empties the rings of all CPUs while a trial runs.
//!
//! Invariant: everything lost while recording is counted.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::programs::Programs;
use super::record::{Record, Stack, records};
use crate::recorder::Recorder;
use bigiron_sys::perf::{Ring, Trigger, cycles_per_ns};
use bigiron_sys::spin;

/// Samples per second and CPU: about a thousand, but not in step with anything that happens a thousand times a second.
pub const HZ: u32 = 999;

/// Nanoseconds from one sample to the next.
pub const PERIOD_NS: u64 = 1_000_000_000 / HZ as u64;

/// How often the rings are emptied. A ring has room for a second of samples; twenty thousand new processes a second fill a third of it in that time.
const EVERY: Duration = Duration::from_millis(20);

/// The event that takes the samples, and the period between them in its units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    pub trigger: Trigger,
    pub period: u64,
}

impl Sampling {
    /// By cycles if the machine counts them, otherwise by the kernel's timer.
    pub fn of_this_machine() -> Self {
        // As many cycles as pass in that time: with a fixed number of cycles, samples need no weights.
        match cycles_per_ns(|| spin::iterations(CALIBRATION)) {
            Ok(rate) => Self { trigger: Trigger::Cycles, period: (rate * PERIOD_NS as f64) as u64 },
            Err(_) => Self { trigger: Trigger::CpuClock, period: PERIOD_NS },
        }
    }

    pub fn name(&self) -> &'static str {
        match self.trigger {
            Trigger::Cycles => "cycles",
            Trigger::CpuClock => "cpu-clock",
        }
    }
}

/// Iterations of a loop, at one or two cycles each: ten milliseconds or more, in which a CPU reaches its working frequency.
const CALIBRATION: u64 = 30_000_000;

/// A sample, with the number of its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The image of its process, in [`Recording::programs`].
    pub image: u32,
    pub stack: u32,
}

/// The whole recording.
#[derive(Debug, Default)]
pub struct Recording {
    pub samples: Vec<Taken>,
    /// By number.
    pub stacks: Vec<Stack>,
    pub programs: Programs,
    /// Records for which there was no room, or that were torn.
    pub lost: u64,
    /// Number of times that the kernel took fewer samples than requested.
    pub throttled: u64,
    pub cpus: u32,
    pub(super) numbers: HashMap<Stack, u32>,
}

impl Recording {
    /// Adds the records taken from the rings of all CPUs.
    pub fn add(&mut self, taken: &[Vec<u8>]) {
        let mut all = Vec::new();
        for record in taken.iter().flat_map(|bytes| records(bytes)) {
            match record {
                Ok(record) => all.push(record),
                Err(_) => self.lost += 1,
            }
        }
        // A process may be forked on one CPU and sampled on another; each event is in the ring of its own CPU.
        all.sort_by_key(|(time, _)| *time);
        for (time, record) in all {
            match record {
                Record::Sample(sample) => {
                    let (image, stack) = (self.programs.image(sample.pid), self.number(sample.stack));
                    self.samples.push(Taken { time, image, stack });
                }
                Record::Mapped { pid, mapping } => self.programs.map(pid, mapping),
                Record::Forked { pid, parent } => self.programs.fork(pid, parent),
                Record::Named { pid, name, executes } => self.programs.name(pid, &name, executes),
                Record::Lost(n) => self.lost += n,
                Record::Throttled => self.throttled += 1,
                Record::Other => {}
            }
        }
    }

    fn number(&mut self, stack: Stack) -> u32 {
        if let Some(number) = self.numbers.get(&stack) {
            return *number;
        }
        let number = self.stacks.len() as u32;
        self.stacks.push(stack.clone());
        self.numbers.insert(stack, number);
        number
    }
}

/// Whether this process may sample all others; if not, why, and what would be needed.
///
/// # Errors
/// The refusal.
pub fn permitted() -> Result<(), String> {
    let cpu = online().first().copied().unwrap_or(0);
    Ring::new(Trigger::CpuClock, PERIOD_NS, cpu).map(drop).map_err(|e| refusal(&e))
}

pub(crate) fn refusal(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            format!(
                "sampling all processes needs root, CAP_PERFMON or `kernel.perf_event_paranoid` of 0 or less (it is {})",
                level.trim()
            )
        }
        Some(libc::ENOSYS) => "this kernel has no `perf_event_open` (CONFIG_PERF_EVENTS)".to_owned(),
        _ => format!("`perf_event_open` fails: {e}"),
    }
}

/// The CPUs that are online.
pub(crate) fn online() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// Rings for all online CPUs.
pub struct Armed {
    rings: Vec<Ring>,
}

impl Armed {
    /// Starts taking samples. Processes that this one forks from now on belong to the trial.
    ///
    /// # Errors
    /// Why it is impossible, as in [`permitted`].
    pub fn new(sampling: Sampling) -> Result<Self, String> {
        let ring = |cpu| Ring::new(sampling.trigger, sampling.period, cpu);
        let rings = online().iter().map(|cpu| ring(*cpu)).collect::<io::Result<Vec<_>>>().map_err(|e| refusal(&e))?;
        rings.iter().try_for_each(Ring::enable).map_err(|e| refusal(&e))?;
        Ok(Self { rings })
    }

    /// Starts a thread of this process that empties the rings.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(self) -> Result<Recorder<Recording>, String> {
        Recorder::start(move |stopped| self.record(stopped))
    }

    fn record(mut self, stopped: &AtomicBool) -> Recording {
        let mut recording = Recording {
            // Only after the rings report new processes, so that none is missed.
            programs: Programs::running(std::process::id()),
            cpus: self.rings.len() as u32,
            ..Recording::default()
        };
        let mut taken = vec![Vec::new(); self.rings.len()];
        loop {
            let last = stopped.load(Ordering::Acquire);
            if last {
                self.rings.iter().for_each(|ring| drop(ring.disable()));
            }
            for (ring, bytes) in self.rings.iter_mut().zip(&mut taken) {
                bytes.clear();
                ring.take(bytes);
            }
            recording.add(&taken);
            if last {
                return recording;
            }
            thread::park_timeout(EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::programs::Role;
    use super::*;

    /// Never inlined, so that it appears as a function.
    #[inline(never)]
    fn busy_here() {
        let mut n = 0_u64;
        while n < 10_000 {
            n = std::hint::black_box(n) + 1;
        }
    }

    #[test]
    fn what_this_process_does_is_recorded_or_refused_in_words() {
        let sampling = Sampling { trigger: Trigger::CpuClock, period: PERIOD_NS };
        // Of the 999 samples a second for each CPU, an overloaded machine may take few or none for a while.
        for ms in [50, 200, 1000, 3000] {
            let recorder = match Armed::new(sampling).and_then(Armed::start) {
                Ok(recorder) => recorder,
                Err(why) => {
                    assert!(why.contains("perf_event"), "{why}");
                    return;
                }
            };
            let before = bigiron_sys::cpu_clock::thread_cpu_time();
            while bigiron_sys::cpu_clock::thread_cpu_time() < before + Duration::from_millis(ms) {
                busy_here();
            }
            let recording = recorder.stop();
            let mine = recording.samples.iter().filter(|s| recording.programs.role(s.image) == Role::Sampler);
            let mut names = super::super::programs::Names::new(&recording.programs);
            let mut spins = |s: &&Taken| {
                let stack = &recording.stacks[s.stack as usize];
                stack.user.iter().any(|ip| names.name(s.image, *ip).contains("busy_here"))
            };
            assert!(recording.samples.iter().all(|s| (s.stack as usize) < recording.stacks.len()));
            if mine.filter(|s| spins(s)).count() > 0 {
                return;
            }
        }
        panic!("the busy function is in no sample");
    }

    #[test]
    fn a_refusal_says_what_would_be_right() {
        let why = refusal(&io::Error::from_raw_os_error(libc::EACCES));
        assert!(why.contains("CAP_PERFMON") && why.contains("kernel.perf_event_paranoid"), "{why}");
    }

    #[test]
    fn torn_bytes_are_lost_and_the_rest_is_not() {
        let mut recording = Recording::default();
        recording.add(&[vec![9, 0, 0, 0]]);
        assert_eq!((recording.lost, recording.samples.len()), (1, 0));
    }
}
