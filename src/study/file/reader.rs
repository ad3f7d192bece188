//! TOML with places: every value knows its line, and every complaint names it.

use std::fmt::Display;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::study::refusal::Refusal;
use crate::suggest;

/// A file's name and text.
#[derive(Clone, Copy)]
pub(super) struct Reader<'f> {
    pub name: &'f str,
    pub text: &'f str,
}

/// A table of the file.
pub(super) struct Table<'f> {
    reader: Reader<'f>,
    pub name: String,
    table: DeTable<'f>,
}

/// A key's text and where it stands.
pub(super) struct Key<'t> {
    pub text: &'t str,
    reader: Reader<'t>,
    span: Range<usize>,
}

/// A value, under the key that holds it.
#[derive(Clone)]
pub(super) struct Value<'f> {
    reader: Reader<'f>,
    key: String,
    span: Range<usize>,
    value: DeValue<'f>,
}

impl<'f> Reader<'f> {
    pub(super) fn root(self) -> Result<Table<'f>, Refusal> {
        match DeTable::parse(self.text) {
            Ok(table) => Ok(Table { reader: self, name: String::new(), table: table.into_inner() }),
            Err(e) => {
                let place = e.span().map_or(self.name.to_owned(), |span| self.place(span.start));
                Err(Refusal::new(sentence(e.message())).at(Some(place)))
            }
        }
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset.min(self.text.len())].iter().filter(|b| **b == b'\n').count()
    }

    fn place(&self, offset: usize) -> String {
        format!("{}:{}", self.name, self.line(offset))
    }
}

/// The TOML crate's message in one line, as our sentences begin.
fn sentence(message: &str) -> String {
    let line = message.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ");
    let mut letters = line.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

impl<'f> Table<'f> {
    /// Refuses every key that is not in `known`.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        let mut unknown: Vec<_> = self.items().into_iter().filter(|(k, _)| !known.contains(&k.text)).collect();
        unknown.sort_by_key(|(key, _)| key.offset());
        let Some((key, _)) = unknown.first() else { return Ok(()) };
        let home = if self.name.is_empty() { "a study".to_owned() } else { format!("`[{}]`", self.name) };
        let right = match suggest::nearest(key.text, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("{home} has {}", suggest::list(known)),
        };
        Err(Refusal::new(format!("Unknown key `{}`; {right}", key.text)).at(Some(key.place())))
    }

    pub(super) fn get(&self, key: &str) -> Option<Value<'f>> {
        self.table.get(key).map(|value| self.value(key, value))
    }

    pub(super) fn table(&self, key: &str) -> Result<Option<Table<'f>>, Refusal> {
        self.get(key).map(|value| value.table(key)).transpose()
    }

    pub(super) fn items(&self) -> Vec<(Key<'_>, Value<'f>)> {
        self.table
            .iter()
            .map(|(key, value)| {
                let text: &str = key.get_ref();
                (Key { text, reader: self.reader, span: key.span() }, self.value(text, value))
            })
            .collect()
    }

    fn value(&self, key: &str, value: &Spanned<DeValue<'f>>) -> Value<'f> {
        Value { reader: self.reader, key: key.to_owned(), span: value.span(), value: value.get_ref().clone() }
    }
}

impl Key<'_> {
    pub(super) fn offset(&self) -> usize {
        self.span.start
    }

    pub(super) fn place(&self) -> String {
        self.reader.place(self.span.start)
    }
}

impl<'f> Value<'f> {
    pub(super) fn line(&self) -> usize {
        self.reader.line(self.span.start)
    }

    pub(super) fn place(&self) -> String {
        self.reader.place(self.span.start)
    }

    pub(super) fn refuse(&self, message: impl Into<String>) -> Refusal {
        Refusal::new(message).at(Some(self.place()))
    }

    fn must(&self, what: impl Display) -> Refusal {
        let article = if self.value.type_str().starts_with(['a', 'i']) { "an" } else { "a" };
        self.refuse(format!("`{}` must {what}, not {article} {}", self.key, self.value.type_str()))
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    pub(super) fn string(&self) -> Result<String, Refusal> {
        self.value.as_str().map(str::to_owned).ok_or_else(|| self.must("be a string"))
    }

    pub(super) fn bool(&self) -> Option<bool> {
        self.value.as_bool()
    }

    /// A whole number that is not negative.
    pub(super) fn integer<T: TryFrom<u64>>(&self) -> Result<T, Refusal> {
        let number = self.value.as_integer().ok_or_else(|| self.must("be a whole number of 0 or more"))?;
        u64::from_str_radix(number.as_str(), number.radix()).ok().and_then(|n| T::try_from(n).ok()).ok_or_else(|| {
            let limit = "it must be a whole number of 0 or more, within reason";
            self.refuse(format!("`{}` cannot be {}; {limit}", self.key, number.as_str()))
        })
    }

    /// A number with or without a fraction.
    pub(super) fn number(&self) -> Result<f64, Refusal> {
        let text = match &self.value {
            DeValue::Integer(n) if n.radix() == 10 => n.as_str(),
            DeValue::Float(n) => n.as_str(),
            _ => return Err(self.must("be a number")),
        };
        text.parse().map_err(|_| self.must("be a number"))
    }

    /// A string or a number, as text.
    pub(super) fn scalar(&self) -> Result<String, Refusal> {
        match &self.value {
            DeValue::String(s) => Ok(s.clone().into_owned()),
            DeValue::Integer(n) => Ok(n.to_string()),
            DeValue::Float(n) => Ok(n.to_string()),
            _ => Err(self.must("be a string or a number")),
        }
    }

    pub(super) fn array(&self) -> Result<Vec<Value<'f>>, Refusal> {
        let array = self.value.as_array().ok_or_else(|| self.must("be a list"))?;
        let items = array.iter().enumerate().map(|(i, item)| Value {
            reader: self.reader,
            key: format!("{}[{i}]", self.key),
            span: item.span(),
            value: item.get_ref().clone(),
        });
        Ok(items.collect())
    }

    pub(super) fn table(&self, name: &str) -> Result<Table<'f>, Refusal> {
        let table = self.value.as_table().ok_or_else(|| self.must("be a table"))?;
        Ok(Table { reader: self.reader, name: name.to_owned(), table: table.clone() })
    }
}
