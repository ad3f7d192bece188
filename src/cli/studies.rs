//! The command line of `bigiron studies` and `bigiron schema`.

use clap::{Args, ValueEnum};

use crate::complete;

/// List the ready-made studies by their question, or print one as a study file
///
/// `bigiron run NAME` runs a study as it is. To change one, print it to a file, edit the file, and run it with `bigiron run FILE`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  bigiron studies\n  bigiron studies io-scheduler > mine.toml\n  bigiron run io-scheduler"
)]
pub struct Studies {
    /// The study to print
    #[arg(add = complete::study_name())]
    pub name: Option<String>,
}

/// Print the JSON Schema of an output format
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bigiron schema lines > lines.schema.json")]
pub struct Schema {
    /// The output format
    #[arg(value_name = "OUTPUT", value_enum, default_value_t = SchemaOf::Report)]
    pub of: SchemaOf,
}

/// What a schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// `bigiron report --format json`
    Report,
    /// One line of `bigiron report --format jsonl`
    Lines,
}
