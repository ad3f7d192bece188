use crate::study::setting;
use bigiron_model::host::HostKind;
use proptest::prelude::*;

use super::*;
use crate::study::arm::ArmText;
use crate::study::{file, repeat};

/// A simulated machine.
struct Here {
    qemu: Option<(u32, u32)>,
    kvm: bool,
}

const OLD: Here = Here { qemu: Some((7, 2)), kvm: false };
const KVM: Here = Here { qemu: Some((10, 0)), kvm: true };

impl Capabilities for Here {
    fn can_set(&self, (lever, value): &Setting) -> Result<(), String> {
        if value == "refused" { Err(format!("`{lever}` is not there")) } else { Ok(()) }
    }

    fn qemu(&self) -> Result<(u32, u32), Refusal> {
        self.qemu.ok_or_else(|| Refusal::new("QEMU is not installed"))
    }
    fn kvm(&self) -> Result<(), String> {
        if self.kvm { Ok(()) } else { Err("`/dev/kvm` does not exist".into()) }
    }
    fn may_have_kvm(&self) -> Result<(), String> {
        self.kvm()
    }
    fn cpus(&self) -> u32 {
        2
    }
    fn members(&self) -> Vec<Member> {
        let member =
            |name: &str| Member { name: name.into(), cpus: 2, memory_bytes: 8 << 30, filesystem: "xfs".into() };
        ["a", "b"].map(member).into()
    }
    fn filesystem(&self) -> String {
        "ext4".to_owned()
    }

    fn memory_bytes(&self) -> u64 {
        8 << 30
    }
}

fn question(arms: &[&str]) -> Question {
    Question { arms: arms.iter().map(|a| ArmText::parse(a).unwrap()).collect(), ..Question::default() }
}

fn two() -> Question {
    question(&["debian:6.1", "debian:6.12"])
}

fn kernel(release: &str) -> Identity {
    Identity {
        spec: release.into(),
        release: release.into(),
        package: None,
        image_sha256: "00".into(),
        config_sha256: None,
    }
}

#[track_caller]
fn refused(q: &Question, here: &Here, want: &str) -> Refusal {
    let refusal = resolve(q, here).unwrap_err();
    assert!(refusal.message.contains(want), "{refusal}");
    refusal
}

#[test]
fn what_was_not_said_is_filled_in() {
    let resolved = resolve(&two(), &OLD).unwrap();
    assert_eq!((resolved.clock, resolved.pairs, resolved.seed), (Clock::Exact, 10, None));
    assert_eq!(resolved.workloads.iter().map(|w| &w.name[..]).collect::<Vec<_>>(), QUICK);
    assert_eq!(resolve(&Question { gates: true, ..two() }, &OLD).unwrap().pairs, 12);
    let resolved = resolve(&two(), &KVM).unwrap();
    assert_eq!((resolved.clock, resolved.pairs), (Clock::Wall, 12));
    assert_eq!((resolved.machine.cpus, resolved.machine.memory_bytes), (1, 1 << 30));
}

#[test]
fn pairs_rise_with_the_number_of_verdicts() {
    let many = question(&["debian:6.12"; 15]);
    let resolved = resolve(&many, &OLD).unwrap();
    // 28 verdicts: 2/2^10 > .05/28.
    assert_eq!((resolved.pairs, power::smallest_pairs(Flips::Full, 28)), (12, 12));
    let five = question(&["debian:5.10", "debian:6.1", "debian:6.12", "debian:6.18", "debian:7.2"]);
    assert_eq!(resolve(&five, &OLD).unwrap().pairs, PAIRS_EXACT);
}

#[test]
fn a_design_that_can_decide_nothing_is_refused() {
    let pairs = |pairs| Question { pairs: Some(pairs), workloads: vec!["micro".into()], ..two() };
    refused(&pairs(7), &OLD, "7 pairs cannot be balanced, with each arm first as often as last; use 10 or more");
    refused(&pairs(6), &OLD, "6 pairs are too few for any verdict; use 10 or more");
    refused(&pairs(9), &OLD, "9 pairs cannot be balanced, with each arm first as often as last; use 8 or 10");
    refused(&pairs(1002), &OLD, "too many");
    let resolved = resolve(&Question { pairs: Some(8), ..two() }, &KVM).unwrap();
    assert!(resolved.warning.unwrap().starts_with("8 pairs cannot carry 2 verdicts at once"));
    // The exact clock has more alternatives.
    assert_eq!(resolve(&Question { pairs: Some(8), ..two() }, &OLD).unwrap().warning, None);
    assert_eq!(resolve(&pairs(8), &OLD).unwrap().warning, None);
}

#[test]
fn arms_and_workloads_are_checked() {
    refused(&question(&[]), &OLD, "No kernels to compare");
    refused(&question(&["debian:6.1"]), &OLD, "Only one arm, `debian:6.1`");
    refused(&Question { workloads: vec!["dbism".into()], ..two() }, &OLD, "did you mean `dbsim`?");
    refused(&Question { workloads: vec!["micro".into(), "micro".into()], ..two() }, &OLD, "named twice");
    resolve(&question(&["debian:6.12", "debian:6.12"]), &OLD).unwrap();
}

#[test]
fn memory_that_was_not_asked_for_is_enough() {
    let memory = |q: &Question| resolve(q, &OLD).unwrap().machine.memory_bytes;
    assert_eq!(memory(&two()), 1 << 30);
    let three = Question { workloads: ["micro", "dbsim", "oltp"].map(String::from).to_vec(), ..two() };
    assert_eq!(memory(&three), 1280 << 20);
    refused(&Question { memory_bytes: Some(1 << 30), ..three }, &OLD, "give at least 1104M");
    // By default this heap grows with the CPUs: 32 MiB and, for each of them, four times the data.
    let jvm = |cpus| Question {
        workloads: vec!["jvm".into()],
        settings: vec![setting::parse("jvm.data=25M").unwrap()],
        cpus: Some(cpus),
        ..two()
    };
    assert_eq!((memory(&jvm(4)), memory(&jvm(16))), (1 << 30, 2 << 30));
    refused(&Question { memory_bytes: Some(1 << 30), ..jvm(16) }, &OLD, "too little for a kernel with jvm");
}

#[test]
fn the_machine_is_checked() {
    refused(&Question { cpus: Some(0), ..two() }, &OLD, "from 1 to 255 CPUs, not 0");
    refused(&Question { cpus: Some(256), ..two() }, &OLD, "from 1 to 255 CPUs, not 256");
    refused(&Question { cpus: Some(4), ..two() }, &KVM, "4 CPUs cannot be timed on the 2 of this machine");
    refused(&Question { memory_bytes: Some(64 << 30), ..two() }, &OLD, "A guest of 64G does not fit into this machine");
    refused(&Question { memory_bytes: Some(32 << 20), ..two() }, &OLD, "32M of memory is too little");
    refused(&Question { memory_bytes: Some((1 << 30) + 1), ..two() }, &OLD, "whole MiB");
    refused(&Question { storage: Some("floppy".into()), ..two() }, &OLD, "`nvme`");
    refused(&Question { filesystem: Some("ext5".into()), ..two() }, &OLD, "`ext4`, `xfs`, `ext2`");
    refused(&Question { seed: Some(1 << 53), ..two() }, &OLD, "too large");
    refused(&Question { hang_limit: Some(1), ..two() }, &OLD, "hang limit");
    refused(&two(), &Here { qemu: None, kvm: false }, "QEMU is not installed");
}

#[test]
fn what_is_wrong_in_itself_is_said_before_qemu_is_asked_for() {
    let none = Here { qemu: None, kvm: true };
    for clock in [None, Some(Clock::Exact), Some(Clock::Wall)] {
        let with = |q: Question| Question { clock, ..q };
        refused(&with(Question { pairs: Some(7), ..two() }), &none, "7 pairs cannot be balanced");
        refused(&with(Question { idle_gap: Some(9999), ..two() }), &none, "at most 3600 seconds, not 9999");
        refused(&with(Question { memory_bytes: Some(64 << 30), ..two() }), &none, "does not fit into this machine");
        refused(
            &with(question(&["debian:6.1", &format!("debian:6.12,boot.a={}", "x".repeat(1900))])),
            &none,
            "leave some out",
        );
        refused(&with(two()), &none, "QEMU is not installed");
    }
    let storage = |clock| Question { clock, storage: Some("host-file".into()), ..two() };
    refused(&storage(Some(Clock::Exact)), &none, "depend on the host's time");
    // It is right on a machine whose default clock is `wall`.
    refused(&storage(None), &none, "QEMU is not installed");
    refused(&Question { cpus: Some(4), clock: Some(Clock::Wall), ..two() }, &none, "4 CPUs cannot be timed");
    refused(&Question { cpus: Some(4), ..two() }, &none, "QEMU is not installed");
    let neither = Here { qemu: None, kvm: false };
    refused(&storage(None), &neither, "depend on the host's time");
    refused(&Question { clock: Some(Clock::Wall), ..two() }, &neither, "`/dev/kvm` does not exist");
}

#[test]
fn another_qemu_is_another_question_and_is_repeated() {
    let with = |qemu| Question { qemu, ..two() };
    let resolved = |qemu| resolve(&with(qemu), &OLD).unwrap();
    assert_eq!(resolved(None).sha256(), resolved(Some(QemuSource::Pinned)).sha256());
    assert_ne!(resolved(None).sha256(), resolved(Some(QemuSource::System)).sha256());
    let command = |qemu| repeat::command(&with(qemu), &resolved(qemu), 7);
    assert!(command(Some(QemuSource::System)).contains(" --qemu system"));
    assert!(!command(None).contains("--qemu"));
    let study = |qemu| repeat::study("a b.toml", &Question::default(), &resolved(qemu), 7);
    assert_eq!(study(None), "bigiron run 'a b.toml' --seed 7");
    assert_eq!(study(Some(QemuSource::System)), "bigiron run 'a b.toml' --seed 7 --qemu system");
    let local = Question { host: Some(HostKind::Local), ..question(&["running", "running"]) };
    refused(&Question { qemu: Some(QemuSource::System), ..local }, &OLD, "there is no QEMU to choose");
}

#[test]
fn another_machine_boots_kernels_and_its_own_settings_are_not_chosen() {
    let on = |arms: &[&str]| Question {
        host: Some(HostKind::Ssh),
        targets: vec!["db3".to_owned()],
        no_way_back: true,
        ..question(arms)
    };
    let boots = |arms: &[&str]| resolve(&on(arms), &OLD).unwrap().boots();
    assert!(boots(&["debian:6.1", "running"]));
    assert!(boots(&["running", "running,boot.mitigations=off"]));
    assert!(!boots(&["running", "running"]));
    let q = on(&["debian:6.1", "debian:6.12"]);
    let resolved = resolve(&q, &OLD).unwrap();
    assert_eq!((resolved.clock, resolved.machine.storage.as_str()), (Clock::Wall, "folder"));
    let command = repeat::command(&q, &resolved, 7);
    assert!(command.contains(" --on ssh:db3 ") && command.ends_with(" --no-way-back"), "{command}");
    refused(&Question { cpus: Some(2), ..q.clone() }, &OLD, "With `--on ssh` the machine already has CPUs");
    refused(&Question { clock: Some(Clock::Exact), ..q.clone() }, &OLD, "With `--on ssh` the only clock is `wall`");
    refused(&on(&["running,vm.numa=2", "running"]), &OLD, "acts on a guest; leave it out with `--on ssh`");
    // Another machine is another question.
    assert_ne!(resolved.sha256(), resolve(&Question { targets: vec!["db4".to_owned()], ..q }, &OLD).unwrap().sha256());
}

#[test]
fn several_machines_have_their_own_pairs() {
    let on = |targets: &[&str]| Question {
        host: Some(HostKind::Ssh),
        targets: targets.iter().map(|name| (*name).to_owned()).collect(),
        ..question(&["running", "running,mm.thp=never"])
    };
    let q = on(&["a", "b"]);
    let resolved = resolve(&q, &OLD).unwrap();
    assert_eq!((resolved.pairs, resolved.machine.members.len(), &resolved.machine.target), (12, 2, &None));
    assert!(repeat::command(&q, &resolved, 7).contains(" --on ssh:a,ssh:b "));
    assert!(repeat::study("s.toml", &q, &resolved, 7).ends_with(" --on ssh:a,ssh:b"));
    let plan = resolved.plan(vec![kernel("6.1"), kernel("6.1")], 7, String::new(), None).unwrap();
    assert_eq!(plan.flips(), Flips::Blocks(2));
    assert!(plan.slots.iter().all(|slot| slot.machine == slot.pair % 2));
    assert_ne!(resolved.sha256(), resolve(&on(&["a"]), &OLD).unwrap().sha256());
    let pairs = |pairs| Question { pairs: Some(pairs), ..q.clone() };
    refused(&pairs(14), &OLD, "on each of 2 machines; use 12 or 16");
    refused(&pairs(8), &OLD, "8 pairs are too few for any verdict; use 12 or more");
    refused(&Question { clock: Some(Clock::Exact), ..q.clone() }, &OLD, "With `--on ssh` the only clock is `wall`");
}

#[test]
fn the_wall_clock_needs_kvm_and_says_what_works_without() {
    let refusal = refused(&Question { clock: Some(Clock::Wall), ..two() }, &OLD, "`/dev/kvm` does not exist");
    assert!(refusal.hint.unwrap().contains("--clock exact"));
}

#[test]
fn storage_is_what_the_clock_can_have() {
    let with = |clock, storage: &str| Question { clock, storage: Some(storage.into()), ..two() };
    let storage = |q: &Question, here| resolve(q, here).unwrap().machine.storage;
    assert_eq!(storage(&two(), &OLD), "nvme");
    assert_eq!(storage(&two(), &KVM), "host-file");
    assert_eq!(storage(&Question { clock: Some(Clock::None), ..two() }, &OLD), "host-file");
    assert_eq!(storage(&with(Some(Clock::Wall), "ram"), &KVM), "ram");
    assert_eq!(storage(&with(Some(Clock::Wall), "hdd"), &KVM), "hdd");
    let refusal = refused(&with(Some(Clock::Exact), "host-file"), &KVM, "depend on the host's time");
    let models = "With the clock `exact/2` storage is `nvme`, `ssd`, `hdd`, `hdd-15k` or `ram`";
    assert_eq!(refusal.hint.unwrap(), models);
    let refusal = refused(&with(None, "host-file"), &OLD, "depend on the host's time");
    assert!(refusal.hint.unwrap().contains("default clock"));
}

#[test]
fn only_the_wall_clock_idles() {
    let with = |clock, idle_gap| Question { clock: Some(clock), idle_gap, ..two() };
    let gap = |q: &Question| resolve(q, &KVM).unwrap().idle_gap;
    assert_eq!(gap(&with(Clock::Wall, None)), IDLE_GAP_WALL);
    assert_eq!(gap(&with(Clock::Wall, Some(0))), 0);
    assert_eq!(gap(&with(Clock::Exact, None)), 0);
    assert_eq!(gap(&with(Clock::Exact, Some(0))), 0);
    refused(&with(Clock::Exact, Some(5)), &KVM, "which does not affect the clock `exact/2`");
    refused(&with(Clock::Wall, Some(9999)), &KVM, "at most 3600 seconds, not 9999");
}

#[test]
fn the_words_of_a_question_are_kept_and_ask_nothing() {
    let worded = Question { text: Some("Does it help?".into()), ..two() };
    let resolved = resolve(&worded, &OLD).unwrap();
    assert_eq!(resolved.sha256(), resolve(&two(), &OLD).unwrap().sha256());
    let plan = resolved.plan(vec![kernel("6.1"), kernel("6.12")], 1, "x".into(), None).unwrap();
    assert_eq!(plan.question.as_deref(), Some("Does it help?"));
    assert_eq!(toml::from_str::<Plan>(&toml::to_string(&plan).unwrap()).unwrap(), plan);
}

#[test]
fn old_qemu_with_an_old_kernel_and_two_cpus_is_refused() {
    let with = |clock| resolve(&Question { cpus: Some(2), clock: Some(clock), ..two() }, &OLD).unwrap();
    let plan_of = |resolved: &ResolvedQuestion, releases: [&str; 2], qemu| {
        resolved.plan(releases.map(kernel).to_vec(), 1, String::new(), Some(qemu))
    };
    // Turns of 50 ns end a CPU's wait for another, so only turns of 100 ms hang.
    let parallel = plan_of(&with(Clock::Exact), ["6.1.0-49-amd64", "6.12.1"], (7, 2)).unwrap();
    assert_eq!(parallel.clock, Clock::ExactParallel);
    let first = with(Clock::Exact1);
    let plan = |releases, qemu| plan_of(&first, releases, qemu);
    assert!(plan(["6.1.0-49-amd64", "6.12.1"], (7, 2)).unwrap_err().message.contains("QEMU 7.2 hangs"));
    plan(["6.1.0-49-amd64", "6.12.1"], (8, 1)).unwrap();
    plan(["6.12.0", "7.2.12"], (7, 2)).unwrap();
}

#[test]
fn a_refusal_of_a_file_names_its_line() {
    let text = "arms = [\"debian:6.1\", \"debian:6.12\"]\nworkloads = [\n  \"micro\",\n  \"dbism\",\n]\n";
    let refusal = resolve(&file::parse("s.toml", text).unwrap(), &OLD).unwrap_err();
    assert_eq!(refusal.to_string(), "s.toml:4: `dbism` is not a workload; did you mean `dbsim`?");
    let text = "arms = [\"debian:6.1\", \"debian:6.12\"]\nworkloads = [\"micro\"]\n[design]\npairs = 7\n";
    let refusal = resolve(&file::parse("s.toml", text).unwrap(), &OLD).unwrap_err();
    assert!(refusal.to_string().starts_with("s.toml:4: 7 pairs"), "{refusal}");
}

#[test]
fn settings_of_all_arms_are_laid_under_an_arms_own() {
    let q = Question {
        settings: vec![setting::parse("boot.preempt=none").unwrap(), setting::parse("boot.nosmt").unwrap()],
        ..question(&["debian:6.12", "debian:6.12,boot.preempt=full"])
    };
    let resolved = resolve(&q, &OLD).unwrap();
    assert_eq!(lever::cmdline(&resolved.arms[0].settings), ["preempt=none", "nosmt"]);
    assert_eq!(lever::cmdline(&resolved.arms[1].settings), ["nosmt", "preempt=full"]);
}

#[test]
fn the_hash_is_of_what_was_asked() {
    let hash = |q: &Question| resolve(q, &OLD).unwrap().sha256();
    let said = Question { clock: Some(Clock::Exact), pairs: Some(10), cpus: Some(1), ..two() };
    assert_eq!(hash(&two()), hash(&said), "defaults said aloud ask the same");
    for other in [
        Question { seed: Some(7), ..two() },
        Question { pairs: Some(12), ..two() },
        Question { workloads: vec!["micro".into()], ..two() },
        Question { memory_bytes: Some(2 << 30), ..two() },
        Question { margins: [(Kind::P99, 0.01)].into(), ..two() },
        question(&["debian:6.1", "debian:6.12,boot.nosmt"]),
    ] {
        assert_ne!(hash(&two()), hash(&other));
    }
}

#[test]
fn folders_are_named_after_the_arms() {
    let name = |arms: &[&str]| resolve(&question(arms), &OLD).unwrap().folder_name();
    assert!(name(&["debian:6.1", "./out/bzImage"]).starts_with("debian-6.1-vs-bzImage-"));
    assert!(name(&["debian:6.1", "debian:6.12", "debian:6.18"]).starts_with("debian-6.1-vs-2-others-"));
}

proptest! {
    #[test]
    fn a_plan_survives_its_file(seed in 0..schedule::SEED_LIMIT, half in 4u32..8) {
        let q = Question { pairs: Some(half * 2), ..question(&["debian:6.1", "debian:6.12,boot.mitigations=off"]) };
        let plan = resolve(&q, &OLD).unwrap().plan(vec![kernel("6.1"), kernel("6.12")], seed, "x".into(), None).unwrap();
        let text = toml::to_string(&plan).unwrap();
        prop_assert_eq!(toml::from_str::<Plan>(&text).unwrap(), plan);
    }

    #[test]
    fn the_command_that_repeats_asks_the_same(pairs in 5u32..8, margin in 0.1f64..20.0, seed in 0..schedule::SEED_LIMIT) {
        let q = Question {
            pairs: Some(pairs * 2),
            margins: [(Kind::P99, margin / 100.0)].into(),
            settings: vec![setting::parse("boot.nosmt").unwrap()],
            ..question(&["debian:6.1", "debian:6.12,boot.mitigations=off"])
        };
        let resolved = resolve(&q, &OLD).unwrap();
        let command = repeat::command(&q, &resolved, seed);
        let want = "bigiron compare debian:6.1 debian:6.12,boot.mitigations=off micro dbsim --set boot.nosmt --clock exact";
        prop_assert!(command.starts_with(want));
        let suffix = format!("--seed {seed}");
        prop_assert!(command.ends_with(&suffix));
    }
}

#[test]
fn a_machine_that_cannot_be_built_is_refused_with_one_that_can() {
    let with = |arm: &str, more: Question| Question { arms: question(&[arm, "debian:6.12"]).arms, ..more };
    let dbsim = || Question { workloads: vec!["dbsim".into()], ..Question::default() };
    let cpus = |cpus| Question { cpus: Some(cpus), ..dbsim() };
    refused(&with("debian:6.12,vm.numa=2", cpus(3)), &OLD, "divides 3 CPUs unevenly; use 2 or 4 CPUs");
    refused(&with("debian:6.12,vm.numa=32", dbsim()), &OLD, "less than 64M; give the guest at least 2G of memory");
    resolve(&with("debian:6.12,vm.numa=2", cpus(1)), &OLD).unwrap();
    refused(
        &with("debian:6.12,vm.threads=2", cpus(3)),
        &OLD,
        "does not divide 3 CPUs into whole cores; use 2 or 4 CPUs",
    );
    refused(&with("debian:6.12,vm.threads=2", cpus(1)), &OLD, "does not divide 1 CPUs into whole cores; use 2 CPUs");
    let both = "debian:6.12,vm.numa=2,vm.threads=2";
    refused(&with(both, cpus(2)), &OLD, "does not divide 2 CPUs on 2 nodes into whole cores; use 4 CPUs");
    resolve(&with(both, cpus(4)), &OLD).unwrap();
    let four = "debian:6.12,vm.disks=4";
    refused(&with(four, dbsim()), &OLD, "10 data files do not fit onto 4 disks, one on each; set `dbsim.data.files=4`");
    let micro = Question { workloads: vec!["micro".into()], ..Question::default() };
    refused(&with(four, micro), &OLD, "no workload of this study works on raw disks; `dbsim` does");
    let on = |storage: &str| Question { storage: Some(storage.into()), ..dbsim() };
    refused(&with("debian:6.12,vm.disks=16", on("hdd")), &OLD, "use storage `nvme`, `ssd` or `ram`");
    refused(&with("debian:6.12,vm.block-size=4096", on("hdd")), &OLD, "storage `hdd` has blocks of 512 bytes");
    resolve(&with("debian:6.12,vm.disks=16,vm.block-size=4096", on("ssd")), &OLD).unwrap();
    // 1,000 disks of 12 MiB, and what the kernel keeps for each.
    let many = with("debian:6.12,vm.disks=1000", dbsim());
    refused(&Question { memory_bytes: Some(1 << 30), ..many.clone() }, &OLD, "1G of memory is too little");
    refused(&many, &OLD, "does not fit into this machine");
    refused(
        &with("debian:6.12,mm.hugepages-2m=500", dbsim()),
        &OLD,
        "1000M of huge pages do not fit into a machine with 1G of memory",
    );
    let journal = |settings: &str| with(&format!("debian:6.12,fs.journal={settings}"), dbsim());
    refused(&journal("nvme,fs.type=btrfs"), &OLD, "not for btrfs: `ext3`, `ext4` or `xfs` can");
    refused(&journal("host-file"), &OLD, "depend on the host's time; use `nvme`, `ssd`, ");
    refused(&journal("ssd,vm.disks=16"), &OLD, "with `vm.disks=16` the data is on raw disks");
    let chat = Question { workloads: vec!["chat".into()], ..Question::default() };
    refused(&with("debian:6.12,fs.journal=nvme", chat), &OLD, "no workload of this study has a disk");
    resolve(&Question { storage: Some("hdd".into()), ..journal("nvme,fs.type=xfs") }, &OLD).unwrap();
    let local = Question { host: Some(HostKind::Local), ..two() };
    let running = Question { arms: question(&["running,fs.journal=nvme", "running"]).arms, ..local.clone() };
    refused(&running, &OLD, "acts on a guest");
    let running = Question { arms: question(&["running,vm.numa=2", "running"]).arms, ..local };
    refused(&running, &OLD, "acts on a guest");
}

#[test]
fn a_trial_may_be_silent_for_as_long_as_its_options_say() {
    let limit = |arms: &[&str], host: HostKind, workload: &str| {
        let q = Question {
            host: Some(host),
            workloads: vec![workload.into()],
            cpus: (host == HostKind::Vm).then_some(2),
            ..question(arms)
        };
        resolve(&q, &KVM).unwrap().hang_limit
    };
    assert_eq!(limit(&["debian:6.1", "debian:6.12,oltp.length=30m"], HostKind::Vm, "oltp"), 2 * (120 + 500));
    assert_eq!(limit(&["running", "running"], HostKind::Local, "micro"), 2 * 120);
    assert_eq!(limit(&["running", "running,oltp.length=30m"], HostKind::Local, "oltp"), 2 * (120 + 10 + 1800));
    assert_eq!(limit(&["running,dbsim.run.time=20m", "running"], HostKind::Local, "dbsim"), 2 * (120 + 1200));
    assert_eq!(limit(&["running,build.limit=2h", "running"], HostKind::Local, "build"), 2 * (120 + 7200));
    assert_eq!(limit(&["debian:6.1", "debian:6.12,dss.scale=0.4"], HostKind::Vm, "dss"), 2 * (120 + 120));
}

#[test]
fn builds_have_equally_many_pairs_and_are_enough_for_a_verdict() {
    let with = |builds, pairs, clock| Question {
        rebuilds: Some(builds),
        pairs,
        clock: Some(clock),
        host: Some(HostKind::Sim),
        workloads: vec!["micro".into()],
        ..two()
    };
    for (builds, pairs, clock, want) in [
        (10, None, Clock::Exact, 10),
        (6, None, Clock::Exact, 12),
        (7, None, Clock::Exact, 14),
        (8, None, Clock::Wall, 16),
        (6, Some(6), Clock::Exact, 6),
        (6, Some(12), Clock::Wall, 12),
    ] {
        let resolved = resolve(&with(builds, pairs, clock), &OLD).unwrap();
        assert_eq!(
            (resolved.pairs, resolved.rebuilds, &resolved.warning),
            (want, Some(builds), &None),
            "{builds} builds"
        );
    }
    // On the wall clock a pair alone has an order; balanced orders of 6 pairs have no verdict.
    refused(
        &with(6, Some(6), Clock::Wall),
        &OLD,
        "6 builds of each source with 1 pair each are too few for any verdict on the clock `wall`; use 8 or more, or 12 pairs",
    );
    refused(&with(5, None, Clock::Exact), &OLD, "5 builds of each source are too few for any verdict; use 6 or more");
    let many = Question { workloads: vec![], ..with(6, Some(6), Clock::Exact) };
    assert!(resolve(&many, &OLD).unwrap().warning.unwrap().contains("cannot carry 2 verdicts at once"));
    // A question without rebuilds has the hash that it always had.
    let plain = resolve(&Question { rebuilds: None, ..with(6, Some(8), Clock::Exact) }, &OLD).unwrap();
    assert!(!serde_json::to_string(&plain).unwrap().contains("rebuilds"));
    assert_ne!(plain.sha256(), resolve(&with(8, Some(8), Clock::Exact), &OLD).unwrap().sha256());
    // The command that repeats it names them.
    let q = with(6, Some(12), Clock::Exact);
    assert!(crate::study::repeat::command(&q, &resolve(&q, &OLD).unwrap(), 1).contains("--pairs 12 --rebuilds 6 "));
}
