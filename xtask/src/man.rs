//! Man pages, one for bigiron and one for each subcommand, from the parser.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use bigiron::cli::Cli;
use clap::CommandFactory;

#[derive(clap::Args)]
pub struct Args {
    /// Folder to write to
    dir: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    fs::create_dir_all(&args.dir).with_context(|| format!("Cannot create `{}`", args.dir.display()))?;
    clap_mangen::generate_to(Cli::command(), &args.dir)
        .with_context(|| format!("Cannot write man pages to `{}`", args.dir.display()))
}
