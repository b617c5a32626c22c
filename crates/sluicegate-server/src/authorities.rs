//! Whom to believe over TLS unless a file says otherwise: the authorities of this system.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};

/// The authorities of this system; none if it has none.
pub(crate) fn system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // A system may hold certificates that nobody can read; the others are good enough.
    let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// A client that believes these and shows no certificate of its own.
pub(crate) fn client_config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    // The provider is named, so that nothing depends on which one, if any, the process has installed.
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}
