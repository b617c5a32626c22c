//! The address of a server.

use std::fmt;

/// A host and a TCP port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    /// A name or an IP address; IPv6 without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Parses the address in a redirection, `host:port`: IPv6 has no brackets, and an empty host is that of the
    /// server that sent it (`origin`).
    pub(crate) fn from_redirection(text: &str, origin: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = if host.is_empty() { &origin.host } else { host };
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(formatter, "[{host}]:{port}") } else { write!(formatter, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    #[test]
    fn redirections_are_read_as_servers_write_them() {
        let origin = address("asked", 1);
        let read = |text| Address::from_redirection(text, &origin);
        assert_eq!(read("10.0.0.7:7001"), Some(address("10.0.0.7", 7001)));
        assert_eq!(read("::1:7001"), Some(address("::1", 7001)));
        assert_eq!(read(":7001"), Some(address("asked", 7001)));
        for nonsense in ["", "host", "host:", "host:port", "host:70000"] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn ipv6_is_shown_in_brackets() {
        assert_eq!(address("::1", 6379).to_string(), "[::1]:6379");
        assert_eq!(address("host", 6379).to_string(), "host:6379");
    }
}
