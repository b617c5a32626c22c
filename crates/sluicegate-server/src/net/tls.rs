//! TLS on a listener: certificates from files, and new ones when the files change.
//!
//! TLS 1.2 and 1.3 by rustls. The files are looked at every [`LOOK_EVERY`]; when their contents have changed and are
//! good, connections that begin from then on see the new certificate, and those that are open live on with the old.
//! Contents that are no good, as when only one of two files has been replaced yet, change nothing and are logged once.
//!
//! No message shows anything of a key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, crypto::aws_lc_rs};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// How often the files are looked at. Certificates live for weeks; a look is two small reads.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Bytes of one file. A chain of a dozen large certificates is a tenth of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where the certificate of a listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The chain in PEM, the listener's own certificate first.
    pub(crate) certificate: PathBuf,
    /// Its private key in PEM.
    pub(crate) key: PathBuf,
}

/// What is spoken under TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// HTTP/2 or HTTP/1.1, as the client prefers.
    Http,
    /// Something that is not negotiated.
    Other,
}

/// Files that hold no usable certificate.
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
    Unusable { files: TlsFiles, source: rustls::Error },
}

/// The certificate in use.
#[derive(Debug)]
pub(crate) struct Tls(watch::Receiver<Arc<ServerConfig>>);

impl Tls {
    /// Reads the files, and goes on looking at them for as long as the result lives. Must be called on a runtime.
    pub(crate) fn open(files: TlsFiles, speaks: Speaks) -> Result<Self, TlsError> {
        let loaded = Loaded::read(&files, speaks)?;
        let (sender, receiver) = watch::channel(loaded.config);
        tokio::spawn(keep_fresh(files, speaks, loaded.digest, sender));
        Ok(Self(receiver))
    }

    /// What a connection that begins now is shown.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.borrow())
    }
}

/// Looks at the files until nobody wants to know any more.
async fn keep_fresh(
    files: TlsFiles,
    speaks: Speaks,
    mut seen: [u8; 32],
    sender: watch::Sender<Arc<ServerConfig>>,
) {
    let mut is_bad = false;
    loop {
        tokio::select! {
            () = sender.closed() => return,
            () = sleep(LOOK_EVERY) => {}
        }
        let look = files.clone();
        let Ok(outcome) = spawn_blocking(move || Loaded::changed(&look, speaks, seen)).await else {
            // The look panicked, or the runtime is going away; the next look tells.
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
                // Said once for as long as they are bad.
                if !is_bad {
                    tracing::warn!(%error, "the new certificate is no good; the one in use stays");
                }
                is_bad = true;
            }
        }
    }
}

/// The contents of the files, made into something usable.
struct Loaded {
    digest: [u8; 32],
    config: Arc<ServerConfig>,
}

impl Loaded {
    fn read(files: &TlsFiles, speaks: Speaks) -> Result<Self, TlsError> {
        Contents::read(files)?.usable(files, speaks)
    }

    /// The same if there is anything else in the files than what was `seen`.
    fn changed(files: &TlsFiles, speaks: Speaks, seen: [u8; 32]) -> Result<Option<Self>, TlsError> {
        let contents = Contents::read(files)?;
        if contents.digest == seen {
            return Ok(None);
        }
        contents.usable(files, speaks).map(Some)
    }
}

/// What is in both files, and a digest of it: a key is not kept to compare with.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    digest: [u8; 32],
}

impl Contents {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let certificate = read("certificate_file", &files.certificate)?;
        let key = read("key_file", &files.key)?;
        let digest = Sha256::new().chain_update(Sha256::digest(&certificate)).chain_update(Sha256::digest(&key));
        Ok(Self { certificate, key, digest: digest.finalize().into() })
    }

    fn usable(&self, files: &TlsFiles, speaks: Speaks) -> Result<Loaded, TlsError> {
        let config = configuration(files, &self.certificate, &self.key, speaks)?;
        Ok(Loaded { digest: self.digest, config: Arc::new(config) })
    }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { key, path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(TlsError::TooLong { key, path: path.to_owned() });
    }
    std::fs::read(path).map_err(unreadable)
}

fn configuration(files: &TlsFiles, chain: &[u8], key: &[u8], speaks: Speaks) -> Result<ServerConfig, TlsError> {
    let unusable = |source| TlsError::Unusable { files: files.clone(), source };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().unwrap_or_default();
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: files.certificate.clone() });
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::NoKey { path: files.key.clone() })?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(unusable)?;
    if speaks == Speaks::Http {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    Ok(config)
}

#[cfg(test)]
mod tests;
