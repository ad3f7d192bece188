//! Writing to the two streams.
//!
//! Invariant: a reader that closes its end is not an error and changes no exit status: the verdict's status stands.

use std::env;
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::Context as _;

use crate::cli::{Color, Display};
use crate::conduct::Observer;
use crate::session::SessionEvent;
use crate::session::progress::{Detail, Progress};
use bigiron_model::printable::{printable, without_passwords};
use bigiron_report::summary::SummaryLine;
use bigiron_stats::Verdict;

/// The options of this call. Set once, before the command runs.
static DISPLAY: OnceLock<Display> = OnceLock::new();

/// Sets how much is printed, and whether in colour.
pub(super) fn configure(display: Display) {
    let _ = DISPLAY.set(display);
}

fn display() -> Display {
    DISPLAY.get().copied().unwrap_or_default()
}

/// Whether to print to standard output in colour.
pub(super) fn has_colours() -> bool {
    match display().color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            io::stdout().is_terminal()
                && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                && env::var_os("TERM").is_some_and(|term| term != "dumb")
        }
    }
}

/// The text without what would act on a terminal, and without passwords.
fn safe(text: &str) -> String {
    without_passwords(&printable(text)).into_owned()
}

/// Writes data to standard output.
pub(super) fn data(text: &str) -> anyhow::Result<()> {
    write(&safe(text))
}

/// Writes text as it is to standard output, and ends its last line.
fn write(text: &str) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    match write() {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.context("Cannot write to standard output"),
    }
}

/// The columns of the terminal that standard output is shown on: 80 if it does not say, or if `--color always` stands for one.
pub(super) fn columns() -> Option<usize> {
    const USUAL: usize = 80;
    let is_terminal = io::stdout().is_terminal();
    if !is_terminal && display().color != Color::Always {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    Some(if size == 0 { USUAL } else { size })
}

/// Writes text for people to standard output: on a terminal that cannot show all of it at once, through a pager.
pub(super) fn paged(text: &str) -> anyhow::Result<()> {
    paged_styled(&safe(text))
}

/// The same for text with escape sequences, which must come from bigiron itself.
pub(super) fn paged_styled(text: &str) -> anyhow::Result<()> {
    let rows = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
    if !io::stdout().is_terminal() || text.lines().count() < rows || !page(text) {
        return write(text);
    }
    Ok(())
}

/// Whether `$PAGER` (`less`) has shown the text. An empty one asks for none.
fn page(text: &str) -> bool {
    let pager = env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    if pager.trim().is_empty() {
        return false;
    }
    let mut command = Command::new("sh");
    command.args(["-c", &pager]).stdin(Stdio::piped());
    if env::var_os("LESS").is_none() {
        // Ends at once if all fits; leaves what was shown on the screen.
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    // A user who has seen enough ends the pager early.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    // 127: the shell found no such program.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}

/// Writes lines to standard output, verdicts in colour on a terminal.
pub(super) fn summary(lines: &[SummaryLine]) -> anyhow::Result<()> {
    let has_colours = has_colours();
    let mut text = String::new();
    for line in lines {
        let shown = safe(&line.text);
        match line.verdict.filter(|_| has_colours) {
            Some(verdict) => text.push_str(&coloured(&shown, verdict)),
            None => text.push_str(&shown),
        }
        text.push('\n');
    }
    write(&text)
}

/// The line with its last mention of the verdict in the verdict's colour (ECMA-48).
fn coloured(line: &str, verdict: Verdict) -> String {
    let name = verdict.name();
    let colour = match verdict {
        Verdict::Better | Verdict::SlightlyBetter => 32,
        Verdict::Worse | Verdict::SlightlyWorse => 31,
        Verdict::Same => 36,
        Verdict::Inconclusive => 33,
        Verdict::Invalid => 35,
    };
    match line.rfind(name) {
        Some(at) => format!("{}\x1b[1;{colour}m{name}\x1b[0m{}", &line[..at], &line[at + name.len()..]),
        None => line.to_owned(),
    }
}

/// Writes a line for people to standard error; ignores a closed stream.
pub(super) fn line(line: fmt::Arguments<'_>) {
    let line = line.to_string();
    let _ = writeln!(io::stderr().lock(), "{}", safe(&line));
}

/// Prints a progress note, except with `--quiet`.
pub(super) fn note(text: &str) {
    if !display().quiet {
        line(format_args!("{text}"));
    }
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
        let detail = match display() {
            Display { quiet: true, .. } => Detail::Problems,
            Display { verbose: true, .. } => Detail::Steps,
            _ => Detail::Trials,
        };
        let progress = Progress::stderr(detail);
        Box::new(move |event| progress.show(&event))
    }
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
