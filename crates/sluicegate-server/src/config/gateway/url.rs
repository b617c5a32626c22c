//! The URL of an upstream: a scheme, a host and a port, and nothing else.

use axum::http::{HeaderValue, Uri};
use sluicegate::rules::file::ValueError;
use std::net::IpAddr;

/// The address of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamUrl {
    is_https: bool,
    /// Without the brackets of an IPv6 address.
    host: Box<str>,
    port: u16,
    authority: HeaderValue,
}

impl UpstreamUrl {
    /// Reads a URL. A path, a query or a user is an error.
    pub(in crate::config) fn parse(text: &str) -> Result<Self, ValueError> {
        let wrong = |message: &str| {
            let remedy = "write a scheme, a host and perhaps a port, for example http://127.0.0.1:9000";
            ValueError::new(message, remedy)
        };
        let is_https = match text.split_once("://") {
            Some(("http", _)) => false,
            Some(("https", _)) => true,
            _ => return Err(wrong("not an http:// or https:// URL")),
        };
        let Ok(uri) = text.parse::<Uri>() else { return Err(wrong("not a URL")) };
        let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
            return Err(wrong("a URL without a host"));
        };
        if authority.as_str().contains('@') {
            return Err(wrong("a URL with a user"));
        }
        let has_path = uri.path_and_query().is_some_and(|path| path.as_str() != "/");
        if has_path || text.ends_with('/') || text.contains('#') {
            return Err(wrong("a URL with a path"));
        }
        let is_default = authority.as_str() == authority.host();
        let port = match authority.port_u16() {
            Some(port) if port != 0 => port,
            None if is_default => {
                if is_https {
                    443
                } else {
                    80
                }
            }
            _ => return Err(wrong("a URL with a port that is none")),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.parse().is_ok_and(is_link_local) {
            let remedy = "name another address: on the local link clouds keep the keys of their machines";
            return Err(ValueError::new("an address of the local link", remedy));
        }
        let Ok(value) = HeaderValue::from_str(authority.as_str()) else { return Err(wrong("not a URL")) };
        Ok(Self { is_https, host: host.into(), port, authority: value })
    }

    pub(crate) fn is_https(&self) -> bool {
        self.is_https
    }

    /// The name or the address.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Host and port as in the URL.
    pub(crate) fn authority(&self) -> HeaderValue {
        self.authority.clone()
    }
}

/// Whether an address is link-local. Cloud providers serve the credentials of their machines there.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_scheme_a_host_and_a_port() {
        for (text, is_https, host, port) in [
            ("http://127.0.0.1:9000", false, "127.0.0.1", 9000),
            ("http://app", false, "app", 80),
            ("https://app.example.com", true, "app.example.com", 443),
            ("https://[::1]:8443", true, "::1", 8443),
        ] {
            let url = UpstreamUrl::parse(text).expect("a URL");
            assert_eq!((url.is_https(), url.host(), url.port()), (is_https, host, port));
            assert_eq!(url.authority(), text.split_once("://").expect("a scheme").1);
        }
    }

    #[test]
    fn urls_with_other_parts_are_rejected() {
        for text in [
            "",
            "app",
            "app:80",
            "ftp://app",
            "HTTP://app",
            "http://",
            "http://:80",
            "http://a/",
            "http://a/b",
            "http://a?b",
            "http://a#b",
            "http://user@a",
            "http://user:secret@a",
            "http://a:",
            "http://a:0",
            "http://a:65536",
            "http://a b",
        ] {
            assert!(UpstreamUrl::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn link_local_addresses_are_rejected() {
        for text in
            ["http://169.254.169.254", "http://169.254.0.1:80", "http://[fe80::1]", "http://[::ffff:169.254.1.1]"]
        {
            assert_eq!(UpstreamUrl::parse(text).unwrap_err().message, "an address of the local link", "{text}");
        }
        for text in ["http://169.253.0.1", "http://10.0.0.1", "http://[fd00::1]", "http://127.0.0.1"] {
            assert!(UpstreamUrl::parse(text).is_ok(), "{text}");
        }
    }
}
