//! A trial that is looked into on this machine: what its windows executed, by samples.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};

use super::{Ran, Recorded};
use crate::host::Trial;
use crate::host::sums::Sums;
use crate::probe::sampled::profile::profiles;
use crate::probe::sampled::programs::Role;
use crate::probe::sampled::recorder::PERIOD_NS;
use crate::probe::sampled::spans::Spans;
use crate::probe::symbols::Symbols;
use crate::store::evidence::{Evidence, SCHEMA, Sampled};

/// What a trial executed, from what it marked and what was sampled meanwhile.
pub(super) fn evidence(trial: &Trial<'_>, ran: Ran) -> anyhow::Result<Evidence> {
    if let Some((failure, message)) = ran.result.failure {
        bail!("{}: {message}", failure.verb());
    }
    let Recorded::Samples(sampling, recording) = ran.recorded else { bail!("Nothing was recorded") };
    ensure!(!ran.windows.is_empty(), "Its workloads do not mark what they measure");
    let spans = Spans::of_numbers(&ran.marks);
    ensure!(
        spans.windows() == ran.windows.len(),
        "{} windows were marked with their times, and the trial tells of {}; more marks than can be kept are none",
        spans.windows(),
        ran.windows.len()
    );
    let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let symbols = Symbols::new(&kallsyms, Vec::new()).map_err(anyhow::Error::msg)?;
    let profiles = profiles(&recording, &spans, &symbols);
    let (mut sums, mut stacks) = (Sums::default(), BTreeMap::<String, u64>::new());
    for ((workload, window), profile) in ran.windows.into_iter().zip(profiles) {
        sums.add(&workload, &window, profile.functions.iter().map(|(name, n)| (name.as_str(), *n)));
        for metric in &window.metrics {
            for (stack, n) in &profile.stacks {
                *stacks.entry(format!("{workload} {metric};{stack}")).or_default() += n;
            }
        }
    }
    Ok(Evidence {
        schema: SCHEMA,
        slot: trial.slot.slot,
        image_sha256: trial.arm.kernel.image_sha256.clone(),
        metrics: ran.result.metrics,
        cpu_s: 0.0,
        windows: sums.executed(),
        sampled: Some(Sampled {
            event: sampling.name().to_owned(),
            period_ns: PERIOD_NS,
            cpus: recording.cpus,
            samples: recording.samples.len() as u64,
            lost: recording.lost,
            others: recording.samples.iter().filter(|s| recording.programs.role(s.image) == Role::Other).count() as u64,
        }),
        stacks: stacks.into_iter().map(|(stack, n)| format!("{stack} {n}\n")).collect(),
    })
}
