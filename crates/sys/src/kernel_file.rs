//! Files of /proc and /sys, read and written as the kernel requires.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// `path` below `root`.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    if root == Path::new("/") { path.to_owned() } else { root.join(path.strip_prefix("/").unwrap_or(path)) }
}

/// The whole text of a file of the kernel.
pub fn read(path: &Path) -> io::Result<String> {
    // Not `fs::read_to_string`: the kernel's files have no useful length.
    let mut text = String::new();
    fs::File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Writes to an existing file of the kernel in one call.
pub fn write(path: &Path, value: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    match file.write(format!("{value}\n").as_bytes())? {
        n if n >= value.len() => Ok(()),
        _ => Err(io::Error::other("the kernel took only a part of the value")),
    }
}
