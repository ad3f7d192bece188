//! A program's root in a guest: the image as the lower layer, written files above it, and the guest's own devices and processes.
//!
//! Invariant: nothing outlives the guest; the program's writes go to the file system under test.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::mount::{MountFlags, mount, mount_bind_recursive};

/// Mounts the root below the trial's folder `dir` and returns its path.
///
/// # Errors
/// The kernel has no overlay, or refuses the file system under test as the upper layer.
pub fn make(image: &Path, dir: &Path) -> Result<PathBuf> {
    let [upper, work, root] = ["upper", "overlay", "root"].map(|name| dir.join(name));
    for folder in [&upper, &work, &root] {
        fs::create_dir_all(folder).with_context(|| format!("Cannot make {}", folder.display()))?;
    }
    let layers = format!("lowerdir={},upperdir={},workdir={}", image.display(), upper.display(), work.display());
    let layers = CString::new(layers).context("A path with a zero byte")?;
    mount("overlay", &root, "overlay", MountFlags::empty(), Some(layers.as_c_str()))
        .context("The guest's kernel cannot mount an overlay on the programs' files")?;
    for name in ["proc", "sys", "dev"] {
        let from = Path::new("/").join(name);
        mount_bind_recursive(&from, root.join(name)).with_context(|| format!("Cannot mount {}", from.display()))?;
    }
    Ok(root)
}

/// A program's environment in a guest, which the user's settings override.
pub const ENVIRONMENT: [(&str, &str); 5] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("USER", "root"),
    ("LANG", "C.UTF-8"),
    ("SHELL", "/bin/sh"),
];
