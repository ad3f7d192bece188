//! What the tests of this crate use.

use std::fmt::Display;
use std::io::Write as _;

/// Says that the test that runs now shows nothing of this on this machine. Not by `eprintln!`, which the harness shows of failed tests alone;
/// `scripts/test` repeats it at its end.
pub(crate) fn skipped(what: impl Display, why: impl Display) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}: {why}");
}
