//! The channel to the control plane, with TLS from files that are read for each connection.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::envoy_ratelimit::xds::{XdsSettings, XdsTls};

/// The time for a connection, including name resolution and TLS.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// The interval of TCP probes on an idle connection. They find a peer that is gone.
const TCP_PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// The interval of HTTP/2 pings. Servers in Go close connections that send more than one in five minutes.
const PING_INTERVAL: Duration = Duration::from_secs(330);
/// The time for a response to a ping.
const PING_WITHIN: Duration = Duration::from_secs(20);
/// The largest file with a certificate or a key.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The reason why a stream ended or did not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    /// A file of a certificate or a key.
    #[error("{} cannot be read ({problem}); check the path and its permissions", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// No connection within [`CONNECT_WITHIN`].
    #[error("no connection within {CONNECT_WITHIN:?}; check the address of the control plane and the network")]
    Timeout,
    /// A message beyond the bound.
    #[error(
        "the configuration is larger than {bytes_max} bytes; send less, or raise XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"
    )]
    TooLarge {
        /// The bound.
        bytes_max: usize,
    },
    /// The control plane takes no requests.
    #[error("the control plane does not read its requests")]
    NotReading,
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

impl From<tonic::transport::Error> for ConnectionError {
    /// The error with its causes: only they tell why a certificate is refused.
    fn from(error: tonic::transport::Error) -> Self {
        Self::Other(with_causes(error.to_string(), error.source()))
    }
}

impl From<tonic::Status> for ConnectionError {
    fn from(status: tonic::Status) -> Self {
        Self::Other(with_causes(format!("{}: {}", status.code(), status.message()), status.source()))
    }
}

/// The longest text of an error in bytes; a part of it may come from the peer.
const ERROR_BYTES_MAX: usize = 1_000;

fn with_causes(mut text: String, mut cause: Option<&(dyn std::error::Error + 'static)>) -> String {
    while let Some(next) = cause {
        let line = next.to_string();
        if !text.ends_with(&line) {
            text = format!("{text}: {line}");
        }
        cause = next.source();
    }
    text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
    text
}

/// Connects.
pub(super) async fn open(settings: &XdsSettings) -> Result<Channel, ConnectionError> {
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{}", settings.server))?
        .connect_timeout(CONNECT_WITHIN)
        .tcp_keepalive(Some(TCP_PROBE_INTERVAL))
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_WITHIN);
    let endpoint = match &settings.tls {
        Some(tls) => endpoint.tls_config(tls_config(tls).await?)?,
        None => endpoint,
    };
    let connected = tokio::time::timeout(CONNECT_WITHIN, endpoint.connect()).await;
    Ok(connected.map_err(|_elapsed| ConnectionError::Timeout)??)
}

async fn tls_config(tls: &XdsTls) -> Result<ClientTlsConfig, ConnectionError> {
    let config = match &tls.authorities {
        Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path).await?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    let config = match &tls.client {
        Some((certificate, key)) => {
            config.identity(Identity::from_pem(read(certificate).await?, read(key).await?))
        }
        None => config,
    };
    Ok(match &tls.server_name {
        Some(name) => config.domain_name(name),
        None => config,
    })
}

async fn read(path: &Path) -> Result<Vec<u8>, ConnectionError> {
    let failed = |problem: String| ConnectionError::File { path: path.to_owned(), problem };
    let path = path.to_owned();
    let work = move || {
        if std::fs::metadata(&path)?.len() > FILE_BYTES_MAX {
            return Err(std::io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        std::fs::read(path)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(read) => read.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed("the server stops".to_owned())),
    }
}
