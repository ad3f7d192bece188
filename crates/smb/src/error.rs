//! What can go wrong between client and server.

use std::io;

use thiserror::Error;

use crate::status::NtStatus;

#[derive(Debug, Error)]
pub enum SmbError {
    /// The server's answer to a request.
    #[error("The server answers with {0}")]
    Status(NtStatus),
    /// The connection broke.
    #[error("The connection to the server broke: {0}")]
    Io(#[from] io::Error),
    /// A response that is none: cut off, of another request, or with a wrong signature.
    #[error("The server's response is not valid: {0}")]
    Response(&'static str),
    /// The server does not offer several connections for a session.
    #[error("The server offers no multichannel")]
    NoMultichannel,
    /// The server refuses a further connection of the session, or it breaks.
    #[error("Channel {number} of {of} cannot be bound to the session: {cause}")]
    Channel { number: usize, of: usize, cause: Box<SmbError> },
}
