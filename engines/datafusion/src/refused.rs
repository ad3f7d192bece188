//! Input that is refused before any work starts: invalid arguments and folders. The exit status is 2.

use std::fmt;

#[derive(Debug)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Returns a `Refused` from the function; takes the arguments of `format!`.
macro_rules! refuse {
    ($($text:tt)*) => { return Err($crate::refused::Refused(format!($($text)*)).into()) };
}
pub(crate) use refuse;
