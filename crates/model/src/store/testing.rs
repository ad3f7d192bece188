//! A plan for tests: two or more arms, one workload with two metrics, slots in a seeded order.

use crate::host::HostKind;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::clock::Clock;
use crate::identity::Identity;
use crate::metric::{Better, Kind, MetricDef, Unit};
use crate::plan::{Arm, Design, Machine, Plan, PlannedWorkload, Slot};
use crate::record::{HostCost, Outcome, Record};
use crate::rule::Rule;
use crate::storage;
use crate::store::folder::{PLAN, PREAMBLE, RECORDS, plan_bytes};
use crate::store::line::sha256_hex;
use crate::values::Values;

/// A plan of `pairs` pairs of `arms` arms; `seed` decides the order inside the pairs.
pub fn plan(pairs: u32, arms: usize, clock: Clock, seed: u64) -> Plan {
    let word = |n: u64| {
        let bytes = super::line::sha256_hex(&[seed.to_le_bytes(), n.to_le_bytes()].concat());
        u64::from_str_radix(&bytes[..15], 16).unwrap()
    };
    let mut slots = Vec::new();
    for pair in 0..pairs {
        let first = word(u64::from(pair)) as usize % arms;
        for position in 0..arms {
            let slot = slots.len() as u32;
            slots.push(Slot {
                slot,
                pair,
                position: position as u32,
                arm: (first + position) % arms,
                machine: 0,
                workload_seed: word(1000 + u64::from(pair)),
                boot_seed: word(2000 + u64::from(slot)),
                jitter: slot,
                order: vec![0],
            });
        }
    }
    let metric = |name: &str, primary| MetricDef {
        name: name.to_owned(),
        unit: Unit::Ns,
        better: Better::Lower,
        kind: Kind::Cost,
        primary,
        summary: format!("Time of {name}"),
    };
    let arm = |index: usize| Arm {
        name: format!("debian:6.{index}"),
        kernel: Identity {
            spec: format!("debian:6.{index}"),
            release: format!("6.{index}.0-cloud"),
            package: None,
            image_sha256: super::line::sha256_hex(&[index as u8]),
            config_sha256: None,
        },
        settings: vec![("boot.quiet".to_owned(), "on".to_owned())],
        foundation: Default::default(),
        builds: Vec::new(),
    };
    Plan {
        schema: crate::plan::SCHEMA,
        bigiron: "0.1.0".to_owned(),
        question: None,
        question_sha256: "00".repeat(32),
        repeat: "bigiron compare debian:6.0 debian:6.1".to_owned(),
        clock,
        rule: Rule::LATEST,
        provenance: None,
        begun: None,
        design: Design { pairs, seed, hang_cpu_seconds: 30, idle_gap_seconds: 0, rebuilds: None },
        machine: Machine {
            host: HostKind::Sim,
            target: None,
            cpus: 1,
            memory_bytes: 1 << 30,
            storage: storage::default(clock).name.to_owned(),
            filesystem: "ext4".to_owned(),
            members: Vec::new(),
        },
        arms: (0..arms).map(arm).collect(),
        workloads: vec![PlannedWorkload {
            name: "micro".to_owned(),
            options: BTreeMap::new(),
            metrics: vec![metric("geomean", true), metric("fork", false)],
        }],
        margins: BTreeMap::from([(Kind::Cost, 0.02), (Kind::P99, 0.05)]),
        wider_margins: BTreeMap::new(),
        failed_check: None,
        noise_floor: None,
        slots,
    }
}

/// A record of one of the plan's slots.
pub fn record(plan: &Plan, slot: u32, attempt: u32, outcome: Outcome) -> Record {
    let s = &plan.slots[slot as usize];
    let arm = &plan.arms[s.arm];
    let mut metrics = Values::default();
    if outcome == Outcome::Completed {
        for def in &plan.workloads[0].metrics {
            // A third has no short decimal form, which shows whether numbers read back exactly.
            metrics.insert("micro", &def.name, f64::from(slot + 1) / 3.0);
        }
    }
    Record {
        schema: crate::record::SCHEMA,
        slot,
        pair: s.pair,
        position: s.position,
        arm: arm.name.clone(),
        machine: plan.machine_of(s).map(|member| member.name.clone()),
        attempt,
        outcome,
        guest: None,
        image_sha256: arm.kernel.image_sha256.clone(),
        config_sha256: None,
        metrics,
        facts: BTreeMap::from([("micro.note".to_owned(), "line\nbreak, \"quotes\", ä".to_owned())]),
        environment: BTreeMap::new(),
        changes: Vec::new(),
        complaints: Vec::new(),
        host: HostCost { wall_s: 0.1, ..HostCost::default() },
        artifacts: Vec::new(),
        counters: None,
    }
}

/// The text of a plan without the two lines that hold its checksum.
pub fn plan_text(plan: &Plan) -> String {
    let text = String::from_utf8(plan_bytes(plan).unwrap()).unwrap();
    text.splitn(3, '\n').nth(2).unwrap().to_owned()
}

/// Writes any text as a folder's plan, with the right checksum.
pub fn write_plan(dir: &Path, text: &[u8]) {
    let sum = format!("{PREAMBLE}{}\n", sha256_hex(text));
    fs::write(dir.join(PLAN), [sum.as_bytes(), text].concat()).unwrap();
}

/// Writes lines of any text as a folder's records, with the right checksums.
pub fn write_records(dir: &Path, texts: &[u8]) {
    let mut log = Vec::new();
    for text in texts.split(|b| *b == b'\n') {
        let sum = &sha256_hex(text)[..16];
        log.extend_from_slice(format!("{{\"sha256\":\"{sum}\",\"record\":").as_bytes());
        log.extend_from_slice(text);
        log.extend_from_slice(b"}\n");
    }
    fs::write(dir.join(RECORDS), log).unwrap();
}
