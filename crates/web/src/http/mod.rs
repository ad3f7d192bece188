//! HTTP/1.1 as a client speaks it: requests as bytes, responses piece by piece.

pub mod fetch;
pub mod response;

pub use response::{Malformed, Piece, ResponseReader};

/// A request for `path` of the server `host`; with `close`, the last one of its connection.
pub fn request(host: &str, path: &str, close: bool) -> Vec<u8> {
    let close = if close { "Connection: close\r\n" } else { "" };
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{close}\r\n").into_bytes()
}
