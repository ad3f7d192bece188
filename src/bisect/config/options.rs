//! A kernel's configuration as options with values, and the differences between two configurations.
//!
//! Invariant: an option that is not set equals one that does not appear, because both compile to the same kernel.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// The value of an option that is not set.
pub const NOT_SET: &str = "n";

/// The options of a `.config`, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigOptions {
    names: Vec<String>,
    values: HashMap<String, String>,
}

/// An option with different values in two configurations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptionChange {
    /// Without `CONFIG_`.
    pub option: String,
    /// The value after `=` in a configuration; `n` if not set.
    pub from: String,
    pub to: String,
}

impl OptionChange {
    /// As written in a configuration: `CONFIG_SMP=y`.
    pub fn name(&self) -> String {
        format!("CONFIG_{}={}", self.option, self.to)
    }

    /// Whether the change switches the option off.
    pub fn is_off(&self) -> bool {
        self.to == NOT_SET
    }

    /// Whether the option is a switch (set or not set), and not a number or a text.
    pub fn is_switch(&self) -> bool {
        is_switch(&self.from) && is_switch(&self.to)
    }
}

/// Whether a value is that of a switch.
fn is_switch(value: &str) -> bool {
    matches!(value, "y" | "m" | NOT_SET)
}

impl ConfigOptions {
    /// Parses the text of a configuration.
    ///
    /// # Errors
    /// The number of the first line, from 1, that is neither a setting nor a comment, and the reason.
    pub fn parse(text: &str) -> Result<ConfigOptions, (usize, &'static str)> {
        let mut options = ConfigOptions::default();
        for (index, line) in text.lines().enumerate() {
            let set = setting(line.trim_end()).map_err(|why| (index + 1, why))?;
            if let Some((name, value)) = set
                && options.values.insert(name.to_owned(), value.to_owned()).is_none()
            {
                options.names.push(name.to_owned());
            }
        }
        Ok(options)
    }

    /// The value of an option; `n` if it is not set.
    pub fn value(&self, option: &str) -> &str {
        self.values.get(option).map_or(NOT_SET, String::as_str)
    }

    /// Whether the configuration mentions an option, even as not set.
    pub fn has(&self, option: &str) -> bool {
        self.values.contains_key(option)
    }

    /// All options of both, in the order in which Kconfig writes them.
    pub fn all_of<'a>(&'a self, other: &'a ConfigOptions) -> Vec<&'a str> {
        let mine: HashMap<&str, usize> = self.names.iter().enumerate().map(|(i, n)| (n.as_str(), i)).collect();
        let (mut all, mut next) = (Vec::new(), 0);
        let own = |range: std::ops::Range<usize>, all: &mut Vec<&'a str>| {
            all.extend(self.names[range].iter().map(String::as_str).filter(|name| !other.has(name)));
        };
        for name in &other.names {
            if let Some(at) = mine.get(name.as_str()).filter(|at| **at >= next) {
                own(next..*at, &mut all);
                next = at + 1;
            }
            all.push(name);
        }
        own(next..self.names.len(), &mut all);
        all
    }

    /// The options that `other` sets differently, in the order in which Kconfig writes them.
    pub fn changes(&self, other: &ConfigOptions) -> Vec<OptionChange> {
        let change = |option: &str| {
            let (from, to) = (self.value(option), other.value(option));
            (from != to).then(|| OptionChange { option: option.to_owned(), from: from.to_owned(), to: to.to_owned() })
        };
        self.all_of(other).into_iter().filter_map(change).collect()
    }

    /// The first option whose value, or absence, neither of two others has.
    pub fn stranger(&self, a: &ConfigOptions, b: &ConfigOptions) -> Option<String> {
        let is_strange = |option: &&str| ![a.value(option), b.value(option)].contains(&self.value(option));
        self.all_of(a).into_iter().find(is_strange).map(str::to_owned)
    }
}

/// The setting on a line, if there is one.
fn setting(line: &str) -> Result<Option<(&str, &str)>, &'static str> {
    if let Some(name) = line.strip_prefix("# CONFIG_").and_then(|rest| rest.strip_suffix(" is not set")) {
        return if is_name(name) { Ok(Some((name, NOT_SET))) } else { Err("this is not the name of an option") };
    }
    if line.trim().is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let Some(rest) = line.strip_prefix("CONFIG_") else {
        return Err("a line is `CONFIG_NAME=VALUE`, `# CONFIG_NAME is not set` or a comment");
    };
    let Some((name, value)) = rest.split_once('=') else { return Err("`=` and a value are missing") };
    if !is_name(name) {
        return Err("this is not the name of an option");
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    let is_text = || value.len() > 1 && value.starts_with('"') && value.ends_with('"');
    let is_number = || digits(value.strip_prefix('-').unwrap_or(value)) || value.strip_prefix("0x").is_some_and(hex);
    match is_switch(value) || is_text() || is_number() {
        true => Ok(Some((name, value))),
        false => Err("a value is y, m, n, a number, or a text in quotation marks"),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> ConfigOptions {
        ConfigOptions::parse(text).unwrap()
    }

    #[test]
    fn lines_are_settings_comments_or_wrong() {
        let text = "#\n# Automatically generated\n\nCONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=\"a b=c\"\nCONFIG_D=-3\nCONFIG_E=0x1f\n";
        let read = options(text);
        let values: Vec<&str> = ["A", "B", "C", "D", "E", "F"].iter().map(|o| read.value(o)).collect();
        assert_eq!(values, ["y", "n", "\"a b=c\"", "-3", "0x1f", "n"]);
        assert!(read.has("B") && !read.has("F"));
        for line in
            ["CONFIG_A", "CONFIG_A=yes", "CONFIG_A y", "hello", "CONFIG_=y", "CONFIG_A B=y", "CONFIG_A=\"x", "A=y"]
        {
            assert_eq!(ConfigOptions::parse(&format!("CONFIG_Z=y\n{line}\n")).unwrap_err().0, 2, "{line}");
        }
        assert!(ConfigOptions::parse("# CONFIG_A-B is not set\n").is_err());
    }

    #[test]
    fn what_differs_comes_in_the_order_of_the_tree() {
        let a = options("CONFIG_A=y\nCONFIG_B=y\nCONFIG_OLD=y\n# CONFIG_D is not set\nCONFIG_E=1\nCONFIG_LAST=m\n");
        let b =
            options("CONFIG_A=y\nCONFIG_NEW=y\n# CONFIG_B is not set\nCONFIG_D=y\nCONFIG_E=2\n# CONFIG_F is not set\n");
        let names: Vec<String> = a.changes(&b).iter().map(OptionChange::name).collect();
        // An option that only one side has keeps its place between its neighbours; an unset option that disappears is not a
        // change.
        assert_eq!(names, ["CONFIG_NEW=y", "CONFIG_B=n", "CONFIG_OLD=n", "CONFIG_D=y", "CONFIG_E=2", "CONFIG_LAST=n"]);
        assert!(a.changes(&a).is_empty());
        assert_eq!(a.all_of(&b).len(), 8);
    }

    #[test]
    fn a_value_of_neither_end_is_a_stranger() {
        let (a, b) = (options("CONFIG_HZ_100=y\nCONFIG_HZ=100\n"), options("CONFIG_HZ_1000=y\nCONFIG_HZ=1000\n"));
        assert_eq!(options("CONFIG_HZ_100=y\nCONFIG_HZ=1000\n").stranger(&a, &b), None);
        assert_eq!(options("CONFIG_HZ_250=y\nCONFIG_HZ=100\n").stranger(&a, &b).as_deref(), Some("HZ_250"));
        assert_eq!(options("CONFIG_HZ=250\n").stranger(&a, &b).as_deref(), Some("HZ"));
        assert_eq!(options("CONFIG_HZ_100=y\n").stranger(&a, &b).as_deref(), Some("HZ"));
    }
}
