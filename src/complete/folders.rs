//! Files and folders.

use std::fs;
use std::path::{Path, PathBuf};

use clap_complete::engine::CompletionCandidate;

use super::candidate;
use crate::conduct::study_folder::RESULTS;

/// Maximum number of entries of a folder that are looked at.
const ENTRIES: usize = 5_000;

/// Files in the folder of `typed` whose name is `wanted`, and folders to descend into.
pub(super) fn files(typed: &str, wanted: impl Fn(&str) -> bool) -> Vec<CompletionCandidate> {
    let entry = |shown: &str, path: &Path| {
        if path.is_dir() {
            return Some(candidate(format!("{shown}/"), ""));
        }
        wanted(shown.rsplit('/').next().unwrap_or(shown)).then(|| candidate(shown, ""))
    };
    entries(typed).iter().filter_map(|(shown, path)| entry(shown, path)).collect()
}

/// Folders of studies, nights and bisections, and folders to descend into. Before anything is typed, those in the usual place as well.
pub(super) fn studies(typed: &str) -> Vec<CompletionCandidate> {
    let usual = format!("{RESULTS}/");
    let mut found = if typed.is_empty() { entries(&usual) } else { Vec::new() };
    found.retain(|(_, path)| kind(path).is_some());
    found.extend(entries(typed).into_iter().filter(|(_, path)| path.is_dir()));
    let folder = |(shown, path): &(String, PathBuf)| match kind(path) {
        Some(kind) => candidate(shown, kind),
        None => candidate(format!("{shown}/"), ""),
    };
    found.iter().map(folder).collect()
}

/// What a folder holds, if it is one of bigiron's.
fn kind(path: &Path) -> Option<&'static str> {
    let kinds = [("plan.toml", "study"), ("night.toml", "night"), ("bisect.toml", "bisection")];
    kinds.into_iter().find(|(file, _)| path.join(file).is_file()).map(|(_, kind)| kind)
}

/// The entries of the folder that `typed` names up to its last `/`, as typed and as a path, sorted; hidden ones only if a dot has been typed.
fn entries(typed: &str) -> Vec<(String, PathBuf)> {
    let (folder, name) = typed.rsplit_once('/').map_or(("", typed), |(folder, name)| (&typed[..=folder.len()], name));
    let path = match folder.strip_prefix("~/") {
        Some(rest) => std::env::home_dir().unwrap_or_default().join(rest),
        None if folder.is_empty() => PathBuf::from("."),
        None => PathBuf::from(folder),
    };
    let read = fs::read_dir(path).into_iter().flatten().flatten().take(ENTRIES);
    let is_shown = |entry: &str| entry.starts_with(name) && (name.starts_with('.') || !entry.starts_with('.'));
    let mut found: Vec<(String, PathBuf)> = read
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .filter(|(entry, _)| is_shown(entry))
        .map(|(entry, path)| (format!("{folder}{entry}"), path))
        .collect();
    found.sort();
    found
}
