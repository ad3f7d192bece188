//! A kernel on its way to a target: an archive (tar) of `image`, `config` and `modules/`.

use std::io::{self, Write};

use bigiron_archive::Kernel;

/// Writes the archive.
pub(super) fn write(kernel: &Kernel, out: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(out);
    // Links in a folder of modules lead to the sources that it was built from.
    archive.follow_symlinks(false);
    archive.append_path_with_name(&kernel.image, "image")?;
    if let Some(config) = &kernel.config {
        archive.append_path_with_name(config, "config")?;
    }
    if let Some(modules) = &kernel.modules {
        archive.append_dir_all("modules", modules)?;
    }
    archive.into_inner()?.flush()
}
