//! Completions for bash, zsh and fish, from the parser.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use bigiron::cli::Cli;
use clap::CommandFactory;
use clap_complete::Shell;

#[derive(clap::Args)]
pub struct Args {
    /// Folder to write to
    dir: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    fs::create_dir_all(&args.dir).with_context(|| format!("Cannot create `{}`", args.dir.display()))?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), "bigiron", &args.dir)
            .with_context(|| format!("Cannot write completions to `{}`", args.dir.display()))?;
    }
    Ok(())
}
