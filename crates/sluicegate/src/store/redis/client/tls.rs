//! TLS: trusted authorities and the client certificate. Server certificates are always verified.

use crate::store::redis::client::options::{Certificates, OptionsError};
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A TLS connector. It is created once: loading the system's authorities takes time, and session resumption needs
/// the same connector.
pub(crate) fn connector(certificates: &Certificates) -> Result<TlsConnector, OptionsError> {
    let roots = match &certificates.authorities {
        Some(pem) => given_roots(pem)?,
        None => system_roots()?,
    };
    // The provider is explicit, so that the process-wide default does not matter.
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| problem(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots);
    let configuration = match &certificates.client {
        Some((chain, key)) => {
            let chain = chain_of(chain, "client certificate")?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| problem("the client key is not a private key in PEM"))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| problem(format!("the client certificate and its key do not match: {error}")))?
        }
        None => builder.with_no_client_auth(),
    };
    Ok(TlsConnector::from(Arc::new(configuration)))
}

fn problem(message: impl Into<String>) -> OptionsError {
    OptionsError::new(message)
}

fn chain_of(pem: &[u8], name: &str) -> Result<Vec<CertificateDer<'static>>, OptionsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| problem(format!("the {name} is not PEM: {error}")))?;
    if chain.is_empty() { Err(problem(format!("the {name} holds no certificate in PEM"))) } else { Ok(chain) }
}

fn given_roots(pem: &[u8]) -> Result<RootCertStore, OptionsError> {
    let mut roots = RootCertStore::empty();
    for certificate in chain_of(pem, "file of certificate authorities")? {
        let added = roots.add(certificate);
        added.map_err(|error| problem(format!("a certificate authority cannot be used: {error}")))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, OptionsError> {
    let mut roots = RootCertStore::empty();
    // A system may have unreadable certificates; the others suffice.
    let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(problem("the system trusts no certificate authority; name a file of them for the store"));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_certificates_are_named() {
        let check = |certificates: Certificates, part: &str| {
            let error = connector(&certificates).err().expect("unusable");
            assert!(error.message.contains(part), "{error}");
        };
        let authorities = |pem: &[u8]| Certificates { authorities: Some(pem.to_vec()), client: None };
        check(authorities(b""), "holds no certificate");
        check(authorities(b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n"), "is not PEM");
        check(authorities(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "cannot be used");
    }
}
