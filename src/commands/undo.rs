//! `bigiron undo`.

use std::fmt::Write as _;
use std::path::Path;

use super::output;
use crate::cli::Undo;
use bigiron_lab::undo;
use bigiron_lab::undo::UndoResult;

pub(super) fn run(args: &Undo) -> anyhow::Result<u8> {
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
