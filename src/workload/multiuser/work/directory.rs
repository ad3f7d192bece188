//! Tests of names: files created, linked, looked up, listed.
//!
//! Invariant: the tree that users search is the same for all of them and for every seed; what a user makes in it has the user's number.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The tree's root, under the directory that users share.
const TREE: &str = "tree";
/// Branches of the tree: some near the root, some deep, so that a path is of 1 to 8 names.
const BRANCHES: [&str; 8] =
    ["b0", "b1", "b2/c0", "b2/c1/d0", "b3/c0/d0/e0", "b3/c0/d1/e0/f0", "b4/c0/d0/e0/f0/g0", "b4/c0/d0/e0/f1/g0/h0"];
/// Files of a branch.
const LEAVES: usize = 40;
/// Files of the directory that is listed.
const LISTED: usize = 100;

fn tree(dir: &Path) -> PathBuf {
    dir.join(TREE)
}

fn listed(dir: &Path) -> PathBuf {
    tree(dir).join("listed")
}

fn leaf(number: usize) -> String {
    format!("leaf{number:02}")
}

/// Makes the tree, if it is not there.
pub(super) fn lay_out(dir: &Path) -> anyhow::Result<()> {
    let root = tree(dir);
    if root.exists() {
        return Ok(());
    }
    let make = || -> io::Result<()> {
        for branch in BRANCHES {
            let branch = root.join(branch);
            fs::create_dir_all(&branch)?;
            for number in 0..LEAVES {
                File::create(branch.join(leaf(number)))?;
            }
        }
        fs::create_dir(listed(dir))?;
        for number in 0..LISTED {
            File::create(listed(dir).join(format!("name{number:03}")))?;
        }
        Ok(())
    };
    make().with_context(|| format!("Cannot lay out `{}`", root.display()))
}

/// Removes it.
pub(super) fn clear(dir: &Path) -> anyhow::Result<()> {
    let root = tree(dir);
    match fs::remove_dir_all(&root) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("Cannot remove `{}`", root.display()))
        }
        _ => Ok(()),
    }
}
