//! Encryption of a connection (`sslmode`), with rustls.
//!
//! Invariant: `verify-ca` and `verify-full` send nothing to a server whose certificate was not signed by a trusted authority;
//! `require` encrypts without verification, as in libpq.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};

use bigiron_tls::{Advice, Session, authorities};

use super::url::{Host, SslMode, Url};

/// The encryption that a URL asks for.
///
/// # Errors
/// Why this URL's server cannot be verified: no certificates of authorities, or a host that is not a name.
pub(super) fn begin(url: &Url) -> Result<Session, String> {
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
        (_, Some(file)) => Some(authorities::of_file(file)?),
        (_, None) => Some(authorities::of_system("sslrootcert=FILE in the URL")?),
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
    Session::new(Arc::new(config), name, &ADVICE)
}

const ADVICE: Advice = Advice {
    authorities: "sslrootcert=FILE in the URL names the authorities to trust",
    name: "use the name that the certificate is for, or sslmode=verify-ca",
    is_authority: "or use sslmode=require, which encrypts without checking it",
};

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
