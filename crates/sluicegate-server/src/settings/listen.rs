//! `ADDR|off`: the value of every listener flag.

use std::net::{SocketAddr, ToSocketAddrs as _};

use sluicegate::authority::is_host_name;

/// The address of a listener, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// The listener is off.
    Off,
    /// An address. With port 0 the kernel selects a free port.
    At(SocketAddr),
}

/// An invalid address, with the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// Not `HOST:PORT`.
    #[error("`{value}` is not HOST:PORT; give for example {example}, or `off`")]
    Malformed {
        /// As typed, escaped.
        value: String,
        /// A valid value.
        example: String,
    },
    /// An invalid port.
    #[error("`{value}` has no port from 0 to 65535; give for example {example}, or `off`")]
    Port {
        /// As typed, escaped.
        value: String,
        /// A valid value.
        example: String,
    },
    /// A name that does not resolve.
    #[error("`{value}` cannot be resolved ({reason}); give an IP address such as {example}, or `off`")]
    Unresolved {
        /// As typed, escaped.
        value: String,
        /// The error of the resolver.
        reason: String,
        /// A valid value.
        example: String,
    },
}

impl Listen {
    /// Reads `HOST:PORT` or `off`; errors show `example`. A host name is resolved, with preference for IPv4: the
    /// defaults use it, and clients try it first for `localhost`.
    pub(crate) fn parse(value: &str, example: &str) -> Result<Self, ListenError> {
        if value.eq_ignore_ascii_case("off") {
            return Ok(Self::Off);
        }
        if let Ok(address) = value.parse() {
            return Ok(Self::At(address));
        }
        let shown = || value.chars().take(128).flat_map(char::escape_debug).collect();
        let example = || example.to_owned();
        let Some((host, port)) = value.rsplit_once(':').filter(|(host, _)| is_host_name(host)) else {
            return Err(ListenError::Malformed { value: shown(), example: example() });
        };
        let Ok(port) = port.parse::<u16>() else {
            return Err(ListenError::Port { value: shown(), example: example() });
        };
        let unresolved = |reason| ListenError::Unresolved { value: shown(), reason, example: example() };
        let addresses = (host, port).to_socket_addrs();
        let addresses: Vec<_> = addresses.map_err(|error| unresolved(error.to_string()))?.collect();
        let ipv4 = addresses.iter().find(|address| address.is_ipv4());
        match ipv4.or(addresses.first()) {
            Some(address) => Ok(Self::At(*address)),
            None => Err(unresolved("it has no address".to_owned())),
        }
    }
}
