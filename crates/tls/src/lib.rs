//! Encryption of a client's connection, as the connection sees it, and with rustls.
//!
//! Invariant: an executable contains cryptography only if it calls [`Session::new`] or [`certificate::self_signed`]. Workloads hold a `dyn` [`Encryption`]
//! and get what makes it from the executable's `main`, so that the agent of guests, which is part of every guest's memory, stays small.

pub mod authorities;
pub mod certificate;
mod session;
pub mod verified_once;

use std::io::{self, Read, Write};

pub use session::{Advice, Session};

/// A socket without encryption.
pub trait Raw: Read + Write {}

impl<T: Read + Write> Raw for T {}

/// One end of an encrypted stream; the caller passes in the socket.
pub trait Encryption: Send {
    fn is_handshaking(&self) -> bool;

    /// The negotiated version of TLS, such as `1.3`; `None` before the negotiation.
    fn version(&self) -> Option<&'static str>;

    /// Whether a receive would return data without the socket.
    fn has_plaintext(&self) -> bool;

    /// Reads once from the socket, and decrypts complete records.
    ///
    /// # Errors
    /// Those of the socket; `UnexpectedEof` at its end; `InvalidData` if the other side aborts or cannot be verified.
    fn pull(&mut self, socket: &mut dyn Raw) -> io::Result<()>;

    /// Sends encrypted data; returns whether all of it has left.
    ///
    /// # Errors
    /// Those of the socket.
    fn flush(&mut self, socket: &mut dyn Raw) -> io::Result<bool>;

    /// Number of `bytes` accepted; the last of them may still wait for [`Self::flush`].
    ///
    /// # Errors
    /// Those of the socket.
    fn send(&mut self, socket: &mut dyn Raw, bytes: &[u8]) -> io::Result<usize>;

    /// Number of bytes received; 0 at the end.
    ///
    /// # Errors
    /// As [`Self::pull`], but for the end.
    fn receive(&mut self, socket: &mut dyn Raw, bytes: &mut [u8]) -> io::Result<usize>;
}
