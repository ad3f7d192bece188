//! The samples of each window: by function, and by stack.
//!
//! Samples of the trial's processes count, and those of the kernel itself: its threads, and interrupts of idle CPUs.
//!
//! Invariant: every sample that counts is once in its window's functions and once in its stacks; all others belong to idle CPUs or other processes.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::programs::{Names, Role};
use super::record::Stack;
use super::recorder::{PERIOD_NS, Recording, Sampling};
use super::spans::Spans;
use crate::symbols::{Symbols, UNKNOWN_PROGRAM};
use bigiron_model::evidence::Sampled;

/// The samples of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profiles {
    pub sampled: Sampled,
    /// By window, in the order of the cuts.
    pub windows: Vec<Profile>,
}

/// A window's samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// By the innermost function.
    pub functions: BTreeMap<String, u64>,
    /// By the whole stack, outermost function first and joined with `;`.
    pub stacks: BTreeMap<String, u64>,
    /// Samples of CPUs that were idle.
    pub idle: u64,
    /// Samples of processes outside the trial, including the sampler.
    pub others: u64,
}

/// Where a CPU halts or waits for work: the functions of the idle task on x86-64.
const HALTED: [&str; 12] = [
    "acpi_idle_do_entry",
    "acpi_idle_enter",
    "acpi_processor_ffh_cstate_enter",
    "acpi_safe_halt",
    "default_idle",
    "intel_idle",
    "intel_idle_ibrs",
    "intel_idle_irq",
    "mwait_idle",
    "native_safe_halt",
    "poll_idle",
    "pv_native_safe_halt",
];

impl Profiles {
    /// Makes profiles from a recording; `kallsyms` is the kernel's text.
    ///
    /// # Errors
    /// `kallsyms` shows no functions, and why.
    pub fn new(sampling: Sampling, recording: &Recording, spans: &Spans, kallsyms: &str) -> Result<Self, String> {
        let symbols = Symbols::new(kallsyms, Vec::new())?;
        let sampled = Sampled {
            event: sampling.name().to_owned(),
            period_ns: PERIOD_NS,
            cpus: recording.cpus,
            samples: recording.samples.len() as u64,
            lost: recording.lost,
            others: recording.samples.iter().filter(|s| recording.programs.role(s.image) == Role::Other).count() as u64,
        };
        Ok(Self { sampled, windows: profiles(recording, spans, &symbols) })
    }
}

/// Windows' samples by function and stack.
fn profiles(recording: &Recording, spans: &Spans, symbols: &Symbols) -> Vec<Profile> {
    // Few distinct stacks, each many times: each is named once for each image and window.
    let mut counts: HashMap<(usize, u32, u32), u64> = HashMap::new();
    for sample in &recording.samples {
        if let Some(window) = spans.window(sample.time) {
            *counts.entry((window, sample.image, sample.stack)).or_default() += 1;
        }
    }
    let mut names = Names::new(&recording.programs);
    let mut profiles = vec![Profile::default(); spans.windows()];
    for ((window, image, stack), count) in counts {
        let (profile, stack) = (&mut profiles[window], &recording.stacks[stack as usize]);
        let role = recording.programs.role(image);
        if matches!(role, Role::Sampler | Role::Other) {
            profile.others += count;
            continue;
        }
        let leaf = leaf(stack, image, symbols, &mut names);
        if role == Role::Idle && HALTED.contains(&leaf.as_str()) {
            profile.idle += count;
        } else {
            let folded = folded(stack, image, recording.programs.who(image), symbols, &mut names);
            *profile.stacks.entry(folded).or_default() += count;
            *profile.functions.entry(leaf).or_default() += count;
        }
    }
    profiles
}

/// The innermost function.
fn leaf(stack: &Stack, image: u32, symbols: &Symbols, names: &mut Names<'_>) -> String {
    match (stack.kernel.first(), stack.user.first()) {
        (Some(address), _) => symbols.name(*address),
        (None, Some(address)) => names.name(image, *address).to_owned(),
        (None, None) => UNKNOWN_PROGRAM.to_owned(),
    }
}

/// `PROGRAM;outermost;…;innermost`.
fn folded(stack: &Stack, image: u32, who: &str, symbols: &Symbols, names: &mut Names<'_>) -> String {
    let mut frames = vec![who.to_owned()];
    for (i, address) in stack.user.iter().enumerate().rev() {
        let name = names.name(image, *address);
        // A wrong frame pointer leads to an unknown address.
        if i == 0 || name != UNKNOWN_PROGRAM {
            frames.push(name.strip_prefix("user: ").unwrap_or(name).to_owned());
        }
    }
    frames.extend(stack.kernel.iter().rev().map(|address| symbols.name(*address)));
    frames.iter_mut().for_each(|frame| *frame = frame.replace([';', '\n'], ":"));
    frames.join(";")
}

#[cfg(test)]
mod tests {
    use bigiron_profile::Mark::{Begin, Cut, End};

    use super::super::programs::Programs;
    use super::super::record::Mapping;
    use super::super::recorder::Taken;
    use super::*;

    const KALLSYMS: &str = "ffffffff81000000 T entry_SYSCALL_64\nffffffff81000100 t do_fork.isra.0\nffffffff81000200 t pv_native_safe_halt\n\
        ffffffff81000300 T net_rx_action\n";
    const SYSCALL: u64 = 0xffff_ffff_8100_0010;
    const FORK: u64 = 0xffff_ffff_8100_0110;
    const HALT: u64 = 0xffff_ffff_8100_0210;
    const NET: u64 = 0xffff_ffff_8100_0310;

    fn stack(kernel: &[u64], user: &[u64]) -> Stack {
        Stack { kernel: kernel.to_vec(), user: user.to_vec() }
    }

    fn recording() -> Recording {
        let stacks = vec![
            stack(&[FORK, SYSCALL], &[0x1010, 0x9999]),
            stack(&[HALT], &[]),
            stack(&[NET, HALT], &[]),
            stack(&[], &[0x1020]),
        ];
        let mut programs = Programs::default();
        // 99 samples; 7 is its child and 8 the child of 7; 6 is unknown.
        let file = "/nonexistent/a;b".to_owned();
        programs.sampler(99, Mapping { start: 0x1000, end: 0x2000, offset: 0, file });
        programs.fork(7, 99);
        programs.fork(8, 7);
        let taken = |time, pid, stack| Taken { time, image: programs.image(pid), stack };
        // In the window twice; before it; in it idle; in it in an interrupt; of the sampler; of the trial's child; of an unknown process.
        let samples = vec![
            taken(12, 7, 0),
            taken(13, 7, 0),
            taken(5, 7, 0),
            taken(14, 0, 1),
            taken(15, 0, 2),
            taken(16, 99, 3),
            taken(17, 8, 0),
            taken(18, 6, 3),
        ];
        Recording { stacks, samples, programs, ..Recording::default() }
    }

    #[test]
    fn a_sample_counts_once_by_function_and_once_by_stack() {
        let symbols = Symbols::new(KALLSYMS, Vec::new()).unwrap();
        let spans = Spans::new([(Begin, 10), (End, 20), (Cut, 20), (Cut, 30)]);
        let profiles = profiles(&recording(), &spans, &symbols);
        let of = |all: &[(&str, u64)]| all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<BTreeMap<_, _>>();
        assert_eq!(profiles[0].functions, of(&[("do_fork", 3), ("net_rx_action", 1)]));
        assert_eq!((profiles[0].idle, profiles[0].others), (1, 2));
        assert_eq!(
            profiles[0].stacks,
            of(&[("a:b;a:b;entry_SYSCALL_64;do_fork", 3), ("idle task;pv_native_safe_halt;net_rx_action", 1),])
        );
        assert_eq!(profiles[1], Profile::default());
    }
}
