//! Checks that the clients' files match the loadfile, read from the device.
//!
//! Invariant: no expected file may be missing, no other file may exist, and every byte of each file is checked.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Advice, OFlags};

use super::content::{Content, Pattern, Tree};
use super::names::of_client;
use crate::loadfile::replay::Progress;
use crate::loadfile::{CLIENT, Loadfile, Settings};
use bigiron_sys::load::files::open;

/// The file with the progress of each client.
const PROGRESS: &str = "progress";
/// Bytes checked at a time.
const CHUNK: u64 = 1 << 20;

/// Writes the progress of the clients to a file.
pub fn save(dir: &Path, progress: &[Progress]) -> Result<()> {
    let lines: String = progress.iter().map(|p| format!("{} {} {}\n", p.first, p.pass, p.answered)).collect();
    fs::write(dir.join(PROGRESS), lines).context("Cannot write the clients' progress")
}

fn load(dir: &Path) -> Result<Vec<Progress>> {
    let text = fs::read_to_string(dir.join(PROGRESS)).context("Cannot read the clients' progress")?;
    let line = |line: &str| {
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(Progress { first: number()? as u32, pass: number()? as u32, answered: number()? as usize })
    };
    text.lines().map(|l| line(l).with_context(|| format!("`{l}` is not a client's progress"))).collect()
}

/// Checks all files of the clients.
///
/// # Errors
/// If something is missing, wrong or extra.
pub fn verify(dir: &Path, settings: &Settings, seed: u64) -> Result<()> {
    let pattern = Pattern::new(seed, settings.file.longest());
    let progress = load(dir)?;
    ensure!(progress.len() == settings.clients, "{} clients have run, not {}", progress.len(), settings.clients);
    for (client, progress) in progress.iter().enumerate() {
        let tree = replayed(&settings.file, &pattern, client, *progress);
        check(dir, &tree, &pattern, client).with_context(|| format!("Client {}", client + 1))?;
    }
    Ok(())
}

/// The expected files of a client with this progress.
fn replayed<'a>(file: &'a Loadfile, pattern: &'a Pattern, client: usize, progress: Progress) -> Tree<'a> {
    let mut tree = Tree::new(file, pattern, client);
    for pass in progress.first.max(1)..=progress.pass {
        let end = if pass == progress.pass { progress.answered } else { file.requests.len() };
        tree.begin();
        file.requests[..end].iter().for_each(|r| tree.apply(r, pass));
    }
    tree
}

fn check(dir: &Path, tree: &Tree<'_>, pattern: &Pattern, client: usize) -> Result<()> {
    let own = of_client(CLIENT, client)?;
    let own = dir.join(own.to_str()?);
    let mut there = BTreeSet::new();
    list(&own, CLIENT, &mut there)?;
    for (name, content) in tree.files() {
        let found = there.iter().find(|(known, _)| known == name).cloned();
        let (_, path) = found.with_context(|| format!("`{name}` is missing"))?;
        compare(&path, content, pattern)?;
        there.remove(&(name.to_owned(), path));
    }
    match there.first() {
        None => Ok(()),
        Some((name, _)) => Err(anyhow::anyhow!("`{name}` exists, although it was removed or never created")),
    }
}

/// All files below a directory: their names as in [`Tree`], and their paths.
fn list(directory: &Path, name: &str, files: &mut BTreeSet<(String, PathBuf)>) -> Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        let name = format!("{name}/{}", entry.file_name().to_string_lossy().to_lowercase());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &name, files)?;
        } else {
            files.insert((name, entry.path()));
        }
    }
    Ok(())
}

fn compare(path: &Path, content: &Content, pattern: &Pattern) -> Result<()> {
    let file = open(path, OFlags::RDONLY)?;
    // The contents of the device count, not those of memory.
    rustix::fs::fsync(&file)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let bytes = rustix::fs::fstat(&file)?.st_size as u64;
    ensure!(bytes == content.bytes, "`{}` has {bytes} bytes instead of {}", path.display(), content.bytes);
    let (mut found, mut wanted) = (Vec::new(), Vec::new());
    for start in (0..bytes).step_by(CHUNK as usize) {
        let length = CHUNK.min(bytes - start) as usize;
        found.resize(length, 0);
        wanted.resize(length, 0);
        let read = rustix::io::pread(&file, &mut found, start)?;
        ensure!(read == length, "`{}` ends at byte {}", path.display(), start + read as u64);
        content.paint(pattern, start, &mut wanted);
        if let Some(at) = found.iter().zip(&wanted).position(|(f, w)| f != w) {
            anyhow::bail!("Byte {} of `{}` differs from what was written", start + at as u64, path.display());
        }
    }
    Ok(())
}
