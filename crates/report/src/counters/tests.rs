use super::*;
use crate::{Extras, csv, html, text};
use bigiron_judge::counters::CounterChange;
use bigiron_judge::fixture::{micro, plan, records};
use bigiron_judge::judge;

/// A counter of `micro fork-exit`, or an amount; `adjusted` is its adjusted p.
fn counter(name: &str, a: f64, b: f64, half: f64, adjusted: Option<f64>) -> ComparedCounter {
    let mean = if a > 0.0 && b > 0.0 { (b / a).ln() } else { 3.0 };
    let metrics = if words::is_amount(name) { Vec::new() } else { vec!["fork-exit".to_owned()] };
    let change =
        CounterChange { mean, sd: 0.01, ci95: Some((mean - half, mean + half)), p: 0.002, adjusted_p: adjusted };
    ComparedCounter {
        workload: "micro".to_owned(),
        metrics,
        name: name.to_owned(),
        unit: words::unit(name),
        a,
        b,
        pairs: 10,
        change,
    }
}

/// Three that survive, one that may be chance, and one that is equal in both arms.
pub(crate) fn counts() -> ComparedCounters {
    ComparedCounters {
        counters: vec![
            counter("sched.context-switches", 1.9, 3.1, 0.01, Some(0.01)),
            counter("sched.run-queue-wait-ns", 12_000.0, 9_000.0, 0.02, Some(0.02)),
            counter("vm.pgalloc_<odd>", 0.0, 2.5, 0.1, Some(0.03)),
            counter("vm.pgfault", 10.0, 11.0, 0.02, Some(0.2)),
            counter("mem.PageTables", 4096.0 * 80.0, 4096.0 * 80.0, 0.0, None),
        ],
        never: vec!["vm.oom_kill".to_owned()],
        only_a: vec![],
        only_b: vec!["vm.vma_lock_success".to_owned()],
        tested: 4,
        reading_ns: 1_234_000.0,
    }
}

#[test]
fn text_has_those_that_survive_the_largest_change_first() {
    let counts = counts();
    let found = shown(&counts, false);
    let names: Vec<&str> = found.counters.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["vm.pgalloc_<odd>", "sched.context-switches", "sched.run-queue-wait-ns"]);
    assert_eq!((found.surviving, found.survive, shown(&counts, true).counters.len()), (3, true, 5));
    assert_eq!(
        sum(&counts, &found),
        "Of 4 counters that are not equal in every pair, 3 differ by more than chance (false discovery rate 5 %). 1 counter exists only in B's kernel."
    );
    let mut chance = counts.clone();
    for counter in &mut chance.counters {
        counter.change.adjusted_p = counter.change.adjusted_p.map(|_| 0.06);
    }
    let found = shown(&chance, false);
    assert!(!found.survive && found.counters.len() == 4);
    assert!(
        sum(&chance, &found).contains("the intervals of those marked ? exclude no change"),
        "{}",
        sum(&chance, &found)
    );
}

#[test]
fn a_name_has_one_line_and_says_where_else_it_differs() {
    let mut counts = counts();
    for (metric, b) in [("null-call", 30.0), ("page-fault", 2.5)] {
        let more = counter("sched.context-switches", 1.9, b, 0.01, Some(0.01));
        counts.counters.push(ComparedCounter { metrics: vec![metric.to_owned()], ..more });
    }
    let found = shown(&counts, false);
    let places: Vec<String> = found.counters.iter().map(|c| format!("{}: {}", c.name, found.place(c))).collect();
    assert_eq!(
        places,
        [
            "vm.pgalloc_<odd>: micro fork-exit",
            "sched.context-switches: micro null-call and 2 others",
            "sched.run-queue-wait-ns: micro fork-exit"
        ]
    );
    assert!(sum(&counts, &found).contains("; 2 of them are not shown here"), "{}", sum(&counts, &found));
    let all = shown(&counts, true);
    assert_eq!((all.counters.len(), all.place(all.counters[0])), (7, "micro fork-exit".to_owned()));
}

#[test]
fn figures_are_short_and_what_is_the_same_has_no_change() {
    let figures = Figures::of(&counter("sched.context-switches", 1.9, 3.1, 0.01, Some(0.01)));
    let change = figures.change.unwrap();
    assert_eq!((figures.a.to_string(), figures.b.to_string()), ("1.90".into(), "3.10".into()));
    assert_eq!((change.to_string(), figures.interval), ("+63.2 %".into(), "+61.5 … +64.8".into()));
    let same = Figures::of(&counter("mem.PageTables", 327_680.0, 327_680.0, 0.0, None));
    assert_eq!((same.a.to_string(), same.change, same.interval.as_str()), ("320.0 KiB".into(), None, ""));
    let new = Figures::of(&counter("vm.x", 0.0, 2.5, 0.1, Some(0.01)));
    assert_eq!((new.a.to_string(), new.b.to_string()), ("0.000".into(), "2.500".into()));
}

#[test]
fn what_has_words_stands_beside_the_causes() {
    assert_eq!(
        beside(&counts(), "micro", "fork-exit").as_deref(),
        Some(
            "Counted there per operation: 3.10 context switches instead of 1.90 and 9.00 µs waited for a CPU instead of 12.00 µs."
        )
    );
    assert_eq!(beside(&counts(), "micro", "null-call"), None);
}

#[test]
fn every_format_has_them() {
    let plan = plan(&["debian:6.1", "debian:6.12"], 10, vec![micro()]);
    let records = records(&plan, 0.004, |_, _, _| 1.0);
    let judgement = judge(&plan, &records);
    let print = |all_counters| {
        let extras = Extras { counters: vec![counts()], all_counters, ..Extras::default() };
        let report = Report::new(&plan, &records, &judgement, &extras);
        (text(&report), html(&report), csv(&report))
    };
    let (few, page, table) = print(false);
    assert!(few.contains("\nCounters\n") && !few.contains("vm.pgfault"), "{few}");
    assert!(few.lines().all(|line| line.chars().count() <= 100), "{few}");
    let (all, ..) = print(true);
    assert!(all.contains("  vm.pgfault") && all.contains("+10.0 % ?"), "{all}");
    assert!(page.contains("vm.pgalloc_&lt;odd&gt;") && page.contains("vm.oom_kill") && page.contains("vm.pgfault"));
    let row = table.lines().find(|line| line.contains("fork-exit/sched.context-switches")).unwrap();
    assert!(row.starts_with("debian:6.12,debian:6.1,micro,fork-exit/sched.context-switches,counter,count,"), "{row}");
    assert_eq!(row.matches(',').count(), table.lines().next().unwrap().matches(',').count());
}
