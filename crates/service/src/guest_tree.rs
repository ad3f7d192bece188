//! A server's programs in trials: an image for guests, or the tree in this machine's cache.

use anyhow::Result;

use super::image;
use super::programs::Programs;
use super::recipe::Recipe;
use super::root::{self, Root};
use bigiron_archive::Store;
use bigiron_workload::{Context, Image, ImageContext, ImageRole, Images};

/// The name of the image in a guest.
pub const TREE: &str = "tree";
/// In a foundation, the hash of the server's programs.
pub const SERVER: &str = "server-tree";
/// How a server's tree is named among a trial's images and in its foundation.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    /// The image in a guest.
    pub image: &'static str,
    /// The hash of the programs.
    pub hash: &'static str,
    /// Its version, for people.
    pub version: &'static str,
}

/// The only server's, or the database's beside others.
pub const MAIN: Tree = Tree { image: TREE, hash: SERVER, version: "server" };

/// The file system of images: the only one that bigiron can fill without mounting it.
pub const FILESYSTEM: &str = "ext4";

/// The tree of a server for trials, the planned one if there is a plan. Adds it to the foundation of `images`.
///
/// # Errors
/// As [`root::of`].
pub fn find(
    store: &Store,
    recipe: &'static Recipe,
    series: &str,
    cx: &ImageContext<'_>,
    images: &mut Images,
) -> Result<Root> {
    MAIN.find(store, recipe, series, cx, images)
}

/// The image of a server's tree for guests.
///
/// # Errors
/// As [`image::of_root`].
pub fn image(store: &Store, recipe: &'static Recipe, root: &Root, cx: &ImageContext<'_>) -> Result<Image> {
    MAIN.image(store, recipe, root, cx)
}

/// The programs of a trial's server on this machine; the planned ones if there is a plan.
///
/// # Errors
/// As [`root::of`] and [`Programs::of`].
pub fn programs_here(cx: &Context<'_>, recipe: &'static Recipe, series: &str) -> Result<Programs> {
    MAIN.programs_here(cx, recipe, series)
}

impl Tree {
    /// As [`find`].
    ///
    /// # Errors
    /// As [`root::of`].
    pub fn find(
        self,
        store: &Store,
        recipe: &'static Recipe,
        series: &str,
        cx: &ImageContext<'_>,
        images: &mut Images,
    ) -> Result<Root> {
        let planned = cx.foundation.get(self.hash).map(String::as_str);
        let root = root::of(store, recipe, series, planned, cx.note)?;
        let version = format!("{} from Debian {}", root.about.version, root.about.release);
        images.foundation.insert(self.version.to_owned(), version);
        images.foundation.insert(self.hash.to_owned(), root.about.hash.clone());
        Ok(root)
    }

    /// As [`image()`].
    ///
    /// # Errors
    /// As [`image::of_root`].
    pub fn image(self, store: &Store, recipe: &'static Recipe, root: &Root, cx: &ImageContext<'_>) -> Result<Image> {
        let path = image::of_root(store, recipe, root, cx.note)?;
        Ok(Image { name: self.image, path, filesystem: FILESYSTEM, role: ImageRole::Tree })
    }

    /// As [`programs_here`].
    ///
    /// # Errors
    /// As [`root::of`] and [`Programs::of`].
    pub fn programs_here(self, cx: &Context<'_>, recipe: &'static Recipe, series: &str) -> Result<Programs> {
        let note = |text: &str| eprintln!("bigiron: {text}");
        let planned = cx.foundation.get(self.hash).map(String::as_str);
        let root = root::of(&Store::open()?, recipe, series, planned, &note)?;
        Ok(Programs::of(recipe, &root)?)
    }
}
