//! URLs of key sets: https anywhere, or http on this machine.
//!
//! An attacker who can change a key set in transit can sign any token. On one machine there is no transit.

use std::fmt;
use std::net::IpAddr;

use axum::http::Uri;
use axum::http::uri::Scheme;

use super::address::is_fetched_from;

/// The hosts that may be used without encryption: names and addresses that can only be this machine.
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The URL of a key set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JwksUrl {
    uri: Uri,
    is_local: bool,
}

/// Why a URL of a key set is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlProblem {
    /// It does not parse.
    #[error("not a URL")]
    NotAUrl,
    /// It has another scheme.
    #[error("neither https nor http")]
    Scheme,
    /// It uses http to another machine.
    #[error("not encrypted")]
    NotEncrypted,
    /// It contains a user or a password, which logs would show.
    #[error("a URL with a user name or password")]
    Credentials,
    /// Keys may not be fetched from its address.
    #[error("an address that no issuer has")]
    Address,
}

impl JwksUrl {
    /// Reads a URL.
    pub(crate) fn parse(text: &str) -> Result<Self, UrlProblem> {
        let uri: Uri = text.parse().map_err(|_| UrlProblem::NotAUrl)?;
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let (Some(scheme), Some(authority)) = (uri.scheme(), authority) else { return Err(UrlProblem::NotAUrl) };
        if authority.as_str().contains('@') {
            return Err(UrlProblem::Credentials);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let address: Option<IpAddr> = host.parse().ok();
        let is_local = match address {
            Some(address) => address.to_canonical().is_loopback(),
            None => host.eq_ignore_ascii_case("localhost"),
        };
        if *scheme != Scheme::HTTPS && *scheme != Scheme::HTTP {
            return Err(UrlProblem::Scheme);
        }
        if *scheme == Scheme::HTTP && !LOCAL_HOSTS.contains(&authority.host()) {
            return Err(UrlProblem::NotEncrypted);
        }
        if address.is_some_and(|address| !is_fetched_from(address, is_local)) {
            return Err(UrlProblem::Address);
        }
        Ok(Self { uri, is_local })
    }

    /// The URL.
    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// True if it names this machine.
    pub(super) fn is_local(&self) -> bool {
        self.is_local
    }

    /// True if it is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.uri.scheme() == Some(&Scheme::HTTPS)
    }
}

/// Without the query, which may contain a secret.
impl fmt::Display for JwksUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.uri.scheme_str().unwrap_or_default();
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        write!(f, "{scheme}://{authority}{}", self.uri.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_anywhere_and_http_on_this_machine() {
        for (url, is_local) in [
            ("https://id.example/.well-known/jwks.json", false),
            ("https://id.example:8443/keys?p=policy", false),
            ("HTTPS://ID.example/", false),
            ("https://10.1.2.3/keys", false),
            ("https://[2001:db8::1]/keys", false),
            ("https://127.0.0.1:8443/keys", true),
            ("http://127.0.0.1:9000/keys", true),
            ("http://[::1]:9000/keys", true),
            ("http://localhost:9000/keys", true),
        ] {
            assert_eq!(JwksUrl::parse(url).map(|url| url.is_local()), Ok(is_local), "{url}");
        }
    }

    #[test]
    fn other_urls_are_rejected_with_the_reason() {
        for (url, problem) in [
            ("", UrlProblem::NotAUrl),
            ("keys.json", UrlProblem::NotAUrl),
            ("/keys.json", UrlProblem::NotAUrl),
            ("https://", UrlProblem::NotAUrl),
            ("https:///keys", UrlProblem::NotAUrl),
            ("https://a b/", UrlProblem::NotAUrl),
            ("file:///etc/keys.json", UrlProblem::NotAUrl),
            ("ftp://id.example/keys", UrlProblem::Scheme),
            ("unix://localhost/keys", UrlProblem::Scheme),
            ("http://id.example/keys", UrlProblem::NotEncrypted),
            ("http://10.1.2.3/keys", UrlProblem::NotEncrypted),
            ("http://127.7.7.7/keys", UrlProblem::NotEncrypted),
            ("http://[::ffff:127.0.0.1]/keys", UrlProblem::NotEncrypted),
            ("http://localhost.evil.example/keys", UrlProblem::NotEncrypted),
            ("http://127.0.0.1.evil.example/keys", UrlProblem::NotEncrypted),
            ("https://user:canary@id.example/", UrlProblem::Credentials),
            ("http://127.0.0.1@id.example/", UrlProblem::Credentials),
            ("https://169.254.169.254/keys", UrlProblem::Address),
            ("https://[fe80::1]/keys", UrlProblem::Address),
            ("https://[::ffff:169.254.169.254]/keys", UrlProblem::Address),
            ("https://0.0.0.0/keys", UrlProblem::Address),
            ("https://[::]/keys", UrlProblem::Address),
            ("https://224.0.0.1/keys", UrlProblem::Address),
        ] {
            assert_eq!(JwksUrl::parse(url), Err(problem), "{url}");
        }
    }

    #[test]
    fn a_query_is_not_shown() {
        let url = JwksUrl::parse("https://id.example/keys?code=canary").expect("good");
        assert_eq!(url.to_string(), "https://id.example/keys");
    }
}
