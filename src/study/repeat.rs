//! How to repeat a question: the command line of a comparison.
//!
//! Invariant: the printed command resolves to the same question (the same hash, except for the seed).

use super::command as program;
use super::question::Question;
use super::resolved::ResolvedQuestion;
use bigiron_model::host::{HostKind, HostName};
use bigiron_model::margins;
use bigiron_model::setting::TypedSetting;
use bigiron_model::shell::quote;
use bigiron_model::size;
use bigiron_stats::power;
use bigiron_workloads::command::NAME;

/// The command that repeats a comparison given by arguments.
pub fn command(q: &Question, resolved: &ResolvedQuestion, seed: u64) -> String {
    let mut words = vec!["bigiron".to_owned(), "compare".to_owned()];
    words.extend(q.arms.iter().map(ToString::to_string));
    words.extend(resolved.workloads.iter().map(|w| w.name.clone()));
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    for setting in q.settings.iter().filter(|s| !program::is_argument(s)) {
        option("set", TypedSetting(setting).to_string());
    }
    option("clock", resolved.clock.word().to_owned());
    option("pairs", resolved.pairs.to_string());
    if let Some(builds) = resolved.rebuilds {
        option("rebuilds", builds.to_string());
    }
    place(resolved, &mut option);
    for (name, kind, default) in margins::KINDS {
        if let Some(margin) = q.margins.get(kind).filter(|m| *m != default) {
            option("margin", format!("{name}={}", percent(*margin)));
        }
    }
    if q.hang_limit.is_some() {
        option("hang-limit", resolved.hang_limit.to_string());
    }
    if q.idle_gap.is_some() {
        option("idle-gap", resolved.idle_gap.to_string());
    }
    option("seed", seed.to_string());
    if q.screening {
        words.push("--quick".to_owned());
    }
    if q.no_way_back {
        words.push("--no-way-back".to_owned());
    }
    if q.no_vm_gate {
        words.push("--no-vm-gate".to_owned());
    }
    let (metrics, words_after) = program::arguments(&q.settings);
    words.extend(metrics.into_iter().chain(words_after));
    words.iter().map(|w| quote(w)).collect::<Vec<_>>().join(" ")
}

/// The command that repeats the study file at `path`; `q` is its question with the options that were given beside it.
pub fn study(path: &str, q: &Question, resolved: &ResolvedQuestion, seed: u64) -> String {
    let qemu = if resolved.qemu.is_pinned() { String::new() } else { format!(" --qemu {}", resolved.qemu) };
    // Another time the same wish might choose other pairs.
    let is_chosen = q.budget.is_some() || q.precision.is_some() || q.overrides_pairs;
    let pairs = if is_chosen { format!(" --pairs {}", resolved.pairs) } else { String::new() };
    // The file may name another host.
    let on = match resolved.machine.host {
        HostKind::Ssh => format!(" --on {}", host(resolved)),
        _ => String::new(),
    };
    format!("bigiron run {} --seed {seed}{pairs}{qemu}{on}", quote(path))
}

/// The pairs of a self-test of as many workloads as `resolved` has.
pub fn selftest_pairs(resolved: &ResolvedQuestion) -> u32 {
    let flips = resolved.flips();
    power::balanced(flips, power::smallest_pairs(flips, resolved.workloads.len()))
}

/// The command that measures the noise of this work on its machine; `None` for a program of the user's, which a self-test does not take.
pub fn selftest(q: &Question, resolved: &ResolvedQuestion) -> Option<String> {
    let is_program = resolved.workloads.iter().any(|w| w.name == NAME);
    if is_program || resolved.machine.host == HostKind::Sim {
        return None;
    }
    let mut words = vec!["bigiron".to_owned(), "selftest".to_owned(), "--aa".to_owned(), q.arms.first()?.to_string()];
    words.extend(resolved.workloads.iter().map(|w| w.name.clone()));
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    for setting in &q.settings {
        option("set", TypedSetting(setting).to_string());
    }
    if !resolved.machine.host.is_machine() {
        option("clock", resolved.clock.word().to_owned());
    }
    option("pairs", selftest_pairs(resolved).to_string());
    place(resolved, &mut option);
    if q.no_way_back {
        words.push("--no-way-back".to_owned());
    }
    Some(words.iter().map(|w| quote(w)).collect::<Vec<_>>().join(" "))
}

/// The options that say where trials run.
fn place(resolved: &ResolvedQuestion, option: &mut dyn FnMut(&str, String)) {
    let machine = &resolved.machine;
    if machine.host.is_machine() {
        option("on", host(resolved).to_string());
        return;
    }
    option("cpus", machine.cpus.to_string());
    option("memory", size::print_bytes(machine.memory_bytes));
    option("storage", machine.storage.clone());
    option("filesystem", machine.filesystem.clone());
    if !resolved.qemu.is_pinned() {
        option("qemu", resolved.qemu.to_string());
    }
}

/// The host as typed.
fn host(resolved: &ResolvedQuestion) -> HostName {
    let targets = resolved.machine.each().into_iter().filter_map(|machine| machine.target).collect();
    HostName { targets, ..HostName::of(resolved.machine.host) }
}

/// The command with the study's folder; what stands after `--` belongs to a program.
pub fn resumed(command: &str, dir: &str) -> String {
    let out = format!(" --out {}", quote(dir));
    match command.split_once(" -- ") {
        Some((own, program)) => format!("{own}{out} -- {program}"),
        None => format!("{command}{out}"),
    }
}

/// A margin on the ratio in percent, without floating-point residue (2.9 %, not 2.9000000000000004 %).
fn percent(margin: f64) -> f64 {
    (margin * 100.0 * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::resumed;

    #[test]
    fn the_folder_is_not_given_to_the_program() {
        assert_eq!(resumed("bigiron run s.toml --seed 1", "a b"), "bigiron run s.toml --seed 1 --out 'a b'");
        assert_eq!(resumed("bigiron compare x y -- ./p --z", "o"), "bigiron compare x y --out o -- ./p --z");
    }
}
