//! What encrypts the driver's connections. The agent of guests has none, so that guests of jobs without encryption do not carry it; a guest whose job
//! needs it gets the whole executable instead (`Configured::encrypts`).
//!
//! Invariant: where encryption is not installed, a job that must be encrypted fails; nothing is sent in plain text instead.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::crypto::ring::{cipher_suite, default_provider, kx_group};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use bigiron_service::httpd::{Tls, TlsVersion};
use bigiron_tls::certificate::{Certificate, self_signed};
use bigiron_tls::verified_once::VerifiedOnce;
use bigiron_tls::{Advice, Encryption, Session, authorities};

const ADVICE: Advice = Advice {
    authorities: "`web.authorities` names a file with the authorities to trust",
    name: "use the name that the certificate is for in `web.url`",
    is_authority: "and name that authority with `web.authorities`",
};
/// What a private server and its client use, for the record.
pub const CIPHER: &str = "AES-256-GCM, X25519, certificate on P-256";

/// Whom a client trusts.
pub enum Trusted {
    /// This certificate, as PEM.
    Own(String),
    /// The authorities of a file.
    File(PathBuf),
    /// The system's authorities.
    System,
}

/// What a client asks for.
pub struct Terms {
    /// `None`: the newest that both sides know.
    pub version: Option<TlsVersion>,
    pub trusted: Trusted,
    /// The name or address that the certificate must be for.
    pub host: String,
}

/// Begins encrypted connections to one server.
pub trait Encryptor: Send + Sync {
    /// # Errors
    /// No session can be begun.
    fn begin(&self) -> Result<Box<dyn Encryption>, String>;
}

struct Installed {
    encryptor: fn(Terms) -> Result<Box<dyn Encryptor>, String>,
    certificate: fn(&[&str]) -> Result<Certificate, String>,
}

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// Lets connections of this process be encrypted.
pub fn install() {
    // A second call installs the same.
    let _ = INSTALLED
        .set(Installed { encryptor: |terms| Ok(Box::new(Configuration::new(terms)?)), certificate: self_signed });
}

fn installed() -> Result<&'static Installed, String> {
    #[cfg(test)]
    install();
    INSTALLED.get().ok_or_else(|| "this executable cannot encrypt connections".to_owned())
}

/// What begins connections on these terms.
///
/// # Errors
/// Authorities that cannot be read, or a host that is not a name.
pub fn encryptor(terms: Terms) -> Result<Box<dyn Encryptor>, String> {
    (installed()?.encryptor)(terms)
}

/// Encryption of a private server with a new certificate for `host`.
///
/// # Errors
/// This executable cannot encrypt.
pub fn of_server(version: TlsVersion, host: &str) -> Result<Tls, String> {
    let Certificate { certificate, key } = (installed()?.certificate)(&[host])?;
    Ok(Tls { version, certificate, key })
}

struct Configuration {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Configuration {
    fn new(Terms { version, trusted, host }: Terms) -> Result<Self, String> {
        let name = ServerName::try_from(host.clone()).map_err(|_| format!("`{host}` is not a host's name"))?;
        let mut provider = default_provider();
        let roots = match trusted {
            Trusted::File(file) => authorities::of_file(&file)?,
            Trusted::System => authorities::of_system("`web.authorities`")?,
            Trusted::Own(certificate) => {
                // The same work in every trial, whatever a server prefers.
                provider.cipher_suites =
                    vec![cipher_suite::TLS13_AES_256_GCM_SHA384, cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384];
                // The second one is for the certificate: TLS 1.2 has one list for both.
                provider.kx_groups = vec![kx_group::X25519, kx_group::SECP256R1];
                let mut roots = RootCertStore::empty();
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|e| e.to_string())?;
                roots.add(certificate).map_err(|e| e.to_string())?;
                roots
            }
        };
        let versions: &[_] = match version {
            None => rustls::ALL_VERSIONS,
            Some(TlsVersion::V12) => &[&rustls::version::TLS12],
            Some(TlsVersion::V13) => &[&rustls::version::TLS13],
        };
        let provider = Arc::new(provider);
        let verifier = VerifiedOnce::new(roots, Arc::clone(&provider))?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|e| e.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), name })
    }
}

impl Encryptor for Configuration {
    fn begin(&self) -> Result<Box<dyn Encryption>, String> {
        Ok(Box::new(Session::new(Arc::clone(&self.config), self.name.clone(), &ADVICE)?))
    }
}
