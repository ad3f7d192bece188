//! Encryption of a connection (`sslmode`), with rustls.
//!
//! Invariant: `verify-ca` and `verify-full` send nothing to a server whose certificate was not signed by a trusted authority;
//! `require` encrypts without verification, as in libpq.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::encryption::{Encryption, Raw};
use super::url::{Host, SslMode, Url};

/// Where distributions keep the authorities' certificates: Debian and derivatives, Fedora and derivatives, Alpine and openSUSE.
const SYSTEM_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// One end of an encrypted stream; the caller passes in the socket.
pub(super) struct Tls {
    connection: ClientConnection,
    /// Bytes that have been decrypted but not read.
    plaintext: usize,
}

impl Tls {
    /// # Errors
    /// Why this URL's server cannot be verified: no certificates of authorities, or a host that is not a name.
    pub(super) fn new(url: &Url) -> Result<Tls, String> {
        let Host::Tcp(host) = &url.host else { return Err("encryption is for TCP".to_owned()) };
        let name = ServerName::try_from(host.clone()).map_err(|_| format!("`{host}` is not a host's name"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mode = match url.sslmode {
            // As in libpq: naming authorities means verifying with them.
            SslMode::Require if url.sslrootcert.is_some() => SslMode::VerifyCa,
            mode => mode,
        };
        let roots = match (mode, &url.sslrootcert) {
            (SslMode::Disable | SslMode::Require, _) => None,
            (_, Some(file)) => Some(authorities(file)?),
            (_, None) => Some(system_authorities()?),
        };
        let inner = match roots {
            None => None,
            Some(roots) => Some(
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                    .build()
                    .map_err(|e| e.to_string())?,
            ),
        };
        let verifier = Verifier { inner, any_name: mode != SslMode::VerifyFull, provider: Arc::clone(&provider) };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        let connection = ClientConnection::new(Arc::new(config), name).map_err(|e| e.to_string())?;
        Ok(Tls { connection, plaintext: 0 })
    }
}

impl Encryption for Tls {
    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
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
                Err(io::Error::new(io::ErrorKind::InvalidData, explain(&error)))
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

fn explain(error: &rustls::Error) -> String {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    // An error of rustls's own library, which has no name here.
    if let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error
        && other.to_string().contains("CaUsedAsEndEntity")
    {
        return "TLS: the server's certificate is one of an authority (`openssl req -x509` makes such a one); give the server one that \
                an authority signed, or use sslmode=require, which encrypts without checking it"
            .to_owned();
    }
    let advice = match error {
        rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature) => {
            "; sslrootcert=FILE in the URL names the authorities to trust"
        }
        rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            "; use the name that the certificate is for, or sslmode=verify-ca"
        }
        rustls::Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
        ) => "; is this machine's clock right?",
        _ => "",
    };
    format!("TLS: {error}{advice}")
}

fn authorities(file: &Path) -> Result<RootCertStore, String> {
    let wrong = |what: &dyn std::fmt::Display| format!("cannot read certificates from {}: {what}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|e| wrong(&e))? {
        roots.add(certificate.map_err(|e| wrong(&e))?).map_err(|e| wrong(&e))?;
    }
    if roots.is_empty() { Err(wrong(&"there are none in it")) } else { Ok(roots) }
}

/// The system's authorities; unreadable ones are ignored.
fn system_authorities() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(certificates) = SYSTEM_BUNDLES.iter().find_map(|file| CertificateDer::pem_file_iter(file).ok()) {
        roots.add_parsable_certificates(certificates.flatten());
    }
    if roots.is_empty() {
        return Err(
            "this system has no certificates of authorities; name some with sslrootcert=FILE in the URL".to_owned()
        );
    }
    Ok(roots)
}

#[derive(Debug)]
struct Verifier {
    /// `None` accepts any certificate.
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// The certificate may be for another host.
    any_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is checked last, after the signatures.
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
                if self.any_name =>
            {
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
