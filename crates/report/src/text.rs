//! The report for a terminal or an e-mail: at most 80 columns, intelligible without colour.

mod causes;

use std::collections::BTreeSet;
use std::fmt::Write;

use super::environment;
use super::fact::{self, Fact};
use super::layers::layers;
use super::quantity::{Quantity, shown};
use super::row::{COPIES_MARK, Mark, Row};
use super::scope;
use super::sentence::{About, join};
use super::table::{Line, table, wrap};
use super::{Report, counters as counting, machines as by_machine, short};
use crate::kconfig::Difference;
use bigiron_model::file_system;
use bigiron_model::metric::Better;
use bigiron_model::record::{DISTURBED_FACT, Record};
use bigiron_stats::shape::WIDER;

/// Configuration differences shown in a text report; the others are counted.
const CONFIG_LINES: usize = 12;

/// The whole report as text.
pub fn text(report: &Report<'_>) -> String {
    let mut out = String::new();
    if let Some(question) = &report.plan.question {
        out.push_str(&wrap(question, "question: ", "  "));
        out.push('\n');
    }
    sentences(&mut out, report);
    if report.has_numbers() {
        matrix(&mut out, report);
        for (index, rows) in report.rows.iter().enumerate() {
            comparison(&mut out, report, index, rows);
        }
        legend(&mut out, report);
        out.push_str(&by_machine::text(report));
    }
    let layers: Vec<String> = layers(report).into_iter().map(|l| l.text).collect();
    if !layers.is_empty() {
        list(&mut out, "Layers of the file server", &layers);
    }
    causes::why(&mut out, report);
    causes::modelled_cycles(&mut out, report);
    causes::waits(&mut out, report);
    counters(&mut out, report);
    trouble(&mut out, report);
    features(&mut out, report);
    list(&mut out, "What was not tested", &scope::not_tested(report.plan));
    kernels(&mut out, report);
    if let Some(unasked) = environment::unasked(report.plan, report.records) {
        list(&mut out, environment::TITLE, &unasked.lines());
    }
    facts(&mut out, report);
    list(&mut out, "How", &scope::method(report.plan));
    out.push_str("\nHow to repeat it\n");
    out.push_str(&command(&report.plan.repeat));
    let _ = writeln!(out, "  Seed {}, bigiron {}", report.plan.design.seed, report.plan.bigiron);
    out
}

/// A command that can be copied unchanged: long ones continue with backslashes, but never inside quotes.
pub fn command(command: &str) -> String {
    let lines = wrap(command, "  ", "    ");
    if command.contains(['\'', '"']) {
        format!("  {command}\n")
    } else {
        lines.trim_end().replace('\n', " \\\n") + "\n"
    }
}

fn sentences(out: &mut String, report: &Report<'_>) {
    let several = report.judgement.comparisons.len() > 1;
    let mut arm = None;
    for sentence in &report.sentences {
        // With several arms, each arm's workloads and suite stand together.
        let new = matches!(sentence.about, About::Workload | About::Family | About::Suite) && sentence.arm != arm;
        if several && new {
            arm.clone_from(&sentence.arm);
            if !out.is_empty() && !out.ends_with("\n\n") {
                out.push('\n');
            }
        }
        out.push_str(&wrap(&sentence.full(), "", "  "));
    }
}

/// One line per arm and one column per workload, for a study of several arms.
fn matrix(out: &mut String, report: &Report<'_>) {
    if report.rows.len() < 2 {
        return;
    }
    let plan = report.plan;
    let _ = writeln!(out, "\nAgainst {} ({} clock)", plan.arms[0].name, plan.clock);
    let head = ["  arm"].into_iter().chain(plan.workloads.iter().map(|w| w.name.as_str())).chain(["suite"]);
    let mut lines = vec![Line::Cells(head.map(str::to_owned).collect())];
    for (comparison, rows) in report.judgement.comparisons.iter().zip(&report.rows) {
        let mut cells = vec![format!("  {}", plan.arms[comparison.arm].name)];
        for workload in &plan.workloads {
            let row = rows.iter().find(|r| r.line.metric.primary && r.line.workload == workload.name);
            cells.push(row.map_or_else(String::new, |r| {
                let change = r.change.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
                format!("{change} {}", r.line.verdict)
            }));
        }
        cells.push(comparison.suite.as_ref().map_or_else(String::new, |s| s.verdict.to_string()));
        lines.push(Line::Cells(cells));
    }
    out.push_str(&table(&vec![false; plan.workloads.len() + 2], &lines));
}

fn comparison(out: &mut String, report: &Report<'_>, index: usize, rows: &[Row<'_>]) {
    let plan = report.plan;
    let comparison = &report.judgement.comparisons[index];
    let head = format!(
        "A = {}, B = {}, {} clock, {} pairs{}",
        plan.arms[0].name,
        plan.arms[comparison.arm].name,
        plan.clock,
        comparison.pairs,
        plan.design.rebuilds.map_or_else(String::new, |n| format!(", {n} builds of each source"))
    );
    out.push('\n');
    out.push_str(&wrap(&head, "", "  "));
    let cells = |texts: [&str; 6]| Line::Cells(texts.iter().map(|t| (*t).to_owned()).collect());
    let mut lines = vec![cells([" metric", "A", "B", "change", "95 % CI", "verdict"])];
    let mut group = String::new();
    for row in rows {
        let line = row.line;
        let heading =
            if line.metric.primary { "primary".to_owned() } else { format!("{}, exploratory", line.workload) };
        if heading != group {
            lines.push(Line::Heading(heading.clone()));
            group = heading;
        }
        let name = if line.metric.primary {
            format!(" {} {} {}", line.workload, line.metric.name, row.arrow())
        } else {
            format!(" {} {}", line.metric.name, row.arrow())
        };
        let number =
            |quantity: &Option<Quantity>| quantity.as_ref().map_or_else(|| "none".to_owned(), Quantity::number);
        // A and B have one unit, so it stands once.
        lines.push(Line::Cells(vec![
            name,
            number(&row.a),
            shown(&row.b),
            number(&row.change),
            row.interval().replace(" … ", "…"),
            row.verdict(),
        ]));
    }
    out.push_str(&table(&[false, true, true, true, true, false], &lines));
    if let Some(detectable) = detectable(rows) {
        out.push_str(&wrap(&detectable, "", "  "));
    }
}

/// The smallest detectable effects: of each primary metric, and the range of the others.
fn detectable(rows: &[Row<'_>]) -> Option<String> {
    let (primaries, others): (Vec<&Row<'_>>, Vec<_>) = rows.iter().partition(|row| row.line.metric.primary);
    let of = |row: &&Row<'_>| Some(format!("{} {}", row.line.workload, row.mde.as_ref()?));
    let mut all: Vec<String> = primaries.iter().filter_map(of).collect();
    let mut range: Vec<&Quantity> = others.iter().filter_map(|row| row.mde.as_ref()).collect();
    range.sort_by(|a, b| a.value.total_cmp(&b.value));
    if let (Some(least), Some(most)) = (range.first(), range.last()) {
        all.push(format!("exploratory metrics {} to {most}", least.number()));
    }
    (!all.is_empty()).then(|| format!("Smallest detectable effect (MDE): {}", all.join(", ")))
}

fn legend(out: &mut String, report: &Report<'_>) {
    out.push('\n');
    out.push_str(&wrap(
        "Change and its interval are in per cent, B against A: + is a larger number; the verdict says whether that is good (↑ more is better, ↓ less is better). \
         The smallest detectable effect is the smallest change that this many pairs would have shown with 80 % power; HTML, JSON and CSV \
         have it for each metric",
        "",
        "",
    ));
    let marks: BTreeSet<Mark> = report.rows.iter().flatten().filter_map(Row::mark).collect();
    for mark in marks {
        out.push_str(&wrap(mark.legend(), "", "  "));
    }
    let margins: Vec<String> = margins(report);
    out.push_str(&wrap(&format!("Margins: {}", margins.join(", ")), "", "  "));
    for mark in doubtful(report).into_iter().chain(copies_decide(report)) {
        out.push_str(&wrap(&mark, "", "  "));
    }
}

/// The meaning of the mark `†`; `None` if it does not occur.
pub fn copies_decide(report: &Report<'_>) -> Option<String> {
    let occurs = report.rows.iter().flatten().any(|r| r.copies_decide);
    occurs.then(|| {
        format!(
            "{COPIES_MARK}: without copies of memory the change has the opposite sign. The exact clock cannot model what the arms' \
             different copy routines really cost, so the verdict may be wrong; Why has both figures"
        )
    })
}

/// The meaning of the mark `~` and how often it occurs; `None` if it does not occur.
pub fn doubtful(report: &Report<'_>) -> Option<String> {
    let of = report.rows.iter().flatten().count();
    let marked = report.rows.iter().flatten().filter(|r| r.is_doubtful()).count();
    (marked > 0).then(|| {
        format!(
            "~ ({marked} of {of} lines): one arm varies more than the other, so the interval may be too narrow; at {WIDER} times its \
             width, the verdict would change"
        )
    })
}

/// `throughput 2 %, p99 5 %`: the margins of the kinds that occur.
pub fn margins(report: &Report<'_>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let is_wider =
        |r: &Row<'_>| report.plan.wider_margins.contains_key(&format!("{}.{}", r.line.workload, r.line.metric.name));
    let rows = || report.rows.iter().flatten();
    let usual = rows().filter(|r| !is_wider(r) && seen.insert(r.line.metric.kind));
    let mut all: Vec<String> = usual.map(|r| format!("{} {}", kind(r), r.margin)).collect();
    // The same metric in every comparison.
    let wider: BTreeSet<String> = rows()
        .filter(|r| is_wider(r))
        .map(|r| format!("{} {} {}", r.line.workload, r.line.metric.name, r.margin))
        .collect();
    if !wider.is_empty() {
        let wider: Vec<String> = wider.into_iter().collect();
        all.push(format!("by this machine's noise card, chosen before the first boot: {}", join(&wider)));
    }
    all
}

fn kind(row: &Row<'_>) -> &'static str {
    use bigiron_model::metric::Kind;
    match row.line.metric.kind {
        Kind::Throughput => "throughput",
        Kind::Cost => "cost per operation",
        Kind::P50 => "p50",
        Kind::P99 => "p99",
        Kind::P999 => "p99.9",
        Kind::Amount => "amounts",
        Kind::Usage => "resources used",
    }
}

/// The kernel counters that differ in the windows.
fn counters(out: &mut String, report: &Report<'_>) {
    let Some(method) = counting::method(report) else { return };
    out.push_str("\nCounters\n");
    for (counts, comparison) in report.counters.iter().zip(&report.judgement.comparisons) {
        if report.counters.len() > 1 {
            let _ = writeln!(out, "  {} against {}", report.plan.arms[comparison.arm].name, report.plan.arms[0].name);
        }
        let shown = counting::shown(counts, report.all_counters);
        let cells = |texts: [&str; 5]| Line::Cells(texts.iter().map(|t| (*t).to_owned()).collect());
        let mut lines = vec![cells(["  counter", "A", "B", "change", "in"])];
        for counter in &shown.counters {
            let figures = counting::Figures::of(counter);
            let mark = if counter.differs() && !counter.discovery() { " ?" } else { "" };
            lines.push(cells([
                &format!("  {}", counter.name),
                &figures.a.to_string(),
                &figures.b.to_string(),
                &figures.change.map_or_else(String::new, |change| format!("{change}{mark}")),
                &shown.place(counter),
            ]));
        }
        if !shown.counters.is_empty() {
            out.push_str(&table(&[false, true, true, true, false], &lines));
        }
        out.push_str(&wrap(&counting::sum(counts, &shown), "  ", "  "));
    }
    out.push_str(&wrap(&method, "  ", "  "));
}

/// Everything that did not go as planned: failed boots, complaints, void slots, pairs missing from a line, and records set aside.
fn trouble(out: &mut String, report: &Report<'_>) {
    let lines = trouble_lines(report);
    if !lines.is_empty() {
        list(out, "What did not go as planned", &lines);
    }
}

/// Disturbed trials named in a report; the others are counted.
const DISTURBED_LINES: usize = 6;

/// How many trials were disturbed by other work on the machine, if any. They are in the estimates like all others.
pub fn disturbed_in_short(report: &Report<'_>) -> Option<String> {
    let (all, trials) = (disturbed(report).count(), scope::results(report.plan, report.records).count());
    (all > 0).then(|| format!("{all} of {trials} trials were disturbed; none is left out for it"))
}

/// The disturbed trials, each with its cause.
fn disturbed<'a>(report: &Report<'a>) -> impl Iterator<Item = (&'a Record, &'a String)> {
    scope::results(report.plan, report.records).filter_map(|r| Some((r, r.facts.get(DISTURBED_FACT)?)))
}

/// Their number, and the first of them.
fn disturbed_lines(report: &Report<'_>) -> Vec<String> {
    let all: Vec<_> = disturbed(report).collect();
    let mut lines: Vec<_> = disturbed_in_short(report).into_iter().collect();
    let named = all.iter().take(DISTURBED_LINES);
    lines.extend(named.map(|(r, by)| format!("{} in trial {} (pair {}): {by}", r.arm, r.slot, r.pair + 1)));
    if all.len() > DISTURBED_LINES {
        lines.push(format!(
            "{} more disturbed trials are in the records: `{DISTURBED_FACT}`",
            all.len() - DISTURBED_LINES
        ));
    }
    lines
}

pub fn trouble_lines(report: &Report<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for survival in &report.judgement.survival {
        for failures in &survival.failures {
            for trial in &failures.trials {
                let kept = if trial.artifacts.is_empty() {
                    String::new()
                } else {
                    format!(" [{}]", trial.artifacts.join(" "))
                };
                let again = trial.repeat.as_ref().map_or_else(String::new, |repeat| {
                    let how = match repeat.identical {
                        true => "it failed in the same way".to_owned(),
                        false => format!("it {}, so this failure is unconfirmed", repeat.outcome),
                    };
                    format!("; run again, {how} [{}]", repeat.artifacts.join(" "))
                });
                lines.push(format!(
                    "{} {} in trial {} (pair {}): {}{kept}{again}",
                    survival.arm,
                    failures.failure.verb(),
                    trial.slot,
                    trial.pair + 1,
                    trial.message
                ));
            }
        }
        for complaint in &survival.complaints {
            let example = complaint.lines.first().map_or("", String::as_str);
            lines.push(format!(
                "{} logged `{}` in {} of {} {}: {example}",
                survival.arm,
                complaint.class,
                complaint.boots,
                survival.logs(),
                report.plan.trials()
            ));
        }
        if survival.void > 0 {
            let trials = if survival.void == 1 { "1 trial" } else { &format!("{} trials", survival.void) };
            let causes = survival.void_causes.join("; ");
            let again = if report.judgement.done < report.judgement.planned { "to be run again" } else { "run again" };
            lines.push(format!("{}: {trials} void because of the host, {again}: {causes}", survival.arm));
        }
    }
    lines.extend(by_machine::progress(report));
    lines.extend(disturbed_lines(report));
    lines.extend(scope::several_emulated(report.plan, report.records));
    lines.extend(scope::out_of_step(report.plan, report.records));
    for row in report.rows.iter().flatten().filter(|r| r.line.missing.absent > 0) {
        let line = row.line;
        lines.push(format!(
            "{} {} is missing or not a positive number in {} completed pairs",
            line.workload, line.metric.name, line.missing.absent
        ));
    }
    for record in &report.judgement.set_aside {
        lines.push(format!(
            "A record of trial {} (attempt {}) was set aside: {}",
            record.slot, record.attempt, record.reason
        ));
    }
    lines
}

/// The features of the arms' file systems, if they were tested: a line for each feature, a column for each arm.
fn features(out: &mut String, report: &Report<'_>) {
    let facts = fact::facts(report.plan, report.records);
    let arms = &report.plan.arms;
    let row = |feature: &str| {
        let name = file_system::fact(feature);
        let fact = facts.iter().find(|f| f.name == name)?;
        let values = match &fact.values[..] {
            [same] => vec![same.clone(); arms.len()],
            values => values.to_vec(),
        };
        Some(Line::Cells([format!("  {feature}")].into_iter().chain(values).collect()))
    };
    let rows: Vec<Line> = file_system::FEATURES.into_iter().filter_map(row).collect();
    if rows.is_empty() {
        return;
    }
    out.push_str("\nFile system features, as tested in a guest of each arm\n");
    let head = ["  feature".to_owned()].into_iter().chain(arms.iter().map(|a| a.name.clone())).collect();
    let lines: Vec<Line> = [Line::Cells(head)].into_iter().chain(rows).collect();
    out.push_str(&table(&vec![false; arms.len() + 1], &lines));
}

pub fn list(out: &mut String, title: &str, items: &[String]) {
    let _ = write!(out, "\n{title}\n");
    for item in items {
        out.push_str(&wrap(item, "  - ", "    "));
    }
}

fn kernels(out: &mut String, report: &Report<'_>) {
    out.push_str("\nKernels and machine\n");
    for (index, booted) in scope::booted(report.plan, report.records).iter().enumerate() {
        let mut text = format!("{}: {}", letter(index), booted.arm);
        for part in [Some(booted.release.as_str()), booted.package.as_deref()].into_iter().flatten() {
            let _ = write!(text, ", {part}");
        }
        let _ = match booted.builds.len() {
            0 => write!(text, ", image {}", short(&booted.image_sha256)),
            builds => write!(text, ", {builds} builds from the objects of image {}", short(&booted.image_sha256)),
        };
        if let Some(config) = &booted.config_sha256 {
            let _ = write!(text, ", config {}", short(config));
        }
        if !booted.settings.is_empty() {
            let _ = write!(text, ", set {}", booted.settings.join(" "));
        }
        if !booted.cmdline.is_empty() {
            let _ = write!(text, ", own command line: {}", booted.cmdline.join(" "));
        }
        out.push_str(&wrap(&text, "  ", "     "));
    }
    out.push_str(&wrap(&scope::machine(report.plan, report.records), "  ", "     "));
    for (comparison, differences) in report.judgement.comparisons.iter().zip(&report.configs) {
        let Some(differences) = differences else { continue };
        let arm = &report.plan.arms[comparison.arm].name;
        let notable: Vec<&Difference> = differences.iter().filter(|d| d.is_notable()).collect();
        let _ = writeln!(
            out,
            "  {} config options differ between {} and {arm}{}",
            differences.len(),
            report.plan.arms[0].name,
            if notable.is_empty() { "" } else { ", among them" }
        );
        for d in notable.iter().take(CONFIG_LINES) {
            let (a, b) = (Difference::shown(d.a.as_deref()), Difference::shown(d.b.as_deref()));
            out.push_str(&wrap(&format!("{}: {a} → {b}", d.option), "    ", "      "));
        }
        if notable.len() > CONFIG_LINES {
            let _ =
                writeln!(out, "    and {} more; all are in the HTML and JSON reports", notable.len() - CONFIG_LINES);
        }
    }
}

/// `A` for the baseline, then `B`, `C` …
pub fn letter(index: usize) -> String {
    let letter = |i: usize| char::from(b'A' + (i % 26) as u8);
    if index < 26 { letter(index).to_string() } else { format!("{}{}", letter(index / 26 - 1), letter(index)) }
}

fn facts(out: &mut String, report: &Report<'_>) {
    let facts = fact::facts(report.plan, report.records);
    if facts.is_empty() {
        return;
    }
    list(out, "Durability", &fact::durability(report.plan, &facts));
    out.push_str("\nOther facts, as the workloads recorded them\n");
    let others = facts.iter().filter(|f| !f.is_of_durability() && !f.is_of_file_system());
    let (lists, lines): (Vec<&Fact>, Vec<&Fact>) = others.partition(|f| f.is_list());
    for fact in lines {
        out.push_str(&wrap(&format!("{}: {}", fact.name, fact.line()), "  ", "    "));
    }
    if !lists.is_empty() {
        let names: Vec<&str> = lists.iter().map(|f| f.name.as_str()).collect();
        out.push_str(&wrap(&format!("In the HTML and JSON reports only: {}", join(&names)), "  ", "    "));
    }
}

/// The date of a timestamp.
pub fn day(moment: &str) -> &str {
    moment.split('T').next().unwrap_or(moment)
}

/// Which direction of a metric is better, as an arrow.
pub fn arrow(better: Better) -> &'static str {
    match better {
        Better::Higher => "↑",
        Better::Lower => "↓",
    }
}
