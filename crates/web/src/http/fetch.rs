//! Fetches a document once, outside any measurement.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::{Piece, ResponseReader, request};

/// A server that does not answer within this time is not there.
const LIMIT: Duration = Duration::from_secs(60);
/// Most bytes of a body.
const LARGEST: usize = 256 << 20;

/// The body of `path`.
///
/// # Errors
/// The server is not there, does not send a response of status 200 with a body, or sends too much.
pub fn body(address: SocketAddrV4, host: &str, path: &str) -> Result<Vec<u8>> {
    let mut stream =
        TcpStream::connect_timeout(&address.into(), LIMIT).with_context(|| format!("No server at {address}"))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(&request(host, path, true))?;
    let (mut reader, mut body, mut buffer) = (ResponseReader::default(), Vec::new(), vec![0; 64 << 10]);
    loop {
        let length = stream.read(&mut buffer).context("The server does not answer")?;
        ensure!(length > 0, "The server closed the connection before the end of its response");
        let mut input = &buffer[..length];
        loop {
            match reader.next(&mut input)? {
                Piece::Head(head) if head.status != 200 => bail!("The server answers with status {}", head.status),
                Piece::Head(_) => {}
                Piece::Body(part) => body.extend_from_slice(part),
                Piece::End if body.is_empty() => bail!("The document is empty"),
                Piece::End => return Ok(body),
                Piece::More => break,
            }
        }
        ensure!(body.len() <= LARGEST, "The document is larger than {} MiB", LARGEST >> 20);
    }
}
