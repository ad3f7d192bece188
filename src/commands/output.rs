//! Writing to the two streams. A reader that closes its end is not an error.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use anyhow::Context as _;

use crate::conduct::Observer;
use crate::session::SessionEvent;
use crate::session::progress::Progress;
use bigiron_model::printable::{printable, without_passwords};

/// Writes data to standard output.
pub(super) fn data(text: &str) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(without_passwords(&printable(text)).as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    write().context("Cannot write to standard output")
}

/// Writes a line for people to standard error; ignores a closed stream.
pub(super) fn line(line: fmt::Arguments<'_>) {
    let line = line.to_string();
    let _ = writeln!(io::stderr().lock(), "{}", without_passwords(&printable(&line)));
}

/// Prints a progress note.
pub(super) fn note(text: &str) {
    line(format_args!("{text}"));
}

/// Prints a warning about something that may spoil the result.
pub(super) fn warn(text: &str) {
    line(format_args!("warning: {text}"));
}

/// Reports a study's progress on standard error.
pub(super) struct Terminal;

impl Observer for Terminal {
    fn note(&self, text: &str) {
        note(text);
    }

    fn warn(&self, text: &str) {
        warn(text);
    }

    fn session(&self) -> Box<dyn Fn(SessionEvent) + Sync> {
        let progress = Progress::stderr();
        Box::new(move |event| progress.show(&event))
    }
}

/// Whether the reader of standard output has closed it.
pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe))
}

/// A table of words and numbers below a header, words aligned left and numbers right; empty if it has no rows.
pub(super) fn table(out: &mut String, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    use std::fmt::Write as _;
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return;
    }
    let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
    let all = || std::iter::once(&head).chain(&rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    // Words are aligned left.
    let is_word =
        |column: usize| column == 0 || rows.iter().any(|row| row[column].starts_with(|c: char| c.is_alphabetic()));
    let words: Vec<bool> = (0..head.len()).map(is_word).collect();
    out.push('\n');
    for row in all() {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let width = widths[column];
            let _ =
                if words[column] { write!(line, "{gap}{cell:<width$}") } else { write!(line, "{gap}{cell:>width$}") };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}
