//! What decides a kernel beside its commit: configuration, compiler, make's arguments.
//!
//! Invariant: one recipe makes the same bytes of a commit, so that what it made may be taken from the cache.

use std::path::PathBuf;

use super::config::Base;
use super::make::Arguments;
use super::short;
use bigiron_archive::hash;

/// What is built, beside the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    pub base: Base,
    /// Options that the study needs beside the usual ones.
    pub more: Vec<String>,
    pub arguments: Arguments,
    /// Decides what of the cache may be used.
    key: String,
}

impl Recipe {
    /// Looks at the compiler, which is a part of it.
    pub fn new(base: Base, more: Vec<String>, arguments: Arguments) -> Recipe {
        let words: Vec<&str> = arguments.for_the_kernel().collect();
        let text = format!("{} {words:?} {}", base.sha256(&more), arguments.compiler());
        let key = hash::of_bytes(text.as_bytes())[..8].to_owned();
        Recipe { base, more, arguments, key }
    }

    /// Of the link of a chain of configurations whose ends are given: the `number`th, whose text is `text`.
    pub fn link(&self, number: usize, text: String) -> Recipe {
        let base = Base::File { path: PathBuf::new(), text };
        Recipe { base, key: format!("{}-{number}", self.key), ..self.clone() }
    }

    /// The same of another configuration. It has no name in the cache, since nothing is built of an end by itself.
    pub fn with(&self, base: Base) -> Recipe {
        Recipe { base, ..self.clone() }
    }

    /// What links of chains between the same ends have in common: `bad` is the other end.
    pub fn between(self, bad: &Base) -> Recipe {
        let text = format!("{} {}", self.key, bad.sha256(&self.more));
        Recipe { key: hash::of_bytes(text.as_bytes())[..8].to_owned(), ..self }
    }

    /// The name in the cache of the kernel that it makes of a commit.
    pub fn name(&self, commit: &str) -> String {
        format!("git-{}-{}", short(commit), self.key)
    }
}
