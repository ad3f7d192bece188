//! How suitable this machine is for measuring on itself: a grade for each of its settings and states, and what would improve it.
//!
//! Invariant: everything is read, nothing is changed; what the machine does not report is `unknown`, never assumed to be good.

use std::fs;
use std::path::{Path, PathBuf};

use super::noise::{self, Disturbance};
use bigiron_model::size;

/// The effect of a setting or state on measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    Quiet,
    /// Makes times vary, or depend on other work on the machine.
    Noisy,
    /// The machine does not report it.
    Unknown,
}

impl Grade {
    pub fn word(self) -> &'static str {
        match self {
            Grade::Quiet => "ok",
            Grade::Noisy => "noisy",
            Grade::Unknown => "unknown",
        }
    }
}

/// One setting or state, with its grade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineCheck {
    pub what: &'static str,
    pub grade: Grade,
    pub says: String,
}

/// Less available memory than this is too little; and the least free space on a study's disk.
const MEMORY: u64 = 512 << 20;
const ROOM: u64 = 1 << 30;

/// Clock sources that are read without leaving the CPU.
const FAST_CLOCKS: [&str; 3] = ["tsc", "kvm-clock", "arch_sys_counter"];

/// The folders of the CPUs in `sys`.
pub fn cpus(sys: &Path) -> impl Iterator<Item = PathBuf> {
    let is_cpu = |name: &str| name.strip_prefix("cpu").is_some_and(|n| !n.is_empty() && n.parse::<u32>().is_ok());
    let entries = fs::read_dir(sys.join("devices/system/cpu")).into_iter().flatten().flatten();
    entries.filter(move |e| e.file_name().to_str().is_some_and(is_cpu)).map(|e| e.path())
}

/// Grades the machine with these `/sys` and `/proc`; `noise` was observed just now, `dir` is the folder that would hold a study.
pub fn card(sys: &Path, proc: &Path, noise: &Disturbance, dir: &Path) -> Vec<MachineCheck> {
    let cpu = sys.join("devices/system/cpu");
    vec![
        governor(sys),
        boost(&cpu),
        smt(&cpu),
        steal(noise),
        foreign(noise, proc),
        throttling(sys, noise),
        swap(proc, noise),
        memory(proc),
        numa(sys),
        huge_pages(sys),
        virtualised(sys, proc),
        clocksource(sys),
        room(dir),
    ]
}

/// The levers that this machine has and that would make it quieter: the frequency no longer follows load and heat.
pub fn quieting(sys: &Path) -> Vec<(&'static str, &'static str)> {
    let cpu = sys.join("devices/system/cpu");
    let governed = cpus(sys).any(|c| c.join("cpufreq/scaling_governor").exists());
    [
        (governed, ("cpu.governor", "performance")),
        (cpu.join("cpufreq/boost").exists(), ("cpu.boost", "off")),
        (cpu.join("intel_pstate/no_turbo").exists(), ("cpu.turbo", "off")),
    ]
    .into_iter()
    .filter_map(|(has, setting)| has.then_some(setting))
    .collect()
}

/// The machine's settings in one line, for a record.
pub fn settings(sys: &Path, proc: &Path) -> String {
    let cpu = sys.join("devices/system/cpu");
    let items = [governor(sys), boost(&cpu), smt(&cpu), numa(sys), huge_pages(sys), virtualised(sys, proc)];
    let brief = |i: &MachineCheck| format!("{}: {}", i.what, i.says.split(';').next().unwrap_or_default());
    items.iter().map(brief).collect::<Vec<_>>().join(", ")
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn item(what: &'static str, grade: Grade, says: impl Into<String>) -> MachineCheck {
    MachineCheck { what, grade, says: says.into() }
}

/// The choice in brackets, as in `always [madvise] never`.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(chosen, _)| chosen)
}

fn governor(sys: &Path) -> MachineCheck {
    let what = "governor";
    let mut governors: Vec<String> = cpus(sys).filter_map(|c| read(c.join("cpufreq/scaling_governor"))).collect();
    governors.sort();
    governors.dedup();
    match &governors[..] {
        [] => item(what, Grade::Unknown, "none visible; a hypervisor or the firmware controls the frequency"),
        [one] if one == "performance" => item(what, Grade::Quiet, "performance"),
        _ => item(
            what,
            Grade::Noisy,
            format!(
                "{}; `performance` keeps the frequency from following the load (`--quiet-machine`)",
                governors.join(", ")
            ),
        ),
    }
}

fn boost(cpu: &Path) -> MachineCheck {
    let what = "boost";
    let intel = read(cpu.join("intel_pstate/no_turbo")).map(|off| off == "0");
    match intel.or_else(|| read(cpu.join("cpufreq/boost")).map(|on| on == "1")) {
        None => {
            item(what, Grade::Unknown, "not visible; the frequency may depend on heat and on the load of other cores")
        }
        Some(false) => item(what, Grade::Quiet, "off"),
        Some(true) => item(
            what,
            Grade::Noisy,
            "on; the frequency depends on heat and on the load of other cores; turn it off (`--quiet-machine`)",
        ),
    }
}

fn smt(cpu: &Path) -> MachineCheck {
    let what = "SMT";
    match read(cpu.join("smt/active")).as_deref() {
        Some("0") => item(what, Grade::Quiet, "off"),
        Some("1") => item(
            what,
            Grade::Noisy,
            "on; two threads of a core slow each other; `echo off` to /sys/devices/system/cpu/smt/control",
        ),
        _ => item(what, Grade::Unknown, "the kernel does not report it"),
    }
}

fn share(what: &'static str, share: Option<f64>, least: f64, of: &str, help: &str) -> MachineCheck {
    match share {
        None => item(what, Grade::Unknown, "observed for too short a time"),
        Some(s) if s < least => item(what, Grade::Quiet, format!("{:.1} % of the CPU time {of}", s * 100.0)),
        Some(s) => item(what, Grade::Noisy, format!("{:.1} % of the CPU time {of}; {help}", s * 100.0)),
    }
}

fn steal(noise: &Disturbance) -> MachineCheck {
    let help = "ask for CPUs of your own, or measure when the neighbours are quiet";
    share("steal", noise.steal, noise::STEAL, "went to other virtual machines", help)
}

fn foreign(noise: &Disturbance, proc: &Path) -> MachineCheck {
    let load = read(proc.join("loadavg")).unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("unknown").to_owned();
    let help = format!("stop them (load {load})");
    share("foreign CPU", noise.foreign, noise::FOREIGN, "is taken by other processes", &help)
}

fn throttling(sys: &Path, noise: &Disturbance) -> MachineCheck {
    let what = "throttling";
    if !cpus(sys).any(|c| c.join("thermal_throttle").exists()) {
        return item(what, Grade::Unknown, "not counted here");
    }
    match (noise.throttles, noise::throttles(sys)) {
        (0, 0) => item(what, Grade::Quiet, "never since boot"),
        (0, n) => item(what, Grade::Quiet, format!("not now; {n} times since boot")),
        (n, _) => item(what, Grade::Noisy, format!("{n} times just now; cool the machine, or lower its frequency")),
    }
}

/// A line of /proc/meminfo in bytes.
fn meminfo(proc: &Path, name: &str) -> Option<u64> {
    let text = read(proc.join("meminfo"))?;
    let kib = text.lines().find_map(|l| l.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse::<u64>().ok())?;
    Some(kib << 10)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn swap(proc: &Path, noise: &Disturbance) -> MachineCheck {
    let what = "swap";
    let (Some(all), Some(free)) = (meminfo(proc, "SwapTotal:"), meminfo(proc, "SwapFree:")) else {
        return item(what, Grade::Unknown, "/proc/meminfo does not report it");
    };
    if noise.swapped_in + noise.swapped_out > 0 {
        let says = format!("{} pages in, {} out just now; free memory first", noise.swapped_in, noise.swapped_out);
        return item(what, Grade::Noisy, says);
    }
    match all.saturating_sub(free) {
        _ if all == 0 => item(what, Grade::Quiet, "none"),
        0 => item(what, Grade::Quiet, format!("{}, none of it in use", mib(all))),
        used => item(
            what,
            Grade::Noisy,
            format!("{} of {} in use; swapped pages are read back when touched", mib(used), mib(all)),
        ),
    }
}

fn memory(proc: &Path) -> MachineCheck {
    let what = "memory";
    match meminfo(proc, "MemAvailable:") {
        None => item(what, Grade::Unknown, "/proc/meminfo has no MemAvailable"),
        Some(free) if free < MEMORY => {
            item(what, Grade::Noisy, format!("{} available; the kernel will reclaim, or swap", mib(free)))
        }
        Some(free) => item(what, Grade::Quiet, format!("{} available", mib(free))),
    }
}

fn numa(sys: &Path) -> MachineCheck {
    let entries = fs::read_dir(sys.join("devices/system/node")).into_iter().flatten().flatten();
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    match entries.filter(|e| e.file_name().to_str().is_some_and(is_node)).count() {
        0 | 1 => item("NUMA", Grade::Quiet, "one node"),
        n => item(
            "NUMA",
            Grade::Noisy,
            format!("{n} nodes; the placement of memory varies between runs unless it is bound"),
        ),
    }
}

fn huge_pages(sys: &Path) -> MachineCheck {
    let what = "THP";
    let text = read(sys.join("kernel/mm/transparent_hugepage/enabled"));
    match text.as_deref().and_then(chosen) {
        None => item(what, Grade::Quiet, "not in this kernel"),
        Some("always") => item(
            what,
            Grade::Noisy,
            "always; whether a run gets huge pages depends on free memory; `madvise` leaves it to programs",
        ),
        Some(mode) => item(what, Grade::Quiet, mode.to_owned()),
    }
}

fn virtualised(sys: &Path, proc: &Path) -> MachineCheck {
    let what = "machine";
    let cpuinfo = read(proc.join("cpuinfo")).unwrap_or_default();
    let flagged = cpuinfo.lines().any(|l| l.starts_with("flags") && l.split_whitespace().any(|f| f == "hypervisor"));
    let vendor = read(sys.join("class/dmi/id/sys_vendor")).or_else(|| read(sys.join("hypervisor/type")));
    let by = vendor.filter(|v| !v.is_empty()).map_or_else(String::new, |v| format!(" ({v})"));
    if flagged {
        let says = format!("virtual{by}; its neighbours and its hypervisor affect every measured time");
        return item(what, Grade::Noisy, says);
    }
    item(what, Grade::Quiet, format!("no hypervisor reported{by}"))
}

fn clocksource(sys: &Path) -> MachineCheck {
    let what = "clock source";
    match read(sys.join("devices/system/clocksource/clocksource0/current_clocksource")) {
        None => item(what, Grade::Unknown, "the kernel does not report it"),
        Some(c) if FAST_CLOCKS.contains(&c.as_str()) || c.starts_with("hyperv") => item(what, Grade::Quiet, c),
        Some(c) => {
            item(what, Grade::Noisy, format!("{c}; reading it takes a microsecond or more, `tsc` a few nanoseconds"))
        }
    }
}

fn room(dir: &Path) -> MachineCheck {
    let what = "disk";
    match rustix::fs::statvfs(dir) {
        Err(e) => item(what, Grade::Unknown, format!("`{}`: {e}", dir.display())),
        Ok(fs) => {
            let free = fs.f_bavail.saturating_mul(fs.f_frsize);
            let says = format!("{} free for studies", mib(free));
            if free >= ROOM {
                return item(what, Grade::Quiet, says);
            }
            item(
                what,
                Grade::Noisy,
                format!("{says}; below {}, file systems slow down, and a trial may fill them", size::print_bytes(ROOM)),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::machine;

    const QUIET: Disturbance = Disturbance {
        time: Duration::from_secs(1),
        steal: Some(0.0),
        foreign: Some(0.01),
        throttles: 0,
        swapped_in: 0,
        swapped_out: 0,
    };

    fn graded(files: &[(&str, &str)], noise: &Disturbance) -> Vec<MachineCheck> {
        let dir = machine(files);
        card(&dir.path().join("sys"), &dir.path().join("proc"), noise, dir.path())
    }

    fn grade(items: &[MachineCheck], what: &str) -> (Grade, String) {
        let item = items.iter().find(|i| i.what == what).unwrap();
        (item.grade, item.says.clone())
    }

    #[test]
    fn a_server_as_it_comes_is_noisy_and_is_told_what_helps() {
        let items = graded(
            &[
                ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil\n"),
                ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
                ("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n"),
                ("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
                ("sys/devices/system/cpu/smt/active", "1\n"),
                ("sys/devices/system/node/node0/x", ""),
                ("sys/devices/system/node/node1/x", ""),
                ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
                ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
                ("proc/meminfo", "MemAvailable: 102400 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\n"),
                ("proc/cpuinfo", "flags\t\t: fpu hypervisor sse\n"),
                ("proc/loadavg", "7.25 3 2 1/2 3\n"),
            ],
            &Disturbance { steal: Some(0.1), foreign: Some(0.4), throttles: 2, ..QUIET },
        );
        for (what, want) in [
            ("governor", "performance, schedutil"),
            ("boost", "on"),
            ("SMT", "on"),
            ("steal", "10.0 % of the CPU time went to other"),
            ("foreign CPU", "40.0 % of the CPU time is taken by other processes; stop them (load 7.25)"),
            ("throttling", "2 times just now"),
            ("swap", "1 MiB of 2 MiB in use"),
            ("memory", "100 MiB available"),
            ("NUMA", "2 nodes"),
            ("THP", "always"),
            ("machine", "virtual"),
            ("clock source", "hpet"),
        ] {
            let (grade, says) = grade(&items, what);
            assert_eq!(grade, Grade::Noisy, "{what}: {says}");
            assert!(says.starts_with(want), "{what}: {says}");
        }
    }

    #[test]
    fn a_machine_set_up_for_measuring_is_quiet() {
        let items = graded(
            &[
                ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
                ("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n"),
                ("sys/devices/system/cpu/cpufreq/boost", "0\n"),
                ("sys/devices/system/cpu/smt/active", "0\n"),
                ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
                ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
                ("proc/meminfo", "MemAvailable: 10240000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"),
                ("proc/cpuinfo", "flags\t\t: fpu sse\n"),
            ],
            &QUIET,
        );
        let noisy: Vec<&MachineCheck> = items.iter().filter(|i| i.grade != Grade::Quiet && i.what != "disk").collect();
        assert!(noisy.is_empty(), "{noisy:?}");
        assert_eq!(grade(&items, "throttling").1, "not now; 3 times since boot");
    }

    #[test]
    fn only_what_a_machine_has_is_set_to_quiet_it() {
        let dir = machine(&[
            ("cpu/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("cpu/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
        ]);
        assert_eq!(quieting(&dir.path().join("cpu")), [("cpu.governor", "performance"), ("cpu.turbo", "off")]);
        assert_eq!(quieting(&dir.path().join("none")), []);
    }

    #[test]
    fn what_a_machine_does_not_say_is_unknown() {
        let items = graded(&[], &Disturbance { steal: None, foreign: None, ..QUIET });
        for what in ["governor", "boost", "SMT", "steal", "foreign CPU", "throttling", "swap", "memory", "clock source"]
        {
            assert_eq!(grade(&items, what).0, Grade::Unknown, "{what}");
        }
    }
}
