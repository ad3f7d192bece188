//! The part of the JSON report on what lines waited for.

use serde::Serialize;

use super::super::{Report, locks};
use bigiron_judge::locks::{Contended, HowTraced};

#[derive(Serialize)]
pub(super) struct Waits<'a> {
    traced: &'a HowTraced,
    untold: Vec<Untraced<'a>>,
    lines: Vec<Waiting<'a>>,
}

#[derive(Serialize)]
struct Untraced<'a> {
    arm: &'a str,
    why: &'a str,
}

#[derive(Serialize)]
struct Waiting<'a> {
    arm: &'a str,
    #[serde(flatten)]
    line: &'a Contended,
    sentences: Vec<String>,
}

pub(super) fn of<'a>(report: &'a Report<'_>) -> Option<Waits<'a>> {
    let found = &report.why.locks;
    let waiting = |line: &'a Contended| Waiting {
        arm: &report.plan.arms[report.judgement.comparisons[line.comparison].arm].name,
        line,
        sentences: locks::sentences(line),
    };
    Some(Waits {
        traced: found.traced.as_ref()?,
        untold: found.untold.iter().map(|(arm, why)| Untraced { arm, why }).collect(),
        lines: found.lines.iter().map(waiting).collect(),
    })
}
