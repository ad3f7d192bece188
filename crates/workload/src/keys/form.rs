//! The forms of keys' values: numbers, amounts, times, words.
//!
//! Invariant: a form reads back what it prints as the same value.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::units;
use bigiron_model::document::Value;
use bigiron_model::refusal::Refusal;
use bigiron_model::{size, suggest};
use bigiron_sys::async_io::Method;

/// A form of a `V`.
pub struct Form<V> {
    /// The possible values, as text after `it can be`.
    pub values: String,
    /// All values, if they form a closed list of words.
    pub words: Vec<&'static str>,
    pub read: Reader<V>,
    /// Prints the value as TOML; `None` if there is none, or the form is only read.
    pub print: Printer<V>,
}

type Reader<V> = Box<dyn Fn(&Value) -> Result<V, Refusal>>;
type Printer<V> = Box<dyn Fn(&V) -> Option<String>>;

impl<V: 'static> Form<V> {
    pub fn new(
        values: impl Into<String>,
        read: impl Fn(&Value) -> Result<V, Refusal> + 'static,
        print: impl Fn(&V) -> Option<String> + 'static,
    ) -> Self {
        Form { values: values.into(), words: Vec::new(), read: Box::new(read), print: Box::new(print) }
    }

    /// A text or a number that must be read completely.
    fn scalar(
        values: String,
        read: impl Fn(&str) -> Option<V> + 'static,
        print: impl Fn(&V) -> Option<String> + 'static,
    ) -> Self {
        let right = values.clone();
        Self::new(values, move |value| read(&value.scalar()?).ok_or_else(|| value.cannot_be(&right)), print)
    }
}

/// A text that `read` parses.
pub fn text<V: 'static>(values: &str, read: fn(&str) -> Option<V>) -> Form<V> {
    Form::scalar(values.to_owned(), read, |_| None)
}

/// A text that `read` parses and `print` prints.
pub fn printed<V: 'static>(values: &str, read: fn(&str) -> Option<V>, print: fn(&V) -> String) -> Form<V> {
    Form::scalar(values.to_owned(), read, move |value| Some(quoted(print(value))))
}

/// A whole number.
pub fn count<N: TryFrom<u64> + ToString + 'static>(range: RangeInclusive<u64>) -> Form<N> {
    let values = format!("a number from {} to {}", range.start(), range.end());
    let read = move |text: &str| text.parse().ok().filter(|n| range.contains(n)).and_then(|n| N::try_from(n).ok());
    Form::scalar(values, read, |n| Some(n.to_string()))
}

/// A number of bytes, a multiple of `unit`.
pub fn bytes<N: TryFrom<u64> + TryInto<u64> + Copy + 'static>(range: RangeInclusive<u64>, unit: u64) -> Form<N> {
    let [of, least, most] = [unit, *range.start(), *range.end()].map(size::print_bytes);
    let values = format!("a multiple of {of} from {least} to {most}");
    let right = values.clone();
    let read = move |value: &Value| {
        let bytes = size::parse_bytes(&value.scalar()?).map_err(|_| value.cannot_be(units::AN_AMOUNT))?;
        let fits = range.contains(&bytes) && bytes.is_multiple_of(unit);
        fits.then(|| N::try_from(bytes).ok()).flatten().ok_or_else(|| value.cannot_be(&right))
    };
    Form::new(values, read, |n: &N| Some(quoted(size::print_bytes((*n).try_into().ok()?))))
}

/// A share in per cent.
pub fn percent(range: RangeInclusive<u32>) -> Form<u32> {
    let values = format!("a share from {}% to {}%", range.start(), range.end());
    let read = move |text: &str| units::percent(text).filter(|p| range.contains(p));
    Form::scalar(values, read, |p| Some(quoted(format!("{p}%"))))
}

/// A time.
pub fn time(range: RangeInclusive<Duration>) -> Form<Duration> {
    let [least, most] = [*range.start(), *range.end()].map(units::print_duration);
    let read = move |text: &str| units::duration(text).filter(|t| range.contains(t));
    let print = |time: &Duration| Some(quoted(units::print_duration(*time)));
    Form::scalar(format!("a time from {least} to {most}, such as `10ms`"), read, print)
}

/// A boolean: `true` or `false`, as words `on` or `off`.
pub fn switch() -> Form<bool> {
    Form { words: vec!["on", "off"], ..Form::new("`on` or `off`", Value::switch, |on| Some(on.to_string())) }
}

/// One of a closed list of words.
pub fn one_of<V: Copy + PartialEq + 'static>(all: &'static [(&'static str, V)]) -> Form<V> {
    let words: Vec<&'static str> = all.iter().map(|(word, _)| *word).collect();
    let read = |value: &Value| {
        let text = value.string()?;
        let found = all.iter().find(|(word, _)| *word == text).map(|(_, meant)| *meant);
        found.ok_or_else(|| value.is_no_word(&text, all.iter().map(|(word, _)| *word)))
    };
    let print = |value: &V| all.iter().find(|(_, meant)| meant == value).map(|(word, _)| quoted(word));
    Form { words: words.clone(), ..Form::new(suggest::list(words), read, print) }
}

/// One of the words of its type.
pub fn word<W: Word>() -> Form<W> {
    one_of(W::ALL)
}

/// The value of another form, or nothing if the key is absent.
pub fn optional<V: 'static>(form: Form<V>) -> Form<Option<V>> {
    let Form { values, read, print, .. } = form;
    Form::new(values, move |value| read(value).map(Some), move |value| print(value.as_ref()?))
}

/// The value of another form, or `none` for nothing.
pub fn or<V: 'static>(none: &'static str, form: Form<V>) -> Form<Option<V>> {
    let Form { values, words, read, .. } = form;
    let values = format!("`{none}`, or {values}");
    let right = values.clone();
    let read = move |value: &Value| match value.scalar()? {
        text if text == none => Ok(None),
        _ => read(value).map(Some).map_err(|_| value.cannot_be(&right)),
    };
    let words = if words.is_empty() { words } else { [vec![none], words].concat() };
    Form { words, ..Form::new(values, read, |_| None) }
}

/// A type whose values are a closed list; every value has one word.
pub trait Word: Copy + PartialEq + 'static {
    const ALL: &'static [(&'static str, Self)];
}

/// Gives values their words: `words_of!(Wake: "post" => Post, "poll" => Poll)`.
#[macro_export]
macro_rules! words_of {
    ($of:ident: $($word:literal => $value:ident),+ $(,)?) => {
        impl $crate::keys::form::Word for $of {
            const ALL: &'static [(&'static str, Self)] = &[$(($word, $of::$value)),+];
        }
    };
}

pub use words_of;

// Implemented here, because the trait or the type must belong to the crate.
words_of!(Method:
    "sync" => Sync,
    "vectored" => Vectored,
    "threads" => Threads,
    "libaio" => Libaio,
    "uring" => Uring,
    "null" => Null,
);

/// A string of TOML.
pub fn quoted(text: impl AsRef<str>) -> String {
    toml::Value::from(text.as_ref()).to_string()
}

/// A list of strings of TOML.
pub fn quoted_list<S: AsRef<str>>(texts: impl Iterator<Item = S>) -> String {
    format!("[{}]", texts.map(quoted).collect::<Vec<_>>().join(", "))
}
