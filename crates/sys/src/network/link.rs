//! The pair of a trial, or why it has none; made when it is first asked for where nobody made it before.

use std::cell::OnceCell;

use super::{Network, VethPair};

/// The pair of a trial, if there is one.
#[derive(Debug)]
pub struct TrialLink(OnceCell<Result<VethPair, String>>);

impl TrialLink {
    /// This pair.
    pub fn of(pair: VethPair) -> Self {
        Self(OnceCell::from(Ok(pair)))
    }

    /// None, and why.
    pub fn none(why: &str) -> Self {
        Self(OnceCell::from(Err(why.to_owned())))
    }

    /// One in namespaces of its own, made when it is asked for.
    pub fn lazy() -> Self {
        Self(OnceCell::new())
    }

    /// The pair.
    ///
    /// # Errors
    /// Why there is none.
    pub fn get(&self) -> Result<&VethPair, String> {
        self.0.get_or_init(VethPair::make).as_ref().map_err(Clone::clone)
    }

    /// The pair, if it has been made.
    pub fn made(&self) -> Option<&VethPair> {
        self.0.get()?.as_ref().ok()
    }

    /// Where other processes find it, if it has been made.
    pub fn network(&self) -> Option<Network> {
        self.made().map(VethPair::network)
    }
}
