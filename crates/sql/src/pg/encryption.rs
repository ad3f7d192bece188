//! What begins the encryption of a connection. The agent of guests has none: no workload in a guest crosses a network, and what encrypts is a tenth of its size.
//!
//! Invariant: where encryption is not installed, a connection that must be encrypted fails; it is never made in plain text.

use std::sync::OnceLock;

use bigiron_tls::Encryption;

use super::tls;
use super::url::Url;

/// Begins the encryption that a URL asks for, or says why it cannot.
type Begin = fn(&Url) -> Result<Box<dyn Encryption>, String>;

static INSTALLED: OnceLock<Begin> = OnceLock::new();

/// Lets connections of this process be encrypted.
pub fn install() {
    // A second call installs the same.
    let _ = INSTALLED.set(|url| Ok(Box::new(tls::begin(url)?)));
}

/// # Errors
/// Why this URL's server cannot be verified, or that this process cannot encrypt.
pub(super) fn begin(url: &Url) -> Result<Box<dyn Encryption>, String> {
    #[cfg(test)]
    install();
    match INSTALLED.get() {
        Some(begin) => begin(url),
        None => Err("connections from a guest cannot be encrypted; use sslmode=disable".to_owned()),
    }
}
