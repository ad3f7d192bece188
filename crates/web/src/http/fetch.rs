//! Fetches a document once, outside any measurement.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use bigiron_tls::Encryption;

use super::{Piece, ResponseReader, request};

/// A server that does not answer within this time is not there.
const LIMIT: Duration = Duration::from_secs(60);
/// Most bytes of a body.
const LARGEST: usize = 256 << 20;

/// A document as the server sent it.
pub struct Fetched {
    pub body: Vec<u8>,
    /// The version of TLS, such as `1.3`; `None` without encryption.
    pub tls_version: Option<&'static str>,
}

/// The document at `path`, through `session` if the server encrypts.
///
/// # Errors
/// The server is not there, cannot be verified, does not send a response of status 200 with a body, or sends too much.
pub fn document(
    address: SocketAddrV4,
    session: Option<Box<dyn Encryption>>,
    host: &str,
    path: &str,
) -> Result<Fetched> {
    let mut stream =
        TcpStream::connect_timeout(&address.into(), LIMIT).with_context(|| format!("No server at {address}"))?;
    stream.set_read_timeout(Some(LIMIT))?;
    match session {
        None => Ok(Fetched { body: ask(&mut stream, host, path)?, tls_version: None }),
        Some(mut session) => {
            while session.is_handshaking() {
                session.flush(&mut stream)?;
                session.pull(&mut stream)?;
            }
            let tls_version = session.version();
            Ok(Fetched { body: ask(&mut Encrypted { session, stream }, host, path)?, tls_version })
        }
    }
}

/// A stream that encrypts.
struct Encrypted {
    session: Box<dyn Encryption>,
    stream: TcpStream,
}

impl Read for Encrypted {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.session.receive(&mut self.stream, bytes)
    }
}

impl Write for Encrypted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.session.send(&mut self.stream, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.session.flush(&mut self.stream).map(drop)
    }
}

fn ask(stream: &mut (impl Read + Write), host: &str, path: &str) -> Result<Vec<u8>> {
    stream.write_all(&request(host, path, true))?;
    stream.flush()?;
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
