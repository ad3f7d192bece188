//! Checks a server's certificate once, for clients that connect again and again.
//!
//! Invariant: a certificate is accepted only if rustls has accepted the same bytes for the same name before; whether the server has its key is checked
//! in every handshake.

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// What has been accepted.
#[derive(Debug)]
struct Accepted {
    chain: Vec<CertificateDer<'static>>,
    name: ServerName<'static>,
}

/// A verifier with the authorities of a root store.
#[derive(Debug)]
pub struct VerifiedOnce {
    verifier: Arc<WebPkiServerVerifier>,
    accepted: OnceLock<Accepted>,
}

impl VerifiedOnce {
    /// # Errors
    /// There are no authorities.
    pub fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self { verifier: verifier.map_err(|e| e.to_string())?, accepted: OnceLock::new() })
    }
}

impl ServerCertVerifier for VerifiedOnce {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = || [certificate].into_iter().chain(others);
        if self.accepted.get().is_some_and(|known| known.chain.iter().eq(chain()) && known.name == *name) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.verifier.verify_server_cert(certificate, others, name, ocsp, now)?;
        // Of several, as servers in turn have, only the first is remembered.
        self.accepted.get_or_init(|| Accepted {
            chain: chain().map(|certificate| certificate.clone().into_owned()).collect(),
            name: name.to_owned(),
        });
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::certificate::self_signed;

    #[test]
    fn only_what_was_accepted_before_is_accepted_again() {
        let of =
            |name: &str| CertificateDer::from_pem_slice(self_signed(&[name]).unwrap().certificate.as_bytes()).unwrap();
        let (right, wrong) = (of("a.test"), of("a.test"));
        let mut roots = RootCertStore::empty();
        roots.add(right.clone()).unwrap();
        let verifier = VerifiedOnce::new(roots, Arc::new(default_provider())).unwrap();
        let (name, other) = (ServerName::try_from("a.test").unwrap(), ServerName::try_from("b.test").unwrap());
        let verify =
            |certificate: &CertificateDer<'_>, others: &[CertificateDer<'_>], name: &ServerName<'_>, now: UnixTime| {
                verifier.verify_server_cert(certificate, others, name, &[], now).is_ok()
            };
        let long_ago = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1));
        assert!(!verify(&right, &[], &name, long_ago), "it is not valid yet");
        assert!(!verify(&wrong, &[], &name, UnixTime::now()));
        assert!(verify(&right, &[], &name, UnixTime::now()));
        // Its time is not looked at again.
        assert!(verify(&right, &[], &name, long_ago));
        assert!(!verify(&right, std::slice::from_ref(&wrong), &name, long_ago));
        assert!(!verify(&wrong, &[], &name, UnixTime::now()) && !verify(&right, &[], &other, UnixTime::now()));
    }
}
