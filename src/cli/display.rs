//! Options of every command: how much it prints, and whether in colour.

use clap::{Args, ValueEnum};

/// How much a command prints, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Output")]
pub struct Display {
    /// Print only the result, warnings and errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Output")]
    pub quiet: bool,
    /// Print each step of each trial as a line
    #[arg(short, long, global = true, help_heading = "Output")]
    pub verbose: bool,
    /// Whether to print in colour [default: on a terminal, unless NO_COLOR is set]
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_default_value = true,
        help_heading = "Output"
    )]
    pub color: Color,
}

/// Whether to print in colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// Format of the result of a run without a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunFormat {
    Text,
    Json,
}
