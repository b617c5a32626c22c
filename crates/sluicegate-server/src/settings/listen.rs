//! `ADDR|off`, as every listener flag takes it.

use std::net::{SocketAddr, ToSocketAddrs as _};

/// Where a listener listens, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// Not at all.
    Off,
    /// There. Port 0 lets the kernel choose.
    At(SocketAddr),
}

/// An address that is none, with the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// Not `HOST:PORT`.
    #[error("`{value}` is not HOST:PORT; give for example {example}, or `off`")]
    Malformed {
        /// As typed, escaped.
        value: String,
        /// One that would do.
        example: String,
    },
    /// A port that is none.
    #[error("`{value}` has no port from 0 to 65535; give for example {example}, or `off`")]
    Port {
        /// As typed, escaped.
        value: String,
        /// One that would do.
        example: String,
    },
    /// A name that nobody knows.
    #[error("`{value}` cannot be resolved ({reason}); give an IP address such as {example}, or `off`")]
    Unresolved {
        /// As typed, escaped.
        value: String,
        /// What the resolver said.
        reason: String,
        /// One that would do.
        example: String,
    },
}

impl Listen {
    /// Reads `HOST:PORT` or `off`; `example` is shown in errors. A host name is resolved, and its
    /// IPv4 address is preferred: that is where `localhost` is looked for first, and what the
    /// defaults use.
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

/// Whether it is worth asking the resolver; IP addresses never get here in a valid form.
fn is_host_name(host: &str) -> bool {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !host.is_empty() && host.bytes().all(is_name_byte)
}
