//! `bigiron undo`.

use std::fmt::Write as _;
use std::path::Path;

use super::output;
use crate::cli::Undo;
use bigiron_lab::host::ssh::connection::{Place, TargetError};
use bigiron_lab::host::ssh::{Target, quarantine, way_back};
use bigiron_lab::undo;
use bigiron_lab::undo::UndoResult;

/// The study's name in a target's audit log.
const UNDO: &str = "undo";

pub(super) fn run(args: &Undo) -> anyhow::Result<u8> {
    if let Some(name) = args.on.as_ref().and_then(|host| host.targets.first()) {
        return on_target(name, args.dry_run);
    }
    let folder = undo::folder()?;
    let mut restored = undo::restore(&folder, Path::new("/"), true)?;
    if !args.dry_run {
        // Before anything is done, so that a reader can stop it.
        for (entry, _) in &restored.entries {
            output::note(&format!("to restore: {} (changed for {})", entry.undo, entry.what));
        }
        restored = undo::restore(&folder, Path::new("/"), false)?;
    }
    let mut out = String::new();
    let mut failed = restored.damaged;
    for (entry, result) in &restored.entries {
        let what = &entry.what;
        let _ = match result {
            None => writeln!(out, "would restore {} (changed for {what})", entry.undo),
            Some(Ok(UndoResult::Restored)) => writeln!(out, "restored {} (changed for {what})", entry.undo),
            Some(Ok(UndoResult::Already)) => writeln!(out, "already as before: {} (noted for {what})", entry.undo),
            Some(Ok(UndoResult::Gone)) => {
                writeln!(out, "gone, with what was changed: {} (changed for {what})", entry.undo)
            }
            Some(Err(why)) => {
                failed += 1;
                writeln!(out, "NOT restored, kept for another try: {why} (changed for {what})")
            }
        };
    }
    if restored.entries.is_empty() && restored.damaged == 0 {
        out.push_str("Nothing to restore\n");
    }
    if restored.elsewhere > 0 {
        let _ = writeln!(
            out,
            "{} changes of other machines are in `{}` and left alone; `bigiron undo` there restores them",
            restored.elsewhere,
            restored.path.display()
        );
    }
    if restored.damaged > 0 {
        let _ = writeln!(
            out,
            "{} lines of `{}` are unreadable and were not restored; inspect them, then remove the file",
            restored.damaged,
            restored.path.display()
        );
    }
    output::data(&out)?;
    Ok(if failed > 0 { super::FAILED } else { 0 })
}

/// Restores another machine: its trials end, its settings and its kernel are those from before.
fn on_target(name: &str, dry_run: bool) -> anyhow::Result<u8> {
    let place = if dry_run { Place::Temporary } else { Place::Kept };
    let target = Target::open_patiently(name, place, &output::note)?;
    let look = &target.look;
    if dry_run {
        let mut out = String::new();
        look.trials.iter().for_each(|trial| out.push_str(&format!("would end the trial in {trial}\n")));
        look.of_trials
            .iter()
            .chain(&look.left_over)
            .for_each(|change| out.push_str(&format!("would restore {change}\n")));
        look.to_return.iter().for_each(|release| out.push_str(&format!("would boot {release}\n")));
        look.brought.iter().for_each(|release| out.push_str(&format!("would remove {release}\n")));
        if out.is_empty() {
            out.push_str("Nothing to restore\n");
        }
        return output::data(&out).map(|()| 0);
    }
    // Before anything is done, so that a reader can stop it.
    for change in look.of_trials.iter().chain(&look.left_over) {
        output::note(&format!("to restore: {change}"));
    }
    let stopped: Vec<String> =
        target.patiently(|connection| connection.ask("stop-all", &())).map_err(TargetError::explained)?;
    for study in stopped {
        output::note(&format!("Ended a trial of the study {study}"));
    }
    let status = target.patiently(|connection| connection.bigiron(&["undo"])).map_err(TargetError::explained)?;
    let cleaned = way_back::restore(&target, UNDO, &output::note)?;
    let mut out = String::new();
    cleaned.removed.iter().for_each(|release| out.push_str(&format!("removed {release}\n")));
    if cleaned.differences.is_some() {
        let _ = writeln!(out, "as before: {} files and settings compared", cleaned.compared);
    }
    if quarantine::end(name)? {
        let _ = writeln!(out, "the quarantine of `{name}` has ended");
    }
    output::data(&out)?;
    Ok(if status == 0 { 0 } else { super::FAILED })
}
