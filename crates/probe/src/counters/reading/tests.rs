use proptest::prelude::*;

use super::*;

/// A reading of exactly these files.
fn reading(end: bool, files: &[(&str, &str)]) -> Reading {
    Reading::of(end, &|path| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned()))
}

fn interrupts(cpus: &[u32], tlb: &[u64]) -> String {
    let head: Vec<String> = cpus.iter().map(|cpu| format!("CPU{cpu}")).collect();
    let row: Vec<String> = tlb.iter().map(u64::to_string).collect();
    format!("  {}\nTLB: {}   TLB shootdowns\n", head.join(" "), row.join(" "))
}

fn tlb(before: &str, after: &str) -> Option<u64> {
    let reading = |text| reading(false, &[("interrupts", text)]);
    between(&reading(before), &reading(after)).events["irq.TLB"]
}

#[test]
fn what_happened_is_the_difference_and_amounts_are_those_of_the_end() {
    let before = reading(false, &[("vmstat", "pgfault 10\nold 1\n"), ("meminfo", "Slab: 1 kB\n")]);
    let after = reading(true, &[("vmstat", "pgfault 17\nnew 5\n"), ("meminfo", "Slab: 9 kB\n")]);
    let counted = between(&before, &after);
    let events = [("vm.new", None), ("vm.old", None), ("vm.pgfault", Some(7))];
    assert_eq!(counted.events, events.map(|(n, v)| (n.to_owned(), v)).into());
    assert_eq!(counted.amounts, [("mem.Slab".to_owned(), 9 << 10)].into());
}

#[test]
fn numbers_of_32_bits_come_round_and_those_of_64_do_not() {
    let (max, both) = (u64::from(u32::MAX), [0, 1]);
    assert_eq!(tlb(&interrupts(&both, &[max - 1, 5]), &interrupts(&both, &[3, 6])), Some(6));
    assert_eq!(tlb(&interrupts(&both, &[max + 10, 5]), &interrupts(&both, &[3, 6])), None);
    let vm = |n: u64| reading(false, &[("vmstat", &format!("pgfault {n}\n"))]);
    assert_eq!(between(&vm(9), &vm(3)).events["vm.pgfault"], None);
}

#[test]
fn a_cpu_that_comes_or_goes_leaves_its_counters_unknown() {
    let two = interrupts(&[0, 1], &[4, 5]);
    assert_eq!(tlb(&two, &interrupts(&[0], &[9])), None);
    assert_eq!(tlb(&two, &interrupts(&[0, 2], &[9, 9])), None);
    assert_eq!(tlb(&two, &interrupts(&[0, 1, 2], &[9, 9, 9])), None);
    assert_eq!(tlb(&interrupts(&[0, 2], &[4, 5]), &interrupts(&[0, 2], &[5, 7])), Some(3));
}

#[test]
fn spans_of_a_window_add_up_and_what_one_does_not_know_is_not_known() {
    let counted = |events: &[(&str, Option<u64>)], slab, readings| Counted {
        events: events.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect(),
        amounts: [("mem.Slab".to_owned(), slab)].into(),
        readings,
        reading_ns: 100 * readings,
    };
    let mut sum = counted(&[("a", Some(1)), ("b", None), ("c", Some(2))], 5, 2);
    sum.and(counted(&[("a", Some(4)), ("b", Some(1)), ("d", Some(1))], 7, 2));
    assert_eq!(sum, counted(&[("a", Some(5)), ("b", None), ("c", None), ("d", None)], 7, 4));
}

#[test]
fn this_kernel_counts() {
    let before = Reading::now(false, None);
    let bytes = std::fs::read("/proc/self/exe").unwrap();
    let counted = between(&before, &Reading::now(true, None));
    assert!(!bytes.is_empty() && counted.events["sched.context-switches"].is_some());
    assert!(counted.amounts.contains_key("mem.PageTables"));
}

proptest! {
    /// Whatever the values of 32-bit counters, the difference is the amount added.
    #[test]
    fn what_is_added_comes_out(cells in prop::collection::vec((0..=u32::MAX, 0..u32::MAX), 1..5)) {
        let cpus: Vec<u32> = (0..cells.len() as u32).collect();
        let before: Vec<u64> = cells.iter().map(|(n, _)| u64::from(*n)).collect();
        let after: Vec<u64> = cells.iter().map(|(n, more)| u64::from(n.wrapping_add(*more))).collect();
        let sum = cells.iter().map(|(_, more)| u64::from(*more)).sum::<u64>();
        prop_assert_eq!(tlb(&interrupts(&cpus, &before), &interrupts(&cpus, &after)), Some(sum));
    }
}
