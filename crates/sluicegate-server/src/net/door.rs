//! What a connection passes between being accepted and being served: who it is from, whether it may come in, and TLS.
//!
//! In this order, each step within [`Door::STEP`]:
//!
//! 1. The PROXY header, if the peer is one of those that must send one. From here on the client it names is the peer.
//!    Who is not on that list is taken for who it is, whatever it sends.
//! 2. The cap on connections per address ([`super::crowd`]).
//! 3. The TLS handshake, if the listener has certificates ([`super::tls`]).
//!
//! A connection that fails a step is closed without a word: there is nobody yet who would understand one.

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

use super::crowd::{Crowd, Place};
use super::proxy_header::{self, Client, FIXED_BYTES, Malformed, REST_BYTES_MAX};
use super::tls::Tls;

/// The bytes of a connection, as they are or under TLS.
pub(crate) type Transport = Either<TcpStream, TlsStream<TcpStream>>;

/// What the connections of a listener pass.
#[derive(Debug)]
pub(crate) struct Door {
    proxies: TrustedProxies,
    crowd: Arc<Crowd>,
    tls: Option<Tls>,
}

/// A connection that was let in.
pub(super) struct Entered {
    pub(super) io: Transport,
    pub(super) client: SocketAddr,
    pub(super) place: Place,
}

/// Why a connection was not let in.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("the address has too many connections")]
    Crowded,
    #[error(transparent)]
    Header(#[from] Malformed),
    #[error("the peer took too long over its {0}")]
    Slow(&'static str),
    #[error("the peer broke off: {0}")]
    Broken(#[from] std::io::Error),
}

impl Door {
    /// How long one step may take. A header is a single packet, a handshake two round trips.
    const STEP: Duration = Duration::from_secs(5);

    /// A door that everybody passes as they are, with at most so many connections per address; those that are `exempt`
    /// are not counted.
    pub(crate) fn new(per_address_max: NonZeroU32, exempt: TrustedProxies) -> Self {
        Self { proxies: TrustedProxies::default(), crowd: Crowd::new(per_address_max, exempt), tls: None }
    }

    /// The same door; these peers must say who their client is.
    pub(crate) fn with_proxy_protocol(self, proxies: TrustedProxies) -> Self {
        Self { proxies, ..self }
    }

    /// The same door, under TLS.
    pub(crate) fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }

    /// Whether the bytes are under TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Lets a connection in at once, if there is nothing to wait for.
    pub(super) fn pass_at_once(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Either<Result<Entered, Refused>, TcpStream> {
        if self.tls.is_some() || self.proxies.contains(peer.ip()) {
            return Either::Right(stream);
        }
        let place = self.crowd.join(peer.ip()).ok_or(Refused::Crowded);
        Either::Left(place.map(|place| Entered { io: Either::Left(stream), client: peer, place }))
    }

    /// Lets a connection in once it has done what is asked of it.
    pub(super) async fn pass(&self, mut stream: TcpStream, peer: SocketAddr) -> Result<Entered, Refused> {
        let client = if self.proxies.contains(peer.ip()) {
            let named = timeout(Self::STEP, read_header(&mut stream)).await;
            match named.map_err(|_elapsed| Refused::Slow("PROXY header"))?? {
                Client::Sender => peer,
                Client::At(client) => client,
            }
        } else {
            peer
        };
        let place = self.crowd.join(client.ip()).ok_or(Refused::Crowded)?;
        let io = match &self.tls {
            None => Either::Left(stream),
            Some(tls) => {
                let shaken = TlsAcceptor::from(tls.current()).accept(stream);
                let shaken = timeout(Self::STEP, shaken).await;
                Either::Right(shaken.map_err(|_elapsed| Refused::Slow("TLS handshake"))??)
            }
        };
        Ok(Entered { io, client, place })
    }
}

/// Reads exactly the header: what follows it is not ours.
async fn read_header(stream: &mut TcpStream) -> Result<Client, Refused> {
    let mut fixed = [0; FIXED_BYTES];
    stream.read_exact(&mut fixed).await?;
    let mut rest = [0; REST_BYTES_MAX];
    let rest = &mut rest[..proxy_header::rest_bytes(&fixed)?];
    stream.read_exact(rest).await?;
    Ok(proxy_header::client(&fixed, rest)?)
}
