//! The servers to use, and how: parsed from one URL, refined by settings.

mod url;

#[cfg(test)]
mod tests;

use crate::store::redis::client::address::Address;
use crate::store::redis::client::credentials::{Credentials, Password};
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

/// The default timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The default timeout of commands outside of decisions.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// The default limit of calls in flight on one connection. A server that was stalled finds at most that many when it
/// resumes, all of them past their deadline.
const IN_FLIGHT_MAX: NonZeroUsize = NonZeroUsize::new(512).unwrap();
/// The default number of connections to a server. Calls on a connection do not wait for each other, and a server
/// executes one script at a time, so more than one is seldom useful.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::MIN;

/// Which Redis or Valkey servers to use, and how.
///
/// Parsed from a URL: `redis://[user:password@]host[:port][/database]`,
/// `redis+sentinel://host[:port],…/service-name[/database]` or `redis+cluster://host[:port],…`, each also with
/// `rediss` for TLS.
///
/// ```
/// use sluicegate::store::redis::RedisOptions;
///
/// let options: RedisOptions = "redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/limits".parse()?;
/// # Ok::<(), sluicegate::store::redis::OptionsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RedisOptions {
    pub(crate) servers: ServerNames,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) sentinel_credentials: Option<Credentials>,
    pub(crate) encrypted: bool,
    pub(crate) certificates: Certificates,
    pub(crate) connections: NonZeroUsize,
    pub(crate) in_flight_max: NonZeroUsize,
    pub(crate) connect_timeout: Duration,
    pub(crate) read_timeout: Duration,
}

/// The servers in the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerNames {
    /// One server.
    Single { address: Address, database: u16 },
    /// The server that the sentinels name as the primary of a service.
    Sentinel { sentinels: Vec<Address>, service: String, database: u16 },
    /// All primaries of a Cluster, found through any of its servers.
    Cluster { seeds: Vec<Address> },
}

/// The certificates of a TLS connection, as PEM text.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// The certificate authorities to trust instead of the system's.
    pub(crate) authorities: Option<Vec<u8>>,
    /// This client's certificate chain and its private key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// Invalid options. The message contains the remedy and never a password.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionsError {
    /// The error, and the remedy.
    pub message: String,
}

impl RedisOptions {
    fn new(servers: ServerNames, credentials: Option<Credentials>, encrypted: bool) -> Self {
        Self {
            servers,
            credentials,
            sentinel_credentials: None,
            encrypted,
            certificates: Certificates::default(),
            connections: CONNECTIONS,
            in_flight_max: IN_FLIGHT_MAX,
            connect_timeout: CONNECT_TIMEOUT,
            read_timeout: READ_TIMEOUT,
        }
    }

    /// User name and password for the sentinels. Those of the servers are not used there.
    #[must_use]
    pub fn sentinel_credentials(mut self, user: Option<String>, password: String) -> Self {
        self.sentinel_credentials = Some(Credentials { user, password: Password::new(password) });
        self
    }

    /// Trusts these certificate authorities (PEM) instead of the system's.
    #[must_use]
    pub fn certificate_authorities(mut self, pem: Vec<u8>) -> Self {
        self.certificates.authorities = Some(pem);
        self
    }

    /// Presents this certificate chain to servers, with its private key; both in PEM.
    #[must_use]
    pub fn client_certificate(mut self, chain_pem: Vec<u8>, key_pem: Vec<u8>) -> Self {
        self.certificates.client = Some((chain_pem, key_pem));
        self
    }

    /// The number of connections to each server; 1 by default.
    #[must_use]
    pub fn connections(mut self, count: NonZeroUsize) -> Self {
        self.connections = count;
        self
    }

    /// The most calls in flight on one connection; 512 by default.
    #[must_use]
    pub fn in_flight_max(mut self, count: NonZeroUsize) -> Self {
        self.in_flight_max = count;
        self
    }

    /// The timeout for connecting, including TLS and authentication; 1 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The timeout of commands that no decision waits for, such as `CLUSTER SLOTS`; 1 s by default.
    #[must_use]
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }
}

/// The URL, without user name and password.
impl fmt::Display for RedisOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.encrypted { "rediss" } else { "redis" };
        let listed =
            |addresses: &[Address]| addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
        let database = |number: u16| if number == 0 { String::new() } else { format!("/{number}") };
        match &self.servers {
            ServerNames::Single { address, database: number } => {
                write!(formatter, "{scheme}://{address}{}", database(*number))
            }
            ServerNames::Sentinel { sentinels, service, database: number } => {
                write!(formatter, "{scheme}+sentinel://{}/{service}{}", listed(sentinels), database(*number))
            }
            ServerNames::Cluster { seeds } => write!(formatter, "{scheme}+cluster://{}", listed(seeds)),
        }
    }
}

impl FromStr for RedisOptions {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Self, OptionsError> {
        url::parse(text)
    }
}

impl OptionsError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { authorities, client } = self;
        let (authorities, client) = (authorities.is_some(), client.is_some());
        formatter.debug_struct("Certificates").field("authorities", &authorities).field("client", &client).finish()
    }
}

impl fmt::Display for OptionsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for OptionsError {}
