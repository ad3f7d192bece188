//! One end of an encrypted stream with rustls.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, ClientConnection, ProtocolVersion};

use super::{Encryption, Raw};

/// What a user can do about a certificate that is refused, in the words of the workload's options.
pub struct Advice {
    /// Nobody who is trusted signed it.
    pub authorities: &'static str,
    /// It is for another host.
    pub name: &'static str,
    /// It is an authority's own; after "give the server one that an authority signed, ".
    pub is_authority: &'static str,
}

/// A client's end.
pub struct Session {
    connection: ClientConnection,
    /// Bytes that have been decrypted but not read.
    plaintext: usize,
    advice: &'static Advice,
}

impl Session {
    /// A session with the server called `name`.
    ///
    /// # Errors
    /// The configuration allows no session.
    pub fn new(config: Arc<ClientConfig>, name: ServerName<'static>, advice: &'static Advice) -> Result<Self, String> {
        let connection = ClientConnection::new(config, name).map_err(|e| e.to_string())?;
        Ok(Self { connection, plaintext: 0, advice })
    }
}

impl Encryption for Session {
    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn version(&self) -> Option<&'static str> {
        match self.connection.protocol_version()? {
            ProtocolVersion::TLSv1_2 => Some("1.2"),
            ProtocolVersion::TLSv1_3 => Some("1.3"),
            _ => None,
        }
    }

    fn has_plaintext(&self) -> bool {
        self.plaintext > 0
    }

    fn pull(&mut self, socket: &mut dyn Raw) -> io::Result<()> {
        if self.connection.read_tls(socket)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match self.connection.process_new_packets() {
            Ok(state) => {
                self.plaintext = state.plaintext_bytes_to_read();
                Ok(())
            }
            Err(error) => {
                // Tells the other side why, if it still listens.
                let _ = self.flush(socket);
                Err(io::Error::new(io::ErrorKind::InvalidData, explain(&error, self.advice)))
            }
        }
    }

    fn flush(&mut self, socket: &mut dyn Raw) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    fn send(&mut self, socket: &mut dyn Raw, bytes: &[u8]) -> io::Result<usize> {
        if !self.flush(socket)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = self.connection.writer().write(bytes)?;
        self.flush(socket)?;
        Ok(count)
    }

    fn receive(&mut self, socket: &mut dyn Raw, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(bytes) {
                Ok(count) => {
                    self.plaintext = self.plaintext.saturating_sub(count);
                    return Ok(count);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            match self.pull(socket) {
                Ok(()) => {}
                // Servers that die send no closing message.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(e) => return Err(e),
            }
        }
    }
}

fn explain(error: &rustls::Error, advice: &Advice) -> String {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    let Advice { authorities, name, is_authority } = advice;
    if let rustls::Error::InvalidMessage(_) = error {
        return format!("TLS: {error}; does the server speak TLS on this port?");
    }
    let rustls::Error::InvalidCertificate(why) = error else { return format!("TLS: {error}") };
    let advice = match why {
        // An error of rustls's own library, which has no name here.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            return format!(
                "TLS: the server's certificate is one of an authority (`openssl req -x509` makes such a one); give the server one that an authority \
                 signed, {is_authority}"
            );
        }
        UnknownIssuer | BadSignature => *authorities,
        NotValidForName | NotValidForNameContext { .. } => *name,
        Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. } => "is this machine's clock right?",
        _ => return format!("TLS: {error}"),
    };
    format!("TLS: {error}; {advice}")
}
