//! The text below the options in `--help`, whose parts are sections of the man pages.
//!
//! Invariant: blank lines separate the parts. A part is text, or begins with a line of its title and a colon.

use bigiron_report::table;

use crate::pages;

/// Columns of the help on a narrow terminal.
const WIDTH: usize = 78;

/// A part of the text below the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Command lines.
    Examples(Vec<String>),
    /// Exit statuses and their meanings.
    ExitStatus,
    /// A sentence or more.
    Text(String),
}

/// A row of the table of exit statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitStatus {
    /// One or more numbers.
    pub statuses: String,
    pub meaning: String,
    /// Whether only `--fail-on` makes a command end with it.
    pub is_of_gate: bool,
}

/// The exit statuses, from the page `cli`.
pub fn exit_statuses() -> Vec<ExitStatus> {
    let rows = pages::find("cli").map_or_else(Vec::new, |page| page.table("Exit status"));
    let row = |row: Vec<String>| {
        let [statuses, meaning] = row.try_into().ok()?;
        let is_of_gate = meaning.contains("--fail-on");
        Some(ExitStatus { statuses, meaning, is_of_gate })
    };
    rows.into_iter().filter_map(row).collect()
}

/// The text of `bigiron --help`.
pub(super) fn main() -> String {
    let mut text =
        "Examples:\n  bigiron doctor\n  bigiron compare debian:6.1 debian:6.12 --quick\n  bigiron doc first-steps\n\nExit status:\n"
            .to_owned();
    for status in exit_statuses() {
        let first = format!("  {:<13}  ", status.statuses);
        text.push_str(&table::wrap_at(WIDTH, &status.meaning, &first, &" ".repeat(first.len())));
    }
    text
}

/// The parts of a text below the options.
pub fn parts(text: &str) -> Vec<Part> {
    let part = |text: &str| match text.split_once('\n') {
        Some(("Examples:", lines)) => Part::Examples(lines.lines().map(|line| line.trim().to_owned()).collect()),
        Some(("Exit status:", _)) => Part::ExitStatus,
        _ => Part::Text(text.to_owned()),
    };
    text.trim().split("\n\n").map(part).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_table_of_statuses_is_found() {
        let statuses = exit_statuses();
        let numbers: Vec<&str> = statuses.iter().map(|status| status.statuses.as_str()).collect();
        assert_eq!(numbers, ["0", "1", "2", "3", "4", "5", "129, 130, 143"]);
        assert_eq!(statuses.iter().filter(|status| status.is_of_gate).count(), 3);
        assert!(main().lines().all(|line| line.chars().count() <= WIDTH), "{}", main());
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        fn walk(command: &clap::Command, path: &str) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<String> = parts(&text)
                .into_iter()
                .flat_map(|part| if let Part::Examples(lines) = part { lines } else { Vec::new() })
                .collect();
            assert!(!examples.is_empty(), "{path}");
            for line in examples {
                let words: Vec<&str> = line.split(" > ").next().unwrap().split_whitespace().collect();
                assert!(line.starts_with("bigiron "), "{path}: {line}");
                if let Err(error) = <Cli as clap::Parser>::try_parse_from(words) {
                    panic!("{path}: {line}: {error}");
                }
            }
            for sub in command.get_subcommands() {
                walk(sub, &format!("{path} {}", sub.get_name()));
            }
        }
        walk(&Cli::command(), "bigiron");
    }
}
