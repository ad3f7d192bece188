use std::process::Command;

use super::arm::PreparedArm;
use super::images::ArmImages;
use super::*;
use crate::protocol;
use crate::vm::freezer;
use crate::vm::qemu::Version;
use bigiron_model::store::testing;

/// A host whose QEMU is a script of the shell, which has `$events` and `$console`, the files of the guest's events and of its console.
fn scripted(dir: &Path, script: &str) -> VmHost {
    let program = dir.join("qemu");
    let file = |id: &str| format!("{id}=$(echo \"$*\" | sed 's/.*id={id},path=\\([^ ]*\\).*/\\1/')");
    let (events, console) = (file("events"), file("console"));
    let text = format!("#!/bin/sh\n{events}\n{console}\n{script}\n");
    // Not by this process: one that another test forks meanwhile would have the file open too, and while it is open for writing nobody can execute it.
    let write = ["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"];
    assert!(Command::new("sh").args(write).arg(&program).arg(text).status().unwrap().success());
    let arm = PreparedArm::bare(dir.join("kernel"), ArmImages::default());
    VmHost {
        qemu: Qemu::named(program, Version(7, 2, 0)),
        accelerator: Accelerator::Tcg,
        cache: dir.to_owned(),
        arms: vec![arm],
        lockstep: None,
        plugin: None,
        needs_plugin: false,
        models: false,
    }
}

/// What comes of a trial whose QEMU is `script`, and the files that it leaves.
fn trial(script: &str) -> (Result<TrialResult, HostError>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let host = scripted(dir.path(), script);
    let artifacts = dir.path().join("artifacts");
    std::fs::create_dir(&artifacts).unwrap();
    std::fs::write(artifacts.join("micro.disk"), "a disk").unwrap();
    let mut plan = testing::plan(1, 1, Clock::None, 7);
    // Nothing that needs a disk.
    plan.workloads.clear();
    plan.slots[0].order.clear();
    let trial = Trial {
        plan: &plan,
        slot: &plan.slots[0],
        arm: &plan.arms[0],
        purpose: Purpose::Judge,
        attempt: 0,
        artifacts: &artifacts,
        cancel: &AtomicBool::new(false),
    };
    let result = host.run(&trial, &|_| {});
    let left = std::fs::read_dir(&artifacts).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    (result, left.collect())
}

#[test]
fn a_guest_that_says_what_is_no_event_has_failed_and_its_bulk_is_gone() {
    let (result, left) = trial("printf '{\"event\":\"ready\"}\\ngarbage\\n' >$events; exec sleep 600");
    let (failure, message) = result.unwrap().failure.expect("it has failed");
    assert_eq!(failure, Failure::BadEvent);
    assert!(message.contains("`garbage`"), "{message}");
    assert_eq!(left, ["events.ndjson"]);
}

#[test]
fn an_error_of_the_host_leaves_no_bulk_either() {
    let (result, left) = trial("mkdir $events; exec sleep 600");
    assert!(matches!(result, Err(HostError::Void(_))));
    assert_eq!(left, ["events.ndjson"]);
}

#[test]
fn a_guest_whose_qemu_ran_out_of_turn_is_run_again() {
    let script = |said: &str| {
        format!("printf '{{\"event\":\"done\"}}\\n' >$events; echo '{said}' >&2; exit {}", protocol::EXIT_DONE_STATUS)
    };
    let (result, _) = trial(&script("warning: something else"));
    assert_eq!(result.unwrap().failure, None);
    let (result, left) = trial(&script(bigiron_lockstep::OUT_OF_TURN));
    assert!(matches!(&result, Err(HostError::Void(why)) if why.contains("turns")), "{result:?}");
    assert!(left.contains(&"qemu.log".to_owned()), "{left:?}");
}

#[test]
fn what_the_kernel_said_on_its_console_is_kept_though_its_log_has_lost_it() {
    let warning = "{\"class\":\"warning\",\"line\":\"WARNING: CPU: 0\"}";
    let script = format!(
        "printf '[    1.000000] BUG: scheduling while atomic\\n[    1.000001] WARNING: CPU: 0\\n' >$console; \
         printf '{{\"event\":\"complaints\",\"lines\":[{warning}]}}\\n{{\"event\":\"done\"}}\\n' >$events; exit {}",
        protocol::EXIT_DONE_STATUS
    );
    let complaints = trial(&script).0.unwrap().complaints;
    let said: Vec<_> = complaints.iter().map(|c| (c.class.as_str(), c.line.as_str())).collect();
    assert_eq!(said, [("warning", "WARNING: CPU: 0"), ("bug", "BUG: scheduling while atomic")]);
    // A guest that died has told nothing itself.
    let died = "printf '[    1.000000] Oops: 0002 [#1] SMP\\n[    1.000001] Kernel panic - not syncing: Fatal\\n' >$console; exit 0";
    let result = trial(died).0.unwrap();
    assert_eq!(result.failure.map(|(failure, _)| failure), Some(Failure::Panic));
    assert_eq!(result.complaints.iter().map(|c| c.class.as_str()).collect::<Vec<_>>(), ["oops"]);
}

#[test]
fn an_artefact_without_a_usable_name_is_the_guests_failure() {
    let long = "x".repeat(300);
    for name in ["", "..", "../../outside", "a\\u0000b", "console.log", "qemu.log", &long] {
        let event = format!(r#"{{"event":"artifact","name":"{name}","text":"evil"}}"#).replace('\\', "\\\\");
        let script = format!(r#"printf '{event}\n{{"event":"done"}}\n' >$events; exit 67"#);
        let (result, left) = trial(&script);
        let (failure, message) = result.unwrap().failure.expect("it has failed");
        assert_eq!(failure, Failure::BadEvent, "{name}");
        assert!(message.contains("without a usable name"), "{message}");
        assert_eq!(left, ["events.ndjson"], "{name}");
    }
    let (result, mut left) =
        trial(r#"printf '{"event":"artifact","name":"a.txt","text":"good"}\n{"event":"done"}\n' >$events; exit 67"#);
    assert_eq!(result.unwrap().failure, None);
    left.sort();
    assert_eq!(left, ["a.txt", "events.ndjson"]);
}

#[test]
fn a_guest_that_floods_its_console_has_failed_and_its_console_is_kept() {
    let console = "console=$(echo \"$*\" | sed 's/.*id=console,path=\\([^ ]*\\).*/\\1/')";
    // In one piece and without an end: a real one does not wait to be looked at.
    let (result, left) = trial(&format!("{console}; truncate -s 70M $console; exec sleep 600"));
    let (failure, message) = result.unwrap().failure.expect("it has failed");
    assert_eq!(failure, Failure::Flooded);
    assert!(message.starts_with("The guest wrote more than 64 MiB to its console"), "{message:.200}");
    assert_eq!(left, ["console.log"]);
    let (result, _) = trial("truncate -s 600M $events; exec sleep 600");
    assert_eq!(result.unwrap().failure.expect("it has failed").0, Failure::Flooded);
}

#[test]
fn a_qemu_that_somebody_stopped_is_void() {
    let (result, _) = trial("printf '{\"event\":\"ready\"}\\n' >$events; kill -STOP $$; exec sleep 600");
    let Err(HostError::Void(why)) = result else { panic!("{:?}", result.map(|r| r.failure)) };
    assert_eq!(why, "QEMU was stopped by a signal before the first workload");
}

#[test]
fn a_qemu_in_a_frozen_cgroup_is_void_and_not_waited_for() {
    for group in freezer::testing::groups("qemu") {
        let (file, word) = group.switch(true);
        let (result, _) = trial(&format!(
            "printf '{{\"event\":\"ready\"}}\\n' >$events; echo $$ >{}; echo {word} >{}; exec sleep 600",
            group.procs().display(),
            file.display()
        ));
        let Err(HostError::Void(why)) = result else { panic!("{:?}", result.map(|r| r.failure)) };
        assert_eq!(why, "QEMU was in a frozen cgroup before the first workload");
        // It was killed, however long it stays frozen.
        group.set(false);
        let began = Instant::now();
        while group.processes() > 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "QEMU is left");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
