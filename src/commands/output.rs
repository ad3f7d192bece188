//! Writing to the two streams. A reader who has seen enough is no error.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use anyhow::Context as _;

/// Writes data to standard output.
pub(super) fn data(text: &str) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    write().context("Cannot write to standard output")
}

/// Writes a line for people to standard error; a closed one is no reason to stop.
pub(super) fn line(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Says what is being done.
pub(super) fn note(text: &str) {
    line(format_args!("{text}"));
}

/// Whether the reader of standard output went away.
pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe))
}
