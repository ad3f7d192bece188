//! What a guest records while its workloads run, in trials that are run for it: where its CPUs are, or what is waited for.

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

/// What is going to be recorded; why it cannot be where it cannot.
pub(super) enum Armed {
    Locks(Box<Result<locks::Armed, String>>),
    Samples(Sampling, Result<samples::Armed, String>),
}

/// What is being recorded.
pub(super) enum Recording {
    Locks(Result<Recorder<locks::Recording>, String>),
    Samples(Sampling, Result<Recorder<samples::Recording>, String>),
}

impl Armed {
    /// What the job asks for. To be called before its processes are forked: they and all that they start are the trial's.
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

    /// To be called after that: a process with threads is not to be forked.
    pub(super) fn start(self) -> Recording {
        match self {
            Self::Locks(armed) => Recording::Locks((*armed).and_then(locks::Armed::start)),
            Self::Samples(sampling, armed) => Recording::Samples(sampling, armed.and_then(samples::Armed::start)),
        }
    }
}

impl Recording {
    /// Ends it: what there was in the windows that were marked, or why that is not known.
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
