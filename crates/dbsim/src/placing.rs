//! Files that a job places elsewhere: its directory contains links to them.
//!
//! Invariant: every process finds every file under its usual name in the job's directory.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::files::{data_path, journal_path};
use super::job::Job;

/// Creates the links in `dir`, before any file is prepared. A place is a directory, or a device that holds one data file.
pub fn link(job: &Job, dir: &Path) -> Result<()> {
    for file in 0..job.data.files {
        if let Some(place) = job.data.places.get(file % job.data.places.len().max(1)) {
            one(&data_path(dir, file), place)?;
        }
    }
    for journal in 0..job.journal.files {
        if let Some(place) = &job.journal.place {
            one(&journal_path(dir, journal), place)?;
        }
    }
    Ok(())
}

fn one(link: &Path, place: &Path) -> Result<()> {
    let absolute = std::path::absolute(place).with_context(|| format!("Cannot find `{}`", place.display()))?;
    let target = match link.file_name() {
        Some(name) if absolute.is_dir() => absolute.join(name),
        _ => absolute,
    };
    symlink(&target, link).with_context(|| format!("Cannot link {} to {}", link.display(), target.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_dealt_to_their_places_in_turn() {
        let here = tempfile::tempdir().unwrap();
        let places: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        let mut job = super::super::job::draft("orasim-2004").unwrap().job().unwrap();
        job.data.places = places.iter().map(|p| p.path().to_owned()).collect();
        job.journal.place = Some(places[1].path().to_owned());
        link(&job, here.path()).unwrap();
        for file in 0..job.data.files {
            std::fs::write(data_path(here.path(), file), "x").unwrap();
        }
        std::fs::write(journal_path(here.path(), 0), "x").unwrap();
        let count = |n: usize| std::fs::read_dir(places[n].path()).unwrap().count();
        assert_eq!((count(0), count(1)), (5, 6));
    }
}
