//! Trials for `bigiron show`: a list of all, and one in full.

use std::fmt::Write;

use super::quantity::Quantity;
use super::short;
use super::table::{Line, table, wrap};
use bigiron_model::clock::Clock;
use bigiron_model::environment::MODULE;
use bigiron_model::metric::Better;
use bigiron_model::plan::Plan;
use bigiron_model::printable::printable;
use bigiron_model::record::{Outcome, Record};

/// Every slot with the outcomes of all its attempts, in order. Slots that have not run are listed as such.
pub fn trials(plan: &Plan, records: &[Record]) -> String {
    let head = ["trial", "pair", "arm", "attempt", "outcome", "host, s", "CPU, s"].map(str::to_owned);
    let mut lines = vec![Line::Cells(head.to_vec())];
    for slot in &plan.slots {
        let mut attempts: Vec<&Record> = records.iter().filter(|r| r.slot == slot.slot).collect();
        attempts.sort_by_key(|r| r.attempt);
        let arm = plan.arms.get(slot.arm).map_or("", |a| a.name.as_str());
        let mut row = |attempt: String, outcome: String, wall: String, cpu: String| {
            lines.push(Line::Cells(vec![
                slot.slot.to_string(),
                format!("{}.{}", slot.pair + 1, slot.position + 1),
                arm.to_owned(),
                attempt,
                outcome,
                wall,
                cpu,
            ]));
        };
        if attempts.is_empty() {
            row(String::new(), "not yet run".into(), String::new(), String::new());
        }
        for record in attempts {
            // Only a guest has a measured cost for its host.
            let seconds = |s: f64| if s > 0.0 { format!("{s:.1}") } else { "-".to_owned() };
            row(record.attempt.to_string(), outcome(record), seconds(record.host.wall_s), seconds(record.host.cpu_s));
        }
    }
    table(&[true, true, false, true, false, true, true], &lines)
}

fn outcome(record: &Record) -> String {
    let complaints = match record.complaints.len() {
        0 => String::new(),
        n => format!(", {n} kernel complaints"),
    };
    match &record.outcome {
        Outcome::Completed => format!("completed{complaints}"),
        Outcome::Failed { failure, .. } => format!("{}{complaints}", failure.verb()),
        Outcome::Void { .. } => "void".to_owned(),
    }
}

/// One trial in full; `console_tail` is the end of the guest's console, if it was kept.
pub fn trial(plan: &Plan, record: &Record, console_tail: Option<&str>) -> String {
    let mut out = format!(
        "Trial {}, pair {}.{}, arm {}, attempt {}: {}\n",
        record.slot,
        record.pair + 1,
        record.position + 1,
        record.arm,
        record.attempt,
        outcome(record)
    );
    match &record.outcome {
        Outcome::Completed => {}
        Outcome::Failed { message, .. } => out.push_str(&wrap(message, "  ", "  ")),
        Outcome::Void { cause } => out.push_str(&wrap(cause, "  ", "  ")),
    }
    out.push_str(if plan.machine.host.is_machine() { "\nMachine\n" } else { "\nGuest\n" });
    match &record.guest {
        None => out.push_str("  did not report its identity\n"),
        Some(guest) => {
            let memory = Quantity::metric(guest.memory_bytes as f64, bigiron_model::metric::Unit::Bytes, 0.0);
            for text in [
                format!("{} {}", guest.release, guest.version),
                format!("{} CPU, {memory} of memory, clock source {}", guest.cpus, guest.clocksource),
                format!("command line: {}", guest.cmdline),
            ] {
                out.push_str(&wrap(&text, "  ", "    "));
            }
        }
    }
    let _ = writeln!(out, "  image {}{}", short(&record.image_sha256), build(plan, record));
    metrics(&mut out, plan, record);
    if !record.facts.is_empty() {
        out.push_str("\nFacts\n");
        for (name, value) in &record.facts {
            out.push_str(&wrap(&format!("{name}: {value}"), "  ", "    "));
        }
    }
    if !record.environment.is_empty() {
        out.push_str("\nEnvironment\n");
        let (parameters, facts): (Vec<_>, Vec<_>) =
            record.environment.iter().partition(|(name, _)| name.starts_with(MODULE));
        for (name, value) in facts {
            out.push_str(&wrap(&format!("{name}: {value}"), "  ", "    "));
        }
        let _ = writeln!(out, "  and {} parameters of modules, in the record", parameters.len());
    }
    if !record.changes.is_empty() {
        out.push_str("\nSet by levers\n");
        for change in &record.changes {
            let _ = writeln!(out, "  {}: {} → {}", change.path, change.before, change.after);
        }
    }
    if !record.complaints.is_empty() {
        out.push_str("\nKernel complaints\n");
        for complaint in &record.complaints {
            out.push_str(&wrap(&format!("{}: {}", complaint.class, complaint.line), "  ", "    "));
        }
    }
    let host = &record.host;
    let _ = match host.qemu.as_str() {
        "" => writeln!(out, "\nHost\n  {}: {:.1} s of wall time", host.accelerator, host.wall_s),
        qemu => writeln!(
            out,
            "\nHost\n  QEMU {qemu} with {}: {:.1} s of wall time, {:.1} s of CPU, {:.2} s of them bigiron's own",
            host.accelerator.to_uppercase(),
            host.wall_s,
            host.cpu_s,
            host.overhead_s
        ),
    };
    if !record.artifacts.is_empty() {
        let _ = writeln!(out, "\nArtefacts");
        for artifact in &record.artifacts {
            let _ = writeln!(out, "  {artifact}");
        }
    }
    if let Some(tail) = console_tail.filter(|t| !t.trim().is_empty()) {
        out.push_str("\nEnd of the console\n");
        for line in tail.lines() {
            let _ = writeln!(out, "  {}", printable(line));
        }
    }
    out
}

/// Which of the arm's builds booted.
fn build(plan: &Plan, record: &Record) -> String {
    let Some(slot) = plan.slots.get(record.slot as usize) else { return String::new() };
    let builds = &plan.arms[slot.arm].builds;
    let number = plan.design.build_of(slot.pair).map(|build| build as usize);
    number.and_then(|n| Some((n, builds.get(n)?))).map_or_else(String::new, |(n, build)| {
        format!(", build {} of {}, layout {}", n + 1, builds.len(), build.layout)
    })
}

fn metrics(out: &mut String, plan: &Plan, record: &Record) {
    if record.metrics.is_empty() || plan.clock == Clock::None {
        return;
    }
    let _ = writeln!(out, "\nMetrics ({} clock)", plan.clock);
    let declared = plan.workloads.iter().flat_map(|w| w.metrics.iter().map(move |m| (w.name.as_str(), m)));
    let lines: Vec<Line> = declared
        .filter_map(|(workload, m)| {
            let arrow = if m.better == Better::Higher { "↑" } else { "↓" };
            let primary = if m.primary { "primary" } else { "" };
            let value = Quantity::metric(record.metrics.get(workload, &m.name)?, m.unit, 0.0).to_string();
            Some(Line::Cells(vec![format!("  {workload} {} {arrow}", m.name), value, primary.to_owned()]))
        })
        .collect();
    out.push_str(&table(&[false, true, false], &lines));
}
