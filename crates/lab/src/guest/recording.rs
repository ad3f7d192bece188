//! Recording in a guest while its workloads run, in reruns: samples of its CPUs, or lock waits.

use crate::protocol::{GuestEvent, GuestJob};
use bigiron_model::purpose::Purpose;
use bigiron_model::waits::{Traced, WindowWaits};
use bigiron_probe::locks::names::LockSymbols;
use bigiron_probe::locks::recorder as locks;
use bigiron_probe::locks::waits::waited;
use bigiron_probe::recorder::Recorder;
use bigiron_probe::sampled::profile::Profiles;
use bigiron_probe::sampled::recorder as samples;
use bigiron_probe::sampled::recorder::Sampling;
use bigiron_probe::sampled::spans::Spans;
use bigiron_probe::symbols::Symbols;

/// A recording that is ready to start, or why it cannot.
pub(super) enum Armed {
    Locks(Box<Result<locks::Armed, String>>),
    Samples(Sampling, Result<samples::Armed, String>),
}

/// A recording in progress.
pub(super) enum Recording {
    Locks(Result<Recorder<locks::Recording>, String>),
    Samples(Sampling, Result<Recorder<samples::Recording>, String>),
}

impl Armed {
    /// The recording that the job requires. Call this before the job's processes are forked: they and their children belong to
    /// the trial.
    pub(super) fn of(job: &GuestJob) -> Option<Self> {
        if !job.is_recorded() {
            return None;
        }
        Some(match job.purpose {
            Purpose::Locks => Self::Locks(Box::new(locks::Armed::new())),
            _ => {
                let sampling = Sampling::of_this_machine();
                Self::Samples(sampling, samples::Armed::new(sampling))
            }
        })
    }

    /// Call this after the fork: a process with threads must not be forked.
    pub(super) fn start(self) -> Recording {
        match self {
            Self::Locks(armed) => Recording::Locks((*armed).and_then(locks::Armed::start)),
            Self::Samples(sampling, armed) => Recording::Samples(sampling, armed.and_then(samples::Armed::start)),
        }
    }
}

impl Recording {
    /// Ends the recording: returns the data of the marked windows, or why there are none.
    pub(super) fn stop(self, marks: &[(u8, u64)]) -> GuestEvent {
        let spans = Spans::of_numbers(marks);
        let kallsyms = || std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        match self {
            Self::Locks(recorder) => {
                let named = recorder.map(Recorder::stop).and_then(|recording| {
                    let kallsyms = kallsyms();
                    let symbols = Symbols::new(&kallsyms, Vec::new())?;
                    let (windows, traced) = waited(&recording, &spans, &symbols, &LockSymbols::new(&kallsyms));
                    Ok(GuestEvent::Waits { cpus: recording.cpus, traced, windows })
                });
                named.unwrap_or_else(|why| GuestEvent::Waits {
                    cpus: 0,
                    traced: Traced { untold: Some(why), ..Traced::default() },
                    windows: vec![WindowWaits::default(); spans.windows()],
                })
            }
            Self::Samples(sampling, recorder) => {
                let recorded = recorder.map(Recorder::stop);
                GuestEvent::Samples {
                    taken: recorded.and_then(|recording| Profiles::new(sampling, &recording, &spans, &kallsyms())),
                }
            }
        }
    }
}
