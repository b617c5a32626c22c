//! Opens connections to one upstream: resolves, connects, encrypts.
//!
//! Names are resolved for every new connection, so that a change in DNS is followed. Addresses of the local link are
//! never connected to, whatever a name resolves to: that is where clouds keep the keys of their machines.

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
    /// It was not there in time.
    Late,
    /// The name stands for an address that is never connected to.
    LinkLocal(IpAddr),
    /// The system or the other side said no.
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

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    Http1,
    Http2,
}

impl Dialer {
    /// Opens connections to `url`.
    pub(super) fn new(url: &UpstreamUrl, encryption: Option<Encryption>, timeout: Duration) -> Self {
        Self { host: url.host().into(), port: url.port(), encryption, timeout }
    }

    /// Opens a connection and offers these protocols on it, if it can be negotiated at all.
    pub(super) async fn open(&self, offer: Offer) -> Result<(Stream, Spoken), DialError> {
        timeout(self.timeout, self.open_without_limit(offer)).await.unwrap_or(Err(DialError::Late))
    }

    async fn open_without_limit(&self, offer: Offer) -> Result<(Stream, Spoken), DialError> {
        let stream = self.connect().await?;
        // A request is written when it is complete; it must not wait for more.
        stream.set_nodelay(true)?;
        let Some(encryption) = &self.encryption else {
            let spoken = if offer == Offer::Http2 { Spoken::Http2 } else { Spoken::Http1 };
            return Ok((Stream::Plain(stream), spoken));
        };
        let (stream, spoken) = encryption.encrypt(stream, offer).await?;
        Ok((Stream::Encrypted(Box::new(stream)), spoken))
    }

    /// The first address that takes the connection.
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
        // An address needs no resolver, which would cost a thread's time.
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        Ok(lookup_host((&*self.host, self.port)).await?.collect())
    }
}
