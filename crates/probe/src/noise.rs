//! Disturbances of a measurement on this machine: time stolen by the hypervisor, other processes, throttling, swapping.
//!
//! Invariant: measured facts only. Nothing here decides the fate of a trial.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::machine;
use bigiron_model::record::DISTURBED_FACT;
use bigiron_sys::launch::children_cpu_ns;

/// Shares of the machine's CPU time from which a trial counts as disturbed: more than a margin of 2 % would hide.
pub const STEAL: f64 = 0.01;
pub const FOREIGN: f64 = 0.05;
/// The kernel counts CPU time in ticks of 10 ms at the finest: in a shorter time than this a share is meaningless.
const SHORTEST: Duration = Duration::from_millis(200);

/// Counters of the machine at one moment.
#[derive(Clone, Debug)]
pub struct MachineSample {
    at: Instant,
    cpu: Cpu,
    /// CPU time of this process and of all its children that have ended.
    own_ns: u64,
    throttles: u64,
    swapped_in: u64,
    swapped_out: u64,
    /// Facts that must not change while a study runs, by name.
    steady: BTreeMap<&'static str, String>,
}

/// Files of facts whose change makes times incomparable, and the facts in words: the kernel leaves a clock source that it finds unstable, and an
/// administrator may load microcode at any time.
const STEADY: [(&str, &str); 2] = [
    ("the clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("the microcode", "/sys/devices/system/cpu/cpu0/microcode/version"),
];

/// Watches the machine during a session's trials.
#[derive(Debug)]
pub struct Watch {
    /// The end of the last trial, or the beginning of the session.
    last: Mutex<MachineSample>,
}

impl Default for Watch {
    fn default() -> Self {
        Self { last: Mutex::new(MachineSample::now()) }
    }
}

impl Watch {
    /// The noise of a finished trial, as facts: the machine's settings, and what happened before the trial and since `begun`.
    pub fn card(&self, begun: &MachineSample) -> BTreeMap<String, String> {
        let after = MachineSample::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut facts = begun.since(&last).facts("-before");
        let during = after.since(begun);
        facts.extend(during.facts(""));
        facts.insert("host.settings".to_owned(), machine::settings(Path::new("/sys"), Path::new("/proc")));
        let by: Vec<String> = during.disturbance().into_iter().chain(after.changes_since(&last)).collect();
        if !by.is_empty() {
            facts.insert(DISTURBED_FACT.to_owned(), by.join("; "));
        }
        *last = after;
        facts
    }
}

/// The first line of `/proc/stat`, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cpu {
    busy: u64,
    steal: u64,
    all: u64,
}

/// The disturbances between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    pub time: Duration,
    /// Shares of all CPU time; `None` if the time was too short.
    pub steal: Option<f64>,
    pub foreign: Option<f64>,
    /// Number of times that a CPU was throttled because of heat or power.
    pub throttles: u64,
    /// Pages.
    pub swapped_in: u64,
    pub swapped_out: u64,
}

impl MachineSample {
    pub fn now() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let vmstat = read("/proc/vmstat");
        let own = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            cpu: cpu(&read("/proc/stat")),
            own_ns: own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64 + children_cpu_ns(),
            throttles: throttles(Path::new("/sys")),
            swapped_in: counter(&vmstat, "pswpin "),
            swapped_out: counter(&vmstat, "pswpout "),
            steady: STEADY
                .into_iter()
                .filter_map(|(what, path)| Some((what, std::fs::read_to_string(path).ok()?.trim().to_owned())))
                .collect(),
            at: Instant::now(),
        }
    }

    /// What has changed since `earlier` that must not, in words.
    fn changes_since(&self, earlier: &MachineSample) -> Vec<String> {
        let changed = |(what, now): (&&'static str, &String)| {
            let then = earlier.steady.get(*what).filter(|then| *then != now)?;
            Some(format!("{what} changed from {then} to {now}"))
        };
        self.steady.iter().filter_map(changed).collect()
    }

    /// The disturbances since `earlier`.
    pub fn since(&self, earlier: &MachineSample) -> Disturbance {
        let time = self.at - earlier.at;
        let ticks = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let all = ticks(self.cpu.all, earlier.cpu.all);
        let tick_ns = 1e9 / rustix::param::clock_ticks_per_second() as f64;
        let own = self.own_ns.saturating_sub(earlier.own_ns) as f64 / tick_ns;
        let share = |part: f64| (time >= SHORTEST && all > 0.0).then(|| (part / all).clamp(0.0, 1.0));
        Disturbance {
            time,
            steal: share(ticks(self.cpu.steal, earlier.cpu.steal)),
            foreign: share(ticks(self.cpu.busy, earlier.cpu.busy) - own),
            throttles: self.throttles.saturating_sub(earlier.throttles),
            swapped_in: self.swapped_in.saturating_sub(earlier.swapped_in),
            swapped_out: self.swapped_out.saturating_sub(earlier.swapped_out),
        }
    }
}

impl Disturbance {
    /// The disturbances large enough to affect a measurement, in words; `None` if there are none.
    pub fn disturbance(&self) -> Option<String> {
        let mut parts = Vec::new();
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        if let Some(steal) = self.steal.filter(|s| *s >= STEAL) {
            parts.push(format!("the hypervisor gave {} of the CPU time to others", percent(steal)));
        }
        if let Some(foreign) = self.foreign.filter(|s| *s >= FOREIGN) {
            parts.push(format!("other processes took {} of the CPU time", percent(foreign)));
        }
        if self.throttles > 0 {
            parts.push(format!("CPUs were throttled {} times", self.throttles));
        }
        if self.swapped_in + self.swapped_out > 0 {
            parts.push(format!("{} pages were swapped in, {} out", self.swapped_in, self.swapped_out));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The disturbances as facts for a record, `host.NAMEwhen`.
    pub fn facts(&self, when: &str) -> BTreeMap<String, String> {
        let share = |share: Option<f64>| share.map(|s| format!("{:.2}", s * 100.0));
        let always = [
            ("throttles", Some(self.throttles.to_string())),
            ("swapped-in-pages", Some(self.swapped_in.to_string())),
            ("swapped-out-pages", Some(self.swapped_out.to_string())),
        ];
        let shares = [("steal-percent", share(self.steal)), ("foreign-cpu-percent", share(self.foreign))];
        let all = always.into_iter().chain(shares);
        all.filter_map(|(name, value)| Some((format!("host.{name}{when}"), value?))).collect()
    }
}

fn cpu(stat: &str) -> Cpu {
    let line = stat.lines().next().unwrap_or_default();
    // proc(5): user nice system idle iowait irq softirq steal; guest time is already included in user.
    let fields: Vec<u64> = line.split_whitespace().skip(1).take(8).map_while(|f| f.parse().ok()).collect();
    let get = |i: usize| fields.get(i).copied().unwrap_or(0);
    Cpu { busy: get(0) + get(1) + get(2) + get(5) + get(6), steal: get(7), all: fields.iter().sum() }
}

fn counter(text: &str, name: &str) -> u64 {
    text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

/// Number of times that any CPU was throttled since boot, from the folders in `sys` that count it.
pub fn throttles(sys: &Path) -> u64 {
    let counts = |cpu: PathBuf| {
        let read = |name: &str| std::fs::read_to_string(cpu.join("thermal_throttle").join(name)).ok();
        let of = |name| read(name).and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
        of("core_throttle_count") + of("package_throttle_count")
    };
    machine::cpus(sys).map(counts).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read() {
        let stat = "cpu  100 20 30 1000 50 1 2 7 5 0\ncpu0 1 1 1\n";
        assert_eq!(cpu(stat), Cpu { busy: 153, steal: 7, all: 1210 });
        assert_eq!(counter("pgpgin 5\npswpin 12\n", "pswpin "), 12);
    }

    fn sample(at: Instant, busy: u64, steal: u64, all: u64, own_ticks: u64) -> MachineSample {
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        MachineSample {
            at,
            cpu: Cpu { busy, steal, all },
            own_ns: own_ticks * tick_ns,
            throttles: 0,
            swapped_in: 0,
            swapped_out: 0,
            steady: BTreeMap::from([("the clock source", "tsc".to_owned())]),
        }
    }

    #[test]
    fn what_others_take_is_told_from_our_own() {
        let start = Instant::now();
        let before = sample(start, 1000, 10, 5000, 0);
        let after = |busy, steal, own| sample(start + Duration::from_secs(1), busy, steal, 5200, own);
        let quiet = after(1100, 10, 100).since(&before);
        assert_eq!((quiet.foreign, quiet.steal, quiet.disturbance()), (Some(0.0), Some(0.0), None));
        let loud = after(1150, 14, 50).since(&before);
        assert_eq!((loud.foreign, loud.steal), (Some(0.5), Some(0.02)));
        let says = loud.disturbance().unwrap();
        assert!(says.contains("2.0 % of the CPU time to others") && says.contains("took 50.0 %"), "{says}");
        let short = sample(start + Duration::from_millis(20), 1004, 10, 5004, 0).since(&before);
        assert_eq!((short.foreign, short.disturbance()), (None, None));
        assert!(!short.facts("").contains_key("host.steal-percent"));
    }

    #[test]
    fn a_clock_that_changes_disturbs() {
        let before = sample(Instant::now(), 0, 0, 0, 0);
        assert!(before.changes_since(&before).is_empty());
        let after = MachineSample { steady: BTreeMap::from([("the clock source", "hpet".to_owned())]), ..before };
        assert_eq!(after.changes_since(&before), ["the clock source changed from tsc to hpet"]);
        let watch = Watch { last: Mutex::new(before) };
        let card = watch.card(&after);
        // This machine's own clock source is another one than the made-up one, or has that name.
        let is_told = card.get(DISTURBED_FACT).is_some_and(|by| by.contains("the clock source changed from tsc to"));
        let here = MachineSample::now().steady.get("the clock source").cloned();
        assert_eq!(is_told, here.is_some_and(|name| name != "tsc"), "{card:?}");
    }

    #[test]
    fn swapping_and_throttling_disturb_however_short() {
        let start = Instant::now();
        let before = sample(start, 0, 0, 0, 0);
        let after = MachineSample { throttles: 2, swapped_out: 5, ..before.clone() };
        let says = after.since(&before).disturbance().unwrap();
        assert_eq!(says, "CPUs were throttled 2 times; 0 pages were swapped in, 5 out");
    }
}
