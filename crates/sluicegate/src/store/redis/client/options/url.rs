//! Parses the URL of a store.
//!
//! A URL with several hosts does not follow the standard grammar, so the parts are split here. No error message
//! repeats text that could be a part of a password, however the URL is misspelt.

use super::{OptionsError, RedisOptions, ServerNames};
use crate::store::redis::client::address::Address;
use crate::store::redis::client::credentials::{Credentials, Password};
use percent_encoding::percent_decode_str;

const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

const SCHEMES: &str = "redis://, rediss://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or \
                       rediss+cluster://";

/// Parses a URL.
pub(crate) fn parse(text: &str) -> Result<RedisOptions, OptionsError> {
    let (scheme, rest) =
        text.split_once("://").ok_or_else(|| problem(format!("a store URL starts with {SCHEMES}")))?;
    let (encrypted, kind) = split_scheme(scheme)?;
    let (authority, path) = split_path(rest)?;
    let (credentials, hosts) = split_credentials(authority)?;
    let servers = match kind {
        "" => single(hosts, path)?,
        "+sentinel" => sentinel(hosts, path)?,
        _ => cluster(hosts, path)?,
    };
    Ok(RedisOptions::new(servers, credentials, encrypted))
}

fn problem(message: impl Into<String>) -> OptionsError {
    OptionsError::new(message)
}

/// Whether the connection is encrypted, and the kind of servers.
fn split_scheme(scheme: &str) -> Result<(bool, &str), OptionsError> {
    let (encrypted, kind) = match scheme.strip_prefix("rediss") {
        Some(kind) => (true, kind),
        None => (false, scheme.strip_prefix("redis").unwrap_or("unknown")),
    };
    match kind {
        "" | "+sentinel" | "+cluster" => Ok((encrypted, kind)),
        _ => Err(problem(format!("this kind of store is not known: a store URL starts with {SCHEMES}"))),
    }
}

/// The parts before and after the first slash.
fn split_path(rest: &str) -> Result<(&str, &str), OptionsError> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if rest.contains(['?', '#']) || path.contains('@') {
        let message = "a store URL has no `?` or `#` and nothing but a name or a number after the `/`; in a name or \
                       a password write % and two hexadecimal digits for such characters: %3F, %23, %2F, %40";
        return Err(problem(message));
    }
    Ok((authority, path))
}

/// The credentials and the hosts.
fn split_credentials(authority: &str) -> Result<(Option<Credentials>, &str), OptionsError> {
    let Some((who, hosts)) = authority.rsplit_once('@') else { return Ok((None, authority)) };
    let (user, password) = who.split_once(':').ok_or_else(|| {
        problem("the credentials before the `@` have no `:`; write `user:password@` or `:password@`")
    })?;
    let decode = |text| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map_err(|_| problem("the name or the password is not UTF-8 once its %-escapes are decoded"))
    };
    let (user, password) = (decode(user)?, decode(password)?);
    let user = (!user.is_empty()).then(|| user.into_owned());
    Ok((Some(Credentials { user, password: Password::new(password) }), hosts))
}

fn single(hosts: &str, path: &str) -> Result<ServerNames, OptionsError> {
    let mut addresses = addresses(hosts, SERVER_PORT)?;
    match (addresses.pop(), addresses.is_empty()) {
        (Some(address), true) => Ok(ServerNames::Single { address, database: database(path)? }),
        _ => Err(problem("a redis:// URL names one host; for several use redis+sentinel:// or redis+cluster://")),
    }
}

fn sentinel(hosts: &str, path: &str) -> Result<ServerNames, OptionsError> {
    let (service, database_number) = path.split_once('/').unwrap_or((path, ""));
    if service.is_empty() {
        return Err(problem("the service name is missing; write redis+sentinel://host:26379/service-name"));
    }
    let sentinels = addresses(hosts, SENTINEL_PORT)?;
    Ok(ServerNames::Sentinel { sentinels, service: service.to_owned(), database: database(database_number)? })
}

fn cluster(hosts: &str, path: &str) -> Result<ServerNames, OptionsError> {
    if !path.is_empty() {
        return Err(problem("a Cluster has only database 0; write nothing after the hosts"));
    }
    Ok(ServerNames::Cluster { seeds: addresses(hosts, SERVER_PORT)? })
}

fn database(path: &str) -> Result<u16, OptionsError> {
    if path.is_empty() {
        return Ok(0);
    }
    path.parse().map_err(|_| problem(format!("the database `{path}` is not a number; write for instance /0")))
}

fn addresses(hosts: &str, default_port: u16) -> Result<Vec<Address>, OptionsError> {
    hosts.split(',').map(|host| address(host, default_port)).collect()
}

fn address(text: &str, default_port: u16) -> Result<Address, OptionsError> {
    let (host, port) = match text.strip_prefix('[').map(|inner| inner.split_once(']')) {
        Some(Some((host, rest))) => (host, rest.strip_prefix(':').or(rest.is_empty().then_some(""))),
        Some(None) => return Err(problem(format!("the host `{text}` has no closing `]`"))),
        None => text.split_once(':').map_or((text, Some("")), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(problem("a host is missing; write for instance redis://127.0.0.1:6379"));
    }
    let port = match port {
        Some("") if !text.ends_with(':') => default_port,
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(|| bad_port(host, port))?,
        None => return Err(bad_port(host, "")),
    };
    Ok(Address { host: host.to_owned(), port })
}

/// Does not show the port: the text may be a user name and a password without a host.
fn bad_port(host: &str, port: &str) -> OptionsError {
    if port.contains(':') {
        return problem(format!("the host that starts with `{host}` has several `:`; write IPv6 as [::1]:6379"));
    }
    problem(format!("the port of `{host}` is not a number from 1 to 65535"))
}
