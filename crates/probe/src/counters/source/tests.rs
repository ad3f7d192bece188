//! The samples are lines of real files: of 5.10 (schedstat 15, no `irq` pressure), 6.1, 6.12 (schedstat 16) and 7.x (schedstat 17).

use proptest::prelude::*;

use super::*;

fn of(file: &str, text: &str) -> Values {
    with(file, text, false)
}

fn with(file: &str, text: &str, schedstats: bool) -> Values {
    let mut values = Values::new();
    parse(file, text, schedstats, &mut values);
    values
}

fn names(values: &Values) -> Vec<&str> {
    values.keys().map(String::as_str).collect()
}

fn total(n: u64) -> Option<CounterValue> {
    Some(CounterValue::Total(n))
}

#[test]
fn events_of_memory_are_told_from_amounts() {
    let text = "nr_free_pages 1728652\nnr_zone_inactive_anon 448382\nnuma_hit 2078681457\nworkingset_nodes 56687\nworkingset_refault_file 40105405\n\
                nr_dirtied 1234\nnr_written 99\nnr_memmap_pages 9\npgpgin 5\npgfault 18446744073709551615\nthp_fault_alloc 3\nnr_tlb_remote_flush 8\n\
                nr_unstable 0\npgpromote_success 1\n";
    let values = of("vmstat", text);
    assert_eq!(
        names(&values),
        [
            "vm.nr_dirtied",
            "vm.nr_tlb_remote_flush",
            "vm.nr_written",
            "vm.numa_hit",
            "vm.pgfault",
            "vm.pgpgin",
            "vm.pgpromote_success",
            "vm.thp_fault_alloc",
            "vm.workingset_refault_file"
        ]
    );
    assert_eq!(values.get("vm.pgfault").cloned(), total(u64::MAX));
}

#[test]
fn the_machines_totals_are_named() {
    let text = "cpu  100 2 30 4000 5 6 7 8 0 0\ncpu0 50 1 15 2000 2 3 3 4 0 0\nintr 987654 0 9 0\nctxt 13579\nbtime 1790000000\nprocesses 246\n\
                procs_running 1\nsoftirq 55 1 2\n";
    let values = of("stat", text);
    assert_eq!(values.get("sched.context-switches").cloned(), total(13_579));
    assert_eq!(values.get("sched.forks").cloned(), total(246));
    assert_eq!(values.get("irq.all").cloned(), total(987_654));
    assert_eq!(values.get("cpu.system-ns").cloned(), total(300_000_000));
    assert_eq!(values.get("cpu.steal-ns").cloned(), total(80_000_000));
    assert_eq!(values.len(), 11);
}

#[test]
fn interrupts_are_rows_of_cpus_and_those_of_devices_add_up() {
    // CPU 1 is off.
    let text = "            CPU0       CPU2       \n   0:         23          0   IO-APIC   2-edge      timer\n  24:          7       1000   PCI-MSI 49152-edge      virtio0-req.0\n\
                NMI:          0          0   Non-maskable interrupts\nTLB:     752371     773738   TLB shootdowns\nERR:          4\nMIS:          0\n";
    let values = of("interrupts", text);
    assert_eq!(names(&values), ["irq.ERR", "irq.MIS", "irq.NMI", "irq.TLB", "irq.devices"]);
    assert_eq!(values["irq.TLB"], CounterValue::Cells(vec![(0, 0, 752_371), (0, 2, 773_738)]));
    assert_eq!(values["irq.devices"], CounterValue::Cells(vec![(0, 0, 23), (0, 2, 0), (24, 0, 7), (24, 2, 1000)]));
    assert_eq!(values["irq.ERR"], CounterValue::Cells(vec![(0, 0, 4)]));
    let one = of("interrupts", "           CPU0       \nLOC:       1234   Local timer interrupts\nERR:          4\n");
    assert_eq!(one["irq.LOC"], CounterValue::Cells(vec![(0, 0, 1234)]));
    assert_eq!(one["irq.ERR"], CounterValue::Cells(vec![(0, 0, 4)]));
}

#[test]
fn softirqs_keep_the_kernels_names() {
    let text = "                    CPU0       CPU1       \n          HI:          0          1\n      NET_RX:        346        342\n     IRQ_POLL:  4294967295   0\n     SHORT:  1\n";
    let values = of("softirqs", text);
    assert_eq!(names(&values), ["softirq.HI", "softirq.IRQ_POLL", "softirq.NET_RX"]);
    assert_eq!(values["softirq.NET_RX"], CounterValue::Cells(vec![(0, 0, 346), (0, 1, 342)]));
}

/// Lines of one CPU and one domain, in which 40 + 1 + 3 tasks were moved.
fn schedstat_of(version: u32) -> String {
    let (head, kinds) = match version {
        17 => ("domain0 MC 3", "100 90 2 5 6 7 8 40 0 1 2 10 9 0 0 0 0 0 1 0 0 0 20 9 0 0 0 0 0 3 0 0 0"),
        _ => ("domain0 3", "100 90 2 5 40 0 1 2 10 9 0 0 1 0 0 0 20 9 0 0 3 0 0 0"),
    };
    format!(
        "version {version}\ntimestamp 4294967295\ncpu0 11 0 22 33 44 55 6666 7777 88\n{head} {kinds} 5 0 4 0 0 0 0 0 0 1 2 3\n"
    )
}

#[test]
fn what_the_scheduler_does_not_count_is_not_there() {
    for version in [15, 16, 17] {
        let text = schedstat_of(version);
        let values = of("schedstat", &text);
        assert_eq!(names(&values), ["sched.run-ns", "sched.run-queue-wait-ns", "sched.timeslices"], "{version}");
        assert_eq!(values["sched.run-queue-wait-ns"], CounterValue::Cells(vec![(0, 0, 7777)]));
        let all = with("schedstat", &text, true);
        assert_eq!(all["sched.wakeups"], CounterValue::Cells(vec![(0, 0, 44)]));
        assert_eq!(all["sched.yields"], CounterValue::Cells(vec![(0, 0, 11)]));
        assert_eq!(all["sched.tasks-pulled"], CounterValue::Cells(vec![(0, 0, 44)]), "{version}");
        assert_eq!(all.len(), 9);
    }
    // The meaning of a later version is not guessed.
    assert!(
        !with("schedstat", &schedstat_of(15).replace("version 15", "version 18"), true)
            .contains_key("sched.tasks-pulled")
    );
}

#[test]
fn requests_of_disks_are_counted_once() {
    let text = "   7       0 loop0 5099959 137 40863304 510799 4886067 3728 33224098 46059 0 62492 574962 0 0 0 0 2441515 18104\n \
                254       0 vda 10 2 80 7 20 3 160 9 0 5 16 1 0 8 1 4 2\n 254       1 vda1 9 2 72 6 20 3 160 9 0 5 15 1 0 8 1\n \
                259       0 nvme0n1 1 0 8 1 0 0 0 0 0 1 1 0 0 0 0\n 259       1 nvme0n1p1 1 0 8 1 0 0 0 0 0 1 1 0 0 0 0\n \
                253       0 dm-0 100 0 800 7 0 0 0 0 0 1 1 0 0 0 0 0 0\n";
    let values = of("diskstats", text);
    assert_eq!(values["block.reads"], CounterValue::Cells(vec![(1, 0, 10), (3, 0, 1)]));
    assert_eq!(values["block.written-bytes"], CounterValue::Cells(vec![(1, 0, 81_920), (3, 0, 0)]));
    assert_eq!(values["block.queue-time-ns"], CounterValue::Cells(vec![(1, 0, 16_000_000), (3, 0, 1_000_000)]));
    // Flushes have been counted since 5.5.
    assert_eq!(values["block.flushes"], CounterValue::Cells(vec![(1, 0, 4)]));
    assert!(is_partition("sda1", "sda") && !is_partition("loop10", "loop1") && !is_partition("sdaa", "sda"));
}

#[test]
fn pressure_is_time() {
    let values = of(
        "pressure/io",
        "some avg10=0.10 avg60=3.02 avg300=13.25 total=3271\nfull avg10=0.02 avg60=1.75 avg300=9.55 total=11\n",
    );
    assert_eq!(values.get("psi.io-some-ns").cloned(), total(3_271_000));
    assert_eq!(values.get("psi.io-full-ns").cloned(), total(11_000));
}

#[test]
fn amounts_are_what_there_is() {
    let values = of(
        "meminfo",
        "MemTotal:        1015716 kB\nSlab:              29108 kB\nPageTables:          332 kB\nHugePages_Total:       0\n",
    );
    assert_eq!(
        values,
        [("mem.PageTables", 332 << 10), ("mem.Slab", 29_108 << 10)]
            .map(|(n, v)| (n.to_owned(), CounterValue::Gauge(v)))
            .into()
    );
    let text = "slabinfo - version: 2.1\n# name            <active_objs> <num_objs> <objsize>\ndentry             10000  10500    192   21    1 : tunables    0    0    0 : slabdata      2      2      0\n";
    assert_eq!(of("slabinfo", text), [("slab.dentry".to_owned(), CounterValue::Gauge(1_920_000))].into());
}

proptest! {
    /// No text from a kernel stops a trial.
    #[test]
    fn no_text_is_too_strange(text in "([a-zA-Z0-9_:. -]{0,40}\n){0,12}", schedstats: bool) {
        for file in EDGES.iter().chain(&END) {
            with(file, &text, schedstats);
            with(file, &format!("CPU0 CPU1\n{text}"), schedstats);
        }
    }
}
