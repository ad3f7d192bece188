//! DataFusion for bigiron's workload `dss`: generates the tables and answers queries on them, in a process of its own, so that bigiron's executable does
//! not contain a query engine.

mod answer;
mod arguments;
mod counts;
mod generate;
mod refused;
mod request;
mod serve;
mod session;
mod table;
mod value;

use std::io::{self, Write};
use std::process::ExitCode;

use arguments::Command;
use refused::Refused;

/// As in DataFusion's own command line.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    // A broken pipe is success: the reader needs no more output.
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    eprintln!("bigiron-datafusion: {}", answer::error_text(&error));
    ExitCode::from(if error.is::<Refused>() { 2 } else { 1 })
}

fn run() -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match arguments::parse(std::env::args_os().skip(1))? {
        Command::Help => out.write_all(arguments::HELP.as_bytes())?,
        Command::Version => {
            let (version, engine) = (env!("CARGO_PKG_VERSION"), datafusion::DATAFUSION_VERSION);
            writeln!(out, "bigiron-datafusion {version} (DataFusion {engine})")?;
        }
        Command::Generate(options) => generate::generate(&options, &mut out)?,
        Command::Serve(options) => serve::serve(&options, &mut io::stdin().lock(), &mut out)?,
    }
    Ok(())
}
