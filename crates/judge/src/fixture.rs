//! Made-up plans and records for tests of the judge and the report.
//!
//! Invariant: everything is a function of the arguments; the noise is a hash, not a generator.

use bigiron_model::host::HostKind;
use std::collections::BTreeMap;

use bigiron_model::build::Build;
use bigiron_model::clock::Clock;
use bigiron_model::evidence::{Evidence, Executed};
use bigiron_model::identity::Identity;
use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_model::plan::{Arm, Design, Machine, Member, Plan, PlannedWorkload, Slot};
use bigiron_model::record::{Complaint, Failure, GuestIdentity, HostCost, Outcome, Record};
use bigiron_model::rule::Rule;
use bigiron_model::values::Values;
use bigiron_model::waits::{FutexWait, LockWait, SCHEMA, Traced, TrialWaits, WaitTally, WindowWaits};

fn metric(name: &str, unit: Unit, better: Better, kind: Kind, primary: bool, summary: &str) -> MetricDef {
    MetricDef { name: name.into(), unit, better, kind, primary, summary: summary.into() }
}

/// A latency workload with one primary and three exploratory metrics.
pub fn micro() -> PlannedWorkload {
    let ns = |name, primary, summary| metric(name, Unit::Ns, Better::Lower, Kind::Cost, primary, summary);
    PlannedWorkload {
        name: "micro".into(),
        options: BTreeMap::new(),
        metrics: vec![
            ns("geomean", true, "Geometric mean of all latencies"),
            ns("null-call", false, "getppid, the cheapest system call"),
            ns("fork-exit", false, "fork a child that exits, and wait for it"),
            ns("page-fault-private", false, "First write to a page of anonymous memory"),
        ],
    }
}

/// A transaction workload with metrics of every direction.
pub fn dbsim() -> PlannedWorkload {
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
pub fn plan(arms: &[&str], pairs: u32, workloads: Vec<PlannedWorkload>) -> Plan {
    let mut slots = Vec::new();
    for pair in 0..pairs {
        for position in 0..arms.len() as u32 {
            let arm = if pair % 2 == 0 { position as usize } else { arms.len() - 1 - position as usize };
            slots.push(Slot {
                slot: slots.len() as u32,
                pair,
                position,
                arm,
                machine: 0,
                workload_seed: u64::from(pair),
                boot_seed: slots.len() as u64,
                jitter: 0,
                order: (0..workloads.len()).collect(),
            });
        }
    }
    Plan {
        schema: bigiron_model::plan::SCHEMA,
        bigiron: "0.1.0".into(),
        question: None,
        question_sha256: format!("{:064x}", 1),
        repeat: format!("bigiron compare {} --clock exact --pairs {pairs} --seed 7", arms.join(" ")),
        clock: Clock::Exact,
        rule: Rule::LATEST,
        provenance: None,
        begun: Some("2026-11-22T13:05:09Z".into()),
        design: Design { pairs, seed: 7, hang_cpu_seconds: 60, idle_gap_seconds: 0, rebuilds: None },
        machine: Machine {
            host: HostKind::Vm,
            target: None,
            cpus: 1,
            memory_bytes: 1 << 30,
            storage: "nvme".into(),
            filesystem: "ext4".into(),
            members: Vec::new(),
        },
        arms: arms
            .iter()
            .map(|name| Arm {
                name: (*name).to_owned(),
                kernel: identity(name),
                settings: Vec::new(),
                foundation: BTreeMap::new(),
                builds: Vec::new(),
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
        wider_margins: BTreeMap::new(),
        failed_check: None,
        noise_floor: None,
        slots,
    }
}

/// The plan with `builds` images of each arm.
pub fn rebuilt(mut plan: Plan, builds: u32) -> Plan {
    plan.design.rebuilds = Some(builds);
    for arm in &mut plan.arms {
        let image = |layout: u32| format!("{:064x}", hash(&[&arm.name, &layout.to_string()]));
        arm.builds = (0..builds).map(|n| Build { layout: n.into(), image_sha256: image(n) }).collect();
    }
    plan
}

/// FNV-1a.
pub fn hash(parts: &[&str]) -> u64 {
    parts
        .iter()
        .flat_map(|p| p.bytes().chain([0]))
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Noise of a boot in −1..1.
pub fn noise(slot: &Slot, metric: &str) -> f64 {
    let h = hash(&[&slot.slot.to_string(), metric]);
    ((h >> 11) as f64 / (1u64 << 53) as f64) * 2.0 - 1.0
}

/// A typical value of a metric.
pub fn base(metric: &MetricDef) -> f64 {
    match (metric.unit, metric.kind) {
        (Unit::Ns, Kind::Cost) => 314.0 * (1.0 + (hash(&[&metric.name]) % 1000) as f64),
        (Unit::Ns, _) => 1.2e6,
        (Unit::TransactionsPerSecond, _) => 1163.78,
        _ => 4_300_000.0,
    }
}

/// A completed record of `slot`; `effect` is the factor on the typical value, by (workload, metric).
pub fn completed(plan: &Plan, slot: &Slot, effect: &dyn Fn(&str, &MetricDef) -> f64) -> Record {
    let arm = &plan.arms[slot.arm];
    Record {
        schema: bigiron_model::record::SCHEMA,
        slot: slot.slot,
        pair: slot.pair,
        position: slot.position,
        arm: arm.name.clone(),
        machine: plan.machine_of(slot).map(|member| member.name.clone()),
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
        image_sha256: plan.image_of(slot).to_owned(),
        config_sha256: arm.kernel.config_sha256.clone(),
        metrics: values(plan, effect),
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
            lockstep: plan.clock.is_exact().then_some(true),
            wall_s: 12.0 + f64::from(slot.slot) / 10.0,
            cpu_s: 11.0,
            boot_cpu_s: None,
            overhead_s: 0.2,
        },
        environment: BTreeMap::new(),
        counters: None,
        artifacts: vec![format!("artifacts/{:04}/console.log", slot.slot)],
    }
}

fn values(plan: &Plan, effect: &dyn Fn(&str, &MetricDef) -> f64) -> Values {
    let mut values = Values::default();
    for workload in &plan.workloads {
        for metric in &workload.metrics {
            values.insert(&workload.name, &metric.name, base(metric) * effect(&workload.name, metric));
        }
    }
    values
}

/// The plan on the wall clock with pairs that go round the machines a, b and c: each has both orders as often, if the plan has a multiple of six pairs.
pub fn on_three_machines(plan: Plan) -> Plan {
    let member = |name: &str| Member { name: name.into(), cpus: 1, memory_bytes: 1 << 30, filesystem: "ext4".into() };
    let mut plan = Plan { clock: Clock::Wall, ..plan };
    plan.machine.members = ["a", "b", "c"].map(member).into();
    plan.slots.iter_mut().for_each(|slot| slot.machine = slot.pair % 3);
    plan
}

/// A record for every slot: B's metrics are `effect` times A's, with `spread` of noise from boot to boot.
pub fn records(plan: &Plan, spread: f64, effect: impl Fn(usize, &str, &str) -> f64) -> Vec<Record> {
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
pub fn fail(record: &mut Record, failure: Failure, message: &str) {
    record.outcome = Outcome::Failed { failure, message: message.to_owned() };
    record.metrics.clear();
}

/// Makes a record void.
pub fn void(record: &mut Record) {
    record.outcome = Outcome::Void { cause: "QEMU would not start: out of memory".into() };
    record.metrics.clear();
    record.guest = None;
}

/// Adds a complaint to the guest's kernel log.
pub fn complain(record: &mut Record, class: &str, line: &str) {
    record.complaints.push(Complaint { class: class.into(), line: line.into() });
}

pub fn tally(waits: u64, spun: u64, total_ns: u64, max_ns: u64) -> WaitTally {
    WaitTally { waits, spun, total_ns, spun_ns: spun * 10, max_ns }
}

fn lock(class: &str, name: Option<&str>, caller: &str, tally: WaitTally) -> LockWait {
    LockWait { class: class.to_owned(), lock: name.map(str::to_owned), caller: caller.to_owned(), tally }
}

/// A study in which B's fork costs 10 % more, and its first pair's waits.
pub fn contended() -> (Plan, Vec<Record>, Vec<TrialWaits>) {
    let plan = plan(&["debian:6.1", "debian:6.12"], 10, vec![micro()]);
    let records = records(&plan, 1e-4, |_, _, metric| if metric == "fork-exit" { 1.1 } else { 1.0 });
    let of = |slot: u32, ns, locks, program: WaitTally| TrialWaits {
        schema: SCHEMA,
        slot,
        image_sha256: String::new(),
        metrics: records[slot as usize].metrics.clone(),
        cpus: 2,
        traced: Traced { events: 100, lost: u64::from(slot), ..Traced::default() },
        windows: vec![WindowWaits {
            workload: "micro".to_owned(),
            metric: "fork-exit".to_owned(),
            operations: 10,
            ns,
            locks,
            futexes: vec![FutexWait { program: "init".to_owned(), tally: program }],
        }],
        stat: Vec::new(),
    };
    let a = vec![
        lock("rwsem:W", Some("mmap_lock"), "vm_mmap_pgoff", tally(5, 0, 500, 200)),
        lock("spinlock", None, "do_<&>", tally(10, 10, 100, 20)),
    ];
    let b = vec![
        lock("rwsem:W", Some("mmap_lock"), "vm_mmap_pgoff", tally(8, 0, 900, 300)),
        lock("rwsem:W", Some("mmap_lock"), "do_madvise", tally(2, 0, 300, 200)),
        lock("mutex", Some("pipe mutex"), "pipe_write", tally(1, 1, 50, 50)),
    ];
    let waiting = vec![of(0, 10_000, a, tally(3, 0, 3000, 2000)), of(1, 11_000, b, tally(4, 0, 3500, 2000))];
    (plan, records, waiting)
}

/// What a trial of `windows` was found to execute.
pub fn evidence(slot: u32, windows: Vec<Executed>) -> Evidence {
    Evidence {
        schema: bigiron_model::evidence::SCHEMA,
        slot,
        image_sha256: String::new(),
        metrics: Values::default(),
        cpu_s: 0.0,
        windows,
        sampled: None,
        stacks: String::new(),
        places: Vec::new(),
    }
}
