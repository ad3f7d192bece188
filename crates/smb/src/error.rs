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
}
