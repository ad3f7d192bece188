//! The images from which a guest's server starts: its programs and its loaded database.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::loaded::{self, DatabaseSpec, LoadedDatabase};
use super::private::{DATA, Kind, SERVER, TREE};
use super::{Programs, Sizing};
use bigiron_archive::Store;
use bigiron_service::image;
use bigiron_service::instance::Server;
use bigiron_service::root::{self, Root};
use bigiron_workload::{Image, ImageContext, ImageRole, Images};

/// The only file system that bigiron can fill without mounting it. For any other, the guest copies the files.
pub const FILESYSTEM: &str = "ext4";

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
}

/// The images of a server and its database, from the cache or newly made: `load` fills a new server and returns the names of the checks that
/// held. A trial without a guest needs no images; only the foundation is returned.
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
) -> Result<Images> {
    let (mut images, root) = of_programs(kind, series, store, cx)?;
    if cx.filesystem.is_some() {
        let loaded = kept(kind, &root, store, cx, contents, load)?;
        if !loaded.checked.is_empty() {
            let checked = format!("{} checks held right after the load", loaded.checked.len());
            images.foundation.insert("image-checked".to_owned(), checked);
        }
        put(&mut images, loaded);
    }
    Ok(images)
}

/// As [`of`], with the lines that `load` returned when it loaded the tables. Loads the tables for trials without a guest too.
///
/// # Errors
/// As [`of`].
pub fn of_kept<S: Server, P>(
    kind: &Kind<S, P>,
    series: &str,
    store: &Store,
    cx: &ImageContext<'_>,
    contents: Contents<'_>,
    load: &mut dyn FnMut(&P) -> Result<Vec<String>>,
) -> Result<(Images, Vec<String>)> {
    let (mut images, root) = of_programs(kind, series, store, cx)?;
    let loaded = kept(kind, &root, store, cx, contents, load)?;
    let checked = loaded.checked.clone();
    if cx.filesystem.is_some() {
        put(&mut images, loaded);
    }
    Ok((images, checked))
}

/// The server's programs, as an image if a guest needs it.
fn of_programs<S: Server, P>(
    kind: &Kind<S, P>,
    series: &str,
    store: &Store,
    cx: &ImageContext<'_>,
) -> Result<(Images, Root)> {
    let planned = cx.foundation.get(SERVER).map(String::as_str);
    let root = root::of(store, kind.recipe, series, planned, cx.note)?;
    let mut images = Images::default();
    let server = format!("{} from Debian {}", root.about.version, root.about.release);
    images.foundation.insert("server".to_owned(), server);
    images.foundation.insert(SERVER.to_owned(), root.about.hash.clone());
    if cx.filesystem.is_some() {
        let tree = image::of_root(store, kind.recipe, &root, cx.note)?;
        images.images.push(Image { name: TREE, path: tree, filesystem: FILESYSTEM, role: ImageRole::Tree });
    }
    Ok((images, root))
}

fn kept<S: Server, P>(
    kind: &Kind<S, P>,
    root: &Root,
    store: &Store,
    cx: &ImageContext<'_>,
    contents: Contents<'_>,
    load: &mut dyn FnMut(&P) -> Result<Vec<String>>,
) -> Result<LoadedDatabase> {
    database(kind, root, store, contents, load, cx.note)
        .with_context(|| format!("Cannot make an image of {}", contents.name))
}

fn put(images: &mut Images, loaded: LoadedDatabase) {
    images.foundation.insert("image".to_owned(), loaded.sha256);
    images.images.push(data(loaded.image));
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
    let memory = rustix::system::sysinfo();
    let sizing = Sizing {
        memory_bytes: memory.totalram as u64 * u64::from(memory.mem_unit),
        data_bytes: contents.data_bytes,
        connections: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
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
