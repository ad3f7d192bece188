//! Stacks of a line's windows in both arms, as a tree of functions and their callees.
//!
//! Invariant: the cost of a function is its own cost plus that of everything it called; children are sorted by name.

use std::collections::BTreeMap;

use super::causes::Causes;
use super::{Judgement, window};
use bigiron_model::evidence::Evidence;
use bigiron_model::plan::Plan;

/// Functions of a stack that are used: a tree's depth is walked by recursion, and the kernel records at most 127 of itself and as many of a program.
const DEEPEST: usize = 512;

/// A function at its place below its callers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// Nanoseconds of each arm per operation, including everything it called: means over the pairs.
    pub a: f64,
    pub b: f64,
    pub called: BTreeMap<String, Frame>,
}

/// The stacks of one line: the root holds the cost of all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Stacks {
    pub comparison: usize,
    pub workload: String,
    pub metric: String,
    pub root: Frame,
}

impl Frame {
    /// Adds the stack `frames`, outermost first.
    fn add<'a>(&mut self, frames: impl Iterator<Item = &'a str>, a: f64, b: f64) {
        let mut at = self;
        at.a += a;
        at.b += b;
        for name in frames.take(DEEPEST) {
            at = at.called.entry(name.to_owned()).or_default();
            at.a += a;
            at.b += b;
        }
    }

    /// Functions from this one down to the innermost.
    pub fn depth(&self) -> usize {
        1 + self.called.values().map(Frame::depth).max().unwrap_or(0)
    }
}

/// The stacks of a line whose causes are known, from the stacks stored for each slot (see [`Evidence::stacks`]); `None` if nothing was sampled.
pub fn of_line(
    plan: &Plan,
    judgement: &Judgement,
    causes: &Causes,
    evidence: &[Evidence],
    stacks: &dyn Fn(u32) -> Option<String>,
) -> Option<Stacks> {
    let arm = judgement.comparisons[causes.comparison].arm;
    let prefix = format!("{} {};", causes.workload, causes.window);
    let mut root = Frame::default();
    let pairs = window::pairs(plan, arm, (&causes.workload, &causes.window), evidence);
    for pair in &pairs {
        for (side, of) in pair.iter().enumerate() {
            let Some(sampled) = &of.evidence.sampled else { return None };
            let ns = sampled.period_ns as f64 / of.window.operations as f64;
            let text = stacks(of.evidence.slot)?;
            for (stack, count) in text.lines().filter_map(|line| line.strip_prefix(&prefix)?.rsplit_once(' ')) {
                let cost = ns * count.parse::<u32>().map_or(0.0, f64::from) / pairs.len() as f64;
                let (a, b) = if side == 0 { (cost, 0.0) } else { (0.0, cost) };
                root.add(stack.split(';'), a, b);
            }
        }
    }
    let (workload, metric) = (causes.workload.clone(), causes.metric.clone());
    (!root.called.is_empty()).then_some(Stacks { comparison: causes.comparison, workload, metric, root })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::causes;
    use crate::{fixture, judge};
    use bigiron_model::evidence::{Executed, Sampled};

    #[test]
    fn a_stack_without_end_is_cut() {
        let mut root = Frame::default();
        root.add(std::iter::repeat_n("f", 1_000_000), 1.0, 2.0);
        assert_eq!(root.depth(), 1 + DEEPEST);
    }

    #[test]
    fn stacks_of_both_arms_are_one_tree_in_nanoseconds_for_one_operation() {
        let plan = fixture::plan(&["debian:6.1", "debian:6.12"], 10, vec![fixture::micro()]);
        let records = fixture::records(&plan, 1e-4, |_, _, metric| if metric == "fork-exit" { 1.1 } else { 1.0 });
        let judgement = judge(&plan, &records);
        let of = |slot: u32, operations, samples| Evidence {
            windows: vec![Executed {
                workload: "micro".to_owned(),
                metric: "fork-exit".to_owned(),
                operations,
                ns: 1_000_000,
                functions: vec![("g".to_owned(), samples)],
                calls: Vec::new(),
                modelled: Vec::new(),
            }],
            sampled: Some(Sampled {
                event: "cpu-clock".to_owned(),
                period_ns: 1000,
                cpus: 2,
                samples,
                lost: 0,
                others: 0,
            }),
            ..fixture::evidence(slot, Vec::new())
        };
        let evidence = vec![of(0, 10, 30), of(1, 20, 100)];
        let texts = |slot| match slot {
            0 => Some("micro fork-exit;sh;f 10\nmicro fork-exit;sh;f;g 20\nmicro other;sh 99\n".to_owned()),
            1 => Some("micro fork-exit;sh;f;g 60\nmicro fork-exit;sh;h i 40\n".to_owned()),
            _ => None,
        };
        let found = causes(&plan, &judgement, &evidence).remove(0);
        let stacks = of_line(&plan, &judgement, &found, &evidence, &texts).unwrap();
        let sh = &stacks.root.called["sh"];
        assert_eq!((stacks.root.a, stacks.root.b, sh.a, sh.b), (3000.0, 5000.0, 3000.0, 5000.0));
        assert_eq!((sh.called["f"].a, sh.called["f"].b), (3000.0, 3000.0));
        assert_eq!((sh.called["f"].called["g"].a, sh.called["h i"].b), (2000.0, 2000.0));
        assert_eq!(stacks.root.depth(), 4);
        assert_eq!(of_line(&plan, &judgement, &found, &evidence, &|_| None), None);
    }
}
