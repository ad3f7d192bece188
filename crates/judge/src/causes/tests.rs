use super::*;
use crate::{fixture, judge};

fn executed(metric: &str, operations: u64, ns: u64, functions: &[(&str, u64)]) -> Executed {
    let functions = functions.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
    Executed {
        workload: "micro".to_owned(),
        metric: metric.to_owned(),
        operations,
        ns,
        functions,
        calls: Vec::new(),
        modelled: Vec::new(),
    }
}

/// A study in which B's fork costs 10 % more, and evidence for its first pair.
fn study(a: &[(&str, u64)], b: &[(&str, u64)], ns: (u64, u64)) -> (Plan, Judgement, Vec<Evidence>) {
    let plan = fixture::plan(&["debian:6.1", "debian:6.12"], 10, vec![fixture::micro()]);
    let records = fixture::records(&plan, 1e-4, |_, _, metric| if metric == "fork-exit" { 1.1 } else { 1.0 });
    let judgement = judge(&plan, &records);
    let of = |slot: u32, ns, functions| Evidence {
        metrics: records[slot as usize].metrics.clone(),
        cpu_s: 2.0 * records[slot as usize].host.cpu_s,
        ..fixture::evidence(slot, vec![executed("fork-exit", 10, ns, functions)])
    };
    let evidence = vec![of(0, ns.0, a), of(1, ns.1, b)];
    let looking = looking(&plan, &records, &evidence);
    assert_eq!((looking.trials, looking.identical), (2, 2));
    (plan, judgement, evidence)
}

fn found(a: &[(&str, u64)], b: &[(&str, u64)], ns: (u64, u64)) -> Causes {
    let (plan, judgement, evidence) = study(a, b, ns);
    let mut all = causes(&plan, &judgement, &evidence);
    assert_eq!(all.len(), 1, "one line differs: {all:?}");
    all.remove(0)
}

#[test]
fn only_both_arms_of_lines_that_differ_are_looked_into() {
    let (plan, judgement, _) = study(&[], &[], (10_000, 11_000));
    assert_eq!(slots(&plan, &judgement, 1), [0, 1]);
    assert_eq!(slots(&plan, &judgement, 2), [0, 1, 2, 3]);
    let same = fixture::records(&plan, 1e-4, |_, _, _| 1.0);
    assert_eq!(slots(&plan, &judge(&plan, &same), 8), [] as [u32; 0]);
}

#[test]
fn trials_looked_into_are_compared_with_the_attempt_that_was_judged() {
    let (mut plan, _, mut evidence) = study(&[], &[], (10_000, 11_000));
    plan.clock = bigiron_model::clock::Clock::Wall;
    let mut records = fixture::records(&plan, 1e-4, |_, _, metric| if metric == "fork-exit" { 1.1 } else { 1.0 });
    // The host spoilt trial 1, so the pair was run again and the first result of trial 0 does not count.
    let again: Vec<Record> = records[..2].iter().map(|r| Record { attempt: 1, ..r.clone() }).collect();
    fixture::void(&mut records[1]);
    records[0].metrics.scale(3.0);
    records[0].host.cpu_s *= 10.0;
    records.extend(again);
    assert_eq!(looking(&plan, &records, &evidence).identical, 2);
    assert_eq!(looking(&plan, &records, &evidence).slow_down, Some(2.0));
    evidence.truncate(1);
    evidence[0].metrics.clone_from(&records[0].metrics);
    assert_eq!(looking(&plan, &records, &evidence).identical, 0);
}

#[test]
fn functions_and_waiting_are_the_whole_difference() {
    let a = [("copy_page_range", 4000), ("do_exit", 3000), ("memcpy", 500)];
    let b = [("copy_page_range", 4900), ("do_exit", 2950), ("memcpy", 500), ("rseq_fork", 20)];
    let found = found(&a, &b, (10_000, 11_000));
    assert_eq!((found.a, found.b, found.delta()), (1000.0, 1100.0, 100.0));
    let names: Vec<_> = found.causes.iter().map(|c| (c.name.as_str(), c.delta())).collect();
    // 2,500 ns of A's window and 2,630 ns of B's are not instructions.
    assert_eq!(names, [("copy_page_range", 90.0), (WAITING, 13.0), ("do_exit", -5.0), ("rseq_fork", 2.0)]);
    assert!((found.explained(names.len()) - 1.0).abs() < 1e-12);
    assert_eq!(found.listed, 3);
    assert_eq!((found.gone, found.new), (0.0, 2.0));
}

#[test]
fn on_several_cpus_the_time_of_the_busy_ones_is_divided() {
    // A kept 1.25 CPUs busy, B 1.5.
    let found = found(&[("f", 9000), ("g", 3500)], &[("f", 12_000), ("g", 4500)], (10_000, 11_000));
    assert_eq!((found.cpus, found.a, found.b), (1.5, 1500.0, 1650.0));
    let names: Vec<_> = found.causes.iter().map(|c| (c.name.as_str(), c.a, c.b)).collect();
    assert_eq!(names, [("f", 900.0, 1200.0), (WAITING, 250.0, 0.0), ("g", 350.0, 450.0)]);
    assert_eq!((found.gone, found.new), (0.0, 0.0), "waiting is no function");
}

#[test]
fn the_busier_arm_waits_for_nothing_however_many_operations_its_windows_have() {
    let windows = [(19_000, 10), (15_000, 30)];
    let per_operation =
        windows.map(|(busy, operations)| (f64::from(busy) / f64::from(operations), 10_000.0 / f64::from(operations)));
    let cpus = most_busy([per_operation.to_vec(), vec![(500.0, 1000.0)]]);
    let waiting: f64 = per_operation.iter().map(|(busy, ns)| cpus * ns - busy).sum();
    assert!((1.5..1.9).contains(&cpus) && waiting.abs() < 1e-9, "{cpus} {waiting}");
    assert_eq!((without_rounding(waiting, 1000.0), without_rounding(-0.5, 1000.0)), (0.0, -0.5));
}

#[test]
fn a_function_under_another_name_is_held_against_its_former_self() {
    let a = [("__kmem_cache_alloc_node", 1000), ("vfs_write", 700)];
    let b = [("kmem_cache_alloc_node", 1900), ("vfs_read", 800)];
    let found = found(&a, &b, (10_000, 11_000));
    let names: Vec<_> = found.causes.iter().map(|c| (c.name.as_str(), c.formerly.as_deref(), c.delta())).collect();
    assert_eq!(
        names,
        [
            ("kmem_cache_alloc_node", Some("__kmem_cache_alloc_node"), 90.0),
            ("vfs_read", None, 80.0),
            ("vfs_write", None, -70.0),
        ]
    );
    assert_eq!((found.gone, found.new), (70.0, 80.0));
}

#[test]
fn alike_in_name_but_not_in_cost_is_another_function() {
    let found = found(&[("memset", 5000)], &[("memset_orig", 200)], (10_000, 11_000));
    assert!(found.causes.iter().all(|c| c.formerly.is_none()), "{found:?}");
}

#[test]
fn a_metric_without_a_window_has_no_causes() {
    let (plan, judgement, mut evidence) = study(&[("a", 1)], &[("a", 1)], (10, 20));
    evidence[1].windows[0].metric = "null-call".to_owned();
    assert_eq!(causes(&plan, &judgement, &evidence), []);
}

/// The same study with a thousand operations in each window, sampled on two CPUs every microsecond.
fn sampled(a: &[(&str, u64)], b: &[(&str, u64)], ns: (u64, u64)) -> (Causes, Profiling) {
    let (plan, judgement, mut evidence) = study(a, b, ns);
    for e in &mut evidence {
        let samples = e.windows[0].functions.iter().map(|(_, n)| n).sum();
        e.windows[0].operations = 1000;
        e.sampled =
            Some(Sampled { event: "cpu-clock".to_owned(), period_ns: 1000, cpus: 2, samples, lost: 1, others: 0 });
    }
    let mut all = causes(&plan, &judgement, &evidence);
    assert_eq!(all.len(), 1, "one line differs: {all:?}");
    let records = fixture::records(&plan, 1e-4, |_, _, metric| if metric == "fork-exit" { 1.1 } else { 1.0 });
    (all.remove(0), looking(&plan, &records, &evidence))
}

#[test]
fn a_sampled_cause_differs_by_more_than_two_standard_errors() {
    // Differences in standard errors (the square root of both arms' samples): 19, 1.7, 0.4, 3 for a function only in A, and 2 for one only in B.
    let a = [("copy_page_range", 400), ("at_two", 48), ("do_exit", 300), ("old", 9)];
    let b = [("copy_page_range", 1125), ("at_two", 66), ("do_exit", 310), ("rare", 4)];
    let (found, looking) = sampled(&a, &b, (1_000_000, 1_600_000));
    let names: Vec<_> = found.causes.iter().map(|c| (c.name.as_str(), c.delta())).collect();
    assert_eq!(names, [("copy_page_range", 725.0), ("waiting", -148.0), ("old", -9.0)]);
    let se = (400.0_f64 + 1125.0).sqrt();
    assert!((found.causes[0].se.unwrap() - se).abs() < 1e-9);
    let Uncertain { samples_a, samples_b, not_told_apart: noise } = found.sampled.clone().unwrap();
    assert_eq!((noise.functions, noise.a, noise.b, found.cpus), (3, 348.0, 380.0, 1.0));
    assert!((noise.se - (48.0_f64 + 66.0 + 300.0 + 310.0 + 4.0).sqrt()).abs() < 1e-9);
    assert_eq!((samples_a, samples_b), (757, 1505));
    // What is told and what is not are the whole.
    assert_eq!(found.causes.iter().map(Cause::delta).sum::<f64>() + noise.b - noise.a, found.delta());
    assert_eq!(
        (looking.sampled.as_ref().map(|s| (s.samples, s.lost)), looking.slow_down),
        (Some((2262, 2)), Some(1.0))
    );
}

#[test]
fn the_time_of_as_many_cpus_as_were_busy_is_divided() {
    // A kept 1.5 CPUs busy and B 1.2.
    let (found, _) = sampled(&[("f", 1500)], &[("f", 2400)], (1_000_000, 2_000_000));
    assert!((found.cpus - 1.5).abs() < 1e-9);
    assert_eq!((found.a, found.b), (1500.0, 3000.0));
    let names: Vec<_> = found.causes.iter().map(|c| (c.name.as_str(), c.a, c.b)).collect();
    assert_eq!(names, [("f", 1500.0, 2400.0), ("waiting", 0.0, 600.0)]);
}

#[test]
fn the_same_twice_has_no_causes() {
    let same = [("f", 600), ("g", 300)];
    let (found, _) = sampled(&same, &same, (1_000_000, 1_001_000));
    assert_eq!((found.causes.len(), found.listed, found.sampled.unwrap().not_told_apart.functions), (0, 0, 3));
}
