use proptest::prelude::*;

use super::*;
use crate::{fixture, judge};
use bigiron_model::counters::Counted;
use bigiron_model::workload::Window;

/// Counters of one trial: one window of `chat messages` with these events and amounts.
fn trial(operations: u64, events: &[(&str, Option<u64>)], amounts: &[(&str, u64)]) -> Option<TrialCounters> {
    let counted = Counted {
        events: events.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect(),
        amounts: amounts.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect(),
        readings: 2,
        reading_ns: 1000,
    };
    TrialCounters::of(&[("micro".to_owned(), vec![(Window::of("fork-exit", operations, 1000), Some(counted))])])
}

/// The counters of a study of `pairs` pairs; `of` gives a trial's counters for an arm and a pair.
fn study(pairs: u32, of: impl Fn(usize, u64) -> Option<TrialCounters>) -> ComparedCounters {
    let plan = fixture::plan(&["debian:6.1", "debian:6.12"], pairs, vec![fixture::micro()]);
    let mut records = fixture::records(&plan, 0.01, |_, _, _| 1.0);
    for record in &mut records {
        let slot = &plan.slots[record.slot as usize];
        record.counters = of(slot.arm, u64::from(slot.pair));
    }
    let judgement = judge(&plan, &records);
    counters(&plan, &records, &judgement, &AtomicBool::new(false)).unwrap().pop().unwrap_or_default()
}

fn find<'a>(counts: &'a ComparedCounters, name: &str) -> &'a ComparedCounter {
    counts.counters.iter().find(|c| c.name == name).unwrap()
}

#[test]
fn a_counter_is_divided_by_what_was_done() {
    // B does twice as many operations, each with 50 % more context switches.
    let counts = study(10, |arm, pair| {
        let (operations, each) = [(100, 2), (200, 3)][arm];
        trial(
            operations,
            &[("sched.context-switches", Some(operations * each + pair % 2)), ("vm.pgfault", Some(0))],
            &[],
        )
    });
    let switches = find(&counts, "sched.context-switches");
    assert!((switches.a - 2.0).abs() < 0.02 && (switches.b - 3.0).abs() < 0.02, "{switches:?}");
    assert!((switches.change.mean - 1.5_f64.ln()).abs() < 0.01 && switches.discovery(), "{switches:?}");
    assert_eq!((counts.tested, counts.never.as_slice()), (1, &["vm.pgfault".to_owned()][..]));
    assert_eq!((switches.metrics.as_slice(), counts.reading_ns), (&["fork-exit".to_owned()][..], 500.0));
}

#[test]
fn few_events_are_no_change_whatever_their_ratio() {
    let counts =
        study(8, |arm, _| trial(1000, &[("irq.TLB", Some([1, 9][arm])), ("irq.RES", Some([0, 40][arm]))], &[]));
    let (few, more) = (find(&counts, "irq.TLB"), find(&counts, "irq.RES"));
    assert_eq!((few.change.mean, few.change.p, few.change.adjusted_p), (0.0, 1.0, None));
    assert!((more.change.mean - 4_f64.ln()).abs() < 1e-12, "{more:?}");
    assert!(more.differs() && counts.tested == 1);
}

#[test]
fn what_one_arm_does_not_have_is_no_zero() {
    let counts = study(8, |arm, _| match arm {
        0 => trial(10, &[("vm.a", Some(100)), ("vm.both", Some(50)), ("vm.lost", Some(70))], &[]),
        _ => trial(10, &[("vm.b", Some(100)), ("vm.both", Some(50)), ("vm.lost", None)], &[]),
    });
    assert_eq!(
        (counts.only_a.as_slice(), counts.only_b.as_slice()),
        (&["vm.a".to_owned()][..], &["vm.b".to_owned()][..])
    );
    let names: Vec<&str> = counts.counters.iter().map(|c| c.name.as_str()).collect();
    // A counter that is the same in every pair is not tested; a counter that one arm lacks is neither tested nor 0.
    assert_eq!((names, counts.tested, counts.never.len()), (vec!["vm.both"], 0, 0));
}

#[test]
fn amounts_are_not_divided_and_sizes_are_of_requests() {
    let counts = study(8, |arm, _| {
        let reads = [20, 10][arm];
        let events = [("block.read-bytes", Some(81_920)), ("block.reads", Some(reads))];
        trial(1000, &events, &[("slab.dentry", [1 << 20, 2 << 20][arm])])
    });
    let slab = find(&counts, "slab.dentry");
    assert_eq!((slab.a, slab.b, slab.metrics.len()), (1048576.0, 2097152.0, 0));
    let size = find(&counts, "block.bytes-per-read");
    assert_eq!((size.a, size.b), (4096.0, 8192.0));
}

#[test]
fn metrics_with_the_same_windows_are_told_once() {
    let of = |metrics: &[&[&str]]| {
        let windows = metrics.iter().zip(1..).map(|(metrics, n)| {
            let window =
                Window { metrics: metrics.iter().map(|m| (*m).to_owned()).collect(), operations: 10 * n, ns: n };
            let events = [("vm.a".to_owned(), Some(100 * n))].into();
            (window, Some(Counted { events, ..Counted::default() }))
        });
        TrialCounters::of(&[("micro".to_owned(), windows.collect())])
    };
    let always = study(8, |_, _| of(&[&["fork-exit", "null-call"]]));
    assert_eq!(always.counters.len(), 1);
    assert_eq!(always.counters[0].metrics, ["null-call", "fork-exit"]);
    // In one pair the two metrics have separate windows.
    let once = study(8, |_, pair| match pair {
        3 => of(&[&["fork-exit"], &["null-call"]]),
        _ => of(&[&["fork-exit", "null-call"]]),
    });
    let metrics: Vec<_> = once.counters.iter().map(|c| c.metrics.join(" ")).collect();
    assert_eq!(metrics, ["null-call", "fork-exit"]);
}

#[test]
fn unfinished_studies_and_old_records_have_no_counters() {
    assert_eq!(study(8, |_, _| None), ComparedCounters::default());
    let half = study(8, |arm, _| if arm == 0 { trial(10, &[("vm.a", Some(1))], &[]) } else { None });
    assert_eq!(half, ComparedCounters::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The kernels do not differ, so every flagged counter is flagged by chance; the correction keeps most studies free of them.
    #[test]
    fn an_interval_holds_the_mean_and_p_agrees_with_it(counts in prop::collection::vec(1_000_u64..1_100, 24)) {
        let found = study(12, |arm, pair| {
            trial(10, &[("sched.context-switches", Some(counts[2 * pair as usize + arm]))], &[])
        });
        if let Some(counter) = found.counters.first() {
            let (low, high) = counter.change.ci95.unwrap();
            prop_assert!(low <= counter.change.mean && counter.change.mean <= high);
            prop_assert_eq!(low > 0.0 || high < 0.0, counter.change.p <= 0.05);
            prop_assert_eq!(counter.change.adjusted_p, Some(counter.change.p));
        }
    }
}
