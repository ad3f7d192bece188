//! A lever with its value, in studies and records.

use std::borrow::Cow;
use std::fmt;

/// A lever and its value; an empty value is a lever that is set without one (`boot.nosmt`).
pub type Setting = (String, String);

/// A value as shown in reports: a text of several lines (a job in a plan) is shown as its first line and the number of lines.
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
