//! Finds the folder of a question: a new one, one with an unfinished study of it, or one with its answer.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::other_question;
use crate::study::repeat;
use crate::study::resolved::ResolvedQuestion;
use bigiron_model::plan::Plan;
use bigiron_model::refusal::Refusal;
use bigiron_model::store::{Folder, SlotTally};

/// Maximum number of differences in a message.
const MAX_DIFFERENCES: usize = 4;

/// The default folder of studies.
pub const RESULTS: &str = "bigiron-results";

/// The folder for a question.
pub enum StudyFolder {
    New(NewFolder),
    Unfinished(Folder),
    Finished(Folder),
}

/// Finds the folder: the one given, or the first default folder in which the question is not answered yet. A `fresh` study gets a folder beside those
/// that have one.
///
/// `note` tells the user that a question is measured again.
pub fn find(
    resolved: &ResolvedQuestion,
    out: Option<&Path>,
    fresh: bool,
    note: &dyn Fn(&str),
) -> anyhow::Result<StudyFolder> {
    if let (Some(dir), false) = (out, fresh) {
        if !has_plan(dir) {
            return Ok(StudyFolder::New(NewFolder::new(dir)?));
        }
        let folder = Folder::open(dir)?;
        if folder.plan().question_sha256 != resolved.sha256() {
            return Err(other_study(dir, folder.plan(), resolved).into());
        }
        return Ok(if finished(&folder)? { StudyFolder::Finished(folder) } else { StudyFolder::Unfinished(folder) });
    }
    let first = out.map_or_else(|| Path::new(RESULTS).join(resolved.folder_name()), Path::to_owned);
    let mut answered: Option<PathBuf> = None;
    for number in 1.. {
        let dir = if number == 1 { first.clone() } else { beside(&first, number) };
        if !has_plan(&dir) {
            if is_taken(&dir) {
                continue;
            }
            if let (false, Some(before)) = (fresh, &answered) {
                note(&format!(
                    "`{0}` already answers this question (`bigiron report {0}` prints the answer); measuring it again",
                    Path::display(before)
                ));
            }
            return Ok(StudyFolder::New(NewFolder::new(&dir)?));
        }
        let folder = Folder::open(&dir)?;
        let same = folder.plan().question_sha256 == resolved.sha256();
        if !fresh && same && !finished(&folder)? {
            return Ok(StudyFolder::Unfinished(folder));
        }
        if same {
            answered = Some(dir);
        }
    }
    unreachable!("the numbers are unbounded")
}

/// The last study of the same question in a folder beside `dir`, where `--fresh` puts it.
pub fn later(dir: &Path, plan: &Plan) -> Option<PathBuf> {
    let studies = (2..).map(|number| beside(dir, number)).take_while(|dir| has_plan(dir));
    studies.filter(|dir| Folder::open(dir).is_ok_and(|f| f.plan().question_sha256 == plan.question_sha256)).last()
}

/// `DIR-2` for `DIR`.
fn beside(first: &Path, number: u32) -> PathBuf {
    let mut name = first.file_name().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    first.with_file_name(name)
}

fn has_plan(dir: &Path) -> bool {
    dir.join("plan.toml").exists()
}

fn is_taken(dir: &Path) -> bool {
    dir.exists() && fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_some())
}

/// Whether every slot has its record.
pub fn finished(folder: &Folder) -> anyhow::Result<bool> {
    Ok(SlotTally::of(folder.plan(), &folder.records()?.records).missing().is_empty())
}

fn other_study(dir: &Path, plan: &Plan, resolved: &ResolvedQuestion) -> Refusal {
    let mut differences = other_question::differences(plan, resolved);
    let more = differences.len().saturating_sub(MAX_DIFFERENCES);
    differences.truncate(MAX_DIFFERENCES);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let dir = dir.display().to_string();
    Refusal::new(format!("`{dir}` holds another study: {}{more}", differences.join("; "))).hint(format!(
        "Name another folder, or add `--fresh` for a new folder beside it; to resume that study, run `{}`",
        repeat::resumed(&plan.repeat, &dir)
    ))
}

/// A folder that is known to be writable before bigiron fetches anything. If dropped while empty, it is removed.
pub struct NewFolder {
    dir: PathBuf,
    /// Directories that were created, outermost first.
    made: Vec<PathBuf>,
}

impl NewFolder {
    fn new(dir: &Path) -> anyhow::Result<Self> {
        if Folder::holds_other_things(dir) {
            let message = format!("`{}` is not empty and holds no study", dir.display());
            return Err(Refusal::new(message).hint("Name a new or empty folder with `--out DIR`").into());
        }
        let missing = dir.ancestors().take_while(|d| !d.as_os_str().is_empty() && !d.exists());
        let mut made: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        made.reverse();
        let prepared = NewFolder { dir: dir.to_owned(), made };
        fs::create_dir_all(dir).and_then(|()| tempfile::tempfile_in(dir)).map(drop).map_err(|e| unwritable(dir, e))?;
        Ok(prepared)
    }

    /// Creates the study with its plan.
    pub fn create(self, plan: &Plan) -> anyhow::Result<Folder> {
        Folder::create(&self.dir, plan).with_context(|| format!("Cannot start a study in `{}`", self.dir.display()))
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        for dir in self.made.iter().rev() {
            // This fails, as intended, for a directory that is not empty.
            let _ = fs::remove_dir(dir);
        }
    }
}

fn unwritable(dir: &Path, error: io::Error) -> anyhow::Error {
    if let Some(file) = dir.ancestors().find(|path| path.exists() && !path.is_dir()) {
        let message = format!("`{}` is not a folder, and a study needs one", file.display());
        return Refusal::new(message).hint("Name a new or empty folder with `--out DIR`").into();
    }
    Refusal::new(format!("The study's folder `{}` is not writable: {error}", dir.display()))
        .hint("Name a writable folder with `--out DIR`")
        .into()
}
