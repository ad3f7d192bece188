//! The command line of `bigiron site`.

use std::path::PathBuf;

use clap::Args;

use crate::complete;

/// Write a static site of studies and nights: an index, their reports and the history, as plain files
///
/// The site needs no server: open its `index.html`, or copy the folder to any web server. The same studies give the same files, and a study
/// keeps its address.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron site bigiron-results --out site\n  \
    bigiron site bigiron-results /mnt/server2/bigiron-results --out /var/www/bigiron")]
pub struct Site {
    /// Folders of studies and nights, or folders that contain them
    #[arg(value_name = "DIR", required = true, add = complete::study_folder())]
    pub dirs: Vec<PathBuf>,
    /// Folder of the site: a new or empty one, or one that `bigiron site` wrote, which is rewritten
    #[arg(long, value_name = "SITE", required = true)]
    pub out: PathBuf,
}
