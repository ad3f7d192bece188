//! Targets that did not come back: nothing is run there until the user has looked at them.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use bigiron_model::folder_files;
use bigiron_model::refusal::Refusal;

use crate::undo;

fn folder() -> anyhow::Result<PathBuf> {
    Ok(undo::folder()?.join("quarantine"))
}

/// The name of a target's file.
fn file(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-@".contains(c) { c } else { '_' }).collect()
}

/// Why the target `name` is in quarantine, if it is.
pub fn reason(name: &str) -> Option<String> {
    Some(fs::read_to_string(folder().ok()?.join(file(name))).ok()?.trim().to_owned())
}

/// Refuses a target in quarantine.
pub fn check(name: &str) -> Result<(), Refusal> {
    let Some(why) = reason(name) else { return Ok(()) };
    Err(Refusal::new(format!("`{name}` is in quarantine: {why}")).hint(format!(
        "When the machine works again, `bigiron undo --on ssh:{name}` restores it and ends the quarantine"
    )))
}

/// Puts a target into quarantine.
pub fn put(name: &str, why: &str) -> anyhow::Result<()> {
    let folder = folder()?;
    fs::create_dir_all(&folder).with_context(|| format!("Cannot make {}", folder.display()))?;
    let text = format!("{} ({})\n", why, bigiron_model::date::now());
    Ok(folder_files::write_whole(&folder, &file(name), text.as_bytes(), 0o600)?)
}

/// Ends the quarantine; whether there was one.
pub fn end(name: &str) -> anyhow::Result<bool> {
    match fs::remove_file(folder()?.join(file(name))) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e.into()),
    }
}
