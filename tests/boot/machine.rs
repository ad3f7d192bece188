//! One trial each on the machines that a study can ask for: devices, file systems, kernels old and new.

use std::sync::atomic::AtomicBool;

use bigiron::registry::{self, WORKLOADS};
use bigiron::study::setting;
use bigiron_archive::spec::KernelSpec;
use bigiron_archive::store::Store;
use bigiron_lab::host::vm::VmHost;
use bigiron_lab::host::{Host, HostError, Trial, TrialEvidence, TrialResult};
use bigiron_lab::vm::qemu::{Accelerator, Qemu};
use bigiron_model::clock::Clock;
use bigiron_model::plan::{Arm, Design, Machine, Plan, PlannedWorkload, SCHEMA, Slot};
use bigiron_model::purpose::Purpose;
use bigiron_model::rule::Rule;
use bigiron_workload as workload;
use bigiron_workload::RunsOn;

use super::cache;
use crate::builder::write_program;

/// Metrics that use the disk, the file system and asynchronous I/O.
const DISK: &str = "pread-4k-direct,aio-4k-d16,uring-4k-d1,append-8k-fdatasync,create-10k";

struct Machines {
    kernel: &'static str,
    clock: Clock,
    storage: &'static str,
    filesystem: &'static str,
    only: &'static str,
    cpus: u32,
    settings: &'static [&'static str],
    purpose: Purpose,
}

const USUAL: Machines = Machines {
    kernel: "debian:6.12",
    clock: Clock::Exact,
    storage: "nvme",
    filesystem: "ext4",
    only: DISK,
    cpus: 1,
    settings: &[],
    purpose: Purpose::Judge,
};

fn boot(machines: &Machines, qemu: Qemu) -> Result<TrialResult, HostError> {
    let store = Store::at(&cache()).unwrap();
    let kernel = store.resolve(&KernelSpec::parse(machines.kernel).unwrap(), &|note| eprintln!("{note}")).unwrap();
    let micro = registry::find("micro").unwrap();
    let (options, configured) =
        workload::configure(micro, [("only", machines.only), ("scale", "0.2")], RunsOn::Here).unwrap();
    let plan = Plan {
        schema: SCHEMA,
        bigiron: "test".to_owned(),
        question_sha256: String::new(),
        question: None,
        repeat: String::new(),
        clock: machines.clock,
        rule: Rule::LATEST,
        provenance: None,
        begun: None,
        design: Design { pairs: 8, seed: 1, hang_cpu_seconds: 60, idle_gap_seconds: 0, rebuilds: None },
        machine: Machine {
            host: bigiron_model::host::HostKind::Vm,
            target: None,
            cpus: machines.cpus,
            memory_bytes: 1 << 30,
            storage: machines.storage.to_owned(),
            filesystem: machines.filesystem.to_owned(),
            members: Vec::new(),
        },
        arms: vec![Arm {
            name: "a".to_owned(),
            kernel: kernel.identity.clone(),
            settings: machines.settings.iter().map(|text| setting::parse(text).unwrap()).collect(),
            foundation: Default::default(),
            builds: Vec::new(),
        }],
        workloads: vec![PlannedWorkload { name: "micro".to_owned(), metrics: configured.metrics(), options }],
        margins: Default::default(),
        wider_margins: std::collections::BTreeMap::new(),
        failed_check: None,
        noise_floor: None,
        slots: Vec::new(),
    };
    let slot = Slot {
        slot: 2,
        // The first pair would also try all that the file system can do, which takes longer than the rest; `levers` tests it.
        pair: 1,
        position: 0,
        arm: 0,
        machine: 0,
        workload_seed: 1,
        boot_seed: 2,
        jitter: 3,
        order: vec![0],
    };
    let agent = std::fs::read(env!("CARGO_BIN_EXE_bigiron-agent")).unwrap();
    let accelerator = Accelerator::Tcg;
    let host = VmHost::new(WORKLOADS, &plan, &[kernel], &cache(), qemu, accelerator, &agent).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let cancel = AtomicBool::new(false);
    let trial = Trial {
        plan: &plan,
        slot: &slot,
        arm: &plan.arms[0],
        purpose: machines.purpose,
        attempt: 0,
        artifacts: dir.path(),
        cancel: &cancel,
    };
    host.run(&trial, &|_| {})
}

#[track_caller]
fn completes(machines: &Machines) -> TrialResult {
    let result = boot(machines, Qemu::find().unwrap()).unwrap();
    assert_eq!(result.cost.lockstep, machines.clock.is_exact().then_some(true));
    completed(machines, result)
}

#[track_caller]
fn completed(machines: &Machines, result: TrialResult) -> TrialResult {
    assert_eq!(result.failure, None);
    assert_eq!(result.metrics.len(), machines.only.split(',').count() + 1);
    assert!(result.complaints.is_empty(), "{:?}", result.complaints);
    result
}

fn value(result: &TrialResult, metric: &str) -> f64 {
    result.metrics.get("micro", metric).unwrap()
}

/// Of a new kernel, and of another file system.
#[test]
fn modelled_devices_take_the_time_of_their_profile() {
    let new = Machines { kernel: "debian:7.2", ..USUAL };
    let of = |machines: &Machines| value(&completes(machines), "pread-4k-direct");
    let nvme = of(&new);
    let ram = of(&Machines { only: "pread-4k-direct", storage: "ram", ..new });
    let ssd = of(&Machines { filesystem: "xfs", storage: "ssd", ..USUAL });
    // The model adds its completion time to the path through the kernel, which is some 15 us.
    assert!((nvme - ram) > 5_000.0 && nvme < 60_000.0, "nvme {nvme}, ram {ram}");
    assert!((60_000.0..80_000.0).contains(&(ssd - nvme)), "ssd {ssd}, nvme {nvme}: 70 us more");
}

#[track_caller]
fn seeks_and_turns(result: &TrialResult) {
    let [read, append] = ["pread-4k-direct", "append-8k-fdatasync"].map(|metric| value(result, metric));
    // A seek within the file and half a turn; a journal's commit misses its block and waits a turn or more.
    assert!((4e6..16e6).contains(&read), "{read}");
    assert!((8e6..60e6).contains(&append), "{append}");
}

#[test]
fn a_spinning_disk_of_an_old_kernel() {
    seeks_and_turns(&completes(&Machines { storage: "hdd", kernel: "debian:5.10", ..USUAL }));
}

/// Requests that were written to the journal's disk.
fn to_journal(result: &TrialResult) -> u64 {
    result.facts["micro.journal-disk-writes"].parse().unwrap()
}

#[test]
fn a_journal_on_flash_takes_the_commits_of_a_spinning_disk() {
    let only = "append-8k-fdatasync";
    let spinning = completes(&Machines { only: "pread-4k-direct,append-8k-fdatasync", storage: "hdd", ..USUAL });
    seeks_and_turns(&spinning);
    let flash = Machines { only, storage: "hdd", settings: &["fs.journal=nvme"], ..USUAL };
    let (first, again) = (completes(&flash), completes(&flash));
    let append = |result: &TrialResult| value(result, "append-8k-fdatasync");
    // The data's own write still waits for the platter; the journal's two do not.
    assert!(append(&first) < 0.7 * append(&spinning), "{} {}", append(&first), append(&spinning));
    // 40 appends, each a commit of two writes: what has changed, and the block that ends it.
    assert!(to_journal(&first) >= 80 && first.facts["micro.journal-disk"] == "micro-journal", "{:?}", first.facts);
    assert!(!spinning.facts.contains_key("micro.journal-disk"));
    let values = |result: &TrialResult| {
        result.metrics.of("micro").map(|(name, value)| (name.to_owned(), value)).collect::<Vec<_>>()
    };
    assert_eq!((values(&first), &first.facts), (values(&again), &again.facts), "to the nanosecond");
    // The other way round, the journal is what everybody waits for.
    let slow = completes(&Machines { only, settings: &["fs.journal=hdd"], ..USUAL });
    assert!(append(&slow) > 4e6 && slow.facts["micro.journal-disk"] == "nbd1", "{} {:?}", append(&slow), slow.facts);
}

#[test]
fn journals_of_other_file_systems_and_kernels_on_disks_of_their_own() {
    let only = "append-8k-fdatasync";
    let of = |filesystem, kernel, settings| Machines { only, storage: "ssd", filesystem, kernel, settings, ..USUAL };
    for machines in [
        of("xfs", "debian:6.12", &["fs.journal=hdd-15k"]),
        of("ext3", "debian:5.10", &["fs.journal=nvme", "fs.mount=data=journal"]),
        Machines { clock: Clock::None, storage: "host-file", ..of("xfs", "debian:6.1", &["fs.journal=host-file"]) },
    ] {
        let result = completes(&machines);
        assert!(to_journal(&result) > 20, "{}: {:?}", machines.filesystem, result.facts);
    }
}

#[test]
fn threads_of_a_core_are_siblings_until_the_kernel_is_told_to_have_none() {
    // Read back before anything is measured: all of them, or one of a core.
    let of = |settings| Machines { only: "null-call", cpus: 2, settings, ..USUAL };
    let online = |machines: &Machines| completes(machines).guest.unwrap().cpus;
    assert_eq!(online(&of(&["vm.threads=2"])), 2);
    assert_eq!(online(&of(&["vm.threads=2", "boot.nosmt"])), 1);
    assert_eq!(online(&of(&["boot.nosmt"])), 2, "of cores with one thread none goes");
}

/// 6.1 takes no turns on QEMU 7.2 unless they are divided.
#[test]
fn cpus_in_parallel_time_repeat_to_the_last_digit() {
    let machines = Machines {
        kernel: "debian:6.1",
        clock: Clock::ExactParallel,
        storage: "ram",
        only: "null-call,pipe-rtt,fork-exit",
        cpus: 2,
        ..USUAL
    };
    let [first, second] = [completes(&machines), completes(&machines)];
    assert_eq!(first.guest.unwrap().cpus, 2);
    assert!(first.metrics.len() >= 3, "{:?}", first.metrics);
    assert_eq!(first.metrics, second.metrics);
}

#[test]
fn the_model_finds_page_tables_in_the_memory_of_any_node() {
    let machines = Machines {
        clock: Clock::ExactParallel,
        storage: "ram",
        only: "fork-exit",
        cpus: 2,
        settings: &["vm.numa=2"],
        purpose: Purpose::Profile,
        ..USUAL
    };
    let Some(TrialEvidence::Executed(evidence)) = completes(&machines).evidence else { panic!("a profile") };
    // What the processes of one node use of the other.
    assert!(super::modelled(&serde_json::to_value(&evidence).unwrap(), "remote-memory turin-like") > 0);
}

#[test]
fn a_qemu_that_may_not_take_the_library_runs_out_of_step_and_says_so() {
    let found = Qemu::find().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("qemu");
    write_program(&program, &format!("#!/bin/sh\nexec {} \"$@\"\n", found.program.display()));
    let machines = Machines { only: "null-call", ..USUAL };
    let mut qemu = found;
    qemu.program = program;
    let result = completed(&machines, boot(&machines, qemu).unwrap());
    assert_eq!(result.cost.lockstep, Some(false));
}

#[test]
fn a_generic_kernel_whose_file_system_is_a_module() {
    completes(&Machines { kernel: "debian:6.1/amd64", ..USUAL });
}

#[test]
fn a_virtio_disk_of_the_host() {
    let result = completes(&Machines { clock: Clock::None, storage: "host-file", ..USUAL });
    assert!(result.facts["host.disk-cache"].ends_with("a flush in the guest is a flush on the host"));
}
