//! The environment of a trial: what its machine and its kernel were like, apart from what the plan decides.
//!
//! Invariant: a fact that could not be read is absent. No fact is assumed.

use std::collections::BTreeMap;

use crate::record::FileChange;
use crate::setting::Setting;

/// Facts by name.
pub type Environment = BTreeMap<String, String>;

/// The beginning of the names of a machine's facts in a record of its guest.
pub const OF_HOST: &str = "host.";
/// The beginning of the names of module parameters: `module.zswap.enabled`.
pub const MODULE: &str = "module.";
/// The beginning of the names of vulnerabilities, whose values are the mitigations in force.
pub const VULNERABILITY: &str = "vulnerability.";
pub const CPU: &str = "cpu";
pub const FREQUENCY_DRIVER: &str = "frequency-driver";
pub const FREQUENCY_LIMITS: &str = "frequency-limits-khz";
pub const ENERGY_PREFERENCE: &str = "energy-preference";
pub const GOVERNOR: &str = "governor";
pub const IDLE_STATES: &str = "idle-states";
pub const IRQ_AFFINITY: &str = "irq-affinity";
pub const MEMORY: &str = "memory-kib";
pub const MICROCODE: &str = "microcode";
pub const SCHEDULER_FEATURES: &str = "scheduler-features";

/// Facts that are the content of one file, and the file. If it offers several values, the fact is the chosen one.
pub const FILES: &[(&str, &str)] = &[
    ("boost", "/sys/devices/system/cpu/cpufreq/boost"),
    ("clock-source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("cpus", "/sys/devices/system/cpu/online"),
    ("cpus-isolated", "/sys/devices/system/cpu/isolated"),
    ("cpus-without-tick", "/sys/devices/system/cpu/nohz_full"),
    ("firmware-date", "/sys/class/dmi/id/bios_date"),
    ("firmware-release", "/sys/class/dmi/id/bios_release"),
    ("firmware-vendor", "/sys/class/dmi/id/bios_vendor"),
    ("firmware-version", "/sys/class/dmi/id/bios_version"),
    ("idle-driver", "/sys/devices/system/cpu/cpuidle/current_driver"),
    ("idle-governor", "/sys/devices/system/cpu/cpuidle/current_governor"),
    ("irq-affinity-default", "/proc/irq/default_smp_affinity"),
    ("ksm", "/sys/kernel/mm/ksm/run"),
    ("lockdown", "/sys/kernel/security/lockdown"),
    ("machine-board", "/sys/class/dmi/id/board_name"),
    ("machine-product", "/sys/class/dmi/id/product_name"),
    ("machine-vendor", "/sys/class/dmi/id/sys_vendor"),
    ("mglru", "/sys/kernel/mm/lru_gen/enabled"),
    ("nmi-watchdog", "/proc/sys/kernel/nmi_watchdog"),
    ("numa-balancing", "/proc/sys/kernel/numa_balancing"),
    ("numa-nodes", "/sys/devices/system/node/online"),
    ("preemption", "/sys/kernel/debug/sched/preempt"),
    ("pstate", "/sys/devices/system/cpu/intel_pstate/status"),
    ("pstate-amd", "/sys/devices/system/cpu/amd_pstate/status"),
    (SCHEDULER_FEATURES, "/sys/kernel/debug/sched/features"),
    ("scheduler-slice-ns", "/sys/kernel/debug/sched/base_slice_ns"),
    ("smt", "/sys/devices/system/cpu/smt/control"),
    ("thp", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ("thp-defrag", "/sys/kernel/mm/transparent_hugepage/defrag"),
    ("thp-shmem", "/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
    ("turbo-off", "/sys/devices/system/cpu/intel_pstate/no_turbo"),
];

/// The fact that a file of the kernel shows.
pub fn of_file(path: &str) -> Option<String> {
    if let Some((name, _)) = FILES.iter().find(|(_, file)| *file == path) {
        return Some((*name).to_owned());
    }
    if let Some((module, parameter)) =
        path.strip_prefix("/sys/module/").and_then(|rest| rest.split_once("/parameters/"))
    {
        return Some(format!("{MODULE}{module}.{parameter}"));
    }
    match path.rsplit('/').next()? {
        "scaling_governor" => Some(GOVERNOR.to_owned()),
        "scaling_min_freq" | "scaling_max_freq" => Some(FREQUENCY_LIMITS.to_owned()),
        "energy_performance_preference" => Some(ENERGY_PREFERENCE.to_owned()),
        _ => None,
    }
}

/// Parameters of the command line that change facts of other names, with the beginnings of these.
const PARAMETERS: &[(&[&str], &[&str])] = &[
    (&["preempt"], &["preemption"]),
    (&["transparent_hugepage"], &["thp"]),
    (&["clocksource", "tsc"], &["clock-source"]),
    (&["nosmt", "maxcpus", "nr_cpus", "nosmp"], &["smt", "cpus", VULNERABILITY, "irq-affinity"]),
    (&["isolcpus", "nohz_full", "irqaffinity"], &["cpus-", "irq-affinity"]),
    (
        &["intel_pstate", "amd_pstate", "cpufreq.default_governor"],
        &["pstate", GOVERNOR, "frequency-", "turbo-off", "boost"],
    ),
    (&["intel_idle.max_cstate", "processor.max_cstate", "cpuidle.off", "cpuidle.governor", "idle"], &["idle-"]),
    (&["mem", "hugepages", "hugepagesz", "crashkernel"], &[MEMORY, "numa-nodes"]),
    (&["numa", "numa_balancing"], &["numa-"]),
    (&["nmi_watchdog", "nowatchdog"], &["nmi-watchdog"]),
    (&["lockdown", "lsm"], &["lockdown"]),
    (&["dis_ucode_ldr"], &[MICROCODE, VULNERABILITY]),
];

/// Parts of the names of parameters that switch mitigations.
const MITIGATIONS: &[&str] = &[
    "mitigations",
    "spec",
    "pti",
    "l1tf",
    "mds",
    "retbleed",
    "taa",
    "tsx",
    "mmio_stale_data",
    "gather_data",
    "reg_file",
    "srbds",
    "itlb",
    "tsa",
    "vmscape",
    "bhi",
    "indirect_target",
];

/// Whether an arm asked for a fact: it is what `settings` set, or follows from a parameter of the command line, or levers changed its file.
pub fn is_asked(fact: &str, settings: &[Setting], changes: &[FileChange]) -> bool {
    if changes.iter().any(|change| of_file(&change.path).as_deref() == Some(fact)) {
        return true;
    }
    settings.iter().any(|(lever, _)| match lever.split_once('.') {
        Some(("boot", parameter)) => {
            let follows = |(parameters, facts): &(&[&str], &[&str])| {
                parameters.contains(&parameter) && facts.iter().any(|start| fact.starts_with(start))
            };
            let is_of_module =
                fact.strip_prefix(MODULE).is_some_and(|of| of.replace('-', "_") == parameter.replace('-', "_"));
            let mitigates = MITIGATIONS.iter().any(|part| parameter.contains(part));
            is_of_module || PARAMETERS.iter().any(follows) || mitigates && fact.starts_with(VULNERABILITY)
        }
        // The shape of a guest's machine.
        Some(("vm", _)) => ["cpu", "numa-", MEMORY, "smt", VULNERABILITY, MODULE].iter().any(|s| fact.starts_with(s)),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_levers_are_facts() {
        for (path, fact) in [
            ("/sys/kernel/mm/transparent_hugepage/enabled", Some("thp")),
            ("/sys/module/zswap/parameters/enabled", Some("module.zswap.enabled")),
            ("/sys/devices/system/cpu/cpufreq/policy3/scaling_governor", Some("governor")),
            ("/sys/kernel/debug/sched/preempt", Some("preemption")),
            ("/proc/sys/vm/dirty_ratio", None),
        ] {
            assert_eq!(of_file(path).as_deref(), fact, "{path}");
        }
        assert!(FILES.is_sorted());
    }

    #[test]
    fn what_levers_set_was_asked_for() {
        let set = |lever: &str| vec![(lever.to_owned(), "x".to_owned())];
        for (lever, fact, asked) in [
            ("boot.mitigations", "vulnerability.retbleed", true),
            ("boot.spec_store_bypass_disable", "vulnerability.spec_store_bypass", true),
            ("boot.mitigations", "microcode", false),
            ("boot.preempt", "preemption", true),
            ("boot.zswap.enabled", "module.zswap.enabled", true),
            ("boot.zswap.enabled", "module.zswap.compressor", false),
            ("boot.transparent_hugepage", "thp-defrag", true),
            ("vm.numa", "numa-nodes", true),
            ("sysctl.vm.swappiness", "memory-kib", false),
        ] {
            assert_eq!(is_asked(fact, &set(lever), &[]), asked, "{lever} {fact}");
        }
        let change = FileChange {
            path: "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor".to_owned(),
            before: "powersave".to_owned(),
            after: "performance".to_owned(),
        };
        assert!(is_asked("governor", &[], std::slice::from_ref(&change)) && !is_asked("boost", &[], &[change]));
    }
}
