//! Modelled cycles: sentences about a line, and a table of all windows that were modelled.
//!
//! Invariant: modelled cycles are reported beside path length, never in its place.

use bigiron_judge::Comparison;
use bigiron_judge::causes::Causes;
use bigiron_judge::modelled::{Agreement, Cycles, FunctionCycles, Modelled, ModelledWindow};
use bigiron_model::modelled::Component;

use super::Report;
use super::row::Row;
use super::structure;
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
    match of.agreement {
        Agreement::Robust => {
            return format!("Robust: path length and all {n} processor models agree on the sign of the difference.");
        }
        Agreement::TooSmall => {
            return format!(
                "Too small for the models: neither path length nor any of {n} processor models changes by more than boots of one kernel \
                 may differ."
            );
        }
        Agreement::Depends => {}
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
        .map(|f| {
            let structure = (f.mostly == Component::Data.name()).then(|| structure::of(&f.function)).flatten();
            let of = structure.map_or(String::new(), |structure| format!(": {structure}"));
            format!("{} {} (mostly {}{of})", f.function, signed(f.b - f.a), f.mostly)
        })
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
    let (mut robust, mut depends, mut small) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let is_it = |c: &&Causes| {
            c.comparison == comparison && c.workload == row.line.workload && c.metric == row.line.metric.name
        };
        let Some(of) = report.why.causes.iter().find(is_it).and_then(|c| c.modelled.as_ref()) else { continue };
        let name = format!("{} {}", row.line.workload, row.line.metric.name);
        match of.agreement {
            Agreement::Robust => robust.push(name),
            Agreement::Depends => depends.push(name),
            Agreement::TooSmall => small.push(name),
        }
    }
    let said = |what: &str, names: &[String]| (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")));
    let all: Vec<String> = [
        said("Robust on every modelled processor", &robust),
        said("Depends on the processor", &depends),
        said("Too small for the models", &small),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!all.is_empty()).then(|| all.join(". "))
}

/// A row of the table of modelled windows, as text.
pub(crate) struct CyclesRow {
    pub name: String,
    /// The change of path length and waiting, on the clock.
    pub clock: String,
    /// Cycles per operation on the first processor, and their change.
    pub a: String,
    pub b: String,
    pub change: String,
    /// The smallest and the largest change in the models.
    pub range: String,
    pub agreement: &'static str,
}

impl CyclesRow {
    fn of(window: &ModelledWindow) -> Option<CyclesRow> {
        let first = window.of.processors.first()?;
        let mut changes: Vec<f64> = window.of.processors.iter().map(Cycles::change).collect();
        changes.sort_by(f64::total_cmp);
        Some(CyclesRow {
            name: format!("{} {}", window.workload, window.metric),
            clock: per_cent(window.b / window.a - 1.0),
            a: ns(first.a),
            b: ns(first.b),
            change: per_cent(first.change()),
            range: format!("{} … {}", per_cent(*changes.first()?), per_cent(*changes.last()?)),
            agreement: match window.of.agreement {
                Agreement::Robust => "robust",
                Agreement::Depends => "depends",
                Agreement::TooSmall => "too small",
            },
        })
    }
}

/// The modelled windows of a comparison: those of primaries, then those in which the first processor and the clock differ most.
pub(crate) fn windows<'a>(report: &'a Report<'_>, index: usize, comparison: &Comparison) -> Vec<(bool, CyclesRow)> {
    let is_primary = |w: &ModelledWindow| {
        let is_it = |l: &&bigiron_judge::line::Line| l.workload == w.workload && l.metric.name == w.metric;
        comparison.lines.iter().find(is_it).is_some_and(|l| l.metric.primary)
    };
    let apart = |w: &ModelledWindow| {
        let model = w.of.processors.first().map_or(0.0, Cycles::change);
        (model - (w.b / w.a - 1.0)).abs()
    };
    let mut all: Vec<&'a ModelledWindow> = report.why.modelled.iter().filter(|w| w.comparison == index).collect();
    all.sort_by(|x, y| is_primary(y).cmp(&is_primary(x)).then(apart(y).total_cmp(&apart(x))));
    all.into_iter().filter_map(|w| Some((is_primary(w), CyclesRow::of(w)?))).collect()
}

/// What the table's columns are.
pub(crate) fn legend(report: &Report<'_>) -> Option<String> {
    let first = report.why.modelled.first()?.of.processors.as_slice();
    let (name, n) = (first.first()?.processor, first.len());
    Some(format!(
        "Cycles of an operation on the processor model {name}, as means over the modelled pairs, and their change. Clock: the change of \
         its time on the clock. Robust: path length and all {n} models agree on its sign; too small: no more than boots of one kernel may differ. \
         Modelled cycles do not predict your hardware (`bigiron doc modelled-cycles`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_judge::modelled::ComponentCycles;

    fn of(changes: [f64; 2], agreement: Agreement) -> Causes {
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
        let of = |function: &str, b| FunctionCycles { function: function.to_owned(), a: 3.0, b, mostly: "data" };
        let functions = vec![of("f", 44.0), of("xas_load", 13.0)];
        let processors = vec![cycles("rome-like", changes[0]), cycles("pessimistic", changes[1])];
        let modelled = Some(Modelled { processors, functions, agreement });
        Causes {
            comparison: 0,
            workload: "w".to_owned(),
            metric: "m".to_owned(),
            window: "m".to_owned(),
            pairs: 1,
            cpus: 1.0,
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
            told(&of([0.041, 0.2], Agreement::Robust)).unwrap(),
            "Robust: path length and all 2 processor models agree on the sign of the difference. Modelled cycles per operation (rome-like): \
             1,000 → 1,041, +4.1 %: data +41.0. Modelled cycles changed most in: f +41.0 (mostly data); xas_load +10.0 \
             (mostly data: xarray nodes)."
        );
        let depends = told(&of([0.0, -0.031], Agreement::Depends)).unwrap();
        assert!(depends.starts_with(
            "Depends on the processor: time per operation changes by +2.0 % on the clock, and in the models by 0.0 % (rome-like), \
             -3.1 % (pessimistic). Modelled cycles per operation (rome-like): 1,000 → 1,000, 0.0 %. "
        ), "{depends}");
        assert_eq!(told(&Causes { modelled: None, ..of([0.0; 2], Agreement::Robust) }), None);
        let small = told(&of([0.001, -0.002], Agreement::TooSmall)).unwrap();
        assert!(small.starts_with("Too small for the models: "), "{small}");
    }
}
