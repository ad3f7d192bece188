//! The A/A gate: whether a comparison of a kernel with itself shows no difference, and the noise that it measured.
//!
//! Invariant: a gate that could not be judged fails.

use bigiron_stats::gate;
use serde::{Deserialize, Serialize};

use super::{Judgement, State};

/// The result of an A/A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Gate {
    pub passed: bool,
    /// Why the gate failed; empty if it passed.
    pub reasons: Vec<String>,
    pub noise: Vec<MetricNoise>,
}

/// The noise of one metric on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MetricNoise {
    pub workload: String,
    pub metric: String,
    pub primary: bool,
    /// Change from A to A, in per cent; all of it is noise.
    pub change_percent: f64,
    /// Standard deviation of one pair, in per cent.
    pub sd_percent: f64,
    /// Smallest change that such a study would detect with 80 % power, in per cent; `None` if it could detect none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mde_percent: Option<f64>,
}

/// Converts a difference on the log scale to a change in per cent.
fn percent(log: f64) -> f64 {
    log.exp_m1() * 100.0
}

/// Judges a session whose arms were all the same kernel.
pub fn gate(judgement: &Judgement) -> Gate {
    let mut reasons = Vec::new();
    if judgement.state != State::Finished {
        reasons.push(format!("only {} of {} boots are done", judgement.done, judgement.planned));
    }
    let failed: u32 = judgement.survival.iter().map(|s| s.failed()).sum();
    if failed > 0 {
        reasons.push(format!("{failed} boots failed"));
    }
    let lines = || judgement.comparisons.iter().flat_map(|c| &c.lines);
    let mut primaries = Vec::new();
    let mut noise = Vec::new();
    for line in lines() {
        let name = format!("{} {}", line.workload, line.metric.name);
        let Some(e) = &line.estimate else {
            reasons.push(format!("{name} was not measured"));
            continue;
        };
        noise.push(MetricNoise {
            workload: line.workload.clone(),
            metric: line.metric.name.clone(),
            primary: line.metric.primary,
            change_percent: percent(e.mean),
            sd_percent: percent(e.sd),
            mde_percent: e.mde.map(percent),
        });
        if line.metric.primary {
            primaries.push((name, gate::Line { p: e.p, mean: e.mean, margin: line.log_margin }));
        }
    }
    if primaries.is_empty() {
        reasons.push("no primary metric was measured".to_owned());
    }
    for (name, line) in primaries.iter().filter(|(_, l)| l.mean.abs() >= l.margin / 2.0) {
        let (change, margin) = (percent(line.mean), percent(line.margin));
        reasons.push(format!("{name} is off by {change:+.2} %, half its margin of {margin:.2} % or more"));
    }
    let all: Vec<gate::Line> = primaries.iter().map(|(_, line)| *line).collect();
    if !gate::passes(&all) && reasons.is_empty() {
        let smallest = all.iter().map(|l| l.p).fold(1.0, f64::min);
        reasons.push(format!("a primary metric differs (smallest p {smallest:.4}, before Holm's correction)"));
    }
    Gate { passed: reasons.is_empty(), reasons, noise }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{self, fail, micro, plan};
    use super::super::judge;
    use super::*;
    use bigiron_model::record::Failure;

    /// The gate of a session in which B costs `effect` times as much as A.
    fn gate_of(effect: f64, change: impl Fn(&mut Vec<bigiron_model::record::Record>)) -> Gate {
        let plan = plan(&["debian:6.12", "debian:6.12 (again)"], 8, vec![micro()]);
        let mut records = fixture::records(&plan, 0.002, |_, _, _| effect);
        change(&mut records);
        gate(&judge(&plan, &records))
    }

    #[test]
    fn no_difference_passes_and_its_noise_is_kept() {
        let gate = gate_of(1.0, |_| {});
        assert!(gate.passed, "{:?}", gate.reasons);
        let primary = gate.noise.iter().find(|n| n.primary).unwrap();
        assert!(primary.sd_percent > 0.01 && primary.sd_percent < 1.0, "{primary:?}");
        assert!(primary.mde_percent.unwrap() > primary.change_percent.abs());
    }

    #[test]
    fn a_difference_a_failure_or_a_missing_boot_misses_the_gate() {
        let failed = gate_of(1.0, |records| fail(&mut records[3], Failure::Panic, "oops"));
        let unfinished = gate_of(1.0, |records| records.truncate(10));
        for (gate, want) in [
            (gate_of(1.03, |_| {}), "half its margin"),
            (gate_of(1.006, |_| {}), "a primary metric differs"),
            (failed, "1 boots failed"),
            (unfinished, "only 10 of 16 boots are done"),
        ] {
            assert!(!gate.passed);
            assert!(gate.reasons.iter().any(|r| r.contains(want)), "{want}: {:?}", gate.reasons);
        }
    }
}
