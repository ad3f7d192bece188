//! The pair of a trial, or the reason why it has none; made on first use if it was not made before.

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

    /// No pair, and why.
    pub fn none(why: &str) -> Self {
        Self(OnceCell::from(Err(why.to_owned())))
    }

    /// A pair in separate namespaces, made on first use.
    pub fn lazy() -> Self {
        Self(OnceCell::new())
    }

    /// The pair.
    ///
    /// # Errors
    /// Why there is no pair.
    pub fn get(&self) -> Result<&VethPair, String> {
        self.0.get_or_init(VethPair::make).as_ref().map_err(Clone::clone)
    }

    /// The pair, if it has been made.
    pub fn made(&self) -> Option<&VethPair> {
        self.0.get()?.as_ref().ok()
    }

    /// The paths for other processes, if the pair has been made.
    pub fn network(&self) -> Option<Network> {
        self.made().map(VethPair::network)
    }
}
