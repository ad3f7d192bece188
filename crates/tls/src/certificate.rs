//! A certificate for a private server.

use rcgen::{CertificateParams, DnType, KeyPair};

/// A certificate with its key, each as PEM. It is also the authority that its client trusts.
pub struct Certificate {
    pub certificate: String,
    pub key: String,
}

/// A certificate for these names or addresses, signed with its own new key on the curve P-256.
///
/// # Errors
/// One of them is no name.
pub fn self_signed(names: &[&str]) -> Result<Certificate, String> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut parameters = CertificateParams::new(names).map_err(|e| e.to_string())?;
    parameters.distinguished_name.push(DnType::CommonName, "bigiron");
    let key = KeyPair::generate().map_err(|e| e.to_string())?;
    let signed = parameters.self_signed(&key).map_err(|e| e.to_string())?;
    Ok(Certificate { certificate: signed.pem(), key: key.serialize_pem() })
}
