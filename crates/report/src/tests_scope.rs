//! What reports say of the machine: its emulator, its disk, its file systems.

use super::Extras;
use super::tests::{print, study};
use bigiron_judge::fixture::{fail, rebuilt, records};
use bigiron_model::clock::Clock;
use bigiron_model::plan::Plan;
use bigiron_model::record::{Failure, Record};

#[test]
fn panics_of_several_emulated_cpus_are_told_with_a_caution() {
    let (mut plan, mut records) = study(1.0);
    let cautions = |plan: &Plan, records: &[Record]| {
        let printed = print(plan, records, &Extras::default());
        [printed.text.split_whitespace().collect::<Vec<_>>().join(" "), printed.html]
            .map(|text| text.contains("is not free of faults of its own"))
    };
    fail(&mut records[3], Failure::Panic, "Kernel panic - not syncing");
    assert_eq!(cautions(&plan, &records), [false; 2], "one CPU");
    plan.machine.cpus = 2;
    assert_eq!(cautions(&plan, &records), [true; 2]);
    records.iter_mut().for_each(|r| r.host.accelerator = "kvm".to_owned());
    assert_eq!(cautions(&plan, &records), [false; 2], "KVM");
    assert_eq!(cautions(&plan, &study(1.0).1), [false; 2], "nothing failed");
}

#[test]
fn boots_that_may_not_repeat_to_the_last_digit_are_told() {
    let (plan, mut records) = study(1.05);
    let says = "of 20 boots QEMU's threads did not run in lockstep";
    assert!(!print(&plan, &records, &Extras::default()).text.contains("lockstep"));
    records[3].host.lockstep = Some(false);
    let printed = print(&plan, &records, &Extras::default());
    assert!(printed.text.replace("\n  ", " ").contains(&format!("In 1 {says}")), "{}", printed.text);
    assert!(printed.html.contains("lockstep"));
}

#[test]
fn a_disk_of_the_host_is_called_one() {
    let (mut plan, mut records) = study(1.0);
    plan.clock = Clock::Wall;
    plan.machine.storage = "host-file".to_owned();
    plan.design.idle_gap_seconds = 2;
    for record in &mut records {
        record.facts.insert(bigiron_model::storage::DISK_CACHE_FACT.to_owned(), "none (O_DIRECT)".to_owned());
    }
    let text = print(&plan, &records, &Extras::default()).text;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "storage `host-file` (a virtio disk on a file of the study's folder",
        "one disk of one host, shared with everything else there",
        "- cache of the host's disk: none (O_DIRECT)",
        "Before each boot the machine idled for 2 s",
    ] {
        assert!(text.contains(said), "`{said}` is not in {text}");
    }
    assert!(!text.contains("host.disk-cache") && !text.contains("model"), "{text}");
}

#[test]
fn what_file_systems_can_do_is_a_table_of_its_own() {
    let (plan, mut records) = study(1.0);
    let found = [("largest file", ["16 TiB", "8 EiB"]), ("reflink", ["no", "yes"]), ("preallocation", ["yes", "yes"])];
    for (feature, values) in found {
        for (arm, value) in plan.arms.iter().zip(values) {
            let first = records.iter_mut().find(|r| r.arm == arm.name).unwrap();
            first.facts.insert(bigiron_model::file_system::fact(feature), value.to_owned());
        }
    }
    let printed = print(&plan, &records, &Extras::default());
    let table = "  feature        debian:6.1  debian:6.12\n  largest file   16 TiB      8 EiB\n  preallocation  yes         yes\n";
    assert!(printed.text.contains(&format!("{table}  reflink        no          yes\n")), "{}", printed.text);
    assert_eq!(printed.text.matches("8 EiB").count(), 1);
    assert!(printed.html.contains("file-system.largest-file"));
}

#[test]
fn a_study_of_builds_speaks_of_sources() {
    let plan = rebuilt(study(1.0).0, 10);
    let printed = print(&plan, &records(&plan, 0.0005, |_, _, _| 1.006), &Extras::default());
    let text = printed.text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "10 pairs, 10 builds of each source, exact/2 clock); within the 2 % margin: same (tiny, but the sources differ: +0.6",
        "The unit of replication is one build of each source",
        "each boots in one pair",
        "the exact full-flip interval over builds",
        "The interval is about the sources as this compiler compiled them",
        ", 10 builds from the objects of image ",
    ] {
        assert!(text.contains(said), "`{said}` is not in {text}");
    }
    assert!(!text.contains("these builds differ") && !text.contains("of these kernel images"), "{text}");
    assert!(printed.html.contains("10 builds of each source"));
    // What would settle a line is counted in builds, of which each has two pairs.
    let mut plan = rebuilt(study(1.0).0, 5);
    plan.design.pairs = 10;
    let text = print(&plan, &records(&plan, 0.05, |_, _, _| 1.0), &Extras::default()).text;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("more builds of each source would settle it"), "{text}");
}
