//! `bigiron selftest`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::compare;
use super::output;
use crate::cli::Selftest;
use crate::commands::output::Terminal;
use crate::conduct::noise_card::NoiseCard;
use crate::conduct::{self, Conducted, StudyRequest, TrialsBy};
use crate::study::question::Question;
use bigiron_judge::aa;
use bigiron_judge::aa::Gate;
use bigiron_model::clock::Clock;
use bigiron_model::host::HostKind;
use bigiron_model::plan::RUNNING;
use bigiron_model::refusal::Refusal;

/// The kernel that is compared with itself if none is named.
const KERNEL: &str = "debian:6.12";

pub(super) fn run(args: Selftest) -> anyhow::Result<u8> {
    let mut q = compare::question(&args.words, &args.design)?;
    match q.arms.len() {
        0 => {
            let is_machine = q.host.is_some_and(HostKind::is_machine);
            let kernel = if is_machine { RUNNING } else { KERNEL };
            q.arms = compare::question(&[kernel.to_owned()], &args.design)?.arms;
        }
        1 => {}
        n => {
            return Err(Refusal::new(format!("{n} kernels; a self-test compares one kernel with itself"))
                .hint("`bigiron compare` compares several")
                .into());
        }
    }
    q.arms.push(q.arms[0].clone());
    if q.clock == Some(Clock::None) {
        return Err(Refusal::new("Without a clock there is no noise to measure; use `wall` or `exact`").into());
    }
    let (first, gate) = attempt(&q, args.out.as_deref(), args.jobs, false)?;
    if gate.passed {
        return Ok(0);
    }
    output::note("The A/A check failed; running it once more with another seed");
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
    let request = StudyRequest {
        question: q.clone(),
        file: None,
        script: None,
        out,
        fresh: false,
        jobs,
        why: Some(0),
        model: false,
        locks: None,
        trials: TrialsBy::This,
        part: None,
        observer: &Terminal,
    };
    let conducted = conduct::conduct(&request)?;
    let gate = aa::gate(&conducted.judgement);
    let card = NoiseCard::new(conducted.folder.plan(), gate, repeated);
    // Printed first: a cache that is full, or cannot be written, costs the card and not its numbers.
    output::data(&text(&card))?;
    let path = card.keep()?;
    output::note(&format!("Noise card: {}", path.display()));
    Ok((conducted, card.gate))
}

fn text(card: &NoiseCard) -> String {
    let mut out = format!(
        "{} against itself, {} pairs, clock {}: {}\n",
        card.kernel,
        card.pairs,
        card.clock,
        if card.gate.passed { "passed; no primary metric differs" } else { "failed" }
    );
    for reason in &card.gate.reasons {
        let _ = writeln!(out, "  {reason}");
    }
    let name = |n: &aa::MetricNoise| format!("{} {}{}", n.workload, n.metric, if n.primary { " *" } else { "" });
    let width = card.gate.noise.iter().map(|n| name(n).chars().count()).max().unwrap_or(0).max(18);
    let _ = writeln!(out, "\n{:<width$}  {:>9}  {:>9}  {:>17}", "metric (* primary)", "A to A", "SD, pair", "MDE");
    for n in &card.gate.noise {
        let mde = n.mde_percent.map_or_else(|| "none".to_owned(), |mde| format!("{mde:.3} %"));
        let _ = writeln!(out, "{:<width$}  {:>+7.3} %  {:>7.3} %  {mde:>17}", name(n), n.change_percent, n.sd_percent);
    }
    out
}
