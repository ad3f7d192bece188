//! The way back: the target's own kernel, without what bigiron brought, and proved to be as before.

use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{bail, ensure};
use bigiron_model::plan::Plan;

use super::connection::TargetError;
use super::{RETRY, Target, notes, quarantine, study_name};
use crate::target::messages::{CleanedUp, Look, Return, WayBack};

/// Most differences in a message.
const MAX_DIFFERENCES: usize = 8;

/// Restores the target after a study; `recorded`: none of its results is missing here.
pub(super) fn close(
    target: &Target,
    study: &str,
    boots: bool,
    recorded: bool,
    note: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<()> {
    if boots {
        // Another study that uses the machine restores it in its turn.
        back(target, &Return { study: study.to_owned(), ends_others: false }, note)?;
    }
    if recorded {
        target.connection.tell("forget", &study).map_err(TargetError::explained)?;
    }
    Ok(())
}

/// Completes the way back of a finished study, if the command that finished it was interrupted.
///
/// # Errors
/// The machine is not as before. A [`bigiron_model::refusal::Refusal`]: another study uses it, or it is in quarantine.
pub fn complete(target: &Target, plan: &Plan, note: &(dyn Fn(&str) + Sync)) -> anyhow::Result<()> {
    let (name, look) = (target.connection.name(), &target.look);
    let is_own = |release: &String| plan.arms.iter().any(|arm| arm.kernel.release == *release);
    let is_due = notes::BOOTED.of(name).is_some() || look.to_return.is_some() || look.brought.iter().any(is_own);
    if !plan.boots() || !is_due {
        return Ok(());
    }
    quarantine::check(name)?;
    note(&format!("The study has not restored `{name}` yet; restoring it"));
    close(target, &study_name(plan), true, true, note)
}

/// Boots the original kernel, removes what was brought, and compares the machine with its noted state; `study` is for the audit log. The trials of
/// all studies are ended for it.
///
/// # Errors
/// It cannot be done, or the machine is not as before.
pub fn restore(target: &Target, study: &str, note: &(dyn Fn(&str) + Sync)) -> anyhow::Result<CleanedUp> {
    back(target, &Return { study: study.to_owned(), ends_others: true }, note)
}

fn back(target: &Target, request: &Return, note: &(dyn Fn(&str) + Sync)) -> anyhow::Result<CleanedUp> {
    let name = target.connection.name();
    let patience = target.config.boot_limit;
    // After an interruption, a boot may be under way, which takes minutes.
    let mut is_told = false;
    let back = loop {
        let answer = target.patiently(|connection| {
            let answer = connection.ask("return", request);
            let why = match &answer {
                Ok(WayBack::GoingDown) => format!("`{name}` is going down for a boot"),
                Err(e @ TargetError::Unreachable { .. }) => e.to_string(),
                _ => return answer,
            };
            if !is_told {
                is_told = true;
                note(&format!("{why}; waiting up to {} s for it", patience.as_secs()));
            }
            answer
        });
        match answer.map_err(TargetError::explained)? {
            WayBack::GoingDown => thread::sleep(RETRY),
            back => break back,
        }
    };
    if let WayBack::Rebooting(release) = back {
        note(&format!("`{name}` boots its own kernel, {release}"));
        let since = Instant::now();
        loop {
            thread::sleep(RETRY);
            target.connection.disconnect();
            let answer = target.connection.connect().and_then(|()| target.connection.ask::<Look>("look", &()));
            match answer {
                Ok(look) if look.to_return.is_none() => {
                    ensure!(
                        look.release == release,
                        "`{name}` booted {}, its boot loader's default; before the study it ran {release}",
                        look.release
                    );
                    break;
                }
                Ok(_) | Err(TargetError::Unreachable { .. }) if since.elapsed() < patience => {}
                Ok(_) => bail!("`{name}` did not reboot into {release}"),
                Err(e) => return Err(e.explained()),
            }
        }
    }
    let cleaned: CleanedUp =
        target.patiently(|connection| connection.ask("clean", &request.study)).map_err(TargetError::explained)?;
    notes::BOOTED.end(name)?;
    if !cleaned.removed.is_empty() {
        note(&format!("Removed from `{name}`: {}", cleaned.removed.join(", ")));
    }
    match &cleaned.differences {
        Some(differences) if !differences.is_empty() => {
            let more = differences.len().saturating_sub(MAX_DIFFERENCES);
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            let shown: Vec<&str> = differences.iter().take(MAX_DIFFERENCES).map(String::as_str).collect();
            bail!("`{name}` is not as before: {}{more}", shown.join("; "))
        }
        Some(_) => note(&format!("`{name}` is as before: {} files and settings compared", cleaned.compared)),
        None => {}
    }
    Ok(cleaned)
}

/// A machine that did not come back: quarantine, and the power command once. What was done.
pub(super) fn lost(target: &Target, why: &str) -> String {
    let name = target.connection.name();
    let kept = quarantine::put(name, why)
        .map_or_else(|e| format!("; cannot record the quarantine: {e:#}"), |()| String::new());
    let Some(power) = &target.config.power else {
        return format!("`{name}` is in quarantine; no power command is configured for it{kept}");
    };
    let done = match Command::new("/bin/sh").args(["-c", power]).status() {
        Ok(status) if status.success() => "was run once".to_owned(),
        Ok(status) => format!("failed ({status})"),
        Err(e) => format!("cannot be started: {e}"),
    };
    let since = Instant::now();
    let mut back = false;
    while !back && since.elapsed() < target.config.boot_limit {
        thread::sleep(RETRY);
        back = target.connection.connect().is_ok() && target.connection.ask::<Look>("look", &()).is_ok();
    }
    let then = if back { "the machine answers again" } else { "the machine still does not answer" };
    format!("`{name}` is in quarantine; its power command {done}, and {then}{kept}")
}
