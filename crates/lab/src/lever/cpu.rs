//! `cpu.*`: which CPUs the workload uses, their frequency, and the placement of tasks.

use super::accepted_values::AcceptedValues;
use super::runtime::{Lever, LeverTarget, SideEffects};

const fn file(name: &'static str, path: &'static str, takes: AcceptedValues, summary: &'static str) -> Lever {
    Lever { name, place: LeverTarget::File(path), takes, touches: SideEffects::Nothing, since: None, summary }
}

/// Those of the kernel's Documentation/admin-guide/pm/cpufreq.rst.
const GOVERNORS: &[&str] = &["performance", "powersave", "userspace", "ondemand", "conservative", "schedutil"];

/// Those of intel_pstate and amd-pstate (Documentation/admin-guide/pm).
const PREFERENCES: &[&str] = &["default", "performance", "balance_performance", "balance_power", "power"];

pub const LEVERS: &[Lever] = &[
    Lever {
        name: "cpu.pin",
        place: LeverTarget::Workload,
        takes: AcceptedValues::Cpus,
        touches: SideEffects::Nothing,
        since: None,
        summary: "the CPUs that the workload's processes may run on",
    },
    Lever {
        name: "cpu.policy",
        place: LeverTarget::Workload,
        takes: AcceptedValues::Scheduling,
        touches: SideEffects::Nothing,
        since: None,
        summary: "the scheduling policy of the workload's processes and servers",
    },
    Lever {
        name: "cpu.slice",
        place: LeverTarget::Workload,
        takes: AcceptedValues::Slice,
        touches: SideEffects::Nothing,
        since: Some("6.12"),
        summary: "how long each of the workload's threads may run before another one that waits",
    },
    file(
        "cpu.smt",
        "/sys/devices/system/cpu/smt/control",
        AcceptedValues::Words(&[("on", "on"), ("off", "off")]),
        "both threads of a core (on) or one (off)",
    ),
    file(
        "cpu.numa-balancing",
        "/proc/sys/kernel/numa_balancing",
        AcceptedValues::Number { least: 0, most: 3 },
        "0 off, 1 pages move to the node that uses them, 2 between tiers of memory, 3 both",
    ),
    file(
        "cpu.governor",
        "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
        AcceptedValues::OfferedBeside("scaling_available_governors", GOVERNORS),
        "the frequency governor",
    ),
    file(
        "cpu.energy-preference",
        "/sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference",
        AcceptedValues::OfferedBeside("energy_performance_available_preferences", PREFERENCES),
        "the hardware's energy preference",
    ),
    file(
        "cpu.boost",
        "/sys/devices/system/cpu/cpufreq/boost",
        AcceptedValues::Switch { on: "1", off: "0" },
        "frequencies above the nominal one",
    ),
    file(
        "cpu.turbo",
        "/sys/devices/system/cpu/intel_pstate/no_turbo",
        AcceptedValues::Switch { on: "0", off: "1" },
        "the same where intel_pstate drives the CPUs",
    ),
    Lever {
        name: "cpu.sched.NAME",
        place: LeverTarget::Named(tunable),
        takes: AcceptedValues::Text,
        touches: SideEffects::Nothing,
        since: Some("5.13"),
        summary: "a tunable of the scheduler in debugfs, such as `cpu.sched.base_slice_ns` or `cpu.sched.preempt`",
    },
];

/// A tunable of the scheduler; a dot in its name is a folder.
fn tunable(name: &str) -> Result<String, String> {
    let usable = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if name == "features" || name == "debug" {
        return Err("its file shows a list instead of one value, so it cannot be read back".to_owned());
    }
    if name.split('.').all(usable) {
        Ok(format!("/sys/kernel/debug/sched/{}", name.replace('.', "/")))
    } else {
        Err("a tunable is named as its file, with `.` for a folder".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunable_is_a_file_of_debugfs() {
        assert_eq!(
            tunable("numa_balancing.hot_threshold_ms").unwrap(),
            "/sys/kernel/debug/sched/numa_balancing/hot_threshold_ms"
        );
        assert!(tunable("features").unwrap_err().contains("read back"));
        assert!(tunable("../x").is_err());
    }

    #[test]
    fn what_quiets_a_machine_is_a_lever() {
        for turbo in ["cpufreq/boost", "intel_pstate/no_turbo"] {
            let dir = tempfile::tempdir().unwrap();
            for file in ["cpu0/cpufreq/scaling_governor", turbo] {
                let path = dir.path().join("devices/system/cpu").join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "0\n").unwrap();
            }
            let settings = bigiron_probe::machine::quieting(dir.path());
            assert_eq!(settings.len(), 2);
            for (lever, value) in settings {
                assert!(crate::lever::check(lever, value).unwrap().is_some(), "{lever}");
            }
        }
    }
}
