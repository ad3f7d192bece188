//! Encryption as a connection sees it. The agent of guests has none: no workload in a guest crosses a network, and what encrypts is a tenth of its size.
//!
//! Invariant: where encryption is not installed, a connection that must be encrypted fails; it is never made in plain text.

use std::io::{self, Read, Write};
use std::sync::OnceLock;

use super::tls::Tls;
use super::url::Url;

/// A socket without encryption.
pub(super) trait Raw: Read + Write {}

impl<T: Read + Write> Raw for T {}

/// One end of an encrypted stream; the caller passes in the socket.
pub(super) trait Encryption: Send {
    fn is_handshaking(&self) -> bool;

    /// Whether a receive would return data without the socket.
    fn has_plaintext(&self) -> bool;

    /// Reads once from the socket, and decrypts complete records.
    ///
    /// # Errors
    /// Those of the socket; `UnexpectedEof` at its end; `InvalidData` if the other side aborts or cannot be verified.
    fn pull(&mut self, socket: &mut dyn Raw) -> io::Result<()>;

    /// Sends encrypted data; returns whether all of it has left.
    fn flush(&mut self, socket: &mut dyn Raw) -> io::Result<bool>;

    /// Number of `bytes` accepted; the last of them may still wait for [`Self::flush`].
    fn send(&mut self, socket: &mut dyn Raw, bytes: &[u8]) -> io::Result<usize>;

    /// Number of bytes received; 0 at the end.
    fn receive(&mut self, socket: &mut dyn Raw, bytes: &mut [u8]) -> io::Result<usize>;
}

/// Begins the encryption that a URL asks for, or says why it cannot.
type Begin = fn(&Url) -> Result<Box<dyn Encryption>, String>;

static INSTALLED: OnceLock<Begin> = OnceLock::new();

/// Lets connections of this process be encrypted.
pub fn install() {
    // A second call installs the same.
    let _ = INSTALLED.set(|url| Ok(Box::new(Tls::new(url)?)));
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
