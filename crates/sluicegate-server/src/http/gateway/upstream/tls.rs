//! TLS to upstreams: trusted authorities, the client certificate, and ALPN. Upstreams are always verified.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::dial::Protocol;
use crate::config::gateway::TlsSettings;
use crate::tls_client;

/// The ALPN names of the protocols.
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// The protocols that a connection offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only.
    Http2,
    /// Whichever the upstream prefers.
    Either,
}

/// Encrypts connections to one upstream.
pub(super) struct Encryption {
    configuration: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encryption").field("name", &self.name).finish_non_exhaustive()
    }
}

/// TLS that cannot be set up as configured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsFault {
    /// A file cannot be read.
    #[error("`{key}`: cannot read {path}: {source}; check the path and its permissions", path = path.display())]
    Unreadable {
        /// The key in the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file has invalid contents.
    #[error("`{key}`: {path} {problem}", path = path.display())]
    Unusable {
        /// The key in the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The error and the remedy.
        problem: String,
    },
    /// No certificate authority is trusted.
    #[error("the system trusts no certificate authority; name a file of them as `tls.ca_file` of the route")]
    NoAuthorities,
    /// The name cannot be verified.
    #[error("`{0}` is not a name that a certificate can have; write one as `tls.server_name` of the route")]
    Name(Box<str>),
    /// The TLS library rejects the settings.
    #[error("encryption cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}

impl Encryption {
    /// TLS for an upstream with the name `host`.
    pub(super) fn new(settings: &TlsSettings, host: &str) -> Result<Self, TlsFault> {
        let roots = match &settings.ca_file {
            Some(path) => given_roots(path)?,
            None => system_roots()?,
        };
        // The provider is explicit, so that the result does not depend on the provider that the process has
        // installed.
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let configuration = match &settings.client_files {
            Some((chain, key)) => {
                builder.with_client_auth_cert(chain_of("tls.certificate_file", chain)?, key_of(key)?)?
            }
            None => builder.with_no_client_auth(),
        };
        let name = settings.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(|_| TlsFault::Name(name.into()))?;
        Ok(Self { configuration: Arc::new(configuration), name })
    }

    /// Encrypts a connection, and returns the negotiated protocol.
    pub(super) async fn encrypt(
        &self,
        stream: TcpStream,
        offer: Offer,
    ) -> io::Result<(TlsStream<TcpStream>, Protocol)> {
        let protocols: &[&[u8]] = match offer {
            Offer::Http1 => &[HTTP1],
            Offer::Http2 => &[HTTP2],
            Offer::Either => &[HTTP2, HTTP1],
        };
        let protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let connector = TlsConnector::from(Arc::clone(&self.configuration));
        let stream = connector.with_alpn(protocols).connect(self.name.clone(), stream).await;
        let stream = stream.map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))?;
        let agreed = stream.get_ref().1.alpn_protocol();
        match (agreed, offer) {
            (Some(HTTP2), _) => Ok((stream, Protocol::Http2)),
            (_, Offer::Http2) => Err(io::Error::other("TLS: the upstream does not speak HTTP/2")),
            _ => Ok((stream, Protocol::Http1)),
        }
    }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsFault> {
    std::fs::read(path).map_err(|source| TlsFault::Unreadable { key, path: path.into(), source })
}

fn unusable(key: &'static str, path: &Path, problem: impl Into<String>) -> TlsFault {
    TlsFault::Unusable { key, path: path.into(), problem: problem.into() }
}

fn chain_of(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(key, path)?).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(unusable(key, path, "holds no certificate; write one in PEM")),
        Err(error) => Err(unusable(key, path, format!("is not PEM: {error}"))),
    }
}

fn key_of(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFault> {
    let key = "tls.key_file";
    PrivateKeyDer::from_pem_slice(&read(key, path)?)
        .map_err(|_| unusable(key, path, "holds no private key in PEM"))
}

fn given_roots(path: &Path) -> Result<RootCertStore, TlsFault> {
    let key = "tls.ca_file";
    let mut roots = RootCertStore::empty();
    for certificate in chain_of(key, path)? {
        let added = roots.add(certificate);
        added.map_err(|error| unusable(key, path, format!("has an authority that cannot be used: {error}")))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsFault> {
    let roots = tls_client::system_authorities();
    if roots.is_empty() { Err(TlsFault::NoAuthorities) } else { Ok(roots) }
}
