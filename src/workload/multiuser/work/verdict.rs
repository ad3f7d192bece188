//! What makes a call fail that has done its work, but not found what it should have.

use std::fmt::Debug;
use std::path::Path;

use crate::workload::WrongData;

/// A [`WrongData`] that says what of.
pub fn wrong(text: String) -> anyhow::Error {
    WrongData(text).into()
}

/// Fails unless `found` is what `right` says; `what` begins a sentence.
#[inline]
pub fn expect<T: PartialEq + Debug>(what: &str, found: T, right: T) -> anyhow::Result<()> {
    if found == right { Ok(()) } else { Err(wrong(format!("{what} gave {found:?} where {right:?} is right"))) }
}

/// Fails unless a call has moved all of so many bytes.
#[inline]
pub fn whole(what: &str, path: &Path, moved: usize, bytes: usize) -> anyhow::Result<()> {
    if moved == bytes {
        Ok(())
    } else {
        Err(wrong(format!("{what} of `{}` moved {moved} bytes of {bytes}", path.display())))
    }
}
