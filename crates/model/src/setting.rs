//! A lever set to a value, as studies and records have it.

use std::borrow::Cow;
use std::fmt;

/// A lever and the value it is set to; an empty value is a lever that is set without one (`boot.nosmt`).
pub type Setting = (String, String);

/// A value as reports show it: a text of several lines (a job that travels in a plan) by its first and their number.
pub fn brief(value: &str) -> Cow<'_, str> {
    match value.split_once('\n') {
        Some((first, _)) => Cow::Owned(format!("{first} … ({} lines)", value.lines().count())),
        None => Cow::Borrowed(value),
    }
}

/// A setting as it is typed.
pub struct TypedSetting<'a>(pub &'a Setting);

impl fmt::Display for TypedSetting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lever, value) = self.0;
        if value.is_empty() { f.write_str(lever) } else { write!(f, "{lever}={value}") }
    }
}

/// The settings of `workload`'s options among `settings`, by the options' names.
pub fn options_of<'a>(settings: &'a [Setting], workload: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    settings.iter().filter_map(move |(lever, value)| {
        let option = lever.strip_prefix(workload)?.strip_prefix('.')?;
        Some((option, value.as_str()))
    })
}
