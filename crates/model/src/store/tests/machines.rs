//! Plans and records of several machines.

use std::fs;

use super::super::*;
use super::{plan, record};
use crate::clock::Clock;
use crate::plan::{Member, Plan};
use crate::record::Outcome;

/// Four pairs that go round two machines.
fn of_two() -> Plan {
    let mut plan = plan(4, 2, Clock::Wall, 7);
    let member = |name: &str| Member { name: name.into(), cpus: 2, memory_bytes: 1 << 30, filesystem: "ext4".into() };
    plan.machine.members = vec![member("a"), member("b")];
    plan.slots.iter_mut().for_each(|slot| slot.machine = slot.pair % 2);
    plan
}

#[test]
fn a_record_says_on_which_machine_it_ran_and_belongs_only_there() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("study"), &of_two()).unwrap();
    let mut writer = folder.writer().unwrap();
    let mut records: Vec<_> = (0..3).map(|slot| record(folder.plan(), slot, 0, Outcome::Completed)).collect();
    assert_eq!(records[2].machine.as_deref(), Some("b"));
    records[1].machine = Some("b".to_owned());
    records[2].machine = None;
    records.iter().for_each(|r| writer.append(r).unwrap());
    let read = Folder::open(folder.dir()).unwrap().records().unwrap();
    assert_eq!(read.records, records[..1]);
    let why: Vec<&str> = read.unreadable.iter().map(|(_, why)| why.as_str()).collect();
    let want = [
        "slot 1 of the plan runs on `a`; the record says `b`",
        "slot 2 of the plan runs on `b`; the record says no machine",
    ];
    assert_eq!(why, want);
    assert_eq!(of_two().machine.each().iter().map(|m| m.target.clone().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_pair_on_two_machines_or_on_an_unknown_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |name: &str, change: fn(&mut Plan)| {
        let mut plan = of_two();
        change(&mut plan);
        Folder::create(&dir.path().join(name), &plan).unwrap_err().to_string()
    };
    assert!(refused("two", |plan| plan.slots[1].machine = 1).contains("pair 0 runs on two machines"));
    assert!(refused("unknown", |plan| plan.slots[2].machine = 2).contains("slot 2 names machine 2 of 2"));
}

#[test]
fn the_plan_of_one_machine_does_not_mention_machines() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("study"), &plan(4, 2, Clock::Wall, 7)).unwrap();
    let mut writer = folder.writer().unwrap();
    writer.append(&record(folder.plan(), 0, 0, Outcome::Completed)).unwrap();
    let text = fs::read_to_string(folder.dir().join("plan.toml")).unwrap();
    assert!(!text.contains("members") && !text.contains("machine ="), "{text}");
    assert!(!fs::read_to_string(folder.dir().join("records.jsonl")).unwrap().contains("machine"));
}
