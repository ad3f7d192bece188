//! Rebuilt kernels: images linked again from the objects of a build tree, each with a layout of its own.
//!
//! Invariant: tree and seed decide an image, and the tree is only read.

mod folder;
mod layout;
mod thin;
mod tree;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context as _, bail};

use bigiron_archive::{Kernel, KernelError, Store, image};
use bigiron_model::refusal::Refusal;

use folder::RelinkFolder;
use tree::BuildTree;

/// Bytes of System.map, of which each image has one, as a share of the image's.
const SYMBOLS: u64 = 1;

/// Links kernels again.
pub struct Relinker<'a> {
    pub store: &'a Store,
    pub note: &'a dyn Fn(&str),
    pub cancel: &'a AtomicBool,
}

/// Checks that the kernel in `dir` can be linked again.
///
/// # Errors
/// What make has to do there first, or why this tree cannot be linked again.
pub fn check(dir: &Path) -> Result<(), Refusal> {
    BuildTree::open(dir).map(drop)
}

impl Relinker<'_> {
    /// The images of the kernel `of` in the tree `dir` with these layouts, from the cache or linked now.
    ///
    /// # Errors
    /// The tree cannot be linked again; `cancel` was set.
    pub fn images(&self, of: &Kernel, dir: &Path, layouts: &[u64]) -> anyhow::Result<Vec<Kernel>> {
        let link = |layout: &u64| format!("layout {layout} version {}", layout::VERSION);
        let known = |layout| self.store.linked(&of.identity, &link(layout));
        let missing: Vec<&u64> = layouts
            .iter()
            .map(|layout| Ok(known(layout)?.is_none().then_some(layout)))
            .filter_map(Result::transpose)
            .collect::<Result<_, KernelError>>()?;
        if let Some(first) = missing.first() {
            let tree = BuildTree::open(dir)?;
            let size = std::fs::metadata(&of.image).map_or(0, |meta| meta.len());
            self.store.needs(missing.len() as u64 * size * (1 + SYMBOLS))?;
            let shown = dir.display();
            let images = if missing.len() == 1 { "image" } else { "images" };
            (self.note)(&format!("Linking {} {images} of `{shown}`", missing.len()));
            if tree.is_one_object {
                (self.note)(&format!(
                    "`{shown}` is linked from one object (CONFIG_X86_KERNEL_IBT or CONFIG_LTO_CLANG): its images differ in the gaps before code and data, \
                     not in the order of objects"
                ));
            }
            let folder = RelinkFolder::open(self.store, &tree, self.note)?;
            for layout in &missing {
                let begun = Instant::now();
                let linked = self.link(of, &tree, &folder, **layout, &link(layout));
                if !linked.with_context(|| format!("The kernel in `{shown}` cannot be linked again"))? {
                    bail!(
                        "Interrupted; the images linked so far are kept, and the same command with the same `--seed` uses them"
                    );
                }
                if layout == first && missing.len() > 1 {
                    let (each, left) = (begun.elapsed().as_secs_f64(), missing.len() - 1);
                    (self.note)(&format!(
                        "The first link took {each:.0} s; all others will take about {:.0} s",
                        each * left as f64
                    ));
                }
            }
        }
        layouts
            .iter()
            .map(|layout| known(layout)?.context("A linked image is not in the cache"))
            .collect::<anyhow::Result<_>>()
    }

    /// Links one image and stores it; `false` if it was interrupted.
    fn link(
        &self,
        of: &Kernel,
        tree: &BuildTree,
        folder: &RelinkFolder<'_>,
        layout: u64,
        link: &str,
    ) -> anyhow::Result<bool> {
        let script = layout::apply(folder.script(), &tree.objects, layout).map_err(|missing| {
            Refusal::new(format!("its linker script has no input section {}", missing.join(" and ")))
        })?;
        let Some((linked, symbols)) = folder.link(&script, self.cancel)? else { return Ok(false) };
        let release = image::read(&linked)?.release;
        if release != of.identity.release {
            bail!("the linked image has release {release}, and the tree's has {}", of.identity.release);
        }
        self.store.add_linked(of, link, &linked, Some(&symbols), self.note)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::path::PathBuf;
    use std::sync::atomic::Ordering;

    use bigiron_archive::KernelSpec;
    use bigiron_archive::fixture::bzimage;

    use super::*;

    /// A substitute for the kernel's makefiles: an image is the file `image` of the sources with the linker script behind it. With a file `broken` in
    /// the sources there is none; with a file `slow` the link takes long.
    const MAKEFILE: &str = "srctree := $(CURDIR)\nexport srctree O CC LD\nall:\n";
    const LINK: &str = "vmlinux:\n\
        \t@if [ -f $(srctree)/broken ]; then echo 'ld: x.o: undefined reference to `y`' >&2; exit 1; fi\n\
        \t@if [ -f $(srctree)/slow ]; then : > $(srctree)/began; while :; do sleep 0.1; done; fi\n\
        \tcp $(O)/arch/x86/kernel/vmlinux.lds $(O)/vmlinux\n\techo map > $(O)/System.map\n\techo $(CC) $(LD) >> $(O)/.version\n";
    const BOOT: &str = "arch/x86/boot/bzImage:\n\tcat $(srctree)/image $(O)/vmlinux > $(O)/$@\n";

    struct Place {
        dir: tempfile::TempDir,
        build: PathBuf,
        store: Store,
    }

    impl Place {
        fn new() -> Place {
            let dir = tempfile::tempdir().unwrap();
            let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
            fs::create_dir_all(dir.path().join("linux/scripts")).unwrap();
            write("linux/Makefile", MAKEFILE.as_bytes());
            write("linux/image", &bzimage("6.9.0"));
            let build = tree::tests::place(dir.path());
            write("linux/scripts/Makefile.vmlinux", LINK.as_bytes());
            write("linux/scripts/Makefile.build", BOOT.as_bytes());
            fs::copy(dir.path().join("linux/image"), build.join(tree::IMAGE)).unwrap();
            let store = Store::at(&dir.path().join("cache")).unwrap();
            Place { dir, build, store }
        }

        fn images(
            &self,
            layouts: &[u64],
            cancel: &AtomicBool,
            notes: &RefCell<Vec<String>>,
        ) -> anyhow::Result<Vec<Kernel>> {
            let of = self.store.resolve(&KernelSpec::BuildTree(self.build.clone()), &|_| {}).unwrap();
            let note = |text: &str| notes.borrow_mut().push(text.to_owned());
            Relinker { store: &self.store, note: &note, cancel }.images(&of, &self.build, layouts)
        }

        /// All files of sources and tree with their sizes and times.
        fn look(&self) -> String {
            let mut open = vec![self.build.clone(), self.dir.path().join("linux")];
            let mut files = Vec::new();
            while let Some(dir) = open.pop() {
                for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
                    let meta = entry.metadata().unwrap();
                    files.push(format!("{} {} {:?}", entry.path().display(), meta.len(), meta.modified().unwrap()));
                    open.extend(meta.is_dir().then(|| entry.path()));
                }
            }
            files.sort_unstable();
            files.join("\n")
        }

        fn is_clean(&self) -> bool {
            fs::read_dir(self.store.dir().join("relink")).map_or(true, |mut entries| entries.next().is_none())
        }
    }

    fn hashes(kernels: &[Kernel]) -> Vec<&str> {
        kernels.iter().map(|kernel| kernel.identity.image_sha256.as_str()).collect()
    }

    #[test]
    fn images_differ_by_their_layouts_alone_and_the_tree_stays_as_it_is() {
        let (place, never, notes) = (Place::new(), AtomicBool::new(false), RefCell::default());
        let before = place.look();
        let first = place.images(&[1, 2, 3], &never, &notes).unwrap();
        assert_eq!(place.look(), before);
        assert!(place.is_clean() && notes.borrow()[0].starts_with("Linking 3 images of"), "{notes:?}");
        let mut unlike = hashes(&first);
        unlike.sort_unstable();
        unlike.dedup();
        assert_eq!(unlike.len(), 3);
        // From the cache; only what is missing is linked.
        notes.borrow_mut().clear();
        let again = place.images(&[3, 1], &never, &notes).unwrap();
        assert_eq!((hashes(&again), notes.borrow().len()), (vec![hashes(&first)[2], hashes(&first)[0]], 0));
        // Tree and seed decide the bytes.
        fs::remove_dir_all(first[1].image.parent().unwrap()).unwrap();
        assert_eq!(hashes(&place.images(&[2], &never, &notes).unwrap()), [hashes(&first)[1]]);
        assert!(notes.borrow()[0].starts_with("Linking 1 image of"), "{notes:?}");
        let bytes = fs::read(&first[0].image).unwrap();
        assert!(bytes.windows(9).any(|w| w == b"layout of"));
        assert_eq!(fs::read_to_string(first[0].symbols.as_ref().unwrap()).unwrap(), "map\n");
    }

    #[test]
    fn a_link_that_fails_says_why_and_leaves_nothing() {
        let (place, never, notes) = (Place::new(), AtomicBool::new(false), RefCell::default());
        fs::write(place.dir.path().join("linux/broken"), "").unwrap();
        let why = format!("{:#}", place.images(&[1], &never, &notes).unwrap_err());
        assert!(why.contains("undefined reference to `y`"), "{why}");
        assert!(place.is_clean());
        fs::remove_file(place.dir.path().join("linux/broken")).unwrap();
        // Another release would have other modules.
        place.images(&[1], &never, &notes).unwrap();
        fs::write(place.dir.path().join("linux/image"), bzimage("6.9.1")).unwrap();
        let why = format!("{:#}", place.images(&[2], &never, &notes).unwrap_err());
        assert!(why.contains("the linked image has release 6.9.1, and the tree's has 6.9.0"), "{why}");
        assert!(place.is_clean());
    }

    #[test]
    fn an_interrupted_link_ends_and_what_a_killed_one_left_is_not_used() {
        let (place, cancel, notes) = (Place::new(), AtomicBool::new(false), RefCell::default());
        place.images(&[1], &cancel, &notes).unwrap();
        fs::write(place.dir.path().join("linux/slow"), "").unwrap();
        let began = place.dir.path().join("linux/began");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !began.exists() {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                cancel.store(true, Ordering::Relaxed);
            });
            let why = place.images(&[1, 2], &cancel, &notes).unwrap_err().to_string();
            assert!(why.starts_with("Interrupted; the images linked so far are kept"), "{why}");
        });
        assert!(place.is_clean());
        fs::remove_file(place.dir.path().join("linux/slow")).unwrap();
        cancel.store(false, Ordering::Relaxed);
        let tree = BuildTree::open(&place.build).unwrap();
        let folder = RelinkFolder::open(&place.store, &tree, &|_| {}).unwrap();
        let said = RelinkFolder::open(&place.store, &tree, &|_| {}).err().unwrap().to_string();
        assert!(said.contains("is being built by another bigiron"), "{said}");
        let left = place
            .store
            .dir()
            .join("relink")
            .join(fs::read_dir(place.store.dir().join("relink")).unwrap().next().unwrap().unwrap().file_name());
        drop(folder);
        // The state that kill -9 leaves: a folder that nobody locks.
        fs::create_dir_all(left.join("tree/arch/x86/boot")).unwrap();
        fs::write(left.join("tree/arch/x86/boot/bzImage"), "half").unwrap();
        let linked = place.images(&[2], &cancel, &notes).unwrap();
        assert!(fs::read(&linked[0].image).unwrap().len() > 100 && place.is_clean());
    }
}
