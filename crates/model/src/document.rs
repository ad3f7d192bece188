//! TOML with positions: every value knows its line or option, and every error names it.
//!
//! Invariant: the tree keeps everything in the text, so that a reader can refuse what it does not know.

use std::fmt::Display;
use std::rc::Rc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::refusal::Refusal;
use crate::suggest;

/// A table of a document; the document itself is a table without a name.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    /// The noun for a table without a name: `a study`.
    what: &'static str,
    /// In the order of the text.
    entries: Vec<(Key, Value)>,
}

/// A key and its position.
#[derive(Clone, Debug)]
pub struct Key {
    pub text: String,
    place: ValuePlace,
    offset: usize,
}

/// A value, under its key.
#[derive(Clone, Debug)]
pub struct Value {
    key: String,
    place: ValuePlace,
    data: Data,
}

#[derive(Clone, Debug)]
enum ValuePlace {
    Line(Rc<str>, usize),
    /// Given outside the text; the key is its full name, which is enough as a position.
    Apart,
}

#[derive(Clone, Debug)]
enum Data {
    Text(String),
    Integer(String, u32),
    Float(String),
    Bool(bool),
    Datetime(String),
    List(Vec<Value>),
    Table(Table),
    /// Given outside the text, without a type: it is parsed as the expected type.
    Untyped(String),
}

/// Parses `text`, a document of the kind `what` (`a study`) with the name `name`.
///
/// # Errors
/// It is not TOML; the message has the line.
pub fn parse(name: &str, text: &str, what: &'static str) -> Result<Table, Refusal> {
    let line_ends = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at).collect();
    let reader = Reader { name: name.into(), line_ends, what };
    match DeTable::parse(text) {
        Ok(table) => Ok(reader.table(String::new(), table.get_ref())),
        Err(e) => {
            let place = e.span().map_or(Some(name.to_owned()), |span| reader.place(span.start).text());
            Err(Refusal::new(sentence(e.message())).at(place))
        }
    }
}

struct Reader {
    name: Rc<str>,
    /// Looked up for every value: a long document has many.
    line_ends: Vec<usize>,
    what: &'static str,
}

impl Reader {
    fn place(&self, offset: usize) -> ValuePlace {
        ValuePlace::Line(Rc::clone(&self.name), 1 + self.line_ends.partition_point(|end| *end < offset))
    }

    fn table(&self, name: String, table: &DeTable<'_>) -> Table {
        let mut entries: Vec<(Key, Value)> = table
            .iter()
            .map(|(key, value)| {
                let text = key.get_ref().clone().into_owned();
                let offset = key.span().start;
                let value = self.value(&name, text.clone(), value);
                (Key { text, place: self.place(offset), offset }, value)
            })
            .collect();
        entries.sort_by_key(|(key, _)| key.offset);
        Table { name, what: self.what, entries }
    }

    fn value(&self, home: &str, key: String, value: &Spanned<DeValue<'_>>) -> Value {
        let data = match value.get_ref() {
            DeValue::String(s) => Data::Text(s.clone().into_owned()),
            DeValue::Integer(n) => Data::Integer(n.as_str().to_owned(), n.radix()),
            DeValue::Float(n) => Data::Float(n.as_str().to_owned()),
            DeValue::Boolean(b) => Data::Bool(*b),
            DeValue::Datetime(d) => Data::Datetime(d.to_string()),
            DeValue::Array(items) => Data::List(
                items.iter().enumerate().map(|(i, item)| self.value(home, format!("{key}[{i}]"), item)).collect(),
            ),
            // Tables in a list have the list's name.
            DeValue::Table(table) => Data::Table(self.table(join(home, key.split('[').next().unwrap_or(&key)), table)),
        };
        Value { key, place: self.place(value.span().start), data }
    }
}

fn join(home: &str, key: &str) -> String {
    if home.is_empty() { key.to_owned() } else { format!("{home}.{key}") }
}

/// The TOML crate's message on one line, starting like bigiron's own.
fn sentence(message: &str) -> String {
    let line = message.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ");
    let mut letters = line.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

impl ValuePlace {
    fn text(&self) -> Option<String> {
        match self {
            ValuePlace::Line(name, line) => Some(format!("{name}:{line}")),
            ValuePlace::Apart => None,
        }
    }
}

impl Table {
    /// Refuses every key that is not in `known`.
    pub fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        let Some((key, value)) = self.entries.iter().find(|(k, _)| !known.contains(&k.text.as_str())) else {
            return Ok(());
        };
        let home = if self.name.is_empty() { self.what.to_owned() } else { format!("`[{}]`", self.name) };
        let right = match suggest::nearest(&key.text, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("{home} has {}", suggest::list(known)),
        };
        Err(Refusal::new(format!("Unknown key `{}`; {right}", value.key)).at(key.place()))
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(k, _)| k.text == key).map(|(_, value)| value)
    }

    pub fn table(&self, key: &str) -> Result<Option<&Table>, Refusal> {
        self.get(key).map(Value::table).transpose()
    }

    /// An empty table.
    pub fn empty(name: &str) -> Self {
        Table { name: name.to_owned(), what: "a document", entries: Vec::new() }
    }

    /// The position of the value at `path`, or of the longest existing part of the path; `None` if that was given outside the text.
    pub fn place_of(&self, path: &[&str]) -> Option<String> {
        let (head, rest) = path.split_first()?;
        let (key, value) = self.entries.iter().find(|(k, _)| k.text == *head)?;
        match &value.data {
            Data::Table(table) if !rest.is_empty() => table.place_of(rest).or(key.place()),
            _ => value.place(),
        }
    }

    /// Keys and values in the order of the text.
    pub fn items(&self) -> &[(Key, Value)] {
        &self.entries
    }

    /// Sets the value at `path` (a key's name after those of its tables) to `text`, as if the document contained it; error messages will call it
    /// `said`. Missing tables are created.
    ///
    /// # Errors
    /// A part of the path is already a value, or the whole path is a table.
    pub fn lay(&mut self, path: &[&str], text: &str, said: &str) -> Result<(), Refusal> {
        let Some((head, rest)) = path.split_first() else { return Ok(()) };
        let at = self.entries.iter().position(|(k, _)| k.text == *head);
        if rest.is_empty() {
            if let Some((_, Value { data: Data::Table(_), .. })) = at.map(|i| &self.entries[i]) {
                return Err(Refusal::new(format!("`{said}` is a table; name one of its keys, such as `{said}.KEY`")));
            }
            self.set(head, Data::Untyped(text.to_owned()), said);
            return Ok(());
        }
        let at = at.unwrap_or_else(|| {
            let table = Table { name: join(&self.name, head), what: self.what, entries: Vec::new() };
            self.set(head, Data::Table(table), said)
        });
        match &mut self.entries[at].1.data {
            Data::Table(table) => table.lay(rest, text, said),
            _ => Err(Refusal::new(format!("`{said}` does not exist: `{}` is not a table", join(&self.name, head)))),
        }
    }

    /// Removes a key, if it exists.
    pub fn remove(&mut self, key: &str) {
        self.entries.retain(|(k, _)| k.text != key);
    }

    /// The table under `key`, mutable.
    pub fn table_mut(&mut self, key: &str) -> Option<&mut Table> {
        self.entries.iter_mut().find_map(|(k, value)| match &mut value.data {
            Data::Table(table) if k.text == key => Some(table),
            _ => None,
        })
    }

    fn set(&mut self, key: &str, data: Data, said: &str) -> usize {
        let value = Value { key: said.to_owned(), place: ValuePlace::Apart, data };
        match self.entries.iter().position(|(k, _)| k.text == key) {
            Some(i) => {
                self.entries[i].1 = value;
                i
            }
            None => {
                let offset = self.entries.last().map_or(0, |(k, _)| k.offset);
                self.entries.push((Key { text: key.to_owned(), place: ValuePlace::Apart, offset }, value));
                self.entries.len() - 1
            }
        }
    }
}

impl Key {
    pub fn offset(&self) -> usize {
        self.offset
    }

    pub fn place(&self) -> Option<String> {
        self.place.text()
    }
}

impl Value {
    /// A value given outside any text; error messages will call it `key`.
    pub fn said(key: &str, text: &str) -> Self {
        Value { key: key.to_owned(), place: ValuePlace::Apart, data: Data::Untyped(text.to_owned()) }
    }

    /// Line in the text; 0 for values given outside it.
    pub fn line(&self) -> usize {
        match &self.place {
            ValuePlace::Line(_, line) => *line,
            ValuePlace::Apart => 0,
        }
    }

    pub fn place(&self) -> Option<String> {
        self.place.text()
    }

    /// Its key, or the full name of a value given outside the text.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn refuse(&self, message: impl Into<String>) -> Refusal {
        Refusal::new(message).at(self.place())
    }

    /// Refuses the value with "cannot be"; `right` says what it can be.
    pub fn cannot_be(&self, right: impl Display) -> Refusal {
        let text = match &self.data {
            Data::Text(s) | Data::Untyped(s) | Data::Float(s) | Data::Integer(s, _) | Data::Datetime(s) => s,
            Data::Bool(true) => "true",
            Data::Bool(false) => "false",
            Data::List(_) => "a list",
            Data::Table(_) => "a table",
        };
        self.refuse(format!("`{}` cannot be `{text}`; it can be {right}", self.key))
    }

    /// Refuses `text`, which is not one of the possible `words`.
    pub fn is_no_word<'w>(&self, text: &str, words: impl Iterator<Item = &'w str> + Clone) -> Refusal {
        match suggest::nearest(text, words.clone()) {
            Some(near) => self.refuse(format!("`{}` cannot be `{text}`; did you mean `{near}`?", self.key)),
            None => self.cannot_be(suggest::list(words)),
        }
    }

    fn must(&self, what: impl Display) -> Refusal {
        let kind = match &self.data {
            Data::Text(_) => "a string",
            Data::Integer(..) => "an integer",
            Data::Float(_) => "a float",
            Data::Bool(_) => "a boolean",
            Data::Datetime(_) => "a datetime",
            Data::List(_) => "an array",
            Data::Table(_) => "a table",
            Data::Untyped(text) => return self.refuse(format!("`{}` must {what}, not `{text}`", self.key)),
        };
        self.refuse(format!("`{}` must {what}, not {kind}", self.key))
    }

    pub fn is_table(&self) -> bool {
        matches!(self.data, Data::Table(_))
    }

    pub fn string(&self) -> Result<String, Refusal> {
        match &self.data {
            Data::Text(text) | Data::Untyped(text) => Ok(text.clone()),
            _ => Err(self.must("be a string")),
        }
    }

    pub fn bool(&self) -> Option<bool> {
        match &self.data {
            Data::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// A boolean: `true` or `false`, or as words `on` or `off`.
    pub fn switch(&self) -> Result<bool, Refusal> {
        match &self.data {
            Data::Bool(b) => Ok(*b),
            Data::Text(text) | Data::Untyped(text) => match text.as_str() {
                "on" => Ok(true),
                "off" => Ok(false),
                "true" if matches!(self.data, Data::Untyped(_)) => Ok(true),
                "false" if matches!(self.data, Data::Untyped(_)) => Ok(false),
                _ => Err(self.cannot_be("`on` or `off`")),
            },
            _ => Err(self.must("be `true` or `false`")),
        }
    }

    /// A non-negative whole number.
    pub fn integer<T: TryFrom<u64>>(&self) -> Result<T, Refusal> {
        let (digits, radix) = match &self.data {
            Data::Integer(digits, radix) => (digits, *radix),
            Data::Untyped(text) => (text, 10),
            _ => return Err(self.must("be a whole number of 0 or more")),
        };
        u64::from_str_radix(digits, radix).ok().and_then(|n| T::try_from(n).ok()).ok_or_else(|| {
            let limit = "it must be a whole number of 0 or more that is not too large";
            self.refuse(format!("`{}` cannot be {digits}; {limit}", self.key))
        })
    }

    /// A number with or without a fraction.
    pub fn number(&self) -> Result<f64, Refusal> {
        let text = match &self.data {
            Data::Integer(n, 10) => n,
            Data::Float(n) | Data::Untyped(n) => n,
            _ => return Err(self.must("be a number")),
        };
        text.parse().map_err(|_| self.must("be a number"))
    }

    /// A string or a number, as text.
    pub fn scalar(&self) -> Result<String, Refusal> {
        match &self.data {
            Data::Text(s) | Data::Untyped(s) => Ok(s.clone()),
            Data::Integer(n, 10) | Data::Float(n) => Ok(n.clone()),
            Data::Integer(n, radix) => match u64::from_str_radix(n, *radix) {
                Ok(n) => Ok(n.to_string()),
                Err(_) => Err(self.must("be a string or a number")),
            },
            _ => Err(self.must("be a string or a number")),
        }
    }

    pub fn array(&self) -> Result<&[Value], Refusal> {
        match &self.data {
            Data::List(items) => Ok(items),
            _ => Err(self.must("be a list")),
        }
    }

    /// A list of texts, each with its value for error messages; a single text from outside is split at each `;`.
    pub fn texts(&self) -> Result<Vec<(String, Value)>, Refusal> {
        match &self.data {
            Data::List(items) => items.iter().map(|item| Ok((item.string()?, item.clone()))).collect(),
            Data::Text(text) | Data::Untyped(text) => {
                let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
                Ok(parts.map(|part| (part.to_owned(), self.clone())).collect())
            }
            _ => Err(self.must("be a list of strings")),
        }
    }

    pub fn table(&self) -> Result<&Table, Refusal> {
        match &self.data {
            Data::Table(table) => Ok(table),
            _ => Err(self.must("be a table")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Table {
        parse("x.toml", text, "a thing").unwrap()
    }

    #[test]
    fn what_is_laid_over_a_document_is_read_as_if_it_stood_there() {
        let mut root = read("[a]\nn = 1\n[a.b]\non = true\nlist = [\"x\", \"y\"]\n");
        for (path, text) in
            [("a.n", "7"), ("a.b.on", "off"), ("a.b.list", "p q; r"), ("a.new.x", "1.5"), ("top", "word")]
        {
            root.lay(&path.split('.').collect::<Vec<_>>(), text, path).unwrap();
        }
        let a = root.table("a").unwrap().unwrap();
        assert_eq!(a.get("n").unwrap().integer::<u8>().unwrap(), 7);
        let b = a.table("b").unwrap().unwrap();
        assert!(!b.get("on").unwrap().switch().unwrap());
        let list: Vec<String> = b.get("list").unwrap().texts().unwrap().into_iter().map(|(t, _)| t).collect();
        assert_eq!(list, ["p q", "r"]);
        assert_eq!(a.table("new").unwrap().unwrap().get("x").unwrap().number().unwrap(), 1.5);
        assert_eq!(root.get("top").unwrap().string().unwrap(), "word");
    }

    #[test]
    fn complaints_name_the_line_or_the_full_name() {
        let mut root = read("\n[a]\nn = \"x\"\n");
        root.lay(&["a", "m"], "y", "a.m").unwrap();
        let a = root.table("a").unwrap().unwrap();
        assert_eq!(
            a.get("n").unwrap().integer::<u8>().unwrap_err().to_string(),
            "x.toml:3: `n` must be a whole number of 0 or more, not a string"
        );
        assert_eq!(a.get("m").unwrap().cannot_be("`z`").to_string(), "`a.m` cannot be `y`; it can be `z`");
        assert_eq!(a.only(&["n", "k"]).unwrap_err().to_string(), "Unknown key `a.m`; did you mean `n`?");
        assert!(root.lay(&["a"], "1", "a").unwrap_err().to_string().contains("is a table"));
        assert!(root.lay(&["a", "n", "x"], "1", "a.n.x").unwrap_err().to_string().contains("`a.n` is not a table"));
    }

    #[test]
    fn tables_keep_the_order_of_the_text() {
        let root = read("[z]\n[b]\n[a]\n");
        let names: Vec<&str> = root.items().iter().map(|(k, _)| k.text.as_str()).collect();
        assert_eq!(names, ["z", "b", "a"]);
    }
}
