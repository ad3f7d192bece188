//! The images from which a guest's server starts: its programs and its loaded database.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::loaded::{self, DatabaseSpec, LoadedDatabase};
use super::private::{DATA, Kind};
use super::{Programs, Sizing};
use bigiron_archive::Store;
use bigiron_service::guest_tree;
pub use bigiron_service::guest_tree::FILESYSTEM;
use bigiron_service::instance::Server;
use bigiron_service::root::Root;
use bigiron_sys::this_machine;
use bigiron_workload::{Image, ImageContext, ImageRole, Images};

/// The required contents of a database.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// A description that changes whenever the contents would.
    pub what: &'a str,
    /// The name used in messages, e.g. `10 warehouses`.
    pub name: &'a str,
    /// Approximate size, in bytes.
    pub data_bytes: u64,
    /// Free space for growth, in bytes.
    pub room: u64,
    /// Whether trials on this machine need what `load` returns. Otherwise only guests need the database.
    pub needed_here: bool,
}

/// The images of a server and its database, from the cache or newly made: `load` fills a new server and returns lines to keep with it, such as the
/// names of the checks that held. These are returned too; there are none if no database was needed.
///
/// # Errors
/// If the programs are not available or do not run here, if `load` fails, or if there is not enough disk space.
pub fn of<S: Server, P>(
    kind: &Kind<S, P>,
    series: &str,
    store: &Store,
    cx: &ImageContext<'_>,
    contents: Contents<'_>,
    load: &mut dyn FnMut(&P) -> Result<Vec<String>>,
) -> Result<(Images, Vec<String>)> {
    let mut images = Images::default();
    let root = guest_tree::find(store, kind.recipe, series, cx, &mut images)?;
    let in_guest = cx.filesystem.is_some();
    if !(in_guest || contents.needed_here) {
        return Ok((images, Vec::new()));
    }
    let loaded = database(kind, &root, store, contents, load, cx.note)
        .with_context(|| format!("Cannot make an image of {}", contents.name))?;
    if in_guest {
        images.images.push(guest_tree::image(store, kind.recipe, &root, cx)?);
        images.foundation.insert("image".to_owned(), loaded.sha256);
        images.images.push(data(loaded.image));
    }
    Ok((images, loaded.checked))
}

/// The image of a server's loaded database, from the cache or newly made; see [`of`].
///
/// # Errors
/// As [`of`].
pub fn database<S: Server, P>(
    kind: &Kind<S, P>,
    root: &Root,
    store: &Store,
    contents: Contents<'_>,
    load: &mut dyn FnMut(&P) -> Result<Vec<String>>,
    note: &dyn Fn(&str),
) -> Result<LoadedDatabase> {
    let programs = Programs::of(kind.recipe, root)?;
    let sizing = Sizing {
        memory_bytes: this_machine::memory_bytes(),
        data_bytes: contents.data_bytes,
        connections: this_machine::cpus(),
    };
    let wanted = DatabaseSpec {
        kind: kind.recipe.name,
        socket: kind.socket,
        server: &root.about.hash,
        contents: contents.what,
        name: contents.name,
        filesystem: FILESYSTEM,
        room: contents.room,
        data_bytes: contents.data_bytes,
    };
    let mut fill = |folder: &Path| loaded::filled(kind, &programs, folder, &sizing, load);
    loaded::ensure(store, &programs, &wanted, &mut fill, note)
}

/// Describes the image file at `path` as the data image of a guest.
pub fn data(path: PathBuf) -> Image {
    Image { name: DATA, path, filesystem: FILESYSTEM, role: ImageRole::Data }
}
