//! Plans and records made up for tests of the judge and the report.
//!
//! Invariant: everything is a function of the arguments; the noise is a hash, not a generator.

use std::collections::BTreeMap;

use crate::clock::Clock;
use crate::kernel::Identity;
use crate::metric::{Better, Kind, MetricDef, Unit};
use crate::store::record::{Complaint, Failure, GuestIdentity, HostCost, Outcome, Record};
use crate::study::plan::{Arm, Design, Machine, Plan, PlannedWorkload, Slot};

fn metric(name: &str, unit: Unit, better: Better, kind: Kind, primary: bool, summary: &str) -> MetricDef {
    MetricDef { name: name.into(), unit, better, kind, primary, summary: summary.into() }
}

/// A latency workload with one primary and three exploratory metrics.
pub(crate) fn micro() -> PlannedWorkload {
    let ns = |name, primary, summary| metric(name, Unit::Ns, Better::Lower, Kind::Cost, primary, summary);
    PlannedWorkload {
        name: "micro".into(),
        options: BTreeMap::new(),
        metrics: vec![
            ns("geometric-mean", true, "Geometric mean of all latencies"),
            ns("null-call", false, "getppid, the cheapest system call"),
            ns("fork-exit", false, "fork a child that exits, and wait for it"),
            ns("page-fault-private", false, "First write to a page of anonymous memory"),
        ],
    }
}

/// A transaction workload with metrics of every direction.
pub(crate) fn dbsim() -> PlannedWorkload {
    PlannedWorkload {
        name: "dbsim".into(),
        options: BTreeMap::from([("io".to_owned(), "libaio".to_owned())]),
        metrics: vec![
            metric(
                "throughput",
                Unit::TransactionsPerSecond,
                Better::Higher,
                Kind::Throughput,
                true,
                "Transactions committed per second",
            ),
            metric("commit-p50", Unit::Ns, Better::Lower, Kind::P50, false, "Median commit latency"),
            metric("commit-p99", Unit::Ns, Better::Lower, Kind::P99, false, "99th percentile commit latency"),
            metric("page-tables", Unit::Bytes, Better::Lower, Kind::Amount, false, "Memory held by page tables"),
        ],
    }
}

fn identity(name: &str) -> Identity {
    let version = name.rsplit(':').next().unwrap_or(name).split(',').next().unwrap_or(name);
    Identity {
        spec: name.to_owned(),
        release: format!("{version}.99-cloud-amd64"),
        package: Some(format!("linux-image-{version}.99-cloud-amd64 {version}.99-1")),
        image_sha256: format!("{:064x}", hash(&[name])),
        config_sha256: Some(format!("{:064x}", hash(&[name, "config"]))),
    }
}

/// A plan in which even pairs run the arms in order and odd ones in reverse.
pub(crate) fn plan(arms: &[&str], pairs: u32, workloads: Vec<PlannedWorkload>) -> Plan {
    let mut slots = Vec::new();
    for pair in 0..pairs {
        for position in 0..arms.len() as u32 {
            let arm = if pair % 2 == 0 { position as usize } else { arms.len() - 1 - position as usize };
            slots.push(Slot {
                slot: slots.len() as u32,
                pair,
                position,
                arm,
                workload_seed: u64::from(pair),
                boot_seed: slots.len() as u64,
                jitter: 0,
                order: (0..workloads.len()).collect(),
            });
        }
    }
    Plan {
        schema: crate::study::plan::SCHEMA,
        bigiron: "0.1.0".into(),
        question: None,
        question_sha256: format!("{:064x}", 1),
        repeat: format!("bigiron compare {} --clock exact --pairs {pairs} --seed 7", arms.join(" ")),
        clock: Clock::Exact,
        design: Design { pairs, seed: 7, hang_cpu_seconds: 60, idle_gap_seconds: 0 },
        machine: Machine {
            host: "vm".into(),
            cpus: 1,
            memory_bytes: 1 << 30,
            storage: "nvme".into(),
            filesystem: "ext4".into(),
        },
        arms: arms
            .iter()
            .map(|name| Arm {
                name: (*name).to_owned(),
                kernel: identity(name),
                settings: Vec::new(),
                foundation: BTreeMap::new(),
            })
            .collect(),
        workloads,
        margins: BTreeMap::from([
            (Kind::Throughput, 0.02),
            (Kind::Cost, 0.02),
            (Kind::P50, 0.03),
            (Kind::P99, 0.05),
            (Kind::P999, 0.10),
            (Kind::Amount, 0.02),
        ]),
        slots,
    }
}

/// FNV-1a.
pub(crate) fn hash(parts: &[&str]) -> u64 {
    parts
        .iter()
        .flat_map(|p| p.bytes().chain([0]))
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Noise of a boot in −1..1.
pub(crate) fn noise(slot: &Slot, metric: &str) -> f64 {
    let h = hash(&[&slot.slot.to_string(), metric]);
    ((h >> 11) as f64 / (1u64 << 53) as f64) * 2.0 - 1.0
}

/// A typical value of a metric.
pub(crate) fn base(metric: &MetricDef) -> f64 {
    match (metric.unit, metric.kind) {
        (Unit::Ns, Kind::Cost) => 314.0 * (1.0 + (hash(&[&metric.name]) % 1000) as f64),
        (Unit::Ns, _) => 1.2e6,
        (Unit::TransactionsPerSecond, _) => 1163.78,
        _ => 4_300_000.0,
    }
}

/// A completed record of `slot`; `effect` is the factor on the typical value, by (workload, metric).
pub(crate) fn completed(plan: &Plan, slot: &Slot, effect: &dyn Fn(&str, &MetricDef) -> f64) -> Record {
    let arm = &plan.arms[slot.arm];
    Record {
        schema: crate::store::record::SCHEMA,
        slot: slot.slot,
        pair: slot.pair,
        position: slot.position,
        arm: arm.name.clone(),
        attempt: 0,
        outcome: Outcome::Completed,
        guest: Some(GuestIdentity {
            release: arm.kernel.release.clone(),
            version: "#1 SMP PREEMPT_DYNAMIC".into(),
            cmdline: format!("console=ttyS0 panic=-1 bigiron.slot={}", slot.slot),
            cpus: plan.machine.cpus,
            memory_bytes: plan.machine.memory_bytes,
            clocksource: "tsc".into(),
        }),
        image_sha256: arm.kernel.image_sha256.clone(),
        config_sha256: arm.kernel.config_sha256.clone(),
        metrics: plan
            .workloads
            .iter()
            .flat_map(|w| w.metrics.iter().map(|m| m.measured(&w.name, base(m) * effect(&w.name, m))))
            .collect(),
        facts: BTreeMap::from([
            ("dbsim.durability".to_owned(), "data files and journals opened O_DSYNC".to_owned()),
            ("dbsim.page-cache".to_owned(), "bypassed (O_DIRECT)".to_owned()),
            ("dbsim.data-bytes".to_owned(), "268435456".to_owned()),
            ("micro.operations".to_owned(), "null-call=70000 ".repeat(20)),
        ]),
        changes: Vec::new(),
        complaints: Vec::new(),
        host: HostCost {
            accelerator: "tcg".into(),
            qemu: "7.2.22".into(),
            lockstep: (plan.clock == Clock::Exact).then_some(true),
            wall_s: 12.0 + f64::from(slot.slot) / 10.0,
            cpu_s: 11.0,
            overhead_s: 0.2,
        },
        counters: None,
        artifacts: vec![format!("artifacts/{:04}/console.log", slot.slot)],
    }
}

/// A record for every slot: B's metrics are `effect` times A's, with `spread` of noise from boot to boot.
pub(crate) fn records(plan: &Plan, spread: f64, effect: impl Fn(usize, &str, &str) -> f64) -> Vec<Record> {
    plan.slots
        .iter()
        .map(|slot| {
            completed(plan, slot, &|workload, m| {
                (1.0 + spread * noise(slot, &m.name))
                    * if slot.arm == 0 { 1.0 } else { effect(slot.arm, workload, &m.name) }
            })
        })
        .collect()
}

/// Makes a record a failure of the guest.
pub(crate) fn fail(record: &mut Record, failure: Failure, message: &str) {
    record.outcome = Outcome::Failed { failure, message: message.to_owned() };
    record.metrics.clear();
}

/// Makes a record void.
pub(crate) fn void(record: &mut Record) {
    record.outcome = Outcome::Void { cause: "QEMU would not start: out of memory".into() };
    record.metrics.clear();
    record.guest = None;
}

/// Adds a line to what the guest's kernel logged.
pub(crate) fn complain(record: &mut Record, class: &str, line: &str) {
    record.complaints.push(Complaint { class: class.into(), line: line.into() });
}
