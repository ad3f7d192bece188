//! Why lines differ: the causes that were counted, as rows and sentences that every format prints.
//!
//! Invariant: what is claimed is what the rows shown add up to; where that is less than half of a difference, it is said.

use crate::judge::causes::{Cause, Causes, Looking};
use crate::judge::line::Line;

/// Causes shown of one line: in text, and in HTML. JSON lists as many as explain [`ENOUGH`](crate::judge::causes::ENOUGH), and everything is in the study's
/// folder, `evidence/`.
pub const ROWS: usize = 8;
pub const MOST: usize = 40;

/// Lines shown in text besides primaries: those that changed most.
pub const LINES: usize = 6;

/// What was found, and how.
#[derive(Clone, Debug, Default)]
pub struct Why {
    pub looking: Option<Looking>,
    pub causes: Vec<Causes>,
    /// Why there is less than there might be: what could not be looked into.
    pub missing: Vec<String>,
}

/// Nanoseconds, with a decimal where they are few.
pub fn ns(value: f64) -> String {
    let text = if value.abs() < 999.95 { format!("{value:.1}") } else { grouped(value.round() as i64) };
    if text == "-0.0" { "0.0".to_owned() } else { text }
}

/// The same with its sign.
pub fn signed(value: f64) -> String {
    let text = ns(value);
    if value > 0.0 && text != "0.0" { format!("+{text}") } else { text }
}

/// `12,345`.
fn grouped(value: i64) -> String {
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

/// What a cause is called, and was.
pub fn name(cause: &Cause) -> String {
    match &cause.formerly {
        Some(former) => format!("{} (in A: {former})", cause.name),
        None if cause.a == 0.0 => format!("{} (B only)", cause.name),
        None if cause.b == 0.0 => format!("{} (A only)", cause.name),
        None => cause.name.clone(),
    }
}

/// `micro fork-exit: 41,230 → 44,310 ns for one operation, +3,080`.
pub fn head(causes: &Causes) -> String {
    format!(
        "{} {}: {} → {} ns for one operation, {}",
        causes.workload,
        causes.metric,
        ns(causes.a),
        ns(causes.b),
        signed(causes.delta())
    )
}

/// What the first `shown` causes say together.
pub fn sum(causes: &Causes, shown: usize) -> String {
    let explained = causes.explained(shown);
    let rest = causes.causes.len() - shown;
    let few = if explained < 0.5 { "Less than half is explained by these: " } else { "" };
    let more = match rest {
        0 => String::new(),
        rest => format!("; {rest} more, of either sign, are the other {}", share(1.0 - explained)),
    };
    let mut text = format!("{few}{shown} causes are {} of the difference{more}.", share(explained));
    if causes.gone > 0.0 && causes.new > 0.0 {
        let (gone, new) = (ns(causes.gone), ns(causes.new));
        let moved = causes.gone.min(causes.new) / causes.gone.max(causes.new);
        let how = if moved > 0.8 { ": mostly work that has moved, not grown" } else { "" };
        text.push_str(&format!(" Functions that only A has took {gone} ns, those that only B has {new} ns{how}."));
    }
    text
}

/// How it was counted.
pub fn method(why: &Why) -> Option<String> {
    let looking = why.looking?;
    let pairs = why.causes.iter().map(|c| c.pairs).max().unwrap_or(0);
    let mut text = format!(
        "Every instruction of {} counted by function, in {} run again for it",
        if pairs == 1 { "1 pair".to_owned() } else { format!("{pairs} pairs") },
        if looking.trials == 1 { "1 trial".to_owned() } else { format!("{} trials", looking.trials) },
    );
    text.push_str(&match looking.identical {
        n if n == looking.trials => "; all gave the numbers of the judged trials bit for bit".to_owned(),
        n => format!("; {n} of them gave the numbers of the judged trials bit for bit"),
    });
    if let Some(slow_down) = looking.slow_down {
        text.push_str(&format!("; looking took {slow_down:.2} times the CPU time of judging"));
    }
    text.push_str(". An instruction takes 1 ns on this clock; `waiting` is time without any (devices, timers)");
    Some(text)
}

/// The causes of a comparison that text has room for: primaries, then the lines that changed most; and how many there is no room for.
pub fn selected<'a>(why: &'a Why, comparison: usize, lines: &[Line]) -> (Vec<&'a Causes>, usize) {
    let of = |c: &Causes| lines.iter().find(|l| l.workload == c.workload && l.metric.name == c.metric);
    let (primaries, mut others): (Vec<_>, Vec<_>) =
        why.causes.iter().filter(|c| c.comparison == comparison).partition(|c| of(c).is_some_and(|l| l.metric.primary));
    let change = |c: &Causes| of(c).and_then(|l| l.estimate).map_or(0.0, |e| e.mean.abs());
    others.sort_by(|x, y| change(y).total_cmp(&change(x)));
    let left = others.len().saturating_sub(LINES);
    others.truncate(LINES);
    (primaries.into_iter().chain(others).collect(), left)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let cause = |name: &str, a, b| Cause { name: name.to_owned(), formerly: None, a, b };
        let causes = Causes {
            comparison: 0,
            workload: "micro".to_owned(),
            metric: "fork-exit".to_owned(),
            pairs: 1,
            a: 1000.0,
            b: 1100.0,
            causes: vec![cause("f", 0.0, 60.0), cause("g", 50.0, 0.0), cause("h", 0.0, 30.0), cause("i", 10.0, 70.0)],
            listed: 4,
            gone: 50.0,
            new: 90.0,
        };
        assert_eq!(head(&causes), "micro fork-exit: 1,000 → 1,100 ns for one operation, +100.0");
        assert_eq!(
            sum(&causes, 2),
            "Less than half is explained by these: 2 causes are 10 % of the difference; 2 more, of either sign, are the other 90 %. Functions that only A has took \
             50.0 ns, those that only B has 90.0 ns."
        );
        assert!(sum(&causes, 4).starts_with("4 causes are 100 % of the difference. "));
        assert_eq!(name(&causes.causes[1]), "g (A only)");
    }
}
