//! Parses a loadfile's text into requests.
//!
//! Invariant: an error names the line, the fault and the correct form.

use std::collections::{HashMap, HashSet};

use super::{CLIENT, Disposition, FileOperation, Loadfile, ROOT, Request, RequestKind, Status};
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;

/// Commands of newer loadfiles that dbench 4 lacks.
const NEWER: [&str; 9] =
    ["LOOP", "ENDLOOP", "REPEAT", "RANDOMSTRING", "SETSP", "WAITSP", "SLEEP", "WRITEPATTERN", "READPATTERN"];
/// Prefixes of the file-server protocols that only newer versions support.
const OTHER_PROTOCOLS: [(&str, &str); 4] =
    [("NFS", "NFS"), ("SCSI", "SCSI"), ("SMB", "SMB calls"), ("GETATTR3", "NFS")];
/// Largest transfer that a file server accepts in one request.
const LONGEST: u64 = 16 << 20;

/// Parses the text of the loadfile called `name`.
///
/// # Errors
/// If a line is not a request.
pub fn parse(name: &str, text: &str) -> Result<Loadfile, Refusal> {
    let mut reader = Reader::default();
    for (number, line) in text.lines().enumerate() {
        let number = number as u32 + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        reader.line(number, line).map_err(|refusal| refusal.at(Some(format!("{name}:{number}"))))?;
    }
    if reader.file.requests.is_empty() {
        let message =
            "The loadfile has no requests; write one per line, such as `Mkdir \"\\clients\\client1\" NT_STATUS_OK`";
        return Err(Refusal::new(message).at(Some(name.to_owned())));
    }
    Ok(reader.file)
}

#[derive(Default)]
struct Reader {
    file: Loadfile,
    paths: HashMap<String, u32>,
    open: HashSet<u32>,
}

impl Reader {
    fn line(&mut self, line: u32, text: &str) -> Result<(), Refusal> {
        let mut words = Words { rest: text };
        let word = words.next()?.unwrap_or_default().text;
        let kind = kind(word)?;
        let action = self.action(kind, &mut words)?;
        let status = status(kind, words.next()?)?;
        if let Some(more) = words.next()? {
            return Err(Refusal::new(format!("`{}` is superfluous; a line ends with its status", more.text)));
        }
        self.handles(&action, status)?;
        self.file.requests.push(Request { action, status, line });
        Ok(())
    }

    fn action(&mut self, kind: RequestKind, w: &mut Words<'_>) -> Result<FileOperation, Refusal> {
        let shape = Shape { kind };
        Ok(match kind {
            RequestKind::Create => {
                let path = self.path(&shape, w, "path")?;
                let options = shape.number(w, "options", u32::MAX.into())? as u32;
                let number = shape.number(w, "disposition", u64::MAX)?;
                let disposition = Disposition::of(number).ok_or_else(|| {
                    Refusal::new(format!("{number} is not a disposition; they are 0 supersede, 1 open, 2 create, 3 open or create, 4 overwrite, 5 overwrite or create"))
                })?;
                FileOperation::Create { path, options, disposition, handle: shape.handle(w)? }
            }
            RequestKind::Close => FileOperation::Close { handle: shape.handle(w)? },
            RequestKind::Flush => FileOperation::Flush { handle: shape.handle(w)? },
            RequestKind::Read => {
                let (handle, offset) = (shape.handle(w)?, shape.number(w, "offset", i64::MAX as u64)?);
                let size = shape.number(w, "size", LONGEST)? as u32;
                let found = shape.number(w, "number of bytes read", size.into())? as u32;
                FileOperation::Read { handle, offset, size, found }
            }
            RequestKind::Write => {
                let (handle, offset) = (shape.handle(w)?, shape.number(w, "offset", i64::MAX as u64 - LONGEST)?);
                let size = shape.number(w, "size", LONGEST)?;
                let written = shape.number(w, "number of bytes written", size)?;
                if written != size {
                    return Err(Refusal::new(format!(
                        "A write of {size} bytes that writes {written} cannot be replayed; both numbers must be the same"
                    )));
                }
                FileOperation::Write { handle, offset, size: size as u32 }
            }
            RequestKind::Lock | RequestKind::Unlock => {
                let (handle, offset) = (shape.handle(w)?, shape.number(w, "offset", i64::MAX as u64 - LONGEST)?);
                let size = shape.number(w, "length", u32::MAX.into())? as u32;
                if kind == RequestKind::Lock {
                    FileOperation::Lock { handle, offset, size }
                } else {
                    FileOperation::Unlock { handle, offset, size }
                }
            }
            RequestKind::Unlink => FileOperation::Unlink {
                path: self.path(&shape, w, "path")?,
                attributes: shape.number(w, "attributes", u32::MAX.into())? as u32,
            },
            RequestKind::Rename => {
                FileOperation::Rename { from: self.path(&shape, w, "old path")?, to: self.path(&shape, w, "new path")? }
            }
            RequestKind::Mkdir => FileOperation::Mkdir { path: self.path(&shape, w, "path")? },
            RequestKind::Rmdir => FileOperation::Rmdir { path: self.path(&shape, w, "path")? },
            RequestKind::Deltree => FileOperation::Deltree { path: self.path(&shape, w, "path")? },
            RequestKind::QueryPath => {
                FileOperation::QueryPath { path: self.path(&shape, w, "path")?, level: shape.level(w)? }
            }
            RequestKind::QueryFile => FileOperation::QueryFile { handle: shape.handle(w)?, level: shape.level(w)? },
            RequestKind::QueryFs => FileOperation::QueryFs { level: shape.level(w)? },
            RequestKind::SetFile => FileOperation::SetFile { handle: shape.handle(w)?, level: shape.level(w)? },
            RequestKind::Find => FileOperation::Find {
                path: self.path(&shape, w, "pattern")?,
                level: shape.level(w)?,
                most: shape.number(w, "most entries", u32::MAX.into())? as u32,
                found: shape.number(w, "number of entries", u32::MAX.into())? as u32,
            },
        })
    }

    /// Checks that handles are opened before they are used.
    fn handles(&mut self, action: &FileOperation, status: Status) -> Result<(), Refusal> {
        let used = match *action {
            FileOperation::Create { handle, .. } => {
                if status == Status::Ok {
                    self.open.insert(handle);
                }
                return Ok(());
            }
            FileOperation::Close { handle } => (handle, self.open.remove(&handle)),
            FileOperation::Read { handle, .. }
            | FileOperation::Write { handle, .. }
            | FileOperation::Flush { handle }
            | FileOperation::Lock { handle, .. }
            | FileOperation::Unlock { handle, .. }
            | FileOperation::QueryFile { handle, .. }
            | FileOperation::SetFile { handle, .. } => (handle, self.open.contains(&handle)),
            _ => return Ok(()),
        };
        match used {
            (_, true) => Ok(()),
            (handle, false) => {
                Err(Refusal::new(format!("Handle {handle} is not open; an NTCreateX must open it first")))
            }
        }
    }

    fn path(&mut self, shape: &Shape, words: &mut Words<'_>, what: &str) -> Result<u32, Refusal> {
        let word = shape.word(words, what)?;
        if !word.quoted {
            return Err(Refusal::new(format!(
                "`{}` is not a {what}; write it in quotation marks, such as `\"\\clients\\client1\\a\"`",
                word.text
            )));
        }
        let plain = word.text.replace('\\', "/");
        let parts: Vec<_> = plain.split('/').filter(|p| !p.is_empty()).collect();
        if parts.iter().any(|p| matches!(*p, "." | "..")) {
            return Err(Refusal::new(format!(
                "`{}` may lead out of the client's directory; paths must not contain `.` and `..`",
                word.text
            )));
        }
        let inner = match parts.split_first() {
            Some((root, inner)) if root.eq_ignore_ascii_case(ROOT) => inner,
            _ => {
                return Err(Refusal::new(format!(
                    "`{}` is outside the clients' directories; paths begin with `\\{ROOT}\\{CLIENT}`",
                    word.text
                )));
            }
        };
        if inner.first().is_some_and(|p| !p.eq_ignore_ascii_case(CLIENT)) {
            return Err(Refusal::new(format!(
                "`{}` belongs to another client; a loadfile describes one client, and its paths begin with `\\{ROOT}\\{CLIENT}`",
                word.text
            )));
        }
        let mut path = inner.join("/");
        if let Some(own) = path.get_mut(..CLIENT.len()) {
            own.make_ascii_lowercase();
        }
        if let Some(number) = self.paths.get(&path) {
            return Ok(*number);
        }
        let number = self.file.paths.len() as u32;
        self.file.paths.push(path.clone());
        self.paths.insert(path, number);
        Ok(number)
    }
}

fn kind(word: &str) -> Result<RequestKind, Refusal> {
    if let Some((kind, ..)) = RequestKind::ALL.iter().find(|(_, name, _)| *name == word) {
        return Ok(*kind);
    }
    let right = "use a loadfile of dbench 4";
    if word.parse::<f64>().is_ok() {
        return Err(Refusal::new(format!(
            "`{word}` is a timestamp: timed loadfiles of newer versions are not supported; {right}"
        )));
    }
    if NEWER.contains(&word) {
        return Err(Refusal::new(format!("`{word}` of newer loadfiles is not supported; {right}")));
    }
    if let Some((_, protocol)) = OTHER_PROTOCOLS.iter().find(|(prefix, _)| word.starts_with(prefix)) {
        return Err(Refusal::new(format!("`{word}`: loadfiles of {protocol} are not supported; {right}")));
    }
    let names = || RequestKind::ALL.iter().map(|(_, name, _)| *name);
    Err(Refusal::new(match suggest::nearest(word, names()) {
        Some(near) => format!("`{word}` is not a request; did you mean `{near}`?"),
        None => format!("`{word}` is not a request; it can be {}", suggest::list(names())),
    }))
}

fn status(kind: RequestKind, word: Option<Word<'_>>) -> Result<Status, Refusal> {
    let names = || Status::ALL.iter().map(|(name, _)| *name);
    let Some(word) = word else {
        return Err(Refusal::new(format!(
            "The status is missing; a {} ends with one, such as `NT_STATUS_OK`",
            kind.word()
        )));
    };
    let found = Status::ALL.iter().find(|(name, _)| *name == word.text).map(|(_, status)| *status);
    if word.text == "*" {
        return Err(Refusal::new("A status `*` of newer loadfiles is not supported; each request needs a status"));
    }
    found.ok_or_else(|| {
        Refusal::new(match suggest::nearest(word.text, names()) {
            Some(near) => format!("`{}` is not a known status; did you mean `{near}`?", word.text),
            None => format!("`{}` is not a known status; it can be {}", word.text, suggest::list(names())),
        })
    })
}

/// The format of a line.
struct Shape {
    kind: RequestKind,
}

impl Shape {
    fn word<'t>(&self, words: &mut Words<'t>, what: &str) -> Result<Word<'t>, Refusal> {
        match words.next()? {
            Some(word) if !word.text.starts_with("NT_STATUS_") || word.quoted => Ok(word),
            _ => Err(Refusal::new(format!("The {what} is missing; write `{}`", usage(self.kind)))),
        }
    }

    fn number(&self, words: &mut Words<'_>, what: &str, most: u64) -> Result<u64, Refusal> {
        let word = self.word(words, what)?;
        if !word.quoted && word.text.starts_with(['*', '/', '%', '+']) {
            return Err(Refusal::new(format!(
                "`{}`: computed values of newer loadfiles are not supported; a number is",
                word.text
            )));
        }
        let number = match word.text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => word.text.parse(),
        };
        match number {
            Ok(n) if n <= most && !word.quoted => Ok(n),
            Ok(n) if !word.quoted => Err(Refusal::new(format!("The {what} {n} is too large; at most {most}"))),
            _ => Err(Refusal::new(format!("`{}` is not a {what}; write `{}`", word.text, usage(self.kind)))),
        }
    }

    fn handle(&self, words: &mut Words<'_>) -> Result<u32, Refusal> {
        Ok(self.number(words, "handle", u32::MAX.into())? as u32)
    }

    fn level(&self, words: &mut Words<'_>) -> Result<u32, Refusal> {
        Ok(self.number(words, "level", u32::MAX.into())? as u32)
    }
}

/// The syntax of a kind of line.
fn usage(kind: RequestKind) -> String {
    let arguments = match kind {
        RequestKind::Create => "\"PATH\" OPTIONS DISPOSITION HANDLE",
        RequestKind::Close | RequestKind::Flush => "HANDLE",
        RequestKind::Read => "HANDLE OFFSET SIZE READ",
        RequestKind::Write => "HANDLE OFFSET SIZE WRITTEN",
        RequestKind::Lock | RequestKind::Unlock => "HANDLE OFFSET LENGTH",
        RequestKind::Unlink => "\"PATH\" ATTRIBUTES",
        RequestKind::Rename => "\"OLD\" \"NEW\"",
        RequestKind::Mkdir | RequestKind::Rmdir | RequestKind::Deltree => "\"PATH\"",
        RequestKind::QueryPath => "\"PATH\" LEVEL",
        RequestKind::QueryFile | RequestKind::SetFile => "HANDLE LEVEL",
        RequestKind::QueryFs => "LEVEL",
        RequestKind::Find => "\"PATTERN\" LEVEL MOST FOUND",
    };
    format!("{} {arguments} STATUS", kind.word())
}

#[derive(Clone, Copy, Default)]
struct Word<'t> {
    text: &'t str,
    quoted: bool,
}

/// Words between blanks, and quoted texts.
struct Words<'t> {
    rest: &'t str,
}

impl<'t> Words<'t> {
    fn next(&mut self) -> Result<Option<Word<'t>>, Refusal> {
        let rest = self.rest.trim_start();
        if rest.is_empty() {
            self.rest = rest;
            return Ok(None);
        }
        if let Some(inner) = rest.strip_prefix('"') {
            let (text, after) = inner
                .split_once('"')
                .ok_or_else(|| Refusal::new("A quotation mark is not closed; a path needs two"))?;
            self.rest = after;
            return Ok(Some(Word { text, quoted: true }));
        }
        let (text, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
        self.rest = after;
        Ok(Some(Word { text, quoted: false }))
    }
}
