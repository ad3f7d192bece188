//! The differences between a folder's study and the question that names the folder.

use std::collections::{BTreeMap, BTreeSet};

use bigiron_model::plan::{Arm, Machine, Plan, PlannedWorkload};
use bigiron_model::size;

use crate::study::resolved::{ResolvedArm, ResolvedQuestion};

/// Maximum length of a value in messages; a longer value, or one of several lines, is a file's text.
const MAX_VALUE_LENGTH: usize = 60;

/// The differences, as `what: then → now`.
pub(super) fn differences(plan: &Plan, asked: &ResolvedQuestion) -> Vec<String> {
    let mut found = Differences::default();
    let kernels = |arms: Vec<&str>| arms.join(" against ");
    found.compare(
        "arms",
        &kernels(plan.arms.iter().map(named).collect()),
        &kernels(asked.arms.iter().map(name).collect()),
    );
    for (then, now) in plan.arms.iter().zip(&asked.arms) {
        found.compare(&format!("kernel of `{}`", then.name), &then.kernel.spec, &now.kernel);
        let settings = |of: &[(String, String)]| of.iter().cloned().collect();
        found.options(&format!("`{}`: ", then.name), &settings(&then.settings), &settings(&now.settings));
    }
    let names = |of: &[PlannedWorkload]| of.iter().map(|w| w.name.as_str()).collect::<Vec<_>>().join(" and ");
    found.compare("workloads", &names(&plan.workloads), &names(&asked.workloads));
    for (then, now) in plan.workloads.iter().zip(&asked.workloads).filter(|(then, now)| then.name == now.name) {
        found.options(&format!("{}.", then.name), &then.options, &now.options);
    }
    found.compare("pairs", &plan.design.pairs.to_string(), &asked.pairs.to_string());
    let builds = |n: Option<u32>| n.map_or_else(|| "none".to_owned(), |n| n.to_string());
    found.compare("rebuilds", &builds(plan.design.rebuilds), &builds(asked.rebuilds));
    if let Some(seed) = asked.seed {
        found.compare("seed", &plan.design.seed.to_string(), &seed.to_string());
    }
    found.compare("clock", &plan.clock.to_string(), &asked.clock.to_string());
    let (then, now) = (&plan.machine, &asked.machine);
    found.compare("host", &then.host.to_string(), &now.host.to_string());
    let names = |of: &Machine| of.each().into_iter().filter_map(|m| m.target).collect::<Vec<_>>().join(" and ");
    found.compare("machines", &names(then), &names(now));
    found.compare("CPUs", &then.cpus.to_string(), &now.cpus.to_string());
    found.compare("memory", &size::print_bytes(then.memory_bytes), &size::print_bytes(now.memory_bytes));
    found.compare("storage", &then.storage, &now.storage);
    found.compare("file system", &then.filesystem, &now.filesystem);
    for (kind, margin) in &asked.margins {
        let then = plan.margins.get(kind).map_or_else(String::new, f64::to_string);
        found.compare(&format!("margin of {kind:?}").to_lowercase(), &then, &margin.to_string());
    }
    found.0
}

fn named(arm: &Arm) -> &str {
    &arm.name
}

fn name(arm: &ResolvedArm) -> &str {
    &arm.name
}

#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn compare(&mut self, what: &str, then: &str, now: &str) {
        if then == now {
            return;
        }
        let is_text = |value: &str| value.contains('\n') || value.len() > MAX_VALUE_LENGTH;
        self.0.push(if is_text(then) || is_text(now) {
            format!("{what}: the text has changed")
        } else {
            let shown = |value: &str| if value.is_empty() { "none" } else { value }.to_owned();
            format!("{what}: {} → {}", shown(then), shown(now))
        });
    }

    fn options(&mut self, prefix: &str, then: &BTreeMap<String, String>, now: &BTreeMap<String, String>) {
        let value = |of: &BTreeMap<String, String>, name: &str| of.get(name).cloned().unwrap_or_default();
        let names: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
        for name in names {
            self.compare(&format!("{prefix}{name}"), &value(then, name), &value(now, name));
        }
    }
}
