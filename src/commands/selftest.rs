//! `bigiron selftest`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use super::compare;
use super::conduct::{self, Conducted, Request};
use super::output;
use crate::cli::Selftest;
use crate::clock::Clock;
use crate::judge::aa::{self, Gate};
use crate::kernel::store::Store;
use crate::refusal::Refusal;
use crate::size;
use crate::study::plan::Machine;
use crate::study::question::Question;

/// The kernel that is compared with itself if none is named.
const KERNEL: &str = "debian:6.12";

/// What is kept of an A/A session: how noisy this machine is.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct NoiseCard<'a> {
    bigiron: &'a str,
    kernel: &'a str,
    clock: Clock,
    pairs: u32,
    seed: u64,
    /// Whether this was the second try.
    repeated: bool,
    machine: &'a Machine,
    gate: &'a Gate,
}

pub(super) fn run(args: Selftest) -> anyhow::Result<u8> {
    let mut q = compare::question(&args.words, &args.design)?;
    match q.arms.len() {
        0 => q.arms = compare::question(&[KERNEL.to_owned()], &args.design)?.arms,
        1 => {}
        n => {
            return Err(Refusal::new(format!("{n} kernels; a self-test compares one kernel with itself"))
                .hint("`bigiron compare` compares several")
                .into());
        }
    }
    q.arms.push(q.arms[0].clone());
    if q.clock == Some(Clock::None) {
        return Err(Refusal::new("Without a clock there is no noise to find; take `wall` or `exact`").into());
    }
    let (first, gate) = attempt(&q, args.out.as_deref(), args.jobs, false)?;
    if gate.passed {
        return Ok(0);
    }
    output::note("The gate was missed; it is tried once more, with other seeds");
    q.seed = Some(first.folder.plan().design.seed ^ 1);
    let out = args.out.as_deref().map(again);
    let (_, gate) = attempt(&q, out.as_deref(), args.jobs, true)?;
    Ok(if gate.passed { 0 } else { super::FAILED })
}

/// The folder of the second try.
fn again(dir: &Path) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push("-again");
    PathBuf::from(name)
}

fn attempt(q: &Question, out: Option<&Path>, jobs: Option<usize>, repeated: bool) -> anyhow::Result<(Conducted, Gate)> {
    let request =
        Request { question: q.clone(), file: None, script: None, out, jobs, why: Some(0), locks: None, part: None };
    let conducted = conduct::conduct(&request)?;
    let gate = aa::gate(&conducted.judgement);
    let plan = conducted.folder.plan();
    let card = NoiseCard {
        bigiron: env!("CARGO_PKG_VERSION"),
        kernel: &plan.arms[0].kernel.release,
        clock: plan.clock,
        pairs: plan.design.pairs,
        seed: plan.design.seed,
        repeated,
        machine: &plan.machine,
        gate: &gate,
    };
    let path = keep(&card)?;
    output::data(&text(&card))?;
    output::note(&format!("Noise card: {}", path.display()));
    Ok((conducted, gate))
}

/// Writes the card to the cache: one for each kernel, clock and size of machine.
fn keep(card: &NoiseCard<'_>) -> anyhow::Result<PathBuf> {
    let dir = Store::open()?.dir().join("noise");
    let memory = size::print_bytes(card.machine.memory_bytes);
    let path = dir.join(format!("{}-{}-{}cpu-{memory}.toml", card.kernel, card.clock, card.machine.cpus));
    let write = || -> anyhow::Result<()> {
        std::fs::create_dir_all(&dir)?;
        let mut file = tempfile::NamedTempFile::new_in(&dir)?;
        std::io::Write::write_all(&mut file, toml::to_string(card)?.as_bytes())?;
        file.persist(&path)?;
        Ok(())
    };
    write().with_context(|| format!("Cannot keep the noise card `{}`", path.display()))?;
    Ok(path)
}

fn text(card: &NoiseCard<'_>) -> String {
    let mut out = format!(
        "{} against itself, {} pairs, clock {}: {}\n",
        card.kernel,
        card.pairs,
        card.clock,
        if card.gate.passed { "no primary metric differs, the gate is passed" } else { "the gate is missed" }
    );
    for reason in &card.gate.reasons {
        let _ = writeln!(out, "  {reason}");
    }
    let name = |n: &aa::Noise| format!("{} {}{}", n.workload, n.metric, if n.primary { " *" } else { "" });
    let width = card.gate.noise.iter().map(|n| name(n).chars().count()).max().unwrap_or(0).max(18);
    let _ = writeln!(
        out,
        "\n{:<width$}  {:>9}  {:>9}  {:>17}",
        "metric (* primary)", "A to A", "SD, pair", "smallest visible"
    );
    for n in &card.gate.noise {
        let mde = n.mde_percent.map_or_else(|| "none".to_owned(), |mde| format!("{mde:.3} %"));
        let _ = writeln!(out, "{:<width$}  {:>+7.3} %  {:>7.3} %  {mde:>17}", name(n), n.change_percent, n.sd_percent);
    }
    out
}
