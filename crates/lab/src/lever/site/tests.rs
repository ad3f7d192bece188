//! Levers that a machine made of files has, and its messages about those that it lacks.

use super::*;
use crate::lever;

/// A machine with `files`, whose disk `vda` holds the data.
pub(crate) fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let at = below(root.path(), Path::new(path));
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }
    root
}

/// No network.
pub(crate) fn nobody() -> &'static TrialLink {
    Box::leak(Box::new(TrialLink::none(net::NOBODY)))
}

pub(crate) fn site(root: &tempfile::TempDir) -> Site<'_> {
    let vda = || vec!["vda".to_owned()];
    let disks = Ok(Disks { devices: vec!["dm-0".to_owned()], disks: vda() });
    Site { root: root.path(), disks, link: nobody() }
}

fn resolved(root: &tempfile::TempDir, text: &str) -> Result<ResolvedSetting, String> {
    site(root).resolve(&lever::parse(text).unwrap())
}

fn paths(action: ResolvedSetting) -> Vec<String> {
    match action {
        ResolvedSetting::Write { paths, .. } => paths.iter().map(|p| p.display().to_string()).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_kernels_own_offer_is_in_the_refusal() {
    let root = machine(&[
        ("/sys/block/vda/queue/scheduler", "none [mq-deadline] bfq \n"),
        ("/sys/block/vda/queue/iosched/fifo_batch", "16\n"),
        ("/sys/block/vda/queue/nr_requests", "256\n"),
        ("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n"),
        ("/sys/devices/system/cpu/online", "0-1\n"),
        ("/sys/devices/system/cpu/smt/control", "notsupported\n"),
        ("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance\n"),
        ("/sys/devices/system/cpu/cpufreq/policy0/scaling_available_governors", "performance powersave\n"),
        ("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io\n"),
        ("/sys/kernel/mm/transparent_hugepage/khugepaged/x", "always [never]\n"),
        ("/sys/kernel/many", "a 1\nb 2\n"),
    ]);
    for (text, want) in [
        ("block.scheduler=kyber", "the kernel offers none, mq-deadline, bfq (`/sys/block/vda/queue/scheduler`)"),
        ("block.iosched.low_latency=0", "the scheduler `mq-deadline` has fifo_batch"),
        ("mm.hugepages-1g=2", "it has hugepages-2048kB"),
        ("mm.mglru=on", "Linux 6.1 is the first that can have it"),
        ("cpu.pin=0,7", "CPU 7 is not online; the kernel has 0-1"),
        ("cpu.smt=off", "`notsupported`: no core has two threads"),
        ("cpu.governor=schedutil", "the kernel offers performance, powersave"),
        ("cpu.boost=on", "this kernel has no `/sys/devices/system/cpu/cpufreq/boost`"),
        ("cpu.sched.base_slice_ns=1", "debugfs is not mounted"),
        ("memory.limit=64M", "offers `cpuset cpu io`, without `memory`"),
        ("mm.swap=zram:64M", "no zram"),
        ("sysctl.vm.nosuchthing=1", "this kernel has no `/proc/sys/vm/nosuchthing`"),
        ("file./sys/kernel/mm/transparent_hugepage/khugepaged/x=sometimes", "the kernel offers always, never"),
        ("file./sys/kernel/many=3", "several lines"),
        ("fs.type=xfs", "the disk of a guest"),
        ("net.tso=off", "no workload of this study has clients behind network devices"),
    ] {
        let why = resolved(&root, text).unwrap_err();
        assert!(why.contains(want), "{text}: {why}");
    }
    assert_eq!(paths(resolved(&root, "block.scheduler=bfq").unwrap()), ["/sys/block/vda/queue/scheduler"]);
    assert_eq!(resolved(&root, "cpu.pin=0-1").unwrap(), ResolvedSetting::Pin(vec![0, 1]));
}

#[test]
fn a_lever_of_every_cpu_has_all_their_files() {
    let governor = |n: u32| format!("/sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor");
    let offered = |n: u32| format!("/sys/devices/system/cpu/cpufreq/policy{n}/scaling_available_governors");
    let (g, o) = ([0, 4, 10].map(governor), [0, 4, 10].map(offered));
    let mut files: Vec<(&str, &str)> = g.iter().map(|p| (p.as_str(), "powersave\n")).collect();
    files.extend(o.iter().map(|p| (p.as_str(), "performance powersave\n")));
    files.push(("/sys/devices/system/cpu/cpufreq/policy_of_mine/scaling_governor", "x\n"));
    let root = machine(&files);
    let mut want = g.clone();
    want.sort();
    assert_eq!(paths(resolved(&root, "cpu.governor=performance").unwrap()), want);
}

#[test]
fn read_ahead_is_the_devices_and_the_rest_the_disks() {
    let root = machine(&[("/sys/block/dm-0/queue/read_ahead_kb", "128\n"), ("/sys/block/vda/queue/nomerges", "0\n")]);
    assert_eq!(paths(resolved(&root, "block.read-ahead=1M").unwrap()), ["/sys/block/dm-0/queue/read_ahead_kb"]);
    assert_eq!(paths(resolved(&root, "block.nomerges=2").unwrap()), ["/sys/block/vda/queue/nomerges"]);
    let disks = Err("`x` is on tmpfs, which has no block device".into());
    let nowhere = Site { root: root.path(), disks, link: nobody() };
    let why = nowhere.resolve(&lever::parse("block.nomerges=2").unwrap()).unwrap_err();
    assert!(why.contains("is on tmpfs"), "{why}");
}
