//! Whether the clients' files are what the loadfile makes of them, read from the device.
//!
//! Invariant: no file that must be there may be missing, none may be there that must not, and every byte of each is looked at.

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

/// How far each client came.
const PROGRESS: &str = "progress";
/// Bytes looked at together.
const CHUNK: u64 = 1 << 20;

/// Writes down how far the clients came.
pub fn save(dir: &Path, progress: &[Progress]) -> Result<()> {
    let lines: String = progress.iter().map(|p| format!("{} {} {}\n", p.first, p.pass, p.answered)).collect();
    fs::write(dir.join(PROGRESS), lines).context("Cannot write down how far the clients came")
}

fn load(dir: &Path) -> Result<Vec<Progress>> {
    let text = fs::read_to_string(dir.join(PROGRESS)).context("Nothing says how far the clients came")?;
    let line = |line: &str| {
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(Progress { first: number()? as u32, pass: number()? as u32, answered: number()? as usize })
    };
    text.lines().map(|l| line(l).with_context(|| format!("`{l}` does not say how far a client came"))).collect()
}

/// Checks all that the clients have left.
///
/// # Errors
/// Something is missing, wrong or too much.
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

/// What a client that came so far has left.
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
        Some((name, _)) => Err(anyhow::anyhow!("`{name}` is there, though it was removed or never made")),
    }
}

/// All files below a directory: their names as [`Tree`] has them, and where they are.
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
    // What is on the device counts, not what is still in memory.
    rustix::fs::fsync(&file)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let bytes = rustix::fs::fstat(&file)?.st_size as u64;
    ensure!(bytes == content.bytes, "`{}` has {bytes} bytes, and must have {}", path.display(), content.bytes);
    let (mut found, mut wanted) = (Vec::new(), Vec::new());
    for start in (0..bytes).step_by(CHUNK as usize) {
        let length = CHUNK.min(bytes - start) as usize;
        found.resize(length, 0);
        wanted.resize(length, 0);
        let read = rustix::io::pread(&file, &mut found, start)?;
        ensure!(read == length, "`{}` ends at byte {}", path.display(), start + read as u64);
        content.paint(pattern, start, &mut wanted);
        if let Some(at) = found.iter().zip(&wanted).position(|(f, w)| f != w) {
            anyhow::bail!("Byte {} of `{}` is not what was written", start + at as u64, path.display());
        }
    }
    Ok(())
}
