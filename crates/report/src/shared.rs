//! What several lines' differences share: told once, with the lines that it concerns, instead of after each line.
//!
//! Invariant: the order is that of the lines, so what concerns the line that decides the verdict comes first.

use super::row::COPIES_MARK;
use super::sentence::join;
use super::{Report, subsystem, why};
use bigiron_judge::causes::Causes;
use bigiron_model::clock::Clock;

/// Lines named with a paragraph; the others are counted.
const NAMED: usize = 8;

/// The paragraphs of a comparison, in order of importance.
pub fn shared(report: &Report<'_>, comparison: usize) -> Vec<String> {
    let lines = why::ordered(&report.why, comparison, &report.judgement.comparisons[comparison]);
    let mut found: Vec<(String, Vec<&Causes>)> = Vec::new();
    for line in &lines {
        for what in report.touching(line) {
            match found.iter_mut().find(|(known, _)| *known == what) {
                Some((_, concerned)) => concerned.push(line),
                None => found.push((what, vec![line])),
            }
        }
    }
    let told = found.iter().map(|(what, concerned)| format!("{what} ({}).", names(concerned)));
    copies(report, &lines).into_iter().chain(told).collect()
}

/// Why copies of memory count differently in the arms, and whose sign they decide.
fn copies(report: &Report<'_>, lines: &[&Causes]) -> Option<String> {
    if report.plan.clock != Clock::Exact1 {
        return None;
    }
    let with: Vec<_> = lines.iter().filter_map(|line| Some((*line, subsystem::without_copies(line)?))).collect();
    if with.is_empty() {
        return None;
    }
    let (decided, others): (Vec<_>, Vec<_>) = with.iter().partition(|(_, without)| without.flips);
    let of =
        |list: &[&(&Causes, subsystem::WithoutCopies)]| names(&list.iter().map(|(line, _)| *line).collect::<Vec<_>>());
    let mut text = "The arms use different routines to copy memory, whose real cost the exact clock cannot model (`bigiron doc clocks`).".to_owned();
    if !decided.is_empty() {
        text.push_str(&format!(" They decide the sign ({COPIES_MARK}) of {}.", of(&decided)));
    }
    if !others.is_empty() {
        text.push_str(&format!(" They change the size of {}.", of(&others)));
    }
    Some(text)
}

/// `dbsim throughput, micro mmap and 3 others`.
fn names(lines: &[&Causes]) -> String {
    let mut workload = "";
    let mut said: Vec<String> = Vec::new();
    for line in lines.iter().take(NAMED) {
        // Lines of one workload need its name once.
        let name =
            if line.workload == workload { line.metric.clone() } else { format!("{} {}", line.workload, line.metric) };
        workload = &line.workload;
        said.push(name);
    }
    match lines.len() - said.len() {
        0 => {}
        1 => said.push("1 other".to_owned()),
        n => said.push(format!("{n} others")),
    }
    join(&said.iter().map(String::as_str).collect::<Vec<_>>())
}
