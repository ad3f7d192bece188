//! The scope of a result: the machine, the kernels, and what was not tested.
//!
//! Invariant: nothing here depends on when or where a trial ran, so two runs of one study print the same text.

use bigiron_model::host::HostKind;
use std::collections::BTreeSet;

use serde::Serialize;

use super::quantity::Quantity;
use super::sentence;
use bigiron_judge::standing::{SlotStanding, standings};
use bigiron_model::build::Build;
use bigiron_model::clock::Clock;
use bigiron_model::metric::Unit;
use bigiron_model::plan::Plan;
use bigiron_model::record::{Failure, Outcome, Record};
use bigiron_model::rule::Rule;
use bigiron_model::setting;
use bigiron_model::storage;
use bigiron_model::storage::Medium;
use bigiron_model::version::major_minor;
use bigiron_stats::{Flips, order, power};

/// What an arm booted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Booted {
    pub arm: String,
    pub spec: String,
    pub release: String,
    /// `uname -v`, as the guests reported it; empty if none did.
    pub version: String,
    pub package: Option<String>,
    /// Of a study of rebuilt kernels, the image whose objects were linked again.
    pub image_sha256: String,
    /// The images that booted, if kernels were rebuilt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub builds: Vec<Build>,
    pub config_sha256: Option<String>,
    /// Lever settings of the arm, `lever=value`.
    pub settings: Vec<String>,
    /// The words of the kernel command line that all boots of this arm had but not all arms.
    pub cmdline: Vec<String>,
}

/// One line about the machine that every arm ran on, or about several.
pub fn machine(plan: &Plan, records: &[Record]) -> String {
    let machine = &plan.machine;
    if !machine.members.is_empty() {
        let each = machine.members.iter().map(|member| {
            let memory = Quantity::metric(member.memory_bytes as f64, Unit::Bytes, 0.0);
            format!("`{}` with {} CPUs, {} of memory, {}", member.name, member.cpus, whole(&memory), member.filesystem)
        });
        let each: Vec<String> = each.collect();
        return format!("host `{}`, {} machines: {}", machine.host, each.len(), each.join("; "));
    }
    let memory = Quantity::metric(machine.memory_bytes as f64, Unit::Bytes, 0.0);
    let cpus = if machine.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", machine.cpus) };
    let emulators: BTreeSet<String> = results(plan, records)
        .filter(|r| !r.host.qemu.is_empty())
        .map(|r| format!("QEMU {} with {}", r.host.qemu, r.host.accelerator.to_uppercase()))
        .collect();
    let emulators = emulators.into_iter().collect::<Vec<_>>().join(", ");
    let by = if emulators.is_empty() { String::new() } else { format!(", {emulators}") };
    let storage = match machine.host {
        // The study's folder is here, its trials are there.
        HostKind::Ssh => "bigiron's folder on the measured machine, on its own disk",
        _ => storage::find(&machine.storage).map_or("unknown to this version", |p| p.summary),
    };
    format!(
        "host `{}`{by}: {cpus}, {} of memory, {} on storage `{}` ({storage})",
        machine.host,
        whole(&memory),
        machine.filesystem,
        machine.storage,
    )
}

/// A line on boots whose numbers may not come out the same to the last digit another time, if there are any.
pub(super) fn out_of_step(plan: &Plan, records: &[Record]) -> Option<String> {
    let completed = || results(plan, records).filter(|r| r.outcome == Outcome::Completed);
    let boots = completed().filter(|r| r.host.lockstep.is_some()).count();
    let out = completed().filter(|r| r.host.lockstep == Some(false)).count();
    (out > 0).then(|| {
        format!(
            "In {out} of {boots} boots QEMU's threads did not run in lockstep (`bigiron doctor` says why): repeated, they may differ by \
             a few nanoseconds"
        )
    })
}

/// A caution for kernels that panicked or hung, where the emulator may be partly to blame.
pub(super) fn several_emulated(plan: &Plan, records: &[Record]) -> Option<String> {
    let died = |r: &Record| {
        r.host.accelerator == "tcg"
            && matches!(r.outcome, Outcome::Failed { failure: Failure::Panic | Failure::Hang, .. })
    };
    (plan.machine.cpus > 1 && results(plan, records).any(died)).then(|| {
        "Emulating several CPUs (QEMU with TCG, without KVM) is not free of faults of its own, some of which make a kernel panic or hang \
         while it boots: before a kernel is blamed for what it did in few of many boots, try another QEMU, or `--cpus 1` (`bigiron doc \
         clocks`)"
            .to_owned()
    })
}

/// "1 GiB", not "1.000 GiB".
pub(super) fn whole(memory: &Quantity) -> String {
    let text = memory.to_string();
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// The direction in which the clock `exact/1` biases copies of memory, if the compared kernels lie on both sides of Linux 6.6
/// (docs/concepts/clocks.md).
pub fn copies<'a>(clock: Clock, releases: impl Iterator<Item = &'a str>) -> Option<String> {
    let numbers: Vec<(u32, u32)> = releases.filter_map(major_minor).collect();
    let both = numbers.iter().any(|n| *n < (6, 6)) && numbers.iter().any(|n| *n >= (6, 6));
    (clock == Clock::Exact1 && both).then(|| {
        "Copies to and from user space cost 0.32 instructions per byte in kernels before 6.6 and 0.13 in later ones; processors with fast \
         string instructions show no such difference. It favours the later kernel in buffered files, pipes and sockets (`bigiron doc clocks`)"
            .to_owned()
    })
}

/// What the result does not cover.
pub fn not_tested(plan: &Plan) -> Vec<String> {
    let machine = &plan.machine;
    let mut all = vec![
        "Appropriate for comparing kernels and settings; not for comparing hardware or database products".to_owned(),
    ];
    all.push(match plan.clock {
        Clock::Exact | Clock::ExactParallel => "The exact clock counts the path length of kernel and user code, scheduling, and waiting for modelled \
             devices. Only modelled cycles account for caches, TLBs, branch prediction and NUMA; nothing accounts for memory bandwidth or SMT"
            .to_owned(),
        Clock::Exact1 => {
            "The exact clock counts the path length of kernel and user code, scheduling, and waiting for modelled \
                         devices. It does not see caches, TLBs, branch prediction, memory bandwidth, SMT or NUMA"
                .to_owned()
        }
        Clock::Wall if machine.members.len() > 1 => format!(
            "The wall clock sees {} machines as they were during the study: other processors, firmware settings and neighbours may change the result",
            machine.members.len()
        ),
        Clock::Wall => {
            "The wall clock sees one machine as it was during the study: other processors, firmware settings and \
                        neighbours may change the result"
                .to_owned()
        }
        Clock::None => {
            "No clock: times under plain emulation are meaningless and not shown; only survival and verified data are"
                .to_owned()
        }
    });
    all.extend(copies(plan.clock, plan.arms.iter().map(|arm| arm.kernel.release.as_str())));
    all.push(match machine.cpus {
        1 => "One CPU: no lock contention between CPUs, no scalability, no load balancing".to_owned(),
        n if plan.clock == Clock::ExactParallel => {
            format!(
                "{n} CPUs at the same virtual time: waiting for locks is counted, moving their cache lines between CPUs is not; no result for more, or for fewer"
            )
        }
        n if plan.clock.is_exact() => {
            format!("{n} CPUs take turns on one clock: their instructions are counted, their parallelism is not; no scalability")
        }
        n => format!("{n} CPUs: no result for more, or for fewer"),
    });
    let memory = whole(&Quantity::metric(machine.memory_bytes as f64, Unit::Bytes, 0.0));
    all.push(format!("{memory} of memory: no other size, no memory pressure beyond the workloads' own"));
    all.push(format!(
        "{} on `{}`{}: no other device, file system, RAID or volume manager",
        machine.filesystem,
        machine.storage,
        match storage::find(&machine.storage).map(|p| p.medium) {
            Some(Medium::Modelled { .. }) => ", a model with one completion time and no throughput limit",
            Some(Medium::Rotational(_)) =>
                ", a model of one disk's mechanics whose few blocks are spread over all of its tracks",
            Some(Medium::Ram) => ", which is memory: no device at all",
            Some(Medium::HostFile | Medium::Folder) => ", one disk of one host, shared with everything else there",
            None => "",
        }
    ));
    all.push(
        "Only the workloads named here, with the options in the plan; no network card, no drivers of real hardware"
            .to_owned(),
    );
    if machine.host == HostKind::Sim {
        all.push("Host `sim` boots no kernel: the times are scripted, for tests of bigiron itself".to_owned());
    }
    all
}

/// The same in one line, for a summary.
pub(super) fn not_tested_in_short(plan: &Plan) -> String {
    let machine = &plan.machine;
    let mut all = match plan.clock {
        Clock::Exact | Clock::ExactParallel => {
            vec!["caches and TLBs except in a model".to_owned(), "memory bandwidth".to_owned()]
        }
        Clock::Exact1 => vec!["caches, TLBs and memory bandwidth".to_owned()],
        Clock::Wall => vec!["other processors".to_owned()],
        Clock::None => vec!["speed".to_owned()],
    };
    all.push(match machine.cpus {
        1 => "more than one CPU".to_owned(),
        cpus if plan.clock == Clock::ExactParallel => format!("cache lines shared by {cpus} CPUs"),
        cpus if plan.clock.is_exact() => format!("{cpus} CPUs in parallel"),
        cpus => format!("CPU counts other than {cpus}"),
    });
    all.push("other sizes of memory".to_owned());
    all.push(format!("other disks than `{}`, other file systems than {}", machine.storage, machine.filesystem));
    all.push("other workloads".to_owned());
    if !machine.host.is_machine() {
        all.push("real devices and their drivers".to_owned());
    }
    all.join("; ")
}

/// What each arm booted.
pub fn booted(plan: &Plan, records: &[Record]) -> Vec<Booted> {
    let words: Vec<Option<BTreeSet<&str>>> =
        plan.arms.iter().map(|arm| common_words(plan, &arm.name, records)).collect();
    let everywhere: BTreeSet<&str> =
        words.iter().flatten().cloned().reduce(|x, y| x.intersection(&y).copied().collect()).unwrap_or_default();
    plan.arms
        .iter()
        .zip(&words)
        .map(|(arm, words)| {
            let guest = results(plan, records).filter(|r| r.arm == arm.name).find_map(|r| r.guest.as_ref());
            Booted {
                arm: arm.name.clone(),
                spec: arm.kernel.spec.clone(),
                release: arm.kernel.release.clone(),
                version: guest.map(|g| g.version.clone()).unwrap_or_default(),
                package: arm.kernel.package.clone(),
                image_sha256: arm.kernel.image_sha256.clone(),
                builds: arm.builds.clone(),
                config_sha256: arm.kernel.config_sha256.clone(),
                settings: arm
                    .settings
                    .iter()
                    .map(|(lever, value)| format!("{lever}={}", setting::brief(value)))
                    .collect(),
                cmdline: words.iter().flatten().filter(|w| !everywhere.contains(*w)).map(|w| (*w).to_owned()).collect(),
            }
        })
        .collect()
}

/// The records that the verdict rests on, in slot order: none that is void, was superseded, or was set aside.
pub(super) fn results<'a>(plan: &Plan, records: &'a [Record]) -> impl Iterator<Item = &'a Record> {
    standings(plan, records).slots.into_iter().filter_map(|standing| match standing {
        SlotStanding::Completed(record) | SlotStanding::Failed(record) => Some(record),
        SlotStanding::Missing => None,
    })
}

/// The words of the command line that all boots of an arm share (others, such as a boot's own seed, say nothing of the arm).
pub(super) fn common_words<'a>(plan: &Plan, arm: &str, records: &'a [Record]) -> Option<BTreeSet<&'a str>> {
    results(plan, records)
        .filter(|r| r.arm == arm)
        .filter_map(|r| r.guest.as_ref())
        .map(|g| g.cmdline.split_whitespace().collect::<BTreeSet<_>>())
        .reduce(|x, y| x.intersection(&y).copied().collect())
}

/// How the numbers were obtained, in a few sentences.
pub fn method(plan: &Plan) -> Vec<String> {
    let (pairs, trial) = (plan.design.pairs, plan.trial());
    let mut all = vec![format!(
        "{pairs} pairs of {}, each arm once per pair, in random balanced order drawn from seed {} before the first {trial}; the number \
         of pairs was fixed in advance. The unit of replication is one {}",
        plan.trials(),
        plan.design.seed,
        if plan.design.rebuilds.is_some() { "build of each source" } else { trial }
    )];
    let machines = plan.machine.members.len() as u32;
    if machines > 1 {
        all.push(format!(
            "A pair stays on one machine: {} pairs on each of {machines}, in an order drawn balanced on each, and all machines at once",
            pairs / machines
        ));
    }
    if let Some(builds) = plan.design.rebuilds {
        let each = match plan.design.pairs_per_build() {
            1 => "each boots in one pair".to_owned(),
            each => format!("each boots in {each} pairs, whose differences are averaged"),
        };
        all.push(format!(
            "{builds} builds of each source: images linked again from the same objects, with gaps and an order of code and data drawn from the seed; \
             {each}"
        ));
    }
    if plan.clock == Clock::None {
        return all;
    }
    let gap = plan.design.idle_gap_seconds;
    if gap > 0 {
        all.push(format!("Before each {trial} the machine idled for {gap} s"));
    }
    if let Some(floor) = &plan.noise_floor {
        let effect = |(metric, effect): (&String, &f64)| format!("less than {:.1} % in {metric}", effect * 100.0);
        let effects: Vec<String> = floor.effects.iter().map(effect).collect();
        all.push(format!(
            "By its noise card (Linux {} against itself, {} pairs), this machine cannot show {} in {pairs} pairs",
            floor.kernel,
            floor.pairs,
            sentence::join(&effects.iter().map(String::as_str).collect::<Vec<_>>())
        ));
    }
    let interval = match (plan.is_screening(), plan.flips()) {
        (true, _) => {
            "Student's t interval, because this is a screening: this few pairs have no exact interval. It assumes that boots vary normally, and \
             the arms' spreads are not compared"
        }
        (false, Flips::Balanced) => "the exact balanced-flip interval",
        (false, Flips::Blocks(_)) => {
            "the exact balanced-flip interval, with the arms exchanged within each machine only. It is about the mean of these machines, not about others"
        }
        (false, Flips::Full) if plan.design.rebuilds.is_some() => {
            "the exact full-flip interval over builds: two builds, whose layouts were drawn alike, may as well belong to either arm"
        }
        (false, Flips::Full) => {
            "the exact full-flip interval: the boots of a pair, whose seeds were drawn at random, may as well belong to either arm"
        }
    };
    all.push(format!(
        "Change is the ratio of geometric means, B to A, with {interval}. Better and worse are judged by the 95 % \
         interval against the margin, same by the 90 % interval inside it"
    ));
    if plan.clock == Clock::Wall && !order::has_balanced_places(pairs / machines.max(1), plan.arms.len()) {
        all.push(format!(
            "In {pairs} pairs not each of the {} arms has every place equally often; a multiple of {} pairs would give it. A place with an effect of \
             its own makes the intervals inexact",
            plan.arms.len(),
            2 * plan.arms.len()
        ));
    }
    if plan.design.rebuilds.is_some() {
        all.push("The interval is about the sources as this compiler compiled them: it includes how much their builds differ".to_owned());
    } else if plan.clock.charges_moves() {
        all.push(
            "The interval is about other seeds and memory layouts of these kernel images. Another build of the same source may differ by more".to_owned(),
        );
    }
    if plan.trials() == "boots" {
        all.push(format!(
            "Modes rarer than {:.0} % of boots may be unmet in {pairs} pairs (5 % probability), and no interval includes what it has not met",
            100.0 * power::rarest_met_mode(pairs)
        ));
    }
    all.push(match plan.rule {
        Rule::First => "Primaries are corrected for their number (Holm, 5 %; the first rule, with which this study was planned); all other \
                        metrics are exploratory (Benjamini-Hochberg, 5 %)"
            .to_owned(),
        Rule::Second => "Primaries are corrected for their number (Holm, 5 %, first for a change, then for one beyond the margin); all other \
                         metrics are exploratory (Benjamini-Hochberg, 5 %)"
            .to_owned(),
    });
    let outside = if plan.machine.host.is_machine() { "the trial" } else { "the guest" };
    all.push(format!(
        "A {trial} that fails is evidence and is never dropped; only a cause outside {outside} voids a pair, which is then run again"
    ));
    all
}
