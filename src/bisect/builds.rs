//! A folder of builds as a list of kernels, ordered by release.
//!
//! Invariant: a release is read from the boot image; only a package's comes from its name, because a package would have to be
//! unpacked.

use std::fs;
use std::path::{Path, PathBuf};

use bigiron_archive::image;
use bigiron_model::refusal::Refusal;
use bigiron_model::version::compare as compare_versions;

/// Whether `path` is a folder that may hold builds, and not a build itself.
pub fn is_folder(path: &Path) -> bool {
    path.is_dir() && !path.join("arch/x86/boot").is_dir()
}

/// The build trees, boot images and kernel packages directly in `dir`, the oldest release first, builds of one release by name.
/// Other files are ignored.
///
/// # Errors
/// If the folder cannot be read, or holds fewer than two builds.
pub fn list(dir: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let entries =
        fs::read_dir(dir).map_err(|e| Refusal::new(format!("Cannot read the folder `{}`: {e}", dir.display())))?;
    let mut found: Vec<(String, PathBuf)> =
        entries.filter_map(|e| e.ok().map(|e| e.path())).filter_map(|path| Some((release(&path)?, path))).collect();
    found.sort_by(|a, b| compare_versions(&a.0, &b.0).then_with(|| a.1.cmp(&b.1)));
    if found.len() < 2 {
        let message = format!("`{}` holds fewer than two builds", dir.display());
        return Err(Refusal::new(message)
            .hint("A folder of builds has build trees, boot images (bzImage) or packages (linux-image-….deb) in it"));
    }
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The release of a build, a candidate before its release; `None` if the path is not a build.
fn release(path: &Path) -> Option<String> {
    let of_image = |path: &Path| image::read(path).ok().map(|image| image.release);
    let release = if path.is_dir() {
        of_image(&path.join("arch/x86/boot/bzImage"))?
    } else if path.extension().is_some_and(|e| e == "deb") {
        let name = path.file_name()?.to_str()?.strip_prefix("linux-image-")?;
        let release = name.split('_').next()?;
        (!release.ends_with("-dbg")).then(|| release.to_owned())?
    } else {
        of_image(path)?
    };
    Some(release.replace("-rc", "~rc"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_archive::fixture::bzimage;

    #[test]
    fn builds_are_in_the_order_of_their_releases() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        file("z", &bzimage("6.9.0-rc3"));
        file("y", &bzimage("6.10.0"));
        file("x", &bzimage("6.9.0-rc3-00012-gabcdef"));
        file("tree/arch/x86/boot/bzImage", &bzimage("6.9.0"));
        file("linux-image-6.9.1-mine_6.9.1-1_amd64.deb", b"");
        file("linux-image-6.9.1-mine-dbg_6.9.1-1_amd64.deb", b"");
        file("config", b"CONFIG_A=y\n");
        let names = |found: Vec<PathBuf>| -> Vec<String> {
            found.iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(
            names(list(dir.path()).unwrap()),
            ["z", "x", "tree", "linux-image-6.9.1-mine_6.9.1-1_amd64.deb", "y"]
        );
        assert!(is_folder(dir.path()) && !is_folder(&dir.path().join("tree")) && !is_folder(&dir.path().join("z")));
        assert!(list(&dir.path().join("tree")).unwrap_err().message.contains("fewer than two"));
    }
}
