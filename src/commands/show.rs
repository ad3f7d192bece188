//! `bigiron show`.

use super::output;
use crate::cli::Show;
use bigiron_model::record::Record;
use bigiron_model::refusal::Refusal;
use bigiron_model::store::Folder;
use bigiron_report as report;

/// Lines of a guest's console that are shown.
const CONSOLE_LINES: usize = 40;

pub(super) fn run(args: &Show) -> anyhow::Result<u8> {
    let folder = Folder::open(&args.dir)?;
    let plan = folder.plan();
    let mut read = folder.records()?;
    for (number, why) in &read.unreadable {
        output::line(format_args!("warning: records.jsonl:{number}: {why}; the line is skipped"));
    }
    let delivered = folder.not_taken(&read.records)?;
    read.records.extend(delivered);
    let Some(slot) = args.trial else {
        output::data(&report::trials(plan, &read.records))?;
        return Ok(0);
    };
    if slot as usize >= plan.slots.len() {
        let right = match plan.slots.len() {
            0 => "its plan has none".to_owned(),
            count => format!("its trials are 0 to {}", count - 1),
        };
        return Err(Refusal::new(format!("This study has no trial {slot}; {right}")).into());
    }
    let mut attempts: Vec<&Record> = read.records.iter().filter(|r| r.slot == slot).collect();
    if attempts.is_empty() {
        return Err(Refusal::new(format!("Trial {slot} has not been run yet"))
            .hint("The same command resumes the study")
            .into());
    }
    attempts.sort_by_key(|r| r.attempt);
    let text: Vec<String> =
        attempts.iter().map(|r| report::trial(plan, r, console_tail(&folder, r).as_deref())).collect();
    output::data(&text.join("\n"))?;
    Ok(0)
}

/// The end of a trial's console, where it was kept.
fn console_tail(folder: &Folder, record: &Record) -> Option<String> {
    let path = record.artifacts.iter().find(|a| a.contains("console"))?;
    let bytes = folder.artifact(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    Some(lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n"))
}
