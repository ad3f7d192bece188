//! Sentences about the modelled cycles of a line.
//!
//! Invariant: modelled cycles are reported beside path length, never in its place.

use bigiron_judge::causes::Causes;
use bigiron_judge::modelled::{Cycles, FunctionCycles, Modelled};

use super::Report;
use super::row::Row;
use super::why::{ns, signed};

/// Maximum number of functions named in a sentence.
const FUNCTIONS: usize = 5;

/// A sentence names a component only if it changed by at least this part of the cycles of an operation.
const WORTH_NAMING: f64 = 0.001;

/// `+5.3 %`.
fn per_cent(change: f64) -> String {
    let text = format!("{:+.1} %", 100.0 * change);
    if text == "-0.0 %" || text == "+0.0 %" { "0.0 %".to_owned() } else { text }
}

/// The cycles of an operation on a modelled processor, and the components that changed.
fn cycles(of: &Cycles) -> String {
    let mut changed: Vec<_> =
        of.components.iter().filter(|c| (c.b - c.a).abs() >= WORTH_NAMING * of.a.max(of.b)).collect();
    changed.sort_by(|x, y| (y.b - y.a).abs().total_cmp(&(x.b - x.a).abs()));
    let parts: Vec<String> = changed.iter().map(|c| format!("{} {}", c.component, signed(c.b - c.a))).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    format!(
        "Modelled cycles per operation ({}): {} → {}, {}{parts}.",
        of.processor,
        ns(of.a),
        ns(of.b),
        per_cent(of.change())
    )
}

/// Whether the verdict depends on the processor.
fn robustness(causes: &Causes, of: &Modelled) -> String {
    let n = of.processors.len();
    if of.robust {
        return format!("Robust: path length and all {n} processor models agree on the sign of the difference.");
    }
    let each: Vec<String> =
        of.processors.iter().map(|c| format!("{} ({})", per_cent(c.change()), c.processor)).collect();
    format!(
        "Depends on the processor: time per operation changes by {} on the clock, and in the models by {}.",
        per_cent(causes.b / causes.a - 1.0),
        each.join(", ")
    )
}

fn functions(of: &[FunctionCycles]) -> Option<String> {
    let named: Vec<String> = of
        .iter()
        .take(FUNCTIONS)
        .map(|f| format!("{} {} (mostly {})", f.function, signed(f.b - f.a), f.mostly))
        .collect();
    (!named.is_empty()).then(|| format!("Modelled cycles changed most in: {}.", named.join("; ")))
}

/// The sentences about a line; `None` if nothing was modelled for it.
pub(crate) fn told(causes: &Causes) -> Option<String> {
    let of = causes.modelled.as_ref()?;
    let first = of.processors.first()?;
    let all = [Some(robustness(causes, of)), Some(cycles(first)), functions(&of.functions)];
    Some(all.into_iter().flatten().collect::<Vec<_>>().join(" "))
}

/// The rows of a comparison whose verdicts are robust, and those whose verdicts are not; `None` if nothing was modelled for any of them.
pub(crate) fn in_short(report: &Report<'_>, comparison: usize, rows: &[&Row<'_>]) -> Option<String> {
    let (mut robust, mut depends) = (Vec::new(), Vec::new());
    for row in rows {
        let is_it = |c: &&Causes| {
            c.comparison == comparison && c.workload == row.line.workload && c.metric == row.line.metric.name
        };
        let Some(of) = report.why.causes.iter().find(is_it).and_then(|c| c.modelled.as_ref()) else { continue };
        let name = format!("{} {}", row.line.workload, row.line.metric.name);
        if of.robust { robust.push(name) } else { depends.push(name) }
    }
    let said = |what: &str, names: &[String]| (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")));
    let all: Vec<String> = [
        said("Robust on every modelled processor", &robust),
        said("Depends on the processor, or too small for the models", &depends),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!all.is_empty()).then(|| all.join(". "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_judge::modelled::ComponentCycles;

    fn of(changes: [f64; 2], robust: bool) -> Causes {
        let cycles = |processor, change| Cycles {
            processor,
            a: 1000.0,
            b: 1000.0 * (1.0 + change),
            components: vec![
                ComponentCycles { component: "instructions", a: 800.0, b: 800.0 },
                ComponentCycles { component: "data", a: 150.0, b: 150.0 + 1000.0 * change },
                ComponentCycles { component: "TLB", a: 50.0, b: 50.1 },
            ],
        };
        let functions = vec![FunctionCycles { function: "f".to_owned(), a: 3.0, b: 44.0, mostly: "data" }];
        let processors = vec![cycles("rome-like", changes[0]), cycles("pessimistic", changes[1])];
        let modelled = Some(Modelled { processors, functions, robust });
        Causes {
            comparison: 0,
            workload: "w".to_owned(),
            metric: "m".to_owned(),
            window: "m".to_owned(),
            pairs: 1,
            a: 100.0,
            b: 102.0,
            causes: Vec::new(),
            listed: 0,
            gone: 0.0,
            new: 0.0,
            sampled: None,
            modelled,
        }
    }

    #[test]
    fn a_line_says_whether_the_processor_matters() {
        assert_eq!(
            told(&of([0.041, 0.2], true)).unwrap(),
            "Robust: path length and all 2 processor models agree on the sign of the difference. Modelled cycles per operation (rome-like): \
             1,000 → 1,041, +4.1 %: data +41.0. Modelled cycles changed most in: f +41.0 (mostly data)."
        );
        let depends = told(&of([0.0, -0.031], false)).unwrap();
        assert!(depends.starts_with(
            "Depends on the processor: time per operation changes by +2.0 % on the clock, and in the models by 0.0 % (rome-like), \
             -3.1 % (pessimistic). Modelled cycles per operation (rome-like): 1,000 → 1,000, 0.0 %. "
        ), "{depends}");
        assert_eq!(told(&Causes { modelled: None, ..of([0.0; 2], true) }), None);
    }
}
