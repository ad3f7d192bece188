//! Images linked anew from the objects of a stored kernel: the same release, configuration and modules in another layout.
//!
//! Invariant: an entry's identity is the stored kernel's image and the text that decides the link, never a time or a place.

use std::fs;
use std::io;
use std::path::Path;

use bigiron_model::identity::Identity;

use super::{NewKernel, Store};
use crate::error::{KernelError, doing};
use crate::{Kernel, hash, image, modules};

/// What decides a linked image, as the state of its source.
fn source(of: &Identity, link: &str) -> String {
    hash::of_bytes(format!("linked {} {:?} {link}", of.image_sha256, of.config_sha256).as_bytes())
}

impl Store {
    /// The image linked from the kernel `of` as `link` says, if it is in the cache and intact.
    ///
    /// # Errors
    /// The cache cannot be read.
    pub fn linked(&self, of: &Identity, link: &str) -> Result<Option<Kernel>, KernelError> {
        let Some(entry) = self.by_source(&source(of, link))? else { return Ok(None) };
        Ok(entry.verify().is_ok().then(|| entry.kernel(&of.spec)))
    }

    /// Stores an image that was linked from the kernel `of`, whose modules and configuration it shares.
    ///
    /// # Errors
    /// The image is for another release, whose modules would be others; the cache cannot be written.
    pub fn add_linked(
        &self,
        of: &Kernel,
        link: &str,
        linked: &Path,
        symbols: Option<&Path>,
        note: &dyn Fn(&str),
    ) -> Result<Kernel, KernelError> {
        let (identity, found) = (&of.identity, image::read(linked)?.release);
        if found != identity.release {
            return Err(KernelError::OtherRelease { path: linked.to_owned(), found, wanted: identity.release.clone() });
        }
        let size = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
        self.needs(size(linked) + symbols.map_or(0, size))?;
        let guard = self.lock(note)?;
        let staged = self.stage(&guard)?;
        let dir = staged.path();
        let copy = |from: &Path, to: &str| fs::copy(from, dir.join(to)).map(drop).map_err(doing("Cannot copy", from));
        copy(linked, "image")?;
        symbols.map_or(Ok(()), |symbols| copy(symbols, "System.map"))?;
        of.config.as_deref().map_or(Ok(()), |config| copy(config, "config"))?;
        if let Some(modules) = &of.modules {
            share(modules, &dir.join("modules")).map_err(doing("Cannot copy", modules))?;
        }
        let arrival = NewKernel {
            spec: identity.spec.clone(),
            from: format!("objects of {}, {link}", identity.spec),
            package: None,
            origin: None,
            source_sha256: source(identity, link),
        };
        Ok(self.commit(&guard, staged, arrival)?.kernel(&identity.spec))
    }
}

/// The modules of another entry. No entry's files ever change, so that a link serves as well as a copy, and takes no room.
fn share(from: &Path, to: &Path) -> io::Result<()> {
    let lists = fs::read_dir(from)?.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_file());
    let files = modules::files(from).map_err(io::Error::other)?.into_iter().map(|(_, path, _)| path);
    for path in files.chain(lists) {
        let to = to.join(path.strip_prefix(from).expect("it is below the folder"));
        fs::create_dir_all(to.parent().expect("it is below the folder"))?;
        match fs::hard_link(&path, &to) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::copy(&path, &to).map(drop)?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelSpec;
    use crate::fixture::{self, bzimage, ko};

    #[test]
    fn a_linked_image_has_the_modules_and_the_configuration_of_its_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(&dir.path().join("cache")).unwrap();
        fixture::write(dir.path(), "tree/arch/x86/boot/bzImage", &bzimage("6.9.0"));
        fixture::write(dir.path(), "tree/.config", b"CONFIG_A=y\n");
        fixture::write(dir.path(), "tree/fs/a.ko", &ko(&["depends=", "vermagic=6.9.0 SMP"]));
        fixture::write(dir.path(), "tree/modules.builtin", b"kernel/fs/b.ko\n");
        let tree = KernelSpec::BuildTree(dir.path().join("tree"));
        let of = store.resolve(&tree, &|_| {}).unwrap();
        let (linked, other) = (dir.path().join("linked"), dir.path().join("other"));
        let bytes = |release: &str, tail: &[u8]| [&bzimage(release)[..], tail].concat();
        fs::write(&linked, bytes("6.9.0", b"another layout")).unwrap();
        fs::write(&other, bytes("6.9.1", b"")).unwrap();
        assert!(store.linked(&of.identity, "1").unwrap().is_none());
        let kernel = store.add_linked(&of, "1", &linked, None, &|_| {}).unwrap();
        assert_ne!(kernel.identity.image_sha256, of.identity.image_sha256);
        assert_eq!(
            kernel.identity,
            Identity { image_sha256: kernel.identity.image_sha256.clone(), ..of.identity.clone() }
        );
        let modules = kernel.modules.clone().unwrap();
        assert!(modules.join("fs/a.ko").is_file() && modules.join("modules.builtin").is_file());
        assert_eq!(fs::read(kernel.config.as_ref().unwrap()).unwrap(), b"CONFIG_A=y\n");
        // It is found by what decides it, and by its bytes; the tree still means its own image.
        assert_eq!(store.linked(&of.identity, "1").unwrap().unwrap().image, kernel.image);
        assert!(store.linked(&of.identity, "2").unwrap().is_none());
        assert_eq!(store.get(&kernel.identity).unwrap().image, kernel.image);
        assert_eq!(store.resolve(&tree, &|_| {}).unwrap().identity, of.identity);
        // An entry outlives the one whose modules it shares.
        fs::remove_dir_all(of.image.parent().unwrap()).unwrap();
        assert!(store.get(&kernel.identity).is_ok() && modules.join("fs/a.ko").is_file());
        // A damaged one is linked again.
        fs::write(&kernel.image, b"damaged").unwrap();
        assert!(store.linked(&of.identity, "1").unwrap().is_none());
        let refused = store.add_linked(&of, "1", &other, None, &|_| {}).unwrap_err();
        assert!(matches!(refused, KernelError::OtherRelease { .. }), "{refused}");
    }
}
