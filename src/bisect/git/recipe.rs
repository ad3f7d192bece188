//! Everything besides the commit that decides a kernel: configuration, compiler, make's arguments.
//!
//! Invariant: a recipe always builds the same bytes from a commit, so that its kernels can be cached.

use std::path::PathBuf;

use super::config::Base;
use super::make::Arguments;
use super::short;
use bigiron_archive::hash;

/// The input of a build besides the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    pub base: Base,
    /// Options that the study needs in addition to the usual ones.
    pub more: Vec<String>,
    pub arguments: Arguments,
    /// The part of the cache key that the recipe decides.
    key: String,
}

impl Recipe {
    /// Creates a recipe; it includes the compiler's version.
    pub fn new(base: Base, more: Vec<String>, arguments: Arguments) -> Recipe {
        let words: Vec<&str> = arguments.for_the_kernel().collect();
        let text = format!("{} {words:?} {}", base.sha256(&more), arguments.compiler());
        let key = hash::of_bytes(text.as_bytes())[..8].to_owned();
        Recipe { base, more, arguments, key }
    }

    /// The recipe of a link of a chain between two given ends: number `number`, with configuration `text`.
    pub fn link(&self, number: usize, text: String) -> Recipe {
        let base = Base::File { path: PathBuf::new(), text };
        Recipe { base, key: format!("{}-{number}", self.key), ..self.clone() }
    }

    /// The same recipe with another configuration. It has no cache name, because an end is never built by itself.
    pub fn with(&self, base: Base) -> Recipe {
        Recipe { base, ..self.clone() }
    }

    /// The common part of the recipes for links between the same ends; `bad` is the other end.
    pub fn between(self, bad: &Base) -> Recipe {
        let text = format!("{} {}", self.key, bad.sha256(&self.more));
        Recipe { key: hash::of_bytes(text.as_bytes())[..8].to_owned(), ..self }
    }

    /// The name in the cache of the kernel that it builds from a commit.
    pub fn name(&self, commit: &str) -> String {
        format!("git-{}-{}", short(commit), self.key)
    }
}
