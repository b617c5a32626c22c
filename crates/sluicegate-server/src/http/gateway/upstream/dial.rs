//! Opens connections to one upstream: resolve, connect, encrypt.
//!
//! Names are resolved for every new connection, so that a change in DNS takes effect. Link-local addresses are never
//! connected to, whatever a name resolves to: cloud providers serve the credentials of machines there.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::stream::Stream;
use super::tls::{Encryption, Offer};
use crate::config::gateway::{UpstreamUrl, is_link_local};

/// Opens connections to one upstream.
#[derive(Debug)]
pub(super) struct Dialer {
    host: Box<str>,
    port: u16,
    encryption: Option<Encryption>,
    timeout: Duration,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum DialError {
    /// Connecting took too long.
    Late,
    /// The name resolves only to addresses that are never connected to.
    LinkLocal(IpAddr),
    /// The operating system or the peer refused.
    Failed(io::Error),
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("no connection in time"),
            Self::LinkLocal(address) => {
                write!(f, "it resolves to {address}, and addresses of the local link are not connected to")
            }
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl Dialer {
    /// Opens connections to `url`.
    pub(super) fn new(url: &UpstreamUrl, encryption: Option<Encryption>, timeout: Duration) -> Self {
        Self { host: url.host().into(), port: url.port(), encryption, timeout }
    }

    /// Opens a connection and offers these protocols, if they can be negotiated.
    pub(super) async fn open(&self, offer: Offer) -> Result<(Stream, Protocol), DialError> {
        timeout(self.timeout, self.open_without_limit(offer)).await.unwrap_or(Err(DialError::Late))
    }

    async fn open_without_limit(&self, offer: Offer) -> Result<(Stream, Protocol), DialError> {
        let stream = self.connect().await?;
        // A request is written when it is complete; it must not wait for more.
        stream.set_nodelay(true)?;
        let Some(encryption) = &self.encryption else {
            let protocol = if offer == Offer::Http2 { Protocol::Http2 } else { Protocol::Http1 };
            return Ok((Stream::Plain(stream), protocol));
        };
        let (stream, protocol) = encryption.encrypt(stream, offer).await?;
        Ok((Stream::Encrypted(Box::new(stream)), protocol))
    }

    /// The first address that accepts the connection.
    async fn connect(&self) -> Result<TcpStream, DialError> {
        let mut last = DialError::Failed(io::Error::other("the name has no address"));
        for address in self.addresses().await? {
            if is_link_local(address.ip()) {
                last = DialError::LinkLocal(address.ip());
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        // An address needs no resolver, which would take a thread's time.
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        Ok(lookup_host((&*self.host, self.port)).await?.collect())
    }
}
