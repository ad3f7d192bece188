//! The keys of job languages as tables, from which values are read, printed and explained.
//!
//! Invariant: everything about a key is in its one entry: name, values, default, meaning, and the field for its value.

pub mod form;

use super::OptionDef;
use bigiron_model::document::{Table, Value};
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;

/// A key whose value is held in a `T`.
pub struct Key<T: 'static> {
    pub name: &'static str,
    /// Its meaning, in one line.
    pub summary: &'static str,
    /// The value of an absent key, as typed or in words.
    pub default: &'static str,
    pub absent: Absent<T>,
    /// Whether it is printed even if it has its default value.
    pub shown: bool,
    pub read: fn(&Value, &mut T) -> Result<(), Refusal>,
    /// Describes a value, if one is given, and all possible values.
    pub describe: fn(Option<&T>) -> Described,
}

/// A value of a key in words.
pub struct Described {
    /// As TOML; `None` if there is none.
    pub value: Option<String>,
    /// The possible values, as text after `it can be`.
    pub values: String,
    /// All values, if they form a closed list of words.
    pub words: Vec<&'static str>,
}

/// The source of an absent key's value.
pub enum Absent<T: 'static> {
    /// The text of [`Key::default`], which is parsed.
    Default,
    /// The value already in the `T`.
    Given,
    /// Derived from the values of other keys.
    Derived(fn(&mut T)),
}

/// An entry: `key!(Spec, "name": field, form, "Meaning")` for a field of a struct or of an enum's variant, with a default
/// `key!(Spec, "name": field = "default", form, "Meaning")` ([`Key::or`]), or for any place
/// `key!("name", pattern => place, form, "Meaning")`. The form is a [`form::Form`] of the field's type.
#[macro_export]
macro_rules! key {
    ($($of:ident)::+, $name:literal: $field:tt = $default:expr, $form:expr, $summary:literal) => {
        $crate::keys::key!($($of)::+, $name: $field, $form, $summary).or($default)
    };
    ($($of:ident)::+, $name:literal: $field:tt, $form:expr, $summary:literal) => {
        $crate::keys::key!($name, $($of)::+ { $field: place, .. } => *place, $form, $summary)
    };
    ($name:literal, $pattern:pat => $place:expr, $form:expr, $summary:literal) => {
        $crate::keys::Key {
            name: $name,
            summary: $summary,
            default: "",
            absent: $crate::keys::Absent::Given,
            shown: true,
            read: |value, into| {
                let form = $form;
                #[allow(unreachable_patterns)]
                match into {
                    $pattern => $place = (form.read)(value)?,
                    _ => {}
                }
                Ok(())
            },
            describe: |of| {
                let form = $form;
                #[allow(unreachable_patterns)]
                let value = match of {
                    Some($pattern) => (form.print)(&$place),
                    _ => None,
                };
                $crate::keys::Described { value, values: form.values, words: form.words }
            },
        }
    };
}

pub use key;

impl<T> Key<T> {
    /// If the key is absent, its value is `default`, which is not printed.
    pub const fn or(mut self, default: &'static str) -> Self {
        self.default = default;
        self.absent = Absent::Default;
        self.shown = false;
        self
    }

    /// If the key is absent, the `T` keeps its value; `words` describe that value.
    pub const fn or_given(mut self, words: &'static str) -> Self {
        self.default = words;
        self
    }

    /// If the key is absent, its value is derived from other keys; `words` say how.
    pub const fn or_derived(mut self, words: &'static str, derive: fn(&mut T)) -> Self {
        self.default = words;
        self.absent = Absent::Derived(derive);
        self
    }

    /// Whether to print the key even if it has its default value.
    pub const fn shown(mut self, always: bool) -> Self {
        self.shown = always;
        self
    }

    fn fill(&self, into: &mut T) {
        match self.absent {
            Absent::Default => {
                let value = Value::said(self.name, self.default);
                (self.read)(&value, into).expect("a default is one of the key's values");
            }
            Absent::Given => {}
            Absent::Derived(derive) => derive(into),
        }
    }

    /// The key's meaning and possible values.
    pub fn explain(&self) -> Explanation {
        let Described { values, words, .. } = (self.describe)(None);
        Explanation { summary: self.summary, values, words, default: self.default }
    }

    /// The key as an option of a workload; `others` are further possible words.
    pub fn option(&self, others: &[&'static str]) -> OptionDef {
        let words = (self.describe)(None).words;
        let allowed = if words.is_empty() { words } else { [others, &words].concat() };
        OptionDef { name: self.name, default: self.default, allowed: allowed.leak(), summary: self.summary }
    }
}

/// A key in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub summary: &'static str,
    /// As text after `it can be`; empty if another text says it.
    pub values: String,
    /// All values, if they form a closed list of words.
    pub words: Vec<&'static str>,
    /// As typed or in words; empty if there is none.
    pub default: &'static str,
}

/// Reads the values that `get` finds, and sets the others to their defaults.
///
/// # Errors
/// A value is not possible for its key.
pub fn read<'v, 'k, T: 'static>(
    keys: impl Iterator<Item = &'k Key<T>> + Clone,
    get: impl Fn(&str) -> Option<&'v Value>,
    into: &mut T,
) -> Result<(), Refusal> {
    let absent = keys.clone().filter(|key| get(key.name).is_none());
    let (derived, constant): (Vec<_>, Vec<_>) = absent.partition(|key| matches!(key.absent, Absent::Derived(_)));
    constant.iter().for_each(|key| key.fill(into));
    for key in keys {
        if let Some(value) = get(key.name) {
            (key.read)(value, into)?;
        }
    }
    derived.iter().for_each(|key| key.fill(into));
    Ok(())
}

/// Reads a table that may have only these keys.
///
/// # Errors
/// It has another key, or a value is not possible for its key.
pub fn read_table<T: 'static>(keys: &[Key<T>], table: &Table, into: &mut T) -> Result<(), Refusal> {
    table.only(&names(keys))?;
    read(keys.iter(), |name| table.get(name), into)
}

/// The content of `of` as lines of TOML.
pub fn print<'k, T: Clone + 'static>(keys: impl Iterator<Item = &'k Key<T>>, of: &T) -> String {
    let line = |key: &Key<T>| {
        let text = (key.describe)(Some(of)).value?;
        if !key.shown {
            let mut absent = of.clone();
            key.fill(&mut absent);
            if (key.describe)(Some(&absent)).value.as_ref() == Some(&text) {
                return None;
            }
        }
        Some(format!("{} = {text}\n", key.name))
    };
    keys.filter_map(line).collect()
}

/// The description of the key with that name.
pub fn explain<T: 'static>(keys: &[Key<T>], name: &str) -> Option<Explanation> {
    keys.iter().find(|key| key.name == name).map(Key::explain)
}

/// The description of the option with that name.
pub fn explain_option(options: &[OptionDef], name: &str) -> Option<Explanation> {
    let words = |option: &OptionDef| suggest::list(option.allowed);
    let explain = |o: &OptionDef| Explanation {
        summary: o.summary,
        values: words(o),
        words: o.allowed.to_vec(),
        default: o.default,
    };
    options.iter().find(|option| option.name == name).map(explain)
}

/// The names of `keys`.
pub fn names<T: 'static>(keys: &[Key<T>]) -> Vec<&'static str> {
    keys.iter().map(|key| key.name).collect()
}
