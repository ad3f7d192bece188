//! Files in a workload's language: those shipped with bigiron, and users' files.
//!
//! Invariant: a name means the same text on the orchestrator and in a guest, which has no files of the host.

use std::path::Path;

use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;

/// A file shipped with bigiron.
pub struct Shipped {
    pub name: &'static str,
    pub text: &'static str,
}

/// All shipped files of a language.
pub struct Library {
    /// The noun for one of them, such as `job of oltp`.
    pub what: &'static str,
    /// The noun for its file, such as `job file`.
    pub file: &'static str,
    /// The default first.
    pub shipped: &'static [Shipped],
    /// Other things that can be named, for messages.
    pub besides: &'static str,
}

/// `shipped!("../jobs/", ".toml": "first", "second")`: the files with these names, relative to the source file.
#[macro_export]
macro_rules! shipped {
    ($folder:literal, $extension:literal: $($name:literal),+ $(,)?) => {
        &[$($crate::library::Shipped {
            name: $name,
            text: include_str!(concat!($folder, $name, $extension)),
        }),+]
    };
}

pub use shipped;

impl Library {
    pub fn find(&self, name: &str) -> Option<&'static Shipped> {
        self.shipped.iter().find(|shipped| shipped.name == name)
    }

    /// The file with that name.
    ///
    /// # Errors
    /// There is none; the message says what would be right.
    pub fn get(&self, name: &str) -> Result<&'static Shipped, Refusal> {
        self.find(name).ok_or_else(|| {
            let right = match suggest::nearest(name, self.names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", suggest::list(self.names())),
            };
            Refusal::new(format!("No job `{name}` comes with bigiron; {right}"))
        })
    }

    /// The text of the user's file at `called`. A word that looks like a name but is not one is refused as a name; `near` are other names that may
    /// have been meant.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, called: &str, near: impl Iterator<Item = &'static str>) -> Result<String, Refusal> {
        let path = Path::new(called);
        if !path.exists() && !called.contains(['/', '.']) {
            let right = match suggest::nearest(called, self.names().chain(near)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it can be {}, {}", suggest::list(self.names()), self.besides),
            };
            return Err(Refusal::new(format!("`{called}` is not a {}; {right}", self.what)));
        }
        read(self.file, called)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.shipped.iter().map(|shipped| shipped.name)
    }
}

/// The text of the file at `path`, a `kind`.
///
/// # Errors
/// The file cannot be read.
pub fn read(kind: &str, path: &str) -> Result<String, Refusal> {
    std::fs::read_to_string(path).map_err(|e| Refusal::new(format!("Cannot read the {kind} `{path}`: {e}")))
}

/// The name derived from a file's path.
pub fn stem(path: &str) -> String {
    Path::new(path).file_stem().map_or_else(|| path.to_owned(), |stem| stem.to_string_lossy().into_owned())
}
