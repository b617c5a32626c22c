//! The admission of a connection, between accept and its first request: client address, connection cap and TLS.
//!
//! The steps, each within [`ConnectionAdmission::STEP`], are in this order:
//!
//! 1. The PROXY header, if the peer is on the list of proxies that must send one. From then on the client that the header
//!    names is the peer. The header of a peer that is not on the list is not read.
//! 2. The cap on connections per address ([`super::per_address`]).
//! 3. The TLS handshake, if the listener has certificates ([`super::tls`]).
//!
//! A connection that fails a step is closed without a response, because its protocol is not known yet.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use sluicegate::identify::address::TrustedProxies;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::per_address::{AddressPermit, ConnectionCap};
use super::proxy_header::{self, FIXED_BYTES, InvalidProxyHeader, ProxiedClient, REST_BYTES_MAX};
use super::tls::ListenerTls;

/// The byte stream of a connection, plain or inside TLS.
pub(crate) type ClientStream = Either<TcpStream, TlsStream<TcpStream>>;

/// The admission steps of a listener's connections.
#[derive(Debug)]
pub(crate) struct ConnectionAdmission {
    proxies: TrustedProxies,
    cap: Arc<ConnectionCap>,
    tls: Option<ListenerTls>,
}

/// A connection that passed all steps.
pub(super) struct AdmittedConnection {
    pub(super) io: ClientStream,
    pub(super) client: SocketAddr,
    pub(super) address_permit: AddressPermit,
}

/// The step that a connection failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdmissionError {
    #[error("the address has too many connections")]
    TooManyConnections,
    #[error(transparent)]
    Header(#[from] InvalidProxyHeader),
    #[error("the peer took too long over its {0}")]
    Slow(&'static str),
    #[error("the peer broke off: {0}")]
    Broken(#[from] std::io::Error),
}

impl ConnectionAdmission {
    /// The deadline of one step. A header is a single packet, a handshake two round trips.
    const STEP: Duration = Duration::from_secs(5);

    /// Admission without a PROXY header and without TLS, with at most `per_address_max` connections per address.
    /// Addresses in `exempt` have no cap.
    pub(crate) fn new(per_address_max: NonZeroU32, exempt: TrustedProxies) -> Self {
        Self { proxies: TrustedProxies::default(), cap: ConnectionCap::new(per_address_max, exempt), tls: None }
    }

    /// Requires a PROXY header of these peers.
    pub(crate) fn with_proxy_protocol(self, proxies: TrustedProxies) -> Self {
        Self { proxies, ..self }
    }

    /// Requires TLS, if there is a certificate.
    pub(crate) fn with_tls(self, tls: Option<ListenerTls>) -> Self {
        Self { tls, ..self }
    }

    /// Whether connections must use TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Admits a connection without waiting, or returns its stream if a step must wait for bytes.
    pub(super) fn try_admit(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Either<Result<AdmittedConnection, AdmissionError>, TcpStream> {
        if self.tls.is_some() || self.proxies.contains(peer.ip()) {
            return Either::Right(stream);
        }
        let address_permit = self.cap.acquire(peer.ip()).ok_or(AdmissionError::TooManyConnections);
        Either::Left(address_permit.map(|address_permit| AdmittedConnection {
            io: Either::Left(stream),
            client: peer,
            address_permit,
        }))
    }

    /// Admits a connection after all steps.
    pub(super) async fn admit(
        &self,
        mut stream: TcpStream,
        peer: SocketAddr,
    ) -> Result<AdmittedConnection, AdmissionError> {
        let client = if self.proxies.contains(peer.ip()) {
            let named = timeout(Self::STEP, read_header(&mut stream)).await;
            match named.map_err(|_elapsed| AdmissionError::Slow("PROXY header"))?? {
                ProxiedClient::Sender => peer,
                ProxiedClient::At(client) => client,
            }
        } else {
            peer
        };
        let address_permit = self.cap.acquire(client.ip()).ok_or(AdmissionError::TooManyConnections)?;
        let io = match &self.tls {
            None => Either::Left(stream),
            Some(tls) => {
                let shaken = TlsAcceptor::from(tls.current()).accept(stream);
                let shaken = timeout(Self::STEP, shaken).await;
                Either::Right(shaken.map_err(|_elapsed| AdmissionError::Slow("TLS handshake"))??)
            }
        };
        Ok(AdmittedConnection { io, client, address_permit })
    }
}

/// Reads exactly the header: the bytes after it belong to the protocol.
async fn read_header(stream: &mut TcpStream) -> Result<ProxiedClient, AdmissionError> {
    let mut fixed = [0; FIXED_BYTES];
    stream.read_exact(&mut fixed).await?;
    let mut rest = [0; REST_BYTES_MAX];
    let rest = &mut rest[..proxy_header::rest_bytes(&fixed)?];
    stream.read_exact(rest).await?;
    Ok(proxy_header::client(&fixed, rest)?)
}
