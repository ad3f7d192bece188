//! Kernels that bigiron brings to a target.
//!
//! They are unpacked, not installed by dpkg: a package's scripts would write the boot menu, whose first entry, often the default, would become
//! the newest kernel. Here only modules go where the system looks for them; image and initramfs stay in bigiron's folder.
//!
//! Invariant: what was brought is noted on the disk before it is put in place; a kernel that was there before is never touched.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use bigiron_model::folder_files::{self, Access};
use bigiron_model::identity::Identity;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::boot::{installed_files, run};
use super::folder::{self, TargetFolder};
use super::look::hex;

const NOTE: &str = "brought.json";
/// Written last: the kernel can be booted.
const READY: &str = "ready.json";

/// A kernel that was brought.
#[derive(Debug, Serialize, Deserialize)]
struct Brought {
    kernel: Identity,
    /// Whether its modules were put below /lib/modules; not for one without modules.
    modules: Option<PathBuf>,
    /// The configuration, where mkinitramfs looks for it; removed once the initramfs is made.
    #[serde(default)]
    config: PathBuf,
}

/// What mkinitramfs must know of a kernel whose configuration is not known: every kernel of the last ten years reads this.
const CONFIG: &[u8] = b"CONFIG_RD_GZIP=y\n";

/// The name of a kernel's folder.
fn name(kernel: &Identity) -> String {
    format!("{}-{}", kernel.release, kernel.image_sha256.get(..12).unwrap_or_default())
}

fn modules_of(release: &str) -> PathBuf {
    Path::new("/lib/modules").join(release)
}

/// The files of a kernel that the machine had before, if its image is the same.
fn installed(kernel: &Identity) -> Option<(PathBuf, PathBuf)> {
    let files = installed_files(&kernel.release)?;
    let bytes = fs::read(&files.0).ok()?;
    (hex(&Sha256::digest(bytes)) == kernel.image_sha256).then_some(files)
}

/// The image and the initramfs with which a kernel boots.
pub(super) fn files(folder: &TargetFolder, kernel: &Identity) -> anyhow::Result<(PathBuf, PathBuf)> {
    if let Some(files) = installed(kernel) {
        return Ok(files);
    }
    let dir = folder.kernels().join(name(kernel));
    ensure!(dir.join(READY).exists(), "The kernel {} is not on the target", kernel.release);
    Ok((dir.join("image"), dir.join("initrd")))
}

/// Whether a kernel need not be sent.
pub(super) fn is_ready(folder: &TargetFolder, kernel: &Identity) -> bool {
    installed(kernel).is_some() || folder.kernels().join(name(kernel)).join(READY).exists()
}

/// Waits until no other process brings or removes kernels, as one whose connection was lost does to its end.
fn lock(folder: &TargetFolder) -> anyhow::Result<File> {
    let file = folder_files::open(folder.path(), "kernels.lock", Access::Update, 0o600)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Puts a kernel in place from an archive (tar) with `image`, perhaps `config`, and perhaps `modules/`.
pub(super) fn bring(folder: &TargetFolder, study: &str, kernel: &Identity, archive: impl Read) -> anyhow::Result<()> {
    folder_files::plain_name(&kernel.release).map_err(anyhow::Error::msg)?;
    let _lock = lock(folder)?;
    if is_ready(folder, kernel) {
        return Ok(());
    }
    let modules = modules_of(&kernel.release);
    let dir = folder.kernels().join(name(kernel));
    let mine = folder::read::<Brought>(&dir, NOTE)?.is_some();
    if modules.exists() && !mine {
        bail!(
            "The target has another kernel of the release {} ({}), or no initramfs for it; name another version, or remove it there",
            kernel.release,
            modules.display()
        );
    }
    folder.audit(study, &format!("install {} ({})", kernel.release, kernel.image_sha256))?;
    remove(folder, &dir)?;
    folder::make_durable(&dir)?;
    let parts = dir.join("parts");
    fs::create_dir(&parts)?;
    unpack(archive, &parts)?;
    let image = fs::read(parts.join("image")).context("The archive has no image")?;
    ensure!(hex(&Sha256::digest(&image)) == kernel.image_sha256, "The image of {} arrived damaged", kernel.release);
    let has_modules = parts.join("modules").is_dir();
    let config = Path::new("/boot").join(format!("config-{}", kernel.release));
    ensure!(mine || !config.exists(), "The target has {} of another kernel; remove it there", config.display());
    let brought =
        Brought { kernel: kernel.clone(), modules: has_modules.then(|| modules.clone()), config: config.clone() };
    folder::write(&dir, NOTE, &brought)?;
    let text = fs::read(parts.join("config")).unwrap_or_else(|_| CONFIG.to_vec());
    fs::write(&config, text).with_context(|| format!("Cannot write {}", config.display()))?;
    fs::rename(parts.join("image"), dir.join("image"))?;
    if has_modules {
        copy(&parts.join("modules"), &modules)?;
        run("depmod", &["-a", &kernel.release])?;
    }
    let initrd = dir.join("initrd");
    run("mkinitramfs", &["-o", &initrd.display().to_string(), &kernel.release])
        .context("Cannot make the initramfs; the target needs initramfs-tools")?;
    fs::remove_file(&config)?;
    fs::remove_dir_all(&parts)?;
    rustix::fs::sync();
    folder::write(&dir, READY, &kernel.release)
}

/// Unpacks with the system's tar, which reads a pipe.
fn unpack(mut archive: impl Read, into: &Path) -> anyhow::Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["-x", "--no-same-owner", "-f", "-", "-C"]).arg(into).stdin(Stdio::piped());
    let mut child = tar.spawn().context("Cannot start tar")?;
    let mut input = child.stdin.take().expect("it is a pipe");
    let copied = std::io::copy(&mut archive, &mut input);
    drop(input);
    let status = child.wait()?;
    copied.context("The kernel did not arrive completely")?;
    ensure!(status.success(), "tar could not unpack the kernel");
    Ok(())
}

/// Moves a tree, also to another file system.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if fs::rename(from, to).is_err() {
        run("cp", &["-a", &from.display().to_string(), &to.display().to_string()])?;
    }
    Ok(())
}

/// Releases of the kernels that bigiron brought.
pub(super) fn brought(folder: &TargetFolder) -> Vec<String> {
    let mut found: Vec<String> = folders(folder)
        .iter()
        .filter_map(|dir| Some(folder::read::<Brought>(dir, NOTE).ok()??.kernel.release))
        .collect();
    found.sort();
    found
}

fn folders(folder: &TargetFolder) -> Vec<PathBuf> {
    fs::read_dir(folder.kernels()).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

/// Removes one, its modules first: the note goes last.
fn remove(folder: &TargetFolder, dir: &Path) -> anyhow::Result<Option<String>> {
    let Some(brought) = folder::read::<Brought>(dir, NOTE)? else {
        let name = dir.file_name().unwrap_or_default();
        folder_files::remove_all(folder.path(), Path::new("kernels").join(name))?;
        return Ok(None);
    };
    let release = brought.kernel.release;
    let running = rustix::system::uname().release().to_string_lossy() == release;
    ensure!(!running, "The kernel {release} is running, so it is not removed");
    if brought.config == Path::new("/boot").join(format!("config-{release}")) {
        let _ = fs::remove_file(&brought.config);
    }
    if let Some(modules) = brought.modules.filter(|modules| *modules == modules_of(&release)) {
        match fs::remove_dir_all(&modules) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("Cannot remove {}", modules.display()));
            }
            _ => {}
        }
    }
    let name = dir.file_name().unwrap_or_default();
    folder_files::remove_all(folder.path(), Path::new("kernels").join(name))?;
    Ok(Some(release))
}

/// Removes all kernels that bigiron brought; their releases.
pub(super) fn remove_all(folder: &TargetFolder, study: &str) -> anyhow::Result<Vec<String>> {
    let _lock = lock(folder)?;
    let mut removed = Vec::new();
    for dir in folders(folder) {
        folder.audit(study, &format!("remove {}", dir.display()))?;
        removed.extend(remove(folder, &dir)?);
    }
    removed.sort();
    Ok(removed)
}
