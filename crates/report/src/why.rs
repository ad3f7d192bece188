//! Why lines differ: the measured causes, as rows and sentences for every format.
//!
//! Invariant: a claim never exceeds the sum of the rows shown; if that is less than half of a difference, the text says so.

use bigiron_judge::calls::Calls;
use bigiron_judge::causes::{Cause, Causes, NotToldApart, Profiling, WAITING};
use bigiron_judge::line::Line;
use bigiron_judge::locks::Locks;
use bigiron_judge::modelled::ModelledWindow;
use bigiron_judge::stacks::Stacks;
use bigiron_judge::suite::Reason;
use bigiron_judge::{Comparison, window};
use bigiron_model::evidence::Sampled;
use bigiron_model::plan::Plan;

/// Causes shown of one line, in text and in HTML. JSON lists those that explain [`ENOUGH`](bigiron_judge::causes::ENOUGH), and the study's folder
/// holds all of them in `evidence/`.
pub const ROWS: usize = 8;
pub const MOST: usize = 40;

/// Lines shown in text besides the primaries: those that changed most.
pub const LINES: usize = 6;

/// Said of the lines that decide the suite's verdict.
pub const DECIDES: &str = " (decides the verdict)";

/// The causes found, and how they were found.
#[derive(Clone, Debug, Default)]
pub struct Why {
    pub looking: Option<Profiling>,
    pub causes: Vec<Causes>,
    /// Modelled cycles of every window that was modelled, whether its line differs or not.
    pub modelled: Vec<ModelledWindow>,
    /// System calls of the lines of which every instruction was counted.
    pub calls: Vec<Calls>,
    /// Stacks of the lines that were sampled.
    pub stacks: Vec<Stacks>,
    /// What the lines waited for.
    pub locks: Locks,
    /// What could not be profiled, and why.
    pub missing: Vec<String>,
}

/// Nanoseconds, with one decimal if the number is small.
pub fn ns(value: f64) -> String {
    let text = if value.abs() < 999.95 { format!("{value:.1}") } else { grouped(value.round() as i64) };
    if text == "-0.0" { "0.0".to_owned() } else { text }
}

/// Nanoseconds with their sign.
pub fn signed(value: f64) -> String {
    let text = ns(value);
    if value > 0.0 && text != "0.0" { format!("+{text}") } else { text }
}

/// `12,345`.
pub fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

/// A share of a difference in per cent.
pub fn share(share: f64) -> String {
    let text = format!("{:.0} %", 100.0 * share);
    if text == "-0 %" { "0 %".to_owned() } else { text }
}

/// The name of a cause, with its former name if it had one.
pub fn name(cause: &Cause) -> String {
    match &cause.formerly {
        Some(former) => format!("{} (in A: {former})", cause.name),
        None if cause.name == WAITING => cause.name.clone(),
        None if cause.a == 0.0 => format!("{} (B only)", cause.name),
        None if cause.b == 0.0 => format!("{} (A only)", cause.name),
        None => cause.name.clone(),
    }
}

/// The difference of a cause, with its standard error if it has one.
pub fn change(cause: &Cause) -> String {
    match cause.se {
        Some(se) => format!("{} ± {}", signed(cause.delta()), ns(se)),
        None => signed(cause.delta()),
    }
}

/// ` of 1.86 CPUs`, if more than one CPU was busy: the time of all of them is divided among causes.
pub fn of_cpus(causes: &Causes) -> Option<String> {
    Some(format!("{:.2}", causes.cpus)).filter(|cpus| cpus != "1.00").map(|cpus| format!(" of {cpus} CPUs"))
}

/// `micro fork-exit: 41,230 → 44,310 ns per operation, +3,080`.
pub fn head(causes: &Causes) -> String {
    let cpus = of_cpus(causes).unwrap_or_default();
    format!(
        "{} {}{}: {} → {} ns{cpus} per operation, {}",
        causes.workload,
        causes.metric,
        by(&causes.metric, &causes.window),
        ns(causes.a),
        ns(causes.b),
        signed(causes.delta())
    )
}

/// ` by wall`, where another metric's window explains `metric`.
pub(super) fn by(metric: &str, window: &str) -> String {
    if metric == window { String::new() } else { format!(" by {window}") }
}

/// Says which window replaces a primary's own, and how well it explains the primary; `None` if the primary has its own window.
pub fn stand_in(plan: &Plan, causes: &Causes) -> Option<String> {
    let (metric, window) = (&causes.metric, &causes.window);
    if metric == window {
        return None;
    }
    let workload = plan.workloads.iter().find(|w| w.name == causes.workload)?;
    let measures_run = workload.metrics.iter().find(|m| m.name == *metric).is_some_and(window::is_of_whole_run);
    Some(match (window == window::WHOLE_RUN, measures_run) {
        (true, true) => format!("`{metric}` is explained by the whole run, the window of `{window}`."),
        (true, false) => format!(
            "`{metric}` is neither a time nor a rate of the run; the changes in the whole run, the window of `{window}`, may or may not be its cause."
        ),
        (false, _) => format!(
            "`{metric}` has no window of its own; shown is the window of `{window}`, which changed most among the metrics with a window."
        ),
    })
}

/// What the first `shown` causes explain together.
pub fn sum(causes: &Causes, shown: usize) -> String {
    let explained = causes.explained(shown);
    let rest = causes.causes.len() - shown;
    if causes.causes.is_empty() {
        let noise = causes.sampled.as_ref().map_or(String::new(), |sampled| noise(&sampled.not_told_apart));
        return format!("No function's difference exceeds sampling noise: {noise}.");
    }
    // As it is written: "50 %, less than half" would contradict itself.
    let few = if (100.0 * explained).round() < 50.0 { ", less than half" } else { "" };
    let more = match rest {
        0 => String::new(),
        rest => format!("; {rest} more, of either sign, explain the other {}", share(1.0 - explained)),
    };
    let explain = if shown == 1 { "1 cause explains".to_owned() } else { format!("{shown} causes explain") };
    let mut text = format!("{explain} {} of the difference{few}{more}.", share(explained));
    if let Some(rest) = causes.sampled.as_ref().map(|s| &s.not_told_apart).filter(|rest| rest.functions > 0) {
        text.push_str(&format!(" Within sampling noise: {}.", noise(rest)));
    }
    if causes.gone > 0.0 && causes.new > 0.0 {
        let (gone, new) = (ns(causes.gone), ns(causes.new));
        let moved = causes.gone.min(causes.new) / causes.gone.max(causes.new);
        let how = if moved > 0.8 { ": mostly work that moved rather than grew" } else { "" };
        text.push_str(&format!(" Functions only in A took {gone} ns, functions only in B {new} ns{how}."));
    }
    text
}

/// What samples could not tell.
fn noise(rest: &NotToldApart) -> String {
    let functions = if rest.functions == 1 { "1 function".to_owned() } else { format!("{} functions", rest.functions) };
    format!("{functions}, together {} ± {} ns", signed(rest.b - rest.a), ns(rest.se))
}

/// How the causes were counted.
pub fn method(why: &Why) -> Option<String> {
    let looking = why.looking.as_ref()?;
    let pairs = why.causes.iter().map(|c| c.pairs).max().unwrap_or(0);
    if let Some(sampled) = &looking.sampled {
        return Some(sampling(looking, sampled, pairs));
    }
    let mut text = format!(
        "Every instruction of {} counted by function in {}",
        if pairs == 1 { "1 pair".to_owned() } else { format!("{pairs} pairs") },
        if looking.trials == 1 { "1 rerun".to_owned() } else { format!("{} reruns", looking.trials) },
    );
    text.push_str(&match looking.identical {
        n if n == looking.trials => "; all reproduced the judged trials' numbers bit for bit".to_owned(),
        n => format!("; {n} of them reproduced the judged trials' numbers bit for bit"),
    });
    if let Some(slow_down) = looking.slow_down {
        text.push_str(&format!("; profiling took {slow_down:.2} times the CPU time of the judged trials"));
    }
    text.push_str(
        ". An instruction takes 1 ns on this clock; `waiting` is time without instructions (devices, timers)",
    );
    if why.causes.iter().any(|causes| of_cpus(causes).is_some()) {
        text.push_str(", of as many CPUs as the busier arm kept busy");
    }
    Some(text)
}

/// How the causes were sampled.
fn sampling(looking: &Profiling, sampled: &Sampled, pairs: usize) -> String {
    let lost = match sampled.lost {
        0 => "none lost".to_owned(),
        n => format!("{} lost", grouped(n as i64)),
    };
    let mut text = format!(
        "All {} CPUs sampled by {} at {:.0} Hz in {} of {}: {} samples, {lost}",
        sampled.cpus,
        sampled.event,
        1e9 / sampled.period_ns as f64,
        if looking.trials == 1 { "1 rerun".to_owned() } else { format!("{} reruns", looking.trials) },
        if pairs == 1 { "1 pair".to_owned() } else { format!("{pairs} pairs") },
        grouped(sampled.samples as i64)
    );
    let others = sampled.others as f64 / sampled.samples.max(1) as f64;
    text.push_str(&format!(", {} of them in other processes and not counted", share(others)));
    if let Some(slow_down) = looking.slow_down {
        text.push_str(&format!("; these trials were {slow_down:.2} times as slow as the judged ones"));
    }
    text.push_str(
        ". ± is one standard error, of sampling alone; a difference of two or less is not a cause. `waiting` is the time in which CPUs that \
         the busier arm kept busy were idle or ran other processes",
    );
    text
}

impl Why {
    /// Whether there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.causes.is_empty() && self.missing.is_empty() && self.locks.traced.is_none()
    }

    /// The stacks of a line's causes.
    pub fn stacks_of(&self, causes: &Causes) -> Option<&Stacks> {
        let is_it = |s: &&Stacks| {
            s.comparison == causes.comparison && s.workload == causes.workload && s.metric == causes.metric
        };
        self.stacks.iter().find(is_it)
    }
}

/// System calls named in a sentence.
const CALLS: usize = 6;

/// `System calls per operation, A and B: futex 1.50 and 2.00; 12 others are equal in both.`
pub fn calls(why: &Why, causes: &Causes) -> Option<String> {
    let is_it =
        |c: &&Calls| c.comparison == causes.comparison && c.workload == causes.workload && c.metric == causes.metric;
    let all = &why.calls.iter().find(is_it)?.calls;
    // A difference of up to one call in a thousand operations, or of up to one per cent, counts as equal.
    let (mut differ, same): (Vec<_>, Vec<_>) =
        all.iter().partition(|c| (c.a - c.b).abs() > (0.01 * c.a.max(c.b)).max(0.001));
    let figure = |n: f64| format!("{n:.*}", if n < 0.995 { 3 } else { 2 });
    if differ.is_empty() {
        let said: Vec<String> = same.iter().take(CALLS).map(|c| format!("{} {}", c.name, figure(c.b))).collect();
        return Some(format!("System calls per operation are equal in both arms: {}.", said.join(", ")));
    }
    differ.sort_by(|x, y| (y.a - y.b).abs().total_cmp(&(x.a - x.b).abs()));
    let said: Vec<String> =
        differ.iter().take(CALLS).map(|c| format!("{} {} and {}", c.name, figure(c.a), figure(c.b))).collect();
    let more = match differ.len().saturating_sub(CALLS) {
        0 => String::new(),
        n => format!("; {n} more differ"),
    };
    let same = match same.len() {
        0 => String::new(),
        1 => "; 1 other is equal in both".to_owned(),
        n => format!("; {n} others are equal in both"),
    };
    Some(format!("System calls per operation, A and B: {}{more}{same}.", said.join(", ")))
}

/// Whether a line's verdict is the suite's.
pub fn decides(comparison: &Comparison, workload: &str, metric: &str) -> bool {
    let Some(Reason::Primaries { workloads }) = comparison.suite.as_ref().map(|s| &s.reason) else { return false };
    let is_primary = |l: &Line| l.workload == workload && l.metric.name == metric && l.metric.primary;
    workloads.iter().any(|w| w == workload) && comparison.lines.iter().any(is_primary)
}

/// The causes of a comparison in order of importance: of the lines that decide the verdict, of the other primaries, then of the others; among each,
/// the larger change first.
pub fn ordered<'a>(why: &'a Why, comparison: usize, of: &Comparison) -> Vec<&'a Causes> {
    let line = |c: &Causes| of.lines.iter().find(|l| l.workload == c.workload && l.metric.name == c.metric);
    let rank = |c: &Causes| match line(c) {
        Some(_) if decides(of, &c.workload, &c.metric) => 0,
        Some(line) if line.metric.primary => 1,
        _ => 2,
    };
    let change = |c: &Causes| line(c).and_then(|l| l.estimate).map_or(0.0, |e| e.mean.abs());
    let mut all: Vec<&Causes> = why.causes.iter().filter(|c| c.comparison == comparison).collect();
    all.sort_by(|x, y| rank(x).cmp(&rank(y)).then(change(y).total_cmp(&change(x))));
    all
}

/// The number of [`ordered`] causes that fit into text: of the primaries, and of [`LINES`] others.
pub fn selected(ordered: &[&Causes], of: &Comparison) -> usize {
    let is_primary = |c: &&&Causes| {
        of.lines.iter().any(|l| l.workload == c.workload && l.metric.name == c.metric && l.metric.primary)
    };
    ordered.len().min(LINES + ordered.iter().filter(is_primary).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Extras, Report};
    use bigiron_judge::calls::Call;
    use bigiron_judge::causes::{Uncertain, causes};
    use bigiron_judge::{fixture, judge};
    use bigiron_model::evidence::Executed;
    use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
    use bigiron_model::plan::PlannedWorkload;
    use bigiron_model::workload::Options;

    #[test]
    fn calls_that_differ_are_named_and_others_counted() {
        let causes = Causes {
            comparison: 0,
            workload: "w".to_owned(),
            metric: "m".to_owned(),
            window: "m".to_owned(),
            pairs: 1,
            cpus: 1.0,
            a: 1.0,
            b: 2.0,
            causes: Vec::new(),
            listed: 0,
            gone: 0.0,
            new: 0.0,
            sampled: None,
            modelled: None,
        };
        let call = |name: &str, a, b| Call { name: name.to_owned(), a, b };
        let of = |calls| Why {
            calls: vec![Calls { comparison: 0, workload: "w".to_owned(), metric: "m".to_owned(), calls }],
            ..Why::default()
        };
        let same = vec![call("read", 1.0, 1.005), call("brk", 0.0002, 0.0009)];
        let all =
            [vec![call("futex", 1.5, 2.0), call("fork", 1.0, 0.0), call("clone", 0.0, 0.25)], same.clone()].concat();
        assert_eq!(
            super::calls(&of(all), &causes).unwrap(),
            "System calls per operation, A and B: fork 1.00 and 0.000, futex 1.50 and 2.00, clone 0.000 and 0.250; 2 others are equal in both."
        );
        assert_eq!(
            super::calls(&of(same), &causes).unwrap(),
            "System calls per operation are equal in both arms: read 1.00, brk 0.001."
        );
        assert_eq!(super::calls(&Why::default(), &causes), None);
    }

    /// The report's section on a study of a command whose primary, of that kind and unit, is 10 % larger in B while nothing else differs; all
    /// that was profiled is the whole run.
    fn of_command(kind: Kind, unit: Unit) -> String {
        let metric = |name: &str, kind, unit, primary| MetricDef {
            name: name.to_owned(),
            unit,
            better: Better::Lower,
            kind,
            primary,
            summary: String::new(),
        };
        let command = PlannedWorkload {
            name: "command".to_owned(),
            options: Options::new(),
            metrics: vec![metric("own", kind, unit, true), metric("wall", Kind::Cost, Unit::Ns, false)],
        };
        let plan = fixture::plan(&["debian:6.1", "debian:6.12"], 8, vec![command]);
        let records = fixture::records(&plan, 1e-3, |_, _, metric| if metric == "own" { 1.1 } else { 1.0 });
        let judgement = judge(&plan, &records);
        let evidence = [0, 1].map(|slot| {
            fixture::evidence(
                slot,
                vec![Executed {
                    workload: "command".to_owned(),
                    metric: "wall".to_owned(),
                    operations: 1,
                    ns: 10_000 + 900 * u64::from(slot),
                    functions: vec![("do_fault".to_owned(), 5_000 + 900 * u64::from(slot))],
                    calls: Vec::new(),
                    modelled: Vec::new(),
                }],
            )
        });
        let why = Why { causes: causes(&plan, &judgement, &evidence), ..Why::default() };
        let text = crate::text(&Report::new(&plan, &records, &judgement, &Extras { why, ..Extras::default() }));
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_primary_of_the_commands_own_is_explained_by_the_whole_run_as_far_as_that_goes() {
        for (kind, unit) in [(Kind::Throughput, Unit::OperationsPerSecond), (Kind::Cost, Unit::Ns)] {
            let text = of_command(kind, unit);
            assert!(text.contains("command own by wall: 10,000 → 10,900 ns per operation, +900.0 "), "{text}");
            assert!(text.contains("`own` is explained by the whole run, the window of `wall`."), "{text}");
            assert!(text.contains("100 % +900.0 5,000 5,900 do_fault"), "{text}");
        }
        let text = of_command(Kind::Amount, Unit::Bytes);
        assert!(text.contains("command own by wall: "), "{text}");
        assert!(
            text.contains("`own` is neither a time nor a rate of the run; the changes in the whole run, "),
            "{text}"
        );
    }

    #[test]
    fn figures_are_short_and_have_their_signs() {
        for (value, text) in
            [(0.04, "0.0"), (-0.04, "0.0"), (12.34, "12.3"), (1234.5, "1,235"), (-1_234_567.0, "-1,234,567")]
        {
            assert_eq!(ns(value), text);
        }
        assert_eq!((signed(3.0), signed(-3.0), signed(0.01)), ("+3.0".into(), "-3.0".into(), "0.0".into()));
    }

    #[test]
    fn what_is_explained_is_what_is_shown() {
        let cause = |name: &str, a, b| Cause { name: name.to_owned(), formerly: None, a, b, se: None };
        let causes = Causes {
            b: 1100.0,
            causes: vec![cause("f", 0.0, 60.0), cause("g", 50.0, 0.0), cause("h", 0.0, 30.0), cause("i", 10.0, 70.0)],
            listed: 4,
            gone: 50.0,
            new: 90.0,
            modelled: None,
            ..crate::tests::why().causes.remove(0)
        };
        assert_eq!(head(&causes), "micro fork-exit: 1,000 → 1,100 ns per operation, +100.0");
        assert_eq!(
            sum(&causes, 2),
            "2 causes explain 10 % of the difference, less than half; 2 more, of either sign, explain the other 90 %. Functions only in A took \
             50.0 ns, functions only in B 90.0 ns."
        );
        assert!(sum(&causes, 4).starts_with("4 causes explain 100 % of the difference. "));
        assert_eq!(name(&causes.causes[1]), "g (A only)");
    }

    #[test]
    fn what_was_sampled_has_its_error_and_its_method() {
        let cause = Cause { name: "f".to_owned(), formerly: None, a: 100.0, b: 160.0, se: Some(12.34) };
        assert_eq!(change(&cause), "+60.0 ± 12.3");
        let not_told_apart = NotToldApart { functions: 31, a: 50.0, b: 48.0, se: 9.0 };
        let sampled = Uncertain { samples_a: 400, samples_b: 500, not_told_apart };
        let mut causes = Causes {
            comparison: 0,
            workload: "dbsim".to_owned(),
            metric: "throughput".to_owned(),
            window: "throughput".to_owned(),
            pairs: 1,
            cpus: 1.96,
            a: 200.0,
            b: 258.0,
            causes: vec![cause],
            listed: 1,
            gone: 0.0,
            new: 0.0,
            sampled: Some(sampled),
            modelled: None,
        };
        assert_eq!(head(&causes), "dbsim throughput: 200.0 → 258.0 ns of 1.96 CPUs per operation, +58.0");
        assert_eq!(
            sum(&causes, 1),
            "1 cause explains 103 % of the difference. Within sampling noise: 31 functions, together -2.0 ± 9.0 ns."
        );
        causes.causes.clear();
        assert_eq!(
            sum(&causes, 0),
            "No function's difference exceeds sampling noise: 31 functions, together -2.0 ± 9.0 ns."
        );
        let all = Sampled {
            event: "cpu-clock".to_owned(),
            period_ns: 1_001_001,
            cpus: 2,
            samples: 31_337,
            lost: 0,
            others: 940,
        };
        let looking = Profiling { trials: 2, identical: 0, slow_down: Some(1.02), sampled: Some(all) };
        let why = Why { looking: Some(looking), causes: vec![causes], ..Why::default() };
        let method = method(&why).unwrap();
        assert!(
            method.starts_with(
                "All 2 CPUs sampled by cpu-clock at 999 Hz in 2 reruns of 1 pair: 31,337 samples, none lost, 3 % \
                 of them in other processes and not counted; these trials were 1.02 times as slow"
            ),
            "{method}"
        );
    }
}
