//! Files that the job deals to other directories or to block devices, as links in the run's own directory.
//!
//! Invariant: whoever opens a file by its name in the run's directory gets it, wherever it is. A device that anybody uses is refused.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::files::{data_path, journal_path};
use super::job::Job;

/// Makes the links of those files that are to be elsewhere.
///
/// # Errors
/// If a device is in use or too small, or a place cannot be written to.
pub fn link(job: &Job, dir: &Path) -> Result<()> {
    for file in (0..job.data.files).filter(|_| !job.data.places.is_empty()) {
        let place = &job.data.places[file % job.data.places.len()];
        let bytes = job.data.bytes / job.data.files as u64;
        let link = data_path(dir, file);
        let target = if is_device(place) {
            claim(place, bytes)?;
            place.clone()
        } else {
            make(place, &link)?
        };
        put(&target, &link)?;
    }
    for journal in 0..job.journal.files {
        if let Some(place) = &job.journal.place {
            let link = journal_path(dir, journal);
            put(&make(place, &link)?, &link)?;
        }
    }
    Ok(())
}

/// Removes what [`link`] has made outside the run's directory. What is not there is no error.
pub fn remove(job: &Job, dir: &Path) -> Result<()> {
    let data = (0..job.data.files).map(|f| data_path(dir, f));
    for link in data.chain((0..job.journal.files).map(|j| journal_path(dir, j))) {
        if let Ok(target) = std::fs::read_link(&link)
            && !is_device(&target)
        {
            match std::fs::remove_file(&target) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(e).with_context(|| format!("Cannot remove `{}`", target.display()));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether it is a block device, or a link to one.
pub fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.file_type().is_block_device())
}

/// An empty file in the directory `place`, of a name that no other run has.
fn make(place: &Path, link: &Path) -> Result<PathBuf> {
    let name = link.file_name().context("A file without a name")?.to_string_lossy();
    // A link says where it leads wherever it is read.
    let place = std::path::absolute(place).with_context(|| format!("Cannot find `{}`", place.display()))?;
    let file = tempfile::Builder::new()
        .prefix(&format!("bigiron-dbsim-{name}-"))
        .tempfile_in(&place)
        .with_context(|| format!("Cannot make a file in `{}`", place.display()))?;
    let (_, path) = file.keep().with_context(|| format!("Cannot keep a file in `{}`", place.display()))?;
    Ok(path)
}

fn put(target: &Path, link: &Path) -> Result<()> {
    match std::fs::remove_file(link) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).context("Cannot remove an old file"),
        _ => {}
    }
    symlink(target, link).with_context(|| format!("Cannot make `{}`", link.display()))
}

/// Refuses a device that is mounted, swapped to or part of another, or smaller than `bytes`.
fn claim(device: &Path, bytes: u64) -> Result<()> {
    let name = device.display();
    // For a block device O_EXCL alone means: nobody else has claimed it (open(2)).
    let mut file: File =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(device).with_context(|| {
            format!("Cannot have `{name}` alone; a device that is mounted or in use is left in peace")
        })?;
    let size = file.seek(SeekFrom::End(0)).with_context(|| format!("Cannot tell the size of `{name}`"))?;
    ensure!(size >= bytes, "`{name}` has {size} bytes, the data file needs {bytes}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::dbsim::files;
    use crate::workload::{Workload, dbsim::Dbsim, options};

    #[test]
    fn files_are_dealt_in_turn_and_removed_again() {
        let [dir, one, other] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
        let mut job = Job::parse(&options(&Dbsim as &dyn Workload, []).unwrap()).unwrap();
        (job.data.files, job.data.bytes, job.data.direct, job.journal.direct) = (3, 3 << 20, false, false);
        job.data.places = vec![one.path().to_owned(), other.path().to_owned()];
        job.journal.place = Some(other.path().to_owned());
        files::lay_out(&job, dir.path(), |_| {}).unwrap();
        let count = |d: &tempfile::TempDir| d.path().read_dir().unwrap().count();
        assert_eq!((count(&one), count(&other)), (2, 1 + job.journal.files));
        assert_eq!(data_path(dir.path(), 2).metadata().unwrap().len(), 1 << 20);
        assert!(data_path(dir.path(), 2).read_link().unwrap().starts_with(one.path()));
        // A second lay-out in the same place does not leave the first behind.
        remove(&job, dir.path()).unwrap();
        assert_eq!((count(&one), count(&other)), (0, 0));
        // Nothing is there any more.
        remove(&job, dir.path()).unwrap();
    }

    #[test]
    fn a_place_that_is_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut job = Job::parse(&options(&Dbsim as &dyn Workload, []).unwrap()).unwrap();
        job.data.places = vec![dir.path().join("absent")];
        let error = format!("{:#}", link(&job, dir.path()).unwrap_err());
        assert!(error.starts_with("Cannot make a file in `") && error.contains("absent"), "{error}");
    }
}
