//! A client for SMB 2.1, 3.0.2 and 3.1.1 (MS-SMB2): one session with one share, one request at a time, on up to eight connections
//! (multichannel).
//!
//! It does what a load needs: it opens, reads, writes, flushes, locks, renames, removes and lists, signs (HMAC-SHA256, AES-CMAC, AES-GMAC) and encrypts
//! (AES-128-GCM), and it gives back oplocks. It knows no named pipes, no leases, no DFS and no compounds.
//!
//! Invariant: a response is used only if its signature or its encryption, where the session has one, is right, and each length in it is checked.

mod channel;
mod connection;
mod crypto;
mod error;
mod frame;
mod inbox;
mod ntlm;
mod open;
mod setup;
mod spnego;
mod status;
#[cfg(test)]
mod tests;
mod unicode;

pub use channel::MOST_CHANNELS;
pub use connection::{Account, Client, Dialect, Protection, Terms};
pub use error::SmbError;
pub use ntlm::nt_hash;
pub use open::{DirectoryEntry, FileId, Open, OpenKind};
pub use status::NtStatus;
