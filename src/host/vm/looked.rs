//! A trial that is looked into: the same boot, with QEMU counting what its windows execute.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use bigiron_profile::Windows;

use super::Booted;
use crate::host::Trial;
use crate::probe::symbols::Symbols;
use crate::store::evidence::{Evidence, Executed, SCHEMA};

/// What a guest executed, from what it said and from the file that the plugin wrote.
pub(super) fn evidence(trial: &Trial<'_>, booted: Booted, profile: &Path) -> anyhow::Result<Evidence> {
    if let Some((failure, message)) = booted.result.failure {
        bail!("{}: {message}", failure.verb());
    }
    let bytes = std::fs::read(profile).with_context(|| format!("Cannot read {}", profile.display()))?;
    let counted: Vec<_> = Windows::new(&bytes)
        .and_then(Iterator::collect)
        .map_err(|why| anyhow::anyhow!("The profile is not usable: {why}"))?;
    let said = booted.heard.windows;
    ensure!(
        counted.len() == said.len(),
        "{} windows were counted, and the guest tells of {}",
        counted.len(),
        said.len()
    );
    let symbols = Symbols::new(&booted.heard.kallsyms, booted.heard.programs).map_err(anyhow::Error::msg)?;
    let mut sums: Vec<Sum> = Vec::new();
    for ((workload, window), counts) in said.into_iter().zip(counted) {
        let mut functions: HashMap<String, u64> = HashMap::new();
        for (address, count) in counts {
            *functions.entry(symbols.name(address)).or_default() += count;
        }
        for metric in window.metrics {
            let found = sums.iter().position(|s| s.workload == workload && s.metric == metric);
            let at = found.unwrap_or_else(|| {
                sums.push(Sum { workload: workload.clone(), metric, ..Sum::default() });
                sums.len() - 1
            });
            sums[at].operations += window.operations;
            sums[at].ns += window.ns;
            functions.iter().for_each(|(name, n)| *sums[at].functions.entry(name.clone()).or_default() += n);
        }
    }
    Ok(Evidence {
        schema: SCHEMA,
        slot: trial.slot.slot,
        image_sha256: trial.arm.kernel.image_sha256.clone(),
        metrics: booted.result.metrics,
        cpu_s: booted.result.cost.cpu_s,
        windows: sums.into_iter().map(Sum::executed).collect(),
    })
}

/// All windows of one metric.
#[derive(Default)]
struct Sum {
    workload: String,
    metric: String,
    operations: u64,
    ns: u64,
    functions: HashMap<String, u64>,
}

impl Sum {
    fn executed(self) -> Executed {
        let Self { workload, metric, operations, ns, functions } = self;
        let mut functions: Vec<_> = functions.into_iter().collect();
        functions.sort_by(|(name_a, a), (name_b, b)| b.cmp(a).then_with(|| name_a.cmp(name_b)));
        Executed { workload, metric, operations, ns, functions }
    }
}
