//! TLS of a listener, with certificates from files that are reloaded when they change.
//!
//! rustls provides TLS 1.2 and 1.3. The files are read every [`LOOK_EVERY`]. If their contents have changed and are valid,
//! new connections get the new certificate, and open connections keep the old one. Invalid contents change nothing and are
//! logged once; this happens while only one of two files has been replaced.
//!
//! A listener with certificate authorities for clients verifies the certificates that clients present. Whether a client may
//! have none is a setting: an optional certificate refuses no client, and lets a fleet change over without a gap.
//!
//! No message contains any part of a key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig, crypto::aws_lc_rs};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::config::listeners::{ClientAuthorities, TlsFiles};

/// The interval between two looks at the files. Certificates live for weeks, and a look is two small reads.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The maximum length of a file. A chain of a dozen large certificates is a tenth of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The protocol negotiation (ALPN) of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alpn {
    /// HTTP/2 or HTTP/1.1, as the client prefers.
    Http,
    /// No negotiation.
    Off,
}

/// Files without a usable certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{key} {}: {source}; name a file that the server may read", path.display())]
    Unreadable { key: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{key} {}: longer than {FILE_BYTES_MAX} bytes, which no certificate or key is", path.display())]
    TooLong { key: &'static str, path: PathBuf },
    #[error("certificate_file {}: no certificate in it; write the chain in PEM, -----BEGIN CERTIFICATE-----",
        path.display())]
    NoCertificate { path: PathBuf },
    #[error("key_file {}: no private key in it; write it in PEM, -----BEGIN PRIVATE KEY-----, without a password",
        path.display())]
    NoKey { path: PathBuf },
    #[error("certificate_file {} and key_file {}: {source}; write a certificate and its own key",
        files.certificate.display(), files.key.display())]
    Unusable { files: Box<TlsFiles>, source: rustls::Error },
    #[error("the authorities of clients in {} cannot be used ({problem}); write their certificates in PEM", path.display())]
    Authorities { path: PathBuf, problem: String },
}

/// The certificate in use.
#[derive(Debug)]
pub(crate) struct ListenerTls(watch::Receiver<Arc<ServerConfig>>);

impl ListenerTls {
    /// Reads the files, and reloads them for as long as the result lives. Must be called on a runtime.
    pub(crate) fn open(files: TlsFiles, alpn: Alpn) -> Result<Self, TlsError> {
        let loaded = Loaded::read(&files, alpn)?;
        let (sender, receiver) = watch::channel(loaded.config);
        tokio::spawn(keep_fresh(files, alpn, loaded.digest, sender));
        Ok(Self(receiver))
    }

    /// The configuration for a new connection.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.borrow())
    }
}

/// Reloads the files until all receivers are dropped.
async fn keep_fresh(files: TlsFiles, alpn: Alpn, mut seen: [u8; 32], sender: watch::Sender<Arc<ServerConfig>>) {
    let mut is_bad = false;
    loop {
        tokio::select! {
            () = sender.closed() => return,
            () = sleep(LOOK_EVERY) => {}
        }
        let look = files.clone();
        let Ok(outcome) = spawn_blocking(move || Loaded::changed(&look, alpn, seen)).await else {
            // The look panicked, or the runtime is shutting down. The next look shows which.
            continue;
        };
        match outcome {
            Ok(None) => {}
            Ok(Some(loaded)) => {
                seen = loaded.digest;
                sender.send_replace(loaded.config);
                tracing::info!(certificate_file = %files.certificate.display(), "a new certificate is in use");
                is_bad = false;
            }
            Err(error) => {
                // Logged once for as long as the files are invalid.
                if !is_bad {
                    tracing::warn!(%error, "the new certificate is unusable; the current one stays in use");
                }
                is_bad = true;
            }
        }
    }
}

/// A usable configuration and the digest of its files.
struct Loaded {
    digest: [u8; 32],
    config: Arc<ServerConfig>,
}

impl Loaded {
    fn read(files: &TlsFiles, alpn: Alpn) -> Result<Self, TlsError> {
        Contents::read(files)?.usable(files, alpn)
    }

    /// Reads the files again; `None` if their digest is `seen`.
    fn changed(files: &TlsFiles, alpn: Alpn, seen: [u8; 32]) -> Result<Option<Self>, TlsError> {
        let contents = Contents::read(files)?;
        if contents.digest == seen {
            return Ok(None);
        }
        contents.usable(files, alpn).map(Some)
    }
}

/// The contents of all files and their digest. The digest is kept for comparison instead of the key.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    /// The authorities of clients.
    clients: Option<Vec<u8>>,
    digest: [u8; 32],
}

impl Contents {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let certificate = read("certificate_file", &files.certificate)?;
        let key = read("key_file", &files.key)?;
        let clients = files.clients.as_ref().map(|clients| read("the authorities of clients", &clients.file));
        let clients = clients.transpose()?;
        let texts = [Some(&certificate), Some(&key), clients.as_ref()];
        let digest =
            texts.into_iter().flatten().fold(Sha256::new(), |all, text| all.chain_update(Sha256::digest(text)));
        Ok(Self { certificate, key, clients, digest: digest.finalize().into() })
    }

    fn usable(&self, files: &TlsFiles, alpn: Alpn) -> Result<Loaded, TlsError> {
        let config = self.configuration(files, alpn)?;
        Ok(Loaded { digest: self.digest, config: Arc::new(config) })
    }

    fn configuration(&self, files: &TlsFiles, alpn: Alpn) -> Result<ServerConfig, TlsError> {
        let unusable = |source| TlsError::Unusable { files: Box::new(files.clone()), source };
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(&self.certificate).collect::<Result<_, _>>().unwrap_or_default();
        if chain.is_empty() {
            return Err(TlsError::NoCertificate { path: files.certificate.clone() });
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key);
        let key = key.map_err(|_| TlsError::NoKey { path: files.key.clone() })?;
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let builder = match files.clients.as_ref().zip(self.clients.as_ref()) {
            Some((clients, pem)) => builder.with_client_cert_verifier(verifier(clients, pem)?),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
        if alpn == Alpn::Http {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        Ok(config)
    }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { key, path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(TlsError::TooLong { key, path: path.to_owned() });
    }
    std::fs::read(path).map_err(unreadable)
}

/// Verifies the certificates of clients by these authorities.
fn verifier(clients: &ClientAuthorities, pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let unusable = |problem: String| TlsError::Authorities { path: clients.file.clone(), problem };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if clients.is_required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| unusable(error.to_string()))
}

#[cfg(test)]
mod tests;
