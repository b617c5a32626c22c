//! Which servers to use, and how: parsed from one URL, refined by settings.

mod url;

#[cfg(test)]
mod tests;

use super::address::Address;
use super::password::{Credentials, Password};
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

/// How long connecting may take, unless told otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer outside of decisions may take, unless told otherwise.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// How many calls may wait for their answers on one connection, unless told otherwise. A server that stands still
/// can later find at most that many, all of them late.
const IN_FLIGHT_MAX: NonZeroUsize = NonZeroUsize::new(512).unwrap();
/// How many connections to open to a server, unless told otherwise. Calls share a connection without waiting for
/// one another, and a server runs one script at a time, so more than one is seldom of use.
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
    pub(super) servers: ServerNames,
    pub(super) credentials: Option<Credentials>,
    pub(super) sentinel_credentials: Option<Credentials>,
    pub(super) encrypted: bool,
    pub(super) certificates: Certificates,
    pub(super) connections: NonZeroUsize,
    pub(super) in_flight_max: NonZeroUsize,
    pub(super) connect_timeout: Duration,
    pub(super) read_timeout: Duration,
}

/// The servers as the URL names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerNames {
    /// One server.
    Single { address: Address, database: u16 },
    /// Whichever server the sentinels name as the primary of a service.
    Sentinel { sentinels: Vec<Address>, service: String, database: u16 },
    /// All primaries of a Cluster, found through any of its servers.
    Cluster { seeds: Vec<Address> },
}

/// Whom to trust and who we are in TLS, as the text of PEM files.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    /// The authorities to trust instead of the system's.
    pub(super) authorities: Option<Vec<u8>>,
    /// Our certificate chain and its key.
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// Options that make no sense. The message says what to write instead and never shows a password.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionsError {
    /// What is wrong, and the remedy.
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

    /// The name and the password for the sentinels, which are not those for the servers.
    #[must_use]
    pub fn sentinel_credentials(mut self, user: Option<String>, password: String) -> Self {
        self.sentinel_credentials = Some(Credentials { user, password: Password::new(password) });
        self
    }

    /// Trusts these certificate authorities, in PEM, instead of the system's.
    #[must_use]
    pub fn certificate_authorities(mut self, pem: Vec<u8>) -> Self {
        self.certificates.authorities = Some(pem);
        self
    }

    /// Shows this certificate chain to servers, and proves it with this key; both in PEM.
    #[must_use]
    pub fn client_certificate(mut self, chain_pem: Vec<u8>, key_pem: Vec<u8>) -> Self {
        self.certificates.client = Some((chain_pem, key_pem));
        self
    }

    /// How many connections to open to each server: 1 unless told otherwise.
    #[must_use]
    pub fn connections(mut self, count: NonZeroUsize) -> Self {
        self.connections = count;
        self
    }

    /// How many calls may wait for their answers on one connection: 512 unless told otherwise.
    #[must_use]
    pub fn in_flight_max(mut self, count: NonZeroUsize) -> Self {
        self.in_flight_max = count;
        self
    }

    /// How long connecting may take, TLS and password included: 1 s unless told otherwise.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long answers may take that no decision waits for, such as a Cluster's map: 1 s unless told otherwise.
    #[must_use]
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }
}

/// The URL, without name and password.
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
    pub(super) fn new(message: impl Into<String>) -> Self {
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
