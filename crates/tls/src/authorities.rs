//! The authorities whose signatures a client trusts.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Where distributions keep the authorities' certificates: Debian and derivatives, Fedora and derivatives, Alpine and openSUSE.
const SYSTEM_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// Those of a file.
///
/// # Errors
/// It cannot be read, or there are none in it.
pub fn of_file(file: &Path) -> Result<RootCertStore, String> {
    let wrong = |what: &dyn std::fmt::Display| format!("cannot read certificates from {}: {what}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|e| wrong(&e))? {
        roots.add(certificate.map_err(|e| wrong(&e))?).map_err(|e| wrong(&e))?;
    }
    if roots.is_empty() { Err(wrong(&"there are none in it")) } else { Ok(roots) }
}

/// The system's; unreadable ones are ignored. `instead` says how to name others.
///
/// # Errors
/// There are none.
pub fn of_system(instead: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(certificates) = SYSTEM_BUNDLES.iter().find_map(|file| CertificateDer::pem_file_iter(file).ok()) {
        roots.add_parsable_certificates(certificates.flatten());
    }
    if roots.is_empty() {
        return Err(format!("this system has no certificates of authorities; name some with {instead}"));
    }
    Ok(roots)
}
