//! Reads the environment of a trial: what the running kernel tells of its machine and of itself.
//!
//! Invariant: only files are read, after the measured windows, and a file that cannot be read is no fact.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use bigiron_model::environment::{
    CPU, ENERGY_PREFERENCE, Environment, FILES, FREQUENCY_DRIVER, FREQUENCY_LIMITS, GOVERNOR, IDLE_STATES,
    IRQ_AFFINITY, MEMORY, MICROCODE, MODULE, VULNERABILITY,
};

/// Bytes of a file that are read. /proc/cpuinfo is longer where there are many CPUs, and has everything wanted of the first.
const LONGEST: u64 = 4096;
/// Characters of a value that are kept.
const SHOWN: usize = 600;

/// The environment of the machine with this root folder.
pub fn read(root: &Path) -> Environment {
    let mut facts = machine(root);
    let at = |path: &str| root.join(path);
    for (module, dir) in entries(&at("sys/module")) {
        for (parameter, file) in entries(&dir.join("parameters")) {
            // A list for people, such as acpi's debug levels, is no value.
            facts.extend(text(&file).map(|value| (format!("{MODULE}{module}.{parameter}"), value)));
        }
    }
    facts
}

/// The same without the parameters of modules.
pub fn machine(root: &Path) -> Environment {
    let at = |path: &str| root.join(path.trim_start_matches('/'));
    let mut facts: Environment = FILES
        .iter()
        .filter_map(|(name, path)| {
            let text = text(&at(path))?;
            // A firmware's version may have brackets of its own.
            let value = if path.starts_with("/sys/kernel/") { chosen(&text) } else { &text };
            Some(((*name).to_owned(), value.to_owned()))
        })
        .collect();
    for (name, file) in entries(&at("sys/devices/system/cpu/vulnerabilities")) {
        facts.extend(text(&file).map(|value| (format!("{VULNERABILITY}{name}"), value)));
    }
    let all = entries(&at("sys/devices/system/cpu/cpufreq"));
    let policies: Vec<_> = all.iter().filter(|(name, _)| name.starts_with("policy")).map(|(_, dir)| dir).collect();
    let distinct = |files: &[&str]| {
        let of = |dir: &&std::path::PathBuf| {
            let values: Option<Vec<String>> = files.iter().map(|file| text(&dir.join(file))).collect();
            values.map(|values| values.join(" to "))
        };
        grouped(policies.iter().copied().filter_map(|dir| of(&dir)))
    };
    let info = beginning(&at("proc/cpuinfo")).unwrap_or_default();
    let field = |name: &str| {
        let is_it = |line: &&str| line.split(':').next().is_some_and(|key| key.trim() == name);
        Some(info.lines().find(is_it)?.split_once(':')?.1.trim().to_owned())
    };
    let microcodes = entries(&at("sys/devices/system/cpu")).into_iter().filter(|(name, _)| name.starts_with("cpu"));
    let microcode = grouped(microcodes.filter_map(|(_, dir)| text(&dir.join("microcode/version"))));
    let memory = beginning(&at("proc/meminfo"));
    let total =
        memory.as_deref().and_then(|info| Some(info.strip_prefix("MemTotal:")?.split_whitespace().next()?.to_owned()));
    let ids: Vec<String> =
        ["vendor_id", "cpu family", "model", "stepping", "model name"].into_iter().filter_map(field).collect();
    let more = [
        (CPU, (!ids.is_empty()).then(|| ids.join(" "))),
        (MICROCODE, microcode.or_else(|| field("microcode"))),
        (MEMORY, total),
        (GOVERNOR, distinct(&["scaling_governor"])),
        (FREQUENCY_DRIVER, distinct(&["scaling_driver"])),
        (FREQUENCY_LIMITS, distinct(&["scaling_min_freq", "scaling_max_freq"])),
        (ENERGY_PREFERENCE, distinct(&["energy_performance_preference"])),
        (IDLE_STATES, idle_states(&at("sys/devices/system/cpu/cpu0/cpuidle"))),
        (IRQ_AFFINITY, irq_affinity(&at("proc/irq"))),
    ];
    facts.extend(more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    facts
}

/// The entries of a folder, by name.
fn entries(dir: &Path) -> Vec<(String, std::path::PathBuf)> {
    let all = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<_> = all.filter_map(|e| Some((e.file_name().into_string().ok()?, e.path()))).collect();
    all.sort();
    all
}

/// The beginning of a file.
fn beginning(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The line of a file that has one.
fn text(path: &Path) -> Option<String> {
    let text = beginning(path)?;
    let text = text.trim();
    // The kernel prints a list of CPUs that it does not have as `(null)`.
    let is_value = !text.is_empty() && !text.contains('\n') && text != "(null)";
    is_value.then(|| text.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect())
}

/// The choice in brackets, as in `always [madvise] never` or `none (full) lazy`; the whole text if there is none.
fn chosen(text: &str) -> &str {
    let between = |open, close| text.split_once(open)?.1.split_once(close).map(|(chosen, _)| chosen);
    between('[', ']').or_else(|| between('(', ')')).unwrap_or(text)
}

/// The one value, or each with how often it occurs.
fn grouped(values: impl Iterator<Item = String>) -> Option<String> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    match counts.len() {
        0 => None,
        1 => counts.into_keys().next(),
        _ => Some(counts.iter().map(|(value, n)| format!("{n} x {value}")).collect::<Vec<_>>().join(", ")),
    }
}

/// The idle states of a CPU, shallowest first: `POLL, C1, C6 (off)`.
fn idle_states(dir: &Path) -> Option<String> {
    let of = |n: u32| {
        let state = dir.join(format!("state{n}"));
        let off = text(&state.join("disable")).is_some_and(|off| off != "0");
        Some(format!("{}{}", text(&state.join("name"))?, if off { " (off)" } else { "" }))
    };
    let states: Vec<String> = (0..).map_while(of).collect();
    (!states.is_empty()).then(|| states.join(", "))
}

/// How many interrupts go to which CPUs.
fn irq_affinity(dir: &Path) -> Option<String> {
    grouped(entries(dir).into_iter().filter_map(|(_, irq)| text(&irq.join("smp_affinity_list"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_machines_facts_are_read() {
        let cpu = "sys/devices/system/cpu";
        let file = |path: &str| format!("{cpu}/{path}");
        let dir = testing::machine(&[
            (
                "proc/cpuinfo",
                "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon\nstepping\t: 8\nmicrocode\t: 0x1\nflags\t: fpu\n",
            ),
            ("proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/kernel/debug/sched/preempt", "none voluntary (full) lazy \n"),
            ("sys/class/dmi/id/bios_version", "1.2.3\n"),
            (&file("vulnerabilities/meltdown"), "Mitigation: PTI\n"),
            (&file("cpufreq/policy0/scaling_governor"), "performance\n"),
            (&file("cpufreq/policy1/scaling_governor"), "powersave\n"),
            (&file("cpufreq/policy2/scaling_governor"), "powersave\n"),
            (&file("cpu0/cpuidle/state0/name"), "POLL\n"),
            (&file("cpu0/cpuidle/state0/disable"), "0\n"),
            (&file("cpu0/cpuidle/state1/name"), "C6\n"),
            (&file("cpu0/cpuidle/state1/disable"), "1\n"),
            (&file("cpu0/microcode/version"), "0x2b\n"),
            ("proc/irq/1/smp_affinity_list", "0-3\n"),
            ("proc/irq/2/smp_affinity_list", "2\n"),
            ("proc/irq/3/smp_affinity_list", "0-3\n"),
            ("sys/module/zswap/parameters/enabled", "N\n"),
            ("sys/module/acpi/parameters/debug_level", "Description Hex\nACPI_LV_INIT 0x1\n"),
        ]);
        let found = read(dir.path());
        let want = [
            ("cpu", "GenuineIntel 6 143 8 Xeon"),
            ("firmware-version", "1.2.3"),
            ("governor", "1 x performance, 2 x powersave"),
            ("idle-states", "POLL, C6 (off)"),
            ("irq-affinity", "2 x 0-3, 1 x 2"),
            ("memory-kib", "16384000"),
            ("microcode", "0x2b"),
            ("module.zswap.enabled", "N"),
            ("preemption", "full"),
            ("thp", "madvise"),
            ("vulnerability.meltdown", "Mitigation: PTI"),
        ];
        assert_eq!(found, want.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        let of_machine = machine(dir.path());
        assert_eq!((of_machine.len(), of_machine.contains_key("module.zswap.enabled")), (found.len() - 1, false));
        assert_eq!(read(Path::new("/nowhere")), Environment::new());
    }

    #[test]
    fn this_machine_has_facts() {
        let here = read(Path::new("/"));
        assert!(here.contains_key("memory-kib") && here.keys().any(|name| name.starts_with(MODULE)), "{here:?}");
        assert!(
            here.values().all(|value| !value.is_empty() && !value.contains('\n') && value.chars().count() <= SHOWN)
        );
    }
}
