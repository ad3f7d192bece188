//! Converts a night's studies to entries of the history: one for each kernel.
//!
//! Invariant: an entry holds every boot that counts, as measured, and names everything that its values depend on.

use std::collections::BTreeMap;
use std::fs;

use sha2::{Digest, Sha256};

use super::folder::Night;
use super::grid::Studied;
use super::rows::Row;
use bigiron_judge::history::entry::SCHEMA;
use bigiron_judge::history::{Boot, EntryRow, HistoryEntry, Measured};
use bigiron_judge::standing;
use bigiron_judge::standing::SlotStanding;
use bigiron_model::plan::{Plan, PlannedWorkload};
use bigiron_model::record::{Outcome, Record};
use bigiron_model::size;

/// Maximum length of an option's value in a configuration; a longer value is replaced by its hash.
const SPELT: usize = 60;

/// The entries of a night, in the order of its kernels.
pub fn entries(night: &Night, studies: &[Studied]) -> Vec<HistoryEntry> {
    let of = |(arm, named): (usize, &super::folder::NightArm)| HistoryEntry {
        schema: SCHEMA,
        night: night.id(),
        begun: night.begun.clone(),
        bigiron: night.bigiron.clone(),
        arm: named.name.clone(),
        baseline: arm == 0,
        kernel: named.kernel.clone(),
        rows: studies
            .iter()
            .filter(|s| !s.split)
            .flat_map(|s| s.rows.iter().map(move |row| entry_row(night, s, row, arm)))
            .collect(),
    };
    night.arms.iter().enumerate().map(of).collect()
}

fn entry_row(night: &Night, study: &Studied, row: &Row, arm: usize) -> EntryRow {
    let plan = &study.plan;
    let planned = plan.workloads.iter().find(|w| w.name == row.workload);
    let standings = standing::standings(plan, &study.records).slots;
    let mine = plan.slots.iter().zip(&standings).filter(|(slot, _)| slot.arm == arm);
    let mut boots = Vec::new();
    let mut failures = Vec::new();
    let mut completed: Vec<&Record> = Vec::new();
    for (slot, standing) in mine {
        match standing {
            SlotStanding::Completed(record) => {
                boots.push(Boot { workload_seed: slot.workload_seed, boot_seed: slot.boot_seed });
                completed.push(record);
            }
            SlotStanding::Failed(record) => {
                if let Outcome::Failed { failure, message } = &record.outcome {
                    failures.push(format!("{}: {message}", failure.verb()));
                }
            }
            SlotStanding::Missing => {}
        }
    }
    let measured = |metric: &bigiron_model::metric::MetricDef| {
        let value = |r: &&Record| r.metrics.get(&row.workload, &metric.name);
        let values: Option<Vec<f64>> = completed.iter().map(value).collect();
        values.filter(|v| !v.is_empty()).map(|values| Measured { metric: metric.clone(), values })
    };
    let metrics = planned.into_iter().flat_map(|w| &w.metrics).filter_map(measured).collect();
    EntryRow {
        row: row.name.clone(),
        workload: row.workload.clone(),
        alone: study.alone,
        configuration: planned.map(|w| configuration(night, plan, w, arm, &completed)).unwrap_or_default(),
        failures,
        boots,
        metrics,
    }
}

/// Everything that a value depends on besides the kernel and the seeds.
fn configuration(
    night: &Night,
    plan: &Plan,
    workload: &PlannedWorkload,
    arm: usize,
    completed: &[&Record],
) -> BTreeMap<String, String> {
    let machine = &plan.machine;
    let mut parts: BTreeMap<String, String> = BTreeMap::new();
    let mut put = |name: &str, value: String| parts.insert(name.to_owned(), value);
    put("executable", night.executable.clone());
    put("clock", plan.clock.to_string());
    put("host", machine.host.to_string());
    put("cpus", machine.cpus.to_string());
    put("memory", size::print_bytes(machine.memory_bytes));
    put("storage", machine.storage.clone());
    put("filesystem", machine.filesystem.clone());
    put("in-one-boot", plan.workloads.iter().map(|w| w.name.as_str()).collect::<Vec<_>>().join(" "));
    let emulator = completed.iter().find(|r| !r.host.qemu.is_empty());
    // A night runs in one build, which its records do not name.
    let build = night.qemu_build.as_deref().filter(|build| !build.is_empty());
    let build = build.map_or_else(String::new, |build| format!(" ({build})"));
    put(
        "emulator",
        emulator.map_or_else(String::new, |r| format!("QEMU {}{build} {}", r.host.qemu, r.host.accelerator)),
    );
    if !plan.clock.is_exact() {
        put("processor", processor());
    }
    for (lever, value) in &plan.arms[arm].settings {
        put(&format!("lever.{lever}"), brief(value));
    }
    for (option, value) in plan.options_in(&plan.arms[arm], &workload.name) {
        put(&format!("option.{option}"), brief(&value));
    }
    for (name, value) in &plan.arms[arm].foundation {
        if name.strip_prefix(workload.name.as_str()).is_some_and(|rest| rest.starts_with('.')) {
            put(&format!("foundation.{name}"), brief(value));
        }
    }
    parts
}

fn brief(value: &str) -> String {
    if value.len() <= SPELT && !value.contains('\n') {
        return value.to_owned();
    }
    let digest = Sha256::digest(value).iter().take(8).map(|b| format!("{b:02x}")).collect::<String>();
    format!("sha256 {digest}")
}

/// The processor, on which this machine's times depend.
fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':')).map(|(_, name)| name.trim());
    let node = rustix::system::uname();
    format!("{} of {}", model.unwrap_or("unknown"), node.nodename().to_string_lossy())
}
