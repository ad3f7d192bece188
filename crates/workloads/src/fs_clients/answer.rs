//! Replies to requests, compared with what the loadfile and earlier writes make of them; the same for every server.
//!
//! Invariant: a reply that differs is an error, and so is a byte that was read and differs from what was written.

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::io::Errno;

use super::content::{Pattern, Tree};
use crate::loadfile::{Loadfile, Request, Status};

/// The reply to a request that failed.
pub(crate) enum Refused {
    With(Status),
    /// A failure that no loadfile expects.
    Failed(anyhow::Error),
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT => Self::With(Status::NameNotFound),
            Errno::NOTDIR => Self::With(Status::PathNotFound),
            Errno::EXIST => Self::With(Status::NameCollision),
            Errno::NOTEMPTY => Self::With(Status::DirectoryNotEmpty),
            Errno::ACCESS | Errno::PERM => Self::With(Status::AccessDenied),
            e => Self::Failed(e.into()),
        }
    }
}

impl From<anyhow::Error> for Refused {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// The expected replies to one client.
pub(crate) struct Expectation<'a> {
    pattern: &'a Pattern,
    pass: u32,
    /// Whether counts of directory entries must match the loadfile.
    exact: bool,
    /// The expected contents in the first pass, if it is checked.
    tree: Option<Tree<'a>>,
}

impl<'a> Expectation<'a> {
    /// For `client`; with `checked`, what it reads in its first pass is compared.
    pub fn new(file: &'a Loadfile, pattern: &'a Pattern, client: usize, (exact, checked): (bool, bool)) -> Self {
        Self { pattern, pass: 0, exact, tree: checked.then(|| Tree::new(file, pattern, client)) }
    }

    /// The client begins a pass.
    pub fn begin(&mut self, pass: u32) {
        self.pass = pass;
        if pass > 1 {
            self.tree = None;
        }
    }

    /// From here on, only lengths and replies are compared.
    pub fn measured(&mut self) {
        self.tree = None;
    }

    /// Checks what was read at `offset`, of which the loadfile expects `found` bytes.
    pub fn check_read(&self, handle: u32, offset: u64, found: u32, read: &[u8]) -> Result<(), Refused> {
        if read.len() != found as usize {
            return Err(anyhow!("{} bytes were read instead of {found}", read.len()).into());
        }
        let Some(tree) = &self.tree else { return Ok(()) };
        let mut wanted = vec![0; read.len()];
        tree.opened(handle).context("The open file is a directory")?.paint(self.pattern, offset, &mut wanted);
        match wanted.iter().zip(read).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(anyhow!("Byte {} differs from what was written", offset + at as u64).into()),
        }
    }

    /// Checks the number of entries that a search has found.
    pub fn check_count(&self, count: u32, found: u32) -> Result<(), Refused> {
        if self.exact && count != found {
            return Err(anyhow!("{count} entries were found instead of {found}").into());
        }
        Ok(())
    }

    /// Checks the reply to a request, and expects its effects from now on.
    ///
    /// # Errors
    /// The loadfile expects another.
    pub fn check(&mut self, request: &Request, answer: Result<(), Refused>) -> Result<()> {
        let answer = match answer {
            Ok(()) => Status::Ok,
            Err(Refused::With(status)) => status,
            Err(Refused::Failed(error)) => bail!(error),
        };
        let expected = request.status;
        ensure!(answer == expected, "The reply is {} instead of {}", answer.name(), expected.name());
        if let Some(tree) = &mut self.tree {
            tree.apply(request, self.pass);
        }
        Ok(())
    }
}
