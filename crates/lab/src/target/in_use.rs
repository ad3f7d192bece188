//! One study at a time uses a target: a boot of one would end the trials of another, and trials disturb each other's times.
//!
//! Invariant: whatever begins on the machine begins in a turn, in which no trial and no boot of another study is under way.

use std::fs::File;
use std::path::{Path, PathBuf};

use bigiron_model::folder_files::{self, Access};
use bigiron_model::refusal::Refusal;
use rustix::fs::{FlockOperation, flock};

use super::folder::TargetFolder;
use super::messages::DRY;
use super::{NAME, boot, restore, trial};

const LOCK: &str = "turn.lock";

/// Waits until no other connection is about to begin something; the turn is over when the file is dropped.
pub(super) fn turn(folder: &TargetFolder) -> anyhow::Result<File> {
    let file = folder_files::open(folder.path(), LOCK, Access::Update, 0o600)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// The same for a study that boots, which is refused while another one uses the machine.
pub(super) fn turn_of(folder: &TargetFolder, study: &str) -> anyhow::Result<File> {
    let turn = turn(folder)?;
    check(folder, study, true)?;
    Ok(turn)
}

/// Refuses `study` while another one uses the machine; `boots`: its trials boot their kernels.
pub(super) fn check(folder: &TargetFolder, study: &str, boots: bool) -> Result<(), Refusal> {
    let study = study.strip_suffix(DRY).unwrap_or(study);
    let is_other = |dir: &PathBuf| study_of(dir).is_none_or(|other| other != study);
    if let Some(dir) = trial::running(folder).into_iter().find(is_other) {
        let message = format!("A trial of another study is running on `{NAME}` ({})", dir.display());
        return Err(Refusal::new(message).hint(format!("Wait until that study has ended; {}", ends_it("the trial"))));
    }
    if let Some(dir) = boot::under_way(folder).into_iter().find(is_other) {
        let message = format!("Another study has booted `{NAME}` for a trial ({})", dir.display());
        return Err(Refusal::new(message).hint(format!("Wait until that study has ended; {}", ends_it("the study"))));
    }
    if !boots && restore::runs_test_kernel() {
        let message = format!("`{NAME}` runs a kernel that a study has booted for a trial, not its own");
        return Err(Refusal::new(message).hint(format!("`bigiron undo --on {NAME}` boots its own kernel")));
    }
    Ok(())
}

/// What the user can do about a study that has been given up.
fn ends_it(what: &str) -> String {
    format!("`bigiron undo --on {NAME}` ends {what}, also if bigiron was killed, and restores the machine")
}

/// The study of a trial's folder.
fn study_of(dir: &Path) -> Option<&str> {
    let name = dir.parent()?.file_name()?.to_str()?;
    Some(name.strip_suffix(DRY).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use bigiron_model::purpose::Purpose;
    use bigiron_sys::this_machine;

    use super::super::folder;
    use super::super::messages::TrialKey;
    use super::*;

    /// A folder with one trial of the study `first`.
    fn one_trial(dir: &Path) -> (TargetFolder, PathBuf) {
        let folder = TargetFolder::at(dir.join("bigiron")).unwrap();
        let key = TrialKey { study: "first".to_owned(), slot: 3, attempt: 0, purpose: Purpose::Judge, again: 0 };
        let trial = folder.trial(&key).unwrap();
        folder::make_durable(&trial).unwrap();
        fs::write(trial.join("lock"), "").unwrap();
        (folder, trial)
    }

    #[test]
    fn a_study_is_refused_while_a_trial_of_another_one_runs() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, trial) = one_trial(dir.path());
        check(&folder, "second", false).unwrap();
        let lock = File::open(trial.join("lock")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        for boots in [false, true] {
            let refused = check(&folder, "second", boots).unwrap_err();
            assert!(refused.message.contains(&trial.display().to_string()), "{refused}");
            assert!(refused.hint.unwrap().contains("`bigiron undo --on ssh:NAME`"));
            // Its own trial is found and collected.
            check(&folder, "first", boots).unwrap();
        }
        assert!(turn_of(&folder, "second").is_err());
        drop(turn_of(&folder, "first-dry").unwrap());
        // Its process has only to end.
        fs::write(trial.join("result.json"), "").unwrap();
        check(&folder, "second", false).unwrap();
    }

    #[test]
    fn a_study_is_refused_while_the_machine_goes_down_for_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, trial) = one_trial(dir.path());
        let note = serde_json::json!({ "nonce": "no such word", "from": this_machine::boot_id() });
        folder::write(&trial, "boot.json", &note).unwrap();
        let refused = check(&folder, "second", true).unwrap_err();
        assert!(refused.message.starts_with("Another study has booted "), "{refused}");
        check(&folder, "first", true).unwrap();
        // What has not happened for minutes does not happen.
        let long_ago = SystemTime::now() - Duration::from_secs(600);
        File::options().write(true).open(trial.join("boot.json")).unwrap().set_modified(long_ago).unwrap();
        check(&folder, "second", true).unwrap();
        // That boot has led to another kernel, and is over.
        folder::write(&trial, "boot.json", &serde_json::json!({ "nonce": "no such word", "from": "b" })).unwrap();
        check(&folder, "second", true).unwrap();
    }
}
