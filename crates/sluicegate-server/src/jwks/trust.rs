//! Whom to believe that a server is the issuer's.

use sluicegate::identify::token::KeysError;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::JwksUrl;
use crate::authorities;

/// TLS for this URL, by the given authorities in PEM, or else those of the system.
pub(super) fn client_config(url: &JwksUrl, authorities: Option<&[u8]>) -> Result<ClientConfig, KeysError> {
    let roots = match authorities {
        Some(pem) => given(pem)?,
        None if url.is_encrypted() => system()?,
        None => RootCertStore::empty(),
    };
    let failed = |error| KeysError::new(format!("TLS cannot be set up: {error}"));
    authorities::client_config(roots).map_err(failed)
}

fn given(pem: &[u8]) -> Result<RootCertStore, KeysError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| KeysError::new(format!("`ca_file` is not PEM: {error}")))?;
        let added = roots.add(certificate);
        added.map_err(|error| KeysError::new(format!("a certificate of `ca_file` cannot be used: {error}")))?;
    }
    if roots.is_empty() { Err(KeysError::new("`ca_file` holds no certificate in PEM")) } else { Ok(roots) }
}

fn system() -> Result<RootCertStore, KeysError> {
    let roots = authorities::system();
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
    fn unusable_authorities_are_named() {
        let url = JwksUrl::parse("https://id.example/").expect("good");
        for (pem, problem) in [
            (&b""[..], "holds no certificate"),
            (b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n", "is not PEM"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be used"),
        ] {
            let error = client_config(&url, Some(pem)).expect_err(problem).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
