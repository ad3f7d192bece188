//! Development tasks of the repository that are programs: `cargo xtask …`.
//!
//! Invariant: everything that users of bigiron need is also available without it.

mod man;
mod notices;
mod picture;
mod sim;

use clap::{Parser, Subcommand};

/// The simulation allocates millions of small lists on all cores, where musl's allocator makes threads wait for each other.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Development tasks of the bigiron repository")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Simulate studies with known truth and check the statistics' promises
    Sim(sim::Args),
    /// Draw the crates
    Picture(picture::Args),
    /// Write the man pages
    Man(man::Args),
    /// Write the notices of the libraries in the executable
    Notices(notices::Args),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Sim(args) => sim::run(&args),
        Command::Picture(args) => picture::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Notices(args) => notices::run(&args),
    }
}
