//! A program's root in a guest: the image below, what is written above it, and the guest's own devices and processes.
//!
//! Invariant: nothing of it outlives the guest; what the program writes goes to the file system under test.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::mount::{MountFlags, mount, mount_bind_recursive};

/// Mounts the root below the trial's folder `dir`: where it is.
///
/// # Errors
/// The kernel lacks overlay, or refuses the file system under test as its upper layer.
pub fn make(image: &Path, dir: &Path) -> Result<PathBuf> {
    let [upper, work, root] = ["upper", "overlay", "root"].map(|name| dir.join(name));
    for folder in [&upper, &work, &root] {
        fs::create_dir_all(folder).with_context(|| format!("Cannot make {}", folder.display()))?;
    }
    let layers = format!("lowerdir={},upperdir={},workdir={}", image.display(), upper.display(), work.display());
    let layers = CString::new(layers).context("A path with a zero byte")?;
    mount("overlay", &root, "overlay", MountFlags::empty(), Some(layers.as_c_str()))
        .context("The guest's kernel does not lay the programs' files over this machine's (overlay)")?;
    for name in ["proc", "sys", "dev"] {
        let from = Path::new("/").join(name);
        mount_bind_recursive(&from, root.join(name)).with_context(|| format!("Cannot mount {}", from.display()))?;
    }
    Ok(root)
}

/// What a program finds in its environment in a guest, under what the user sets.
pub const ENVIRONMENT: [(&str, &str); 5] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("USER", "root"),
    ("LANG", "C.UTF-8"),
    ("SHELL", "/bin/sh"),
];
