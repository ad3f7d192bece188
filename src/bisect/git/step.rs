//! The build steps that make performs: configuring the tree, then building the image.
//!
//! Invariant: a failed step gives its reason in one line if the fault is the commit's or the configuration's; everything else is
//! an error.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::bail;

use super::Recipe;
use super::config::{self, Base};
use super::make::{Make, MakeEnd};

/// Maximum number of characters of a reason.
const COMPLAINT: usize = 160;

/// How a build step ended.
pub(super) enum BuildStep {
    Done,
    Failed(Option<String>),
    Interrupted,
}

/// How a run of make ended.
pub(super) fn made(ended: MakeEnd) -> BuildStep {
    match ended {
        MakeEnd::Done => BuildStep::Done,
        MakeEnd::Failed => BuildStep::Failed(None),
        MakeEnd::Interrupted => BuildStep::Interrupted,
    }
}

/// Configures the tree, and checks the result for the options that a guest needs.
pub(super) fn configure(make: &Make<'_>, recipe: &Recipe, log: &File) -> anyhow::Result<BuildStep> {
    let path = make.build.join(".config");
    let run = |target: &str| -> anyhow::Result<Option<BuildStep>> {
        let ended = made(make.run(&[target], log)?);
        Ok((!matches!(ended, BuildStep::Done)).then_some(ended))
    };
    let added = config::added(&recipe.more);
    match &recipe.base {
        Base::File { text, .. } => fs::write(&path, format!("{text}\n{added}"))?,
        Base::Target(target) => {
            if let Some(step) = run(target)? {
                return Ok(step);
            }
            File::options().append(true).open(&path)?.write_all(added.as_bytes())?;
        }
    }
    if let Some(step) = run("olddefconfig")? {
        return Ok(step);
    }
    let text = fs::read_to_string(&path)?;
    let missing = config::missing(&text, &recipe.more);
    let lacking: Vec<&str> = missing.into_iter().filter(|option| is_option(make.tree, option)).collect();
    if !lacking.is_empty() {
        let names: Vec<String> = lacking.iter().map(|option| format!("CONFIG_{option}")).collect();
        let them = if names.len() == 1 { "it" } else { "them" };
        return Ok(BuildStep::Failed(Some(format!(
            "With this configuration {} cannot be set, and a guest needs {them}",
            names.join(", ")
        ))));
    }
    Ok(BuildStep::Done)
}

/// Whether the tree has an option: options added later or removed earlier are not required.
fn is_option(tree: &Path, option: &str) -> bool {
    let is_declared = |text: &str| {
        let mut words = text.lines().map(|line| line.split_whitespace());
        words.any(|mut words| matches!(words.next(), Some("config" | "menuconfig")) && words.next() == Some(option))
    };
    let mut open = vec![tree.to_path_buf()];
    while let Some(dir) = open.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let is_kconfig = entry.file_name().to_str().is_some_and(|name| name.starts_with("Kconfig"));
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                open.push(entry.path());
            } else if is_kconfig && fs::read_to_string(entry.path()).is_ok_and(|text| is_declared(&text)) {
                return true;
            }
        }
    }
    false
}

/// The first error in the log of a failed build, in one line.
pub(crate) fn reason(log: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(log)?;
    let text = String::from_utf8_lossy(&bytes);
    if text.contains("No space left on device") {
        bail!("No space left for the build; the output is in `{}`", log.display());
    }
    let is_error = |line: &&str| line.contains(" error: ") || line.contains("undefined reference");
    let line = text.lines().find(is_error).or_else(|| text.lines().find(|line| line.contains("***")));
    let line = line.or_else(|| text.lines().rfind(|line| !line.trim().is_empty())).unwrap_or("make failed");
    Ok(line.trim().chars().take(COMPLAINT).collect())
}
