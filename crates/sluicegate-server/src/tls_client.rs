//! TLS for connections that this process opens: the trusted certificate authorities and the client configuration.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use sluicegate::identify::token::KeysError;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// The certificate authorities of the operating system. The store is empty if the system has none.
pub(crate) fn system_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // A system may hold certificates that do not parse; the others are used.
    let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// A client that trusts `roots` and presents no certificate.
pub(crate) fn client_config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    // The provider is explicit, so that the result does not depend on the provider that the process has installed.
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}

/// The client for the key set of an issuer. It trusts the authorities in `ca_file` (PEM), or else those of the system, which
/// an encrypted URL requires.
pub(crate) fn key_set_client(is_encrypted: bool, ca_file: Option<&[u8]>) -> Result<ClientConfig, KeysError> {
    let roots = match ca_file {
        Some(pem) => authorities_in(pem)?,
        None if is_encrypted => required_system_authorities()?,
        None => RootCertStore::empty(),
    };
    client_config(roots).map_err(|error| KeysError::new(format!("TLS cannot be set up: {error}")))
}

fn authorities_in(pem: &[u8]) -> Result<RootCertStore, KeysError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| KeysError::new(format!("`ca_file` is not PEM: {error}")))?;
        let added = roots.add(certificate);
        added.map_err(|error| KeysError::new(format!("a certificate of `ca_file` cannot be used: {error}")))?;
    }
    if roots.is_empty() { Err(KeysError::new("`ca_file` holds no certificate in PEM")) } else { Ok(roots) }
}

fn required_system_authorities() -> Result<RootCertStore, KeysError> {
    let roots = system_authorities();
    if roots.is_empty() {
        return Err(KeysError::new(
            "the system trusts no certificate authority; name a file of them by `ca_file`",
        ));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_problem_of_a_ca_file() {
        for (pem, problem) in [
            (&b""[..], "holds no certificate"),
            (b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n", "is not PEM"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be used"),
        ] {
            let error = key_set_client(true, Some(pem)).expect_err(problem).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
