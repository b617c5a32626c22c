//! The Redis URL, built from the variables of `envoyproxy/ratelimit`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sluicegate::rules::file::Environment;

use super::variables::{VariableError, flag, text};
use crate::settings::StoreUrl;

/// The characters that need no escape in a user name or a password.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The URL of the store, if the variables name one.
pub(super) fn url(environment: &Environment) -> Result<Option<String>, VariableError> {
    refuse_others(environment)?;
    let Some(servers) = text(environment, "REDIS_URL") else { return Ok(None) };
    if servers.starts_with('/') || text(environment, "REDIS_SOCKET_TYPE") == Some("unix") {
        let problem = "Redis over a Unix socket is not supported; give host:port, and REDIS_SOCKET_TYPE=tcp";
        return Err(VariableError::new("REDIS_URL", problem));
    }
    let url = if servers.contains("://") {
        with_credentials(servers, &credentials(environment))
    } else {
        made(environment, servers)?
    };
    StoreUrl::parse(&url).map_err(|problem| VariableError::new("REDIS_URL", problem))?;
    Ok(Some(url))
}

/// Contradictory variables are errors: state must not end up in an unexpected place.
fn refuse_others(environment: &Environment) -> Result<(), VariableError> {
    match text(environment, "BACKEND_TYPE") {
        None | Some("redis") => Ok(()),
        Some(_) => Err(VariableError::new("BACKEND_TYPE", "only redis is supported; set it so, or unset it")),
    }
}

fn made(environment: &Environment, servers: &str) -> Result<String, VariableError> {
    let scheme = if flag(environment, "REDIS_TLS")? { "rediss" } else { "redis" };
    let credentials = credentials(environment);
    let kind = text(environment, "REDIS_TYPE").unwrap_or("SINGLE").to_ascii_lowercase();
    match kind.as_str() {
        "single" => Ok(format!("{scheme}://{credentials}{servers}")),
        "cluster" => Ok(format!("{scheme}+cluster://{credentials}{servers}")),
        "sentinel" => {
            let (name, servers) = servers.split_once(',').ok_or_else(|| {
                let problem = "give the name of the service first, for example mymaster,host1:26379,host2:26379";
                VariableError::new("REDIS_URL", problem)
            })?;
            Ok(format!("{scheme}+sentinel://{credentials}{servers}/{name}"))
        }
        _ => Err(VariableError::new("REDIS_TYPE", "use SINGLE, SENTINEL or CLUSTER")),
    }
}

/// `REDIS_AUTH` is a password, or a user name and a password.
fn credentials(environment: &Environment) -> String {
    let encoded = |text| utf8_percent_encode(text, PLAIN);
    match text(environment, "REDIS_AUTH").map(|auth| auth.split_once(':').unwrap_or(("", auth))) {
        Some((user, password)) => format!("{}:{}@", encoded(user), encoded(password)),
        None => String::new(),
    }
}

/// A URL with credentials excludes `REDIS_AUTH`.
fn with_credentials(url: &str, credentials: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) if !rest.contains('@') => format!("{scheme}://{credentials}{rest}"),
        _ => url.to_owned(),
    }
}
