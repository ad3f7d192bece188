//! What each of several machines shows of a line, and whether they disagree.
//!
//! Invariant: it never changes a verdict, which is about the mean of these machines.

use bigiron_stats::{Block, heterogeneity, multiplicity};

use super::Comparison;
use super::line::{Delta, Line, Order, geometric_mean};

/// One machine's part of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineShare {
    /// Index into the members of the plan's machine.
    pub machine: u32,
    /// Pairs in the estimate.
    pub pairs: u32,
    /// Geometric means of the arms.
    pub a: f64,
    pub b: f64,
    /// The mean of D over the two orders, in the metric's own direction.
    pub mean: f64,
}

/// The parts of all machines that have pairs in the estimate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ByMachine {
    /// Empty if there is one machine.
    pub shares: Vec<MachineShare>,
    /// p of "the effect is the same on every machine"; after [`adjust`], adjusted for the number of lines. `None` if it cannot be told.
    pub p: Option<f64>,
}

impl ByMachine {
    /// `machines`: their number in the plan.
    pub(super) fn new(deltas: &[Delta], machines: u32, seed: u64) -> Self {
        if machines < 2 {
            return ByMachine::default();
        }
        let of = |machine: u32| deltas.iter().filter(move |d| d.machine == machine);
        let block = |machine: u32| {
            let order = |order| of(machine).filter(|d| d.order == order).map(|d| d.d).collect();
            Block { ab: order(Order::Ab), ba: order(Order::Ba) }
        };
        let share = |machine: u32| {
            let values =
                |value: fn(&Delta) -> f64| geometric_mean(of(machine).map(value).collect::<Vec<_>>().into_iter());
            let (a, b) = (values(|d| d.a)?, values(|d| d.b)?);
            Some(MachineShare { machine, pairs: of(machine).count() as u32, a, b, mean: block(machine).mean() + 0.0 })
        };
        let blocks: Vec<Block> = (0..machines).map(block).collect();
        ByMachine {
            shares: (0..machines).filter_map(share).collect(),
            p: heterogeneity::p(&blocks, heterogeneity::DRAWS, seed),
        }
    }

    /// Whether the machines differ by more than chance.
    pub fn disagree(&self) -> bool {
        self.p.is_some_and(|p| p <= heterogeneity::HINT_LEVEL)
    }
}

/// Adjusts for the number of lines: Holm over the primaries, Benjamini–Hochberg over the rest.
pub(super) fn adjust(comparisons: &mut [Comparison]) {
    let (primaries, others): (Vec<&mut Line>, Vec<&mut Line>) =
        comparisons.iter_mut().flat_map(|c| &mut c.lines).partition(|line| line.metric.primary);
    adjust_all(primaries, multiplicity::holm);
    adjust_all(others, multiplicity::benjamini_hochberg);
}

fn adjust_all(mut lines: Vec<&mut Line>, adjusted: fn(&[f64]) -> Vec<f64>) {
    lines.retain(|line| line.by_machine.p.is_some());
    let p: Vec<f64> = lines.iter().filter_map(|line| line.by_machine.p).collect();
    for (line, p) in lines.into_iter().zip(adjusted(&p)) {
        line.by_machine.p = Some(p);
    }
}

#[cfg(test)]
mod tests {
    use bigiron_stats::{Flips, Verdict};

    use crate::fixture::{self, micro};
    use crate::judge;

    #[test]
    fn unlike_speeds_cancel_and_unlike_effects_are_shown() {
        let plan = fixture::on_three_machines(fixture::plan(&["debian:6.1", "debian:6.12"], 12, vec![micro()]));
        assert_eq!(plan.flips(), Flips::Blocks(3));
        let of = |effects: [f64; 3]| {
            let mut records = fixture::records(&plan, 0.001, |_, _, _| 1.0);
            for (record, slot) in records.iter_mut().zip(&plan.slots) {
                let machine = slot.machine as usize;
                // The second machine is four times as slow.
                let factor = [1.0, 4.0, 1.1][machine] * if slot.arm == 1 { effects[machine] } else { 1.0 };
                for def in &plan.workloads[0].metrics {
                    let value = record.metrics.get("micro", &def.name).unwrap();
                    record.metrics.insert("micro", &def.name, value * factor);
                }
            }
            judge(&plan, &records)
        };
        let alike = of([1.1; 3]);
        let line = alike.comparisons[0].primaries().next().unwrap();
        assert!(line.estimate.unwrap().sd < 0.01 && !line.by_machine.disagree(), "{line:?}");
        assert_eq!(line.verdict, Verdict::Worse);
        let shares: Vec<(u32, u32)> = line.by_machine.shares.iter().map(|s| (s.machine, s.pairs)).collect();
        assert_eq!(shares, [(0, 4), (1, 4), (2, 4)]);
        assert!(line.by_machine.shares[1].a > 3.0 * line.by_machine.shares[0].a);
        let unlike = of([1.1, 1.1, 0.9]);
        let line = unlike.comparisons[0].primaries().next().unwrap();
        assert!(line.by_machine.disagree(), "{:?}", line.by_machine);
        assert!(line.by_machine.shares[2].mean < -0.1 && line.by_machine.shares[0].mean > 0.09);
        // A record from another machine than the plan's is not used.
        let mut records = fixture::records(&plan, 0.001, |_, _, _| 1.0);
        records[0].machine = Some("b".into());
        let judgement = judge(&plan, &records);
        assert_eq!(judgement.set_aside[0].reason, "It ran on b, not on the plan's");
    }

    #[test]
    fn a_study_on_one_machine_has_no_shares() {
        let plan = fixture::plan(&["debian:6.1", "debian:6.12"], 8, vec![micro()]);
        let judgement = judge(&plan, &fixture::records(&plan, 0.001, |_, _, _| 1.0));
        assert!(judgement.comparisons[0].lines.iter().all(|line| line.by_machine == super::ByMachine::default()));
    }
}
