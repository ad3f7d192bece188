//! A workload's options as texts, with the messages that refuse them.

use bigiron_model::workload::Options;

use crate::OptionDef;
use crate::keys::form::Word;

/// The options of `workload` as the user set them, or their defaults.
#[derive(Clone, Copy, Debug)]
pub struct OptionReader<'a> {
    pub workload: &'static str,
    pub definitions: &'static [OptionDef],
    pub options: &'a Options,
}

impl<'a> OptionReader<'a> {
    /// The option's text; empty if there is no such option.
    pub fn text(&self, name: &str) -> &'a str {
        self.options.get(name).map_or_else(|| self.default(name), String::as_str)
    }

    fn default(&self, name: &str) -> &'static str {
        self.definitions.iter().find(|option| option.name == name).map_or("", |option| option.default)
    }

    /// Whether the option has its default.
    pub fn is_default(&self, name: &str) -> bool {
        self.text(name) == self.default(name)
    }

    /// The value that the option's word stands for; `None` if it is none of `W`'s words.
    pub fn word<W: Word>(&self, name: &str) -> Option<W> {
        W::ALL.iter().find(|(word, _)| *word == self.text(name)).map(|(_, value)| *value)
    }

    /// Refuses the option's value; `right` says what it can be.
    pub fn wrong(&self, name: &str, right: &str) -> String {
        format!("`{}.{name}` cannot be `{}`; it can be {right}", self.workload, self.text(name))
    }

    /// Accepts the option `name` only with its default, because it has no effect with the present value of the option `with`.
    ///
    /// # Errors
    /// Both options, and what to do.
    pub fn has_no_effect(&self, name: &str, with: &str) -> Result<(), String> {
        if self.is_default(name) {
            return Ok(());
        }
        let (workload, value) = (self.workload, self.text(with));
        Err(format!("`{workload}.{name}` has no effect with `{workload}.{with}` `{value}`; omit it"))
    }
}
