//! Small files made and removed.

use std::ffi::CString;

use rustix::fs::{CWD, Mode, OFlags};

use super::bench::{Bench, Window, timed, whole};

/// Files that exist at once: few enough for one directory block on ext4, so that both arms meet the same directory.
const FILES: u64 = 100;

/// Which half of a file's life is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Create,
    Delete,
}

/// Creates and deletes files of `bytes` bytes, 100 at a time, in a directory of their own; times one of the two.
pub fn lives(b: &Bench<'_>, half: Half, bytes: usize) -> anyhow::Result<Window> {
    let dir = b.dir.join(b.name);
    std::fs::create_dir(&dir)?;
    let mut names = Vec::new();
    for n in 0..FILES {
        names.push(CString::new(dir.join(format!("file-{n:03}")).as_os_str().as_encoded_bytes())?);
    }
    let content = vec![7; bytes];
    b.write_back()?;
    let window = b.time_parts(FILES, |n| {
        let mut names_left = names.iter();
        let created = timed(n, || create(names_left.next(), &content))?;
        let mut names_left = names.iter();
        let deleted = timed(n, || delete(names_left.next()))?;
        Ok(match half {
            Half::Create => created,
            Half::Delete => deleted,
        })
    })?;
    std::fs::remove_dir(&dir)?;
    Ok(window)
}

fn create(name: Option<&CString>, content: &[u8]) -> std::io::Result<()> {
    let name = name.ok_or(std::io::ErrorKind::NotFound)?;
    let file = rustix::fs::openat(CWD, name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, Mode::RUSR | Mode::WUSR)?;
    if content.is_empty() { Ok(()) } else { whole(rustix::io::write(&file, content)?, content.len()) }
}

fn delete(name: Option<&CString>) -> std::io::Result<()> {
    Ok(rustix::fs::unlink(name.ok_or(std::io::ErrorKind::NotFound)?)?)
}
