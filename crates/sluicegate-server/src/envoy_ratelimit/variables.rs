//! The environment variables of `envoyproxy/ratelimit`: supported ones, unsupported ones that are errors because users would miss
//! their effect, and ones without effect that are only reported.

use std::fmt;
use std::path::PathBuf;

use sluicegate::rules::envoy::EnvoyOptions;
use sluicegate::rules::file::Environment;

use super::headers;
use super::store;
use crate::config::envoy_headers::EnvoyHeaders;
use crate::settings::Listen;

/// The default subdirectory of `RUNTIME_ROOT`, instead of `RUNTIME_APPDIRECTORY`.
const APP_DIRECTORY: &str = "config";

/// Variables with an unsupported effect that users would miss.
const REFUSED: &[(&str, Wanted, &str)] = &[
    ("CONFIG_TYPE", Wanted::OtherThan("FILE"), "configuration over xDS is not supported; use files, or unset it"),
    ("GRPC_UDS", Wanted::Anything, "a Unix socket is not supported; unset it, and set GRPC_PORT"),
    (
        "GRPC_SERVER_USE_TLS",
        Wanted::Yes,
        "put certificate and key in `listen.api.tls` of a configuration file instead",
    ),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Wanted::Yes, "certificates are always verified; unset it"),
];

/// When such a variable has its effect.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Anything,
    Yes,
    OtherThan(&'static str),
}

/// Variables without effect, because Sluicegate works differently. The documentation explains each.
const UNUSED: &[&str] = &[
    "CACHE_KEY_PREFIX",
    "DISABLE_STATS",
    "EXPIRATION_JITTER_MAX_SECONDS",
    "EXTRA_TAGS",
    "FORCE_START_WITHOUT_INITIAL_CONFIG",
    "GRPC_MAX_CONNECTION_AGE",
    "GRPC_MAX_CONNECTION_AGE_GRACE",
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
    "LOCAL_CACHE_SIZE_IN_BYTES",
    "LOG_FORMAT",
    "LOG_LEVEL",
    "NEAR_LIMIT_RATIO",
    "PROTO",
    "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
    "REDIS_PIPELINE_LIMIT",
    "REDIS_PIPELINE_WINDOW",
    "REDIS_POOL_SIZE",
    "RESPONSE_DYNAMIC_METADATA",
    "RUNTIME_IGNOREDOTFILES",
    "RUNTIME_WATCH_ROOT",
    "STATSD_HOST",
    "STATSD_PORT",
    "STATS_FLUSH_INTERVAL",
    "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
    "USE_DOG_STATSD",
    "USE_DOG_STATSD_MOGRIFIERS",
    "USE_PROMETHEUS",
    "USE_STATSD",
];

/// The prefixes of whole families of such variables.
const UNUSED_STARTS: &[&str] = &[
    "CONFIG_GRPC_XDS_",
    "GRPC_CLIENT_TLS_",
    "GRPC_SERVER_TLS_",
    "MEMCACHE_",
    "PROMETHEUS_",
    "REDIS_PERSECOND",
    "TRACING_",
    "XDS_CLIENT_",
];

/// The spellings of booleans in Go.
const YES: &[&str] = &["1", "t", "T", "true", "TRUE", "True"];
const NO: &[&str] = &["0", "f", "F", "false", "FALSE", "False"];

/// The settings of the variables.
#[derive(Clone)]
pub(super) struct Variables {
    pub(super) api: Option<String>,
    pub(super) gateway: Option<String>,
    pub(super) admin: Option<String>,
    /// May contain a password.
    pub(super) store: Option<String>,
    pub(super) redis_files: RedisFiles,
    pub(super) options: EnvoyOptions,
    pub(super) headers: EnvoyHeaders,
    /// Variables that are set and have no effect.
    pub(super) unused: Vec<String>,
}

/// The TLS settings of connections to Redis.
#[derive(Clone, Debug, Default)]
pub(super) struct RedisFiles {
    pub(super) authorities: Option<PathBuf>,
    /// The client certificate and its key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Variables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { api, gateway, admin, options, .. } = self;
        write!(formatter, "variables of envoyproxy/ratelimit ({api:?}, {gateway:?}, {admin:?}, {options:?})")
    }
}

/// An unsupported variable; the error has a remedy and no value, which may be a secret.
#[derive(Debug, thiserror::Error)]
#[error("{name} of envoyproxy/ratelimit: {problem}")]
pub(crate) struct VariableError {
    name: &'static str,
    problem: String,
}

impl VariableError {
    pub(super) fn new(name: &'static str, problem: impl Into<String>) -> Self {
        Self { name, problem: problem.into() }
    }
}

impl Variables {
    /// Reads them.
    pub(super) fn read(environment: &Environment) -> Result<Self, VariableError> {
        refuse(environment)?;
        let flag = |name| flag(environment, name);
        let options = EnvoyOptions {
            merge_domains: flag("MERGE_DOMAIN_CONFIG")?,
            is_shadow: flag("SHADOW_MODE")?,
            is_quota: flag("QUOTA_MODE")?,
        };
        let is_unused = |name: &&String| {
            let is_meant =
                UNUSED.contains(&name.as_str()) || UNUSED_STARTS.iter().any(|start| name.starts_with(start));
            is_meant && text(environment, name).is_some()
        };
        Ok(Self {
            api: address(environment, ("GRPC_HOST", "0.0.0.0"), ("GRPC_PORT", "8081"))?,
            gateway: address(environment, ("HOST", "0.0.0.0"), ("PORT", "8080"))?,
            // The admin listener can change settings.
            admin: address(environment, ("DEBUG_HOST", "127.0.0.1"), ("DEBUG_PORT", "6070"))?,
            store: store::url(environment)?,
            redis_files: redis_files(environment)?,
            options,
            headers: headers::read(environment)?,
            unused: environment.keys().filter(is_unused).cloned().collect(),
        })
    }
}

/// The directory from `RUNTIME_ROOT` and the related variables.
pub(super) fn directory(environment: &Environment) -> Option<PathBuf> {
    let root = PathBuf::from(text(environment, "RUNTIME_ROOT")?);
    let below = text(environment, "RUNTIME_SUBDIRECTORY").map_or(root.clone(), |below| root.join(below));
    Some(below.join(text(environment, "RUNTIME_APPDIRECTORY").unwrap_or(APP_DIRECTORY)))
}

/// The value of a variable; an empty one counts as unset.
pub(super) fn text<'e>(environment: &'e Environment, name: &str) -> Option<&'e str> {
    environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

/// Whether a variable is true.
pub(super) fn flag(environment: &Environment, name: &'static str) -> Result<bool, VariableError> {
    match text(environment, name) {
        None => Ok(false),
        Some(value) if YES.contains(&value) => Ok(true),
        Some(value) if NO.contains(&value) => Ok(false),
        Some(_) => Err(VariableError::new(name, "use true or false")),
    }
}

fn refuse(environment: &Environment) -> Result<(), VariableError> {
    for (name, wanted, problem) in REFUSED {
        let Some(value) = text(environment, name) else { continue };
        let is_wanted = match wanted {
            Wanted::Anything => true,
            Wanted::Yes => flag(environment, name)?,
            Wanted::OtherThan(usual) => !value.eq_ignore_ascii_case(usual),
        };
        if is_wanted {
            return Err(VariableError::new(name, *problem));
        }
    }
    Ok(())
}

type Named = (&'static str, &'static str);

/// The address of a listener, if one of the two variables is set; each has a default.
fn address(environment: &Environment, host: Named, port: Named) -> Result<Option<String>, VariableError> {
    let (given_host, given_port) = (text(environment, host.0), text(environment, port.0));
    if given_host.is_none() && given_port.is_none() {
        return Ok(None);
    }
    let number = given_port.unwrap_or(port.1);
    if number.parse::<u16>().is_err() {
        return Err(VariableError::new(port.0, format!("use a port from 0 to 65535, for example {}", port.1)));
    }
    let name = given_host.unwrap_or(host.1);
    let address = if name.contains(':') { format!("[{name}]:{number}") } else { format!("{name}:{number}") };
    match Listen::parse(&address, &format!("{}:{}", host.1, port.1)) {
        Ok(_) => Ok(Some(address)),
        Err(error) => Err(VariableError::new(host.0, error.to_string())),
    }
}

fn redis_files(environment: &Environment) -> Result<RedisFiles, VariableError> {
    let path = |name| text(environment, name).map(PathBuf::from);
    let client = match (path("REDIS_TLS_CLIENT_CERT"), path("REDIS_TLS_CLIENT_KEY")) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(VariableError::new("REDIS_TLS_CLIENT_KEY", "set it too: the certificate needs it"));
        }
        (None, Some(_)) => {
            return Err(VariableError::new("REDIS_TLS_CLIENT_CERT", "set it too: the key needs it"));
        }
    };
    Ok(RedisFiles { authorities: path("REDIS_TLS_CACERT"), client })
}
