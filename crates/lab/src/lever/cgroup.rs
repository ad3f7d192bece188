//! A cgroup (v2) for the workload of a trial.

use std::fs;
use std::path::{Path, PathBuf};

use crate::undo::{ChangeLog, Inverse};
use bigiron_model::record::FileChange;
use bigiron_sys::kernel_file::{below, read, write};

const MOUNT: &str = "/sys/fs/cgroup";

/// Why no cgroup can limit memory on the machine below `root`; `None` if one can.
pub(super) fn missing(root: &Path) -> Option<String> {
    let Ok(offered) = read(&below(root, Path::new(MOUNT)).join("cgroup.controllers")) else {
        return Some(format!("`{MOUNT}` is not a version 2 cgroup, the only version that bigiron supports"));
    };
    let has = offered.split_whitespace().any(|c| c == "memory");
    (!has).then(|| format!("`{MOUNT}/cgroup.controllers` offers `{}`, without `memory`", offered.trim()))
}

/// Creates a cgroup whose processes together may use `bytes` of memory.
pub(super) fn limit(what: &str, bytes: u64, notes: &mut dyn ChangeLog) -> Result<(PathBuf, Vec<FileChange>), String> {
    let root = notes.root().to_owned();
    let at = |path: &Path| below(&root, path);
    let control = Path::new(MOUNT).join("cgroup.subtree_control");
    let mut changes = Vec::new();
    let given = read(&at(&control)).map_err(|e| format!("`{}` cannot be read: {e}", control.display()))?;
    if !given.split_whitespace().any(|c| c == "memory") {
        let undo = Inverse::Write { path: control.clone(), value: "-memory".to_owned(), shown: given.clone() };
        notes.note(what, undo).map_err(|e| e.to_string())?;
        write(&at(&control), "+memory")
            .map_err(|e| format!("`{}` does not accept `+memory`: {e}", control.display()))?;
        let after = read(&at(&control)).unwrap_or_default();
        changes.push(FileChange {
            path: control.display().to_string(),
            before: given.trim().to_owned(),
            after: after.trim().to_owned(),
        });
    }
    let group = Path::new(MOUNT).join(format!("bigiron-{}", std::process::id()));
    if at(&group).exists() {
        return Err(format!("{} already exists", group.display()));
    }
    notes.note(what, Inverse::RemoveCgroup { path: group.clone() }).map_err(|e| e.to_string())?;
    fs::create_dir(at(&group)).map_err(|e| format!("{} cannot be created: {e}", group.display()))?;
    let file = group.join("memory.max");
    write(&at(&file), &bytes.to_string()).map_err(|e| format!("`{}` does not accept {bytes}: {e}", file.display()))?;
    let after = read(&at(&file)).unwrap_or_default().trim().to_owned();
    // The kernel rounds to whole pages.
    if after.parse() != Ok(bytes / 4096 * 4096) {
        return Err(format!("`{}` says `{after}`", file.display()));
    }
    changes.push(FileChange { path: file.display().to_string(), before: "none".to_owned(), after });
    Ok((group, changes))
}
